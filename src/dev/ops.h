/* SPDX-License-Identifier: BSD-2-Clause */
/* The table that every verb passes. src/verbs has the functions that an application
 * calls: it refuses objects that are NULL or overwritten, calls the member of the verb,
 * and turns the result into what the verb returns. A tracer or a checker puts its own
 * table in front (dev_ops_put_in_front()): a member of it does its work and calls the same
 * member of the table behind.
 *
 * For all members, unless a group or a member says otherwise:
 *  - The member is named like the verb, without ibv_.
 *  - The result is 0 or -errno. What is made or asked for is stored through the last
 *    parameter, on success only.
 *  - It is called in a thread of the application, which holds no lock of ours. Calls for
 *    one object may come from several threads at once, but none comes after the object's
 *    destruction.
 *  - Objects are not NULL, and, but for posting and polling, their context and handle are
 *    those that they were made with (dev/object.h). Objects in attributes are not checked
 *    before. Other pointers are the application's own and are not checked;
 *    a member does not keep them.
 *  - It does not block.
 *  - It is not called for objects that a forked child has from its parent: there verbs
 *    fail in src/verbs.
 *
 * These calls do not pass the table: those that read what the application holds already
 * (ibv_get_device_name, _guid and _index, ibv_qp_to_qp_ex, ibv_free_device_list); names
 * of enums, rates and copies of structs; ibv_fork_init() and ibv_is_fork_initialized();
 * what verbs.h itself refuses, as a context has no function for it (flows, counters,
 * device memory, work queues); and what is exported for old binaries and for provider
 * libraries (verbs/compat.c, verbs/private34.c). */
#ifndef ANYRDMA_DEV_OPS_H
#define ANYRDMA_DEV_OPS_H

#include "dev/dev.h"

#include <sys/types.h>

struct dev_ah;

/* Building requests between wr_start and wr_complete. These are called through pointers
 * in the QP itself: src/verbs copies them there when the QP is made, so they have the
 * signatures of verbs.h. None of them returns an error: the first one is remembered, and
 * wr_complete returns it. */
struct dev_build_ops {
	void (*wr_send)(struct ibv_qp_ex *qp);
	void (*wr_send_imm)(struct ibv_qp_ex *qp, __be32 imm);
	void (*wr_send_inv)(struct ibv_qp_ex *qp, uint32_t rkey);
	void (*wr_send_tso)(struct ibv_qp_ex *qp, void *hdr, uint16_t hdr_sz,
			    uint16_t mss);
	void (*wr_rdma_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				  __be32 imm);
	void (*wr_rdma_read)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr);
	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				  uint64_t compare, uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				    uint64_t add);
	void (*wr_atomic_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t raddr,
				const void *word);
	void (*wr_bind_mw)(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
			   const struct ibv_mw_bind_info *info);
	void (*wr_local_inv)(struct ibv_qp_ex *qp, uint32_t rkey);
	void (*wr_set_sge)(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
			   uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *qp, size_t n,
				const struct ibv_sge *sges);
	void (*wr_set_inline_data)(struct ibv_qp_ex *qp, void *addr, size_t length);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *qp, size_t n,
					const struct ibv_data_buf *bufs);
	void (*wr_set_ud_addr)(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			       uint32_t remote_qpn, uint32_t remote_qkey);
	void (*wr_set_xrc_srqn)(struct ibv_qp_ex *qp, uint32_t srqn);
};

/* Reading the fields of the completion at which start_poll or next_poll has stopped. They
 * are called through pointers in the CQ, like those above. A field that the CQ was not
 * made with (wc_flags) is refused by src/verbs. */
struct dev_read_ops {
	enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *cq);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *cq);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *cq);
	__be32 (*read_imm_data)(struct ibv_cq_ex *cq);
	uint32_t (*read_qp_num)(struct ibv_cq_ex *cq);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *cq);
	unsigned int (*read_wc_flags)(struct ibv_cq_ex *cq);
	uint32_t (*read_slid)(struct ibv_cq_ex *cq);
	uint8_t (*read_sl)(struct ibv_cq_ex *cq);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *cq);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *cq);
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *cq);
};

struct dev_ops {
	/* ---- devices and contexts ----
	 * get_device_list: the array ends with NULL and belongs to the caller
	 * (free()). */
	int (*get_device_list)(struct ibv_device ***out);
	int (*open_device)(struct ibv_device *device, struct dev_ctx **out);
	int (*close_device)(struct dev_ctx *ctx);
	/* Waits for an event, unless async_fd is non-blocking (-EAGAIN). */
	int (*get_async_event)(struct dev_ctx *ctx, struct ibv_async_event *event);
	void (*ack_async_event)(const struct ibv_async_event *event);

