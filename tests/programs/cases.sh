# SPDX-License-Identifier: BSD-2-Clause
# Sourced after lib.sh: the cases of each of Debian's programs, for any pair of addresses.
# Variables: where (prefix of the case names), server_addr, client_addr, tcp_addr, port; gids by
# use_gids.
#
# shellcheck shell=bash disable=SC2154

cases_rping() {
	local a="-a $server_addr" size

	next_port
	pair "$where rping -v -V" 30 rdma:$port "rping -s $a -p $port -C 10 -v -V" \
		"rping -c $a -p $port -C 10 -v -V" "ping data: rdma-ping-9"
	for size in 64 65 1024 4096 16384 65535; do
		next_port
		pair "$where rping -V -S $size" 30 rdma:$port \
			"rping -s $a -p $port -C 20 -V -S $size" \
			"rping -c $a -p $port -C 20 -V -S $size"
	done
	next_port
	pair "$where rping -C 1000" 60 rdma:$port "rping -s $a -p $port -C 1000 -V" \
		"rping -c $a -p $port -C 1000 -V"
	next_port
	pair "$where rping -q" 30 rdma:$port "rping -s $a -p $port -C 10 -v -V -q" \
		"rping -c $a -p $port -C 10 -v -V -q" "ping data: rdma-ping-9"
	next_port
	pair "$where rping -I" 30 rdma:$port "rping -s $a -p $port -C 10 -V" \
		"rping -c $a -I $client_addr -p $port -C 10 -V"
	next_port
	pair "$where rping, wildcard server" 30 rdma:$port \
		"rping -s -a $wildcard -p $port -C 10 -V" "rping -c $a -p $port -C 10 -V"
	next_port
	pair "$where rping -P, five clients one after the other" 60 rdma:$port \
		"rping -s $a -p $port -P" \
		"for i in 1 2 3 4 5; do rping -c $a -p $port -C 10 -V || exit 1; done" "" stop
	# rping keeps one waiting request alone: a second one that comes before its main thread
	# has taken the first replaces it. So each client connects once the one before has.
	next_port
	pair "$where rping -P, four clients at once" 60 rdma:$port "rping -s $a -p $port -P" "
		tmp=\$(mktemp -d) || exit 1
		trap 'rm -rf \$tmp' EXIT
		for i in 1 2 3 4; do
			stdbuf -oL rping -c $a -p $port -C 2000 -V -v > \$tmp/\$i &
			pids=\"\$pids \$!\"
			until grep -q 'ping data' \$tmp/\$i || ! kill -0 \$!; do sleep 0.01; done
		done
		for p in \$pids; do wait \$p || exit 1; done" "" stop
	next_port
	solo "$where rping, nobody listens" 30 "! rping -c $a -p $port -C 3" \
		"RDMA_CM_EVENT_REJECTED.*error 8"
}

cases_ucmatose() {
	local s="-s $server_addr" b="-b $server_addr" words

	next_port
	pair "$where ucmatose" 30 rdma:$port "ucmatose $b -p $port" "ucmatose $s -p $port" \
		"test complete"
	for words in "-c 100" "-C 100 -S 1000" "-c 10 -C 20 -S 65536" "-c 2 -m" "-t 32" \
		"-a 18" "-c 100 -C 10 -S 4096 -m -t 8 -a 16"; do
		next_port
		pair "$where ucmatose $words" 60 rdma:$port "ucmatose $b -p $port $words" \
			"ucmatose $s -p $port $words" "test complete"
	done
	next_port
	pair "$where ucmatose, client with -b" 30 rdma:$port "ucmatose $b -p $port" \
		"ucmatose $s -b $client_addr -p $port" "test complete"
	next_port
	pair "$where ucmatose -P ib" 30 rdma:$port "ucmatose $b -p $port -P ib" \
		"ucmatose $s -p $port -P ib" "test complete"
}

