/* SPDX-License-Identifier: BSD-2-Clause */
/* Entries of a send queue: what each opcode needs and allows, and the one way to fill an
 * entry. ibv_post_send() gets a whole request, the ibv_wr_*() builders get it piece by
 * piece; both call wqe_begin(), wqe_set_*() and wqe_check_locked(). For src/dev alone.
 * All return 0 or -errno and log what is wrong. */
#ifndef ANYRDMA_DEV_WQE_H
#define ANYRDMA_DEV_WQE_H

#include "dev/av.h"

/* What an opcode has. */
enum wqe_has {
	WQE_HAS_DATA = 1,     /* a payload, or a place for the answer */
	WQE_HAS_INLINE = 2,   /* ... which may be copied at the post */
	WQE_HAS_REMOTE = 4,   /* a target: wr.rdma of a request */
	WQE_HAS_ATOMIC = 8,   /* a target: wr.atomic; the transport fails it if it has
			       * not one SGE of 8 bytes */
	WQE_HAS_RESPONSE = 16, /* counts against max_rd_atomic */
	WQE_HAS_WORD = 32,     /* the payload is 8 bytes */
	WQE_HAS_WINDOW = 64,   /* bind_mw of a request: mw_wqe_fill() */
};

struct wqe_rule {
	uint16_t types;	  /* 1 << enum ibv_qp_type: QPs that have the opcode */
	uint16_t has;	  /* enum wqe_has */
	uint32_t send_op; /* IBV_QP_EX_WITH_* that asks for its builder */
};

enum { WQE_RULES = IBV_WR_ATOMIC_WRITE + 1 };
extern const struct wqe_rule wqe_rules[WQE_RULES]; /* by enum ibv_wr_opcode */

/* NULL: no such opcode on a QP of this type. */
static inline const struct wqe_rule *wqe_rule(enum ibv_qp_type type, unsigned opcode)
{
	return opcode < WQE_RULES && (unsigned)type < 16 &&
			       (wqe_rules[opcode].types >> type & 1) ?
		       &wqe_rules[opcode] :
		       NULL;
}
/* All IBV_QP_EX_WITH_* that a QP of this type has. */
uint64_t wqe_send_ops(enum ibv_qp_type type);

/* Room for the entry at SQ index idx? -ENOMEM if not. */
int wqe_room(const struct dev_qp *qp, uint32_t idx);
/* Clears w and sets what every request has. */
int wqe_begin(const struct dev_qp *qp, struct wqe *w, uint64_t wr_id, unsigned opcode,
	      unsigned flags);
static inline void wqe_set_remote(struct wqe *w, uint32_t rkey, uint64_t raddr)
{
	w->rkey = rkey;
	w->raddr = raddr;
}

static inline void wqe_set_atomic(struct wqe *w, uint32_t rkey, uint64_t raddr,
				  uint64_t compare_add, uint64_t swap)
{
	wqe_set_remote(w, rkey, raddr);
	w->compare_add = compare_add;
	w->swap = swap;
}

/* The 8 bytes of an atomic write. */
void wqe_set_word(struct wqe *w, const void *word);
int wqe_set_sges(const struct dev_qp *qp, struct wqe *w, size_t n,
		 const struct ibv_sge *sges);
/* Copies the bytes now. The lists are those of the two interfaces. */
int wqe_set_inline_sges(const struct dev_qp *qp, struct wqe *w, size_t n,
			const struct ibv_sge *sges);
int wqe_set_inline(const struct dev_qp *qp, struct wqe *w, size_t n,
		   const struct ibv_data_buf *bufs);
/* UD: where it goes; a second call replaces the first. w holds the address from now on. */
int wqe_set_address(const struct dev_qp *qp, struct wqe *w, struct ibv_ah *ah,
		    uint32_t remote_qpn, uint32_t remote_qkey);
/* What can be seen only when all is set; and what depends on the QP's attributes is filled
 * in. Called with qp->lock held. */
int wqe_check_locked(struct dev_qp *qp, struct wqe *w) REQUIRES(qp->lock);

/* Gives back what w holds: it is complete, or was not posted. Entries that are not between
 * sq.done and sq.tail, nor being built, hold nothing. */
static inline void wqe_release(const struct dev_qp *qp, struct wqe *w)
{
	if (qp->qp.qp_type != IBV_QPT_UD || !w->av)
		return;
	av_put(w->av);
	w->av = NULL;
}

#endif
