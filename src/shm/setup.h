/* SPDX-License-Identifier: BSD-2-Clause */
/* Setup: how two processes of a host get their link. setup.c has the exchange, listener.c
 * the listening unix sockets. */
#ifndef ANYRDMA_SHM_SETUP_H
#define ANYRDMA_SHM_SETUP_H

#include "base/lock.h"
#include "shm/cm.h"
#include "shm/link.h"

#include <string.h>
#include <sys/un.h>

/* ---- for others ---- */

/* A wait for a link. done() runs in the loop thread, no lock held, with a counted link;
 * or with NULL and -errno. */
struct link_wait {
	void (*done)(struct link_wait *w, struct link *l, int err);
	/* private to setup.c */
	struct list node;
	struct loop_work work;
	struct link *link;
	int err;
};
/* Gets the link to the process that has this rendezvous port, or that listens under this
 * abstract unix name; makes it if there is none. -ECONNREFUSED: no process does. */
void link_find_port(uint16_t port, struct link_wait *w);
void link_find_name(const char *name, struct link_wait *w);
/* listener.c: listens under the name of a rendezvous port, until the process ends. 0 or
 * -errno. */
int link_listen_port(uint16_t port);
/* The same with a socket that the caller has bound to an abstract unix name; it stays the
 * caller's. */
int link_listen_fd(int fd, const char *name);
void link_unlisten(const char *name);
/* The link is dead: removes it from the tables. */
void link_unlist(struct link *l);

/* ---- shared by setup.c and listener.c ---- */

struct link_setup;
struct link_listener;

enum {
	/* Bounds on what a hostile process of the same user can make this one keep. Two
	 * processes that connect to each other at the same time make two links. */
	LINKS_PER_PROCESS = 8,	  /* links with one process, */
	LINKS_UNKNOWN_PID = 1024, /* with all processes whose pid is not known here, */
	LINKS_ALL = 2048,	  /* with all: an unused one is ended for a new one */
	SETUPS_PER_PROCESS = 256, /* connections without a greeting, of one process, */
	SETUPS_ALL = 1024,	  /* of all: the oldest is ended for a new one */
};

struct link_name {
	char text[STREAM_NAME_MAX + 1];
};

/* All setups and links of the process. */
struct setups {
	struct lock lock; /* guards all; comes before the locks of a link */
	struct list listeners;	 /* struct link_listener */
	struct list pending;	 /* struct link_setup */
	struct list links;	 /* struct link */
	struct list known_ports; /* struct known_port */
	unsigned incoming;	 /* setups in `pending` that others began */
	unsigned nlinks;
	unsigned links_max; /* LINKS_ALL, unless a test sets it */
	struct link_id id;  /* of this process */
	struct link *self[2]; /* the two ends of the link within this process */
	bool ready;
};

extern struct setups setups;

/* The first call initialises it. */
void setups_lock(void) ACQUIRE(setups.lock);
void setups_unlock(void) RELEASE(setups.lock);

void link_name_of_port(uint16_t port, struct link_name *name);
socklen_t link_name_address(const struct link_name *name, struct sockaddr_un *un);

static inline bool link_name_equal(const struct link_name *a, const struct link_name *b)
{
	return !strcmp(a->text, b->text);
}

/* setup.c: begins a setup over a connection that this process has made (outgoing) or
 * accepted. NULL: no memory, and fd stays the caller's. setups.lock is held. */
struct link_setup *setup_new(int fd, bool outgoing, const struct link_name *name);
/* listener.c: the listener of this process under this name, or NULL. setups.lock is
 * held. */
struct link_listener *link_listener_find(const struct link_name *name);

#endif
