/* SPDX-License-Identifier: BSD-2-Clause */
/* A link: what two processes of one host share. One ring each way carries the
 * messages of all streams between them, so a connection costs no descriptor and no
 * mapping, and looking for news costs the same for one stream or ten thousand.
 *
 * Files: ring.c the ring; rec.c its records; link.c life, slots, sending; link_rx.c receiving,
 * who is awake; link_cq.c the CQs that it feeds; setup.c how two processes get their link
 * (unix sockets: greeting.c what is sent there, listener.c who listens, fdpass.c descriptors
 * that come from the peer); grant.c who has access to whose memory, keys.c the peer's table of
 * keys, memid.c that the memory is the right program's. shm.h lists the files of a stream.
 *
 * Who receives. A poller that leases the link (dev/poll.h) looks at the ring; the
 * ring's `doze` is 0 then and the peer makes no system call. Else doze is 1: the
 * peer's next record is followed by a write to our eventfd, and the loop thread
 * receives. An armed CQ keeps the thread in charge, whoever polls beside it.
 *
 * Locks (outer first): match.lock, a poll group's lock > rx_lock > stream lock >
 * qp->lock > tx_lock. rx_lock is tried by pollers, waited for by the thread. */
#ifndef ANYRDMA_SHM_LINK_H
#define ANYRDMA_SHM_LINK_H

#include "base/list.h"
#include "base/lock.h"
#include "base/loop.h"
#include "dev/poll.h"
#include "shm/direct.h"
#include "shm/grant.h"
#include "shm/rec.h"
#include "shm/ring.h"
#include "shm/shm.h"

struct stream;

enum {
	LINK_SLOTS_MAX = 1 << 20, /* streams of one link, and so of a hostile peer */
	LINK_TURN = 256,	  /* records received before others get a turn, */
	LINK_TURN_BYTES = 256 * 1024, /* or bytes */
	LINK_BULK = 8 * 1024,	  /* bytes of a record that is part of much data */
	LINK_REQUESTS_MAX = 256,  /* OPENs that wait for the loop thread */
	LINK_CM_MAX = 1024,	  /* calls that do */
	LINK_CANCELS_MAX = 1 << 16, /* calls and their ends: more is an attack */
	LINK_HALF_MAX = 4096,	  /* streams that the peer has not begun */
	LINK_LATER_BYTES = 8 * 1024 * 1024, /* messages that wait for room */
	LINK_CQ_BUCKETS = 256,
	LINK_MEMBERS_SEEN = 16,	  /* with more CQs the thread stays in charge */
};

/* The mapped segment. ring[0] is the connector's to send. */
struct link_segment {
	struct ring_shared ring[2];
	struct direct_shared direct[2]; /* [0]: written by the connector */
};

struct link_id {
	uint64_t word[2]; /* drawn at random, once in a process */
};

/* A CQ of whose QPs some have streams on the link: the link among the sources of its
 * poll group. */
struct link_cq {
	struct poll_source src;
	struct link *l;
	struct dev_cq *cq;
	unsigned streams;
	bool leased;
	struct list node; /* link.members */
	struct list by_cq; /* link.by_cq[] */
};

struct link {
	atomic_int refs;
	struct link_id peer;
	struct list all; /* meet.c */
	pid_t pid;	 /* the peer's when it connected or listened; 0: not known here */

	struct lock rx_lock; /* guards these: */
	struct ring_rx rx;
	uint32_t eaten;	      /* lines since the last look for one who waits for room */
	struct stream **slot; /* NULL: free; LINK_TOMB: ours is closed, the peer's not */
	uint32_t *vacant;     /* stack of free slots */
	uint32_t slots, nvacant, halves;
	struct stream *starting; /* READY has come: the thread gives it to its QP before
				  * anything else is received */
	struct list requests; /* struct link_request, for the loop thread */
	struct list calls;    /* call.c: the same */
	unsigned nrequests, ncm;
	uint32_t pulled;      /* bytes fetched for the record being received: pull.c */
	struct list owing;    /* streams to look at again: shm_part.owing */
	struct list members;
	struct list by_cq[LINK_CQ_BUCKETS]; /* the same */
	unsigned leases;      /* members that lease */
	bool bad;	      /* the peer broke the rules: the thread ends it */
	bool bulk;	      /* the last pass moved much data */
	bool dead;	      /* its descriptors are others' (written under tx_lock, too) */
	_Atomic bool owes;    /* owing is not empty */
	/* Where the next record will show, for those who look without the lock: a
	 * hint that the holder of rx_lock renews, right whenever nobody holds it. */
	_Atomic(_Atomic uint32_t *) next;

