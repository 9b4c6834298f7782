/* SPDX-License-Identifier: BSD-2-Clause */
/* TCP as the carrier of a stream: one stream is one TCP connection past its MPA exchange,
 * with iWARP framing (doc/wire.md).
 *
 * Files: carrier.c the descriptor, who watches it, the table; tx.c sending; batch.c the
 * FPDUs of one sendmsg(); rx.c assembling what arrives; term.c Terminate, the last message of
 * a plain stream; rendezvous.c streams for QPs known by GID and number; codecs mpa.c and
 * rdmap.c. */
#ifndef ANYRDMA_TCP_TCP_H
#define ANYRDMA_TCP_TCP_H

#include "dev/poll.h"
#include "rc/build.h"
#include "rc/stream.h"
#include "tcp/rdmap.h"

enum {
	TCP_STAGING = 64 * 1024,
	TCP_IN_PLACE_MIN = 8192, /* the rest of a payload of so many bytes is read to its place */
	TCP_TAIL = 64,		 /* write order: last bytes in an iovec of their own */
	TCP_COPY_MAX = 512,	 /* payload up to here is copied beside its header */
	/* With CRC every payload is, and is not larger: the CRC is to be that of the bytes
	 * that are sent, and memory that a peer reads may change at any time. */
	TCP_CRC_PAYLOAD_MAX = 8192,
	TCP_YIELD_MS = 100,	 /* a peer has surely read our MPA reply by then */
};

/* The rest of an FPDU of which a part is in the socket: it must be finished
 * before anything else, whatever happens to its QP. */
struct tcp_part {
	uint32_t head_len, head_pos;
	uint8_t trailer[RDMAP_TRAILER_MAX + 1];
	uint32_t trailer_len, trailer_pos;
	struct rc_payload payload; /* if not owned */
	uint8_t *owned;		   /* a copy of it, or NULL */
	uint32_t payload_len, payload_pos;
	uint8_t head[]; /* with a payload that was copied, and then the trailer */
};

/* All fields are guarded by the stream's lock. */
struct tcp_stream {
	struct stream s;
	int fd;
	int out;		/* written to: fd, but for a QP connected to itself */
	struct loop_fd lf;	/* while no QP is attached */
	struct poll_source src; /* while one is */

	/* tx.c */
	struct tcp_part *part;	/* or NULL */
	uint8_t *first;		/* bytes before the first FPDU (MPA reply), or NULL */
	uint32_t first_len, first_pos;
	bool suspect;		/* sendmsg() gave EFAULT: the next batch finds out whose
				 * memory is not mapped */
	uint64_t sent;		/* bytes, ever */

	/* rx.c */
	uint8_t hdr[RDMAP_HDR_MAX];
	uint32_t have;		/* bytes of a header that came in pieces */
	bool in_frame;		/* header decoded, payload or trailer to come */
	uint32_t left;		/* payload to come */
	uint32_t trailer_left, trailer_have;
	uint8_t trailer[RDMAP_TRAILER_MAX + 1];
	uint32_t crc;
	bool large;		/* the last frame was large: read little ahead */
	bool unframed;		/* plain: framing is lost, what comes is discarded */
	/* while rx.wait (unreliable) or rx.paging: what came behind the message, or of the
	 * payload, that waits */
	uint8_t *stash;
	size_t stash_pos, stash_len;

	/* plain: term.c, carrier.c */
	bool terminated;	/* Terminate was sent or came */
	struct loop_timer yield; /* ends tx.muted; has a reference while it is set */
};

static inline struct tcp_stream *to_tcp(struct stream *s)
{
	return container_of(s, struct tcp_stream, s);
}

extern const struct rc_carrier tcp_carrier;

/* carrier.c: anyrdma_interface.stream_open */
struct stream *tcp_open(int fd, const struct stream_param *p, const uint8_t *first, size_t len,
			const struct stream_user *ops, void *user);
/* A QP connected to itself: reads from one end of a socket pair what it writes to the other.
 * Requester and responder share no state, so one stream serves. 0 or -errno. */
int tcp_open_self(const struct stream_param *p);

/* tx.c: rc_carrier.send, own_payload; frees what is left to be sent */
void tcp_send(struct stream *s) REQUIRES(s->lock);
void tcp_own_payload(struct stream *s) REQUIRES(s->lock);
void tcp_tx_fini(struct tcp_stream *t);
/* rx.c: rc_carrier.receive, go_on */
bool tcp_receive(struct stream *s) REQUIRES(s->lock);
void tcp_go_on(struct stream *s) REQUIRES(s->lock);

#endif
