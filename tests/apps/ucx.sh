#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Debian's UCX on anyrdma0: what it finds, its own measurements of every test over rc_verbs and
# ud_verbs, and a client of ours that looks at every byte. UCX_TLS leaves it no other transport.
. "$(dirname "$0")/places.sh"
need ucx_info ucx_perftest io_demo
two_hosts "$@"
first_port 13400

# ---- what it finds ----
found() { # NAME LINE REGEX
	solo "$where ucx_info: $1" 20 "ucx_info -d | sed -n '/^# *$2/,/^# *\$/p'" "$3"
}

cases_found() {
	found "rc_verbs" "Transport: rc_verbs" "Device: anyrdma0:1"
	found "ud_verbs" "Transport: ud_verbs" "Device: anyrdma0:1"
	found "a connection manager" "Connection manager: rdmacm" "max_conn_priv: 54 bytes"
	found "memory" "Memory domain: anyrdma0" "register: unlimited"
	solo "$where ucx_info: what two workers agree on" 20 "UCX_TLS=rc_v ucx_info -epw -u t" \
		"lane\\[0\\]: .*rc_verbs/anyrdma0:1"
}

# ---- ucx_perftest, which wires up by itself and then moves data ----
perftest() { # NAME SETTINGS OPTIONS
	local run="ANYRDMA_TRANSPORT=$carrier $2 ucx_perftest"
	next_port
	pair "$where ucx_perftest $1" 60 tcp:$port "$run -p $port $3" \
		"$run -p $port $3 $server_addr" "^Final: "
}

# -s 8 and several segments; those of atomics have a word alone. 300 and 30 times, 1000 and 100 where it
# may take long.
ucp_test() { # TRANSPORT TEST
	local n=3
	[ -z "${FULL:-}" ] || n=10
	perftest "$1 $2 8" "UCX_TLS=$1" "-t $2 -s 8 -w 10 -n ${n}00"
	case $2 in ucp_add | ucp_fadd | ucp_swap | ucp_cswap) return ;; esac
	perftest "$1 $2 100000" "UCX_TLS=$1" "-t $2 -s 100000 -w 10 -n ${n}0"
}

uct_test() { # TRANSPORT TEST LAYOUT
	local n=300 size=8
	[ -z "${FULL:-}" ] || n=1000
	[ "$2 $3" != "get zcopy" ] || size=1000
	perftest "$1 $2 $3" "" "-d anyrdma0:1 -x $1 -t $2 -D $3 -s $size -w 10 -n $n"
}

cases_ucp() {
	local tl t tests="tag_lat tag_bw tag_sync_lat tag_sync_bw ucp_put_lat ucp_put_bw ucp_get
		ucp_add ucp_fadd ucp_swap ucp_cswap stream_bw stream_lat ucp_am_lat ucp_am_bw"
	[ -n "${FULL:-}" ] || tests="tag_lat"
	for tl in rc_v ud_v; do
		for t in $tests; do
			ucp_test $tl "$t"
		done
	done
}

cases_uct() {
	local t layout
	[ -n "${FULL:-}" ] || { uct_test rc_verbs fadd short; uct_test ud_verbs am_bw bcopy; return; }
	for layout in short bcopy zcopy; do
		for t in am_lat am_bw; do
			uct_test rc_verbs $t $layout
			uct_test ud_verbs $t $layout
		done
		for t in put_lat put_bw; do
			uct_test rc_verbs $t $layout
		done
		[ $layout = short ] || uct_test rc_verbs get $layout
	done
	for t in add_lat add_mr fadd cswap; do
		uct_test rc_verbs $t short
	done
}

