/* SPDX-License-Identifier: BSD-2-Clause */
/* What meet.c and host.c share: the table of names, guests and links. */
#ifndef ANYRDMA_SHM_MEET_H
#define ANYRDMA_SHM_MEET_H

#include "base/lock.h"
#include "shm/call.h"
#include "shm/link.h"
#include "shm/shm.h"

#include <string.h>
#include <sys/un.h>

struct guest;
struct host;

enum {
	/* Two processes that look for each other at once make two. More, and guests that
	 * do not greet, are an attack of a process of our own user. */
	MEET_LINKS = 8,	       /* with one process, */
	MEET_LINKS_OTHER = 1024, /* with those whose pid is not known here, */
	MEET_LINKS_ALL = 2048, /* and with all: one without streams goes, if there is one */
	MEET_VISITORS = 256,   /* of one process, and */
	MEET_VISITORS_ALL = 1024, /* of all, without a whole greeting: the oldest go */
};

struct meet_name {
	char text[CALL_NAME_MAX + 1];
};

struct meets {
	struct lock lock; /* guards all; outside of a link's locks */
	struct list hosts, guests, links, known;
	unsigned visitors, nlinks;
	unsigned links_max; /* MEET_LINKS_ALL, but for tests */
	struct link_id id;
	struct link *self[2]; /* the end that asks, the end that answers */
	bool ready;
};

extern struct meets meets;

/* The first call of all draws the process's id. */
void meets_lock(void) ACQUIRE(meets.lock);
void meets_unlock(void) RELEASE(meets.lock);

void meet_name_of(uint16_t port, struct meet_name *name);
socklen_t meet_address(const struct meet_name *name, struct sockaddr_un *un);

static inline bool meet_same_name(const struct meet_name *a, const struct meet_name *b)
{
	return !strcmp(a->text, b->text);
}

/* meet.c: fd is a connection of ours (caller) or to us. NULL: no memory, and the
 * descriptor stays the caller's. meets.lock is held. */
struct guest *guest_new(int fd, bool caller, const struct meet_name *name);
/* host.c: ours under this name, or NULL. meets.lock is held. */
struct host *host_find(const struct meet_name *name);

#endif
