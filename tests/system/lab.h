/* SPDX-License-Identifier: BSD-2-Clause */
/* Cases with several processes: a peer is a child that runs a function and talks
 * to the case through two pipes, one byte at a time. Nobody sleeps to meet. */
#ifndef ANYRDMA_TESTS_LAB_H
#define ANYRDMA_TESTS_LAB_H

#include "conf.h"

#include <sys/types.h>

struct peer {
	pid_t pid;
	int in, out;
};

/* Must be called before the case uses the library. The peer ends with exit(0)
 * when fn returns. */
struct peer peer_start(void (*fn)(struct peer *me, void *arg), void *arg);
void peer_say(struct peer *p, char c);
void peer_say_u32(struct peer *p, uint32_t v);
/* Waits; another byte, or the other side's end, fails the case. */
void peer_hear(struct peer *p, char c);
/* The same, passing over what was said before it. */
void peer_await(struct peer *p, char c);
uint32_t peer_hear_u32(struct peer *p);
/* The peer must end with status 0. */
void peer_end(struct peer *p);
void peer_signal(struct peer *p, int sig);
/* Stops it, waits until it is stopped. */
void peer_stop(struct peer *p);
void peer_go_on(struct peer *p);
void peer_kill(struct peer *p);

/* Steps that both roles use. */
struct end {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener, *id;
	struct conf_buf buf;
};

/* Server: listens, tells the port. Client: knows the port. */
void end_listen(struct end *e, struct peer *tell);
void end_request(struct end *e);  /* fetches the request, makes a QP */
void end_accept(struct end *e, bool established);
void end_connect(struct end *e, uint16_t port); /* up to rdma_connect */
void end_established(struct end *e);
void end_free(struct end *e);

/* TCP port behind an RDMA port. */
uint16_t lab_tcp_port(uint16_t port);
int lab_tcp_connect(uint16_t rdma_port);

#endif
