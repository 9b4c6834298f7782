#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Programs that destroy all they made, under valgrind: no leak, no wrong access.
. "$(dirname "$0")/lib.sh"
need valgrind rdma_server rdma_client
own_host "$@"
first_port 7700
scale=$((scale * 2))
leak=$BUILD/tests/leak
# What an object of ours embeds is what points to it: memory that lives as long as the process
# (the device, its list) looks "possibly lost". So: what nothing points to, here; what grows with
# every round, by the program itself without valgrind.
check="valgrind -q --leak-check=full --errors-for-leak-kinds=definite,indirect
	--show-leak-kinds=definite,indirect --error-exitcode=99 --num-callers=30"
check=$(tr -s '\n\t' '  ' <<< "$check")

[ -x "$leak" ] || { fail "build" "$leak is not built"; finish; }

# Its cases are checked, too: they are the steps.
run_leak() { # NAME COMMAND-LINE
	solo "$1" 120 "$2" "^1\.\.[1-9]"
	wanted "$1" || return
	grep -a '^not ok' "$logs/$case_name.client" | sed 's/^/# /'
}

run_leak "a program that makes and destroys everything" "T_SCALE=10 $check $leak"
run_leak "the same without memory that others reach" \
	"ANYRDMA_DIRECT=off T_SCALE=10 $check $leak"
# Blocks in a thread's cache of freed ones would count as used.
run_leak "a hundred rounds of it leave nothing" \
	"GLIBC_TUNABLES=glibc.malloc.tcache_count=0 LEAK_ROUNDS=100 $leak"
next_port
pair "rdma_server and rdma_client" 60 rdma:$port \
	"$check rdma_server -s 127.0.0.1 -p $port" \
	"$check rdma_client -s 127.0.0.1 -p $port" "end 0"
next_port
pair "rdma_server and rdma_client, rings alone" 60 rdma:$port \
	"env ANYRDMA_DIRECT=off $check rdma_server -s 127.0.0.1 -p $port" \
	"env ANYRDMA_DIRECT=off $check rdma_client -s 127.0.0.1 -p $port" "end 0"
finish
