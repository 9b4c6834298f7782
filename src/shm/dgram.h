/* SPDX-License-Identifier: BSD-2-Clause */
/* Links as carriers of datagrams (ud/carrier.h): what the link and these files know of
 * each other.
 *
 * dgram.c sends and receives; dgram_rec.c has the record; dgram_route.c finds the link to
 * the process that has a QP number, and asks there; dgram_ask.c answers; dgram_cq.c has
 * pollers of UD QPs receive from the links that bring datagrams.
 *
 * A *route* is a pair of rendezvous ports, ours and the peer's: the upper bits of QP
 * numbers. Before the first datagram of a route the sender asks (LINK_DGRAMS), and the
 * receiver finds out whether the sender's port is that of the process at the other end of
 * the link: from then on it believes the source QP numbers of that port, and no others.
 *
 * Room. Datagrams take the room that they need, unless streams, messages of the link or
 * other datagrams wait for room: then they wait, too. When there is room again, streams
 * and datagrams get it by turns. A datagram never waits long for a process that takes
 * nothing out of the ring, as it is stopped: DGRAM_STALL_MS after the first has begun to
 * wait all are lost, and so is what follows, until the ring moves again. Hardware drops
 * at the receiver what finds no receive, and so at once: but nobody's ring is full there
 * because a thread was off the CPU for some milliseconds. */
#ifndef ANYRDMA_SHM_DGRAM_H
#define ANYRDMA_SHM_DGRAM_H

#include "base/list.h"
#include "base/loop.h"
#include "ud/carrier.h"

struct link;
struct rec_link;

enum {
	DGRAM_STALL_MS = 200,
	DGRAM_ASKS_MAX = 256, /* questions of one peer that wait for an answer */
	DGRAM_PORTS = 1 << 16,
};

/* Part of a link. */
struct link_dgrams {
	/* link.tx_lock guards these: */
	struct list waiting; /* struct dgram_peer: found no room */
	bool streams_next;   /* datagrams had the last room that became free */
	bool stalled;	     /* the peer has not taken anything since, */
	uint32_t head;	     /* ... when the ring's head was here, datagrams waited */
	uint64_t lost;	     /* while stalled */
	struct loop_timer timer; /* runs while `waiting` is not empty */

	/* link.rx_lock guards these: */
	uint8_t *sources;	/* bit of a port: it is the peer's; NULL: none is */
	union ibv_gid sgid, dgid; /* of the last datagram: addresses of this host */
	uint64_t refused;	/* datagrams of others' ports or addresses */
	bool rest;		/* what comes next is for the next poll: ud_deliver() */
	struct list asks;	/* struct dgram_ask, for the loop thread */
	unsigned nasks;

	bool asking; /* an answer is being found out; loop thread only */
};

extern const struct ud_carrier shm_ud_carrier;

/* ---- dgram.c, for the link ---- */

void dgram_init(struct link *l);
void dgram_fini(struct link *l);
/* link_kind.receive */
int dgram_receive(struct link *l, const volatile void *rec, uint32_t bytes,
		  bool by_thread);
/* There may be room: runs senders that wait. No lock. */
void dgram_unblock(struct link *l);
/* The link is dead. Loop thread, no lock. */
void dgram_link_gone(struct link *l);

/* ---- dgram_route.c ---- */

/* The link by which datagrams go from our port to the peer's, counted; or NULL: there is
 * none, or not yet. Any lock but those of links may be held. */
struct link *dgram_route_find(uint16_t port, uint16_t peer_port);
/* LINK_DGRAMS_ANSWER has come. rx_lock is held. */
void dgram_answered(struct link *l, const struct rec_link *m);
/* The process at the other end has this port. Loop thread. */
void dgram_route_known(uint16_t peer_port);
void dgram_routes_link_gone(struct link *l);

/* ---- dgram_ask.c ---- */

/* LINK_DGRAMS has come. rx_lock is held. */
void dgram_ask_queue(struct link *l, const struct rec_link *m);
/* Handles what was queued. Loop thread, no lock. */
void dgram_asks_run(struct link *l);

/* ---- dgram_cq.c ---- */

/* A QP was attached, or is detached: its CQ's pollers receive, or do not, from the links
 * of its port. No lock. */
int dgram_cq_attach(uint16_t port, struct dev_cq *cq);
void dgram_cq_detach(uint16_t port, struct dev_cq *cq);
/* Datagrams of QPs of this port of ours use the link. Loop thread, no lock. */
void dgram_cq_join(struct link *l, uint16_t port);
void dgram_cq_link_gone(struct link *l);

#endif
