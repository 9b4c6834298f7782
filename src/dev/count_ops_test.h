/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: a table of verbs that counts each call and passes it on to the table
 * behind. Every member has a number, its *slot*. */
#ifndef ANYRDMA_DEV_COUNT_OPS_TEST_H
#define ANYRDMA_DEV_COUNT_OPS_TEST_H

#include "dev/ops.h"

typedef void (*slot_fn)(void);
enum {
	OPS_SLOTS = sizeof(struct dev_ops) / sizeof(slot_fn),
	BUILD_SLOTS = sizeof(struct dev_build_ops) / sizeof(slot_fn),
	READ_SLOTS = sizeof(struct dev_read_ops) / sizeof(slot_fn),
	SLOTS = OPS_SLOTS + BUILD_SLOTS + READ_SLOTS,
};
#define OP_SLOT(name) (offsetof(struct dev_ops, name) / sizeof(slot_fn))
#define BUILD_SLOT(name) \
	(OPS_SLOTS + offsetof(struct dev_build_ops, name) / sizeof(slot_fn))
#define READ_SLOT(name) \
	(OPS_SLOTS + BUILD_SLOTS + offsetof(struct dev_read_ops, name) / sizeof(slot_fn))

static unsigned counted[SLOTS];
static int refuse_with; /* every call is refused with this errno, and not passed on */
static const struct dev_ops *behind;

#define OP(type, name, params, args) \
	static type count_##name params \
	{ \
		counted[OP_SLOT(name)]++; \
		return refuse_with ? -refuse_with : behind->name args; \
	}
#define VOID_OP(name, params, args) \
	static void count_##name params \
	{ \
		counted[OP_SLOT(name)]++; \
		behind->name args; \
	}
#define BUILD(name, params, args) \
	static void count_##name params \
	{ \
		counted[BUILD_SLOT(name)]++; \
		behind->build->name args; \
	}
#define READ(type, name) \
	static type count_##name(struct ibv_cq_ex *cq) \
	{ \
		counted[READ_SLOT(name)]++; \
		return behind->read->name(cq); \
	}

/* clang-format off */
OP(int, get_device_list, (struct ibv_device ***out), (out))
OP(int, open_device, (struct ibv_device *device, struct dev_ctx **out), (device, out))
OP(int, close_device, (struct dev_ctx *ctx), (ctx))
OP(int, get_async_event, (struct dev_ctx *ctx, struct ibv_async_event *event),
   (ctx, event))
VOID_OP(ack_async_event, (const struct ibv_async_event *event), (event))
OP(int, query_device, (struct dev_ctx *ctx, struct ibv_device_attr *attr), (ctx, attr))
OP(int, query_device_ex, (struct dev_ctx *ctx,
   const struct ibv_query_device_ex_input *input, struct ibv_device_attr_ex *attr,
   size_t size), (ctx, input, attr, size))
OP(int, query_rt_values, (struct dev_ctx *ctx, struct ibv_values_ex *values),
   (ctx, values))
OP(int, query_port, (struct dev_ctx *ctx, uint8_t port, struct ibv_port_attr *attr,
   size_t size), (ctx, port, attr, size))
OP(int, query_gid, (struct dev_ctx *ctx, uint32_t port, uint32_t index,
   union ibv_gid *gid), (ctx, port, index, gid))
OP(int, query_gid_ex, (struct dev_ctx *ctx, uint32_t port, uint32_t index,
   struct ibv_gid_entry *entry, uint32_t flags, size_t size),
   (ctx, port, index, entry, flags, size))
OP(ssize_t, query_gid_table, (struct dev_ctx *ctx, struct ibv_gid_entry *entries,
   size_t max, uint32_t flags, size_t size), (ctx, entries, max, flags, size))
OP(int, query_gid_type, (struct dev_ctx *ctx, uint32_t port, uint32_t index,
   unsigned int *type), (ctx, port, index, type))
OP(int, query_pkey, (struct dev_ctx *ctx, uint8_t port, int index, __be16 *pkey),
   (ctx, port, index, pkey))
OP(int, get_pkey_index, (struct dev_ctx *ctx, uint8_t port, __be16 pkey, int *index),
   (ctx, port, pkey, index))
