/* SPDX-License-Identifier: BSD-2-Clause */
/* Extended reliable connections: domains, SRQs, shared QPs, and how they come and
 * go; and the connection manager's way to them. */
#include "xrc.h"
#include "watch.h"

/* ---- life -------------------------------------------------------------------------------- */

static void objects_in_use(void)
{
	struct ibv_xrcd *xrcd;
	struct ibv_qp *tgt;
	struct queue q;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	q = queue(xrcd, NULL);
	EQ(ibv_close_xrcd(xrcd), EBUSY);
	EQ(ibv_destroy_cq(q.cq), EBUSY);
	EQ(ibv_dealloc_pd(q.pd), EBUSY);
	MUST(tgt = target(xrcd));
	queue_free(&q);
	EQ(ibv_close_xrcd(xrcd), EBUSY);
	OK(ibv_destroy_qp(tgt));
	OK(ibv_close_xrcd(xrcd));
	close_device();
}

/* An SRQ goes while a QP waits at it: what was meant for it is refused, and other
 * SRQs of the domain live on. */
static void queue_goes_first(void)
{
	struct ibv_xrcd *xrcd;
	struct queue q, other;
	struct link l, m;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	q = queue(xrcd, NULL);
	other = queue(xrcd, NULL);
	l = linked(xrcd, 7, false);
	m = linked(xrcd, 7, false);
	exchange(&m, &q, 2, 100);
	post(&l, q.number, 1, IBV_WR_SEND, 10, NULL);
	conf_wc_none(l.cq, 50);
	OK(ibv_destroy_srq(q.srq));
	q.srq = NULL;
	conf_wc_is(l.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	exchange(&m, &other, 3, 100);
	link_free(&l);
	link_free(&m);
	queue_free(&q);
	queue_free(&other);
	OK(ibv_close_xrcd(xrcd));
	close_device();
}

/* In the middle of a message: nothing is touched after the SRQ is gone. */
static void queue_goes_in_a_message(void)
{
	enum { LEN = 16 << 20 }; /* some ms */
	struct ibv_xrcd *xrcd;
	struct ibv_recv_wr rwr, *bad;
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct conf_buf big;
	struct ibv_wc wc;
	struct queue q;
	struct link l;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	for (int i = 0; i < 8; i++) {
		q = queue(xrcd, NULL);
		l = linked(xrcd, 7, false);
		big = conf_buf(q.pd, LEN, CONF_RW);
		sge = conf_sge(&big, 0, LEN);
		rwr = (struct ibv_recv_wr){ .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
		OK(ibv_post_srq_recv(q.srq, &rwr, &bad));
		conf_buf_free(&l.b);
		l.b = conf_buf(pd, LEN, CONF_RW);
		l.b.p[0] = 1;
		sge = conf_sge(&l.b, 0, LEN);
		wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
		wr.qp_type.xrc.remote_srqn = q.number;
		OK(conf_post(l.ini, &wr));
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
	OK(ibv_close_xrcd(xrcd));
	close_device();
}

enum { CHURNERS = 3, ROUNDS = 40 };

static _Atomic uint32_t current; /* number of the newest SRQ; 0: enough */
static struct ibv_xrcd *churned;

/* Sends to SRQs that come and go; a connection that has failed is made anew. */
static void *churner(void *arg)
{
	struct link l = linked(churned, 7, false);
	uint32_t srqn;
	int good = 0;

	while ((srqn = atomic_load(&current))) {
		struct ibv_sge sge = conf_sge(&l.b, 0, 20000);
		struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
		struct ibv_wc wc;

		wr.qp_type.xrc.remote_srqn = srqn;
		OK(conf_post(l.ini, &wr));
		conf_wc(l.cq, &wc);
		if (wc.status == IBV_WC_SUCCESS) {
			good++;
			continue;
		}
		EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
		link_free(&l);
		l = linked(churned, 7, false);
	}
	link_free(&l);
	*(int *)arg = good;
	return NULL;
}

static void queues_come_and_go(void)
{
	int good[CHURNERS] = { 0 }, all = 0;
	pthread_t t[CHURNERS];
	struct queue q, next;

	open_device();
	MUST(churned = domain_of(-1, O_CREAT));
	next = queue(churned, NULL);
	atomic_store(&current, next.number);
	for (int i = 0; i < CHURNERS; i++)
		t[i] = conf_thread(churner, &good[i]);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_wc wc;

		q = next;
		for (int k = 0; k < 8; k++)
			OK(queue_recv(&q, k, (size_t)k * 20000, 20000));
		for (int got = 0; got < 6; got++) /* some are left, filled or not */
			conf_wc(q.cq, &wc);
		next = queue(churned, NULL);
		atomic_store(&current, i + 1 == ROUNDS ? 0 : next.number);
		queue_free(&q);
	}
	queue_free(&next);
	for (int i = 0; i < CHURNERS; i++) {
		conf_join(t[i]);
		all += good[i];
	}
	CHECK(all >= 6 * ROUNDS);
	OK(ibv_close_xrcd(churned));
	close_device();
}

/* What has been received stays in the SRQ's CQ when the QP goes. */
static void completions_outlive_the_qp(void)
{
	struct ibv_xrcd *xrcd;
	struct ibv_wc wc;
	struct queue q;
	struct link l;
	uint32_t qpn;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	q = queue(xrcd, NULL);
	l = linked(xrcd, 7, false);
	OK(queue_recv(&q, 5, 0, 100));
	post(&l, q.number, 1, IBV_WR_SEND, 10, NULL);
	conf_wc_ok(l.cq, 1);
	qpn = l.tgt->qp_num;
	link_free(&l);
	conf_wc_get(q.cq, 5, IBV_WC_SUCCESS, &wc);
	EQ(wc.qp_num, qpn);
	queue_free(&q);
	OK(ibv_close_xrcd(xrcd));
	close_device();
}

/* ---- domains -------------------------------------------------------------------------------- */

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
	struct ibv_xrcd *a, *b, *c;
	int fd = temporary(), second, other = temporary();
	struct queue q;
	struct link l;

	open_device();
	CHECK((second = dup(fd)) >= 0);
	MUST(a = domain_of(fd, O_CREAT));
	OK(close(fd)); /* the inode counts, and stays */
	CHECK(!domain_of(second, O_CREAT | O_EXCL));
	EQ(errno, EINVAL);
	MUST(b = domain_of(second, 0));
	MUST(c = domain_of(other, O_CREAT | O_EXCL));
	q = queue(a, NULL);
	l = linked(b, 7, false);
	exchange(&l, &q, 1, 1000); /* one domain, two handles */
	EQ(ibv_close_xrcd(a), EBUSY);
	link_free(&l);
	OK(ibv_close_xrcd(b));
	refused(c, q.number, IBV_WR_SEND, NULL);
	queue_free(&q);
	OK(ibv_close_xrcd(a));
	OK(ibv_close_xrcd(c));
	OK(close(second));
	OK(close(other));
	close_device();
}

static void bad_domains(void)
{
	struct ibv_xrcd_init_attr attr = { .comp_mask = IBV_XRCD_INIT_ATTR_FD, .fd = -1 };
	int fd = temporary();

	open_device();
	CHECK(!ibv_open_xrcd(ctx, &attr));
	EQ(errno, EINVAL);
	CHECK(!domain_of(9999, O_CREAT));
	EQ(errno, EBADF);
	CHECK(!domain_of(fd, 0)); /* nobody has created it; here: not this process */
	EQ(errno, conf_user_device() ? EOPNOTSUPP : EAGAIN);
	OK(close(fd));
	close_device();
}

/* ---- handles -------------------------------------------------------------------------------- */

static struct ibv_qp *open_qp(struct ibv_xrcd *xrcd, uint32_t qpn, void *context)
{
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = qpn,
		.xrcd = xrcd,
		.qp_context = context,
		.qp_type = IBV_QPT_XRC_RECV,
	};

	return ibv_open_qp(ctx, &attr);
}