# rdma_server, rdma_xserver, cmtime.
cases_cm() {
	local s="-s $server_addr" words

	next_port
	pair "$where rdma_client" 30 rdma:$port "rdma_server $s -p $port" \
		"rdma_client $s -p $port" "end 0"
	next_port
	case $server_addr in
	*:*) ;; # rdma_xserver has no address to give: its wildcard is IPv4's
	*)	for words in "" "-c r" "-c x"; do
			next_port
			pair "$where rdma_xclient${words:+ $words}" 30 rdma:$port \
				"rdma_xserver -p $port $words" "rdma_xclient $s -p $port $words" "end 0"
		done ;;
	esac
	next_port
	pair "$where cmtime -c 1000" 120 rdma:$port "cmtime -b $server_addr -p $port -c 1000" \
		"cmtime $s -p $port -c 1000" "connect" stop
}

# Sockets over RDMA: rstream, riostream, rcopy, udpong.
cases_rsocket() {
	local s="-s $server_addr" words n tmp

	for words in "-S 64 -I 50 -C 20 -T v" "-S 4096 -I 5 -C 20 -T v" "-S 1048576 -I 2 -C 5 -T v" \
		"-S 65536 -I 5 -C 20 -T b" "-S 65536 -I 5 -C 20 -T n" "-S 65536 -I 5 -C 20 -T a" \
		"-S 4096 -I 5 -C 20 -T r" "-S 64 -I 5 -C 20 -k 1" "-S 4096 -I 5 -C 20 -i 0" \
		"-S 4096 -I 5 -C 20 -B 4096"; do
		next_port
		pair "$where rstream $words" 60 rdma:$port "rstream -b $server_addr -p $port $words" \
			"rstream $s -p $port $words" "custom"
	done
	for words in "-S 64 -I 5 -C 20" "-S 4096 -I 5 -C 20 -T v" "-S 1048576 -I 2 -C 5 -T v" \
		"-S 65536 -I 5 -C 20 -T b" "-S 65536 -I 5 -C 20 -T n" "-S 65536 -I 5 -C 20 -T a"; do
		next_port
		pair "$where riostream $words" 60 rdma:$port "riostream -b $server_addr -p $port $words" \
			"riostream $s -p $port $words" "custom"
	done
	# All sizes, and as many rounds as the programs do by themselves.
	if [ -n "${FULL:-}" ]; then
		for words in "" "-S all"; do
			next_port
			pair "$where rstream${words:+ $words}" 300 rdma:$port \
				"rstream -b $server_addr -p $port $words" "rstream $s -p $port $words" "1m_bw"
			next_port
			pair "$where riostream${words:+ $words}" 300 rdma:$port \
				"riostream -b $server_addr -p $port $words" "riostream $s -p $port $words" "1m_bw"
		done
	fi
	case $server_addr in
	*:*) ;; # the wildcard of rcopy is IPv4's
	*)	next_port
		tmp=$logs/rcopy.$port
		pair "$where rcopy" 60 rdma:$port "rcopy -p $port" "
			head -c 3000000 /dev/urandom > $tmp.from
			rcopy $tmp.from $server_addr:$tmp.to -p $port && cmp $tmp.from $tmp.to
			r=\$?; rm -f $tmp.from $tmp.to; exit \$r" "Gb/sec" stop ;;
	esac
	for words in "-S 64 -C 20" "-S 1000 -C 20" "-S 64 -C 20 -T b" "-S 64 -C 20 -T n" \
		"-S 64 -C 20 -T e"; do
		next_port
		pair "$where udpong $words" 60 plain:$port "udpong -b $server_addr -p $port $words" \
			"udpong $s -p $port $words" "custom" stop
	done
}

