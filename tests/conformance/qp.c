/* SPDX-License-Identifier: BSD-2-Clause */
/* QPs and SRQs made through the id. */
#include "conf.h"

static struct rdma_cm_id *id;

static struct ibv_qp_init_attr attrs(void)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(5, 7, 2),
	};

	return attr;
}

static void everything_by_the_library(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_pd *pd;
	int context;

	id = conf_device_id();
	pd = id->pd;
	attr.qp_context = &context;
	OK(rdma_create_qp(id, NULL, &attr));
	MUST(id->qp);
	CHECK(id->pd == pd && id->qp->pd == pd);
	CHECK(id->send_cq && id->recv_cq && id->send_cq != id->recv_cq);
	CHECK(id->send_cq_channel && id->recv_cq_channel);
	CHECK(id->send_cq_channel != id->recv_cq_channel);
	CHECK(id->qp->send_cq == id->send_cq && id->qp->recv_cq == id->recv_cq);
	CHECK(id->send_cq->channel == id->send_cq_channel);
	CHECK(id->recv_cq->channel == id->recv_cq_channel);
	CHECK(id->send_cq->cq_context == id && id->recv_cq->cq_context == id);
	CHECK(id->send_cq->cqe >= 5 && id->recv_cq->cqe >= 7);
	CHECK(attr.send_cq == id->send_cq && attr.recv_cq == id->recv_cq);
	CHECK(id->qp->qp_context == &context);
	CHECK(attr.cap.max_send_wr >= 5 && attr.cap.max_recv_wr >= 7);
	CHECK(attr.cap.max_send_sge >= 2 && attr.cap.max_recv_sge >= 1);
	EQ(id->qp->qp_type, IBV_QPT_RC);
	QP_STATE(id->qp, IBV_QPS_INIT);
	CHECK(id->qp->qp_num > 1 && id->qp->qp_num < 0xffffff);
	conf_id_close(id);
}

static void own_completion_queues(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_cq *s, *r;

	id = conf_device_id();
	MUST(s = ibv_create_cq(id->verbs, 10, &attr, NULL, 0));
	MUST(r = ibv_create_cq(id->verbs, 10, &attr, NULL, 0));
	attr.send_cq = s;
	attr.recv_cq = r;
	OK(rdma_create_qp(id, NULL, &attr));
	CHECK(id->qp->send_cq == s && id->qp->recv_cq == r);
	CHECK(!id->send_cq && !id->recv_cq); /* not the library's */
	CHECK(!id->send_cq_channel && !id->recv_cq_channel);
	rdma_destroy_qp(id);
	CHECK(!id->qp);
	OK(ibv_destroy_cq(s)); /* still there */
	OK(ibv_destroy_cq(r));
	conf_id_close(id);
}

static void one_own_completion_queue(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_cq *cq;

	id = conf_device_id();
	MUST(cq = ibv_create_cq(id->verbs, 20, NULL, NULL, 0));
	attr.send_cq = cq;
	OK(rdma_create_qp(id, NULL, &attr));
	CHECK(id->qp->send_cq == cq && !id->send_cq);
	CHECK(id->recv_cq && id->qp->recv_cq == id->recv_cq);
	rdma_destroy_qp(id);
	CHECK(!id->recv_cq && !id->recv_cq_channel);
	OK(ibv_destroy_cq(cq));
	conf_id_close(id);
}

static void second_qp(void)
{
	struct ibv_qp_init_attr attr = attrs(), again = attrs();
	struct ibv_qp *qp;

	id = conf_device_id();
	OK(rdma_create_qp(id, NULL, &attr));
	qp = id->qp;
	ERR(rdma_create_qp(id, NULL, &again), EINVAL);
	CHECK(id->qp == qp);
	conf_id_close(id);
}

static void again_after_destroy(void)
{
	id = conf_device_id();
	for (int i = 0; i < 20; i++) {
		struct ibv_qp_init_attr attr = attrs();

		OK(rdma_create_qp(id, NULL, &attr));
		rdma_destroy_qp(id);
		CHECK(!id->qp && !id->send_cq && !id->recv_cq);
		CHECK(!id->send_cq_channel && !id->recv_cq_channel);
	}
	conf_id_close(id);
}

static void own_pd(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_pd *pd;

	id = conf_device_id();
	MUST(pd = ibv_alloc_pd(id->verbs));
	CHECK(pd != id->pd);
	OK(rdma_create_qp(id, pd, &attr));
	CHECK(id->pd == pd && id->qp->pd == pd);
	conf_id_close(id);
	OK(ibv_dealloc_pd(pd));
}

