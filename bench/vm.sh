#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# vm.sh [quick]: the benchmark program in a virtual machine (tests/vm), in turns on the user-space
# device, the kernel's rxe and the kernel's siw, each over a veth pair; then the table of the three
# (./vm-report). Builds nothing but siw's module. It does not judge: exit 0 unless something breaks;
# 77, with the reason, when there can be no virtual machine.
#
#   BUILD           build folder (default: build)
#   BENCH_ROUNDS    turns of each device (default 5; quick: 2)
#   BENCH_SLOT_MS   length of one round of a rate (default 400; quick: 150)
#   BENCH_OUT       result folder (default: bench/results)
#   BENCH_SECONDS   no round begins later than this (default 420); two are always made
#   BENCH_DEVICES   default: anyrdma rxe siw
#   VM_SIW          siw's module, if tests/vm/siw is not to build it
#   VM_SECONDS      deadline of the machine (default 1200)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
vm=$here/../tests/vm
BUILD=$(cd "${BUILD:-$here/../build}" && pwd)
out=$BUILD/vm-bench
prog=$BUILD/bench/bench

outside() { # ROUNDS SLOT_MS CONNECTIONS
	local devices=${BENCH_DEVICES:-anyrdma rxe siw} siw=${VM_SIW:-} why status=0 left=none load
	local results=${BENCH_OUT:-$here/results}
	[ -x "$prog" ] || { echo "vm.sh: $prog is not there; run make first" >&2; exit 1; }
	command -v qemu-system-x86_64 >/dev/null ||
		{ echo "vm.sh: qemu is not installed (qemu-system-x86)"; exit 77; }
	why=$("$vm/initrd" "$out") || { echo "vm.sh: no virtual machine: $why"; exit 77; }
	if [[ " $devices " == *" siw "* ]] && [ -z "$siw" ]; then
		siw=$("$vm/siw" "$out") || {
			left="siw ($siw)"
			echo "vm.sh: left out: $left" >&2
			devices=${devices/siw/}
			siw=
		}
	fi
	rm -rf "$out/turns"
	mkdir -p "$out/turns" "$results"
	read -r load _ < /proc/loadavg
	"$vm/boot" "$out" "${VM_SECONDS:-1200}" env VM_INSIDE=1 BUILD="$BUILD" VM_SIW="$siw" \
		DEVICES="$devices" BENCH_SECONDS="${BENCH_SECONDS:-420}" "$here/vm.sh" "$@" &
	# shellcheck disable=SC2064 # this very process
	trap "kill $! 2>/dev/null || :" EXIT
	wait $! || status=$?
	if [ $status != 0 ]; then
		cat "$out/job.log" >&2 || true
		echo "vm.sh: the machine ended with $status (124: out of time, 125: it did not start)" >&2
		tail -n 20 "$out/console.log" >&2 || true
		exit 1
	fi
	"$here/vm-report" "$out/turns" "$results" \
		"commit=$(git -C "$here" describe --always --dirty 2>/dev/null || echo unknown)" \
		"date=$(date -u +%Y-%m-%dT%H:%MZ)" \
		"machine=qemu ${VM_ACCEL:-tcg}, 2 CPUs, on $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo |
			head -n 1), $(nproc) CPUs" \
		"kernel=$(readlink "$out/vmlinuz" | sed 's/.*vmlinuz-//')" \
		"rounds=$1 slot_ms=$2 connections=$3 load=$load" "left out=$left"
	echo "results: $results"
}

# A veth pair DEV0 (the server's) and DEV1 (the client's). rxe of this kernel knows the first
# network namespace alone, so both ends of a kernel device are here; the rules make what one end
# sends to the other leave through the pair.
pair_here() { # DEV NET
	local end other
	ip link add "${1}0" type veth peer name "${1}1"
	for end in 0 1; do
		other=$((1 - end))
		sysctl -q -w "net.ipv4.conf.$1$end.accept_local=1" "net.ipv4.conf.$1$end.rp_filter=0"
		ip addr add "10.77.$2.$((end + 1))/32" dev "$1$end"
		ip link set "$1$end" up
		ip route add "10.77.$2.$((other + 1))/32" dev "$1$end" src "10.77.$2.$((end + 1))"
		ip rule add pref 10 iif "$1$end" lookup local
	done
}