# udaddy and mckey, by the CM. Both have one port, udaddy 7174 always: one case at a time.
cases_datagrams() {
	local jobs=1
	report all
	udaddy_case ""
	udaddy_case "-c 4 -C 20 -S 1000"
	udaddy_case "-P ipoib -c 2" ipoib
	if [ -n "${FULL:-}" ] || [ "$server_addr" = 127.0.0.1 ]; then
		udaddy_case "-S 1"
		udaddy_case "-C 1"
		udaddy_case "-t 32"
		udaddy_case "-p 2" ipoib
		udaddy_case "-c 100 -C 50 -S 1024"
		pair "$where udaddy, client with -b" 30 udp:7174 "udaddy -b $server_addr" \
			"udaddy -s $server_addr -b $client_addr" "test complete"
	fi
	case $server_addr in
	*:*) ;; # the wildcard of udaddy is IPv4's
	*)	pair "$where udaddy, wildcard server" 30 udp:7174 "udaddy" \
			"udaddy -s $server_addr" "test complete" ;;
	esac
	cases_multicast
}

udaddy_case() { # OPTIONS [PORT SPACE]
	pair "$where udaddy${1:+ $1}" 30 "${2:-udp}:7174" "udaddy -b $server_addr $1" \
		"udaddy -s $server_addr $1" "test complete"
}

# The sender waits three seconds by itself, so that others may join.
cases_multicast() {
	mckey_case "" "" ""
	mckey_case "" "" more
	if [ -n "${FULL:-}" ] || [ "${server_addr#*:}" = "$server_addr" ]; then
		mckey_case "-c 3 -C 20 -S 1000" "-c 3 -C 20 -S 1000" ""
		mckey_case "" "-o" ""
	fi
	[ -z "${FULL:-}" ] || mckey_case "-p 2" "-p 2" ""
	[ -z "${FULL:-}" ] || mckey_case "-C 100 -S 1" "-C 100 -S 1" more
	cases_unmapped
}

# RECEIVERS' OPTIONS, SENDER'S, "more": two receivers
mckey_case() {
	local group=239.8.$((RANDOM % 250)).$((RANDOM % 250)) one
	[ "${server_addr#*:}" = "$server_addr" ] || group=ff0e::$((RANDOM % 9000)):$((RANDOM % 9000))
	one="stdbuf -oL mckey -m $group -b $server_addr $1"
	[ -z "$3" ] || one="$one & a=\$!; $one; r=\$?; wait \$a && exit \$r"
	pair "$where mckey${1:+ $1}${2:+, sender $2}${3:+, three members}" 30 "says:joined dgid" \
		"$one" "sleep 0.3; mckey -m $group -b $client_addr -s $2" "test complete"
}

# With -M the address is not resolved. One that is no device's, as the loopback's, leaves
# the id without a device, and mckey crashes, on the original too.
cases_unmapped() {
	local group=ff1e::8:$((RANDOM % 9000))
	case $client_addr in
	127.* | ::1) ;;
	*)	pair "$where mckey -M" 30 "says:joined dgid" \
			"stdbuf -oL mckey -M $group -b $server_addr" \
			"sleep 0.3; mckey -M $group -b $client_addr -s" "test complete" ;;
	esac
}

# Which GIDs stand for the addresses, at each end.
use_gids() {
	server_gid=$(gid_index "$server_ns" "$server_addr")
	client_gid=$(gid_index "$client_ns" "$client_addr")
	if [ -z "$server_gid" ] || [ -z "$client_gid" ]; then
		fail "$where: GIDs of $server_addr and $client_addr"
		return 1
	fi
}

cases_devinfo() {
	solo "ibv_devices" 10 ibv_devices "anyrdma0"
	solo "ibv_devinfo" 10 "ibv_devinfo -d anyrdma0" "PORT_ACTIVE"
	solo "ibv_devinfo -i 1" 10 "ibv_devinfo -d anyrdma0 -i 1" "PORT_ACTIVE"
	solo "ibv_devinfo -v" 10 "ibv_devinfo -v" "GID\[.*::ffff:[0-9.]*, RoCE v2"
	solo "ibv_devinfo -v, XRC" 10 "ibv_devinfo -v" "XRC"
	solo "ibv_devinfo -l" 10 "ibv_devinfo -l" "^1 HCA found"
	solo "ibv_devinfo of another device" 10 "ibv_devinfo -d nothere0" \
		"IB device 'nothere0' wasn't found" 255
}
