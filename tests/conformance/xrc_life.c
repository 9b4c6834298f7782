/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended reliable connections: the life of domains, SRQs and shared QPs, which
 * attributes are refused, and connections that the connection manager makes. */
#include "xrc.h"
#include "watch.h"

/* ---- life ------------------------------------------------------------------------- */

static void objects_in_use(void)
{
	start_domain(-1);
	q = queue();
	EQ(ibv_close_xrcd(xrcd), EBUSY);
	EQ(ibv_destroy_cq(q.cq), EBUSY);
	EQ(ibv_dealloc_pd(q.pd), EBUSY);
	MUST(l.tgt = target(xrcd));
	queue_free(&q);
	EQ(ibv_close_xrcd(xrcd), EBUSY);
	stop();
}

/* An SRQ goes while a QP waits at it: what was meant for it is refused, and other
 * SRQs of the domain live on. */
static void queue_goes_first(void)
{
	struct queue other;
	struct link m;

	start();
	other = queue();
	m = linked();
	arrives(&m, &q, 2, 100);
	post_send(&l, &q, 1, 10);
	conf_wc_none(l.cq, 50);
	OK(ibv_destroy_srq(q.srq));
	q.srq = NULL;
	conf_wc_is(l.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	arrives(&m, &other, 3, 100);
	link_free(&m);
	queue_free(&other);
	stop();
}

/* In the middle of a message: nothing is touched after the SRQ is gone. */
static void queue_goes_in_a_message(void)
{
	enum { LEN = 16 << 20 }; /* some ms */
	struct conf_buf big;
	struct ibv_wc wc;

	start_domain(-1);
	for (int i = 0; i < 8; i++) {
		q = queue();
		l = linked();
		big = conf_buf(q.pd, LEN, CONF_RW);
		OK(conf_srq_recv(q.srq, 1, &big, 0, LEN));
		conf_buf_free(&l.b);
		l.b = conf_buf(dev.pd, LEN, CONF_RW);
		l.b.p[0] = 1;
		post_send(&l, &q, 1, LEN);
		WAIT_FOR(watch_byte(big.p));
		OK(ibv_destroy_srq(q.srq));
		q.srq = NULL;
		conf_buf_free(&big);
		conf_wc(l.cq, &wc);
		CHECK(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_SUCCESS);
		conf_wc_none(q.cq, 0);
		link_free(&l);
		queue_free(&q);
	}
	stop();
}

enum { CHURNERS = 3, ROUNDS = 40 };

static _Atomic uint32_t current; /* number of the newest SRQ; 0: enough */

/* Sends to SRQs that come and go; a connection that has failed is made anew. */
static void *churner(void *arg)
{
	struct link own = linked();
	uint32_t srqn;
	int good = 0;

	while ((srqn = atomic_load(&current))) {
		struct ibv_wc wc;

		post(&own, srqn, 1, IBV_WR_SEND, 20000, NULL);
		conf_wc(own.cq, &wc);
		if (wc.status == IBV_WC_SUCCESS) {
			good++;
			continue;
		}
		EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
		link_free(&own);
		own = linked();
	}
	link_free(&own);
	*(int *)arg = good;
	return NULL;
}

static void queues_come_and_go(void)
{
	int good[CHURNERS] = { 0 }, all = 0;
	pthread_t t[CHURNERS];
	struct queue next;

	start_domain(-1);
	next = queue();
	atomic_store(&current, next.number);
	for (int i = 0; i < CHURNERS; i++)
		t[i] = conf_thread(churner, &good[i]);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;

		q = next;
		for (int k = 0; k < 8; k++)
			queue_recv(&q, k, (size_t)k * 20000, 20000);
		for (int got = 0; got < 6; got++) /* some are left, filled or not */
			conf_wc(q.cq, &wc);
		next = queue();
		atomic_store(&current, i + 1 == ROUNDS ? 0 : next.number);
		queue_free(&q);
	}
	queue_free(&next);
	for (int i = 0; i < CHURNERS; i++) {
		conf_join(t[i]);
		all += good[i];
	}
	CHECK(all >= 6 * ROUNDS);
	stop();
}

