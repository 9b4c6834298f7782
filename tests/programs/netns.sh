#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's programs on our libraries between two hosts: network namespaces joined by veth.
. "$(dirname "$0")/lib.sh"
. "$here/cases.sh"
. "$here/tables.sh"
need rping ucmatose rdma_server cmtime udaddy mckey ibv_rc_pingpong ibv_uc_pingpong ib_send_bw qperf
if [ -z "${IN_LAB:-}" ]; then
	why=$("$lab" enter true) || skip_all "$why"
	IN_LAB=1 exec "$lab" enter "$0" "$@"
fi

name=anyrdma$$
why=$("$lab" up $name) || skip_all "$why"
trap 'cleanup; "$lab" down $name' EXIT
server_ns=$name-a
client_ns=$name-b

# Junk of every length from another host at every UDP port of the server, while it is used.
cases_junk() {
	local junk
	use_gids || return
	# shellcheck disable=SC2016
	junk='n=0; while kill -0 $c 2>/dev/null; do
		for p in $(ip netns exec '$server_ns' cat /proc/net/udp /proc/net/udp6 |
			sed -n "s/^ *[0-9]*: [0-9A-F]*:\([0-9A-F]*\) .*/\1/p"); do
			head -c $((RANDOM % 2000)) /dev/urandom > /dev/udp/'$server_addr'/$((16#$p)) && n=$((n + 1))
		done
	done; wait $c && [ $n -gt 20 ]'
	next_port
	attempts=3 pair "$where ibv_ud_pingpong beside junk" 60 tcp:$port \
		"ibv_ud_pingpong -d anyrdma0 -p $port -g $server_gid -s 1024 -n 5000" \
		"ibv_ud_pingpong -d anyrdma0 -p $port -g $client_gid -s 1024 -n 5000 $tcp_addr & c=\$!
		$junk" "bytes in .* seconds"
}

first_port 7100
apart=1
mtu=1024 # of an Ethernet of 1500
together 3
where=veth server_addr=10.77.0.1 client_addr=10.77.0.2 wildcard=0.0.0.0 tcp_addr=10.77.0.1
for cases in rping ucmatose cm datagrams devinfo pingpong perftest qperf fabric rsocket; do
	cases_$cases
done
cases_junk
where="veth, IPv6" server_addr=fd77::1 client_addr=fd77::2 wildcard=::
for cases in rping ucmatose cm datagrams pingpong; do
	cases_$cases
done
finish
