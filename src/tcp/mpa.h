/* SPDX-License-Identifier: BSD-2-Clause */
/* MPA connection set-up frames: RFC 5044 section 7.1, enhanced (revision 2) by
 * RFC 6581 section 4, and the header of our own in their private data.
 * doc/wire.md draws every byte. Pure functions; nothing here blocks, allocates
 * or logs. Multi-byte fields are big-endian.
 *
 *	0..15	key: "MPA ID Req Frame" or "MPA ID Rep Frame"
 *	16	flags (MPA_F_*)
 *	17	revision
 *	18..19	length of private data
 *	20..	private data: with MPA_F_ENHANCED 4 bytes IRD/ORD first,
 *		then (between our peers) version, kind, fields of the kind,
 *		then the application's bytes up to the end */
#ifndef ANYRDMA_TCP_MPA_H
#define ANYRDMA_TCP_MPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MPA_KEY_LEN = 16,
	MPA_HDR_LEN = 20,
	MPA_PD_MAX = 512, /* RFC 5044 7.1: longer is a protocol error */
	MPA_FRAME_MAX = MPA_HDR_LEN + MPA_PD_MAX,
	MPA_OURS_MAX = MPA_HDR_LEN + 256, /* no frame of ours is longer */
	MPA_REV = 2,
	MPA_VERSION = 1, /* of our header */
};

/* Byte 16. OURS_REQ says that our header is there; a peer of ours answers with
 * OURS_REQ clear and OURS_REP set. Linux siw echoes reserved bits of a request
 * in its reply, so that "both set" would take siw for one of ours. */
enum {
	MPA_F_MARKERS = 0x80,
	MPA_F_CRC = 0x40,
	MPA_F_REJECT = 0x20,
	MPA_F_ENHANCED = 0x10,
	MPA_F_OURS_REQ = 0x04,
	MPA_F_OURS_REP = 0x02,
};

struct mpa_frame {
	bool reply; /* which key */
	uint8_t flags;
	uint8_t rev;
	uint16_t pd_len;
	const uint8_t *pd; /* decode: into the input; encode: source */
};

/* Bytes used (20 + private data), -EAGAIN: more is needed, -EPROTO: cannot
 * become a frame whatever follows. A wrong byte of the key is seen at once. */
int mpa_decode(const uint8_t *buf, size_t have, struct mpa_frame *f);

/* How many more bytes may be read without passing the frame's end; 0 when it
 * is complete or broken. */
size_t mpa_want(const uint8_t *buf, size_t have);

/* Bytes written, -ENOSPC (cap), -EINVAL (private data above MPA_PD_MAX). */
int mpa_encode(uint8_t *buf, size_t cap, const struct mpa_frame *f);

/* The key alone, sent ahead of a reply that takes long. */
void mpa_reply_key(uint8_t key[MPA_KEY_LEN]);

/* RFC 6581 words: 14 bits each, as the sender sees it. 0, or -EPROTO when the
 * frame is not enhanced. */
int mpa_depths(const struct mpa_frame *f, uint16_t *ird, uint16_t *ord);

/* RFC 6581 section 9: the upper two bits of both words. In a request: the modes
 * the initiator can do; in a reply: the one it shall do. */
enum {
	MPA_P2P = 0x8,	   /* A: the initiator speaks first, by itself */
	MPA_RTR_SEND = 0x4,  /* B: with an empty FPDU */
	MPA_RTR_WRITE = 0x2, /* C: with an empty RDMA write */
	MPA_RTR_READ = 0x1,  /* D: with an empty RDMA read */
};
/* 0 when the frame is not enhanced. */
unsigned mpa_p2p(const struct mpa_frame *f);

/* A frame without our header, for iWARP peers: revision 2 is enhanced, revision 1
 * has neither depths nor p2p. */
int mpa_plain_encode(uint8_t *buf, size_t cap, const struct mpa_frame *f,
		     uint16_t ird, uint16_t ord, unsigned p2p);