static void pd_of_another_context(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_context *other;
	struct ibv_pd *pd;

	id = conf_device_id();
	MUST(other = ibv_open_device(id->verbs->device));
	MUST(pd = ibv_alloc_pd(other));
	ERR(rdma_create_qp(id, pd, &attr), EINVAL);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq);
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(other));
	conf_id_close(id);
}

static void unbound_id(void)
{
	struct ibv_qp_init_attr attr = attrs();

	if (conf_original())
		SKIP("crashes the original");
	id = conf_id(conf_channel());
	ERR(rdma_create_qp(id, NULL, &attr), EINVAL);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq);
	conf_id_close(id);
}

static void null_attributes(void)
{
	if (conf_original())
		SKIP("crashes the original");
	id = conf_device_id();
	ERR(rdma_create_qp(id, NULL, NULL), EINVAL);
	conf_id_close(id);
}

static void destroy_without_qp(void)
{
	if (conf_original())
		SKIP("crashes the original");
	id = conf_device_id();
	rdma_destroy_qp(id);
	conf_id_close(id);
}

static void beyond_the_device(void)
{
	struct ibv_qp_init_attr attr;
	struct ibv_device_attr dev;

	id = conf_device_id();
	OK(ibv_query_device(id->verbs, &dev));
	attr = attrs();
	attr.cap.max_send_wr = dev.max_qp_wr + 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == -1 && errno);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel);
	attr = attrs();
	attr.cap.max_recv_sge = dev.max_sge + 1;
	CHECK(rdma_create_qp(id, NULL, &attr) == -1 && errno);
	CHECK(!id->qp && !id->send_cq && !id->recv_cq && !id->send_cq_channel);
	attr = attrs();
	OK(rdma_create_qp(id, NULL, &attr)); /* the id is as good as before */
	conf_id_close(id);
}

static void extended_attributes(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = CONF_CAP(4, 4, 1),
	};

	id = conf_device_id();
	OK(rdma_create_qp_ex(id, &attr));
	CHECK(attr.comp_mask & IBV_QP_INIT_ATTR_PD);
	CHECK(attr.pd == id->pd);
	CHECK(id->qp && id->send_cq && id->recv_cq);
	conf_id_close(id);
}

static void different_completion_queue_than_the_ids(void)
{
	struct ibv_qp_init_attr attr = attrs();
	struct ibv_cq *mine, *other;

	id = conf_device_id();
	MUST(mine = ibv_create_cq(id->verbs, 20, id, NULL, 0));
	MUST(other = ibv_create_cq(id->verbs, 20, id, NULL, 0));
	id->send_cq = mine;
	attr.send_cq = other;
	ERR(rdma_create_qp(id, NULL, &attr), EINVAL);
	id->send_cq = NULL;
	OK(ibv_destroy_cq(mine));
	OK(ibv_destroy_cq(other));
	conf_id_close(id);
}

static void qp_numbers_differ(void)
{
	struct rdma_cm_id *other;
	struct ibv_qp_init_attr attr = attrs(), attr2 = attrs();

	id = conf_device_id();
	other = conf_device_id();
	OK(rdma_create_qp(id, NULL, &attr));
	OK(rdma_create_qp(other, NULL, &attr2));
	CHECK(id->qp->qp_num != other->qp->qp_num);
	conf_id_close(other);
	conf_id_close(id);
}

/* Receives may be posted from INIT on, sends not before RTS. */
static void posting_in_init(void)
{
	struct conf_buf buf;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	id = conf_device_id();
	conf_qp(id, 4);
	buf = conf_buf(id->pd, 4096, IBV_ACCESS_LOCAL_WRITE);
	OK(conf_recv(id->qp, 1, &buf, 0, 64));
	sge = conf_sge(&buf, 0, 64);
	wr = conf_wr(2, IBV_WR_SEND, &sge, 1);
	CHECK(conf_post(id->qp, &wr) == EINVAL);
	conf_wc_none(id->send_cq, 20);
	rdma_destroy_qp(id);
	conf_buf_free(&buf);
	conf_id_close(id);
}

/* SRQ. */

static void srq_is_used_by_the_qp(void)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = attrs();

	id = conf_device_id();
	OK(rdma_create_srq(id, NULL, &sattr));
	MUST(id->srq);
	CHECK(id->srq->pd == id->pd);
	CHECK(sattr.attr.max_wr >= 8);
	OK(rdma_create_qp(id, NULL, &attr));
	CHECK(id->qp->srq == id->srq);
	CHECK(attr.srq == id->srq);
	rdma_destroy_qp(id);
	CHECK(id->srq);
	rdma_destroy_srq(id);
	CHECK(!id->srq);
	conf_id_close(id);
}

