/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of the conformance suite. The suite uses the public API only and one
 * binary runs on every implementation: ours on the user-space device, ours on a
 * kernel device, the original. Calls newer than RDMACM_1.3 are looked up at run
 * time (conf_new) and their cases are skipped where they are absent.
 *
 * Each case runs in a child process of its own with a deadline; a failed check
 * ends the child, never the program. Every wait has a deadline, too.
 *
 * Environment:
 *	CONF_ADDR	IPv4 address of the device (default: 127.0.0.1)
 *	CONF_ADDR6	IPv6 address of the device (default: ::1 on the user-space
 *			device where the host has it; else those cases are skipped)
 *	CONF_PORT_BASE	first of 200 RDMA ports for cases that need fixed ones
 *	CONF_ORIGINAL	1: the library is the original; skip what crashes it
 *	CONF_SLOW	factor for all deadlines (default: T_SCALE)
 *	CONF_EVENTS	number of events of the race test
 *	T_LONG		set: as many rounds as find rare faults (make test-long)
 *	CONF_NOFORK	1: run cases in this process (for a debugger)
 *	CONF_LARGE	size of the large transfer, in MiB
 *	CONF_SIZE	size of transfer in the no-deadlock cases, in MiB
 *
 * Argument: the name of a case to run, or a part of several; -l lists them. */
#ifndef ANYRDMA_TESTS_CONF_H
#define ANYRDMA_TESTS_CONF_H

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "../asleep.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define CONF_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define CONF_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CONF_TSAN 1
#elif __has_feature(address_sanitizer)
#define CONF_SANITIZER 1
#endif
#endif
#ifdef CONF_TSAN
#define CONF_SANITIZER 1
#endif

/* Event numbers that Debian 12's header does not have. */
enum {
	CONF_EVENT_ADDRINFO_RESOLVED = 16,
	CONF_EVENT_ADDRINFO_ERROR = 17,
	CONF_EVENT_USER = 18,
	CONF_RAI_SA = 0x10,
	CONF_RAI_DNS = 0x20,
};

/* Milliseconds that a wait for something that must happen may take. */
enum { CONF_WAIT = 8000 };
/* ... and how long nothing may happen where nothing must. */
enum { CONF_QUIET = 200 };

struct conf_case {
	const char *name;
	void (*run)(void);
	unsigned seconds;
};

/* The deadline is for what hangs: a busy machine takes a third of it for some. */
#define CASE(fn) { #fn, fn, 40 }
#define LONG_CASE(fn, s) { #fn, fn, s }

int conf_main(int argc, char **argv, const struct conf_case *cases, size_t n);
#define CONF_MAIN(cases)                                                         \
	int main(int argc, char **argv)                                          \
	{                                                                        \
		return conf_main(argc, argv, cases,                              \
				 sizeof(cases) / sizeof(*(cases)));              \
	}

/* The end of a case. conf_at notes the place for the message of a deadline. */
void conf_fail(const char *file, int line, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void conf_skip(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));
void conf_at(const char *file, int line, const char *what);
#define AT(what) conf_at(__FILE__, __LINE__, what)
#define FAIL(...) conf_fail(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) conf_skip(__VA_ARGS__)

