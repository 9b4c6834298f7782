/* SPDX-License-Identifier: BSD-2-Clause */
/* What librdmacm's user backend uses of our libibverbs beyond the public verbs. It is
 * exported as one function, `anyrdma_interface` at node ANYRDMA_1. The number must match
 * exactly, as both libraries are built together. */
#ifndef ANYRDMA_DEV_INTERFACE_H
#define ANYRDMA_DEV_INTERFACE_H

#include "base/loop.h"

#include <infiniband/verbs.h>
#include <sys/socket.h>

#define ANYRDMA_INTERFACE 6

/* Control messages of a stream. Both sides send them, in every state of the QP; they
 * arrive in the order of sending. */
enum stream_ctl {
	STREAM_CTL_RTU = 1,  /* the active side is ready to use */
	STREAM_CTL_DREQ = 2, /* the peer disconnects */
	STREAM_CTL_DREP = 3, /* answer to DREQ */
	STREAM_CTL_REJ = 4,  /* the active side rejects the reply; data: u16 reason,
			      * private data */
};

/* A stream is one end of a connection between two QPs (rc/stream.h). It has up to two
 * holders: the connection manager, called its *user* here, and the QP. Over TCP the user
 * makes it from a connected socket (stream_open()). Over shared memory it exists from the
 * connection request on: stream_connect() makes it on the active side,
 * listener_user.incoming brings it on the passive side, and it is open when the reply has
 * arrived. */
struct stream;

/* Callbacks to the user of a stream. They run in the loop thread, without locks, one at a
 * time and in the order of what they report. None runs after released(). */
struct stream_user {
	/* Only after stream_connect(): the request was sent to a process that listens.
	 * Not called if stream_connect() has returned *sent. */
	void (*delivered)(void *user);
	/* Only after stream_connect(): the reply to the request, as given to
	 * stream_accept() or stream_reject(). If it is an acceptance, the user calls
	 * stream_opened(). */
	void (*reply)(void *user, const uint8_t *data, size_t len);
	/* A control message has arrived. */
	void (*control)(void *user, enum stream_ctl type, const uint8_t *data,
			size_t len);
	/* The peer has closed the connection (err 0), or it is broken (-errno). Once. If
	 * it comes instead of reply():
	 *	-ENOLINK  no listener can be reached by shared memory;
	 *	-ESTALE	  a process that had a listener has none any more;
	 *	-EPIPE	  that process has ended before it read the request;
	 *	-EBUSY	  the listener wants the request to be sent again later.
	 * After -ESTALE and -EPIPE another process may listen by now: the user may call
	 * stream_connect() again. */
	void (*closed)(void *user, int err);
	/* The last one, after stream_release(). */
	void (*released)(void *user);
};

/* Which side sends first on a stream that is not extended (RFC 5044 section 7.1, RFC 6581
 * section 3). */
enum stream_first {
	STREAM_FIRST_ANY,  /* initiator without peer-to-peer mode: sends when it has
			    * work */
	STREAM_FIRST_SEND, /* initiator, peer-to-peer mode: an empty write goes ahead */
	STREAM_FIRST_WAIT, /* responder: sends nothing before the first FPDU has come,
			    * which is reported to the user as STREAM_CTL_RTU */
	STREAM_FIRST_YIELD, /* responder without peer-to-peer mode: the same, but for a
			     * short time only, as Linux siw as initiator waits for a
			     * server that sends first */
};

/* Abstract unix names that a listener may have; they are tried in this order. */
enum { STREAM_NAMES = 3, STREAM_NAME_MAX = 107, STREAM_REQUEST_MAX = 512 };
struct stream_names {
	char name[STREAM_NAMES][STREAM_NAME_MAX + 1]; /* "": no more */
};

struct stream_listener;

struct listener_user {
	/* A connection request has arrived. Runs in the loop thread, without locks. 0:
	 * the stream belongs to the user from now on. The user has called stream_adopt(),
	 * and will call stream_accept(), stream_reject() or stream_release(). -EBUSY: the
	 * peer is asked to send the request again later. Any other error: the peer is
	 * told that there is no listener. With an error the stream is freed by the
	 * caller. */
	int (*incoming)(void *user, struct stream *s, const uint8_t *req, size_t len);
	/* The last one, after stream_unlisten(). Runs in any thread. */
	void (*released)(void *user);
};

