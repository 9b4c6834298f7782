/* SPDX-License-Identifier: BSD-2-Clause */
/* Which thread receives and sends for a QP: the loop thread, or an application's thread
 * that polls a CQ.
 *
 * A transport has a poll_source for each descriptor, or ring of shared memory, from which
 * it receives. Sources are members of poll groups. A CQ has one poll group, with the
 * sources of the QPs that receive through the CQ. A group has an epoll set over the
 * descriptors of its sources; the set itself is a member of the loop thread's epoll set.
 *
 * A poll of an empty CQ runs the sources of the CQ's group, and those of the groups
 * linked to it: groups of the receive CQs of QPs that send through this CQ. After some
 * polls in a row it takes a *lease* on each group: the group's epoll set leaves the loop
 * thread's, so that the poller is alone (a thread that sleeps in epoll on the same
 * sockets doubles the latency). The lease lasts while the CQ is polled: a timer, which runs
 * only while there are leases, looks every 1 to 8 ms, and ends those of groups that were
 * not polled since it last looked. This bounds the delay of QPs whose application does not
 * poll. Every 2 ms it has the thread send the acknowledgements that a poller has left to
 * its next poll, so that nobody waits longer for one that polls rarely. Arming
 * a CQ ends the leases of its groups at once and runs every source once, so that no event
 * is lost; a group with an armed CQ is never leased. */
#ifndef ANYRDMA_DEV_POLL_H
#define ANYRDMA_DEV_POLL_H

#include "dev/dev.h"

/* Part of an object of a transport. The members above the private ones are set by the
 * transport before poll_add(). All functions are called with the group's lock held. */
struct poll_source {
	int fd;			 /* watched for input, and output while blocked; -1: a
				  * ring, which is run by each poll */
	_Atomic uint32_t events; /* EPOLLIN | EPOLLOUT in the group's set */
	/* Receives and sends what it can without blocking. by_thread: it may wait for
	 * locks of the transport, as in the loop thread; else it may only try them.
	 * Returns whether it received or sent anything. */
	bool (*progress)(struct poll_source *s, bool by_thread);
	/* Of a ring: true if progress() would do nothing. A hint. May be NULL. */
	bool (*idle)(struct poll_source *s);
	/* Set by progress(): there is something left to do (an acknowledgement to send)
	 * that no input will announce: progress() is to be called again. */
	bool again;
	bool bulk; /* set by progress(): in the middle of much data */
	/* Of a ring. leased: pollers run it from now on, and the peer need not wake
	 * anybody; not leased: they no longer do, or a CQ of the group was armed. */
	void (*lease)(struct poll_source *s, bool leased);
	/* private to poll.c */
	_Atomic(struct poll_group *) group;
	struct list link, again_link;
};

/* CQ life. */
int poll_cq_init(struct dev_cq *cq);
void poll_cq_fini(struct dev_cq *cq);

/* A QP was created on (send_cq, recv_cq), or is destroyed: links the group of the first
 * to that of the second, or undoes it. Counted. */
int poll_link(struct dev_cq *send_cq, struct dev_cq *recv_cq);
void poll_unlink(struct dev_cq *send_cq, struct dev_cq *recv_cq);

/* Adds a source to the group of cq. Its descriptor is not watched until poll_mod().
 * Called without locks of the transport. 0 or -errno. */
int poll_add(struct dev_cq *cq, struct poll_source *s);
/* Removes it: after return none of its functions runs, or will run. Called without locks
 * of the transport. */
void poll_del(struct poll_source *s);
/* Changes s->events. Any lock may be held. The caller makes sure that no other thread
 * calls it for s. 0 or -errno. */
int poll_mod(struct poll_source *s, uint32_t events);

/* ibv_poll_cq found the CQ empty. */
void poll_run(struct dev_cq *cq);
/* ibv_req_notify_cq: calls cq_arm(). What peers have sent by now is received before. What
 * is to be sent to them is sent, as the application is about to sleep. */
void poll_arm(struct dev_cq *cq, bool solicited_only);

#endif
