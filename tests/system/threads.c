/* SPDX-License-Identifier: BSD-2-Clause */
/* A server whose threads share QPs and CQs, as key-value stores with I/O threads have it:
 * one thread waits for completion channels in epoll and polls the CQs it is told of;
 * another one of several posts the answer, and may poll the same CQ before it. Requests
 * and answers are writes with immediate data, of which one in WRS is signalled: the send
 * queue has no slot left when that one completes. */
#include "lab.h"

#include <sys/epoll.h>

enum {
	CONNS = 4,
	IO_THREADS = 3,
	WRS = 32,
	SIZE = 128 * 1024, /* of either half of a connection's memory */
	END = 0xffffffff,  /* immediate data: the client has no more requests */
};

/* What each side tells the other, as private data. */
struct where {
	uint64_t addr;
	uint32_t rkey;
} __attribute__((packed));

struct conn {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct conf_buf buf; /* what arrives, then what leaves */
	struct where peer;
	pthread_mutex_t lock;
	unsigned posted, signalled; /* writes, and completions of them */
	unsigned requests;	    /* received and not answered */
	uint32_t length;	    /* of the last one */
	bool queued, ended;
};

static struct conn conns[CONNS];
/* The thread that waits for events is the only one that polls, the I/O threads are the only
 * ones that post sends, and they share no lock. */
static bool apart;

static void recv_post(struct conn *c)
{
	struct ibv_recv_wr wr = { .wr_id = 1 }, *bad;

	EQ(ibv_post_recv(c->id->qp, &wr, &bad), 0);
}

static void conn_init(struct conn *c, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(WRS, WRS, 1) };

	c->id = id;
	pthread_mutex_init(&c->lock, NULL);
	MUST(c->channel = ibv_create_comp_channel(id->verbs));
	conf_nonblock(c->channel->fd, true);
	MUST(c->cq = ibv_create_cq(id->verbs, 2 * WRS, c, c->channel, 0));
	attr.send_cq = attr.recv_cq = c->cq;
	OK(rdma_create_qp(id, id->pd, &attr));
	c->buf = conf_buf(id->pd, 2 * SIZE, CONF_RW);
	for (int i = 0; i < WRS; i++)
		recv_post(c);
	EQ(ibv_req_notify_cq(c->cq, 0), 0);
}

static struct where where(const struct conn *c)
{
	return (struct where){ (uintptr_t)c->buf.p, c->buf.mr->rkey };
}

static void conn_free(struct conn *c)
{
	rdma_destroy_qp(c->id);
	EQ(ibv_destroy_cq(c->cq), 0);
	EQ(ibv_destroy_comp_channel(c->channel), 0);
	conf_buf_free(&c->buf);
	OK(rdma_destroy_id(c->id));
}

/* Writes what stands in the second half into the first half of the peer's memory. */
static void write_imm(struct conn *c, uint32_t length, uint32_t imm)
{
	struct ibv_sge sge = conf_sge(&c->buf, SIZE, length);
	struct ibv_send_wr wr = conf_rdma(2, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1,
					  (void *)(uintptr_t)c->peer.addr, c->peer.rkey);

	wr.imm_data = htonl(imm);
	wr.send_flags = ++c->posted % WRS ? 0 : IBV_SEND_SIGNALED;
	EQ(conf_post(c->id->qp, &wr), 0);
}

/* Polls until the CQ is empty; each message uses up a receive, which is posted again. */
static void drain(struct conn *c)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(c->cq, 1, &wc)) == 1) {
		if (wc.status)
			FAIL("work request %d: %s", (int)wc.wr_id, ibv_wc_status_str(wc.status));
		if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
			c->signalled++;
			continue;
		}
		c->length = ntohl(wc.imm_data);
		c->ended |= c->length == END;
		c->requests++;
		recv_post(c);
	}
	EQ(n, 0);
}