static void shared_qp(void)
{
	struct ibv_xrcd *xrcd, *again;
	struct ibv_qp *h, *g;
	int fd = temporary();
	struct queue q;
	struct link l;

	open_device();
	MUST(xrcd = domain_of(fd, O_CREAT));
	MUST(again = domain_of(fd, O_CREAT));
	q = queue(xrcd, NULL);
	l = linked(xrcd, 7, false);
	MUST(h = open_qp(again, l.tgt->qp_num, &q));
	MUST(g = open_qp(xrcd, l.tgt->qp_num, &l));
	CHECK(h != l.tgt && h->qp_num == l.tgt->qp_num && h->qp_context == &q);
	EQ(h->qp_type, IBV_QPT_XRC_RECV);
	EQ(conf_qp_state(h), IBV_QPS_RTS);
	EQ(ibv_close_xrcd(again), EBUSY);
	exchange(&l, &q, 1, 1000);
	OK(ibv_destroy_qp(g));
	g = l.tgt;
	l.tgt = h;
	OK(ibv_destroy_qp(g)); /* the creator's: the QP is there while a handle is */
	exchange(&l, &q, 2, 1000);
	MUST(g = open_qp(again, h->qp_num, NULL));
	OK(ibv_destroy_qp(g));
	exchange(&l, &q, 3, 1000);
	OK(ibv_destroy_qp(h));
	l.tgt = NULL;
	CHECK(!open_qp(xrcd, l.ini->qp_num, NULL)); /* a send QP */
	EQ(errno, EINVAL);
	post(&l, q.number, 4, IBV_WR_SEND, 10, NULL);
	conf_wc_is(l.cq, 4, IBV_WC_RETRY_EXC_ERR); /* the last was closed */
	link_free(&l);
	queue_free(&q);
	OK(ibv_close_xrcd(again));
	OK(ibv_close_xrcd(xrcd));
	OK(close(fd));
	close_device();
}

