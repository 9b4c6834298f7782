/* SPDX-License-Identifier: BSD-2-Clause */
/* Terminate, the last message of a plain stream: RFC 5040 section 4.8.
 *
 *	0	layer (upper four bits), error type
 *	1	error code
 *	2	0x80 M: a DDP segment length follows, 0x40 D: its DDP header,
 *		0x20 R: its RDMAP header (read requests)
 *	3	reserved
 *	4..	as the bits say: be16 length, header(s) */
#ifndef ANYRDMA_TCP_TERM_H
#define ANYRDMA_TCP_TERM_H

#include "rc/stream.h"
#include "tcp/rdmap.h"

/* layer << 12 | type << 8 | code; TERM_SET tells the first of all from none. */
enum term_code {
	TERM_SET = 0x10000,
	TERM_RDMAP_STAG = TERM_SET | 0x0100, /* remote protection: reads */
	TERM_RDMAP_BOUNDS = TERM_SET | 0x0101,
	TERM_RDMAP_RIGHTS = TERM_SET | 0x0102,
	TERM_RDMAP_NOT_ASSOC = TERM_SET | 0x0103,
	TERM_RDMAP_INVALIDATE = TERM_SET | 0x0109,
	TERM_RDMAP_VERSION = TERM_SET | 0x0205, /* remote operation */
	TERM_RDMAP_OPCODE = TERM_SET | 0x0206,
	TERM_RDMAP_STREAM = TERM_SET | 0x0207,
	TERM_RDMAP_UNSPECIFIED = TERM_SET | 0x02ff,
	TERM_DDP_STAG = TERM_SET | 0x1100, /* tagged buffer: writes */
	TERM_DDP_BOUNDS = TERM_SET | 0x1101,
	TERM_DDP_NOT_ASSOC = TERM_SET | 0x1102,
	TERM_DDP_NO_BUFFER = TERM_SET | 0x1202, /* untagged buffer */
	TERM_DDP_MSN = TERM_SET | 0x1203,
	TERM_DDP_MO = TERM_SET | 0x1204,
	TERM_DDP_TOO_LONG = TERM_SET | 0x1205,
	TERM_MPA_CRC = TERM_SET | 0x2002,
};

/* Fills h with a Terminate; of: header of the FPDU it is about, or NULL. */
void term_encode(struct rc_frame *h, enum term_code code, const struct rc_frame *of);
/* enum term_code of a Terminate that came. */
enum term_code term_decode(const struct rc_frame *h);
/* How the oldest unfinished work request ends when the peer says so. */
enum ibv_wc_status term_status(enum term_code code);
/* The code for a request that is refused; of: its header. */
enum term_code term_of(enum rc_reason reason, enum nak_code code, const struct rc_frame *of);

/* Queues it, once; nothing but what was begun is sent besides. The stream ends. */
void term_send(struct stream *s, enum term_code code, const struct rc_frame *of)
	REQUIRES(s->lock);
/* rc_carrier.refuse */
void term_refuse(struct stream *s, enum nak_code code) REQUIRES(s->lock);
/* What came is no valid FPDU (err -EPROTO, -EBADMSG: its CRC is wrong), or not the one that
 * had to come: Terminate, and our QP fails. */
void term_bad_frame(struct stream *s, int err) REQUIRES(s->lock);
/* It came: our QP fails, the stream ends. */
void term_got(struct stream *s, const struct rc_frame *h) REQUIRES(s->lock);

#endif
