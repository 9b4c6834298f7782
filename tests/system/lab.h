/* SPDX-License-Identifier: BSD-2-Clause */
/* Cases with several processes. A peer is a child process that runs a function and talks
 * to the case through two pipes, one byte at a time: both sides wait for such bytes,
 * never for time. Each call fails the case when it cannot be done. */
#ifndef ANYRDMA_TESTS_LAB_H
#define ANYRDMA_TESTS_LAB_H

#include "conf.h"

#include <sys/types.h>

struct peer {
	pid_t pid;   /* 0: of the process that started us */
	int in, out; /* pipes */
};

/* Must be called before the case uses the library. The peer ends with exit(0)
 * when fn returns. */
struct peer peer_start(void (*fn)(struct peer *me, void *arg), void *arg);
void peer_say(struct peer *p, char c);
void peer_say_u32(struct peer *p, uint32_t v);
void peer_say_u64(struct peer *p, uint64_t v);
/* Waits; another byte, or the other side's end, fails the case. */
void peer_hear(struct peer *p, char c);
char peer_hear_any(struct peer *p); /* whatever it is */
/* The same, passing over what was said before it. */
void peer_await(struct peer *p, char c);
uint32_t peer_hear_u32(struct peer *p);
uint64_t peer_hear_u64(struct peer *p);
/* The peer must end with status 0. */
void peer_end(struct peer *p);
void peer_signal(struct peer *p, int sig);
/* Stops it, waits until it is stopped. */
void peer_stop(struct peer *p);
void peer_go_on(struct peer *p);
void peer_kill(struct peer *p);

/* One end of a connection, with 1 MiB of memory; 32 receives of 4 KiB are posted in its
 * second half. */
struct end {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener, *id;
	struct conf_buf buf;
};

/* A server: listens and tells its port; fetches the request and makes a QP; accepts, and
 * waits for ESTABLISHED if it should. */
void end_listen(struct end *e, struct peer *tell); /* NULL: tells nobody */
void end_request(struct end *e);
void end_accept(struct end *e, bool established);
void end_serve(struct end *e, struct peer *tell); /* all three */
/* A client: goes up to rdma_connect(); waits for ESTABLISHED. */
void end_connect(struct end *e, uint16_t port);
void end_established(struct end *e);
void end_join(struct end *e, struct peer *server); /* hears the port, does both */
void end_free(struct end *e);

/* Where an end's memory is, for the other end: told by one, heard by the other. */
struct remote {
	uint32_t rkey;
	uint64_t addr;
};
void remote_say(struct peer *p, const struct conf_buf *b);
struct remote remote_hear(struct peer *p);
/* A write or read of it. */
struct ibv_send_wr remote_rdma(const struct remote *to, uint64_t wr_id, int opcode,
			      struct ibv_sge *sge);

/* TCP port behind an RDMA port; a socket connected to it; how many established TCP
 * connections to it there are. */
uint16_t lab_tcp_port(uint16_t port);
int lab_tcp_connect(uint16_t rdma_port);
int lab_tcp_connections(uint16_t port);
/* Skips the case where this process may not become that user. */
void lab_become(uid_t uid);
/* ANYRDMA_TRANSPORT, which the library reads when it is first used. */
void lab_transport(const char *how);

#endif
