#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# rdma-core's own tests, which come with Debian's python3-pyverbs, on anyrdma0. One case for each of theirs
# that runs; why the others do not run is said as a comment.
. "$(dirname "$0")/places.sh"
source=/usr/share/doc/rdma-core/tests
python=/usr/bin/python3
[ -e $source/run_tests.py ] || skip_all "rdma-core's tests (python3-pyverbs) are not installed"
$python -c 'import pyverbs' 2> /dev/null || skip_all "pyverbs is not installed"
two_hosts "$@"
rm -rf "$logs/tests"
cp -r $source "$logs/tests" && find "$logs/tests" -name '*.gz' -exec gunzip -f {} +

# What cannot be here: sharing a PD between processes needs the kernel.
impossible="test_imported_rc_ex_rdma_write"

# -v prints "NAME (PLACE) ... RESULT", where a description of several lines may be in between.
results() { # FILE
	awk '
		/^test_[a-z0-9_]+ \(/ { name = $1 " " $2 }
		/ \.\.\. / || /^(ok|FAIL|ERROR|skipped .*)$/ {
			result = $0
			sub(/.* \.\.\. /, "", result)
			if (name != "" && result ~ /^(ok|FAIL|ERROR|skipped)/)
				print name "\t" result
			name = ""
		}' "$1"
}

at_host
out=$logs/out
start "$server_ns" 300 "$out" "cd $logs && $python tests/run_tests.py -v"
wait $!
ran=0
while IFS=$'\t' read -r name result; do
	case $name:$result in
	*:ok)		ran=$((ran + 1)); pass "$name" ;;
	*:skipped*)	echo "# $name: $result" ;;
	"$impossible"*)	skip "$name" "a PD shared between processes needs the descriptor of the kernel's device" ;;
	*)		fail "$name" "$result, in $out" ;;
	esac
done < <(results "$out")
if [ $ran -ge 110 ] && grep -q '^Ran [0-9]* tests' "$out"; then
	pass "they came to their end"
else
	fail "they came to their end" "$ran ran" "$(tail -n 5 "$out")"
fi
finish
