#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's programs of rsockets on our libraries, both ends on this host: over shared memory, then
# over TCP.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
need rstream riostream rcopy udpong
own_host "$@"
first_port 7900
together 3

where=127.0.0.1 server_addr=127.0.0.1 client_addr=127.0.0.1
cases_rsocket
where=::1 server_addr=::1 client_addr=::1
cases_rsocket
export ANYRDMA_TRANSPORT=tcp
where="127.0.0.1 by TCP" server_addr=127.0.0.1 client_addr=127.0.0.1
cases_rsocket
finish