/* What has been received stays in the SRQ's CQ when the QP goes. */
static void completions_outlive_the_qp(void)
{
	struct ibv_wc wc;
	uint32_t qpn;

	start();
	queue_recv(&q, 5, 0, 100);
	post_send(&l, &q, 1, 10);
	conf_wc_ok(l.cq, 1);
	qpn = l.tgt->qp_num;
	link_free(&l);
	conf_wc_get(q.cq, 5, IBV_WC_SUCCESS, &wc);
	EQ(wc.qp_num, qpn);
	stop();
}

/* ---- domains ---------------------------------------------------------------------- */

static int temporary(void)
{
	char name[] = "/tmp/conf-xrc-XXXXXX";
	int fd = mkstemp(name);

	CHECK(fd >= 0);
	OK(unlink(name));
	return fd;
}

static void domain_of_a_file(void)
{
	struct ibv_xrcd *same, *another;
	int fd = temporary(), second, other = temporary();

	CHECK((second = dup(fd)) >= 0);
	start_domain(fd);
	OK(close(fd)); /* the inode counts, and stays */
	NONE(domain_of(second, O_CREAT | O_EXCL), EINVAL);
	MUST(same = domain_of(second, 0));
	MUST(another = domain_of(other, O_CREAT | O_EXCL));
	q = queue();
	l = linked_in(same, 7, false);
	arrives(&l, &q, 1, 1000); /* one domain, two handles */
	EQ(ibv_close_xrcd(xrcd), EBUSY);
	link_free(&l);
	OK(ibv_close_xrcd(same));
	refused(another, q.number, IBV_WR_SEND, NULL);
	OK(ibv_close_xrcd(another));
	OK(close(second));
	OK(close(other));
	stop();
}

static void bad_domains(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	int fd = temporary();

	start_device();
	NONE(ibv_open_xrcd(dev.ctx, &attr), EINVAL);
	NONE(domain_of(9999, O_CREAT), EBADF);
	/* Nobody has created it; here: not this process. */
	NONE(domain_of(fd, 0), conf_user_device() ? EOPNOTSUPP : EAGAIN);
	OK(close(fd));
	stop();
}

/* ---- handles ---------------------------------------------------------------------- */

static struct ibv_qp *open_qp(struct ibv_xrcd *domain, uint32_t qpn, void *context)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.xrcd = domain,
		.qp_context = context,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(dev.ctx, &attr);
}

static void shared_qp(void)
{
	struct ibv_xrcd *again;
	struct ibv_qp *h, *g;
	int fd = temporary();

	start_domain(fd);
	MUST(again = domain_of(fd, O_CREAT));
	q = queue();
	l = linked();
	MUST(h = open_qp(again, l.tgt->qp_num, &q));
	MUST(g = open_qp(xrcd, l.tgt->qp_num, &l));
	CHECK(h != l.tgt && h->qp_num == l.tgt->qp_num && h->qp_context == &q);
	EQ(h->qp_type, IBV_QPT_XRC_RECV);
	EQ(conf_qp_state(h), IBV_QPS_RTS);
	EQ(ibv_close_xrcd(again), EBUSY);
	arrives(&l, &q, 1, 1000);
	OK(ibv_destroy_qp(g));
	g = l.tgt;
	l.tgt = h;
	OK(ibv_destroy_qp(g)); /* the creator's: the QP is there while a handle is */
	arrives(&l, &q, 2, 1000);
	MUST(g = open_qp(again, h->qp_num, NULL));
	OK(ibv_destroy_qp(g));
	arrives(&l, &q, 3, 1000);
	OK(ibv_destroy_qp(h));
	l.tgt = NULL;
	NONE(open_qp(xrcd, l.ini->qp_num, NULL), EINVAL); /* a send QP */
	post_send(&l, &q, 4, 10);
	conf_wc_is(l.cq, 4, IBV_WC_RETRY_EXC_ERR); /* the last was closed */
	OK(ibv_close_xrcd(again));
	OK(close(fd));
	stop();
}