# Ways to wait, threads, lists of segments, error handling, several devices: NAME: SETTINGS: OPTIONS
modes() {
	cat <<-'END'
	host	asleep, rc_v: UCX_TLS=rc_v: -t tag_lat -E sleep -n 200
	full	asleep, ud_v: UCX_TLS=ud_v: -t tag_lat -E sleep -n 200
	full	asleep, one way: UCX_TLS=rc_v: -t stream_bw -E sleep -n 1000
	full	threads: UCX_TLS=rc_v: -t tag_bw -T 2 -M multi -n 200
	full	segments: UCX_TLS=rc_v: -t tag_lat -D iov,iov -s 1000,5000,300000 -n 50
	full	signals: : -d anyrdma0:1 -x ud_verbs -t am_lat -A signal -n 200
	full	mutex: : -d anyrdma0:1 -x rc_verbs -t am_lat -A thread_mutex -n 200
	full	any transport: : -t tag_lat -s 100000 -n 200
	full	error handling: UCX_TLS=rc_v: -t tag_lat -e -s 100000 -n 200
	full	memory registered before: UCX_TLS=rc_v: -t ucp_put_bw -z -s 100000 -n 200
	full	rendezvous by read: UCX_TLS=rc_v UCX_RNDV_SCHEME=get_zcopy: -t tag_bw -s 1000000 -n 50
	full	rendezvous by write: UCX_TLS=rc_v UCX_RNDV_SCHEME=put_zcopy: -t tag_bw -s 1000000 -n 50
	full	no flow control: UCX_TLS=rc_v UCX_RC_VERBS_RX_QUEUE_LEN=64 UCX_RC_VERBS_FC_ENABLE=n: -t ucp_am_bw -s 2000 -n 3000
	full	two devices: UCX_TLS=rc_v ANYRDMA_DEVICES=2 UCX_MAX_RNDV_RAILS=2 UCX_MAX_EAGER_RAILS=2: -t tag_bw -s 1000000 -n 50
	END
}

cases_modes() {
	local depth row
	while read -r depth row; do
		[ "$depth" = host ] || [ -n "${FULL:-}" ] || continue
		perftest "${row%%: *}" "$(cut -d: -f2 <<< "$row")" "${row##*: } -w 10"
	done < <(modes)
}

# Reads and writes that it checks itself (-q), over connections that rdmacm makes.
cases_io_demo() {
	local tl api
	[ -n "${FULL:-}" ] || return 0
	for tl in rc_v ud_v; do
		for api in "" " -A"; do
			next_port
			io="ANYRDMA_TRANSPORT=$carrier UCX_TLS=$tl io_demo -p $port -q -d 64:65536$api"
			pair "$where io_demo$api, $tl" 60 rdma:$port "$io" \
				"$io -o read,write -i 300 -w 4 $server_addr" "exit with status 'OK'" stop
		done
	done
}

# What a device has not UCX says before it begins: ud_verbs has no memory of the other, verbs no swap.
cases_refused() {
	local t
	for t in "rc_verbs swap short" "ud_verbs put_lat short" "ud_verbs get bcopy" "ud_verbs fadd short"; do
		# shellcheck disable=SC2086
		set -- $t
		solo "$where ucx_perftest $t is refused" 20 \
			"ucx_perftest -l -d anyrdma0:1 -x $1 -t $2 -D $3 -n 10" "does not support" 255
	done
}

# ---- a client and a server that look at every byte ----
cases_bytes() {
	local tl
	if ! compile "$logs/ucp" gcc "$here/ucp.c" -lucp -lucs; then
		skip "$where ucp" "ucp.c is not to be compiled here: $why"
		return
	fi
	for tl in rc_v ud_v rc_v,ud_v; do
		next_port
		ucx="ANYRDMA_TRANSPORT=$carrier UCX_TLS=$tl $logs/ucp"
		pair "$where ucp over rdmacm, $tl" 60 "says:^listening" "$ucx server $server_addr $port" \
			"$ucx client $server_addr $port" "^all is right"
		[ -n "${FULL:-}" ] || break
	done
}

cases_found
cases_refused
for cases in ucp uct modes bytes io_demo; do
	everywhere cases_$cases
done
finish