struct stream_param {
	union ibv_gid local_gid, remote_gid;
	uint32_t local_qpn; /* 0: no QP gets the stream, only the user has it */
	uint32_t remote_qpn;
	bool crc;	    /* CRC32C was agreed on */
	bool extended;	    /* the peer is one of ours: acks, NAK, control messages */
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
	int (*gid_device)(const struct sockaddr *sa);
	int (*gid_of_addr)(unsigned device, const struct sockaddr *sa);
	void (*gid_from_addr)(const struct sockaddr *sa, union ibv_gid *gid);
	enum ibv_mtu (*active_mtu)(unsigned device);
	/* dev/lid.h: for ANYRDMA_LINK=ib */
	uint16_t (*lid_of_gid)(const union ibv_gid *gid);
	/* As ibv_get_device_guid() says. */
	uint64_t (*device_guid)(unsigned device);
	/* cb runs in the loop thread after any change of the GID table. */
	void (*gid_watch)(void (*cb)(void));
	/* cb runs, in a thread of its own and without locks, when the device has failed:
	 * what was made here is not to be used any more. */
	void (*fatal_watch)(void (*cb)(void));
	/* After that: the device begins anew. 0 or -ENODEV. May wait for a moment. */
	int (*fatal_renew)(void);
	/* A descriptor was found closed: if the device has lost its own, it fails from here
	 * on. Any locks may be held. Returns whether it has them still. */
	bool (*loop_check)(void);

	/* librdmacm is about to move the QP to INIT, and will bring its connection: the
	 * QP needs no rendezvous listener. */
	void (*qp_made_by_cm)(struct ibv_qp *qp);

	/* A connection request from this remote (GID, QPN) has arrived: a QP that enters
	 * RTR towards it waits for the CM's stream and does not connect by itself.
	 * Counted; stream_unexpect() undoes one. */
	void (*stream_expect)(const union ibv_gid *remote_gid, uint32_t remote_qpn);
	void (*stream_unexpect)(const union ibv_gid *remote_gid, uint32_t remote_qpn);

	/* ---- streams over TCP ---- */

	/* Makes a stream of fd: a connected, non-blocking TCP socket, after the MPA
	 * exchange, which fd_take() has returned. It is offered to QPs under (local QPN,
	 * remote QPN, remote GID): the QP that is in RTR towards it, or enters RTR later,
	 * gets it. `first` (copied; len may be 0) is sent before anything else. The
	 * passive side gives its MPA reply there, so that the stream can receive before
	 * the reply is sent. On success fd belongs to the stream. NULL + errno: fd is
	 * still the caller's. Any thread. */
	struct stream *(*stream_open)(int fd, const struct stream_param *p,
				      const uint8_t *first, size_t len,
				      const struct stream_user *ops, void *user);

	/* ---- streams over shared memory, to a process of this host ---- */

	/* Listens for connection requests under an abstract unix name. fd is a socket
	 * that is bound to the name; the caller keeps it, and does not close it before
	 * stream_unlisten() has returned. NULL + errno. */
	struct stream_listener *(*stream_listen)(int fd, const char *name,
						 const struct listener_user *ops,
						 void *user);
	/* No incoming() begins after return; one may still run. released() follows. */
	void (*stream_unlisten)(struct stream_listener *ln);
	/* Active side: sends a request (len <= STREAM_REQUEST_MAX; copied) to the process
	 * that listens under the first of the names that has one. *sent: it was sent at
	 * once, as the process is known from an earlier request; else delivered() or
	 * closed() reports what has become of it. NULL + errno. Never blocks. */
	struct stream *(*stream_connect)(const struct stream_names *names,
					 const void *req, size_t len,
					 const struct stream_user *ops, void *user,
					 bool *sent);
	/* Passive side, in incoming(): sets the user of the stream. */
	void (*stream_adopt)(struct stream *s, const struct stream_user *ops, void *user);
	/* Active side, after an acceptance: the stream is open, and is offered to QPs as
	 * by stream_open(). 0 or -errno; -ECONNRESET: the peer has closed. In any case
	 * the user still has to release the stream. */
	int (*stream_opened)(struct stream *s, const struct stream_param *p);
	/* Passive side: the same, and sends the reply. The stream is offered to QPs
	 * before the reply leaves: a QP that is in RTR has it when the peer's first frame
	 * arrives. */
	int (*stream_accept)(struct stream *s, const struct stream_param *p,
			     const void *rep, size_t len);
	/* Passive side: sends a reject, and releases the stream. */
	void (*stream_reject)(struct stream *s, const void *rej, size_t len);

	/* ---- all streams ---- */

	/* True if callbacks are queued in the loop thread. */
	bool (*stream_has_news)(struct stream *s);

	/* Queues a control message (len <= 200; copied). Never blocks. -EPIPE: the stream
	 * is broken. -EINVAL: it is not extended. */
	int (*stream_control)(struct stream *s, enum stream_ctl type,
			      const uint8_t *data, size_t len);

	/* The user gives the stream up; released() is the last callback. Queued control
	 * messages are still sent. A stream that is not open yet is cancelled. Else it
	 * closes when the QP has given it up, too: shutdown, read to EOF for at most 1 s,
	 * close. */
	void (*stream_release)(struct stream *s);

	/* Like stream_release(), but resets the connection at once, even if a QP has it:
	 * the QP's work fails with RETRY_EXC_ERR. For peers that break the protocol, and
	 * for tests of DEVICE_REMOVAL. */
	void (*stream_abort)(struct stream *s);
};

const struct anyrdma_interface *anyrdma_interface(void);

#endif