static void event_fetch(struct conn *c)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(c->channel, &cq, &context)) {
		CHECK(cq == c->cq);
		ibv_ack_cq_events(cq, 1);
	}
	EQ(errno, EAGAIN);
	EQ(ibv_req_notify_cq(c->cq, 0), 0);
}

/* ---- the server: connections that wait for an I/O thread --------------------------- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct conn *conn[CONNS];
	unsigned n;
	bool end;
} jobs = { .lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER };

static void job_add(struct conn *c)
{
	pthread_mutex_lock(&jobs.lock);
	if (!c->queued) {
		c->queued = true;
		jobs.conn[jobs.n++] = c;
		pthread_cond_signal(&jobs.some);
	}
	pthread_mutex_unlock(&jobs.lock);
}

static struct conn *job_get(void)
{
	struct conn *c = NULL;

	pthread_mutex_lock(&jobs.lock);
	while (!jobs.n && !jobs.end)
		pthread_cond_wait(&jobs.some, &jobs.lock);
	if (jobs.n) {
		c = jobs.conn[--jobs.n];
		c->queued = false;
	}
	pthread_mutex_unlock(&jobs.lock);
	return c;
}

static void answer(struct conn *c)
{
	memcpy(c->buf.p + SIZE, c->buf.p, c->length);
	write_imm(c, c->length, c->length);
}

/* True: there is a request to be answered. */
static bool request_get(struct conn *c)
{
	unsigned n;

	drain(c);
	n = c->requests;
	c->requests = 0;
	if (!n || c->ended)
		return false;
	EQ(n, 1); /* a client waits for its answer */
	return true;
}

static void *io_thread(void *arg)
{
	struct conn *c;

	while ((c = job_get())) {
		if (apart) {
			answer(c);
			continue;
		}
		pthread_mutex_lock(&c->lock);
		if (request_get(c))
			answer(c);
		pthread_mutex_unlock(&c->lock);
	}
	return arg;
}

/* In the thread that waits for events. */
static void conn_ready(struct conn *c)
{
	if (apart) {
		event_fetch(c);
		if (request_get(c))
			job_add(c);
		return;
	}
	pthread_mutex_lock(&c->lock);
	event_fetch(c);
	drain(c);
	pthread_mutex_unlock(&c->lock);
	job_add(c);
}

static bool all_ended(void)
{
	bool all = true;

	for (int i = 0; i < CONNS; i++) {
		pthread_mutex_lock(&conns[i].lock);
		all &= conns[i].ended;
		pthread_mutex_unlock(&conns[i].lock);
	}
	return all;
}

static void event_loop(void)
{
	struct epoll_event ev[CONNS];
	int ep, n;

	MUST((ep = epoll_create1(0)) >= 0);
	for (int i = 0; i < CONNS; i++) {
		ev[0] = (struct epoll_event){ .events = EPOLLIN, .data.ptr = &conns[i] };
		OK(epoll_ctl(ep, EPOLL_CTL_ADD, conns[i].channel->fd, &ev[0]));
	}
	while (!all_ended()) {
		AT("waiting for completion channels");
		n = epoll_wait(ep, ev, CONNS, 100);
		for (int i = 0; i < n; i++)
			conn_ready(ev[i].data.ptr);
	}
	close(ep);
}

static void accept_one(struct conn *c, const struct rdma_cm_event *request)
{
	struct rdma_conn_param param = conf_param();
	struct where here;

	memcpy(&c->peer, request->param.conn.private_data, sizeof(c->peer));
	conn_init(c, request->id);
	here = where(c);
	param.private_data = &here;
	param.private_data_len = sizeof(here);
	OK(rdma_accept(c->id, &param));
}

/* The next request may be here before the connection before it is established. */
static void serve(struct rdma_event_channel *ch)
{
	unsigned requests = 0, established = 0;
	struct rdma_cm_event *ev;

	while (established < CONNS) {
		MUST(ev = conf_next(ch, CONF_WAIT));
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			accept_one(&conns[requests++], ev);
		} else {
			EQ(ev->event, RDMA_CM_EVENT_ESTABLISHED);
			established++;
		}
		OK(rdma_ack_cm_event(ev));
	}
}

