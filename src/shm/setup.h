/* SPDX-License-Identifier: BSD-2-Clause */
/* How two processes of a host get their link. */
#ifndef ANYRDMA_SHM_MEET_H
#define ANYRDMA_SHM_MEET_H

#include "base/lock.h"
#include "shm/cm.h"
#include "shm/link.h"

#include <string.h>
#include <sys/un.h>

/* ---- for others ---- */

/* One that wants a link. done() runs in the loop thread, without locks, with a counted link,
 * or NULL and -errno. */
struct link_wait {
	void (*done)(struct link_wait *w, struct link *l, int err);
	/* private to setup.c */
	struct list node;
	struct loop_work work;
	struct link *link;
	int err;
};
/* A link to the process that has this rendezvous port; or that listens under this abstract
 * unix name. -ECONNREFUSED: nobody does. */
void link_find_port(uint16_t port, struct link_wait *w);
void link_find_name(const char *name, struct link_wait *w);
/* listener.c: others find this process under the port, until it ends. 0 or -errno. */
int link_listen_port(uint16_t port);
/* The same by abstract unix name, of a socket that its owner has bound and keeps. */
int link_listen_fd(int fd, const char *name);
void link_unlisten(const char *name);
/* The link is dead: nobody gets it any more. */
void link_forget(struct link *l);

/* ---- shared by setup.c and listener.c: the table of names, setups and links ---- */

struct link_setup;
struct link_listener;

enum {
	/* Two processes that look for each other at once make two. More, and guests that
	 * do not greet, are an attack of a process of our own user. */
	LINKS_PER_PROCESS = 8,	       /* with one process, */
	LINKS_UNKNOWN_PID = 1024, /* with those whose pid is not known here, */
	LINKS_ALL = 2048, /* and with all: one without streams goes, if there is one */
	SETUPS_PER_PROCESS = 256,   /* of one process, and */
	SETUPS_ALL = 1024, /* of all, without a whole greeting: the oldest go */
};

struct link_name {
	char text[STREAM_NAME_MAX + 1];
};

struct setups {
	struct lock lock; /* guards all; outside of a link's locks */
	struct list listeners, pending, links, known;
	unsigned incoming, nlinks;
	unsigned links_max; /* LINKS_ALL, but for tests */
	struct link_id id;
	struct link *self[2]; /* the end that asks, the end that answers */
	bool ready;
};

extern struct setups setups;

/* The first call of all draws the process's id. */
void setups_lock(void) ACQUIRE(setups.lock);
void setups_unlock(void) RELEASE(setups.lock);

void link_name_of_port(uint16_t port, struct link_name *name);
socklen_t link_name_address(const struct link_name *name, struct sockaddr_un *un);

static inline bool link_name_equal(const struct link_name *a, const struct link_name *b)
{
	return !strcmp(a->text, b->text);
}

/* setup.c: fd is a connection of ours (caller) or to us. NULL: no memory, and the
 * descriptor stays the caller's. meets.lock is held. */
struct link_setup *setup_new(int fd, bool outgoing, const struct link_name *name);
/* listener.c: ours under this name, or NULL. meets.lock is held. */
struct link_listener *link_listener_find(const struct link_name *name);

#endif
