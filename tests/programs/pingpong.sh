#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's ibverbs-utils on our libraries: the device, and raw QPs brought up by GID and QPN.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
. "$here/tables.sh"
need ibv_devices ibv_devinfo ibv_rc_pingpong ibv_srq_pingpong ibv_uc_pingpong ibv_ud_pingpong \
	ibv_xsrq_pingpong
own_host "$@"
first_port 20500
together 3

cases_devinfo
where=127.0.0.1 server_addr=127.0.0.1 client_addr=127.0.0.1 tcp_addr=127.0.0.1
cases_pingpong
where=::1 server_addr=::1 client_addr=::1 tcp_addr=127.0.0.1
cases_pingpong
finish
