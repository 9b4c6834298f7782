/* SPDX-License-Identifier: BSD-2-Clause */
/* Who progresses a stream: the loop thread, or the application's poller.
 *
 * Each CQ that is the home of streams (the receive CQ of their QPs) has a poll
 * group: the streams, and an epoll set over their descriptors that is itself a
 * member of the loop thread's set. A poll of an empty CQ progresses the streams
 * of its own group and of the groups linked to it (home CQs of QPs that send
 * through it), and takes a *lease*: the group's epoll set leaves the thread's,
 * so that a busy poller is alone (a thread in epoll on the same sockets doubles
 * the latency). The lease lasts while polls come: a timer of 1 to 8 ms, running
 * only while leases exist, takes back groups that were not polled since, which
 * bounds the delay of passive targets. Arming a CQ gives its groups back at
 * once and drains every stream once, so that no wake-up is lost; an armed group
 * is never leased. */
#ifndef ANYRDMA_DEV_POLL_H
#define ANYRDMA_DEV_POLL_H

#include "dev/dev.h"

/* Embedded by a transport in its stream. */
struct poll_source {
	int fd;			 /* watched for input, and output while blocked; -1: a
				  * ring, which a poller looks at each time */
	_Atomic uint32_t events; /* EPOLLIN | EPOLLOUT in the group's set */
	/* Reads and writes what it can without blocking. by_thread: the loop
	 * thread calls (it may wait for the stream lock; a poller only tries it).
	 * Called with the group's lock held. Returns whether anything moved. */
	bool (*progress)(struct poll_source *s, bool by_thread);
	/* Of a ring: progress() would do nothing. A hint, with the group's lock. May be
	 * NULL. */
	bool (*quiet)(struct poll_source *s);
	/* Set by progress(): something is owed that no input will announce; the
	 * next pass calls again. */
	bool again;
	bool bulk; /* set by progress(): in the middle of much data */
	/* Of a ring: pollers will look at it from now on, or no longer do, or a CQ
	 * of the group was armed. Called with the group's lock held. */
	void (*lease)(struct poll_source *s, bool leased);
	/* private to poll.c */
	_Atomic(struct poll_group *) group;
	struct list link, again_link;
};

/* CQ life. */
int poll_cq_init(struct dev_cq *cq);
void poll_cq_fini(struct dev_cq *cq);

/* A QP is created on (send_cq, recv_cq): links the groups; and destroyed. */
int poll_link(struct dev_cq *send_cq, struct dev_cq *recv_cq);
void poll_unlink(struct dev_cq *send_cq, struct dev_cq *recv_cq);

/* Adds a stream to the group of cq, its descriptor not watched until poll_mod(),
 * / removes it: after removal progress() is not running and will not run. Called
 * without the stream's lock. */
int poll_add(struct dev_cq *cq, struct poll_source *s);
void poll_del(struct poll_source *s);
/* Changes s->events (output wanted or not). Any lock may be held; the caller sees
 * to it that nobody else calls it for s. 0 or -errno. */
int poll_mod(struct poll_source *s, uint32_t events);

/* ibv_poll_cq found the CQ empty. */
void poll_run(struct dev_cq *cq);
/* ibv_req_notify_cq: cq_arm(). What the peers have sent by now is in the CQ before, and
 * does not fire; what is owed to them is paid, as the application is about to sleep. */
void poll_arm(struct dev_cq *cq, bool solicited_only);

#endif
