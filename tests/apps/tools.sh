#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# What looks at the device's files and at the kernel beside verbs: perftest with counters, rdma of
# iproute2, ibv_devinfo, pyverbs' addresses.
. "$(dirname "$0")/places.sh"
need ib_send_bw ibv_devinfo ibv_devices rdma
two_hosts "$@"
first_port 18600

counted="-W counters/port_xmit_data,counters/port_rcv_data"
for words in "ib_send_bw" "ib_write_bw" "ib_read_bw" "ib_send_lat"; do
	next_port
	pair "$where $words with counters" 30 tcp:$port "$words -d anyrdma0 -D 1 -p $port $counted" \
		"$words -d anyrdma0 -D 1 -p $port $counted $server_addr" \
		"counters/port_(xmit|rcv)_data=[1-9][0-9]*"
done
next_port
solo "$where a counter that is not there" 20 "ib_send_bw -d anyrdma0 -p $port -W hw_counters/none" \
	"Unable to access performance counters" 1

solo "$where ibv_devices" 10 "ibv_devices" "^ +anyrdma0[[:space:]]+[0-9a-f]{16}$"
solo "$where ibv_devinfo -v: board_id" 10 "ibv_devinfo -v" "board_id:[[:space:]]+anyrdma"
solo "$where ibv_devinfo -v: atomics" 10 "ibv_devinfo -v" "ATOMIC_HCA"
solo "$where ibv_devinfo -v: GIDs" 10 "ibv_devinfo -v" "GID\\[.*::ffff:10.77.0.1, RoCE v2"
# It asks the kernel, by netlink, which knows nothing of a device of user space.
solo "$where rdma link does not show it" 10 "! rdma link 2>&1 | grep anyrdma && echo none" "^none"
solo "$where the interface, as pyverbs finds it" 10 \
	"ls /sys/class/infiniband/anyrdma0/device/net/" "^veth0$"
finish
