/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbered datagrams: who receives sees at once what was corrupted, doubled, cut or has come
 * out of order, and what was lost. Each call fails the case when it cannot be done. */
#ifndef ANYRDMA_TESTS_NUMBERED_H
#define ANYRDMA_TESTS_NUMBERED_H

#include "lab.h"

enum {
	NUM_QKEY = 0x11111111,
	NUM_GRH = 40,
	NUM_MAX = 1024, /* bytes of a datagram */
	NUM_FLOWS = 64,
};

/* A UD QP in RTS, with CQs of its own; `recvs` receives are posted, and again once what they
 * got was looked at. */
struct numbered {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	struct ibv_ah *ah; /* of the address under test */
	struct conf_buf b;
	unsigned recvs;
	uint32_t next[NUM_FLOWS]; /* by flow: the least number that may come */
	uint32_t got, lost;
};

void num_open(struct numbered *n, unsigned recvs);
void num_free(struct numbered *n);
/* The parts of num_open(): before the QP, and the QP alone. */
void num_open_device(struct numbered *n, unsigned recvs);
struct ibv_qp *num_qp(struct numbered *n, struct ibv_cq *scq, struct ibv_cq *rcq);
struct ibv_ah *num_ah(struct numbered *n, const char *address);

/* Sends number seq of the flow to the QP and waits for the completion. The length follows
 * from the number. */
void num_send(struct numbered *n, uint32_t qpn, unsigned flow, uint32_t seq);
void num_send_to(struct numbered *n, struct ibv_ah *ah, uint32_t qpn, unsigned flow,
		 uint32_t seq);
/* Looks at what has come, if anything has: true. */
bool num_take(struct numbered *n);
/* Waits for one. */
void num_await_(const char *file, int line, struct numbered *n);
#define num_await(n) num_await_(__FILE__, __LINE__, n)
/* Has number seq of the flow come (or a later one)? */
#define num_has(n, flow, seq) ((n)->next[flow] > (seq))

#endif
