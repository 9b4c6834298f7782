/* SPDX-License-Identifier: BSD-2-Clause */
/* Fixtures of the strict suite: two RC QPs brought up by GID and number, each
 * end in a context of its own, so that each has asynchronous events of its own.
 * `a` asks (requester), `p` answers (responder). Everything is public verbs, so
 * the programs run on the original library over a kernel device as well.
 *
 * Each end's memory lies between two guard pages which are not registered; all of
 * it, guards too, has a pattern, so that st_untouched() sees a single stray
 * byte.
 *
 * Environment, beside that of conf.h:
 *	STRICT_EVENTS	0: an asynchronous event that does not come is no failure (on
 *			rxe, which raises none, so that the rest of a case is seen) */
#ifndef ANYRDMA_TESTS_STRICT_H
#define ANYRDMA_TESTS_STRICT_H

#include "conf.h"

enum {
	ST_LEN = 256 * 1024, /* registered bytes of an end */
	ST_GUARD = 4096,
	ST_QUIET = 20,	     /* ms in which nothing may happen */
	ST_NONE = -1,	     /* no such event; depth 0; no access */
};

struct st_end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq; /* or NULL */
	struct ibv_qp *qp;
	struct conf_buf b;   /* ST_LEN bytes, every right */
	uint32_t psn;
};

/* 0 is the default of each; ST_NONE means 0. */
struct st_opt {
	int send_wr, recv_wr;  /* 16 */
	int sge;	       /* 4 */
	int inl;	       /* 64 */
	int cqe;	       /* 64 */
	int access;	       /* of p's QP: all remote rights */
	int ord;	       /* a's max_rd_atomic: 4 */
	int ird;	       /* p's max_dest_rd_atomic: 4 */
	int timeout, retry;    /* 14, 7 */
	int rnr_retry;	       /* 7 */
	int rnr_timer;	       /* p's min_rnr_timer: 12 (0.64 ms) */
	int srq_wr;	       /* p receives through an SRQ of so many */
	struct ibv_pd *(*srq_pd)(void); /* ... which belongs to this PD, not p.pd */
	bool sig_all;
};

extern struct st_end a, p;

void st_open(const struct st_opt *opt);
void st_close(void);
/* The parts: objects, then connection. */
void st_create(const struct st_opt *opt);
void st_init(struct st_end *e, const struct st_opt *opt);
void st_rtr(struct st_end *e, const struct st_end *peer, const struct st_opt *opt);
void st_rts(struct st_end *e, const struct st_opt *opt);
/* a's and p's QPs to RESET and joined again, memory as at first. */
void st_again(const struct st_opt *opt);

/* Memory between guards in any PD, with the pattern of `seed`. */
struct conf_buf st_buf(struct ibv_pd *pd, size_t len, int access, uint32_t seed);
void st_buf_free(struct conf_buf *b);
void st_fill(struct conf_buf *b, uint32_t seed);
/* A part of it as at first: what has happened to it is of no interest. */
void st_forget(struct conf_buf *b, size_t off, size_t len, uint32_t seed);
void st_untouched_(const char *file, int line, const struct conf_buf *b, uint32_t seed);
#define st_untouched(b, seed) st_untouched_(__FILE__, __LINE__, b, seed)
enum { ST_SEED_A = 11, ST_SEED_P = 22 };

/* The next asynchronous event of the end is of this type and for its QP (or the
 * CQ or SRQ given as object). ST_NONE: none comes. COMM_EST is passed over. */
void st_event_(const char *file, int line, struct st_end *e, int type, void *object);
#define st_event(e, type) st_event_(__FILE__, __LINE__, e, type, (e)->qp)
#define st_event_of(e, type, obj) st_event_(__FILE__, __LINE__, e, type, obj)

/* Posts a receive at the end's RQ or SRQ. */
int st_recv(struct st_end *e, uint64_t wr_id, struct ibv_sge *sge, int n);
int st_recv_buf(struct st_end *e, uint64_t wr_id, size_t off, size_t len);

/* Requests of a to p's buffer. */
struct ibv_send_wr st_rdma(int opcode, struct ibv_sge *sge, int n, const void *raddr,
			   uint32_t rkey);
bool st_is_atomic(int opcode);

/* What must happen when a posts `wr` between good requests:
 *	1  an empty send, succeeds
 *	2  wr, fails with `status`, whether signalled or not
 *	3, 4, 5  a write, a read, an unsignalled send: flushed
 * and then a's receives are flushed in order and its QP is in ERR.
 * refused: p's QP is in ERR as well, with `event`, its receives are flushed.
 * refused_here: p's side never hears of it: its QP goes on, no event.
 * In both, no byte of a's and p's memory has changed. */
void st_refused_(const char *file, int line, struct ibv_send_wr *wr, int status, int event);
#define st_refused(wr, status, event) st_refused_(__FILE__, __LINE__, wr, status, event)
void st_refused_here_(const char *file, int line, struct ibv_send_wr *wr, int status);
#define st_refused_here(wr, status) st_refused_here_(__FILE__, __LINE__, wr, status)
/* wr is a read or atomic of p's first bytes, and a's memory cannot take the answer. That is
 * found out when it comes: wr fails, a's QP with it, p's goes on, and an atomic has
 * happened. What a's memory has before the bad place the caller looks at. Nothing is posted
 * behind it: it would be carried out. */
void st_sink_refused_(const char *file, int line, struct ibv_send_wr *wr);
#define st_sink_refused(wr) st_sink_refused_(__FILE__, __LINE__, wr)
/* wr succeeds. */
void st_accepted_(const char *file, int line, struct ibv_send_wr *wr);
#define st_accepted(wr) st_accepted_(__FILE__, __LINE__, wr)
/* A send that p's receive cannot take. */
struct st_misfit {
	struct ibv_sge *sge; /* of the receive */
	int n;
	size_t len; /* of the send */
	int rstatus, sstatus;
};
/* An empty send and then one of `len` bytes: p's first receive takes the empty
 * one, the second (`sge`) fails with `rstatus` and a's send with `sstatus`; what
 * stands behind is flushed on both sides. */
void st_recv_refused_(const char *file, int line, const struct st_misfit *m);
#define st_recv_refused(sge, n, len, rst, sst) \
	st_recv_refused_(__FILE__, __LINE__, &(struct st_misfit){ sge, n, len, rst, sst })
/* Nothing happens at either end: the QPs are in RTS, queues empty. */
void st_alive_(const char *file, int line);
#define st_alive() st_alive_(__FILE__, __LINE__)

/* Every operation on 8 bytes of the responder's memory. */
enum { ST_REMOTE_OPS = 5 };
extern const int st_remote_ops[ST_REMOTE_OPS];
/* ... is refused; every one that sends from this SGE; and every one whose answer would go
 * there. */
void st_all_refused(const void *addr, uint32_t rkey);
void st_all_sends_refused(struct ibv_sge sge);
void st_all_answers_refused(struct ibv_sge sge);

#endif
