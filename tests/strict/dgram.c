/* SPDX-License-Identifier: BSD-2-Clause */
#include "dgram.h"

struct ibv_ah *dg_to_p, *dg_to_a;
static uint32_t remote_qkey;

static void create(struct st_end *e, const struct dg_opt *o, bool with_srq)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = o->sig_all,
		.cap = { .max_send_wr = o->send_wr ? o->send_wr : 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 4,
			 .max_recv_sge = 4,
			 .max_inline_data = 64 },
	};
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = o->srq_wr, .max_sge = 4 } };

	memset(e, 0, sizeof(*e));
	e->ctx = conf_open_device();
	MUST(e->pd = ibv_alloc_pd(e->ctx));
	MUST(e->scq = ibv_create_cq(e->ctx, 64, NULL, NULL, 0));
	MUST(e->rcq = ibv_create_cq(e->ctx, 64, NULL, NULL, 0));
	if (with_srq)
		MUST(e->srq = ibv_create_srq(e->pd, &sattr));
	attr.send_cq = e->scq;
	attr.recv_cq = e->rcq;
	attr.srq = e->srq;
	e->qp = ibv_create_qp(e->pd, &attr);
	if (!e->qp && errno == EOPNOTSUPP && !conf_user_device())
		SKIP("no UD: %s", strerror(errno));
	MUST(e->qp);
}

void dg_init(struct st_end *e, uint32_t qkey)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };

	EQ(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_QKEY), 0);
}

void dg_rts(struct st_end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .sq_psn = 0xfffffe };

	EQ(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static void up(struct st_end *e, uint32_t qkey)
{
	dg_init(e, qkey);
	EQ(conf_qp_to(e->qp, IBV_QPS_RTR), 0);
	dg_rts(e);
}

struct ibv_ah_attr dg_ah_attr(struct st_end *e)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	struct ibv_port_attr port;

	attr.grh.sgid_index = (uint8_t)conf_gid(e->ctx, &port, &attr.grh.dgid);
	return attr;
}

uint32_t dg_mtu(struct st_end *e)
{
	struct ibv_port_attr port;

	EQ(ibv_query_port(e->ctx, 1, &port), 0);
	return 128u << port.active_mtu;
}

struct ibv_qp_cap dg_granted(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
	return init.cap;
}

void dg_open(const struct dg_opt *o)
{
	static const struct dg_opt defaults;
	struct ibv_ah_attr attr;

	o = o ? o : &defaults;
	remote_qkey = DG_QKEY;
	create(&a, o, false);
	create(&p, o, o->srq_wr);
	a.b = st_buf(a.pd, ST_LEN, CONF_RW, ST_SEED_A);
	p.b = st_buf(p.pd, ST_LEN, CONF_RW, ST_SEED_P);
	up(&a, o->sender_qkey ? o->sender_qkey : DG_QKEY);
	up(&p, DG_QKEY);
	attr = dg_ah_attr(&a);
	MUST(dg_to_p = ibv_create_ah(a.pd, &attr));
	MUST(dg_to_a = ibv_create_ah(p.pd, &attr));
}

void dg_close(void)
{
	EQ(ibv_destroy_ah(dg_to_p), 0);
	EQ(ibv_destroy_ah(dg_to_a), 0);
	st_close();
}

/* ---- work ------------------------------------------------------------------- */

void dg_qkey(uint32_t qkey)
{
	remote_qkey = qkey;
}

struct ibv_send_wr dg_wr(uint64_t wr_id, struct ibv_sge *sge, int n)
{
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, sge, n);

	wr.wr.ud.ah = dg_to_p;
	wr.wr.ud.remote_qpn = p.qp ? p.qp->qp_num : 1;
	wr.wr.ud.remote_qkey = remote_qkey;
	return wr;
}

static uint32_t p_number; /* also when p's QP is gone */

int dg_send(uint64_t wr_id, size_t off, size_t len)
{
	struct ibv_sge sge = conf_sge(&a.b, off, len);
	struct ibv_send_wr wr = dg_wr(wr_id, &sge, 1);

	p_number = p.qp ? p.qp->qp_num : p_number;
	wr.wr.ud.remote_qpn = p_number;
	return conf_post(a.qp, &wr);
}

void dg_send_ok_(const char *file, int line, uint64_t wr_id, size_t off, size_t len)
{
	conf_at(file, line, "sending a datagram");
	if (dg_send(wr_id, off, len))
		conf_fail(file, line, "posting a datagram: %s", strerror(errno));
	conf_wc_is_(file, line, a.scq, wr_id, IBV_WC_SUCCESS, NULL);
}

