#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's qperf on our libraries with connections of the CM (-cm1), both ends on this host.
. "$(dirname "$0")/lib.sh"
. "$here/tables.sh"
need qperf
own_host "$@"
first_port 19800
together 3

where=127.0.0.1 tcp_addr=127.0.0.1
cases_qperf
finish