OP(int, alloc_pd, (struct dev_ctx *ctx, struct dev_pd **out), (ctx, out))
OP(int, alloc_parent_domain, (struct dev_ctx *ctx,
   const struct ibv_parent_domain_init_attr *attr, struct dev_pd **out),
   (ctx, attr, out))
OP(int, dealloc_pd, (struct dev_pd *pd), (pd))
OP(int, alloc_td, (struct dev_ctx *ctx, const struct ibv_td_init_attr *attr,
   struct dev_td **out), (ctx, attr, out))
OP(int, dealloc_td, (struct dev_td *td), (td))
OP(int, open_xrcd, (struct dev_ctx *ctx, const struct ibv_xrcd_init_attr *attr,
   struct dev_xrcd **out), (ctx, attr, out))
OP(int, close_xrcd, (struct dev_xrcd *xrcd), (xrcd))
OP(int, reg_mr, (struct dev_pd *pd, void *addr, size_t len, uint64_t iova,
   unsigned access, struct dev_mr **out), (pd, addr, len, iova, access, out))
OP(int, alloc_null_mr, (struct dev_pd *pd, struct dev_mr **out), (pd, out))
OP(int, rereg_mr, (struct dev_mr *mr, int flags, struct dev_pd *pd, void *addr,
   size_t len, unsigned access), (mr, flags, pd, addr, len, access))
OP(int, advise_mr, (struct dev_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
   const struct ibv_sge *sges, uint32_t n), (pd, advice, flags, sges, n))
OP(int, dereg_mr, (struct dev_mr *mr), (mr))
OP(int, alloc_mw, (struct dev_pd *pd, enum ibv_mw_type type, struct dev_mw **out),
   (pd, type, out))
OP(int, bind_mw, (struct dev_qp *qp, struct dev_mw *mw, const struct ibv_mw_bind *bind),
   (qp, mw, bind))
OP(int, dealloc_mw, (struct dev_mw *mw), (mw))
OP(int, create_comp_channel, (struct dev_ctx *ctx, struct dev_channel **out),
   (ctx, out))
OP(int, destroy_comp_channel, (struct dev_channel *ch), (ch))
OP(int, create_cq, (struct dev_ctx *ctx, int cqe, void *cq_context,
   struct dev_channel *ch, int vector, struct dev_cq **out),
   (ctx, cqe, cq_context, ch, vector, out))
OP(int, create_cq_ex, (struct dev_ctx *ctx, const struct ibv_cq_init_attr_ex *attr,
   struct dev_cq **out), (ctx, attr, out))
OP(int, modify_cq, (struct dev_cq *cq, const struct ibv_modify_cq_attr *attr),
   (cq, attr))
OP(int, resize_cq, (struct dev_cq *cq, int cqe), (cq, cqe))
OP(int, destroy_cq, (struct dev_cq *cq), (cq))
OP(int, poll_cq, (struct dev_cq *cq, int n, struct ibv_wc *wc), (cq, n, wc))
OP(int, req_notify_cq, (struct dev_cq *cq, bool solicited_only), (cq, solicited_only))
OP(int, get_cq_event, (struct dev_channel *ch, struct dev_cq **out), (ch, out))
VOID_OP(ack_cq_events, (struct dev_cq *cq, unsigned int n), (cq, n))
OP(int, start_poll, (struct dev_cq *cq, const struct ibv_poll_cq_attr *attr),
   (cq, attr))
OP(int, next_poll, (struct dev_cq *cq), (cq))
VOID_OP(end_poll, (struct dev_cq *cq), (cq))
OP(int, create_srq, (struct dev_pd *pd, struct ibv_srq_init_attr *attr,
   struct dev_srq **out), (pd, attr, out))
OP(int, create_srq_ex, (struct dev_ctx *ctx, struct ibv_srq_init_attr_ex *attr,
   struct dev_srq **out), (ctx, attr, out))
OP(int, modify_srq, (struct dev_srq *srq, const struct ibv_srq_attr *attr, int mask),
   (srq, attr, mask))
OP(int, query_srq, (struct dev_srq *srq, struct ibv_srq_attr *attr), (srq, attr))
OP(int, get_srq_num, (const struct dev_srq *srq, uint32_t *number), (srq, number))
OP(int, post_srq_recv, (struct dev_srq *srq, struct ibv_recv_wr *wr,
   struct ibv_recv_wr **bad), (srq, wr, bad))
