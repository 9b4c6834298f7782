/* SPDX-License-Identifier: BSD-2-Clause */
/* Thousands of connections between two processes that share memory: none of them costs a
 * descriptor, some carry data, all of them end. */
#include "../inuse.h"
#include "lab.h"

#include <sys/resource.h>

#ifdef CONF_SANITIZER
enum { MANY = 1000 };
#else
enum { MANY = 10000 };
#endif

enum {
	LIMIT = 256,	/* descriptors that a process may have */
	QPS_A_PORT = 256, /* QP numbers carry a port, two sockets, for so many QPs */
	FEW = 24,	/* descriptors of a process that uses the library */
	UNDER_WAY = 64,
	WRS = 16,
	SOME = MANY / 10,
	SOME_CQS = 20,	/* looking at thousands of CQs takes its time */
	LEN = 64,
};

static bool cq_each; /* before the peer starts: QPs do not share a CQ */

static uint32_t some(void)
{
	return cq_each ? SOME_CQS : SOME;
}

struct many {
	struct rdma_event_channel *ch;
	struct rdma_cm_id **id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t (*buf)[LEN]; /* one for each connection, one to send from */
};

/* Before the library is used. */
static void poor(void)
{
	struct rlimit r = { LIMIT, LIMIT };

	OK(setrlimit(RLIMIT_NOFILE, &r));
	setenv("ANYRDMA_NOFILE", "keep", 1);
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
}

static void open_many(struct many *m)
{
	memset(m, 0, sizeof(*m));
	m->ch = conf_channel();
	MUST(m->id = calloc(MANY, sizeof(*m->id)));
	MUST(m->buf = calloc(MANY + 1, LEN));
}

static void make_qp(struct many *m, struct rdma_cm_id *id, uint32_t nr)
{
	struct ibv_qp_init_attr attr = { .cap = CONF_CAP(WRS, WRS, 1), .qp_type = IBV_QPT_RC };
	struct ibv_recv_wr wr = { .wr_id = nr, .num_sge = 1 }, *bad;
	struct ibv_sge sge;

	if (!m->pd) {
		MUST(m->pd = ibv_alloc_pd(id->verbs));
		MUST(m->cq = ibv_create_cq(id->verbs, 4 * MANY, NULL, NULL, 0));
		MUST(m->mr = ibv_reg_mr(m->pd, m->buf, (MANY + 1) * LEN, IBV_ACCESS_LOCAL_WRITE));
	}
	attr.send_cq = attr.recv_cq = m->cq;
	if (cq_each)
		MUST(attr.send_cq = attr.recv_cq =
			     ibv_create_cq(id->verbs, 2 * WRS, NULL, NULL, 0));
	OK(rdma_create_qp(id, m->pd, &attr));
	sge = (struct ibv_sge){ (uintptr_t)m->buf[nr], LEN, m->mr->lkey };
	wr.sg_list = &sge;
	EQ(ibv_post_recv(id->qp, &wr, &bad), 0);
	id->context = (void *)(uintptr_t)nr;
	m->id[nr] = id;
}

static void message(uint8_t *p, uint32_t nr, uint8_t by)
{
	for (int i = 0; i < LEN; i++)
		p[i] = (uint8_t)(nr * 7 + nr / 256 + (unsigned)i + by);
}

