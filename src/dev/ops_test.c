/* SPDX-License-Identifier: BSD-2-Clause */
/* Every verb passes the table: an application's calls are made with and without a table
 * in front that counts. With it each call is counted once, at its own member; the results
 * are the same. What the table refuses is in errno, whatever the verb returns. */
#include "tests/t.h"

#include "dev/fake_transport.h"

#include "dev/count_ops_test.h"

#include <arpa/inet.h>
#include <sys/wait.h>

/* A macro over a function that is tested, too. */
#undef ibv_query_port
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
		       unsigned int *type);

/* ---- calls and their results --------------------------------------------- */

enum { CALLS = 256 };

static struct {
	bool counting;	  /* the counting table is in front */
	bool seen[SLOTS]; /* was called */
	int results[2][CALLS];
	unsigned n; /* calls of this run */
} walk;

static void call_begin(void)
{
	memset(counted, 0, sizeof(counted));
	errno = 0;
}

static void call_end(size_t slot, int result, const char *what)
{
	unsigned sum = 0;

	for (size_t i = 0; i < SLOTS; i++)
		sum += counted[i];
	if (sum != walk.counting || counted[slot] != walk.counting) {
		diag("%s: %u calls were counted, %u of it", what, sum, counted[slot]);
		CHECK(false);
	}
	walk.seen[slot] = true;
	REQUIRE(walk.n < CALLS);
	walk.results[walk.counting][walk.n++] = result;
}

/* Those that are not said to set errno: they report by other means, or, like a poll of an
 * empty CQ, what is no error. */
static bool leaves_errno(size_t slot)
{
	return slot == OP_SLOT(rereg_mr) || slot == OP_SLOT(query_qp_data_in_order) ||
	       slot == OP_SLOT(poll_cq) || slot == OP_SLOT(start_poll) ||
	       slot == OP_SLOT(next_poll) || slot >= OPS_SLOTS;
}

static bool refuse_begin(size_t slot)
{
	if (!walk.counting || leaves_errno(slot))
		return false;
	refuse_with = EDOM; /* which no verb says by itself */
	errno = 0;
	return true;
}

static void refuse_end(const char *what)
{
	refuse_with = 0;
	if (!CHECK_EQ(errno, EDOM))
		diag("%s", what);
}