static void shared_qp_of_no_such(void)
{
	struct ibv_xrcd *second;
	struct ibv_qp *tgt;
	uint32_t qpn;

	start_domain(-1);
	MUST(second = domain_of(-1, O_CREAT));
	MUST(tgt = target(xrcd));
	NONE(open_qp(second, tgt->qp_num, NULL), EINVAL);
	NONE(open_qp(xrcd, tgt->qp_num ^ 1, NULL), EINVAL);
	qpn = tgt->qp_num;
	OK(ibv_destroy_qp(tgt));
	CHECK(!open_qp(xrcd, qpn, NULL));
	OK(ibv_close_xrcd(second));
	stop();
}

/* Every handle hears of the QP, on its own context. */
static void events_of_a_shared_qp(void)
{
	struct ibv_context *first, *second;
	struct ibv_xrcd *again;
	int fd = temporary();
	struct ibv_qp *h;

	start_domain(fd);
	q = queue();
	l = linked();
	first = dev.ctx;
	second = dev.ctx = conf_open_device();
	MUST(again = domain_of(fd, O_CREAT));
	MUST(h = open_qp(again, l.tgt->qp_num, NULL));
	dev.ctx = first;
	post(&l, q.number ^ 0x777777, 1, IBV_WR_SEND, 10, NULL);
	conf_wc_is(l.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	conf_async(first, IBV_EVENT_QP_ACCESS_ERR, l.tgt);
	conf_async(second, IBV_EVENT_QP_ACCESS_ERR, h);
	EQ(conf_qp_state(h), IBV_QPS_ERR);
	OK(ibv_destroy_qp(h));
	OK(ibv_close_xrcd(again));
	OK(ibv_close_device(second));
	OK(close(fd));
	stop();
}

/* ---- rules ------------------------------------------------------------------------ */

static void what_is_refused(void)
{
	struct ibv_srq_init_attr_ex sa = {
		.attr = { .max_wr = 1, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
	};
	struct ibv_qp_init_attr_ex qa = {
		.qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};
	struct ibv_recv_wr rwr = { .wr_id = 1 }, *rbad;
	struct ibv_send_wr swr = { .opcode = IBV_WR_SEND }, *sbad;

	start_domain(-1);
	sa.pd = dev.pd;
	NONE(ibv_create_srq_ex(dev.ctx, &sa), EINVAL); /* neither domain nor CQ */
	NONE(ibv_create_qp_ex(dev.ctx, &qa), EINVAL); /* no domain */
	l = linked();
	EQ(ibv_post_recv(l.tgt, &rwr, &rbad), EINVAL);
	CHECK(rbad == &rwr);
	EQ(ibv_post_recv(l.ini, &rwr, &rbad), EINVAL);
	EQ(ibv_post_send(l.tgt, &swr, &sbad), EINVAL);
	CHECK(sbad == &swr);
	EQ(conf_qp_to(l.tgt, IBV_QPS_RTR), EINVAL); /* from RTS */
	link_free(&l);
	MUST(l.tgt = target(xrcd));
	EQ(qp_to_init(l.tgt), 0);
	EQ(conf_qp_to(l.tgt, IBV_QPS_RTR), EINVAL); /* nothing given */
	EQ(qp_to_rts(l.tgt, 0, 0), EINVAL);
	EQ(conf_qp_state(l.tgt), IBV_QPS_INIT);
	stop();
}

/* Each side ignores what belongs to the other half, as the kernel has it. */
static void attributes_of_the_other_half(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	start();
	EQ(ibv_query_qp(l.ini, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.dest_qp_num, l.tgt->qp_num);
	CHECK(init.send_cq == l.cq && init.qp_type == IBV_QPT_XRC_SEND);
	OK(conf_qp_to(l.ini, IBV_QPS_RESET));
	OK(conf_qp_to(l.tgt, IBV_QPS_RESET));
	EQ(qp_to_init(l.ini), 0);
	EQ(qp_to_init(l.tgt), 0);
	EQ(qp_to_rtr(l.tgt, l.ini->qp_num, 0x1111, &dev.gid), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = dev.port.active_mtu,
		.dest_qp_num = l.tgt->qp_num,
		.max_dest_rd_atomic = 4,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = dev.gid, .sgid_index = dev.gid_index } },
	};
	EQ(ibv_modify_qp(l.ini, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14 };
	EQ(ibv_modify_qp(l.tgt, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	EQ(qp_to_rts(l.ini, 0x1111, 7), 0);
	arrives(&l, &q, 1, 1000); /* again after a reset */
	stop();
}

/* ---- by the connection manager ---------------------------------------------------- */

static struct rdma_addrinfo *info(const char *port_name, int qp_type, int flags)
{
	struct rdma_addrinfo hints = {
		.ai_flags = flags,
		.ai_port_space = RDMA_PS_IB,
		.ai_qp_type = qp_type,
	}, *res;
	conf_sa addr = conf_addr(AF_INET, 0);
	char name[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &((struct sockaddr_in *)&addr)->sin_addr, name, sizeof(name));
	OK(rdma_getaddrinfo(name, port_name, &hints, &res));
	return res;
}

static void *cm_client(void *arg)
{
	struct rdma_addrinfo *res = info(arg, IBV_QPT_XRC_SEND, 0);
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_conn_param param = conf_param();
	struct ibv_send_wr wr;
	struct rdma_cm_id *id;
	struct conf_buf b;
	struct ibv_sge sge;
	uint32_t srqn;
	struct ibv_wc wc;

	OK(rdma_create_ep(&id, res, NULL, &attr));
	EQ(id->qp->qp_type, IBV_QPT_XRC_SEND);
	OK(rdma_connect(id, &param));
	memcpy(&srqn, id->event->param.conn.private_data, sizeof(srqn));
	b = conf_buf(id->pd, 100000, CONF_RW);
	conf_pattern(b.p, 100000, 3);
	sge = conf_sge(&b, 0, 100000);
	wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	wr.qp_type.xrc.remote_srqn = ntohl(srqn);
	OK(conf_post(id->qp, &wr));
	EQ(rdma_get_send_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	OK(rdma_disconnect(id));
	conf_buf_free(&b);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	return NULL;
}

/* The SRQ's number travels as private data of the reply. */
static void connected_by_the_manager(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr qattr = { .qp_type = IBV_QPT_XRC_RECV };
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *listen, *id;
	struct rdma_addrinfo *res;
	char port_name[8];
	struct conf_buf b;
	struct ibv_wc wc;
	uint32_t srqn;
	pthread_t t;

	start_device(); /* whether there is XRC */
	snprintf(port_name, sizeof(port_name), "%u", conf_port(0));
	res = info(port_name, IBV_QPT_XRC_RECV, RAI_PASSIVE);
	OK(rdma_create_ep(&listen, res, NULL, NULL));
	OK(rdma_listen(listen, 4));
	t = conf_thread(cm_client, port_name);
	OK(rdma_get_request(listen, &id));
	OK(rdma_create_srq(id, NULL, &attr));
	OK(rdma_create_qp(id, NULL, &qattr));
	OK(ibv_get_srq_num(id->srq, &srqn));
	b = conf_buf(id->pd, 100000, CONF_RW);
	OK(rdma_post_recv(id, &b, b.p, 100000, b.mr));
	srqn = htonl(srqn);
	param.private_data = &srqn;
	param.private_data_len = sizeof(srqn);
	OK(rdma_accept(id, &param));
	EQ(rdma_get_recv_comp(id, &wc), 1);
	EQ(wc.status, IBV_WC_SUCCESS);
	EQ(wc.byte_len, 100000);
	EQ(wc.qp_num, id->qp->qp_num);
	CHECK(conf_pattern_ok(b.p, 100000, 3));
	rdma_disconnect(id); /* both wait for each other */
	conf_join(t);
	conf_buf_free(&b);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listen);
	rdma_freeaddrinfo(res);
	stop();
}

static const struct conf_case cases[] = {
	CASE(objects_in_use),
	CASE(queue_goes_first),
	LONG_CASE(queue_goes_in_a_message, 60),
	LONG_CASE(queues_come_and_go, 120),
	CASE(completions_outlive_the_qp),
	CASE(domain_of_a_file),
	CASE(bad_domains),
	CASE(shared_qp),
	CASE(shared_qp_of_no_such),
	CASE(events_of_a_shared_qp),
	CASE(what_is_refused),
	CASE(attributes_of_the_other_half),
	CASE(connected_by_the_manager),
};

CONF_MAIN(cases)
