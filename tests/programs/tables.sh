# SPDX-License-Identifier: BSD-2-Clause
# Sourced after cases.sh: the programs that are all options, as tables. One case per row and program.
# A row is for "both" places, one host and two namespaces, or for one "host" alone, where the place
# makes no difference: make test runs these, with few iterations. make test-programs (FULL) runs all
# rows, those marked "full" too, in both places and with many iterations.
# Variables: apart, set between namespaces; mtu, of the device's port (4096, as of loopback alone).
#
# shellcheck shell=bash disable=SC2154

# What stands for a number in a row: %n iterations, %a iterations of each of all sizes, %d seconds, %m the
# longest datagram.
fill_in() { # WORDS
	local words=$1
	if [ -n "${FULL:-}" ]; then
		words=${words//%n/1000} words=${words//%a/100} words=${words//%d/10}
	else
		words=${words//%n/100} words=${words//%a/5} words=${words//%d/1}
	fi
	words=${words//%m/${mtu:-4096}}
	filled=$words
}

# Each row of a table (stdin) that is to run: FUNCTION with its columns.
each_row() { # FUNCTION
	local depth columns
	while read -r depth columns; do
		case $depth in
		'' | '#'*) continue ;;
		full) [ -n "${FULL:-}" ] || continue ;;
		host) [ -n "${FULL:-}" ] || [ -z "${apart:-}" ] || continue ;;
		esac
		fill_in "$columns"
		"$1" "$filled"
	done
}

# On a machine that is busy with tests, a receiver that is off the CPU for long would lose what UC may
# lose; these programs wait for every message.
patient_uc() {
	local ANYRDMA_UC_LATE_MS=5000
	export ANYRDMA_UC_LATE_MS
	"$@"
}

# ---- ibverbs-utils: PROGRAMS OPTIONS ----
# -m 1024 for the xsrq program: its default is more than the links here have; -c is its number of
# clients, which the client does not take.
pingpong_table() {
	cat <<-'END'
	both	rc,srq,uc,xsrq	-n %n
	both	rc,srq,uc,xsrq	-n %n -e
	both	rc,srq,uc	-n %n -c
	both	rc,srq,uc	-n %n -e -c
	both	rc,srq,uc	-n %n -s 1
	both	rc,srq,uc	-n 20 -s 1048576
	both	xsrq		-n %n -s 1
	both	xsrq		-n 20 -s 1048576
	both	xsrq		-n 50 -s 100000 -e
	both	rc,srq,uc	-n %n -m 256
	both	rc,uc		-n %n -r 1
	both	srq		-n %n -r 20
	both	rc,srq,uc,xsrq	-n %n -l 3 -i 1
	both	srq		-n %n -q 4
	both	srq		-n %n -q 1 -e
	both	xsrq		-n %n -c 1
	both	rc,srq,xsrq	-n %n -o
	both	rc		-n %n -O
	both	rc		-n %n -o -P
	both	rc		-n %n -O -P -c
	both	rc		-n %n -N
	both	rc		-n %n -N -e
	both	rc		-n %n -N -c
	both	rc		-n %n -N -e -c
	both	rc		-n %n -t
	both	rc		-n %n -t -e
	both	rc		-n %n -t -c
	both	rc		-n %n -t -N
	both	rc		-n %n -t -N -e -c
	full	rc,srq,uc,xsrq	-n 10000
	full	rc,srq,uc,xsrq	-n 10000 -e
	full	rc,srq,uc	-n 10000 -c
	full	rc,srq,uc,xsrq	-n 20 -s 16777216
	full	rc,uc		-n 1000 -s 65536 -e -c
	full	rc,uc,srq	-n 1000 -m 1024
	full	rc		-n 10000 -N
	full	rc		-n 10000 -t -e
	full	rc		-n 10000 -t -N -e -c
	full	srq		-n 200 -q 16 -e -c
	full	srq		-n 100 -q 32
	both	ud		-n %n -s 1024
	both	ud		-n %n -s %m
	both	ud		-n %n -s 1
	both	ud		-n %n -s %m -e
	both	ud		-n %n -s %m -c
	host	ud		-n %n -s 100 -e -c
	host	ud		-n %n -s %m -r 1
	host	ud		-n %n -s %m -l 3 -i 1
	full	ud		-n 10000 -s %m
	full	ud		-n 10000 -s 1 -e -c
	END
}