/* One call of a verb: of those that return nothing, an int, or a pointer. */
#define CALL_VOID(slot, call) \
	do { \
		call_begin(); \
		call; \
		call_end(slot, 0, #call); \
	} while (0)
#define CALL(slot, call) \
	do { \
		int result_; \
		if (refuse_begin(slot)) { \
			(void)(call); \
			refuse_end(#call); \
		} \
		call_begin(); \
		result_ = (int)(call); \
		call_end(slot, result_ < 0 ? -errno : result_, #call); \
	} while (0)
#define CALL_PTR(slot, call) \
	do { \
		bool made_; \
		if (refuse_begin(slot)) { \
			(void)(call); \
			refuse_end(#call); \
		} \
		call_begin(); \
		made_ = (call) != NULL; \
		call_end(slot, made_ ? 0 : errno, #call); \
	} while (0)

/* ---- the objects --------------------------------------------------------- */

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_xrcd *xrcd;
	struct ibv_mr *mr, *null;
	struct ibv_mw *mw;
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	struct ibv_cq_ex *cq_ex;
	struct ibv_srq *srq, *xsrq;
	struct ibv_qp *qp, *exqp, *target, *handle;
	struct ibv_qp_ex *ex;
	struct ibv_ah *ah;
	struct ibv_sge sge;
	uint64_t buf[8];
} o;

static void call_device(void)
{
	struct ibv_device **list = NULL;
	int n = 0;

	CALL_PTR(OP_SLOT(get_device_list), list = ibv_get_device_list(&n));
	CHECK_EQ(n, 1);
	CALL_PTR(OP_SLOT(open_device), o.ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
}

static void call_queries(void)
{
	struct ibv_device_attr attr;
	struct ibv_device_attr_ex attr_ex;
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, entries[DEV_GIDS];
	union ibv_gid gid;
	unsigned int type;
	__be16 pkey;

	CALL(OP_SLOT(query_device), ibv_query_device(o.ctx, &attr));
	CALL(OP_SLOT(query_device_ex), ibv_query_device_ex(o.ctx, NULL, &attr_ex));
	CALL(OP_SLOT(query_rt_values), ibv_query_rt_values_ex(o.ctx, &values));
	CALL(OP_SLOT(query_port), ___ibv_query_port(o.ctx, 1, &port));
	CALL(OP_SLOT(query_port),
	     ibv_query_port(o.ctx, 2, (struct _compat_ibv_port_attr *)&port));
	CALL(OP_SLOT(query_gid), ibv_query_gid(o.ctx, 1, 0, &gid));
	CALL(OP_SLOT(query_gid), ibv_query_gid(o.ctx, 1, DEV_GIDS, &gid));
	CALL(OP_SLOT(query_gid_ex), ibv_query_gid_ex(o.ctx, 1, 0, &entry, 0));
	CALL(OP_SLOT(query_gid_ex), ibv_query_gid_ex(o.ctx, 1, 0, &entry, 1));
	CALL(OP_SLOT(query_gid_table),
	     ibv_query_gid_table(o.ctx, entries, DEV_GIDS, 0) > 0);
	CALL(OP_SLOT(query_gid_table), -ibv_query_gid_table(o.ctx, entries, 0, 0));
	CALL(OP_SLOT(query_gid_type), ibv_query_gid_type(o.ctx, 1, 0, &type));
	CALL(OP_SLOT(query_pkey), ibv_query_pkey(o.ctx, 1, 0, &pkey));
	CALL(OP_SLOT(get_pkey_index), ibv_get_pkey_index(o.ctx, 1, pkey));
	CALL(OP_SLOT(get_pkey_index), ibv_get_pkey_index(o.ctx, 1, 0));
}

static void call_domains(void)
{
	struct ibv_td_init_attr ta = { 0 };
	struct ibv_parent_domain_init_attr pa = { 0 };
	struct ibv_xrcd_init_attr xa = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	CALL_PTR(OP_SLOT(alloc_pd), o.pd = ibv_alloc_pd(o.ctx));
	CALL_PTR(OP_SLOT(alloc_td), o.td = ibv_alloc_td(o.ctx, &ta));
	pa.pd = o.pd;
	pa.td = o.td;
	CALL_PTR(OP_SLOT(alloc_parent_domain),
		 o.parent = ibv_alloc_parent_domain(o.ctx, &pa));
	CALL(OP_SLOT(dealloc_pd), ibv_dealloc_pd(o.pd)); /* EBUSY */
	CALL_PTR(OP_SLOT(open_xrcd), o.xrcd = ibv_open_xrcd(o.ctx, &xa));
}

static void call_memory(void)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	const uint64_t addr = (uintptr_t)o.buf;
	struct ibv_mr *other = NULL;

	CALL_PTR(OP_SLOT(reg_mr), o.mr = ibv_reg_mr(o.pd, o.buf, sizeof(o.buf), access));
	CALL_PTR(OP_SLOT(reg_mr), ibv_reg_mr(o.pd, NULL, SIZE_MAX / 2, access));
	CALL_PTR(OP_SLOT(reg_mr),
		 other = ibv_reg_mr_iova2(o.pd, o.buf, 8, 0x1000 + addr, 0));
	REQUIRE(o.mr && other);
	o.sge = (struct ibv_sge){ (uintptr_t)o.buf, sizeof(o.buf), o.mr->lkey };
	CALL(OP_SLOT(rereg_mr),
	     ibv_rereg_mr(other, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, access));
	CALL(OP_SLOT(rereg_mr), ibv_rereg_mr(other, 0, NULL, NULL, 0, 0));
	CALL(OP_SLOT(dereg_mr), ibv_dereg_mr(other));
	CALL(OP_SLOT(advise_mr),
	     ibv_advise_mr(o.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &o.sge, 1));
	CALL_PTR(OP_SLOT(alloc_null_mr), o.null = ibv_alloc_null_mr(o.pd));
	CALL_PTR(OP_SLOT(alloc_mw), o.mw = ibv_alloc_mw(o.pd, IBV_MW_TYPE_1));
	CALL_PTR(OP_SLOT(unsupported), ibv_reg_dmabuf_mr(o.pd, 0, 8, 0, -1, access));
	CALL_PTR(OP_SLOT(unsupported), ibv_import_pd(o.ctx, 1));
}

static void call_cqs(void)
{
	struct ibv_cq_init_attr_ex a = {
		.cqe = 16,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_modify_cq_attr m = { .attr_mask = IBV_CQ_ATTR_MODERATE };

	CALL_PTR(OP_SLOT(create_comp_channel), o.ch = ibv_create_comp_channel(o.ctx));
	CALL_PTR(OP_SLOT(create_cq), o.cq = ibv_create_cq(o.ctx, 16, NULL, o.ch, 0));
	CALL_PTR(OP_SLOT(create_cq), ibv_create_cq(o.ctx, 0, NULL, NULL, 0));
	CALL_PTR(OP_SLOT(create_cq_ex), o.cq_ex = ibv_create_cq_ex(o.ctx, &a));
	CALL(OP_SLOT(modify_cq), ibv_modify_cq(o.cq, &m));
	CALL(OP_SLOT(resize_cq), ibv_resize_cq(o.cq, 32));
	CALL(OP_SLOT(resize_cq), ibv_resize_cq(o.cq, 0));
}

static void call_srqs(void)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex x = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
		.pd = o.pd,
		.xrcd = o.xrcd,
		.cq = o.cq,
	};
	struct ibv_srq_attr limit = { .srq_limit = 1 }, many = { .srq_limit = 5 };
	struct ibv_recv_wr wr = { .sg_list = &o.sge, .num_sge = 1 }, *bad;
	uint32_t number;

	CALL_PTR(OP_SLOT(create_srq), o.srq = ibv_create_srq(o.pd, &a));
	CALL_PTR(OP_SLOT(create_srq_ex), o.xsrq = ibv_create_srq_ex(o.ctx, &x));
	CALL(OP_SLOT(modify_srq), ibv_modify_srq(o.srq, &limit, IBV_SRQ_LIMIT));
	CALL(OP_SLOT(modify_srq), ibv_modify_srq(o.srq, &many, IBV_SRQ_LIMIT));
	CALL(OP_SLOT(query_srq), ibv_query_srq(o.srq, &limit));
	CALL(OP_SLOT(get_srq_num), ibv_get_srq_num(o.xsrq, &number));
	CALL(OP_SLOT(get_srq_num), ibv_get_srq_num(o.srq, &number));
	CALL(OP_SLOT(post_srq_recv), ibv_post_srq_recv(o.srq, &wr, &bad));
	wr.num_sge = 2;
	CALL(OP_SLOT(post_srq_recv), ibv_post_srq_recv(o.srq, &wr, &bad));
	CHECK(bad == &wr);
}

static void call_create_qps(void)
{
	struct ibv_qp_init_attr a = {
		.cap = { 8, 8, 2, 2, 64 },
		.qp_type = IBV_QPT_RC,
		.send_cq = o.cq,
		.recv_cq = o.cq,
	};
	struct ibv_qp_init_attr_ex x = {
		.cap = { 8, 8, 2, 2, 64 },
		.qp_type = IBV_QPT_RC,
		.send_cq = ibv_cq_ex_to_cq(o.cq_ex),
		.recv_cq = ibv_cq_ex_to_cq(o.cq_ex),
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = o.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct ibv_qp_init_attr_ex t = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
		.xrcd = o.xrcd,
	};
	struct ibv_qp_open_attr h = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.xrcd = o.xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	CALL_PTR(OP_SLOT(create_qp), o.qp = ibv_create_qp(o.pd, &a));
	CALL_PTR(OP_SLOT(create_qp_ex), o.exqp = ibv_create_qp_ex(o.ctx, &x));
	o.ex = ibv_qp_to_qp_ex(o.exqp);
	CALL_PTR(OP_SLOT(create_qp_ex), o.target = ibv_create_qp_ex(o.ctx, &t));
	h.qp_num = o.target->qp_num;
	CALL_PTR(OP_SLOT(open_qp), o.handle = ibv_open_qp(o.ctx, &h));
}

static void call_qp_attributes(void)
{
	struct ibv_qp_attr a = rig_attr(IBV_QPS_INIT), q;
	struct ibv_qp_init_attr init;
	struct ibv_ece ece;
	union ibv_gid gid = { .raw = { 0xff } };

	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.qp, &a, INIT_MASK));
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.exqp, &a, INIT_MASK));
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.handle, &a, INIT_MASK));
	CHECK_EQ(o.handle->state, IBV_QPS_INIT);
	CALL(OP_SLOT(query_ece), ibv_query_ece(o.qp, &ece));
	CALL(OP_SLOT(set_ece), ibv_set_ece(o.qp, &ece));
	ece.vendor_id++;
	CALL(OP_SLOT(set_ece), ibv_set_ece(o.qp, &ece));
	a.qp_state = IBV_QPS_RTR;
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.qp, &a, RTR_MASK));
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.exqp, &a, RTR_MASK));
	a.qp_state = IBV_QPS_RTS;
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.qp, &a, IBV_QP_STATE)); /* too little */
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.qp, &a, RTS_MASK));
	CALL(OP_SLOT(modify_qp), ibv_modify_qp(o.exqp, &a, RTS_MASK));
	CALL(OP_SLOT(query_qp), ibv_query_qp(o.qp, &q, IBV_QP_STATE, &init));
	CHECK_EQ(q.qp_state, IBV_QPS_RTS);
	CALL(OP_SLOT(query_qp), ibv_query_qp(o.handle, &q, IBV_QP_STATE, &init));
	CALL(OP_SLOT(query_qp_data_in_order),
	     ibv_query_qp_data_in_order(o.qp, IBV_WR_RDMA_WRITE, 0));
	CALL(OP_SLOT(attach_mcast), ibv_attach_mcast(o.qp, &gid, 0));
	CALL(OP_SLOT(detach_mcast), ibv_detach_mcast(o.qp, &gid, 0));
}

