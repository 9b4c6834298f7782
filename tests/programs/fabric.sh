#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's libfabric on our libraries, both ends on this host. Its verbs provider leaves the loopback
# interface out, so this host needs another.
. "$(dirname "$0")/lib.sh"
. "$here/tables.sh"
need fi_pingpong
own_host "$@"
[ -n "${OWN_HOST:-}" ] || skip_all "no network namespace of our own for an interface of our own"
ip link add veth0 type veth peer name veth1 2>/dev/null || skip_all "no veth interfaces here"
ip addr add 10.78.0.1/24 dev veth0 && ip link set veth0 up && ip link set veth1 up
first_port 22500
together 3

where=10.78.0.1 server_addr=10.78.0.1 client_addr=10.78.0.1
cases_fabric
finish
