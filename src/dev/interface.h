/* SPDX-License-Identifier: BSD-2-Clause */
/* What librdmacm's user backend asks of our libibverbs, beyond public verbs.
 * Exported as one function, `anyrdma_interface` at node ANYRDMA_1; the number
 * must match exactly (both libraries are built together). */
#ifndef ANYRDMA_DEV_INTERFACE_H
#define ANYRDMA_DEV_INTERFACE_H

#include "base/loop.h"

#include <infiniband/verbs.h>
#include <sys/socket.h>

#define ANYRDMA_INTERFACE 4

/* Control messages of a stream, in both directions, in order with each other,
 * in every state of the QP. */
enum stream_ctl {
	STREAM_CTL_RTU = 1,  /* active side is ready */
	STREAM_CTL_DREQ = 2,
	STREAM_CTL_DREP = 3,
	STREAM_CTL_REJ = 4,  /* active side rejects the reply; data: u16 reason, private data */
};

struct stream; /* a TCP connection past its MPA exchange (tcp/carrier.c), or one over
		* shared memory from its call on (shm/call.c) */

/* Upcalls: always in the loop thread, no lock held, in order, none after
 * released(). */
struct stream_user {
	/* Of stream_connect() alone. A process of ours has the request (not told when
	 * stream_connect() has said so). */
	void (*delivered)(void *user);
	/* ... and its answer: accepted, stream_opened() may be called, or not. */
	void (*reply)(void *user, const uint8_t *data, size_t len);
	void (*control)(void *user, enum stream_ctl type, const uint8_t *data,
			size_t len);
	/* The peer closed (err 0) or the connection broke (-errno). Once. Before the
	 * answer to a call: -ENOLINK there is no listener to be reached like this,
	 * -ESTALE the same, of a process that had one (ask again), -EPIPE that
	 * process has ended (likewise), -EBUSY ask later. */
	void (*closed)(void *user, int err);
	/* Answer to stream_release(): the last upcall. */
	void (*released)(void *user);
};

/* Without the extension only (RFC 5044 section 7.1, RFC 6581 section 3). */
enum stream_first {
	STREAM_FIRST_ANY,  /* initiator without peer-to-peer: speaks when it has work */
	STREAM_FIRST_SEND, /* initiator, peer-to-peer: an empty write goes ahead */
	STREAM_FIRST_WAIT, /* responder: silent until the first FPDU has come, which is
			    * told to the user as STREAM_CTL_RTU */
	STREAM_FIRST_YIELD, /* the same without peer-to-peer, but only for a moment: Linux
			     * siw as initiator waits for servers that speak first */
};

/* Abstract unix names under which a listener may be known, the first is tried first. */
enum { STREAM_NAMES = 3, STREAM_NAME_MAX = 107, STREAM_REQUEST_MAX = 512 };
struct stream_names {
	char name[STREAM_NAMES][STREAM_NAME_MAX + 1]; /* "" at the end, if fewer */
};

struct stream_listener;
struct listener_user {
	/* A call, in the loop thread, without locks. 0: the callee has the stream, has
	 * given it a user by stream_adopt(), and will accept, reject or release it.
	 * -EBUSY: the caller shall ask again; else there is no listener. */
	int (*incoming)(void *user, struct stream *s, const uint8_t *req, size_t len);
	/* The answer to stream_unlisten(), in any thread: the last upcall. */
	void (*released)(void *user);
};

struct stream_param {
	union ibv_gid local_gid, remote_gid;
	uint32_t local_qpn; /* 0: not known yet, see stream_name() */
	uint32_t remote_qpn;
	bool crc;	    /* CRC32C agreed */
	bool extended;	    /* both sides are ours: acks, NAK, control */
	bool unreliable;    /* for QPs of type UC: no acks, no NAK */
	enum stream_first first;
};

struct anyrdma_interface {
	uint32_t number; /* ANYRDMA_INTERFACE */
	uint32_t size;	 /* sizeof(struct anyrdma_interface) */