enum mpa_kind {
	MPA_KIND_REQ = 1,	/* request of the connection manager */
	MPA_KIND_REP = 2,
	MPA_KIND_REJ = 3,	/* R flag set */
	MPA_KIND_HELLO = 4,	/* request of a QP brought up by GID and QPN */
	MPA_KIND_HELLO_REP = 5, /* R flag set unless accepted */
	MPA_KIND_ASK = 6,	/* a HELLO that only asks how things are */
};

/* Kind of our header: enum mpa_kind; -ENOMSG no header of ours, -EPROTO
 * truncated or a kind that does not go with the frame, -EPROTONOSUPPORT another
 * version. */
int mpa_kind(const struct mpa_frame *f);

/* The encoders below write a whole frame: its length, -ENOSPC or -EINVAL (a
 * field out of range). The decoders take a frame from mpa_decode(): 0, or an
 * error as mpa_kind(). */

struct mpa_cm_req {
	uint16_t ird, ord;	/* responder_resources, initiator_depth of the sender */
	bool crc;
	uint16_t ps;
	uint8_t qp_type;
	bool srq, flow_control;
	bool ipv6;		/* family of src_addr; IPv4 is ::ffff:a.b.c.d */
	uint8_t retry, rnr_retry; /* 0..7 */
	uint8_t timeout;	/* 0..31 */
	uint8_t mtu;		/* enum ibv_mtu: 1..5 */
	uint32_t qpn, psn;	/* 24 bit */
	uint16_t src_port, dst_port; /* RDMA ports, host order */
	uint32_t ece_vendor, ece_options;
	uint8_t src_addr[16];
	const uint8_t *priv;	/* decode: into the frame */
	uint8_t priv_len;	/* <= 56 */
};

struct mpa_cm_rep {
	uint16_t ird, ord;
	bool crc;
	bool srq, flow_control;
	uint8_t rnr_retry;
	uint8_t mtu;
	uint32_t qpn, psn;
	uint32_t ece_vendor, ece_options;
	const uint8_t *priv;
	uint8_t priv_len; /* <= 196 */
};

struct mpa_cm_rej {
	uint16_t reason;
	const uint8_t *priv;
	uint8_t priv_len; /* <= 148 */
};

struct mpa_hello {
	bool ask; /* MPA_KIND_ASK: it is answered at once and wants no stream */
	uint16_t ird, ord;
	bool crc;
	uint8_t mtu;
	uint8_t qp_type; /* enum ibv_qp_type; 0 is read as RC */
	uint8_t src_gid[16], dst_gid[16];
	uint32_t src_qpn, dst_qpn; /* 24 bit */
	uint32_t rq_psn, sq_psn;   /* of the sender, 24 bit */
};

enum mpa_hello_status {
	MPA_HELLO_ACCEPTED = 0,
	MPA_HELLO_NOT_READY = 1, /* no QP of that number waits yet: try again */
	MPA_HELLO_NO_QP = 2,	 /* there is none, or it is in the error state */
};

struct mpa_hello_rep {
	uint16_t ird, ord;
	bool crc;
	enum mpa_hello_status status;
};

int mpa_cm_req_encode(uint8_t *buf, size_t cap, const struct mpa_cm_req *r);
int mpa_cm_req_decode(const struct mpa_frame *f, struct mpa_cm_req *r);
int mpa_cm_rep_encode(uint8_t *buf, size_t cap, const struct mpa_cm_rep *r);
int mpa_cm_rep_decode(const struct mpa_frame *f, struct mpa_cm_rep *r);
int mpa_cm_rej_encode(uint8_t *buf, size_t cap, const struct mpa_cm_rej *r);
int mpa_cm_rej_decode(const struct mpa_frame *f, struct mpa_cm_rej *r);
int mpa_hello_encode(uint8_t *buf, size_t cap, const struct mpa_hello *h);
int mpa_hello_decode(const struct mpa_frame *f, struct mpa_hello *h);
int mpa_hello_rep_encode(uint8_t *buf, size_t cap, const struct mpa_hello_rep *r);
int mpa_hello_rep_decode(const struct mpa_frame *f, struct mpa_hello_rep *r);

#endif