static void shared_qp_of_no_such(void)
{
	struct ibv_xrcd *xrcd, *second;
	struct ibv_qp *tgt;
	uint32_t qpn;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	MUST(second = domain_of(-1, O_CREAT));
	MUST(tgt = target(xrcd));
	CHECK(!open_qp(second, tgt->qp_num, NULL));
	EQ(errno, EINVAL);
	CHECK(!open_qp(xrcd, tgt->qp_num ^ 1, NULL));
	EQ(errno, EINVAL);
	qpn = tgt->qp_num;
	OK(ibv_destroy_qp(tgt));
	CHECK(!open_qp(xrcd, qpn, NULL));
	OK(ibv_close_xrcd(xrcd));
	OK(ibv_close_xrcd(second));
	close_device();
}

/* Every handle hears of the QP, on its own context. */
static void events_of_a_shared_qp(void)
{
	struct ibv_context *first, *second;
	struct ibv_xrcd *xrcd, *again;
	int fd = temporary();
	struct ibv_qp *h;
	struct queue q;
	struct link l;

	open_device();
	first = ctx;
	MUST(xrcd = domain_of(fd, O_CREAT));
	q = queue(xrcd, NULL);
	l = linked(xrcd, 7, false);
	second = ctx = open_context();
	conf_nonblock(second->async_fd, true);
	MUST(again = domain_of(fd, O_CREAT));
	MUST(h = open_qp(again, l.tgt->qp_num, NULL));
	ctx = first;
	post(&l, q.number ^ 0x777777, 1, IBV_WR_SEND, 10, NULL);
	conf_wc_is(l.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	event(first, IBV_EVENT_QP_ACCESS_ERR, l.tgt);
	event(second, IBV_EVENT_QP_ACCESS_ERR, h);
	EQ(conf_qp_state(h), IBV_QPS_ERR);
	link_free(&l);
	OK(ibv_destroy_qp(h));
	queue_free(&q);
	OK(ibv_close_xrcd(again));
	OK(ibv_close_xrcd(xrcd));
	OK(ibv_close_device(second));
	OK(close(fd));
	close_device();
}

/* ---- rules -------------------------------------------------------------------------------- */

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
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR };
	struct ibv_xrcd *xrcd;
	struct link l;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	sa.pd = pd;
	CHECK(!ibv_create_srq_ex(ctx, &sa)); /* neither domain nor CQ */
	EQ(errno, EINVAL);
	CHECK(!ibv_create_qp_ex(ctx, &qa)); /* no domain */
	EQ(errno, EINVAL);
	l = linked(xrcd, 7, false);
	EQ(ibv_post_recv(l.tgt, &rwr, &rbad), EINVAL);
	CHECK(rbad == &rwr);
	EQ(ibv_post_recv(l.ini, &rwr, &rbad), EINVAL);
	EQ(ibv_post_send(l.tgt, &swr, &sbad), EINVAL);
	CHECK(sbad == &swr);
	EQ(ibv_modify_qp(l.tgt, &attr, IBV_QP_STATE), EINVAL); /* from RTS */
	link_free(&l);
	MUST(l.tgt = target(xrcd));
	EQ(to_init(l.tgt), 0);
	EQ(ibv_modify_qp(l.tgt, &attr, IBV_QP_STATE), EINVAL); /* nothing given */
	EQ(to_rts(l.tgt, 0, 0), EINVAL);
	EQ(conf_qp_state(l.tgt), IBV_QPS_INIT);
	OK(ibv_destroy_qp(l.tgt));
	OK(ibv_close_xrcd(xrcd));
	close_device();
}