	struct lock tx_lock; /* guards these: */
	struct ring_tx tx;
	struct list blocked; /* streams that wait for room: shm_part.blocked */
	struct list going;   /* ... whose turn it may be, in link_unblock() alone */
	struct list later;   /* struct link_later: messages of the link that wait too */
	size_t later_bytes;
	bool flooded;	     /* too many of them: the thread ends the link */
	_Atomic bool waits;  /* blocked or later is not empty */

	struct loop_work work; /* requests to handle */
	int peer_wake;	     /* written to when the peer dozes */
	struct loop_fd wake; /* the peer's means to wake us: greeting.h */
	struct loop_work self_work; /* ours */
	struct loop_fd sock; /* its end tells of the peer's end; fd -1 within a process */
	bool wake_in, sock_in; /* they are in the loop */
	bool retired; /* rx_lock: bad, as it makes room for another */
	struct link_segment *seg;
	struct direct *direct; /* or NULL; fixed before link_start() */
	struct grant grant;    /* the loop thread's */
};

#define LINK_TOMB ((struct stream *)(uintptr_t)1)

/* The descriptors of a link. */
struct link_fds {
	int wake, peer_wake; /* eventfds: the peer writes to one, we write to the other */
	int sock;	     /* to the peer; -1: both ends of the link are in this process */
};

/* Makes the link; descriptors are taken over on success. `side` 0: the connector. */
int link_new(struct link_segment *seg, int side, const struct link_id *peer,
	     const struct link_fds *fds, struct link **out);
/* Starts to receive. */
int link_start(struct link *l);
void link_get(struct link *l);
/* Of a link that is known by a list only: false if it is about to be freed. */
bool link_try_get(struct link *l);
void link_put(struct link *l);
/* The peer has ended or talks nonsense: what it had sent is received, then all its
 * streams break. Loop thread. */
void link_break(struct link *l, const char *why);
/* Ends a link that has no streams: nothing more is received, the thread breaks it. False:
 * it is in use, or ends already. */
bool link_retire(struct link *l);

/* A slot for s, which may be `half`. -ENOMEM, -EMFILE (too many), -EPIPE (dead). */
int link_slot_take(struct link *l, struct stream *s);
/* The slot's stream is gone; tomb: the peer has not closed yet. */
void link_slot_drop(struct link *l, uint32_t slot, bool tomb);

/* Queues a message of the link; never fails for want of room. -EPIPE, -ENOMEM. */
int link_send(struct link *l, const struct rec_link *m);
/* The same for a record of any kind that begins with the ring's word. */
int link_send_record(struct link *l, const void *rec, uint32_t bytes, enum rec_kind kind);
/* Everything sent so far is in the ring before *end; false: some waits for room. */
bool link_sent(struct link *l, uint32_t *end);
/* The peer has taken what is before this position; its own word. */
static inline bool link_consumed(const struct link *l, uint32_t end)
{
	return (int32_t)(atomic_load(&l->tx.sh->head) - end) >= 0;
}
/* Some have got their room, or do not wait any more: sets `waits`. With tx_lock. */
void link_still_waits(struct link *l);
/* There is work for the loop thread: requests or calls. rx_lock is held. */
void link_post(struct link *l);
/* Wakes the peer if it dozes; after publishing and letting go of tx_lock. */
void link_wake(struct link *l);

/* member.c: CQ members, counted by streams. */
int link_cq_join(struct link *l, struct dev_cq *cq, struct link_cq **out);
void link_cq_leave(struct link_cq *m);

/* link_rx.c: nothing has come and nothing is owed: a hint without a lock. */
bool link_looks_idle(struct link *l);
/* Receives; true if anything came. */
bool link_run(struct link *l, bool by_thread);

#endif
