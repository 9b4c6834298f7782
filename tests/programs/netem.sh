#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# rping, ucmatose and datagrams between two namespaces with 1 % loss and 10 ms delay each way, and the
# random stress on a loopback interface that loses and corrupts. Where this
# kernel has no netem, the script runs itself in the virtual machine of tests/vm, whose kernel has.
. "$(dirname "$0")/lib.sh"
need rping ucmatose udaddy ibv_ud_pingpong
vm=$top/tests/vm

run_in_vm() {
	local out=$BUILD/vm-netem why status=0
	command -v qemu-system-x86_64 >/dev/null ||
		skip_all "$1, and no qemu-system-x86 to run a kernel that has it"
	why=$("$vm/initrd" "$out") || skip_all "$1; $why"
	"$vm/boot" "$out" "${VM_SECONDS:-400}" env IN_LAB=1 IN_VM=1 T_SCALE=4 \
		BUILD="$BUILD" ONLY="${ONLY:-}" "$here/netem.sh" || status=$?
	echo "# $1: this ran in a virtual machine"
	cat "$out/job.log"
	[ $status -lt 124 ] || [ $status = 143 ] ||
		echo "Bail out! the virtual machine ended with $status (124: out of time)"
	exit $status
}

if [ -z "${IN_LAB:-}" ]; then
	why=$("$lab" enter true) || skip_all "$why"
	IN_LAB=1 exec "$lab" enter "$0" "$@"
fi
name=anyrdma$$
why=$("$lab" up $name) || skip_all "$why"
trap 'cleanup; "$lab" down $name' EXIT
if ! why=$("$lab" loss $name 1 10); then
	[ -n "${IN_VM:-}" ] && skip_all "$why"
	run_in_vm "$why"
fi
server_ns=$name-a
client_ns=$name-b

for address in 10.77.0.1 fd77::1; do
	a="-a $address"
	pair "1 % loss, 10 ms: rping -V $a" 60 rdma:7101 "rping -s $a -p 7101 -C 50 -V" \
		"rping -c $a -p 7101 -C 50 -V"
	pair "1 % loss, 10 ms: rping -V -S 65535 $a" 90 rdma:7102 \
		"rping -s $a -p 7102 -C 50 -V -S 65535" "rping -c $a -p 7102 -C 50 -V -S 65535"
	pair "1 % loss, 10 ms: ucmatose -c 20 -C 20 -S 8192 $address" 90 rdma:7103 \
		"ucmatose -b $address -p 7103 -c 20 -C 20 -S 8192" \
		"ucmatose -s $address -p 7103 -c 20 -C 20 -S 8192" "test complete"
	# The exchange of requests and replies repeats what is lost; the datagrams that follow may get
	# lost, and udaddy would wait for them. The server is told of one client more, so that it is
	# there when a request is repeated, as the reply was lost.
	pair "1 % loss, 10 ms: udaddy -c 20 -C 0 $address" 90 udp:7174 \
		"udaddy -b $address -c 21 -C 0" "udaddy -s $address -c 20 -C 0" "test complete" stop
done

stress=$BUILD/tests/stress/stress
lossy() { # NETEM'S WORDS
	# shellcheck disable=SC2086
	in_ns "$client_ns" tc qdisc replace dev lo root netem $1
}
# One processor receives: each takes what it has sent by itself, and packets would pass each other (seen
# in both of 2 runs, in none of 3 like this). The stress counts on their order.
one_receiver() {
	in_ns "$client_ns" sh -c 'echo 1 > /sys/class/net/lo/queues/rx-0/rps_cpus'
}
if [ ! -x "$stress" ]; then
	skip "stress under loss" "$stress is not built"
elif ! lossy "loss 5% corrupt 1%" || ! one_receiver; then
	skip "stress under loss" "no netem on lo, or no choice of who receives"
else
	solo "5 % loss, 1 % corrupt: stress with datagrams" 60 \
		"ANYRDMA_TRANSPORT=tcp $stress --seconds 10 --types ud --procs 2 --qps 8 --stall 60" \
		"^ok 1"
	lossy "loss 1% corrupt 0.5%"
	solo "1 % loss, 0.5 % corrupt: stress with everything" 120 \
		"ANYRDMA_TRANSPORT=tcp $stress --seconds 10 --procs 2 --qps 8 --max-size 1048576 --stall 60" \
		"^ok 1"
fi
finish
