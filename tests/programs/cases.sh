# SPDX-License-Identifier: BSD-2-Clause
# Sourced after lib.sh: the cases of each of Debian's programs, for any pair of addresses.
# Variables: where (prefix of the case names), server_addr, client_addr, port; gids by use_gids.
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
	local s="-s $server_addr"

	next_port
	pair "$where rdma_client" 30 rdma:$port "rdma_server $s -p $port" \
		"rdma_client $s -p $port" "end 0"
	next_port
	case $server_addr in
	*:*) ;; # rdma_xserver has no address to give: its wildcard is IPv4's
	*)	pair "$where rdma_xclient" 30 rdma:$port "rdma_xserver -p $port" \
			"rdma_xclient $s -p $port" "end 0"
		next_port
		pair "$where rdma_xclient -c x" 30 rdma:$port "rdma_xserver -p $port -c x" \
			"rdma_xclient $s -p $port -c x" "end 0" ;;
	esac
	next_port
	pair "$where cmtime -c 1000" 120 rdma:$port "cmtime -b $server_addr -p $port -c 1000" \
		"cmtime $s -p $port -c 1000" "connect" stop
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

# pingpong TOOL OPTIONS: the exchange of names runs over TCP on a port of its own (tcp_addr).
pingpong() {
	next_port
	pair "$where $1${2:+ $2}" 60 tcp:$port "$1 -d anyrdma0 -g $server_gid -p $port $2" \
		"$1 -d anyrdma0 -g $client_gid -p $port $2 $tcp_addr" "bytes in .* seconds"
}

cases_pingpong() {
	local words

	use_gids || return
	for words in "" "-e" "-c -n 100" "-e -c" "-s 1 -n 200" "-s 1048576 -n 20" "-m 256" \
		"-r 1 -n 100" "-N" "-N -e" "-N -c -n 100" "-t" "-t -c -n 100" "-t -N"; do
		pingpong ibv_rc_pingpong "$words"
	done
	for words in "" "-e" "-c -n 100" "-q 4 -n 200"; do
		pingpong ibv_srq_pingpong "$words"
	done
	for words in "" "-e -n 200" "-c -n 100" "-e -c -n 200" "-s 1 -n 200" "-s 1048576 -n 20" \
		"-m 256 -n 200" "-r 1 -n 100" "-l 3 -i 1 -n 100"; do
		pingpong ibv_uc_pingpong "$words"
	done
}

# A path MTU that every link here has; -c is the number of clients, and several need a domain that
# processes share.
cases_xsrq_pingpong() {
	local words

	use_gids || return
	for words in "" "-e" "-c 1 -n 100" "-s 1 -n 200" "-s 1048576 -n 20" "-e -s 100000 -n 50" \
		"-l 1"; do
		next_port
		pair "$where ibv_xsrq_pingpong${words:+ $words}" 60 tcp:$port \
			"ibv_xsrq_pingpong -d anyrdma0 -g $server_gid -p $port -m 1024 $words" \
			"ibv_xsrq_pingpong -d anyrdma0 -g $client_gid -p $port -m 1024 \
				${words/-c 1 /} $tcp_addr" "success"
	done
}

# perftest NAME TOOL OPTIONS [tcp|rdma]: the exchange of names is TCP's, with -R or -z the CM's.
perftest() {
	local words="$2" via=tcp

	case " $2 " in
	*" -R "* | *" -z "*) via=rdma ;;
	esac
	next_port
	pair "$where $1 $words" 60 $via:$port \
		"$1 -d anyrdma0 -x $server_gid -F -p $port $words" \
		"$1 -d anyrdma0 -x $client_gid -F -p $port $words $tcp_addr" "#bytes"
}

# What every pair of addresses gets.
cases_perftest() {
	local op kind size

	use_gids || return
	for op in send write read atomic; do
		for kind in bw lat; do
			size="-s 4096"
			[ $op != atomic ] || size=
			perftest ib_${op}_$kind "-n 100 $size"
			perftest ib_${op}_$kind "-n 100 $size -R"
		done
	done
}

# perftest itself refuses XRC with -R.
cases_perftest_xrc() {
	local op kind size

	use_gids || return
	for op in send write read atomic; do
		for kind in bw lat; do
			size="-s 4096"
			[ $op != atomic ] || size=
			perftest ib_${op}_$kind "-n 100 $size -c XRC"
		done
	done
}

# Messages of UC may be lost; on a machine that is busy with tests, a receiver that is off the
# CPU for long would lose them.
perftest_uc() {
	local ANYRDMA_UC_LATE_MS=5000

	export ANYRDMA_UC_LATE_MS
	perftest "$1" "-c UC $2"
}

cases_perftest_uc() {
	local op kind

	use_gids || return
	for op in send write; do
		for kind in bw lat; do
			perftest_uc ib_${op}_$kind "-n 100 -s 4096"
			solo "$where ib_${op}_$kind -c UC -R" 10 \
				"ib_${op}_$kind -d anyrdma0 -F -c UC -R" "UC is not supported" 1
		done
	done
}