pingpong_row() { # PROGRAMS OPTIONS
	local programs words p tool common theirs attempts=1
	read -r programs words <<< "$1"
	# With -t and -e the program takes an event without a completion for an error. It comes
	# when a completion arrives between its arming the CQ and its polling it.
	[[ $words != *-t*-e* ]] || attempts=5
	for p in ${programs//,/ }; do
		tool=ibv_${p}_pingpong
		common="-d anyrdma0 -p" theirs=$words
		[ $p != xsrq ] || common="-m 1024 $common" theirs=${words/-c 1/}
		next_port
		patient_uc pair "$where $tool $words" 90 tcp:$port \
			"$tool $common $port -g $server_gid $words" \
			"$tool $common $port -g $client_gid $theirs $tcp_addr" \
			"bytes in .* seconds|success"
	done
}

# What the device does not offer: the programs ask first, and say so. OPTIONS PROGRAMS: MESSAGE
pingpong_refusals() {
	cat <<-'END'
	both	-j rc: dm allocation
	END
}

pingpong_refusal() {
	local words=${1%% *} programs=${1#* } p
	programs=${programs%%:*}
	for p in ${programs//,/ }; do
		solo "$where ibv_${p}_pingpong $words is refused" 10 \
			"ibv_${p}_pingpong -d anyrdma0 $words" "${1#*: }" 1
	done
}

cases_pingpong() {
	use_gids || return
	each_row pingpong_row <<< "$(pingpong_table)"
	each_row pingpong_refusal <<< "$(pingpong_refusals)"
	# The server sends to one client through the QP of another.
	skip "$where ibv_xsrq_pingpong -c 2" "several clients share one XRC domain, which belongs to a process here"
}

# ---- perftest: OPERATIONS KINDS TRANSPORTS OPTIONS ----
# UD has a table of its own: one operation, and sizes up to the MTU. What is lost perftest waits for,
# so no more is sent than receives and buffers of sockets can hold.
perftest_ud_table() {
	cat <<-'END'
	both	send	bw,lat	UD	-n 100 -s 1024
	both	send	bw,lat	UD	-n 100 -s 1024 -R
	both	send	bw,lat	UD	-n 50 -s %m
	both	send	bw	UD	-n 20 -s 256 -q 4
	host	send	bw	UD	-n 20 -s 256 -q 4 -R
	host	send	bw	UD	-n 10 -s 256 -q 16
	both	send	bw,lat	UD	-n 100 -s 64 -e
	host	send	bw,lat	UD	-n 100 -s 64 -e -R
	host	send	bw,lat	UD	-n 100 -s 64 --inline_recv=64
	host	send	bw,lat	UD	-n 100 -s 64 -I 64
	both	send	bw	UD	-n 50 -s 1024 -g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3
	host	send	lat	UD	-n 50 -s 64 -g -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3
	host	send	bw	UD	-n 100 -s 1024 -b
	full	send	bw	UD	-n 100 -s 1024 -b -R
	host	send	bw	UD	-n 128 -s 64 -l 8
	host	send	bw,lat	UD	-n 100 -s 1
	host	send	bw,lat	UD	-n 100 -s 64 --use-srq
	host	send	bw	UD	-n 100 -s 64 --use_old_post_send
	host	send	bw,lat	UD	-n 100 -s 1024 -z
	host	send	bw	UD	-n 100 -s 64 -Q 1
	host	send	bw	UD	-n 50 -s 64 --reversed
	host	send	lat	UD	-D %d -s 64
	full	send	bw	UD	-D %d -s 64
	full	send	lat	UD	-n 100 -a
	full	send	bw	UD	-n 100 -s 64 -r 100
	full	send	bw	UD	-n 100 -s 64 -S 3 -u 18 --tclass=8
	full	send	lat	UD	-n 100 -s 64 -R -T 32
	full	send	lat	UD	-n 100 -s 64 -C -U
	END
}

# -a: perftest measures the processor's clock anew for each of 24 sizes, on both ends: 10 s of a
# processor. So it is run once, and the other operations and transports with two sizes.
# %s: a size, for the operations that have one. --perform_warm_up waits for a completion of every
# request, and so for ever, unless -Q 1 has perftest ask for them.
perftest_table() {
	cat <<-'END'
	both	send,write,read,atomic	bw,lat	RC,UC,XRC	-n %n %s
	both	send,write,read,atomic	bw,lat	RC	-n %n %s -R
	host	send			bw	RC	-n %a -a
	host	send,write,read		bw	RC,UC,XRC	-n %a -s 1
	host	send,write,read		bw	RC,UC,XRC	-n %a -s 1000001
	full	send,write,read		bw,lat	RC,UC,XRC	-n %a -a
	full	send,write,read		bw,lat	RC	-n %a -a -R
	full	send,write,read		bw	RC,UC,XRC	-n %a -a -b
	full	send			bw,lat	RC,UC,XRC	-n %a -a -e
	full	send,write		bw	RC,UC,XRC	-n %a -a -q 4
	host	send,read,atomic	bw,lat	RC,UC,XRC	-n %n %s -e
	full	send,read,atomic	bw,lat	RC	-n %n %s -e -R
	full	send,read,atomic	bw	RC,UC,XRC	-n %n %s -e -q 4
	full	send,read,atomic	bw	RC,UC,XRC	-n %n %s -e -b
	host	send			bw,lat	RC,UC,XRC	-n %n %s --use-srq
	host	send			bw	RC,UC,XRC	-n %n %s --use-srq -q 4
	full	send			bw,lat	RC	-n %n %s --use-srq -R
	full	send			bw	RC,UC,XRC	-n %n %s --use-srq -q 4 -b
	full	send			bw	RC,UC,XRC	-n %n %s --use-srq -e
	full	send			bw	RC	-n %n %s --use-srq -q 8 -R
	both	send,write,read,atomic	bw	RC,UC,XRC	-n %n %s -q 4
	host	write			bw	RC	-n 20 %s -q 64 -R
	full	send,write,read,atomic	bw	RC	-n %n %s -q 4 -R
	full	send,write,read,atomic	bw	RC,UC,XRC	-n %n %s -q 64
	full	send,write,read,atomic	bw	RC,UC,XRC	-n %n %s -q 4 -b
	host	send,write,read,atomic	bw	RC,UC,XRC	-n %n %s -b
	full	send,write,read,atomic	bw	RC	-n %n %s -b -R
	host	send,write		bw,lat	RC,UC,XRC	-n %n -s 64 -I 64
	full	send,write		bw,lat	RC	-n %n -s 64 -I 64 -R
	full	send,write		bw	RC,UC,XRC	-n %n -s 64 -I 64 -b -q 4
	host	send,write,read,atomic	bw	RC,UC,XRC	-D %d %s
	full	send,write,read,atomic	lat	RC,UC,XRC	-D %d %s
	host	send,read		lat	RC	-D %d %s
	full	send,write,read,atomic	bw,lat	RC	-D %d %s -R
	host	write			bw	RC	-D %d %s -R -q 2
	full	send,write,read		bw	RC,XRC	-D %d %s -b
	both	send			bw	RC	-n %n %s -z
	both	write			lat	RC	-n %n %s -z
	full	send,write,read,atomic	bw,lat	RC,UC	-n %n %s -z
	host	atomic			bw,lat	RC,XRC	-n %n -A CMP_AND_SWAP
	full	atomic			bw,lat	RC	-n %n -A FETCH_AND_ADD -R
	host	send			bw	RC,UC,XRC	-n 128 -s 1024 -l 8
	full	write,read,atomic	bw	RC,UC,XRC	-n 128 -l 8
	host	send			bw	RC	-n 128 %s --recv_post_list=4
	host	send,write		bw	RC,UC,XRC	-n %n %s --use_old_post_send
	full	read,atomic		bw,lat	RC,XRC	-n %n %s --use_old_post_send
	full	send,write		lat	RC,UC,XRC	-n %n %s --use_old_post_send
	host	read			bw	RC	-n 10 -s 65536 -m 256
	full	send,write,read		bw,lat	RC,UC,XRC	-n 10 -s 65536 -m 256
	host	write			bw	RC,UC	-n 5 -s 8388608
	full	send,read		bw	RC,XRC	-n 5 -s 8388608
	host	send			bw	UC	-n 5000 -s 2
	host	send			bw	UC	-n 2000 -s 64 -r 16 -t 64
	host	send			bw	RC,XRC	-n %n %s -r 16 -t 8
	host	read			bw	RC	-n %n %s -o 1
	full	read,atomic		bw,lat	RC,XRC	-n %n %s -o 1
	host	write			bw	RC	-n %n %s -q 4 --mr_per_qp
	full	send,read,atomic	bw	RC,XRC	-n %n %s -q 4 --mr_per_qp
	host	send			bw	RC,UC	-n 50 %s --reversed
	full	write,read,atomic	bw	RC,XRC	-n %n %s --reversed
	host	write			bw	RC	-n %n %s -Q 1
	full	send,read,atomic	bw	RC,XRC	-n %n %s -Q 1
	full	send,write		bw	RC	-n %n %s -S 3 -u 18 --tclass=8
	full	send			bw,lat	RC	-n %n %s -R -T 32 --retry_count=3
	full	send,write,read		bw	RC	-n %n %s -N --report_gbits
	full	send,write,read		bw	RC	-n %n %s -b --report-both
	full	send,write,read		lat	RC	-n %n %s -C -U
	full	send			lat	RC	-n %n %s --latency_gap=10
	full	write,read,atomic	bw	RC	-n %n %s -Q 1 --perform_warm_up
	full	send,write,read		bw	RC	-n %n %s --disable_pcie_relaxed
	full	send			bw	RC	-n %n %s -X 0 -e
	full	send			bw	RC	-D 2 %s --cpu_util
	host	send			bw	RC	-n %n %s --odp
	full	send,write,read		bw,lat	RC,XRC	-n %n %s --odp
	full	send,write		bw	RC	-n 20 %s --rate_limit=1 --rate_limit_type=SW
	full	send			bw	RC	-n %n %s --pkey_index=0 --wait_destroy=1
	END
}

# perftest TOOL OPTIONS: the exchange of names is TCP's, with -R or -z the CM's.
perftest() {
	local via=tcp seconds=60

	case " $2 " in
	*" -R "* | *" -z "*) via=rdma ;;
	esac
	[ -z "${FULL:-}" ] || seconds=180
	next_port
	pair "$where $1 $2" $seconds $via:$port \
		"$1 -d anyrdma0 -x $server_gid -F -p $port $2" \
		"$1 -d anyrdma0 -x $client_gid -F -p $port $2 $tcp_addr" "#bytes"
}

perftest_row() { # OPERATIONS KINDS TRANSPORTS OPTIONS
	local ops kinds transports options op kind transport words
	read -r ops kinds transports options <<< "$1"
	for op in ${ops//,/ }; do
		for kind in ${kinds//,/ }; do
			for transport in ${transports//,/ }; do
				words=${options/\%s/-s 4096}
				[ $op != atomic ] || words=${options/ \%s/}
				case $transport-$op in
				RC-*)	perftest ib_${op}_$kind "$words" ;;
				UD-*)	attempts=3 perftest ib_${op}_$kind "-c UD $words" ;;
				UC-read | UC-atomic) ;;
				*)	patient_uc perftest ib_${op}_$kind "-c $transport $words" ;;
				esac
			done
		done
	done
}

cases_perftest() {
	use_gids || return
	each_row perftest_row <<< "$(perftest_table)"
	each_row perftest_row <<< "$(perftest_ud_table)"
}

# What perftest itself refuses, before it asks the device: no gap of the table above. (-z with XRC: it
# posts a receive to its XRC send QP, which no device can take.) OPERATIONS KINDS OPTIONS: MESSAGE
perftest_refusals() {
	cat <<-'END'
	host	send,write		bw,lat	-c UC -R: UC is not supported in librdmacm
	host	send,write,read,atomic	bw,lat	-c XRC -R: XRC does not support RDMA_CM
	host	read,atomic		bw,lat	-c UC: UC connection not possible in READ/ATOMIC verbs
	host	write			bw,lat	-e: Events feature not available on WRITE verb
	host	atomic			bw,lat	-a: Message size cannot be changed for Atomic tests
	host	send,write,read,atomic	lat	-b: Bidirectional is only available in BW test
	host	send,write,read,atomic	lat	-q 4: Multiple QPs only available on bw tests
	host	read,atomic		bw,lat	-I 64: Inline feature not available on READ/Atomic verbs
	host	write,read,atomic	bw,lat	--use-srq: Using SRQ only
	host	send,write		bw,lat	-o 1: Setting Outstanding reads only available on READ verb
	host	send,write,read,atomic	bw,lat	-c XRC -z 127.0.0.1: ibv_post_recv failed for RDMA_CM QP
	host	send,write,read,atomic	bw,lat	-L 7: Hop limit only valid for RawEth QP
	host	send,write		bw,lat	-c UC --odp: ODP does not support UC
	host	send,read,atomic	bw,lat	-D 10 -e: Duration mode doesn't work with events
	host	send,write,read,atomic	lat	-l 8: Post list is supported in BW tests only
	END
}

refusal_row() { # OPERATIONS KINDS OPTIONS: MESSAGE
	local ops kinds rest op kind
	read -r ops kinds rest <<< "$1"
	for op in ${ops//,/ }; do
		for kind in ${kinds//,/ }; do
			solo "ib_${op}_$kind refuses ${rest%%:*}" 10 \
				"ib_${op}_$kind -d anyrdma0 -F ${rest%%:*}" "${rest#*: }" 1
		done
	done
}

cases_perftest_refusals() {
	each_row refusal_row <<< "$(perftest_refusals)"
}

# ---- qperf: OPTIONS: TESTS ----
qperf_table() {
	cat <<-'END'
	both	-m 1024: rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw
	both	-m 1024: rc_rdma_write_lat rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr
	both	-m 1024: ver_rc_compare_swap ver_rc_fetch_add
	full	-m 1024 -cp1: rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw
	full	-m 1024 -cp1: rc_rdma_write_lat rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr
	full	-m 1024 -cp1: ver_rc_compare_swap ver_rc_fetch_add
	full	-m 1: rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_write_bw rc_rdma_write_poll_lat
	full	-m 1M: rc_bw rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw
	full	-m 1M -f1: rc_bw rc_rdma_read_bw rc_rdma_write_bw
	full	-m 4096 -nr 1: rc_rdma_read_bw rc_compare_swap_mr rc_fetch_add_mr
	full	-m 4096 -ar1 -oo msg_size:1:64K:*4: rc_bw rc_lat rc_rdma_read_bw rc_rdma_write_bw
	END
}

# Without the CM, and qperf has none for UC, it exchanges LIDs, which no Ethernet device has: its QPs
# must be refused, as on rxe. The end that fails first says why, the other that its peer failed.
qperf_refusals="rc_bw rc_lat rc_rdma_read_bw rc_rdma_write_bw uc_bw uc_lat uc_bi_bw
	uc_rdma_write_bw uc_rdma_write_lat uc_rdma_write_poll_lat"

qperf_row() { # OPTIONS: TESTS
	local t words=${1%: *} seconds=1
	[ -z "${FULL:-}" ] || seconds=2
	for t in ${1##*: }; do
		next_port
		pair "$where qperf -cm1 $words $t" 60 tcp:$port "qperf -lp $port" \
			"qperf $tcp_addr -lp $port -i anyrdma0:1 -t $seconds -cm1 $words $t" "$t:" stop
	done
}

cases_qperf() {
	local t
	each_row qperf_row <<< "$(qperf_table)"
	for t in $qperf_refusals; do
		next_port
		pair "$where qperf $t without the CM is refused" 30 tcp:$port "qperf -lp $port" \
			"! qperf $tcp_addr -lp $port -i anyrdma0:1 -m 1024 -t 1 $t" \
			"failed to modify QP to RTR|^server:" stop
	done
}

# ---- libfabric: OPTIONS ----
# Its verbs provider does not look at the loopback interface.
fabric_table() {
	cat <<-'END'
	both	-p verbs -e msg
	both	-p verbs -e msg -c
	both	-p verbs -e msg -I %n -S 1
	both	-p verbs -e msg -I %n -S 4096 -c
	both	-p verbs -e msg -I 10 -S 1048576 -c
	both	-p verbs -e dgram
	both	-p verbs -e dgram -I %n -S 1 -c
	both	-p verbs -e dgram -I %n -S 1000 -c
	full	-p verbs -e dgram -I 10000 -S 64
	full	-p verbs -e msg -I 100 -S all -c
	full	-p verbs -e msg -I 100000 -S 64
	both	-p verbs;ofi_rxm -e rdm -c
	both	-p verbs;ofi_rxm -e rdm -m tagged -c
	full	-p verbs;ofi_rxm -e rdm -I %n -c
	END
}

fabric_row() { # OPTIONS
	local words="$1 -d anyrdma0"
	[ "${1#*dgram}" = "$1" ] || words="$1 -d anyrdma0-dgram"
	words=${words/;/\\;}
	next_port
	pair "$where fi_pingpong $1" 60 tcp:$port "fi_pingpong $words -B $port" \
		"fi_pingpong $words -P $port $server_addr" "^bytes"
}

cases_fabric() {
	command -v fi_pingpong > /dev/null || { skip "$where fi_pingpong" "not installed"; return; }
	each_row fabric_row <<< "$(fabric_table)"
	cases_fabric_hints
}

# What programs ask of libfabric (the hints are those of its tests with several endpoints).
cases_fabric_hints() {
	local hints="fi_info -p verbs -d anyrdma0 -m FI_CONTEXT -c FI_MSG\\|FI_RMA"
	solo "$where fi_info FI_EP_MSG" 20 "$hints -t FI_EP_MSG" "FI_PROTO_RDMA_CM_IB_RC"
	solo "$where fi_info FI_EP_RDM" 20 "$hints -t FI_EP_RDM" "FI_PROTO_RXM"
	solo "$where fi_info FI_EP_DGRAM" 20 "fi_info -p verbs -t FI_EP_DGRAM" "FI_PROTO_IB_UD"
}
