#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's qperf on our libraries with connections of the CM (-cm1), both ends on this host. Without
# the CM qperf exchanges LIDs, which no Ethernet device has: it must be refused, as on rxe.
. "$(dirname "$0")/lib.sh"
need qperf
own_host "$@"
first_port 19800

qperf_case() { # TEST
	next_port
	pair "qperf -cm1 $1" 30 tcp:$port "qperf -lp $port" \
		"qperf 127.0.0.1 -lp $port -i anyrdma0:1 -m 1024 -t 1 -cm1 $1" "$1:" stop
}

for t in rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw \
	rc_rdma_write_lat rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr \
	ver_rc_compare_swap ver_rc_fetch_add; do
	qperf_case $t
done
next_port
pair "qperf rc_bw without the CM is refused" 30 tcp:$port "qperf -lp $port" \
	"! qperf 127.0.0.1 -lp $port -i anyrdma0:1 -m 1024 -t 1 rc_bw" "." stop
finish
