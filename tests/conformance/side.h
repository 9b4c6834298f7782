/* SPDX-License-Identifier: BSD-2-Clause */
/* QPs without the connection manager: a device, and sides that are joined by GID,
 * QP number and PSN. A side is a QP with its CQ and memory. Each call fails the case when
 * it cannot be done; those that return an int return what the verb did. */
#ifndef ANYRDMA_TESTS_SIDE_H
#define ANYRDMA_TESTS_SIDE_H

#include "conf.h"

struct side_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_port_attr port;
	union ibv_gid gid; /* of the address under test */
	int gid_index;
};
extern struct side_device dev;

/* Opens the first device and finds the GID of the address under test; skips the case
 * where QPs need the connection manager (iWARP). */
void open_device(void);
void close_device(void);

/* ibv_modify_qp() with every attribute that a QP of its type must be given in this state,
 * and no other: to RTR with the peer's number, PSN and GID; to RTS with its own PSN. */
int qp_to_init(struct ibv_qp *qp);
int qp_to_rtr(struct ibv_qp *qp, uint32_t qpn, uint32_t psn, const union ibv_gid *dgid);
int qp_to_rts(struct ibv_qp *qp, uint32_t psn, uint8_t rnr_retry);

struct side {
	struct ibv_comp_channel *ch; /* or NULL */
	struct ibv_cq *cq;	     /* sends and receives */
	struct ibv_cq_ex *cqx;	     /* cq, if it is extended */
	struct ibv_srq *srq;	     /* or NULL */
	struct ibv_qp *qp;
	struct ibv_qp_ex *qpx; /* or NULL */
	struct conf_buf b;     /* 1 MiB */
	uint32_t psn;
};

struct side_opt {
	enum ibv_qp_type type;	 /* 0: RC */
	unsigned wr, sge;	 /* 0: 16, 1 */
	unsigned recv_sge;	 /* 0: 1 */
	unsigned cqe;		 /* 0: 4 * wr */
	unsigned inline_data;
	bool sig_all;
	bool srq;
	bool channel;
	bool bare;		 /* no memory: b is empty */
	uint64_t send_ops;	 /* IBV_QP_EX_WITH_*: an extended QP */
	uint64_t wc_flags;	 /* IBV_WC_EX_WITH_*: an extended CQ */
	struct ibv_pd *pd;	 /* NULL: dev.pd */
};

struct side side(uint32_t psn);
/* Skips the case where the device has no extended QPs or CQs as asked for. */
struct side side_with(uint32_t psn, struct side_opt o);
void side_free(struct side *s);
/* The same of a side's QP. */
int to_init(struct side *s);
int to_rtr(struct side *s, uint32_t qpn, uint32_t psn, const union ibv_gid *dgid);
int to_rts(struct side *s);
int to_state(struct side *s, enum ibv_qp_state state); /* no other attribute */
void join(struct side *x, struct side *y); /* both to RTS, connected to each other */
/* Opens the device and makes a plain side, in RESET; frees the side and closes the
 * device. */
void side_alone(struct side *s);
void side_alone_free(struct side *s);
/* Opens the device and joins two sides of it: plain ones, or with options. */
void side_pair(struct side *x, struct side *y);
void side_pair_with(struct side *x, struct side *y, struct side_opt ox,
		    struct side_opt oy);
/* Frees both sides and closes the device. */
void side_pair_free(struct side *x, struct side *y);
/* From now on a peer that finds no receive at this QP, which is in RTS, tries again every
 * 491 ms only: conf_settle() works meanwhile. */
void rarely_not_ready(struct side *s);
/* Sends, writes and reads 100000 bytes from x to y. */
void exchange(struct side *x, struct side *y, uint32_t seed);

#endif
