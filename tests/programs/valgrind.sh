#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Programs that destroy all they made, under valgrind: no leak, no wrong access.
. "$(dirname "$0")/lib.sh"
need valgrind rdma_server rdma_client
first_port 7700
scale=$((scale * 2))
leak=$BUILD/tests/leak
check="valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect,possible
	--show-leak-kinds=definite,indirect,possible --suppressions=$here/valgrind.supp
	--error-exitcode=99 --num-callers=30"
check=$(tr -s '\n\t' '  ' <<< "$check")

if [ -x "$leak" ]; then
	solo "a program that makes and destroys everything" 120 "T_SCALE=10 $check $leak" \
		"^1\.\.[1-9]"
	if grep -aq '^not ok' "$logs/$case_name.client"; then
		fail "its own checks" "$(grep -a '^not ok' "$logs/$case_name.client")"
	else
		pass "its own checks"
	fi
else
	fail "a program that makes and destroys everything" "$leak is not built"
fi
next_port
pair "rdma_server and rdma_client" 60 rdma:$port \
	"$check rdma_server -s 127.0.0.1 -p $port" \
	"$check rdma_client -s 127.0.0.1 -p $port" "end 0"
finish
