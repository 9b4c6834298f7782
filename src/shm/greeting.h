/* SPDX-License-Identifier: BSD-2-Clause */
/* The messages by which two processes make their link over a unix socket (setup.c), the
 * user and process at the other end of the socket, and the segment and eventfds that the
 * messages carry. doc/wire.md has the layout byte by byte. */
#ifndef ANYRDMA_SHM_GREETING_H
#define ANYRDMA_SHM_GREETING_H

#include "shm/grant.h"
#include "shm/link.h"

enum { GREETING_MAGIC = 0x61726c6b, GREETING_VERSION = 6 };

enum { GREETING_FDS = 2 }; /* descriptors of one greeting, at most */

enum greeting_status {
	GREETING_HELLO,	 /* the connector's; with the segment and its eventfd */
	GREETING_OK,	 /* the listener's: the link is made; with its eventfd */
	GREETING_EXISTS, /* the listener's: the two processes have a link already */
};

struct greeting {
	uint32_t magic, version;
	uint32_t status;   /* enum greeting_status */
	uint32_t size;	   /* sizeof(struct link_segment): must be equal */
	struct link_id id; /* the sender's */
	struct grant_hello grant;
};
_Static_assert(offsetof(struct greeting, magic) == 0 &&
	       offsetof(struct greeting, version) == 4 &&
	       offsetof(struct greeting, status) == 8 &&
	       offsetof(struct greeting, size) == 12 &&
	       offsetof(struct greeting, id) == 16 &&
	       offsetof(struct greeting, grant.challenge) == 32 &&
	       offsetof(struct greeting, grant.accepts_memory) == 40 &&
	       sizeof(struct greeting) == 48, "doc/wire.md");

/* The process at the other end has our user id, as SO_PEERCRED says: that of a connector
 * when it connected, that of a listener when it called listen(). */
bool greeting_same_user(int fd);
/* The pid of that process; 0: it is in another pid namespace. */
pid_t greeting_pid(int fd);
/* The listening process has our user id now, too. It may have been started by root and
 * belong to another user since, who must not get access to our memory. True if it is in
 * another pid namespace (pid 0), where this cannot be found out. */
bool greeting_still_same_user(int fd);

/* ---- the segment ---- */

/* Maps the segment of this file; fd -1: one for this process alone. NULL: no memory. */
struct link_segment *link_segment_map(int fd);
/* Makes a segment. Its descriptor, or -errno. */
int link_segment_new(struct link_segment **seg);
/* Maps the segment that the peer has passed. NULL if its size is not sealed: a peer that
 * shrank the file would have this process killed by SIGBUS. */
struct link_segment *link_segment_accept(int fd);

/* ---- waking ---- */

/* Each side is woken through an eventfd of which both sides have a descriptor. The peer
 * can change its flags and its counter. So it is used only in ways that can never block:
 * the counter is not 0, nobody reads it, and a wake-up adds 0, for which there is always
 * room. That gives an event to an edge-triggered epoll (link.c).
 *
 * Makes one. Its descriptor, and another for the peer; or -errno. */
int greeting_wake_new(int *give);
/* A descriptor of our own for an eventfd that was received; -EPROTO: fd is no eventfd. fd
 * stays the caller's. */
int greeting_wake_accept(int fd);
/* Wakes the process that polls the eventfd. Never blocks. 0 or -errno. */
int greeting_wake(int fd);

/* ---- messages ---- */

/* Sends a greeting with n descriptors, which stay the caller's. 0 or -errno. */
int greeting_send(int fd, const struct link_id *id, enum greeting_status status,
		  const struct grant_hello *grant, const int *give, unsigned n);
/* Receives a greeting. The number of descriptors that came with it, at most GREETING_FDS;
 * the caller gives them to fdpass_discard(). -EAGAIN; -errno. */
int greeting_recv(int fd, struct greeting *g, int *fds);

#endif
