#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The golden FPDUs (fpdu_*.hex) behind the golden request and reply, as a capture, decoded by tshark:
# every field that it knows has the value that src/tcp/rdmap_test.c expects, and its CRC is right. Of
# immediate data and of our control messages tshark 4.0 knows the DDP header alone.
. "$(dirname "$0")/../programs/lib.sh"
need text2pcap tshark
cd "$here" || exit 1

fields=(iwarp_rdma.opcode iwarp_ddp.last_flag iwarp_ddp.rsvd
	iwarp_ddp.stag iwarp_ddp.tagged_offset iwarp_ddp.qn iwarp_ddp.msn iwarp_ddp.mo iwarp_rdma.inval_stag
	iwarp_rdma.sinkstag iwarp_rdma.sinkto iwarp_rdma.rdmardsz iwarp_rdma.srcstag iwarp_rdma.srcto
	iwarp_rdma.term_layer iwarp_rdma.term_etype_ddp iwarp_rdma.term_errcode_ddp_tagged
	iwarp_rdma.term_ddp_seg_len
	iwarp_rdma.atomic.opcode iwarp_rdma.atomic.request_identifier iwarp_rdma.atomic.remote_stag
	iwarp_rdma.atomic.remote_tagged_offset iwarp_rdma.atomic.add_data iwarp_rdma.atomic.swap_data
	iwarp_rdma.atomic.compare_data
	iwarp_rdma.atomic.original_request_identifier iwarp_rdma.atomic.original_remote_data_value)

# Opcode, last flag, the DDP bits that are reserved by RFC 5041 (8: ACK_REQ); tagged: STag and offset, else
# queue, sequence number and offset; what the message has besides.
rows='
fpdu_atomic_add 0x0a 1 0x00 1 10 0 0 77 2882400001 1099511627776 1229801703532086340 0
fpdu_atomic_resp 0x0b 1 0x00 3 1 0 77 18446744073709551614
fpdu_atomic_swap 0x0a 1 0x00 1 11 0 2 78 2882400001 1099511627784 1229801703532086340 6148933456521300104
fpdu_atomic_write 0x0a 1 0x00 1 12 0 15 79 2882400001 1099511627792 72623859790382856
fpdu_ctl_ack 0x0f 1 0x00 4 0 0
fpdu_ctl_nak 0x0f 1 0x00 4 0 0
fpdu_ctl_recv_posted 0x0f 1 0x00 4 0 0
fpdu_ctl_resync 0x0f 1 0x00 4 0 0
fpdu_ctl_srq 0x0f 1 0x00 4 0 0
fpdu_ctl_user 0x0f 1 0x00 4 0 0
fpdu_imm 0x08 1 0x00 0 8 0
fpdu_imm_se 0x09 1 0x00 0 9 0
fpdu_read_req 0x01 1 0x00 1 7 0 0x00000105 0x0000000000000000 2147483648 0xcafe0001 0xfffffffffffffffc
fpdu_read_resp 0x02 0 0x00 0x00000105 0x000000000000ffe0
fpdu_send 0x03 1 0x08 0 2 0
fpdu_send_inv 0x04 1 0x00 0 4 0 2882400001
fpdu_send_part 0x03 0 0x00 0 3 65504
fpdu_send_se 0x05 1 0x00 0 5 0
fpdu_send_se_inv 0x06 1 0x00 0 6 0 2882400002
fpdu_terminate 0x07 1 0x00 2 1 0 0x01 0x01 0x00 001b
fpdu_write 0x00 1 0x08 0x11223344 0x0102030405060708
fpdu_write_announced 0x00 0 0x00 0x11223344 0x0102030405070000
'

# bytes FILE EDIT: the bytes of a golden frame in one line, after sed has changed them.
bytes() {
	grep -v '^#' "$1" | tr '\n' ' ' | sed "$2"
}

# capture NAME REQ REP FPDU: a connection; edits of the request, of the reply and of each FPDU.
capture() {
	local f
	{
		printf 'O\n000000 %s\n' "$(bytes mpa_req.hex "$2")"
		printf 'I\n000000 %s\n' "$(bytes mpa_rep.hex "$3")"
		for f in fpdu_*.hex; do
			printf 'O\n000000 %s\n' "$(bytes "$f" "$4")"
		done
	} > "$logs/$1.txt"
	text2pcap -q -D -4 10.77.0.2,10.77.0.1 -T 50000,18502 "$logs/$1.txt" "$logs/$1.pcap" \
		2> "$logs/text2pcap.err"
}

# decode NAME WORD...
decode() {
	local file=$logs/$1.pcap
	shift
	# Its guess that a short Send is an RPC would show such frames as malformed.
	tshark -n -r "$file" --disable-heuristic rpcrdma_iwarp -o tcp.try_heuristic_first:TRUE "$@" \
		2>> "$logs/tshark.err"
}

expect() { # NAME WANTED SEEN
	if [ "$2" = "$3" ]; then
		pass "$1"
	else
		fail "$1" "wanted: $2" "seen: $3"
	fi
}

# connection NAME REQ REP FPDU GOOD: each FPDU, and in so many of them a CRC that tshark finds right.
connection() {
	local name wanted_fields seen all e=() f
	wanted "$1" || return
	capture "$1" "$2" "$3" "$4"
	for f in "${fields[@]}"; do
		e+=(-e "$f")
	done
	all=$(decode "$1" -Y iwarp_rdma -T fields -E separator=' ' "${e[@]}" | tr -s ' ' | sed 's/ $//')
	while read -r name wanted_fields; do
		seen=$(sed -n 1p <<< "$all")
		all=$(sed 1d <<< "$all")
		expect "$1: $name" "$wanted_fields" "$seen"
	done < <(sed '/^$/d' <<< "$rows")
	expect "$1: every golden frame has a row" "" "$all"
	expect "$1: CRCs that tshark finds right" "$5" "$(decode "$1" -V | grep -c 'CRC check: .*(Good CRC32)')"
	expect "$1: nothing malformed" "" "$(decode "$1" -Y _ws.malformed)"
}

frames=$(sed '/^$/d' <<< "$rows" | wc -l)
connection plain '' '' 's/\(.. \)\{4\}$/00 00 00 00 /' 0
connection crc 's/65 14 02/65 54 02/' 's/65 12 02/65 52 02/' '' "$frames"
finish