/* Each side ignores what belongs to the other half, as the kernel has it. */
static void attributes_of_the_other_half(void)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
	};
	struct ibv_qp_init_attr init;
	struct ibv_xrcd *xrcd;
	struct queue q;
	struct link l;

	open_device();
	MUST(xrcd = domain_of(-1, O_CREAT));
	q = queue(xrcd, NULL);
	l = linked(xrcd, 7, false);
	EQ(ibv_query_qp(l.ini, &attr, IBV_QP_STATE, &init), 0);
	EQ(attr.qp_state, IBV_QPS_RTS);
	EQ(attr.dest_qp_num, l.tgt->qp_num);
	CHECK(init.send_cq == l.cq && init.qp_type == IBV_QPT_XRC_SEND);
	attr.qp_state = IBV_QPS_RESET;
	OK(ibv_modify_qp(l.ini, &attr, IBV_QP_STATE));
	OK(ibv_modify_qp(l.tgt, &attr, IBV_QP_STATE));
	EQ(to_init(l.ini), 0);
	EQ(to_init(l.tgt), 0);
	EQ(to_rtr(l.tgt, l.ini->qp_num, 0x1111), 0);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = port.active_mtu,
		.dest_qp_num = l.tgt->qp_num,
		.max_dest_rd_atomic = 4,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = gid, .sgid_index = gid_index } },
	};
	EQ(ibv_modify_qp(l.ini, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			 IBV_QP_MIN_RNR_TIMER), 0);
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14 };
	EQ(ibv_modify_qp(l.tgt, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), 0);
	EQ(to_rts(l.ini, 0x1111, 7), 0);
	exchange(&l, &q, 1, 1000); /* again after a reset */
	link_free(&l);
	queue_free(&q);
	OK(ibv_close_xrcd(xrcd));
	close_device();
}

/* ---- by the connection manager -------------------------------------------------------------- */

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

	open_device(); /* whether there is XRC */
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
	close_device();
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
