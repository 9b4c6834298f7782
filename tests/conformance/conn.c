/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps to a connection, memory and work requests for the cases. */
#include "conf.h"

struct rdma_event_channel *conf_channel(void)
{
	struct rdma_event_channel *ch;

	MUST(ch = rdma_create_event_channel());
	return ch;
}

struct rdma_cm_id *conf_id(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id = NULL;

	OK(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	return id;
}

void conf_id_free(struct rdma_cm_id *id)
{
	if (!id)
		return;
	if (id->qp)
		rdma_destroy_qp(id);
	if (id->srq)
		rdma_destroy_srq(id);
	OK(rdma_destroy_id(id));
}

void conf_id_close(struct rdma_cm_id *id)
{
	struct rdma_event_channel *ch = id->channel;

	conf_id_free(id);
	rdma_destroy_event_channel(ch);
}

struct rdma_cm_id *conf_listen(struct rdma_event_channel *ch, int family, int backlog)
{
	conf_sa addr = conf_addr(family, 0);
	struct rdma_cm_id *id = conf_id(ch);

	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_listen(id, backlog));
	CHECK(rdma_get_src_port(id) != 0);
	return id;
}

conf_sa conf_listen_addr(struct rdma_cm_id *listener)
{
	return conf_addr(listener->route.addr.src_addr.sa_family,
			 ntohs(rdma_get_src_port(listener)));
}

struct rdma_cm_id *conf_addr_resolved(struct rdma_event_channel *ch, conf_sa dst)
{
	struct rdma_cm_id *id = conf_id(ch);

	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(id->verbs);
	MUST(id->pd);
	return id;
}

struct rdma_cm_id *conf_route_resolved(struct rdma_event_channel *ch, conf_sa dst)
{
	struct rdma_cm_id *id = conf_addr_resolved(ch, dst);

	OK(rdma_resolve_route(id, 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	return id;
}

struct rdma_cm_id *conf_device_id(void)
{
	return conf_addr_resolved(conf_channel(), conf_addr(AF_INET, 7000));
}

struct rdma_cm_id *conf_request(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *ev = conf_get(ch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = ev->id;

	OK(rdma_ack_cm_event(ev));
	return id;
}

static void make_qp(struct rdma_cm_id *id, unsigned wr, unsigned sge)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = wr,
			.max_recv_wr = wr,
			.max_send_sge = sge,
			.max_recv_sge = sge,
			.max_inline_data = 64,
		},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 0,
	};

	OK(rdma_create_qp(id, NULL, &attr));
	MUST(id->qp);
}

void conf_qp(struct rdma_cm_id *id, unsigned wr)
{
	make_qp(id, wr, 1);
}