#define CHECK(c)                                                                 \
	do {                                                                     \
		AT(#c);                                                          \
		if (!(c))                                                        \
			FAIL("%s", #c);                                          \
	} while (0)

/* A call that must return 0 (or non-NULL); the errno is told. */
#define OK(c)                                                                    \
	do {                                                                     \
		AT(#c);                                                          \
		errno = 0;                                                       \
		if ((c) != 0)                                                    \
			FAIL("%s: errno %d (%s)", #c, errno, strerror(errno));   \
	} while (0)
#define MUST(c)                                                                  \
	do {                                                                     \
		AT(#c);                                                          \
		errno = 0;                                                       \
		if (!(c))                                                        \
			FAIL("%s: errno %d (%s)", #c, errno, strerror(errno));   \
	} while (0)
/* A call that must return -1 with this errno. */
#define ERR(c, e)                                                                \
	do {                                                                     \
		int ret_, err_;                                                  \
		AT(#c);                                                          \
		errno = 0;                                                       \
		ret_ = (c);                                                      \
		err_ = errno;                                                    \
		if (ret_ != -1 || err_ != (e))                                   \
			FAIL("%s: returned %d, errno %d (%s), wanted -1, %s",    \
			     #c, ret_, err_, strerror(err_), #e);                \
	} while (0)
/* A call that must return NULL with this errno. */
#define NONE(c, e)                                                               \
	do {                                                                     \
		AT(#c);                                                          \
		errno = 0;                                                       \
		if ((c) || errno != (e))                                         \
			FAIL("%s: errno %d (%s), wanted NULL, %s", #c, errno,    \
			     strerror(errno), #e);                               \
	} while (0)
#define EQ(a, b)                                                                 \
	do {                                                                     \
		long long a_ = (long long)(a), b_ = (long long)(b);              \
		AT(#a " == " #b);                                                \
		if (a_ != b_)                                                    \
			FAIL("%s is %lld, wanted %lld (%s)", #a, a_, b_, #b);    \
	} while (0)
#define CONF_MSG_ZERO(p, n) CHECK(conf_is_fill(p, 0, n))

/* What runs underneath. */
bool conf_original(void);	/* CONF_ORIGINAL, or a library without 1.4 */
bool conf_user_device(void);	/* our user-space device */
bool conf_iwarp(void);		/* a device of the kernel's that speaks iWARP */
void *conf_new(const char *symbol); /* skips the case where absent */
int conf_ms(int ms);		/* scaled by CONF_SLOW and sanitizers */
bool conf_is_fill(const void *p, int byte, size_t n);
uint64_t conf_now(void);	/* monotonic ns */
unsigned conf_env(const char *name, unsigned def);
unsigned conf_rounds(unsigned few, unsigned many); /* many if T_LONG is set */

struct ibv_context *conf_open_device(void); /* the first of the list */

/* Fills in port 1's attributes and the GID of the address under test; returns the GID's
 * index. */
int conf_gid(struct ibv_context *ctx, struct ibv_port_attr *port, union ibv_gid *gid);

/* Addresses. port in host order. */
typedef struct sockaddr_storage conf_sa;
conf_sa conf_addr(int family, uint16_t port);	 /* of the device; may skip */
conf_sa conf_dev_addr(uint16_t port);		 /* one that is not loopback; may skip */
conf_sa conf_parse(const char *text, uint16_t port);
conf_sa conf_any(int family, uint16_t port);
uint16_t conf_port(unsigned i);			 /* fixed port, i < 200 */
uint16_t conf_sa_port(const void *sa);		 /* host order */
#define SA(s) ((struct sockaddr *)&(s))

/* Events. conf_next returns the next event of the channel, whatever it is, or
 * NULL after ms; conf_get insists on type and status 0; conf_expect also acks. */
struct rdma_cm_event *conf_next(struct rdma_event_channel *ch, int ms);
struct rdma_cm_event *conf_get_(const char *file, int line,
				struct rdma_event_channel *ch, struct rdma_cm_id *id,
				int type, int status);
#define conf_get(ch, id, type) conf_get_(__FILE__, __LINE__, ch, id, type, 0)
#define conf_get_status(ch, id, type, st) conf_get_(__FILE__, __LINE__, ch, id, type, st)
#define conf_expect(ch, id, type) OK(rdma_ack_cm_event(conf_get(ch, id, type)))
#define conf_expect_status(ch, id, type, st)                                     \
	OK(rdma_ack_cm_event(conf_get_status(ch, id, type, st)))
/* No event may come for ms (unscaled). */
void conf_quiet_(const char *file, int line, struct rdma_event_channel *ch, int ms);
#define conf_quiet(ch, ms) conf_quiet_(__FILE__, __LINE__, ch, ms)
/* Status of REJECTED when the peer's application rejects. */
int conf_rejected(void);
/* The event has these len bytes of private data. InfiniBand pads them with zeros to the
 * maximum (most); iWARP reports the length. */
void conf_private_(const char *file, int line, const struct rdma_conn_param *got,
		   const void *data, size_t len, size_t most);
#define conf_private(got, data, len, most)                                       \
	conf_private_(__FILE__, __LINE__, got, data, len, most)
bool conf_readable(int fd);
const char *conf_event_name(int type);
void conf_nonblock(int fd, bool on);

/* The next asynchronous event of this type must come for this object (NULL: for any).
 * Events of other types that come before it are passed over. Each is acknowledged. */
void conf_async_(const char *file, int line, struct ibv_context *ctx,
		 enum ibv_event_type type, const void *object);
#define conf_async(ctx, type, object) conf_async_(__FILE__, __LINE__, ctx, type, object)

/* Steps to a connection; each fails the case when it cannot be done. */
struct rdma_event_channel *conf_channel(void);
struct rdma_cm_id *conf_id(struct rdma_event_channel *ch);
/* Destroys the id's QP and SRQ, if it has them, and the id. NULL is nothing to do. */
void conf_id_free(struct rdma_cm_id *id);
/* The same, and then the id's channel: nothing else may use that. */
void conf_id_close(struct rdma_cm_id *id);
struct rdma_cm_id *conf_listen(struct rdma_event_channel *ch, int family, int backlog);
conf_sa conf_listen_addr(struct rdma_cm_id *listener); /* to connect to */
struct rdma_cm_id *conf_addr_resolved(struct rdma_event_channel *ch, conf_sa dst);
struct rdma_cm_id *conf_route_resolved(struct rdma_event_channel *ch, conf_sa dst);
/* An id on a channel of its own, bound to the device by an address that it has resolved:
 * for what needs id->verbs and id->pd and no connection. Freed by conf_id_close(). */
struct rdma_cm_id *conf_device_id(void);
/* Fetches and acknowledges a CONNECT_REQUEST, returns the new id. */
struct rdma_cm_id *conf_request(struct rdma_event_channel *ch);
void conf_qp(struct rdma_cm_id *id, unsigned wr);
#define CONF_CAP(send, recv, sge)                                                \
	{ .max_send_wr = send, .max_recv_wr = recv, .max_send_sge = sge, .max_recv_sge = 1 }
struct rdma_conn_param conf_param(void); /* depths 1, retries 7, nothing else */

/* A connected pair in one process: a listener, an active id (a), the passive id that its
 * request made (p), and two channels, whose events the calls below fetch. */
struct conf_opt {
	int family;			/* 0: AF_INET */
	unsigned wr;			/* 0: 16 */
	unsigned sge;			/* 0: 1 */
	uint8_t depth;			/* reads and atomics each way; 0: 1 */
	const struct rdma_conn_param *connect, *accept; /* NULL: of depth */
	bool connect_null, accept_null; /* pass NULL */
	bool bare;			/* ids without QPs */
	struct ibv_qp_init_attr *aattr, *pattr; /* own attributes */
	void (*prepare)(struct rdma_cm_id *id, bool active); /* QP made, before connect/accept */
	/* Where to keep memory of a and of p: len bytes, registered once the two are
	 * connected (p's with paccess; 0: CONF_RW), and freed by conf_pair_free() unless
	 * the case has done that. The case may register other memory in its place. NULL:
	 * none. */
	struct conf_buf *abuf, *pbuf;
	size_t len;
	int paccess;
};
struct conf_pair {
	struct rdma_event_channel *ach, *lch;
	struct rdma_cm_id *listener, *a, *p;
	struct conf_opt opt;
};
/* Connects: all of the three steps below. opt may be NULL. */
void conf_pair_open(struct conf_pair *c, const struct conf_opt *opt);
/* Everything up to rdma_connect(): the listener, and c->a with its route and a QP. */
void conf_pair_resolve(struct conf_pair *c, const struct conf_opt *opt);
/* conf_pair_resolve(), rdma_connect(), then conf_request() and a QP for c->p. */
void conf_pair_request(struct conf_pair *c, const struct conf_opt *opt);
/* rdma_accept() and both ESTABLISHED events; registers the memory. */
void conf_pair_accept(struct conf_pair *c);
/* c->a first, then c->p; both DISCONNECTED events. */
void conf_pair_disconnect(struct conf_pair *c);
/* QPs in whatever state, memory, ids, channels: each that is there. */
void conf_pair_free(struct conf_pair *c);
/* conf_pair_disconnect() and conf_pair_free(). */
void conf_pair_close(struct conf_pair *c);

/* Completions. */
void conf_wc_(const char *file, int line, struct ibv_cq *cq, struct ibv_wc *wc);
#define conf_wc(cq, wc) conf_wc_(__FILE__, __LINE__, cq, wc)
void conf_wc_is_(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id,
		 int status, struct ibv_wc *wc);
#define conf_wc_ok(cq, wr_id) conf_wc_is_(__FILE__, __LINE__, cq, wr_id, 0, NULL)
#define conf_wc_is(cq, wr_id, st) conf_wc_is_(__FILE__, __LINE__, cq, wr_id, st, NULL)
#define conf_wc_get(cq, wr_id, st, wc) conf_wc_is_(__FILE__, __LINE__, cq, wr_id, st, wc)
void conf_wc_none_(const char *file, int line, struct ibv_cq *cq, int ms);
#define conf_wc_none(cq, ms) conf_wc_none_(__FILE__, __LINE__, cq, ms)

enum ibv_qp_state conf_qp_state(struct ibv_qp *qp);
void conf_qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr);
/* ibv_modify_qp() to attr.qp_state (INIT, RTR, RTS) with those attributes of attr that
 * this type of QP must be given there and no others; to another state, with none. Both
 * return what the verb does. */
int conf_qp_modify(struct ibv_qp *qp, struct ibv_qp_attr attr);
int conf_qp_to(struct ibv_qp *qp, enum ibv_qp_state state);
/* The QP is in this state; siw never tells. */
#define QP_STATE(qp, want)                                                       \
	do {                                                                     \
		if (!conf_iwarp())                                               \
			EQ(conf_qp_state(qp), want);                             \
	} while (0)
/* Waits until the QP is in this state. */
void conf_qp_wait_(const char *file, int line, struct ibv_qp *qp, int state);
#define conf_qp_wait(qp, state) conf_qp_wait_(__FILE__, __LINE__, qp, state)

/* Registered memory. */
struct conf_buf {
	uint8_t *p;
	size_t len;
	struct ibv_mr *mr;
};
struct conf_buf conf_buf(struct ibv_pd *pd, size_t len, int access);
void conf_buf_free(struct conf_buf *b);
void conf_pattern(uint8_t *p, size_t len, uint32_t seed);
bool conf_pattern_ok(const uint8_t *p, size_t len, uint32_t seed);
enum { CONF_RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };

/* One work request; ret is ibv_post_send's. */
struct ibv_send_wr conf_wr(uint64_t wr_id, int opcode, struct ibv_sge *sge, int n);
int conf_post(struct ibv_qp *qp, struct ibv_send_wr *wr);
int conf_recv(struct ibv_qp *qp, uint64_t wr_id, struct conf_buf *b, size_t off,
	      size_t len);
/* A signalled send of len bytes at b->p + off. */
int conf_send(struct ibv_qp *qp, uint64_t wr_id, struct conf_buf *b, size_t off,
	      size_t len);
/* A receive of a shared receive queue, len bytes at b->p + off. */
int conf_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct conf_buf *b, size_t off,
		  size_t len);
struct ibv_sge conf_sge(struct conf_buf *b, size_t off, size_t len);
/* A write, read or atomic (whose operands are the caller's to set) of memory at raddr. */
struct ibv_send_wr conf_rdma(uint64_t wr_id, int opcode, struct ibv_sge *sge, int n,
			     const void *raddr, uint32_t rkey);

/* A bind of a type 2 window, which has this key then, and an IBV_WR_LOCAL_INV or
 * IBV_WR_SEND_WITH_INV of such a key. */
struct ibv_send_wr conf_bind(uint64_t wr_id, struct ibv_mw *mw, uint32_t rkey,
			     struct ibv_mw_bind_info info);
struct ibv_send_wr conf_inv(uint64_t wr_id, int opcode, uint32_t rkey);

/* A thread that ends in time or fails the case. */
pthread_t conf_thread(void *(*fn)(void *), void *arg);
/* Waits until such a thread has blocked in a call (or has ended). */
void conf_blocked_(const char *file, int line, pthread_t t);
#define conf_blocked(t) conf_blocked_(__FILE__, __LINE__, t)
void conf_join_(const char *file, int line, pthread_t t, int ms);
#define conf_join(t) conf_join_(__FILE__, __LINE__, t, CONF_WAIT)
/* Polls a condition that another thread or process makes true: for so long, and
 * with these words when it does not. */
#define WAIT_TILL(c, ms, ...)                                                    \
	do {                                                                     \
		uint64_t end_ = conf_now() + conf_ms(ms) * 1000000ull;           \
		bool last_ = false;                                              \
		AT("waiting for " #c);                                           \
		while (!(c)) {                                                   \
			if (last_)                                               \
				FAIL(__VA_ARGS__);                               \
			last_ = conf_now() > end_; /* a look comes after it */   \
			usleep(200);                                             \
		}                                                                \
	} while (0)
#define WAIT_FOR(c) WAIT_TILL(c, CONF_WAIT, "never came true: %s", #c)
/* Waits until the library's threads sleep: they have done all that has come so far.
 * (A kernel's device has none: what it does then may come later.) */
#define conf_settle() WAIT_FOR(asleep_others())

#endif