static void srq_extended_needs_a_type(void)
{
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 8, .max_sge = 1 } };

	id = conf_device_id();
	ERR(rdma_create_srq_ex(id, &attr), EINVAL);
	CHECK(!id->srq);
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
	attr.srq_type = IBV_SRQT_BASIC;
	OK(rdma_create_srq_ex(id, &attr));
	CHECK(id->srq);
	rdma_destroy_srq(id);
	conf_id_close(id);
}

static void srq_feeds_two_connections(void)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_qp_init_attr attr[2] = { attrs(), attrs() };
	struct conf_opt opt[2] = { { .pattr = &attr[0] }, { .pattr = &attr[1] } };
	struct conf_pair c[2];
	struct conf_buf buf;
	struct ibv_srq *srq;
	struct ibv_wc wc;

	id = conf_device_id();
	MUST(srq = ibv_create_srq(id->pd, &sattr));
	buf = conf_buf(id->pd, 65536, IBV_ACCESS_LOCAL_WRITE);
	for (int i = 0; i < 8; i++)
		OK(conf_srq_recv(srq, i, &buf, i * 1024, 1024));
	for (int i = 0; i < 2; i++) {
		attr[i].srq = srq;
		conf_pair_open(&c[i], &opt[i]);
	}
	memset(buf.p + 32768, 0x5a, 1024);
	for (int i = 0; i < 8; i++) {
		OK(conf_send(c[i % 2].a->qp, i, &buf, 32768, 100 + i));
		conf_wc_ok(c[i % 2].a->send_cq, i);
		conf_wc_get(c[i % 2].p->recv_cq, i, IBV_WC_SUCCESS, &wc);
		EQ(wc.byte_len, 100 + i);
		EQ(wc.qp_num, c[i % 2].p->qp->qp_num);
		CHECK(conf_is_fill(buf.p + i * 1024, 0x5a, 100 + i));
	}
	for (int i = 0; i < 2; i++)
		conf_pair_close(&c[i]);
	OK(ibv_destroy_srq(srq));
	conf_buf_free(&buf);
	conf_id_close(id);
}

/* The helpers of rdma_verbs.h on both ends. */
static void inline_helpers(void)
{
	char text[64] = "through the helpers", in[64] = "", big[64] = "";
	struct ibv_mr *out, *recv, *mem;
	struct ibv_wc wc;
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	MUST(out = rdma_reg_msgs(c.a, text, sizeof(text)));
	MUST(recv = rdma_reg_msgs(c.p, in, sizeof(in)));
	MUST(mem = rdma_reg_write(c.p, big, sizeof(big)));
	OK(rdma_post_recv(c.p, in, in, sizeof(in), recv));
	OK(rdma_post_send(c.a, text, text, 20, out, IBV_SEND_SIGNALED));
	EQ(rdma_get_send_comp(c.a, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.wr_id, (uintptr_t)text);
	EQ(rdma_get_recv_comp(c.p, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, 20);
	EQ(wc.wr_id, (uintptr_t)in);
	CHECK(!strcmp(in, text));
	OK(rdma_post_write(c.a, NULL, text, 20, NULL, IBV_SEND_SIGNALED | IBV_SEND_INLINE,
			   (uintptr_t)big, mem->rkey));
	EQ(rdma_get_send_comp(c.a, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(!strcmp(big, text));
	OK(rdma_dereg_mr(mem));
	MUST(mem = rdma_reg_read(c.p, big, sizeof(big)));
	strcpy(big, "to be read");
	OK(rdma_post_read(c.a, NULL, text, 20, out, IBV_SEND_SIGNALED, (uintptr_t)big,
			  mem->rkey));
	EQ(rdma_get_send_comp(c.a, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	CHECK(!strcmp(text, "to be read"));
	OK(rdma_dereg_mr(mem));
	OK(rdma_dereg_mr(out));
	OK(rdma_dereg_mr(recv));
	conf_pair_close(&c);
}

static const struct conf_case cases[] = {
	CASE(everything_by_the_library),
	CASE(own_completion_queues),
	CASE(one_own_completion_queue),
	CASE(second_qp),
	CASE(again_after_destroy),
	CASE(own_pd),
	CASE(pd_of_another_context),
	CASE(unbound_id),
	CASE(null_attributes),
	CASE(destroy_without_qp),
	CASE(beyond_the_device),
	CASE(extended_attributes),
	CASE(different_completion_queue_than_the_ids),
	CASE(qp_numbers_differ),
	CASE(posting_in_init),
	CASE(srq_is_used_by_the_qp),
	CASE(srq_extended_needs_a_type),
	CASE(srq_feeds_two_connections),
	CASE(inline_helpers),
};

CONF_MAIN(cases)