struct rdma_conn_param conf_param(void)
{
	struct rdma_conn_param p = {
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	return p;
}

static void pair_qp(struct conf_pair *c, struct rdma_cm_id *id, bool active)
{
	struct ibv_qp_init_attr *attr = active ? c->opt.aattr : c->opt.pattr;

	if (c->opt.bare)
		return;
	if (attr)
		OK(rdma_create_qp(id, NULL, attr));
	else
		make_qp(id, c->opt.wr ? c->opt.wr : 16, c->opt.sge ? c->opt.sge : 1);
	if (c->opt.prepare)
		c->opt.prepare(id, active);
}

static struct rdma_conn_param pair_param(const struct conf_pair *c,
					 const struct rdma_conn_param *own)
{
	struct rdma_conn_param param = own ? *own : conf_param();

	if (!own && c->opt.depth)
		param.responder_resources = param.initiator_depth = c->opt.depth;
	return param;
}

void conf_pair_resolve(struct conf_pair *c, const struct conf_opt *opt)
{
	memset(c, 0, sizeof(*c));
	if (opt)
		c->opt = *opt;
	c->lch = conf_channel();
	c->ach = conf_channel();
	c->listener = conf_listen(c->lch, c->opt.family ? c->opt.family : AF_INET, 8);
	c->a = conf_route_resolved(c->ach, conf_listen_addr(c->listener));
	pair_qp(c, c->a, true);
}

void conf_pair_request(struct conf_pair *c, const struct conf_opt *opt)
{
	struct rdma_conn_param param;
	struct rdma_cm_event *ev;

	conf_pair_resolve(c, opt);
	param = pair_param(c, c->opt.connect);
	OK(rdma_connect(c->a, c->opt.connect_null ? NULL : &param));
	ev = conf_get(c->lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(ev->listen_id == c->listener);
	c->p = ev->id;
	OK(rdma_ack_cm_event(ev));
	pair_qp(c, c->p, false);
}

void conf_pair_accept(struct conf_pair *c)
{
	struct rdma_conn_param param = pair_param(c, c->opt.accept);
	int access = c->opt.paccess ? c->opt.paccess : CONF_RW;

	OK(rdma_accept(c->p, c->opt.accept_null ? NULL : &param));
	conf_expect(c->ach, c->a, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(c->lch, c->p, RDMA_CM_EVENT_ESTABLISHED);
	if (c->opt.abuf)
		*c->opt.abuf = conf_buf(c->a->pd, c->opt.len, CONF_RW);
	if (c->opt.pbuf)
		*c->opt.pbuf = conf_buf(c->p->pd, c->opt.len, access);
}

void conf_pair_open(struct conf_pair *c, const struct conf_opt *opt)
{
	conf_pair_request(c, opt);
	conf_pair_accept(c);
}

void conf_pair_disconnect(struct conf_pair *c)
{
	OK(rdma_disconnect(c->a));
	conf_expect(c->lch, c->p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c->p));
	conf_expect(c->ach, c->a, RDMA_CM_EVENT_DISCONNECTED);
}

void conf_pair_free(struct conf_pair *c)
{
	/* QPs before the memory that they may be using. */
	if (c->a && c->a->qp)
		rdma_destroy_qp(c->a);
	if (c->p && c->p->qp)
		rdma_destroy_qp(c->p);
	if (c->opt.abuf)
		conf_buf_free(c->opt.abuf);
	if (c->opt.pbuf)
		conf_buf_free(c->opt.pbuf);
	conf_id_free(c->a);
	conf_id_free(c->p);
	conf_id_free(c->listener);
	rdma_destroy_event_channel(c->ach);
	rdma_destroy_event_channel(c->lch);
	memset(c, 0, sizeof(*c));
}

void conf_pair_close(struct conf_pair *c)
{
	conf_pair_disconnect(c);
	conf_pair_free(c);
}

void conf_qp_query(struct ibv_qp *qp, struct ibv_qp_attr *attr)
{
	struct ibv_qp_init_attr init;
	int mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MAX_QP_RD_ATOMIC |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MTU |
		   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_PORT |
		   IBV_QP_PKEY_INDEX | IBV_QP_AV | IBV_QP_CAP;

	memset(attr, 0, sizeof(*attr));
	OK(ibv_query_qp(qp, attr, mask, &init));
}

enum ibv_qp_state conf_qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;

	conf_qp_query(qp, &attr);
	return attr.qp_state;
}

int conf_qp_modify(struct ibv_qp *qp, struct ibv_qp_attr attr)
{
	const bool uc = qp->qp_type == IBV_QPT_UC;
	int mask = IBV_QP_STATE;

	if (qp->qp_type == IBV_QPT_UD) {
		if (attr.qp_state == IBV_QPS_INIT)
			mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
		else if (attr.qp_state == IBV_QPS_RTS)
			mask |= IBV_QP_SQ_PSN;
		return ibv_modify_qp(qp, &attr, mask);
	}

	switch (attr.qp_state) {
	case IBV_QPS_INIT:
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		break;
	case IBV_QPS_RTR:
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
		if (!uc && qp->qp_type != IBV_QPT_XRC_SEND)
			mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		mask |= IBV_QP_SQ_PSN | (uc ? 0 : IBV_QP_TIMEOUT);
		if (!uc && qp->qp_type != IBV_QPT_XRC_RECV)
			mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	return ibv_modify_qp(qp, &attr, mask);
}

int conf_qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

void conf_qp_wait_(const char *file, int line, struct ibv_qp *qp, int state)
{
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;
	int now;

	while ((now = conf_qp_state(qp)) != state) {
		conf_at(file, line, "waiting for a state of the QP");
		if (conf_now() > end)
			conf_fail(file, line, "QP stays in state %d, wanted %d", now, state);
		usleep(500);
	}
}

/* Memory. */

struct conf_buf conf_buf(struct ibv_pd *pd, size_t len, int access)
{
	struct conf_buf b = { .len = len };

	CHECK(posix_memalign((void **)&b.p, 4096, len ? len : 1) == 0);
	memset(b.p, 0, len);
	MUST(b.mr = ibv_reg_mr(pd, b.p, len, access));
	return b;
}

void conf_buf_free(struct conf_buf *b)
{
	if (b->mr)
		OK(ibv_dereg_mr(b->mr));
	free(b->p);
	memset(b, 0, sizeof(*b));
}

/* A different byte nearly everywhere, so that shifted or lost pieces show. */
static inline uint8_t pattern_at(size_t i, uint32_t seed)
{
	uint32_t x = (uint32_t)i * 2654435761u + seed * 40503u;

	return x >> 13;
}

void conf_pattern(uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = pattern_at(i, seed);
}

bool conf_pattern_ok(const uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != pattern_at(i, seed))
			return false;
	return true;
}

/* Work requests. */

struct ibv_sge conf_sge(struct conf_buf *b, size_t off, size_t len)
{
	struct ibv_sge s = {
		.addr = (uintptr_t)b->p + off,
		.length = len,
		.lkey = b->mr->lkey,
	};