static void server(struct peer *me, void *arg)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *listener = conf_listen(ch, AF_INET, CONNS);
	pthread_t io[IO_THREADS];

	(void)arg;
	peer_say_u32(me, ntohs(rdma_get_src_port(listener)));
	serve(ch);
	for (int i = 0; i < IO_THREADS; i++)
		io[i] = conf_thread(io_thread, NULL);
	event_loop();
	pthread_mutex_lock(&jobs.lock);
	jobs.end = true;
	pthread_cond_broadcast(&jobs.some);
	pthread_mutex_unlock(&jobs.lock);
	for (int i = 0; i < IO_THREADS; i++)
		conf_join(io[i]);
	peer_say(me, 'e');
	peer_hear(me, 'e');
	for (int i = 0; i < CONNS; i++)
		conn_free(&conns[i]);
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

/* ---- the client: one request of each connection under way -------------------------- */

static void join(struct conn *c, struct rdma_event_channel *ch, uint16_t port)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;
	struct where here;

	conn_init(c, conf_route_resolved(ch, conf_addr(AF_INET, port)));
	here = where(c);
	param.private_data = &here;
	param.private_data_len = sizeof(here);
	OK(rdma_connect(c->id, &param));
	ev = conf_get(ch, c->id, RDMA_CM_EVENT_ESTABLISHED);
	memcpy(&c->peer, ev->param.conn.private_data, sizeof(here));
	OK(rdma_ack_cm_event(ev));
}

/* What goes through the ring in one piece, in several, and past it. */
static uint32_t length_of(unsigned round)
{
	static const uint32_t some[] = { 16, 64, 3000, 16, 40000, 16, SIZE };

	return some[round % (sizeof(some) / sizeof(*some))];
}

static void await(struct conn *c)
{
	struct pollfd p = { .fd = c->channel->fd, .events = POLLIN };

	drain(c);
	while (!c->requests) {
		AT("waiting for an answer");
		if (poll(&p, 1, conf_ms(CONF_WAIT)) != 1)
			FAIL("no answer to request %u", c->posted);
		event_fetch(c);
		drain(c);
	}
	EQ(c->requests, 1);
	c->requests = 0;
}

static void ask(unsigned rounds)
{
	for (unsigned r = 0; r < rounds; r++) {
		uint32_t length = length_of(r);

		for (int i = 0; i < CONNS; i++) {
			conf_pattern(conns[i].buf.p + SIZE, length, r + (unsigned)i);
			write_imm(&conns[i], length, length);
		}
		for (int i = 0; i < CONNS; i++) {
			await(&conns[i]);
			EQ(conns[i].length, length);
			CHECK(conf_pattern_ok(conns[i].buf.p, length, r + (unsigned)i));
		}
	}
	for (int i = 0; i < CONNS; i++)
		write_imm(&conns[i], 0, END);
}

static void run(void)
{
	struct peer s = peer_start(server, NULL);
	uint16_t port = (uint16_t)peer_hear_u32(&s);
	struct rdma_event_channel *ch = conf_channel();

	for (int i = 0; i < CONNS; i++)
		join(&conns[i], ch, port);
	ask(conf_rounds(2000, 100000));
	peer_hear(&s, 'e');
	for (int i = 0; i < CONNS; i++)
		EQ(conns[i].signalled, conns[i].posted / WRS);
	peer_say(&s, 'e');
	peer_end(&s);
	for (int i = 0; i < CONNS; i++)
		conn_free(&conns[i]);
	rdma_destroy_event_channel(ch);
}

static void polled_by_one_thread_after_another(void)
{
	run();
}

static void polled_by_one_thread_posted_by_others(void)
{
	apart = true;
	run();
}

static const struct conf_case cases[] = {
	LONG_CASE(polled_by_one_thread_after_another, 120),
	LONG_CASE(polled_by_one_thread_posted_by_others, 120),
};
CONF_MAIN(cases)
