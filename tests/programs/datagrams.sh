#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's programs of datagrams and multicast on our libraries, both ends on this host: udaddy and
# mckey on the loopback interface, IPv4 and IPv6; these and the UD options of the others on the
# address of an Ethernet.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
. "$here/tables.sh"
need udaddy mckey ibv_ud_pingpong ib_send_bw
own_host "$@"
first_port 23500
together 3

where=127.0.0.1 server_addr=127.0.0.1 client_addr=127.0.0.1
cases_datagrams
# IPv6 wants a route; IPv4 takes the interface of the source address.
[ -z "${OWN_HOST:-}" ] || ip -6 route add ff00::/8 dev lo table local 2>/dev/null
where=::1 server_addr=::1 client_addr=::1
cases_datagrams
if [ -z "${OWN_HOST:-}" ]; then
	skip "on an Ethernet" "no network namespace of our own for an interface of our own"
	finish
fi
ip link add veth0 type veth peer name veth1 2>/dev/null || {
	skip "on an Ethernet" "no veth interfaces here"
	finish
}
ip addr add 10.78.0.1/24 dev veth0 && ip -6 addr add fd78::1/64 dev veth0 nodad &&
	ip link set veth0 up && ip link set veth1 up && ip route add default dev veth0
for _ in {1..500}; do # until the link-local address is there
	[ -z "$(ip -6 addr show dev veth0 scope link -tentative)" ] || break
	sleep 0.01
done
mtu=1024
apart=1
where=10.78.0.1 server_addr=10.78.0.1 client_addr=10.78.0.1 tcp_addr=10.78.0.1
cases_datagrams
use_gids && {
	each_row pingpong_row <<< "$(pingpong_table | grep -w ud)"
	each_row perftest_row <<< "$(perftest_ud_table)"
}
where=fd78::1 server_addr=fd78::1 client_addr=fd78::1
cases_datagrams
use_gids && each_row pingpong_row <<< "$(pingpong_table | grep -w ud)"
finish