	return s;
}

struct ibv_send_wr conf_wr(uint64_t wr_id, int opcode, struct ibv_sge *sge, int n)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.opcode = opcode,
		.sg_list = sge,
		.num_sge = n,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return wr;
}

struct ibv_send_wr conf_rdma(uint64_t wr_id, int opcode, struct ibv_sge *sge, int n,
			     const void *raddr, uint32_t rkey)
{
	struct ibv_send_wr wr = conf_wr(wr_id, opcode, sge, n);

	wr.wr.rdma.remote_addr = (uintptr_t)raddr; /* is atomic.remote_addr, too */
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		wr.wr.atomic.rkey = rkey;
	else
		wr.wr.rdma.rkey = rkey;
	return wr;
}

struct ibv_send_wr conf_bind(uint64_t wr_id, struct ibv_mw *mw, uint32_t rkey,
			     struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_BIND_MW, NULL, 0);

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = info;
	return wr;
}

struct ibv_send_wr conf_inv(uint64_t wr_id, int opcode, uint32_t rkey)
{
	struct ibv_send_wr wr = conf_wr(wr_id, opcode, NULL, 0);

	wr.invalidate_rkey = rkey;
	return wr;
}

int conf_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;

	return ibv_post_send(qp, wr, &bad);
}

int conf_recv(struct ibv_qp *qp, uint64_t wr_id, struct conf_buf *b, size_t off,
	      size_t len)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = { .wr_id = wr_id }, *bad = NULL;

	if (b) {
		sge = conf_sge(b, off, len);
		wr.sg_list = &sge;
		wr.num_sge = 1;
	}
	return ibv_post_recv(qp, &wr, &bad);
}

int conf_send(struct ibv_qp *qp, uint64_t wr_id, struct conf_buf *b, size_t off,
	      size_t len)
{
	struct ibv_sge sge = conf_sge(b, off, len);
	struct ibv_send_wr wr = conf_wr(wr_id, IBV_WR_SEND, &sge, 1);

	return conf_post(qp, &wr);
}

int conf_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct conf_buf *b, size_t off,
		  size_t len)
{
	struct ibv_sge sge = conf_sge(b, off, len);
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}
