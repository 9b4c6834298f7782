#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# cost.sh PROGRAM OUT RUNS ARGUMENTS...: instructions and system calls of single calls of the API:
# runs PROGRAM ARGUMENTS... cost below callgrind, RUNS times, and writes OUT/cost.csv, in the format
# of samples.csv; with its heading alone when valgrind is missing or RUNS is 0.
set -eu
prog=$1
out=$2
runs=$3
shift 3
here=$(dirname "$0")
echo "metric,kind,size,round,value" > "$out/cost.csv"
[ "$runs" != 0 ] || exit 0
if ! command -v valgrind >/dev/null; then
	echo "cost.sh: no valgrind: instructions are not counted" >&2
	exit 0
fi
echo "bench: cost" >&2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM
# All symbols bound before the first call: the loader's work is nobody's cost.
run=0
while [ $run -lt "$runs" ]; do
	LD_BIND_NOW=1 valgrind --tool=callgrind --collect-systime=yes --toggle-collect='counted_*' \
		--callgrind-out-file="$tmp/$run.%p" "$prog" -r 4 "$@" cost > "$tmp/log" 2>&1 || {
		cat "$tmp/log" >&2
		exit 1
	}
	"$here/cost-report" $run "$tmp/$run".* >> "$out/cost.csv"
	run=$((run + 1))
done
