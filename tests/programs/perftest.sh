#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's perftest on our libraries, both ends on this host, with names exchanged by TCP and by the
# CM. Its own exchange knows IPv4 addresses only.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
. "$here/tables.sh"
need ib_send_bw ib_write_lat
own_host "$@"
first_port 21000
together 3

where=127.0.0.1 server_addr=127.0.0.1 client_addr=127.0.0.1 tcp_addr=127.0.0.1
cases_perftest
cases_perftest_refusals
finish