	/* base/loop.h, same contracts */
	int (*loop_fd_add)(struct loop_fd *lf);
	int (*loop_fd_mod)(struct loop_fd *lf, uint32_t events);
	void (*loop_fd_del)(struct loop_fd *lf, void (*done)(struct loop_fd *));
	bool (*loop_timer_set)(struct loop_timer *t, uint64_t when);
	bool (*loop_timer_stop)(struct loop_timer *t);
	bool (*loop_post)(struct loop_work *w);
	bool (*loop_here)(void);

	/* base/fdset.h */
	int (*fd_take)(int fd);
	void (*fd_close)(int fd);

	/* dev/gid.h */
	int (*gid_of_addr)(const struct sockaddr *sa);
	void (*gid_from_addr)(const struct sockaddr *sa, union ibv_gid *gid);
	enum ibv_mtu (*active_mtu)(void);
	/* cb runs in the loop thread after any change of the address table. */
	void (*gid_watch)(void (*cb)(void));

	/* The QP's INIT is librdmacm's: no rendezvous listener for it. */
	void (*qp_made_by_cm)(struct ibv_qp *qp);

	/* A CONNECT_REQUEST from this remote (GID, QPN) was received: a QP that
	 * enters RTR towards it waits for the CM's stream instead of asking the
	 * rendezvous port. Counted; undo with stream_unexpect(). */
	void (*stream_expect)(const union ibv_gid *remote_gid, uint32_t remote_qpn);
	void (*stream_unexpect)(const union ibv_gid *remote_gid, uint32_t remote_qpn);

	/* Takes over fd (non-blocking, already fdset_take()n) after the MPA
	 * exchange. `first` (copied; may be empty) is written before anything
	 * else: the passive side's MPA reply, so that receiving is armed before
	 * the reply leaves. The stream is parked under (local, remote QPN,
	 * remote GID); a QP that is in RTR towards it, or gets there, attaches.
	 * Two holders: the user (until stream_release) and the QP. NULL + errno;
	 * on failure fd stays the caller's. Callable from any thread. */
	struct stream *(*stream_open)(int fd, const struct stream_param *p,
				      const uint8_t *first, size_t len,
				      const struct stream_user *ops, void *user);

	/* Connections between two processes of this host, over the memory they share.
	 *
	 * Listens: fd is bound to the abstract unix name and stays the caller's, who
	 * does not close it before stream_unlisten() has returned. NULL + errno. */
	struct stream_listener *(*stream_listen)(int fd, const char *name,
					     const struct listener_user *ops, void *user);
	void (*stream_unlisten)(struct stream_listener *cl);
	/* Sends a request (len <= STREAM_REQUEST_MAX) to the process that listens under one
	 * of the names. *asked: it is on its way; else the lookup takes a moment. The
	 * end is stream_release(), at any time. NULL + errno. */
	struct stream *(*stream_connect)(const struct stream_names *names, const void *req,
				      size_t len, const struct stream_user *ops, void *user,
				      bool *asked);
	void (*stream_adopt)(struct stream *s, const struct stream_user *ops, void *user);
	/* Caller and callee open the stream: it is parked as by stream_open(). The
	 * answer leaves when the callee's QP, if it is in RTR, has it. 0; -ECONNRESET:
	 * the peer has gone; -errno. It is the user's to release in any case. */
	int (*stream_opened)(struct stream *s, const struct stream_param *p);
	int (*stream_accept)(struct stream *s, const struct stream_param *p,
			     const void *rep, size_t len);
	/* The callee's answer is no; releases the stream. */
	void (*stream_reject)(struct stream *s, const void *rej, size_t len);
	/* Upcalls are on their way. */
	bool (*stream_has_news)(struct stream *s);

	/* Queues a control message (len <= 200); never blocks. -EPIPE when the
	 * stream is broken. */
	int (*stream_control)(struct stream *s, enum stream_ctl type,
			      const uint8_t *data, size_t len);

	/* The user lets go: queued control messages still leave; the stream
	 * closes when the QP has let go too (shutdown, read to EOF at most 1 s,
	 * close). */
	void (*stream_release)(struct stream *s);

	/* Same host process end, immediate: like stream_release, but the
	 * connection is reset even if a QP holds it (its work fails with
	 * RETRY_EXC_ERR). For tests of DEVICE_REMOVAL and for peers that broke
	 * the protocol. */
	void (*stream_abort)(struct stream *s);
};

const struct anyrdma_interface *anyrdma_interface(void);

#endif