OP(int, destroy_srq, (struct dev_srq *srq), (srq))
OP(int, create_qp, (struct dev_pd *pd, struct ibv_qp_init_attr *attr,
   struct dev_qp **out), (pd, attr, out))
OP(int, create_qp_ex, (struct dev_ctx *ctx, struct ibv_qp_init_attr_ex *attr,
   struct dev_qp **out), (ctx, attr, out))
OP(int, open_qp, (struct dev_ctx *ctx, const struct ibv_qp_open_attr *attr,
   struct dev_qp **out), (ctx, attr, out))
OP(int, modify_qp, (struct dev_qp *qp, const struct ibv_qp_attr *attr, int mask),
   (qp, attr, mask))
OP(int, query_qp, (struct dev_qp *qp, struct ibv_qp_attr *attr, int mask,
   struct ibv_qp_init_attr *init), (qp, attr, mask, init))
OP(int, query_qp_data_in_order, (struct dev_qp *qp, enum ibv_wr_opcode opcode,
   uint32_t flags), (qp, opcode, flags))
OP(int, set_ece, (struct dev_qp *qp, struct ibv_ece *ece), (qp, ece))
OP(int, query_ece, (struct dev_qp *qp, struct ibv_ece *ece), (qp, ece))
OP(int, attach_mcast, (struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid),
   (qp, gid, lid))
OP(int, detach_mcast, (struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid),
   (qp, gid, lid))
OP(int, post_send, (struct dev_qp *qp, struct ibv_send_wr *wr,
   struct ibv_send_wr **bad), (qp, wr, bad))
OP(int, post_recv, (struct dev_qp *qp, struct ibv_recv_wr *wr,
   struct ibv_recv_wr **bad), (qp, wr, bad))
OP(int, destroy_qp, (struct dev_qp *qp), (qp))
VOID_OP(wr_start, (struct dev_qp *qp), (qp))
OP(int, wr_complete, (struct dev_qp *qp), (qp))
VOID_OP(wr_abort, (struct dev_qp *qp), (qp))
OP(int, create_ah, (struct dev_pd *pd, const struct ibv_ah_attr *attr,
   struct dev_ah **out), (pd, attr, out))
OP(int, create_ah_from_wc, (struct dev_pd *pd, const struct ibv_wc *wc,
   const struct ibv_grh *grh, uint8_t port, struct dev_ah **out),
   (pd, wc, grh, port, out))
OP(int, init_ah_from_wc, (struct dev_ctx *ctx, uint8_t port, const struct ibv_wc *wc,
   const struct ibv_grh *grh, struct ibv_ah_attr *attr), (ctx, port, wc, grh, attr))
OP(int, destroy_ah, (struct dev_ah *ah), (ah))
OP(int, unsupported, (const char *verb), (verb))

BUILD(wr_send, (struct ibv_qp_ex *qp), (qp))
BUILD(wr_send_imm, (struct ibv_qp_ex *qp, __be32 imm), (qp, imm))
BUILD(wr_send_inv, (struct ibv_qp_ex *qp, uint32_t rkey), (qp, rkey))
BUILD(wr_send_tso, (struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz, uint16_t mss),
   (qp, hdr, hdr_sz, mss))
BUILD(wr_rdma_write, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr),
   (qp, rkey, raddr))
BUILD(wr_rdma_write_imm, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
   __be32 imm), (qp, rkey, raddr, imm))
BUILD(wr_rdma_read, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr),
   (qp, rkey, raddr))
BUILD(wr_atomic_cmp_swp, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
   uint64_t compare, uint64_t swap), (qp, rkey, raddr, compare, swap))
BUILD(wr_atomic_fetch_add, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
   uint64_t add), (qp, rkey, raddr, add))
BUILD(wr_atomic_write, (struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
   const void *word), (qp, rkey, raddr, word))
BUILD(wr_bind_mw, (struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
   const struct ibv_mw_bind_info *info), (qp, mw, rkey, info))
BUILD(wr_local_inv, (struct ibv_qp_ex *qp, uint32_t rkey), (qp, rkey))
BUILD(wr_set_sge, (struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length),
   (qp, lkey, addr, length))
BUILD(wr_set_sge_list, (struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *sges),
   (qp, n, sges))