cases_perftest_xrc_options() {
	use_gids || return
	perftest ib_send_bw "-n 20 -a -c XRC"
	perftest ib_write_bw "-n 20 -a -c XRC"
	perftest ib_send_bw "-n 100 -s 4096 -b -c XRC"
	perftest ib_read_bw "-n 100 -s 4096 -b -c XRC"
	perftest ib_send_bw "-n 50 -s 4096 -q 8 -c XRC"
	perftest ib_write_bw "-n 50 -s 4096 -q 8 -c XRC"
	perftest ib_send_bw "-n 50 -s 4096 -q 4 --use-srq -c XRC"
	perftest ib_send_bw "-n 100 -s 4096 -e -c XRC"
	perftest ib_send_lat "-n 100 -s 64 -e -c XRC"
	perftest ib_send_bw "-n 100 -s 64 -I 64 -c XRC"
	perftest ib_send_bw "-n 128 -s 1024 -l 8 -c XRC"
	perftest ib_atomic_bw "-n 100 -A FETCH_AND_ADD -c XRC"
	perftest ib_send_bw "-n 100 -s 4096 --use_old_post_send -c XRC"
}

cases_perftest_uc_options() {
	use_gids || return
	perftest_uc ib_send_bw "-n 20 -a"
	perftest_uc ib_write_bw "-n 20 -a"
	perftest_uc ib_send_lat "-n 20 -a"
	perftest_uc ib_write_lat "-n 20 -a"
	perftest_uc ib_send_bw "-n 100 -s 4096 -b"
	perftest_uc ib_write_bw "-n 100 -s 4096 -b"
	perftest_uc ib_send_bw "-n 50 -s 4096 -q 8"
	perftest_uc ib_write_bw "-n 20 -s 4096 -q 64"
	perftest_uc ib_send_bw "-n 50 -s 4096 -q 4 --use-srq"
	perftest_uc ib_send_bw "-n 100 -s 4096 -e"
	perftest_uc ib_send_lat "-n 100 -s 64 -e"
	perftest_uc ib_send_bw "-n 100 -s 64 -I 64"
	perftest_uc ib_write_lat "-n 100 -s 64 -I 64"
	perftest_uc ib_send_bw "-n 128 -s 1024 -l 8"
	perftest_uc ib_send_bw "-n 5000 -s 2"
	perftest_uc ib_send_bw "-n 2000 -s 64 -r 16 -t 64"
	perftest_uc ib_send_bw "-n 100 -s 4096 --use_old_post_send"
	perftest_uc ib_write_bw "-n 100 -s 4096 --use_old_post_send"
	perftest_uc ib_write_bw "-n 5 -s 8388608"
	perftest_uc ib_send_bw "-n 50 -s 4096 --reversed"
}

# Options of perftest; once is enough.
cases_perftest_options() {
	use_gids || return
	perftest ib_send_bw "-n 100 -s 4096 -z"
	perftest ib_write_lat "-n 100 -s 64 -z"
	perftest ib_send_bw "-n 20 -a"
	perftest ib_write_bw "-n 20 -a -R"
	perftest ib_read_bw "-n 20 -a"
	perftest ib_send_bw "-n 100 -s 4096 -b"
	perftest ib_write_bw "-n 100 -s 4096 -b"
	perftest ib_read_bw "-n 100 -s 4096 -b"
	perftest ib_atomic_bw "-n 100 -b"
	perftest ib_atomic_bw "-n 100 -A FETCH_AND_ADD"
	perftest ib_atomic_lat "-n 100 -A CMP_AND_SWAP -R"
	perftest ib_send_bw "-n 50 -s 4096 -q 8"
	perftest ib_write_bw "-n 20 -s 4096 -q 64 -R"
	perftest ib_send_bw "-n 50 -s 4096 -q 4 --use-srq"
	perftest ib_send_lat "-n 50 -s 4096 --use-srq"
	perftest ib_send_bw "-n 100 -s 4096 -e"
	perftest ib_send_lat "-n 100 -s 64 -e"
	perftest ib_read_lat "-n 100 -s 64 -e -R"
	perftest ib_send_bw "-n 100 -s 64 -I 64"
	perftest ib_write_lat "-n 100 -s 64 -I 64"
	perftest ib_send_bw "-n 128 -s 1024 -l 8"
	perftest ib_send_bw "-n 100 -s 4096 --use_old_post_send"
	perftest ib_write_bw "-n 100 -s 4096 --use_old_post_send"
	perftest ib_read_bw "-n 10 -s 65536 -m 256"
	perftest ib_write_bw "-n 5 -s 8388608"
	perftest ib_read_bw "-n 100 -s 4096 -o 1"
	perftest ib_write_bw "-n 50 -s 4096 -q 4 --mr_per_qp"
	perftest ib_send_bw "-n 50 -s 4096 --reversed"
	perftest ib_write_bw "-n 100 -s 4096 -Q 1"
	perftest ib_send_bw "-D 2 -s 4096"
	perftest ib_write_bw "-D 2 -s 4096 -R -q 2"
}
