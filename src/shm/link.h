/* SPDX-License-Identifier: BSD-2-Clause */
/* A link: the memory that two processes of one host share. It has one ring for each
 * direction, which carries the records of all streams between the two processes. So a
 * connection costs no descriptor and no mapping, and polling costs the same for one
 * stream and for ten thousand.
 *
 * Files: ring.c the ring; rec.c its records; link.c life, slots, sending; link_rx.c
 * receiving, and when the loop thread is woken; link_cq.c the CQs whose pollers receive;
 * setup.c how two processes make their link over a unix socket (greeting.c the messages,
 * listener.c the listening sockets, fdpass.c descriptors that come from another process);
 * grant.c which process gets access to the memory of which, keys.c the peer's table of
 * keys, memid.c how memory is told from that of another program. shm.h lists the files of
 * a stream, dgram.h those of datagrams.
 *
 * Who receives. A poller that leases the link (dev/poll.h) polls the ring. Then the
 * ring's consumer_sleeps is 0, and the peer makes no system call. Else consumer_sleeps is
 * 1: after its next record the peer writes to this process's eventfd, and the loop thread
 * receives. While a CQ is armed the loop thread is responsible, even if others poll.
 *
 * Locks, outer first: match.lock and the lock of a poll group; rx_lock; the stream's
 * lock; qp->lock; tx_lock. Pollers only try rx_lock, the loop thread waits for it. */
#ifndef ANYRDMA_SHM_LINK_H
#define ANYRDMA_SHM_LINK_H

#include "base/list.h"
#include "base/lock.h"
#include "base/loop.h"
#include "dev/poll.h"
#include "shm/dgram.h"
#include "shm/direct.h"
#include "shm/grant.h"
#include "shm/rec.h"
#include "shm/ring.h"
#include "shm/shm.h"

struct stream;

enum {
	LINK_SLOTS_MAX = 1 << 20,     /* streams of one link */
	LINK_TURN = 256,	      /* records received before others get a turn, */
	LINK_TURN_BYTES = 256 * 1024, /* or bytes */
	LINK_BULK = 8 * 1024,	      /* a record of so many bytes is bulk data */
	/* Bounds on what the peer can make this process keep. */
	LINK_OPENS_MAX = 256,	    /* LINK_OPENs that wait for the loop thread */
	LINK_CM_REQS_MAX = 1024,    /* CM_REQs that wait for it; more are refused */
	LINK_CM_MSGS_MAX = 1 << 16, /* CM messages that do; more break the link */
	/* CM messages handled before others get a turn. The thread may receive a turn or
	 * two of records meanwhile, and must not fall behind. */
	LINK_CM_TURN = 4 * LINK_TURN,
	LINK_REQ_BUCKETS = 256,
	LINK_HALF_OPEN_MAX = 4096,  /* streams without LINK_READY */
	LINK_QUEUED_BYTES = 8 * 1024 * 1024, /* messages of the link that wait for room */
	LINK_CQ_BUCKETS = 256,
};

/* The mapped segment. The connector of the link sends by ring[0], the listener by
 * ring[1]. */
struct link_segment {
	struct ring_shared ring[2];
	struct direct_shared direct[2]; /* [0]: the connector as initiator */
};
_Static_assert(offsetof(struct link_segment, ring[0]) == 0 &&
	       offsetof(struct link_segment, ring[1]) == 262336 &&
	       offsetof(struct link_segment, direct[0]) == 524672 &&
	       offsetof(struct link_segment, direct[1]) == 526848 &&
	       sizeof(struct link_segment) == 529024, "doc/wire.md");

/* Identifies a process: drawn at random once in its life. */
struct link_id {
	uint64_t word[2];
};

/* A CQ with streams or datagrams on the link. The link is a source of the CQ's poll group. */
struct link_cq {
	struct poll_source src;
	struct link *l;
	struct dev_cq *cq;
	unsigned streams;
	bool leased;
	struct list hash;  /* link.cq_hash[] */
	struct list armed; /* link.armed */
};

struct link {
	atomic_int refs;
	struct link_id peer_id;
	struct list node; /* setups.links */
	pid_t peer_pid;	  /* when it connected or listened; 0: it has none here */

	struct lock rx_lock; /* guards these: */
	struct ring_rx rx;
	uint32_t consumed_lines; /* since wake_producer() last checked the peer */
	struct stream **slot;	 /* NULL: free; LINK_SLOT_CLOSING: closed here, and the
				  * peer's LINK_CLOSE has not come */
	uint32_t *free_slots;	 /* stack */
	uint32_t nslots, nfree;
	uint32_t nhalf_open;	 /* streams that are half_open */
	struct stream *starting; /* LINK_READY has come: the loop thread starts the stream
				  * before the next record is received */
	struct list opens;	 /* struct link_open_msg, for the loop thread */
	struct list cm_msgs;	 /* struct cm_msg (cm.c), for the loop thread */
	unsigned nopens, ncm_msgs;
	uint32_t pulled;	 /* bytes that the record being received names: pull.c */
	struct list after_rx;	 /* streams whose shm_after_rx() is due */
	struct list cq_hash[LINK_CQ_BUCKETS]; /* struct link_cq by CQ */
	struct list armed;	 /* struct link_cq: all whose CQ is armed, and perhaps some
				  * whose CQ has fired since */
	unsigned leases;	 /* struct link_cq that are leased */
	bool bad;		 /* the loop thread is to break the link */
	bool retired;		 /* bad is set to make room for another link */
	bool bulk;		 /* the last pass received bulk data */
	bool stopped;		 /* the next record waits for a copy to end, which wakes the
				  * loop thread */
	bool dead;		 /* the link is broken; also written under tx_lock */
	_Atomic bool after_rx_due; /* after_rx is not empty */
	/* Address of the next record's word, for pollers without the lock: a hint that
	 * the holder of rx_lock updates. It is right while nobody holds rx_lock. */
	_Atomic(_Atomic uint32_t *) next_word;

