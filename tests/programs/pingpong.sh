#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's ibverbs-utils on our libraries: the device, and raw QPs brought up by GID and QPN.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
need ibv_devices ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ibv_uc_pingpong \
	ibv_xsrq_pingpong
own_host "$@"
first_port 20500

solo "ibv_devices" 10 ibv_devices "anyrdma0"
solo "ibv_devinfo" 10 "ibv_devinfo -d anyrdma0" "PORT_ACTIVE"
solo "ibv_devinfo -v" 10 "ibv_devinfo -v" "GID\[.*::ffff:127\.0\.0\.1, RoCE v2"
solo "ibv_devinfo -v, XRC" 10 "ibv_devinfo -v" "XRC"
solo "ibv_devinfo -l" 10 "ibv_devinfo -l" "^1 HCA found"
solo "ibv_devinfo of another device" 10 "ibv_devinfo -d nothere0" \
	"IB device 'nothere0' wasn't found" 255
where=127.0.0.1 server_addr=127.0.0.1 client_addr=127.0.0.1 tcp_addr=127.0.0.1
cases_pingpong
cases_xsrq_pingpong
where=::1 server_addr=::1 client_addr=::1 tcp_addr=127.0.0.1
cases_pingpong
cases_xsrq_pingpong
finish