BUILD(wr_set_inline_data, (struct ibv_qp_ex *qp, void *addr, size_t length),
   (qp, addr, length))
BUILD(wr_set_inline_data_list, (struct ibv_qp_ex *qp, size_t n,
   const struct ibv_data_buf *bufs), (qp, n, bufs))
BUILD(wr_set_ud_addr, (struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t remote_qpn,
   uint32_t remote_qkey), (qp, ah, remote_qpn, remote_qkey))
BUILD(wr_set_xrc_srqn, (struct ibv_qp_ex *qp, uint32_t srqn), (qp, srqn))

READ(enum ibv_wc_opcode, read_opcode)
READ(uint32_t, read_vendor_err)
READ(uint32_t, read_byte_len)
READ(__be32, read_imm_data)
READ(uint32_t, read_qp_num)
READ(uint32_t, read_src_qp)
READ(unsigned int, read_wc_flags)
READ(uint32_t, read_slid)
READ(uint8_t, read_sl)
READ(uint8_t, read_dlid_path_bits)
READ(uint64_t, read_completion_ts)
READ(uint64_t, read_completion_wallclock_ns)

#define SET(name) .name = count_##name
static const struct dev_build_ops count_build_ops = {
	SET(wr_send), SET(wr_send_imm), SET(wr_send_inv), SET(wr_send_tso),
	SET(wr_rdma_write), SET(wr_rdma_write_imm), SET(wr_rdma_read),
	SET(wr_atomic_cmp_swp), SET(wr_atomic_fetch_add), SET(wr_atomic_write),
	SET(wr_bind_mw), SET(wr_local_inv), SET(wr_set_sge), SET(wr_set_sge_list),
	SET(wr_set_inline_data), SET(wr_set_inline_data_list), SET(wr_set_ud_addr),
	SET(wr_set_xrc_srqn),
};

static const struct dev_read_ops count_read_ops = {
	SET(read_opcode), SET(read_vendor_err), SET(read_byte_len), SET(read_imm_data),
	SET(read_qp_num), SET(read_src_qp), SET(read_wc_flags), SET(read_slid),
	SET(read_sl), SET(read_dlid_path_bits), SET(read_completion_ts),
	SET(read_completion_wallclock_ns),
};

static const struct dev_ops count_ops = {
	SET(get_device_list), SET(open_device), SET(close_device), SET(get_async_event),
	SET(ack_async_event), SET(query_device), SET(query_device_ex),
	SET(query_rt_values), SET(query_port), SET(query_gid), SET(query_gid_ex),
	SET(query_gid_table), SET(query_gid_type), SET(query_pkey), SET(get_pkey_index),
	SET(alloc_pd), SET(alloc_parent_domain), SET(dealloc_pd), SET(alloc_td),
	SET(dealloc_td), SET(open_xrcd), SET(close_xrcd), SET(reg_mr),
	SET(alloc_null_mr), SET(rereg_mr), SET(advise_mr), SET(dereg_mr), SET(alloc_mw),
	SET(bind_mw), SET(dealloc_mw), SET(create_comp_channel),
	SET(destroy_comp_channel), SET(create_cq), SET(create_cq_ex), SET(modify_cq),
	SET(resize_cq), SET(destroy_cq), SET(poll_cq), SET(req_notify_cq),
	SET(get_cq_event), SET(ack_cq_events), SET(start_poll), SET(next_poll),
	SET(end_poll), SET(create_srq), SET(create_srq_ex), SET(modify_srq),
	SET(query_srq), SET(get_srq_num), SET(post_srq_recv), SET(destroy_srq),
	SET(create_qp), SET(create_qp_ex), SET(open_qp), SET(modify_qp), SET(query_qp),
	SET(query_qp_data_in_order), SET(set_ece), SET(query_ece), SET(attach_mcast),
	SET(detach_mcast), SET(post_send), SET(post_recv), SET(destroy_qp),
	SET(wr_start), SET(wr_complete), SET(wr_abort), SET(create_ah),
	SET(create_ah_from_wc), SET(init_ah_from_wc), SET(destroy_ah), SET(unsupported),
	.build = &count_build_ops, .read = &count_read_ops,
};

/* clang-format on */
#undef OP
#undef VOID_OP
#undef BUILD
#undef READ
#undef SET

#endif