	/* ---- what the device says of itself ----
	 * `size`: so many bytes of the struct are filled. query_gid_table returns how
	 * many entries there are. query_pkey and get_pkey_index: in network order. */
	int (*query_device)(struct dev_ctx *ctx, struct ibv_device_attr *attr);
	int (*query_device_ex)(struct dev_ctx *ctx,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size);
	int (*query_rt_values)(struct dev_ctx *ctx, struct ibv_values_ex *values);
	int (*query_port)(struct dev_ctx *ctx, uint8_t port, struct ibv_port_attr *attr,
			  size_t size);
	int (*query_gid)(struct dev_ctx *ctx, uint32_t port, uint32_t index,
			 union ibv_gid *gid);
	int (*query_gid_ex)(struct dev_ctx *ctx, uint32_t port, uint32_t index,
			    struct ibv_gid_entry *entry, uint32_t flags, size_t size);
	ssize_t (*query_gid_table)(struct dev_ctx *ctx, struct ibv_gid_entry *entries,
				   size_t max, uint32_t flags, size_t size);
	int (*query_gid_type)(struct dev_ctx *ctx, uint32_t port, uint32_t index,
			      unsigned int *type);
	int (*query_pkey)(struct dev_ctx *ctx, uint8_t port, int index, __be16 *pkey);
	int (*get_pkey_index)(struct dev_ctx *ctx, uint8_t port, __be16 pkey, int *index);

	/* ---- domains ----
	 * Each is -EBUSY to destroy while something was made on it. */
	int (*alloc_pd)(struct dev_ctx *ctx, struct dev_pd **out);
	int (*alloc_parent_domain)(struct dev_ctx *ctx,
				   const struct ibv_parent_domain_init_attr *attr,
				   struct dev_pd **out);
	int (*dealloc_pd)(struct dev_pd *pd);
	int (*alloc_td)(struct dev_ctx *ctx, const struct ibv_td_init_attr *attr,
			struct dev_td **out);
	int (*dealloc_td)(struct dev_td *td);
	int (*open_xrcd)(struct dev_ctx *ctx, const struct ibv_xrcd_init_attr *attr,
			 struct dev_xrcd **out);
	int (*close_xrcd)(struct dev_xrcd *xrcd);

	/* ---- memory ----
	 * rereg_mr and dereg_mr wait until no transfer uses the region. reg_mr is also
	 * ibv_reg_mr_iova and ibv_reg_mr_iova2. rereg_mr returns 0 or IBV_REREG_MR_ERR_*,
	 * and errno says why; pd may be NULL. bind_mw posts to the QP. */
	int (*reg_mr)(struct dev_pd *pd, void *addr, size_t len, uint64_t iova,
		      unsigned access, struct dev_mr **out);
	int (*alloc_null_mr)(struct dev_pd *pd, struct dev_mr **out);
	int (*rereg_mr)(struct dev_mr *mr, int flags, struct dev_pd *pd, void *addr,
			size_t len, unsigned access);
	int (*advise_mr)(struct dev_pd *pd, enum ibv_advise_mr_advice advice,
			 uint32_t flags, const struct ibv_sge *sges, uint32_t n);
	int (*dereg_mr)(struct dev_mr *mr);
	int (*alloc_mw)(struct dev_pd *pd, enum ibv_mw_type type, struct dev_mw **out);
	int (*bind_mw)(struct dev_qp *qp, struct dev_mw *mw,
		       const struct ibv_mw_bind *bind);
	int (*dealloc_mw)(struct dev_mw *mw);

	/* ---- completion queues ----
	 * destroy_cq waits until the CQ's events are acknowledged. get_cq_event waits for
	 * an event, unless the channel's fd is non-blocking (-EAGAIN). ch may be NULL. */
	int (*create_comp_channel)(struct dev_ctx *ctx, struct dev_channel **out);
	int (*destroy_comp_channel)(struct dev_channel *ch);
	int (*create_cq)(struct dev_ctx *ctx, int cqe, void *cq_context,
			 struct dev_channel *ch, int vector, struct dev_cq **out);
	int (*create_cq_ex)(struct dev_ctx *ctx, const struct ibv_cq_init_attr_ex *attr,
			    struct dev_cq **out);
	int (*modify_cq)(struct dev_cq *cq, const struct ibv_modify_cq_attr *attr);
	int (*resize_cq)(struct dev_cq *cq, int cqe);
	int (*destroy_cq)(struct dev_cq *cq);
	/* How many completions were stored in wc, or a negative number. */
	int (*poll_cq)(struct dev_cq *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct dev_cq *cq, bool solicited_only);
	int (*get_cq_event)(struct dev_channel *ch, struct dev_cq **out);
	void (*ack_cq_events)(struct dev_cq *cq, unsigned int n);
	/* -ENOENT: the CQ is empty. A start_poll that succeeds is followed by
	 * end_poll in the same thread; a second one waits for that. */
	int (*start_poll)(struct dev_cq *cq, const struct ibv_poll_cq_attr *attr);
	int (*next_poll)(struct dev_cq *cq);
	void (*end_poll)(struct dev_cq *cq);
	const struct dev_read_ops *read;