static void send_one(struct many *m, uint32_t nr, uint8_t by)
{
	struct ibv_sge sge = { (uintptr_t)m->buf[MANY], LEN, m->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = nr, .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;

	message(m->buf[MANY], nr, by);
	EQ(ibv_post_send(m->id[nr]->qp, &wr, &bad), 0);
}

static int poll_any(struct many *m, struct ibv_wc *wc)
{
	for (int i = 0; cq_each && i < MANY; i++)
		if (ibv_poll_cq(m->id[i]->qp->send_cq, 1, wc))
			return 1;
	return cq_each ? 0 : ibv_poll_cq(m->cq, 1, wc);
}

static struct ibv_wc next_wc(struct many *m)
{
	uint64_t end = conf_now() + (uint64_t)conf_ms(CONF_WAIT) * 1000000u;
	struct ibv_wc wc;

	while (!poll_any(m, &wc))
		CHECK(conf_now() < end);
	EQ(wc.status, IBV_WC_SUCCESS);
	return wc;
}

/* The receive of this connection, if *nr is one; else of any, which is told. */
static void receive(struct many *m, uint32_t *nr, uint8_t by)
{
	uint8_t want[LEN];
	struct ibv_wc wc;

	do
		wc = next_wc(m);
	while (wc.opcode != IBV_WC_RECV);
	if (*nr != UINT32_MAX)
		EQ(wc.wr_id, *nr);
	*nr = (uint32_t)wc.wr_id;
	message(want, *nr, by);
	CHECK(!memcmp(m->buf[*nr], want, LEN));
}

static void close_many(struct many *m)
{
	for (uint32_t i = 0; i < MANY; i++) {
		struct ibv_cq *cq = m->id[i]->qp->send_cq;

		conf_id_free(m->id[i]);
		if (cq != m->cq)
			OK(ibv_destroy_cq(cq));
	}
	OK(ibv_dereg_mr(m->mr));
	OK(ibv_destroy_cq(m->cq));
	OK(ibv_dealloc_pd(m->pd));
	free(m->buf);
	free(m->id);
}

/* Connections cost descriptors by their QP numbers alone. */
static void check_descriptors(int before)
{
	int now = inuse_fds();

	if (now - before > 2 * (MANY / QPS_A_PORT + 1) + FEW)
		FAIL("%d connections have taken %d descriptors", MANY, now - before);
}

/* ---- server ------------------------------------------------------------------------ */

/* Numbers agree: the client sends its own as private data. */
static void take_request(struct many *m, struct rdma_cm_event *ev)
{
	struct rdma_conn_param param = conf_param();
	uint32_t nr;

	memcpy(&nr, ev->param.conn.private_data, sizeof(nr));
	CHECK(nr < MANY && !m->id[nr]);
	make_qp(m, ev->id, nr);
	OK(rdma_accept(ev->id, &param));
}

static void serve(struct peer *me, void *arg)
{
	struct rdma_cm_id *listener;
	uint32_t up = 0, down = 0, nr;
	struct rdma_cm_event *ev;
	struct many m;
	int before;

	(void)arg;
	poor();
	open_many(&m);
	listener = conf_listen(m.ch, AF_INET, 128);
	before = inuse_fds();
	peer_say_u32(me, ntohs(rdma_get_src_port(listener)));
	while (up < MANY) {
		MUST(ev = conf_next(m.ch, conf_ms(CONF_WAIT)));
		EQ(ev->status, 0);
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			take_request(&m, ev);
		else
			EQ(ev->event, RDMA_CM_EVENT_ESTABLISHED);
		up += ev->event == RDMA_CM_EVENT_ESTABLISHED;
		OK(rdma_ack_cm_event(ev));
	}
	check_descriptors(before);
	peer_say(me, 'u');
	for (uint32_t i = 0; i < some(); i++) {
		nr = UINT32_MAX;
		receive(&m, &nr, 1);
		send_one(&m, nr, 2);
	}
	peer_hear(me, 'd');
	for (; down < MANY; down++) {
		ev = conf_get(m.ch, NULL, RDMA_CM_EVENT_DISCONNECTED);
		OK(rdma_disconnect(ev->id));
		OK(rdma_ack_cm_event(ev));
	}
	close_many(&m);
	conf_id_close(listener);
	check_descriptors(before);
}

/* ---- client ------------------------------------------------------------------------ */

static void begin(struct many *m, uint16_t port)
{
	conf_sa to = conf_addr(AF_INET, port);
	struct rdma_cm_id *id = conf_id(m->ch);

	OK(rdma_resolve_addr(id, NULL, SA(to), 2000));
}

/* One event; true if a connection stands. */
static bool step(struct many *m, uint32_t *made)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	bool up;

	MUST(ev = conf_next(m->ch, conf_ms(CONF_WAIT)));
	EQ(ev->status, 0);
	switch (ev->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		OK(rdma_resolve_route(ev->id, 2000));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		param.private_data = made;
		param.private_data_len = sizeof(*made);
		make_qp(m, ev->id, *made);
		OK(rdma_connect(ev->id, &param));
		++*made;
		break;
	default:
		EQ(ev->event, RDMA_CM_EVENT_ESTABLISHED);
	}
	up = ev->event == RDMA_CM_EVENT_ESTABLISHED;
	OK(rdma_ack_cm_event(ev));
	return up;
}

static void connect_all(struct many *m, uint16_t port)
{
	uint32_t begun = 0, made = 0, up = 0;

	while (up < MANY) {
		for (; begun < MANY && begun - up < UNDER_WAY; begun++)
			begin(m, port);
		up += step(m, &made);
	}
}

/* To and fro on connections chosen at random, none twice: each has one receive. */
static void some_traffic(struct many *m)
{
	uint8_t *used = calloc(MANY, 1);
	uint32_t nr;

	MUST(used);
	srandom(1);
	for (uint32_t i = 0; i < some(); i++) {
		do
			nr = (uint32_t)random() % MANY;
		while (used[nr]);
		used[nr] = 1;
		send_one(m, nr, 1);
		receive(m, &nr, 2);
	}
	free(used);
}

static void ten_thousand(void)
{
	struct peer p;
	struct many m;
	uint16_t port;
	int before;

	if (!conf_user_device())
		SKIP("the kernel's device needs no test for this");
	p = peer_start(serve, NULL);
	port = (uint16_t)peer_hear_u32(&p);
	poor();
	open_many(&m);
	before = inuse_fds();
	connect_all(&m, port);
	check_descriptors(before);
	peer_hear(&p, 'u');
	some_traffic(&m);
	peer_say(&p, 'd');
	for (uint32_t i = 0; i < MANY; i++)
		OK(rdma_disconnect(m.id[i]));
	for (uint32_t i = 0; i < MANY; i++)
		conf_expect(m.ch, NULL, RDMA_CM_EVENT_DISCONNECTED);
	close_many(&m);
	rdma_destroy_event_channel(m.ch);
	check_descriptors(before);
	peer_end(&p);
}

static void ten_thousand_cqs(void)
{
	cq_each = true;
	ten_thousand();
}

static const struct conf_case cases[] = {
	LONG_CASE(ten_thousand, 60),
	LONG_CASE(ten_thousand_cqs, 60),
};
CONF_MAIN(cases)
