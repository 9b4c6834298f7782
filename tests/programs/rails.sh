#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's programs with several devices (ANYRDMA_DEVICES), and on InfiniBand ports (ANYRDMA_LINK=ib), which
# they address by LID: on one host, and between two whose addresses differ in the low 16 bits.
. "$(dirname "$0")/lib.sh"
need rping ibv_devices ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ib_send_bw ib_write_bw ib_send_lat \
	qperf udaddy
if [ -z "${IN_LAB:-}" ]; then
	why=$("$lab" enter true) || skip_all "$why"
	IN_LAB=1 exec "$lab" enter "$0" "$@"
fi

name=anyrdma$$
why=$("$lab" up $name) || skip_all "$why"
trap 'cleanup; "$lab" down $name' EXIT
first_port 21700
together 3

# ---- two devices: 0 has the veth, 1 the loopback interface ----

cases_devices() {
	local ANYRDMA_DEVICES=2 ANYRDMA_ADDR="veth0;127.0.0.1"
	export ANYRDMA_DEVICES ANYRDMA_ADDR
	server_ns=$name-a client_ns=$name-a
	solo "ibv_devices shows both" 10 "ibv_devices" "anyrdma1" 0
	ANYRDMA_NAME=mlx5_0 solo "ibv_devices shows their names" 10 "ibv_devices" "mlx5_1" 0
	for d in 0 1; do
		next_port
		pair "ib_write_bw -d anyrdma$d" 60 tcp:$port "ib_write_bw -d anyrdma$d -p $port -n 100" \
			"ib_write_bw -d anyrdma$d -p $port -n 100 127.0.0.1" "^ *65536"
	done
	for a in 10.77.0.1 127.0.0.1; do
		next_port
		pair "rping to $a, of one of two devices" 30 rdma:$port \
			"rping -s -v -a $a -p $port -C 5" "rping -c -v -a $a -p $port -C 5" ""
	done
}

# ---- InfiniBand: SERVER-NAMESPACE CLIENT-NAMESPACE WHERE ----

cases_lids() {
	local ANYRDMA_LINK=ib p t
	export ANYRDMA_LINK
	server_ns=$1 client_ns=$2
	for p in rc uc srq ud; do
		next_port
		pair "$3, ibv_${p}_pingpong by LID" 60 tcp:$port \
			"ibv_${p}_pingpong -p $port -n 100 -s 1500" \
			"ibv_${p}_pingpong -p $port -n 100 -s 1500 10.77.0.1" "bytes in .* seconds"
	done
	next_port
	pair "$3, ibv_rc_pingpong with a GRH" 60 tcp:$port "ibv_rc_pingpong -g 0 -p $port -n 100" \
		"ibv_rc_pingpong -g 0 -p $port -n 100 10.77.0.1" "bytes in .* seconds"
	for t in ib_send_bw ib_write_bw "ib_send_lat -c UD" "ib_send_bw -c UC"; do
		next_port
		pair "$3, $t by LID" 60 tcp:$port "$t -p $port -n 100 -s 1024" \
			"$t -p $port -n 100 -s 1024 10.77.0.1" "^ *1024"
	done
	for t in rc_lat rc_rdma_write_bw rc_compare_swap_mr uc_lat ud_lat; do
		next_port
		pair "$3, qperf $t without the CM" 60 tcp:$port "qperf -lp $port" \
			"qperf 10.77.0.1 -lp $port -i anyrdma0:1 -t 1 -m 1024 $t" "$t:" stop
	done
	next_port
	pair "$3, rping on InfiniBand ports" 30 rdma:$port "rping -s -v -a 10.77.0.1 -p $port -C 5" \
		"rping -c -v -a 10.77.0.1 -p $port -C 5" ""
}

cases_devices
cases_lids "$name-a" "$name-a" "one host"
cases_lids "$name-a" "$name-b" veth
finish
