#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's rdma_server rdma_client cmtime on our libraries, both ends on this host, IPv4 and IPv6.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
need rdma_server rdma_client cmtime
own_host "$@"
first_port 7500

where=127.0.0.1 server_addr=127.0.0.1 client_addr=127.0.0.1 wildcard=0.0.0.0
cases_cm
where=::1 server_addr=::1 client_addr=::1 wildcard=::
cases_cm
finish
