/* SPDX-License-Identifier: BSD-2-Clause */
/* Fixtures for datagrams: `a` and `p` of strict.h with UD QPs in RTS, a context each, and an
 * address of each for the other. */
#ifndef ANYRDMA_TESTS_DGRAM_H
#define ANYRDMA_TESTS_DGRAM_H

#include "strict.h"

enum { DG_QKEY = 0x11111111, DG_GRH = 40 };

/* 0 is the default of each. */
struct dg_opt {
	int send_wr;	      /* 16 */
	int srq_wr;	      /* p receives through an SRQ of so many */
	uint32_t sender_qkey; /* of a: DG_QKEY */
	bool sig_all;
};

extern struct ibv_ah *dg_to_p, *dg_to_a; /* of a's PD, of p's */

void dg_open(const struct dg_opt *o);
/* A QP that is NULL has been destroyed by the case. */
void dg_close(void);
void dg_init(struct st_end *e, uint32_t qkey);
void dg_rts(struct st_end *e);

/* Of the address under test, from e's side. */
struct ibv_ah_attr dg_ah_attr(struct st_end *e);
uint32_t dg_mtu(struct st_end *e);
struct ibv_qp_cap dg_granted(struct ibv_qp *qp);

/* A signalled send of a to p, with the Q_Key of dg_qkey() (at first p's). */
struct ibv_send_wr dg_wr(uint64_t wr_id, struct ibv_sge *sge, int n);
void dg_qkey(uint32_t qkey);
/* Sends len bytes of a's memory at off. */
int dg_send(uint64_t wr_id, size_t off, size_t len);
void dg_send_ok_(const char *file, int line, uint64_t wr_id, size_t off, size_t len);
#define dg_send_ok(wr_id, off, len) dg_send_ok_(__FILE__, __LINE__, wr_id, off, len)
/* p's receive wr_id, posted at p's memory `to`, has got `len` bytes of a's at `from`. */
void dg_arrives_(const char *file, int line, uint64_t wr_id, size_t to, size_t from,
		 size_t len);
#define dg_arrives(wr_id, to, from, len)                                         \
	dg_arrives_(__FILE__, __LINE__, wr_id, to, from, len)
/* p sends to a, which has posted a receive. */
void dg_back(uint64_t wr_id, size_t off, size_t len);
/* One each way. */
void dg_works_(const char *file, int line);
#define dg_works() dg_works_(__FILE__, __LINE__)
/* a posts wr (number 2) between good ones: the one before it arrives, it fails with this
 * status, what is behind it is flushed, and a's QP is in SQE. p hears nothing. Then RTS makes
 * it good again. */
void dg_fails_(const char *file, int line, struct ibv_send_wr *wr, int status);
#define dg_fails(wr, status) dg_fails_(__FILE__, __LINE__, wr, status)
/* What was sent has come, or has been dropped. */
void dg_settled(void);

#endif
