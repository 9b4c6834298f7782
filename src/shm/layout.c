/* SPDX-License-Identifier: BSD-2-Clause */
/* The layouts that doc/wire.md describes. Two processes of one host may run different builds:
 * a change here is a change of GREETING_VERSION. */
#include "shm/dgram_rec.h"
#include "shm/greeting.h"

#include <stddef.h>

#define AT(type, member, offset) \
	_Static_assert(offsetof(type, member) == (offset), #type " " #member)
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)

SIZE(struct link_segment, 529024);
AT(struct link_segment, ring[1], 262336);
AT(struct link_segment, direct[0], 524672);
AT(struct link_segment, direct[1], 526848);

AT(struct ring_shared, head, 0);
AT(struct ring_shared, consumer_sleeps, 64);
AT(struct ring_shared, producer_waits, 128);
AT(struct ring_shared, line, 192);

AT(struct direct_shared, words_used, 0);
AT(struct direct_shared, works, 4);
AT(struct direct_shared, closed, 64);
AT(struct direct_shared, user[0], 128);
AT(struct direct_shared, user[1], 192);

SIZE(struct rec_stream, 32);
AT(struct rec_stream, slot, 4);
AT(struct rec_stream, op, 8);
AT(struct rec_stream, flags, 9);
AT(struct rec_stream, body, 10);
AT(struct rec_stream, ack, 12);
AT(struct rec_stream, stag, 16);
AT(struct rec_stream, msn, 20);
AT(struct rec_stream, to, 24);

/* Bodies: parts of the union of struct rc_frame, which begins with read. */
#define BODY(member, offset) \
	AT(struct rc_frame, member, offsetof(struct rc_frame, read) + (offset))
BODY(read.sink_stag, 0);
BODY(read.size, 4);
BODY(read.src_stag, 8);
BODY(read.sink_to, 16);
BODY(read.src_to, 24);
BODY(atomic.opcode, 0);
BODY(atomic.id, 4);
BODY(atomic.stag, 8);
BODY(atomic.to, 16);
BODY(atomic.add_swap, 24);
BODY(atomic.compare, 32);
BODY(atomic_resp.id, 0);
BODY(atomic_resp.value, 8);
BODY(imm.imm, 0);
BODY(imm.kind, 4);
BODY(ctl.type, 0);
BODY(ctl.code, 4);
BODY(ctl.timer, 5);
BODY(ctl.len, 6);
BODY(ctl.number, 8);
BODY(ctl.msn0, 12);
BODY(ctl.msn1, 16);
BODY(ctl.data, 20);

SIZE(struct rec_piece, 16);
AT(struct rec_piece, key, 8);
AT(struct rec_piece, len, 12);

SIZE(struct rec_link, 72);
AT(struct rec_link, type, 4);
AT(struct rec_link, unreliable, 5);
AT(struct rec_link, slot, 8);
AT(struct rec_link, from, 12);
AT(struct rec_link, err, 16);
AT(struct rec_link, src_qpn, 20);
AT(struct rec_link, dst_qpn, 24);
AT(struct rec_link, share_id, 32);
AT(struct rec_link, src_gid, 40);
AT(struct rec_link, dst_gid, 56);

SIZE(struct rec_cm, 32);
AT(struct rec_cm, type, 4);
AT(struct rec_cm, status, 5);
AT(struct rec_cm, name_len, 6);
AT(struct rec_cm, slot, 8);
AT(struct rec_cm, from, 12);
AT(struct rec_cm, len, 16);
AT(struct rec_cm, share_id, 24);

SIZE(struct rec_dgram, 32);
AT(struct rec_dgram, kind, 4);
AT(struct rec_dgram, flags, 5);
AT(struct rec_dgram, traffic_class, 6);
AT(struct rec_dgram, hop_limit, 7);
AT(struct rec_dgram, src_qpn, 8);
AT(struct rec_dgram, dst_qpn, 12);
AT(struct rec_dgram, qkey, 16);
AT(struct rec_dgram, flow_label, 20);
AT(struct rec_dgram, sgid4, 24);
AT(struct rec_dgram, dgid4, 28);

SIZE(struct rec_dgram_gids, 32);
AT(struct rec_dgram_gids, sgid, 0);
AT(struct rec_dgram_gids, dgid, 16);

SIZE(struct rec_dgram_number, 8);
AT(struct rec_dgram_number, number, 0);

SIZE(struct greeting, 48);
AT(struct greeting, magic, 0);
AT(struct greeting, version, 4);
AT(struct greeting, status, 8);
AT(struct greeting, size, 12);
AT(struct greeting, id, 16);
AT(struct greeting, grant.challenge, 32);
AT(struct greeting, grant.accepts_memory, 40);

SIZE(struct grant_msg, 24);
AT(struct grant_msg, type, 0);
AT(struct grant_msg, table, 4);
AT(struct grant_msg, at, 8);
AT(struct grant_msg, word, 16);