void dg_arrives_(const char *file, int line, uint64_t wr_id, size_t to, size_t from,
		 size_t len)
{
	struct ibv_wc wc;

	conf_wc_is_(file, line, p.rcq, wr_id, IBV_WC_SUCCESS, &wc);
	if (wc.opcode != IBV_WC_RECV || wc.byte_len != len + DG_GRH || wc.wc_flags != IBV_WC_GRH)
		conf_fail(file, line, "opcode %d, %u bytes, flags %x; wanted %zu bytes with GRH",
			  (int)wc.opcode, wc.byte_len, wc.wc_flags, len + DG_GRH);
	if (wc.qp_num != p.qp->qp_num || wc.src_qp != a.qp->qp_num)
		conf_fail(file, line, "to QP %x from %x, wanted %x from %x", wc.qp_num, wc.src_qp,
			  p.qp->qp_num, a.qp->qp_num);
	if (memcmp(p.b.p + to + DG_GRH, a.b.p + from, len))
		conf_fail(file, line, "other bytes than were sent");
}

void dg_back(uint64_t wr_id, size_t off, size_t len)
{
	struct ibv_sge sge = conf_sge(&p.b, off, len);
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, &sge, 1);

	wr.wr.ud.ah = dg_to_a;
	wr.wr.ud.remote_qpn = a.qp->qp_num;
	wr.wr.ud.remote_qkey = DG_QKEY;
	OK(conf_post(p.qp, &wr));
	conf_wc_ok(p.scq, wr_id);
}

void dg_works_(const char *file, int line)
{
	enum { HALF = ST_LEN / 2 };

	dg_qkey(DG_QKEY);
	conf_at(file, line, "a datagram each way");
	OK(st_recv_buf(&p, 901, HALF, 512));
	OK(st_recv_buf(&a, 902, HALF, 512));
	dg_send_ok_(file, line, 903, HALF + 1024, 77);
	dg_arrives_(file, line, 901, HALF, HALF + 1024, 77);
	dg_back(904, HALF, 33);
	conf_wc_is_(file, line, a.rcq, 902, IBV_WC_SUCCESS, NULL);
	if (memcmp(a.b.p + HALF + DG_GRH, p.b.p + HALF, 33))
		conf_fail(file, line, "other bytes came back");
}

void dg_fails_(const char *file, int line, struct ibv_send_wr *wr, int status)
{
	struct ibv_sge sge = conf_sge(&a.b, 0, 48), next = conf_sge(&a.b, 256, 24);
	struct ibv_send_wr first = dg_wr(1, &sge, 1), last[2], *bad = NULL;

	OK(st_recv_buf(&p, 101, 1024, 512));
	OK(st_recv_buf(&p, 102, 2048, 512));
	for (int i = 0; i < 2; i++)
		last[i] = dg_wr(3 + i, &sge, 1);
	last[1].send_flags = 0;
	first.next = wr;
	wr->next = &last[0];
	last[0].next = &last[1];
	conf_at(file, line, "posting");
	if (ibv_post_send(a.qp, &first, &bad))
		conf_fail(file, line, "ibv_post_send refuses wr %d", bad ? (int)bad->wr_id : -1);
	conf_wc_is_(file, line, a.scq, 1, IBV_WC_SUCCESS, NULL);
	conf_wc_is_(file, line, a.scq, 2, status, NULL);
	conf_wc_is_(file, line, a.scq, 3, IBV_WC_WR_FLUSH_ERR, NULL);
	conf_wc_is_(file, line, a.scq, 4, IBV_WC_WR_FLUSH_ERR, NULL);
	dg_arrives_(file, line, 101, 1024, 0, 48);
	EQ(conf_qp_state(a.qp), IBV_QPS_SQE);
	EQ(conf_qp_to(a.qp, IBV_QPS_RTS), 0);
	first = dg_wr(5, &next, 1);
	OK(conf_post(a.qp, &first));
	conf_wc_is_(file, line, a.scq, 5, IBV_WC_SUCCESS, NULL);
	dg_arrives_(file, line, 102, 2048, 256, 24); /* none came between */
	conf_wc_none_(file, line, a.scq, 0);
	st_event_(file, line, &a, ST_NONE, NULL);
	st_event_(file, line, &p, ST_NONE, NULL);
}

void dg_settled(void)
{
	usleep(ST_QUIET * 1000); /* that nothing more comes has no sign */
	if (conf_user_device())
		conf_settle();
}
