#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The golden datagrams (ud_*.hex) as a capture, decoded by tshark as RoCE v2: every field that it knows
# has the value that src/udp/packet_test.c expects. Marks have opcodes of manufacturers, of which it
# knows the BTH alone. Where RoCE has its ICRC is our trailer.
. "$(dirname "$0")/../programs/lib.sh"
need text2pcap tshark
cd "$here" || exit 1

fields=(infiniband.bth.opcode infiniband.bth.se infiniband.bth.m infiniband.bth.padcnt infiniband.bth.tver
	infiniband.bth.p_key infiniband.bth.destqp infiniband.bth.psn infiniband.deth.q_key
	infiniband.deth.srcqp infiniband.immdt infiniband.invariant.crc data.data)

# Opcode, solicited, migration, pad count, version, P_Key, destination QP, PSN; of sends: Q_Key, source QP,
# immediate data, what stands for the ICRC, and what is between.
rows='
ud_group 100 0 0 0 0 65535 0xffffff 1 0x0000000001234567 0x00d4e5f6 0x16000000 70696e67ff12401b000000000000000000000077
ud_imm 101 0 0 0 0 65535 0xa1b2c3 7 0x0000000001234567 0x00d4e5f6 deadbeef,deadbeef 0x11000000 3b97d8f3
ud_mark 192 0 0 0 0 65535 0xa1b2c3 9
ud_marked 193 0 0 0 0 65535 0xa1b2c3 9
ud_send 100 1 0 0 0 65535 0xa1b2c3 1193046 0x0000000011223344 0x00d4e5f6 0x103abcde 70696e6721
'

for f in ud_*.hex; do
	printf 'I\n000000 %s\n' "$(grep -v '^#' "$f" | tr '\n' ' ')"
done > "$logs/ud.txt"
text2pcap -q -D -4 10.77.0.2,10.77.0.1 -u 54501,41394 "$logs/ud.txt" "$logs/ud.pcap" \
	2> "$logs/text2pcap.err"

decode() { # WORD...
	tshark -n -r "$logs/ud.pcap" -d udp.port==41394,infiniband "$@" 2>> "$logs/tshark.err"
}

e=()
for f in "${fields[@]}"; do
	e+=(-e "$f")
done
all=$(decode -T fields -E separator=' ' "${e[@]}" | tr -s ' ' | sed 's/ $//')
while read -r name want; do
	have=$(sed -n 1p <<< "$all")
	all=$(sed 1d <<< "$all")
	if [ "$want" = "$have" ]; then
		pass "$name"
	else
		fail "$name" "wanted: $want" "seen: $have"
	fi
done < <(sed '/^$/d' <<< "$rows")
if [ -z "$all" ]; then
	pass "every golden datagram has a row"
else
	fail "every golden datagram has a row" "$all"
fi
if [ -z "$(decode -Y _ws.malformed)" ]; then
	pass "nothing malformed"
else
	fail "nothing malformed" "$(decode -Y _ws.malformed)"
fi
finish
