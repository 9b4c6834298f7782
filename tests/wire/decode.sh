#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Connections of rping between two namespaces, captured, and decoded by tshark as MPA and DDP/RDMAP:
# every byte of them, no malformed frame, and exactly the messages that rping causes.
. "$(dirname "$0")/../programs/lib.sh"
need rping tshark dumpcap
if [ -z "${IN_LAB:-}" ]; then
	why=$("$lab" enter true) || skip_all "$why"
	IN_LAB=1 exec "$lab" enter "$0" "$@"
fi

name=anyrdma$$
why=$("$lab" up $name) || skip_all "$why"
dump_pid=
trap 'cleanup; [ -z "$dump_pid" ] || kill $dump_pid; "$lab" down $name' EXIT
server_ns=$name-a
client_ns=$name-b

# What tshark 4.0 has against RFC 6581: it knows revision 1 alone.
known='iwarp_mpa.rev.not_set1 || iwarp_mpa.res.not_set0'
# Its guess that a short Send is an RPC would show such frames as malformed.
decode() { # FILTER FIELD...
	local filter=$1 fields=() f
	shift
	for f in "$@"; do
		fields+=(-e "$f")
	done
	# Two passes: the first frame of a message that took several knows it in the second.
	tshark -n -2 -r "$capture" --disable-heuristic rpcrdma_iwarp \
		-o tcp.try_heuristic_first:TRUE -Y "$filter" -T fields "${fields[@]}" \
		2>> "$logs/tshark.err"
}

start_capture() {
	local tries=0
	rm -f "$capture" "$logs/dumpcap.err"
	ip netns exec $client_ns dumpcap -q -i veth0 -w "$capture" 2> "$logs/dumpcap.err" &
	dump_pid=$!
	until grep -qs "^File:" "$logs/dumpcap.err"; do
		tries=$((tries + 1))
		if [ $tries -gt 100 ] || ! kill -0 $dump_pid 2>/dev/null; then
			why=$(tail -n 1 "$logs/dumpcap.err")
			dump_pid=
			skip_all "capturing is not permitted here: $why"
		fi
		sleep 0.1
	done
}

# A datagram with a word of its own behind all else: once it is in the file, so is the rest.
stop_capture() {
	local tries=0
	ip netns exec $client_ns bash -c "echo end-of-capture > /dev/udp/10.77.0.1/9"
	until grep -aq end-of-capture "$capture" || [ $tries -gt 100 ]; do
		tries=$((tries + 1))
		sleep 0.1
	done
	kill -INT $dump_pid
	wait $dump_pid 2>/dev/null
	dump_pid=
}

# expect NAME WANTED SEEN
expect() {
	if [ "$2" = "$3" ]; then
		pass "$1"
	else
		fail "$1" "wanted: $2" "seen: $3"
	fi
}

# none NAME FILTER: no frame fits the filter.
none() {
	local seen
	seen=$(decode "$2" frame.number _ws.col.Info | head -n 5)
	if [ -z "$seen" ]; then
		pass "$1"
	else
		fail "$1" "frames: $seen"
	fi
}

# Messages by opcode: tshark gives the opcodes and last flags of a frame's FPDUs as two lists.
messages() { # OPCODE
	decode "iwarp_rdma" iwarp_rdma.opcode iwarp_ddp.last_flag |
		awk -v want="$(printf '0x%02x' "$1")" '{
			n = split($1, op, ","); split($2, last, ",")
			for (i = 1; i <= n; i++)
				if (op[i] == want && last[i] ~ /^(1|True)$/) count++
		} END { print count + 0 }'
}

# wire NAME COUNT RPING-WORDS: per ping, rping sends four messages, reads once and writes once.
wire() {
	local what=$1 pings=$2 words="$3 -C $2" tcp
	capture=$logs/$4.pcapng
	port=$((port + 1))
	tcp=$(mapped $port)
	wanted "$what" || return
	start_capture
	pair "$what: rping" 30 rdma:$port "rping -s $words -p $port" "rping -c $words -p $port"
	stop_capture
	expect "$what: MPA request and reply" "1 1" \
		"$(decode iwarp_mpa.req frame.number | wc -l) $(decode iwarp_mpa.rep frame.number | wc -l)"
	expect "$what: Sends" $((4 * pings)) "$(messages 3)"
	expect "$what: RDMA Writes" "$pings" "$(messages 0)"
	expect "$what: RDMA Read Requests" "$pings" "$(messages 1)"
	expect "$what: RDMA Read Responses" "$pings" "$(messages 2)"
	none "$what: nothing malformed" "_ws.malformed || _ws.unreassembled"
	none "$what: no error found by tshark" "_ws.expert.severity == error"
	none "$what: no warning about iWARP" \
		"iwarp_mpa && _ws.expert.severity == warn && !($known) && !tcp.analysis.flags"
	none "$what: all bytes are iWARP" \
		"tcp.port == $tcp && tcp.len > 0 && !iwarp_mpa && !tcp.reassembled_in &&
		!tcp.analysis.retransmission && !tcp.analysis.spurious_retransmission"
}

port=7600
wire "IPv4" 10 "-a 10.77.0.1 -V -v" ipv4
wire "IPv6" 10 "-a fd77::1 -V" ipv6
wire "IPv4, 64 KiB" 10 "-a 10.77.0.1 -V -S 65535" large
export ANYRDMA_CRC=on
wire "CRC" 10 "-a 10.77.0.1 -V -S 5001" crc
capture=$logs/crc.pcapng
expect "CRC: wanted by both" "1 1" \
	"$(decode 'iwarp_mpa.req && iwarp_mpa.crc_flag == 1' frame.number | wc -l) $(
	decode 'iwarp_mpa.rep && iwarp_mpa.crc_flag == 1' frame.number | wc -l)"
finish
