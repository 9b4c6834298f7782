/* SPDX-License-Identifier: BSD-2-Clause */
/* What only the files of a link use: link.c, link_rx.c, link_cq.c. */
#ifndef ANYRDMA_SHM_LINK_RX_H
#define ANYRDMA_SHM_LINK_RX_H

#include "shm/link.h"

/* A LINK_OPEN, in link.opens. */
struct link_open_msg {
	struct list node;
	struct rec_link m;
};

/* A kind of record (enum rec_kind): a row of the table in link_rx.c. */
struct link_kind {
	const char *name;
	uint32_t bytes_min; /* shorter records break the link */
	/* Receives one record. rx_lock is held; it does not block, and may take the locks
	 * that come after rx_lock. It reads the record as ring.h says. 0: the record is
	 * consumed. -EAGAIN, if not by_thread: it stays in the ring, and comes again in a
	 * later pass. -EPROTO: the link is to be broken. */
	int (*receive)(struct link *l, const volatile void *rec, uint32_t bytes,
		       bool by_thread);
};

/* The slot's stream, LINK_SLOT_CLOSING or NULL. rx_lock is held. */
static inline struct stream *link_slot_find(struct link *l, uint32_t slot)
{
	return slot < l->nslots ? l->slot[slot] : NULL;
}

/* What link_slot_find() gave is a stream. */
static inline bool link_is_stream(const struct stream *s)
{
	return s && s != LINK_SLOT_CLOSING;
}

/* link.c: LINK_CLOSE has come for a slot that is LINK_SLOT_CLOSING: the slot is free.
 * rx_lock is held. */
void link_slot_closed(struct link *l, uint32_t slot);
/* link.c: the ring may have room again: sends what is queued and runs blocked streams.
 * rx_lock is held. */
void link_unblock(struct link *l);

/* ---- link_rx.c ---- */

/* Run by the loop thread: the eventfd was written to, link.run_work, link.msgs_work. */
void link_wake_ready(struct loop_fd *lf, uint32_t revents);
void link_work_run(struct loop_work *w);
void link_msgs_run(struct loop_work *w);
/* link_run() in the loop thread. Only this one starts streams: match.lock comes before
 * the locks that others hold here. */
bool link_run_thread(struct link *l);
/* Has the loop thread run the link. */
void link_wake_thread(struct link *l);
/* The stream is not half_open any more. False: it was not. rx_lock is held. */
bool link_half_open_end(struct link *l, struct stream *s);
/* Sets the ring's consumer_sleeps as link.h says. rx_lock is held. */
void link_update_sleep(struct link *l);

#endif
