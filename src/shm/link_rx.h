/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of a link (link.c, link_rx.c, member.c) share. */
#ifndef ANYRDMA_SHM_LINK_RX_H
#define ANYRDMA_SHM_LINK_RX_H

#include "shm/link.h"

struct link_request {
	struct list node;
	struct rec_link m;
};

/* The slot's stream, LINK_TOMB or NULL. rx_lock is held. */
static inline struct stream *link_slot_find(struct link *l, uint32_t slot)
{
	return slot < l->slots ? l->slot[slot] : NULL;
}

/* link.c: there may be room again: those who wait try. rx_lock is held. */
void link_unblock(struct link *l);

/* link_rx.c */
void link_wake_ready(struct loop_fd *lf, uint32_t revents);
void link_self_run(struct loop_work *w);
void link_requests_run(struct loop_work *w);
/* link_run() of the loop thread, which alone may start streams: match.lock is outside
 * of the locks that others hold here. */
bool link_run_thread(struct link *l);
/* The loop thread is to look. */
void link_wake_self(struct link *l);
/* The peer has decided about a stream that was half open; false: it was not. rx_lock
 * is held. */
bool link_half_end(struct link *l, struct stream *s);
/* Sets doze as link.h says. rx_lock is held. */
void link_reconsider(struct link *l);

#endif