	struct lock tx_lock; /* guards these: */
	struct ring_tx tx;
	struct list blocked;	 /* streams that wait for room: shm_stream.blocked */
	struct list retrying;	 /* the same, while link_unblock() runs them in turn */
	struct list queued;	 /* struct link_queued: messages that wait for room */
	size_t queued_bytes;
	bool queue_overflow;	 /* too many of them: the loop thread breaks the link */
	_Atomic bool tx_waiting; /* blocked, queued or dgrams.waiting is not empty */

	struct link_dgrams dgrams; /* says of each field which lock guards it */

	struct loop_work msgs_work; /* handles opens, cm_msgs and dgrams.asks */
	struct loop_work run_work;  /* runs the link: link_wake_thread() */
	int peer_wake;		    /* the peer's eventfd (greeting.h) */
	struct loop_fd wake;	    /* this process's eventfd, which the peer writes to */
	/* Socket to the peer; it is readable when the peer ends. fd -1: both ends of the
	 * link are in this process. */
	struct loop_fd sock;
	bool wake_added, sock_added; /* to the loop */
	struct link_segment *seg;
	/* Requests of the CM that have come, by the peer's slot: shm_stream.request.
	 * Loop thread only. */
	struct list requests[LINK_REQ_BUCKETS];
	struct direct *direct; /* or NULL; fixed before link_start() */
	struct grant grant;    /* loop thread only */
};

#define LINK_SLOT_CLOSING ((struct stream *)(uintptr_t)1)

/* The descriptors of a link. */
struct link_fds {
	int wake, peer_wake; /* eventfds of this process and of the peer */
	int sock;	     /* to the peer; -1: both ends are in this process */
};

/* Makes a link; on success the link owns the descriptors. side 0: the connector. */
int link_new(struct link_segment *seg, int side, const struct link_id *peer,
	     const struct link_fds *fds, struct link **out);
/* Starts to receive. */
int link_start(struct link *l);
void link_get(struct link *l);
/* For a pointer from a list that holds no reference. False: the link is being freed. */
bool link_try_get(struct link *l);
void link_put(struct link *l);
/* The peer has ended or broken the rules. Receives what it has sent, then breaks all
 * streams of the link. Loop thread. */
void link_break(struct link *l, const char *why);
/* Ends a link that has no streams: nothing more is received, the loop thread breaks it.
 * False: the link is in use, or ends already. */
bool link_retire(struct link *l);

/* Gives s a slot. -ENOMEM, -EMFILE (too many), -EPIPE (the link is dead). */
int link_slot_alloc(struct link *l, struct stream *s);
/* Takes the slot from its stream. The slot is free at once; or, if the peer has not
 * closed (peer_open), when LINK_CLOSE comes. */
void link_slot_free(struct link *l, uint32_t slot, bool peer_open);

/* Sends a message of the link, or queues it if the ring has no room. -EPIPE, -ENOMEM. */
int link_send(struct link *l, const struct rec_link *m);
/* The same for a record of any kind that begins with the ring's word. */
int link_send_record(struct link *l, const void *rec, uint32_t bytes, enum rec_kind kind);
/* True: everything sent so far is in the ring, before position *end. False: something
 * waits for room. */
bool link_tx_position(struct link *l, uint32_t *end);
/* The peer says that it has consumed the ring up to this position. */
static inline bool link_consumed(const struct link *l, uint32_t end)
{
	return (int32_t)(atomic_load(&l->tx.sh->head) - end) >= 0;
}
/* Sets tx_waiting by the lists. tx_lock is held. */
void link_tx_waiting_update(struct link *l);
/* The loop thread shall handle opens, cm_msgs and dgrams.asks. rx_lock is held. */
void link_post_msgs(struct link *l);
/* Wakes the peer's loop thread if the peer sleeps. To be called after a record was
 * published and tx_lock was released. */
void link_wake_peer(struct link *l);

/* ---- link_cq.c ---- */

/* Pollers of the CQ may receive for one more stream, one less; or for datagrams of a port.
 * match.lock is held. */
int link_cq_join(struct link *l, struct dev_cq *cq, struct link_cq **out);
void link_cq_leave(struct link_cq *m);

/* ---- link_rx.c ---- */

/* No record has come and nothing is due: a hint, without a lock. */
bool link_seems_idle(struct link *l);
/* One pass: receives up to a turn of records. True: something came. */
bool link_run(struct link *l, bool by_thread);

#endif
