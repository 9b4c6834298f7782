#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs the benchmark and writes table, CSV files and plots into bench/results/.
# Builds nothing. It does not judge: exit 0 unless something breaks.
#
#   BUILD           build folder (default: build)
#   ANYRDMA_TRANSPORT what carries the data (default tcp, whose rival is raw TCP)
#   BENCH_LIB       folder of the libraries to measure (default: $BUILD/lib);
#                   "system" measures the distribution's
#   BENCH_ROUNDS    rounds of each measurement (default 9)
#   BENCH_SLOT_MS   length of one round of a rate (default 120)
#   BENCH_NET       lo (default), or veth: two network namespaces joined by a
#                   veth pair, made and removed here (root)
#   BENCH_OUT       result folder (default: bench/results)
#   BENCH_COST_RUNS runs below callgrind, which counts instructions (default 5;
#                   0, or no valgrind: not counted)
#   BENCH_ARGS      further arguments of the program (groups, -c 0,1, ...)
set -eu

cd "$(dirname "$0")/.."
BUILD=${BUILD:-build}
lib=${BENCH_LIB:-$BUILD/lib}
out=${BENCH_OUT:-bench/results}
prog=$BUILD/bench/bench

if [ ! -x "$prog" ]; then
	echo "run.sh: $prog is not there; run make first" >&2
	exit 1
fi
which=system
if [ "$lib" != system ]; then
	which=anyrdma
	LD_LIBRARY_PATH=$(cd "$lib" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	export LD_LIBRARY_PATH
fi

ns=
undo() {
	for n in $ns; do
		ip netns del "$n" 2>/dev/null || :
	done
}
trap undo EXIT
trap 'exit 1' INT TERM

export ANYRDMA_TRANSPORT="${ANYRDMA_TRANSPORT:-tcp}"
addr=127.0.0.1
where=
case ${BENCH_NET:-lo} in
lo) ;;
veth)
	a=anyrdma-bench-$$-a
	b=anyrdma-bench-$$-b
	ns="$a $b"
	ip netns add "$a"
	ip netns add "$b"
	ip link add veth0 netns "$a" type veth peer name veth0 netns "$b"
	ip -n "$a" addr add 192.0.2.1/24 dev veth0
	ip -n "$b" addr add 192.0.2.2/24 dev veth0
	for n in $ns; do
		ip -n "$n" link set lo up
		ip -n "$n" link set veth0 up
	done
	addr=192.0.2.1
	where="-S $a -C $b"
	;;
*)
	echo "run.sh: BENCH_NET is lo or veth" >&2
	exit 1
	;;
esac

commit=$(git describe --always --dirty 2>/dev/null || echo unknown)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
mkdir -p "$out"

# shellcheck disable=SC2086 # a list
bench/cost.sh "$prog" "$out" "${BENCH_COST_RUNS:-5}" -a "$addr" $where

# shellcheck disable=SC2086 # the two lists are meant to be split
"$prog" -a "$addr" $where -r "${BENCH_ROUNDS:-9}" -t "${BENCH_SLOT_MS:-120}" \
	-m "commit=$commit" -m "date=$(date -u +%Y-%m-%dT%H:%MZ)" \
	-m "machine=${cpu:-unknown}, $(nproc) CPUs, Linux $(uname -r)" \
	-m "libraries=$which" -m "net=${BENCH_NET:-lo}" \
	-x "$out/cost.csv" -o "$out" ${BENCH_ARGS:-}

if command -v gnuplot >/dev/null; then
	gnuplot -e "dir='$out'; what='$commit, ${cpu:-unknown}, ${BENCH_NET:-lo}'" \
		bench/plot.gp
else
	echo "run.sh: no gnuplot: no plots" >&2
fi
echo "results: $out"
