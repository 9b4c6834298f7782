/* SPDX-License-Identifier: BSD-2-Clause */
/* The benchmark: public API only, so the same programs measure any librdmacm.
 *
 * The driver (main.c) forks a server and a client for each group of
 * measurements, each pinned to a core of its own. The two share a socketpair
 * (`ctl`), which carries orders and is silent while time is taken; the client
 * writes samples to a pipe that the driver reads. Every number has its raw TCP
 * rival measured between the same two processes, round by round in turn, so
 * that ratios never compare two moments of the machine. */
#ifndef BENCH_H
#define BENCH_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	MAX_MSG = 8 << 20,
	TAIL = 4096,		/* behind the message area: sources of ping-pongs */
	PING = 64,
	SQ_DEPTH = 128,
	RQ_DEPTH = 512,
	IDLE_WRS = 16,
	MAX_META = 16,
};

struct opts {
	const char *addr;	/* numeric address of the server */
	const char *ns[2];	/* network namespace of server, client, or NULL */
	const char *out;	/* folder for the CSV files, or NULL */
	const char *more;	/* file of samples to add, or NULL */
	const char *meta[MAX_META]; /* "key=value", copied to the files' heads */
	const char *kinds;	/* only these ("send,tcp", "rc16", ...), or NULL */
	const char *device;	/* what the device's name must begin with, or NULL */
	uint32_t size;		/* only streams of this size, or 0 */
	int cpu[2];		/* -1: not pinned */
	unsigned nmeta;
	unsigned rounds;
	unsigned slot_ms;	/* how long one round of a rate should take */
	unsigned conns;		/* connections made in one round */
	unsigned idle;		/* idle connections whose memory is taken */
	unsigned timeout_s;	/* without any sample: something is broken */
};

/* One of the two processes of a group. */
struct side {
	const struct opts *o;
	bool server;
	int ctl;
	int out;		/* samples; the client's alone */
};

struct sample {
	char metric[24];
	char kind[16];
	uint32_t size;
	uint32_t round;
	double value;
};

/* side.c: what both processes need; every failure ends the process. */
void die(const char *what) __attribute__((noreturn));
void side_enter(struct side *s);
void ctl_put(const struct side *s, const void *p, size_t n);
void ctl_get(const struct side *s, void *p, size_t n);
void ctl_meet(const struct side *s);
void side_emit(const struct side *s, const char *metric, const char *kind,
	       uint32_t size, uint32_t round, double value);
/* Not left out by -k. */
bool kind_wanted(const struct side *s, const char *kind);
/* Ends the process when -D asks for another device. */
void device_check(const struct side *s, struct ibv_context *verbs);
double now_s(void);
long switches(void);		/* voluntary, of all threads of this process */
socklen_t addr_make(struct sockaddr_storage *ss, const char *addr, uint16_t port);
void pattern_fill(uint8_t *p, size_t n, uint64_t seed);
bool pattern_ok(const uint8_t *p, size_t n, uint64_t seed);

/* tcp_raw.c: the rival. */
int tcp_listen(const char *addr, uint16_t *port);
int tcp_connect(const char *addr, uint16_t port);
int tcp_accept(int lfd);
void tcp_tune(int fd, bool pingpong);
void tcp_stream_tx(int fd, const uint8_t *buf, size_t size, uint64_t count);
const uint8_t *tcp_stream_rx(int fd, uint8_t *buf, size_t size, uint64_t count,
			     bool spin);
void tcp_ping(int fd, uint8_t *buf, uint64_t count, uint32_t *rtt);
void tcp_pong(int fd, uint8_t *buf, uint64_t count);

/* cm.c: the connection manager's calls, as one thread makes them. */
struct rdma_event_channel *cm_channel(void);
struct rdma_cm_id *cm_listen(struct rdma_event_channel *ch, const char *addr,
			     uint16_t *port);
struct rdma_cm_id *cm_start(struct rdma_event_channel *ch, const char *addr,
			    uint16_t port);
/* Fetches and acknowledges one event; ends the process if its status is bad. */
enum rdma_cm_event_type cm_next(struct rdma_event_channel *ch,
				struct rdma_cm_id **id);
struct rdma_cm_id *cm_expect(struct rdma_event_channel *ch,
			     enum rdma_cm_event_type type);
void cm_param(struct rdma_conn_param *p, bool active);

/* pool.c: what many QPs share. Opened once; a QP with some receives of PING bytes
 * posted. */
struct pool {
	struct ibv_pd *pd; /* NULL: not open */
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf; /* a page */
};
void pool_open(struct pool *p, struct ibv_context *verbs, int entries);
void pool_qp(struct pool *p, struct rdma_cm_id *id, unsigned recvs);
void pool_recv(struct pool *p, struct ibv_qp *qp);

/* rc.c: one end of an RC connection with its memory. */
struct rc {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_comp_channel *events; /* of the CQ, or NULL */
	struct ibv_mr *mr;
	uint8_t *buf;		/* MAX_MSG + TAIL bytes */
	uint64_t peer_addr;
	uint32_t peer_rkey;
	bool with_events;
	bool atomics;		/* the device has them */
	bool inline_ok;		/* PING bytes fit inline */
	uint64_t posted;	/* send side: WRs posted, */
	uint64_t covered;	/* those up to the last signalled one, */
	uint64_t done;		/* and those known complete */
	uint64_t received;
	unsigned missing;	/* receives to post again */
};

void rc_open(struct rc *rc, const struct side *s);
void rc_open_events(struct rc *rc, const struct side *s);
void rc_close(struct rc *rc, const struct side *s);
unsigned rc_poll(struct rc *rc);
void rc_refill(struct rc *rc);
/* Posts n WRs of `size` bytes from the start of the buffer, the last signalled. */
void rc_post(struct rc *rc, enum ibv_wr_opcode op, size_t size, unsigned n);
/* Posts one of PING bytes from the tail. */
void rc_post_ping(struct rc *rc, enum ibv_wr_opcode op, bool signalled);
void rc_drain(struct rc *rc);

/* rc_run.c: what is timed on it. */
void rc_stream_tx(struct rc *rc, enum ibv_wr_opcode op, size_t size, uint64_t count);
void rc_stream_rx(struct rc *rc, uint64_t count);
void rc_ping(struct rc *rc, uint64_t count, uint32_t *rtt);
void rc_pong(struct rc *rc, uint64_t count);
void rc_write_ping(struct rc *rc, uint64_t count, uint32_t *rtt);
void rc_write_pong(struct rc *rc, uint64_t count);

/* Groups: run by both sides; each ends when the client has done. */
void latency_run(struct side *s);
void bandwidth_run(struct side *s);
void conn_run(struct side *s);
void atomic_run(struct side *s);
void reg_run(struct side *s);
void cost_run(struct side *s);
void mem_tcp_run(struct side *s);
void mem_rc_run(struct side *s);
void scale_run(struct side *s);

/* report.c: the driver's. */
struct noise {
	double load;		/* load average at the start */
	double others;		/* CPUs used by others, mean over the run */
	double steal;		/* share of CPU time taken by the hypervisor */
	double seconds;
};
void report_add(const struct sample *s);
/* Adds those of a file like samples.csv. 0 or -1, with a message. */
int report_read(const char *path);
void report_print(FILE *f, const struct opts *o, const struct noise *n);
int report_write(const struct opts *o, const struct noise *n);

#endif