	/* ---- shared receive queues ----
	 * destroy_srq waits until the SRQ's events are acknowledged. The capacities that
	 * were granted are written to attr. post_srq_recv: as post_recv. */
	int (*create_srq)(struct dev_pd *pd, struct ibv_srq_init_attr *attr,
			  struct dev_srq **out);
	int (*create_srq_ex)(struct dev_ctx *ctx, struct ibv_srq_init_attr_ex *attr,
			     struct dev_srq **out);
	int (*modify_srq)(struct dev_srq *srq, const struct ibv_srq_attr *attr, int mask);
	int (*query_srq)(struct dev_srq *srq, struct ibv_srq_attr *attr);
	int (*get_srq_num)(const struct dev_srq *srq, uint32_t *number);
	int (*post_srq_recv)(struct dev_srq *srq, struct ibv_recv_wr *wr,
			     struct ibv_recv_wr **bad);
	int (*destroy_srq)(struct dev_srq *srq);

	/* ---- queue pairs ----
	 * destroy_qp waits until the QP's events are acknowledged. The capacities that
	 * were granted are written to attr. qp may be a handle of open_qp; modify_qp,
	 * query_qp and destroy_qp are for handles, too. query_qp_data_in_order returns
	 * its answer. */
	int (*create_qp)(struct dev_pd *pd, struct ibv_qp_init_attr *attr,
			 struct dev_qp **out);
	int (*create_qp_ex)(struct dev_ctx *ctx, struct ibv_qp_init_attr_ex *attr,
			    struct dev_qp **out);
	int (*open_qp)(struct dev_ctx *ctx, const struct ibv_qp_open_attr *attr,
		       struct dev_qp **out);
	int (*modify_qp)(struct dev_qp *qp, const struct ibv_qp_attr *attr, int mask);
	int (*query_qp)(struct dev_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init);
	int (*query_qp_data_in_order)(struct dev_qp *qp, enum ibv_wr_opcode opcode,
				      uint32_t flags);
	int (*set_ece)(struct dev_qp *qp, struct ibv_ece *ece);
	int (*query_ece)(struct dev_qp *qp, struct ibv_ece *ece);
	int (*attach_mcast)(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid);
	int (*detach_mcast)(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid);
	/* On failure *bad is the request that was refused; those before it are posted. */
	int (*post_send)(struct dev_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad);
	int (*post_recv)(struct dev_qp *qp, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad);
	int (*destroy_qp)(struct dev_qp *qp);
	/* From wr_start to wr_complete or wr_abort, other threads that call wr_start or
	 * post_send for the QP wait. */
	void (*wr_start)(struct dev_qp *qp);
	int (*wr_complete)(struct dev_qp *qp);
	void (*wr_abort)(struct dev_qp *qp);
	const struct dev_build_ops *build;

	/* ---- address handles ---- */
	int (*create_ah)(struct dev_pd *pd, const struct ibv_ah_attr *attr,
			 struct dev_ah **out);
	int (*create_ah_from_wc)(struct dev_pd *pd, const struct ibv_wc *wc,
				 const struct ibv_grh *grh, uint8_t port,
				 struct dev_ah **out);
	int (*init_ah_from_wc)(struct dev_ctx *ctx, uint8_t port, const struct ibv_wc *wc,
			       const struct ibv_grh *grh, struct ibv_ah_attr *attr);
	int (*destroy_ah)(struct dev_ah *ah);

	/* A verb that this device does not have, by its full name (verbs/refuse.c). */
	int (*unsupported)(const char *verb);
};

/* The device's own table, the last in a row of tables. */
extern const struct dev_ops dev_ops_device;

extern const struct dev_ops *_Atomic dev_ops_current;

/* The table that verbs call. Relaxed: tables are constant, and
 * one is put in front only while no verb runs. */
static inline const struct dev_ops *dev_ops(void)
{
	return atomic_load_explicit(&dev_ops_current, memory_order_relaxed);
}

/* Verbs call `front` from now on. The caller has stored dev_ops() before, as the table
 * behind. To take the table away, put that one in front again. The caller sees to it that
 * no verb runs meanwhile. -EBUSY: a context is open, whose QPs and CQs may have copies of
 * members of the present table. */
int dev_ops_put_in_front(const struct dev_ops *front);

#endif
