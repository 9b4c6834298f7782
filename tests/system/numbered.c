/* SPDX-License-Identifier: BSD-2-Clause */
#include "numbered.h"

#include <arpa/inet.h>

struct message {
	uint32_t magic, flow, seq, len; /* all bytes */
};

enum { MAGIC = 0x6e756d62, SLOT = NUM_GRH + NUM_MAX, SEND_SLOTS = 16 };

void num_open_device(struct numbered *n, unsigned recvs)
{
	memset(n, 0, sizeof(*n));
	n->recvs = recvs;
	n->ctx = conf_open_device();
	MUST(n->pd = ibv_alloc_pd(n->ctx));
	n->b = conf_buf(n->pd, (recvs + SEND_SLOTS) * SLOT, IBV_ACCESS_LOCAL_WRITE);
	n->ah = num_ah(n, NULL);
}

struct ibv_ah *num_ah(struct numbered *n, const char *address)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 64 } };
	struct ibv_port_attr port;
	struct ibv_ah *ah;

	attr.grh.sgid_index = (uint8_t)conf_gid(n->ctx, &port, &attr.grh.dgid);
	if (address)
		CHECK(inet_pton(AF_INET, address, attr.grh.dgid.raw + 12) == 1);
	MUST(ah = ibv_create_ah(n->pd, &attr));
	return ah;
}

struct ibv_qp *num_qp(struct numbered *n, struct ibv_cq *scq, struct ibv_cq *rcq)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD,
		.send_cq = scq,
		.recv_cq = rcq,
		.cap = { .max_send_wr = 128, .max_recv_wr = n->recvs, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = NUM_QKEY };
	struct ibv_qp *qp;

	MUST(qp = ibv_create_qp(n->pd, &init));
	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			 IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static void post_receive(struct numbered *n, unsigned i)
{
	OK(conf_recv(n->qp, i, &n->b, (size_t)i * SLOT, SLOT));
}

void num_open(struct numbered *n, unsigned recvs)
{
	num_open_device(n, recvs);
	MUST(n->scq = ibv_create_cq(n->ctx, 128, NULL, NULL, 0));
	MUST(n->rcq = ibv_create_cq(n->ctx, (int)recvs + 1, NULL, NULL, 0));
	n->qp = num_qp(n, n->scq, n->rcq);
	for (unsigned i = 0; i < recvs; i++)
		post_receive(n, i);
}

void num_free(struct numbered *n)
{
	if (n->qp)
		OK(ibv_destroy_qp(n->qp));
	OK(ibv_destroy_ah(n->ah));
	if (n->scq)
		OK(ibv_destroy_cq(n->scq));
	if (n->rcq)
		OK(ibv_destroy_cq(n->rcq));
	conf_buf_free(&n->b);
	OK(ibv_dealloc_pd(n->pd));
	OK(ibv_close_device(n->ctx));
}

static uint32_t length_of(unsigned flow, uint32_t seq)
{
	uint32_t x = (seq + 1) * 2654435761u ^ flow * 40503u;

	/* Small ones mostly, as programs have them. */
	return sizeof(struct message) +
	       (x >> 8) % (seq % 4 ? 64 : NUM_MAX - (uint32_t)sizeof(struct message));
}

void num_send_to(struct numbered *n, struct ibv_ah *ah, uint32_t qpn, unsigned flow,
		 uint32_t seq)
{
	struct message m = { MAGIC, flow, seq, length_of(flow, seq) };
	size_t off = (n->recvs + (size_t)(seq % SEND_SLOTS)) * SLOT;
	struct ibv_sge sge = conf_sge(&n->b, off, m.len);
	struct ibv_send_wr wr = conf_wr(seq, IBV_WR_SEND, &sge, 1);

	memcpy(n->b.p + off, &m, sizeof(m));
	conf_pattern(n->b.p + off + sizeof(m), m.len - sizeof(m), seq ^ flow << 24);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = NUM_QKEY;
	OK(conf_post(n->qp, &wr));
	conf_wc_ok(n->scq, seq);
}

void num_send(struct numbered *n, uint32_t qpn, unsigned flow, uint32_t seq)
{
	num_send_to(n, n->ah, qpn, flow, seq);
}

/* What a receive has got. */
static void look(struct numbered *n, const struct ibv_wc *wc)
{
	const uint8_t *p = n->b.p + wc->wr_id * SLOT + NUM_GRH;
	struct message m;

	if (wc->status != IBV_WC_SUCCESS)
		FAIL("receive %u: %s", (unsigned)wc->wr_id, ibv_wc_status_str(wc->status));
	CHECK(wc->byte_len >= NUM_GRH + sizeof(m));
	memcpy(&m, p, sizeof(m));
	if (m.magic != MAGIC || m.flow >= NUM_FLOWS || m.len != length_of(m.flow, m.seq) ||
	    wc->byte_len != m.len + NUM_GRH)
		FAIL("a datagram of %u bytes that nobody has sent: flow %u number %u length %u",
		     wc->byte_len, m.flow, m.seq, m.len);
	if (!conf_pattern_ok(p + sizeof(m), m.len - sizeof(m), m.seq ^ m.flow << 24))
		FAIL("flow %u number %u: other bytes than were sent", m.flow, m.seq);
	if (m.seq < n->next[m.flow])
		FAIL("flow %u: number %u comes after %u", m.flow, m.seq, n->next[m.flow] - 1);
	n->lost += m.seq - n->next[m.flow];
	n->next[m.flow] = m.seq + 1;
	n->got++;
}

bool num_take(struct numbered *n)
{
	struct ibv_wc wc;
	int ret = ibv_poll_cq(n->rcq, 1, &wc);

	CHECK(ret >= 0);
	if (!ret)
		return false;
	look(n, &wc);
	post_receive(n, (unsigned)wc.wr_id);
	return true;
}

void num_await_(const char *file, int line, struct numbered *n)
{
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;

	conf_at(file, line, "waiting for a datagram");
	while (!num_take(n))
		if (conf_now() > end)
			conf_fail(file, line, "no datagram comes");
}
