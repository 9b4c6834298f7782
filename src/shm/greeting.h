/* SPDX-License-Identifier: BSD-2-Clause */
/* What two processes say on the socket that makes their link; see meet.c. And who is
 * talked to. */
#ifndef ANYRDMA_SHM_GREETING_H
#define ANYRDMA_SHM_GREETING_H

#include "shm/grant.h"
#include "shm/link.h"

enum { GREETING_MAGIC = 0x61726c6b, GREETING_VERSION = 5 };

/* The segment and an eventfd, at most. */
enum { GREETING_FDS = 2 };

enum greeting_status { GREETING_HELLO, GREETING_OK, GREETING_EXISTS, GREETING_NO };

struct greeting {
	uint32_t magic, version;
	uint32_t status; /* enum greeting_status */
	uint32_t size;	 /* of the segment: equal builds, equal sizes */
	struct link_id id;
	struct grant_hello grant;
};

/* The user of who connected; or of who listens, when it began to. */
bool greeting_same_user(int fd);
/* Its process then; 0: of another pid namespace. */
pid_t greeting_pid(int fd);
/* A server may have listened as root and be somebody else by now, who must not get at
 * our memory. One in another pid namespace (pid 0) cannot be asked. */
bool greeting_still_same_user(int fd);

/* fd -1: memory of this process alone. NULL: there is none. */
struct link_segment *link_segment_map(int fd);
/* The descriptor of a new one, or -errno. */
int link_segment_new(struct link_segment **seg);
/* The peer's, if sealed in its size (a peer that shrank it would have us killed by
 * SIGBUS), else NULL. */
struct link_segment *link_segment_take(int fd);
/* Wake-ups go through an eventfd each way, which both sides have. Its flags and its counter are
 * the peer's as well, so it is only used in ways in which neither can make us wait: the counter
 * is never 0, nobody reads it, and who wakes adds 0, for which there is always room. That makes
 * an event for an edge-triggered epoll (link.c).
 *
 * Ours, and what to give to the peer; or -errno. */
int greeting_wake_new(int *give);
/* Ours of the one that came; -EPROTO: it is no eventfd. fd stays the caller's. */
int greeting_wake_take(int fd);
/* Whoever waits for it is woken. Never blocks. 0 or -errno. */
int greeting_wake(int fd);

/* Says it with n descriptors, which stay the caller's. */
int greeting_send(int fd, const struct link_id *id, enum greeting_status status,
		  const struct grant_hello *grant, const int *give, unsigned n);
/* Number of descriptors that came along, at most GREETING_FDS, into fds: the caller's, for
 * fdpass_discard(). -EAGAIN, -errno. */
int greeting_recv(int fd, struct greeting *g, int *fds);

#endif