# The same between two namespaces: within one, the library would leave TCP alone.
pair_apart() { # DEV NET
	local end
	ip link add "${1}0" type veth peer name "${1}1"
	for end in 0 1; do
		ip netns add "end$end"
		ip netns exec "end$end" sysctl -q -w net.ipv4.tcp_max_tw_buckets=0
		ip link set "$1$end" netns "end$end"
		ip -n "end$end" addr add "10.77.$2.$((end + 1))/24" dev "$1$end"
		ip -n "end$end" link set lo up
		ip -n "end$end" link set "$1$end" up
	done
}

ready() { # DEVICE ADDRESS-AS-GID: addresses become GIDs through a work queue
	local try
	for try in $(seq 100); do
		! grep -qs "$2" "/sys/class/infiniband/$1/ports/1/gids/"* || return 0
		sleep 0.1
	done
	echo "vm.sh: $1 has no GID $2 after $try tries"
	return 1
}

setup() { # DEV NET
	local end
	if [ "$1" = anyrdma ]; then
		pair_apart "$1" "$2"
		return
	fi
	pair_here "$1" "$2"
	[ "$1" != siw ] || insmod "$VM_SIW"
	for end in 0 1; do
		rdma link add "dev_$1$end" type "$1" netdev "$1$end"
		[ "$1" = siw ] || ready "dev_$1$end" "$(printf 'ffff:0a4d:%02x%02x' "$2" $((end + 1)))"
	done
}

sent() { # DEV: bytes that its two ends have sent
	local end sum=0 n
	for end in 0 1; do
		if [ "$1" = anyrdma ]; then
			n=$(ip netns exec "end$end" cat "/sys/class/net/$1$end/statistics/tx_bytes")
		else
			n=$(cat "/sys/class/net/$1$end/statistics/tx_bytes")
		fi
		sum=$((sum + n))
	done
	echo $sum
}

turn() { # ROUND DEV NET SLOT_MS CONNECTIONS
	local dir=/run/vm/turns/$1.$2 lib device=dev_$2 before where=
	lib=/usr/lib/$(uname -m)-linux-gnu
	if [ "$2" = anyrdma ]; then
		lib=$BUILD/lib
		device=anyrdma
		where="-S end0 -C end1"
	fi
	mkdir "$dir"
	before=$(sent "$2")
	# shellcheck disable=SC2086
	LD_LIBRARY_PATH=$lib "$prog" -a "10.77.$3.1" $where -D "$device" -r 1 -t "$4" -n "$5" \
		-w 120 -s 1048576 -k tcp,send,write,read,rc,rc16 -o "$dir" \
		connections latency bandwidth > "$dir/log" 2>&1 || { cat "$dir/log"; return 1; }
	echo $(($(sent "$2") - before)) > "$dir/sent"
}

inside() { # ROUNDS SLOT_MS CONNECTIONS
	local net=0 list round i dev
	declare -A nets
	ulimit -l unlimited
	# With the default backlog a pair drops rxe's read responses, each at the cost of 2 s. siw binds
	# the port that the CM gave it, which a socket in TIME-WAIT may still hold.
	sysctl -q -w net.core.netdev_max_backlog=65536 net.ipv4.tcp_max_tw_buckets=0
	# Before the table of this machine's own addresses comes what the pairs need.
	ip rule add pref 20 to 10.77.0.0/16 lookup main
	ip rule add pref 30 lookup local
	ip rule del pref 0
	for dev in $DEVICES; do
		net=$((net + 1))
		nets[$dev]=$net
		setup "$dev" $net
	done
	read -ra list <<< "$DEVICES"
	for dev in $DEVICES; do
		turn warm "$dev" "${nets[$dev]}" 20 4
		rm -r "/run/vm/turns/warm.$dev"
	done
	for round in $(seq 0 $(($1 - 1))); do
		[ "$round" -lt 2 ] || [ $SECONDS -lt "$BENCH_SECONDS" ] || break
		for i in "${!list[@]}"; do
			dev=${list[$(((i + round) % ${#list[@]}))]}
			turn "$round" "$dev" "${nets[$dev]}" "$2" "$3"
			echo "round $round: $dev done after $SECONDS s"
		done
	done
}

if [ "${1:-}" = quick ]; then
	set -- "${BENCH_ROUNDS:-2}" "${BENCH_SLOT_MS:-150}" 60
elif [ -z "${VM_INSIDE:-}" ]; then
	set -- "${BENCH_ROUNDS:-5}" "${BENCH_SLOT_MS:-400}" 200
fi
if [ -n "${VM_INSIDE:-}" ]; then
	inside "$@"
else
	outside "$@"
fi