static void finish_sends(struct ibv_qp *qp)
{
	struct rig r = { .qp = qp };

	rig_finish(&r, (int)(to_qp(qp)->sq.tail - to_qp(qp)->sq.next));
}

static void call_posts(void)
{
	struct ibv_send_wr s = { .sg_list = &o.sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_recv_wr r = { .sg_list = &o.sge, .num_sge = 1 }, *rbad;
	struct ibv_mw_bind bind = {
		.bind_info = { .mr = o.mr, .addr = (uintptr_t)o.buf, .length = 8 }
	};
	struct ibv_cq *cq;
	struct ibv_wc wc[4];
	void *context;

	CALL(OP_SLOT(req_notify_cq), ibv_req_notify_cq(o.cq, 0));
	CALL(OP_SLOT(post_send), ibv_post_send(o.qp, &s, &bad));
	CALL(OP_SLOT(bind_mw), ibv_bind_mw(o.qp, o.mw, &bind));
	CALL(OP_SLOT(post_recv), ibv_post_recv(o.qp, &r, &rbad));
	s.num_sge = r.num_sge = 3;
	CALL(OP_SLOT(post_send), ibv_post_send(o.qp, &s, &bad));
	CHECK(bad == &s);
	CALL(OP_SLOT(post_recv), ibv_post_recv(o.qp, &r, &rbad));
	CHECK(rbad == &r);
	finish_sends(o.qp);
	CALL(OP_SLOT(get_cq_event), ibv_get_cq_event(o.ch, &cq, &context));
	CHECK(cq == o.cq);
	CALL_VOID(OP_SLOT(ack_cq_events), ibv_ack_cq_events(o.cq, 1));
	CALL(OP_SLOT(poll_cq), ibv_poll_cq(o.cq, 4, wc));
	CALL(OP_SLOT(poll_cq), ibv_poll_cq(o.cq, 4, wc));
}

static void call_builders(void)
{
	struct ibv_data_buf buf = { o.buf, 8 };
	struct ibv_mw_bind_info info = { .mr = o.mr };

	CALL_VOID(OP_SLOT(wr_start), ibv_wr_start(o.ex));
	CALL_VOID(BUILD_SLOT(wr_send), ibv_wr_send(o.ex));
	CALL_VOID(BUILD_SLOT(wr_send_imm), ibv_wr_send_imm(o.ex, 1));
	CALL_VOID(BUILD_SLOT(wr_send_inv), ibv_wr_send_inv(o.ex, 1));
	CALL_VOID(BUILD_SLOT(wr_send_tso), ibv_wr_send_tso(o.ex, NULL, 0, 0));
	CALL_VOID(BUILD_SLOT(wr_rdma_write), ibv_wr_rdma_write(o.ex, 1, 0));
	CALL_VOID(BUILD_SLOT(wr_rdma_write_imm), ibv_wr_rdma_write_imm(o.ex, 1, 0, 1));
	CALL_VOID(BUILD_SLOT(wr_rdma_read), ibv_wr_rdma_read(o.ex, 1, 0));
	CALL_VOID(BUILD_SLOT(wr_atomic_cmp_swp), ibv_wr_atomic_cmp_swp(o.ex, 1, 0, 1, 2));
	CALL_VOID(BUILD_SLOT(wr_atomic_fetch_add),
		  ibv_wr_atomic_fetch_add(o.ex, 1, 0, 1));
	CALL_VOID(BUILD_SLOT(wr_atomic_write), ibv_wr_atomic_write(o.ex, 1, 0, o.buf));
	CALL_VOID(BUILD_SLOT(wr_bind_mw), ibv_wr_bind_mw(o.ex, o.mw, 1, &info));
	CALL_VOID(BUILD_SLOT(wr_local_inv), ibv_wr_local_inv(o.ex, 1));
	CALL_VOID(BUILD_SLOT(wr_set_sge_list), ibv_wr_set_sge_list(o.ex, 1, &o.sge));
	CALL_VOID(BUILD_SLOT(wr_set_inline_data), ibv_wr_set_inline_data(o.ex, o.buf, 8));
	CALL_VOID(BUILD_SLOT(wr_set_inline_data_list),
		  ibv_wr_set_inline_data_list(o.ex, 1, &buf));
	CALL_VOID(BUILD_SLOT(wr_set_ud_addr), ibv_wr_set_ud_addr(o.ex, o.ah, 1, 1));
	CALL_VOID(BUILD_SLOT(wr_set_xrc_srqn), ibv_wr_set_xrc_srqn(o.ex, 1));
	CALL(OP_SLOT(wr_complete), ibv_wr_complete(o.ex)); /* the first error */

	CALL_VOID(OP_SLOT(wr_start), ibv_wr_start(o.ex));
	CALL_VOID(OP_SLOT(wr_abort), ibv_wr_abort(o.ex));
	CALL_VOID(OP_SLOT(wr_start), ibv_wr_start(o.ex));
	o.ex->wr_flags = IBV_SEND_SIGNALED;
	for (int i = 0; i < 2; i++) {
		CALL_VOID(BUILD_SLOT(wr_send), ibv_wr_send(o.ex));
		CALL_VOID(BUILD_SLOT(wr_set_sge),
			  ibv_wr_set_sge(o.ex, o.sge.lkey, o.sge.addr, 8));
	}
	CALL(OP_SLOT(wr_complete), ibv_wr_complete(o.ex));
	finish_sends(o.exqp);
}

static void call_readers(void)
{
	struct ibv_poll_cq_attr a = { 0 }, unknown = { .comp_mask = 1 };

	CALL(OP_SLOT(start_poll), ibv_start_poll(o.cq_ex, &unknown));
	CALL(OP_SLOT(start_poll), ibv_start_poll(o.cq_ex, &a));
	CALL(READ_SLOT(read_opcode), ibv_wc_read_opcode(o.cq_ex));
	CALL(READ_SLOT(read_vendor_err), ibv_wc_read_vendor_err(o.cq_ex));
	CALL(READ_SLOT(read_byte_len), ibv_wc_read_byte_len(o.cq_ex));
	CALL(READ_SLOT(read_imm_data), ibv_wc_read_imm_data(o.cq_ex));
	CALL(READ_SLOT(read_qp_num), ibv_wc_read_qp_num(o.cq_ex) == o.exqp->qp_num);
	CALL(READ_SLOT(read_src_qp), ibv_wc_read_src_qp(o.cq_ex));
	CALL(READ_SLOT(read_wc_flags), ibv_wc_read_wc_flags(o.cq_ex));
	CALL(READ_SLOT(read_slid), ibv_wc_read_slid(o.cq_ex));
	CALL(READ_SLOT(read_sl), ibv_wc_read_sl(o.cq_ex));
	CALL(READ_SLOT(read_dlid_path_bits), ibv_wc_read_dlid_path_bits(o.cq_ex));
	CALL(READ_SLOT(read_completion_ts), ibv_wc_read_completion_ts(o.cq_ex) != 0);
	CALL(READ_SLOT(read_completion_wallclock_ns),
	     ibv_wc_read_completion_wallclock_ns(o.cq_ex) != 0);
	CALL(OP_SLOT(next_poll), ibv_next_poll(o.cq_ex));
	CALL(OP_SLOT(next_poll), ibv_next_poll(o.cq_ex)); /* ENOENT */
	CALL_VOID(OP_SLOT(end_poll), ibv_end_poll(o.cq_ex));
	CALL(OP_SLOT(start_poll), ibv_start_poll(o.cq_ex, &a)); /* ENOENT */
}

static void call_events(void)
{
	struct ibv_async_event ev;

	async_qp(to_qp(o.qp), IBV_EVENT_COMM_EST);
	CALL(OP_SLOT(get_async_event), ibv_get_async_event(o.ctx, &ev));
	CHECK_EQ(ev.event_type, IBV_EVENT_COMM_EST);
	CALL_VOID(OP_SLOT(ack_async_event), ibv_ack_async_event(&ev));
	CHECK_EQ(fcntl(o.ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	CALL(OP_SLOT(get_async_event), ibv_get_async_event(o.ctx, &ev)); /* EAGAIN */
}

static void call_ahs(void)
{
	struct ibv_ah_attr a = rig_attr(IBV_QPS_RTR).ah_attr, from;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH }, without = { 0 };
	uint8_t raw[40] = { 0 };
	struct ibv_grh *grh = (struct ibv_grh *)raw;
	struct ibv_ah *other = NULL;

	/* An IPv4 header from and to the loopback address, as a datagram has it. */
	raw[20] = 0x45;
	memcpy(raw + 32, (uint8_t[]){ 127, 0, 0, 1, 127, 0, 0, 1 }, 8);
	CALL_PTR(OP_SLOT(create_ah), o.ah = ibv_create_ah(o.pd, &a));
	a.is_global = 0;
	CALL_PTR(OP_SLOT(create_ah), ibv_create_ah(o.pd, &a));
	CALL(OP_SLOT(init_ah_from_wc), ibv_init_ah_from_wc(o.ctx, 1, &wc, grh, &from));
	CALL(OP_SLOT(init_ah_from_wc),
	     ibv_init_ah_from_wc(o.ctx, 1, &without, grh, &from));
	CALL_PTR(OP_SLOT(create_ah_from_wc),
		 other = ibv_create_ah_from_wc(o.pd, &wc, grh, 1));
	CALL_PTR(OP_SLOT(create_ah_from_wc),
		 ibv_create_ah_from_wc(o.pd, &without, grh, 1));
	CALL(OP_SLOT(destroy_ah), ibv_destroy_ah(other));
}

static void call_destroys(void)
{
	CALL(OP_SLOT(destroy_ah), ibv_destroy_ah(o.ah));
	CALL(OP_SLOT(destroy_qp), ibv_destroy_qp(o.handle));
	CALL(OP_SLOT(destroy_qp), ibv_destroy_qp(o.target));
	CALL(OP_SLOT(destroy_qp), ibv_destroy_qp(o.exqp));
	CALL(OP_SLOT(destroy_qp), ibv_destroy_qp(o.qp));
	CALL(OP_SLOT(destroy_srq), ibv_destroy_srq(o.xsrq));
	CALL(OP_SLOT(destroy_srq), ibv_destroy_srq(o.srq));
	CALL(OP_SLOT(destroy_comp_channel), ibv_destroy_comp_channel(o.ch)); /* EBUSY */
	CALL(OP_SLOT(destroy_cq), ibv_destroy_cq(ibv_cq_ex_to_cq(o.cq_ex)));
	CALL(OP_SLOT(destroy_cq), ibv_destroy_cq(o.cq));
	CALL(OP_SLOT(destroy_comp_channel), ibv_destroy_comp_channel(o.ch));
	CALL(OP_SLOT(dealloc_mw), ibv_dealloc_mw(o.mw));
	CALL(OP_SLOT(dereg_mr), ibv_dereg_mr(o.null));
	CALL(OP_SLOT(dereg_mr), ibv_dereg_mr(o.mr));
	CALL(OP_SLOT(close_xrcd), ibv_close_xrcd(o.xrcd));
	CALL(OP_SLOT(dealloc_pd), ibv_dealloc_pd(o.parent));
	CALL(OP_SLOT(dealloc_td), ibv_dealloc_td(o.td));
	CALL(OP_SLOT(dealloc_pd), ibv_dealloc_pd(o.pd));
	CALL(OP_SLOT(close_device), ibv_close_device(o.ctx));
}

static void call_all(void)
{
	walk.n = 0;
	memset(&o, 0, sizeof(o));
	memset(&fake, 0, sizeof(fake));
	call_device();
	call_queries();
	call_domains();
	call_memory();
	call_cqs();
	call_srqs();
	call_create_qps();
	REQUIRE(o.parent && o.null && o.mw && o.srq && o.xsrq && o.qp && o.ex &&
		o.handle);
	call_qp_attributes();
	call_ahs();
	call_posts();
	call_builders();
	call_readers();
	call_events();
	call_destroys();
}

/* ---- the cases ----------------------------------------------------------- */

static void count_on(void)
{
	behind = dev_ops();
	CHECK(behind == &dev_ops_device);
	CHECK_EQ(dev_ops_put_in_front(&count_ops), 0);
	walk.counting = true;
}

static void count_off(void)
{
	CHECK_EQ(dev_ops_put_in_front(behind), 0);
	walk.counting = false;
}

static void every_member_is_there(void)
{
	const void *const tables[] = { &dev_ops_device,	    dev_ops_device.build,
				       dev_ops_device.read, &count_ops,
				       &count_build_ops,    &count_read_ops };
	const size_t slots[] = { OPS_SLOTS, BUILD_SLOTS, READ_SLOTS };
	slot_fn fn;

	for (size_t t = 0; t < 6; t++)
		for (size_t i = 0; i < slots[t % 3]; i++) {
			memcpy(&fn, (const char *)tables[t] + i * sizeof(fn), sizeof(fn));
			if (!CHECK(fn != NULL))
				diag("table %zu, member %zu", t, i);
		}
}

static void every_verb_is_counted_once(void)
{
	unsigned n;

	call_all();
	n = walk.n;
	count_on();
	call_all();
	count_off();
	CHECK_EQ(walk.n, n);
	for (unsigned i = 0; i < n; i++)
		if (!CHECK_EQ(walk.results[0][i], walk.results[1][i]))
			diag("call %u", i);
	walk.seen[OP_SLOT(build)] = walk.seen[OP_SLOT(read)] = true; /* other tables */
	for (size_t i = 0; i < SLOTS; i++)
		if (!CHECK(walk.seen[i]))
			diag("slot %zu was not called", i);
}

/* The errno is returned, and in errno. */
#define CHECK_IN_ERRNO(call, err) \
	do { \
		errno = 0; \
		CHECK_EQ(call, err); \
		CHECK_EQ(errno, err); \
	} while (0)

static void call_with_null(void)
{
	struct ibv_device_attr attr;
	struct ibv_qp_attr qa = { .qp_state = IBV_QPS_ERR };

	CHECK_NULL(ibv_open_device(NULL), EINVAL);
	CHECK_NULL(ibv_alloc_pd(NULL), EINVAL);
	CHECK_IN_ERRNO(ibv_query_device(NULL, &attr), EINVAL);
	CHECK_IN_ERRNO(ibv_modify_qp(NULL, &qa, IBV_QP_STATE), EINVAL);
	CHECK_IN_ERRNO(ibv_destroy_cq(NULL), EINVAL);
	ibv_ack_cq_events(NULL, 1);
}

static void null_does_not_reach_the_table(void)
{
	count_on();
	memset(counted, 0, sizeof(counted));
	call_with_null();
	for (size_t i = 0; i < SLOTS; i++)
		CHECK_EQ(counted[i], 0);
	count_off();
}

/* One object after the other says that it is of no context. */
static void call_with_overwritten(struct rig *r)
{
	struct ibv_xrcd_init_attr xa = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_td_init_attr ta = { 0 };
	struct ibv_td *td = ibv_alloc_td(r->ctx, &ta);
	struct ibv_xrcd *xrcd = ibv_open_xrcd(r->ctx, &xa);
	struct ibv_context *other = ibv_open_device(r->ctx->device);
	struct ibv_qp_attr qa = { .qp_state = IBV_QPS_ERR };

	REQUIRE(td && xrcd && other);
	memset(counted, 0, sizeof(counted));
	r->pd->context = r->scq->context = r->ch->context = r->qp->context = NULL;
	td->context = xrcd->context = other; /* verbs.h goes through it */
	CHECK_IN_ERRNO(ibv_dealloc_pd(r->pd), ENOENT);
	CHECK_NULL(ibv_reg_mr(r->pd, &qa, 1, 0), EINVAL);
	CHECK_IN_ERRNO(ibv_destroy_cq(r->scq), ENOENT);
	CHECK_IN_ERRNO(ibv_destroy_comp_channel(r->ch), ENOENT);
	CHECK_IN_ERRNO(ibv_destroy_qp(r->qp), ENOENT);
	CHECK_IN_ERRNO(ibv_modify_qp(r->qp, &qa, IBV_QP_STATE), EINVAL);
	CHECK_IN_ERRNO(ibv_dealloc_td(td), ENOENT);
	CHECK_IN_ERRNO(ibv_close_xrcd(xrcd), ENOENT);
	for (size_t i = 0; i < SLOTS; i++)
		CHECK_EQ(counted[i], 0);
	r->pd->context = r->scq->context = r->ch->context = r->qp->context = r->ctx;
	td->context = xrcd->context = r->ctx;
	CHECK_EQ(ibv_dealloc_td(td), 0);
	CHECK_EQ(ibv_close_xrcd(xrcd), 0);
	CHECK_EQ(ibv_close_device(other), 0);
}

static void overwritten_objects_do_not_reach_the_table(void)
{
	struct rig r;

	count_on();
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	call_with_overwritten(&r);
	rig_down(&r);
	count_off();
}

static int child(struct rig *r)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_port_attr port;
	struct ibv_wc wc;

	memset(counted, 0, sizeof(counted));
	if (dev_ops() != &count_ops) /* for what the child makes itself */
		return 1;
	errno = 0;
	if (ibv_post_send(r->qp, &wr, &bad) != ENODEV || bad != &wr || errno != ENODEV)
		return 2;
	if (ibv_poll_cq(r->scq, 1, &wc) != -ENODEV)
		return 3;
	if (___ibv_query_port(r->ctx, 1, &port) != ENODEV)
		return 4;
	if (ibv_create_comp_channel(r->ctx) || errno != ENODEV)
		return 5;
	if (ibv_destroy_qp(r->qp) || ibv_destroy_comp_channel(r->ch))
		return 7;
	for (size_t i = 0; i < SLOTS; i++)
		if (counted[i])
			return 8;
	return 0;
}

static void objects_of_a_parent_do_not_reach_the_table(void)
{
	struct rig r;
	int status = -1;
	pid_t pid;

	count_on();
	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	pid = fork();
	REQUIRE(pid >= 0);
	if (!pid)
		_exit(child(&r));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(dev_ops() == &count_ops);
	rig_down(&r);
	count_off();
}

static void no_change_while_a_context_is_open(void)
{
	struct rig r;

	REQUIRE(rig_up(&r, (struct rig_opt){ 0 }));
	CHECK_EQ(dev_ops_put_in_front(&count_ops), -EBUSY);
	CHECK(dev_ops() == &dev_ops_device);
	rig_down(&r);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(every_member_is_there);
	T_RUN(every_verb_is_counted_once);
	T_RUN(null_does_not_reach_the_table);
	T_RUN(overwritten_objects_do_not_reach_the_table);
	T_RUN(objects_of_a_parent_do_not_reach_the_table);
	T_RUN(no_change_while_a_context_is_open);
	return t_done();
}
