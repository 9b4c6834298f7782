/* SPDX-License-Identifier: BSD-2-Clause */
/* A process without memory. The n-th allocation of a client and of a server fails, or
 * every one from the n-th on, for each n: what is asked of the library works, or fails by
 * a return value, an event or a completion; nothing crashes or waits for ever, at neither
 * end; and when there is memory again, all works. */
#include "lab.h"
#include "starve.h"

#include <sys/mman.h>

enum {
	DEPTH = 8,
	SIZE = 4096,
	MESSAGE = 16, /* the server's first: rkey and address */
	FROM = 64,    /* the client's operations */
	WORDS = 128,
	CONNS = 4,
	LONG = 30000, /* ms: no answer at all */
};

/* How a process fares; shared with the case. */
static struct fate {
	atomic_bool met; /* the n-th allocation was asked for */
} *fate;

struct want {
	uint16_t port;
	unsigned n; /* 0: this process has memory */
	bool on;
};

struct side {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener, *id;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf;
	bool connected; /* ESTABLISHED, and no DISCONNECTED yet */
};

static uint8_t memory[SIZE] __attribute__((aligned(4096)));

/* ---- both ------------------------------------------------------------------------ */

static struct rdma_cm_event *next_event(struct side *s, int ms)
{
	struct pollfd fd = { .fd = s->ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;

	if (poll(&fd, 1, ms) != 1)
		return NULL;
	if (!rdma_get_cm_event(s->ch, &ev))
		return ev;
	EQ(errno, EAGAIN); /* a request for which there was no memory */
	return NULL;
}

static bool side_open(struct side *s)
{
	memset(s, 0, sizeof(*s));
	s->buf = memory;
	s->ch = rdma_create_event_channel();
	if (!s->ch)
		return false;
	OK(fcntl(s->ch->fd, F_SETFL, O_NONBLOCK));
	return true;
}

static bool post_recv(struct side *s, uint32_t offset)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + offset, MESSAGE, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = offset, .sg_list = &sge, .num_sge = 1 }, *bad;

	return !ibv_post_recv(s->id->qp, &wr, &bad);
}

static bool side_objects(struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .cap = CONF_CAP(DEPTH, DEPTH, 1),
	};

	s->cq = ibv_create_cq(s->id->verbs, 2 * DEPTH, NULL, NULL, 0);
	if (!s->cq)
		return false;
	attr.send_cq = attr.recv_cq = s->cq;
	s->mr = ibv_reg_mr(s->id->pd, s->buf, SIZE / CONNS, CONF_RW | IBV_ACCESS_REMOTE_ATOMIC);
	return s->mr && !rdma_create_qp(s->id, NULL, &attr) && post_recv(s, 0);
}

static void side_objects_free(struct side *s)
{
	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->mr)
		OK(ibv_dereg_mr(s->mr));
	if (s->cq)
		OK(ibv_destroy_cq(s->cq));
	if (s->id)
		OK(rdma_destroy_id(s->id));
	s->mr = NULL;
	s->cq = NULL;
	s->id = NULL;
}

static void side_close(struct side *s)
{
	side_objects_free(s);
	if (s->listener)
		OK(rdma_destroy_id(s->listener));
	if (s->ch)
		rdma_destroy_event_channel(s->ch);
}

/* ---- client ---------------------------------------------------------------------- */

/* The answer to what was just asked for. */
static bool answered(struct side *s, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = next_event(s, conf_ms(LONG));
	bool good;

	if (!ev)
		FAIL("no event: waited for %s", rdma_event_str(type));
	good = ev->event == type;
	OK(rdma_ack_cm_event(ev));
	return good;
}

/* A good completion. */
static bool completed(struct side *s)
{
	uint64_t end = conf_now() + conf_ms(LONG) * 1000000ull;
	struct rdma_cm_event *ev;
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(s->cq, 1, &wc))) {
		if (s->connected && (ev = next_event(s, 0))) {
			EQ(ev->event, RDMA_CM_EVENT_DISCONNECTED);
			OK(rdma_ack_cm_event(ev));
			s->connected = false;
			/* The QP is flushed, unless the peer's end did it. */
			rdma_disconnect(s->id);
		}
		if (conf_now() > end)
			FAIL("no completion, %sconnected", s->connected ? "" : "not ");
	}
	EQ(n, 1);
	return wc.status == IBV_WC_SUCCESS;
}

static bool operate(struct side *s, enum ibv_wr_opcode opcode, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + FROM, length, s->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.opcode = opcode, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	};
	uint32_t rkey;
	uint64_t addr;

	memcpy(&addr, s->buf, 8);
	memcpy(&rkey, s->buf + 8, 4);
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = addr + WORDS;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = addr + WORDS;
		wr.wr.rdma.rkey = rkey;
	}
	return !ibv_post_send(s->id->qp, &wr, &bad) && completed(s);
}

static bool client_steps(struct side *s, struct sockaddr *to)
{
	struct rdma_conn_param param = conf_param();

	if (!side_open(s) || rdma_create_id(s->ch, &s->id, NULL, RDMA_PS_TCP) ||
	    rdma_resolve_addr(s->id, NULL, to, 1000) ||
	    !answered(s, RDMA_CM_EVENT_ADDR_RESOLVED) ||
	    rdma_resolve_route(s->id, 1000) ||
	    !answered(s, RDMA_CM_EVENT_ROUTE_RESOLVED) || !side_objects(s) ||
	    rdma_connect(s->id, &param) || !answered(s, RDMA_CM_EVENT_ESTABLISHED))
		return false;
	s->connected = true;
	if (!completed(s) || !operate(s, IBV_WR_RDMA_WRITE, 64) ||
	    !operate(s, IBV_WR_RDMA_READ, 64) ||
	    !operate(s, IBV_WR_ATOMIC_FETCH_AND_ADD, 8) || !operate(s, IBV_WR_SEND, MESSAGE))
		return false;
	OK(rdma_disconnect(s->id));
	s->connected = false;
	if (!answered(s, RDMA_CM_EVENT_DISCONNECTED))
		FAIL("another event than DISCONNECTED");
	return true;
}

static bool client(struct sockaddr *to)
{
	struct side s;
	bool good = client_steps(&s, to);

	if (s.connected && !rdma_disconnect(s.id))
		answered(&s, RDMA_CM_EVENT_DISCONNECTED);
	side_close(&s);
	return good;
}

/* ---- server ---------------------------------------------------------------------- */

static bool greet(struct side *s)
{
	struct ibv_sge sge = { (uintptr_t)s->buf + FROM, MESSAGE, s->mr->lkey };
	struct ibv_send_wr *bad, wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	uint64_t addr = (uintptr_t)s->buf;

	memcpy(s->buf + FROM, &addr, 8);
	memcpy(s->buf + FROM + 8, &s->mr->rkey, 4);
	return !ibv_post_send(s->id->qp, &wr, &bad);
}

/* A client may come again before the server knows the end of its last connection. */
static struct conn {
	struct side side;
	bool used;
} conns[CONNS];

static unsigned live, served;

static struct side *conn_new(struct rdma_cm_id *id)
{
	int i = 0;

	while (i < CONNS - 1 && conns[i].used)
		i++;
	CHECK(!conns[i].used);
	memset(&conns[i], 0, sizeof(conns[i]));
	conns[i].used = true;
	conns[i].side.id = id;
	conns[i].side.buf = memory + (SIZE / CONNS) * i;
	id->context = &conns[i];
	live++;
	return &conns[i].side;
}

static void conn_end(struct side *s)
{
	struct conn *c = s->id->context;

	served += s->connected;
	side_objects_free(s);
	c->used = false;
	live--;
}

/* The application's only duty: whose work fails disconnects. */
static void conn_look(struct side *s)
{
	struct ibv_wc wc;

	while (s->cq && ibv_poll_cq(s->cq, 1, &wc) == 1)
		if (wc.status && s->connected) {
			s->connected = false;
			rdma_disconnect(s->id);
		}
}

static void conn_event(struct side *s, enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		s->connected = greet(s);
		if (!s->connected)
			rdma_disconnect(s->id);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_disconnect(s->id);
		conn_end(s);
		break;
	default:
		conn_end(s);
		break;
	}
}

static void server_event(struct rdma_cm_event *ev)
{
	struct rdma_conn_param param = conf_param();
	enum rdma_cm_event_type type = ev->event;
	struct rdma_cm_id *id = ev->id;
	struct side *s;

	OK(rdma_ack_cm_event(ev));
	if (type != RDMA_CM_EVENT_CONNECT_REQUEST) {
		conn_event(&((struct conn *)id->context)->side, type);
		return;
	}
	s = conn_new(id);
	if (!side_objects(s) || rdma_accept(s->id, &param))
		conn_end(s);
}

static bool server_open(struct side *s, struct sockaddr *addr)
{
	return side_open(s) && !rdma_create_id(s->ch, &s->listener, NULL, RDMA_PS_TCP) &&
	       !rdma_bind_addr(s->listener, addr) && !rdma_listen(s->listener, 8);
}

/* Serves until the case says that the last client has ended. */
static void serve(struct side *s, struct peer *me, int ms)
{
	uint64_t end = conf_now() + conf_ms(ms) * 1000000ull;
	struct pollfd fd[2] = { { .fd = s->ch->fd, .events = POLLIN },
				{ .fd = me->in, .events = POLLIN } };
	struct rdma_cm_event *ev;
	bool over = false;

	served = 0;
	while (!over || live) {
		AT("serving");
		poll(fd, over ? 1 : 2, live ? 1 : 1000);
		if (!over && fd[1].revents) {
			peer_hear(me, 'e');
			over = true;
			end = conf_now() + conf_ms(LONG) * 1000000ull;
		}
		while ((ev = next_event(s, 0)))
			server_event(ev);
		for (int i = 0; i < CONNS; i++)
			if (conns[i].used)
				conn_look(&conns[i].side);
		if (conf_now() > end)
			FAIL("a connection does not end");
	}
}

/* ---- starved clients ------------------------------------------------------------- */

static void healthy_server(struct peer *me, void *arg)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct side s;

	(void)arg;
	CHECK(server_open(&s, SA(addr)));
	peer_say_u32(me, ntohs(rdma_get_src_port(s.listener)));
	serve(&s, me, 100 * LONG);
	side_close(&s);
}

static void starved_client(struct peer *me, void *arg)
{
	struct want *w = arg;
	conf_sa addr = conf_addr(AF_INET, w->port);

	(void)me;
	starve(w->n, w->on);
	client(SA(addr));
	fate->met = starve_met();
	starve(0, false);
	if (!client(SA(addr)))
		FAIL("there is memory again, but no connection");
}

static void share_fate(void)
{
	fate = mmap(NULL, sizeof(*fate), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(fate != MAP_FAILED);
	/* The log says what failed; for scripts/tap-run. */
	printf("# errors are expected\n");
	fflush(stdout);
}

static void close_peer(struct peer *p)
{
	peer_end(p);
	close(p->in);
	close(p->out);
}

static void starve_client(bool on)
{
	struct peer server = peer_start(healthy_server, NULL), p;
	struct want w = { .n = conf_env("STARVE_FROM", 1), .on = on };

	share_fate();
	w.port = (uint16_t)peer_hear_u32(&server);
	do {
		if (getenv("STARVE_FROM"))
			fprintf(stderr, "n = %u at %u\n", w.n, (unsigned)(conf_now() / 1000000));
		p = peer_start(starved_client, &w);
		close_peer(&p);
		w.n++;
	} while (fate->met);
	peer_say(&server, 'e');
	close_peer(&server);
	CHECK(w.n > 20);
}

static void client_once(void)
{
	starve_client(false);
}

static void client_from_then_on(void)
{
	starve_client(true);
}

/* ---- starved servers ------------------------------------------------------------- */

static void starved_server(struct peer *me, void *arg)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct want *w = arg;
	struct side s;

	starve(w->n, w->on);
	if (server_open(&s, SA(addr))) {
		peer_say_u32(me, ntohs(rdma_get_src_port(s.listener)));
		serve(&s, me, LONG);
	} else {
		peer_say_u32(me, 0);
	}
	side_close(&s);
	fate->met = starve_met();
	starve(0, false);
	CHECK(server_open(&s, SA(addr)));
	peer_say_u32(me, ntohs(rdma_get_src_port(s.listener)));
	serve(&s, me, LONG);
	EQ(served, 1);
	side_close(&s);
}

struct visit {
	uint16_t port;
	const char *retry_ms; /* ANYRDMA_CM_RETRY_MS: how long a client tries that is not
			       * answered */
};

static void healthy_client(struct peer *me, void *arg)
{
	struct visit *v = arg;
	conf_sa addr = conf_addr(AF_INET, v->port);

	setenv("ANYRDMA_CM_RETRIES", "1", 1);
	setenv("ANYRDMA_CM_RETRY_MS", v->retry_ms, 1);
	peer_say(me, client(SA(addr)) ? '+' : '-');
}

static char visit(uint16_t port, const char *retry_ms)
{
	struct visit v = { port, retry_ms };
	struct peer p = peer_start(healthy_client, &v);
	char c;

	if (read(p.in, &c, 1) != 1)
		c = 0;
	close_peer(&p);
	return c;
}

static void starve_server(bool on)
{
	struct want w = { .n = conf_env("STARVE_FROM", 1), .on = on };
	struct peer p;
	uint16_t port;

	share_fate();
	do {
		if (getenv("STARVE_FROM"))
			fprintf(stderr, "n = %u at %u\n", w.n, (unsigned)(conf_now() / 1000000));
		p = peer_start(starved_server, &w);
		port = (uint16_t)peer_hear_u32(&p);
		if (port) {
			visit(port, "200");
			peer_say(&p, 'e');
		}
		port = (uint16_t)peer_hear_u32(&p);
		EQ(visit(port, "10000"), '+');
		peer_say(&p, 'e');
		close_peer(&p);
		w.n++;
	} while (fate->met);
	CHECK(w.n > 20);
}

static void server_once(void)
{
	starve_server(false);
}

static void server_from_then_on(void)
{
	starve_server(true);
}

/* ---- nobody listens -------------------------------------------------------------- */

/* Refused, by a return value or an event. */
static void refused(struct sockaddr *to)
{
	struct rdma_conn_param param = conf_param();
	struct side s;

	if (side_open(&s) && !rdma_create_id(s.ch, &s.id, NULL, RDMA_PS_TCP) &&
	    !rdma_resolve_addr(s.id, NULL, to, 1000) &&
	    answered(&s, RDMA_CM_EVENT_ADDR_RESOLVED) && !rdma_resolve_route(s.id, 1000) &&
	    answered(&s, RDMA_CM_EVENT_ROUTE_RESOLVED) && side_objects(&s) &&
	    !rdma_connect(s.id, &param) && answered(&s, RDMA_CM_EVENT_ESTABLISHED))
		FAIL("connected to nobody");
	side_close(&s);
}

static void starved_caller(struct peer *me, void *arg)
{
	conf_sa addr = conf_addr(AF_INET, conf_port(0));
	struct want *w = arg;

	(void)me;
	starve(w->n, w->on);
	refused(SA(addr));
	fate->met = starve_met();
	starve(0, false);
}

/* ---- verbs alone ----------------------------------------------------------------- */

struct objects {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_td *td;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_comp_channel *cc;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *qp[3]; /* the first two are connected, the last one has the SRQ */
};

static bool objects_make(struct objects *o)
{
	struct ibv_xrcd_init_attr xa = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr qa = { .qp_type = IBV_QPT_RC, .cap = CONF_CAP(8, 8, 1) };
	struct ibv_td_init_attr ta = { 0 };

	if (!(o->pd = ibv_alloc_pd(o->ctx)) || !(o->td = ibv_alloc_td(o->ctx, &ta)) ||
	    !(o->mr = ibv_reg_mr(o->pd, memory, SIZE, CONF_RW)) ||
	    !(o->mw = ibv_alloc_mw(o->pd, IBV_MW_TYPE_2)) ||
	    !(o->cc = ibv_create_comp_channel(o->ctx)) ||
	    !(o->cq = ibv_create_cq(o->ctx, 16, NULL, o->cc, 0)) ||
	    ibv_resize_cq(o->cq, 64) || !(o->srq = ibv_create_srq(o->pd, &sa)) ||
	    !(o->xrcd = ibv_open_xrcd(o->ctx, &xa)))
		return false;
	qa.send_cq = qa.recv_cq = o->cq;
	for (int i = 0; i < 3; i++) {
		qa.srq = i == 2 ? o->srq : NULL;
		o->qp[i] = ibv_create_qp(o->pd, &qa);
		if (!o->qp[i])
			return false;
	}
	return true;
}

/* Brings a QP to RTS, connected to the other one. */
static bool qp_ready(struct objects *o, struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = CONF_RW,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .min_rnr_timer = 1,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1, .timeout = 8, .retry_cnt = 1,
		.rnr_retry = 7, .ah_attr = { .is_global = 1, .port_num = 1 },
	};

	a.ah_attr.grh.sgid_index =
		(uint8_t)conf_gid(o->ctx, &port, &a.ah_attr.grh.dgid);
	if (!o->ah)
		o->ah = ibv_create_ah(o->pd, &a.ah_attr);
	if (!o->ah || conf_qp_modify(qp, a))
		return false;
	a.qp_state = IBV_QPS_RTR;
	if (conf_qp_modify(qp, a))
		return false;
	a.qp_state = IBV_QPS_RTS;
	return !conf_qp_modify(qp, a);
}

/* A message from one to the other. */
static bool objects_use(struct objects *o)
{
	struct side s = { .cq = o->cq };
	struct ibv_sge sge = { (uintptr_t)memory, 64, o->mr->lkey };
	struct ibv_send_wr *bad, wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	struct ibv_recv_wr *bad_recv, recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 };

	return qp_ready(o, o->qp[0], o->qp[1]->qp_num) &&
	       qp_ready(o, o->qp[1], o->qp[0]->qp_num) &&
	       !ibv_post_recv(o->qp[1], &recv, &bad_recv) &&
	       !ibv_post_send(o->qp[0], &wr, &bad) && completed(&s) && completed(&s);
}

static void objects_free(struct objects *o)
{
	for (int i = 0; i < 3; i++)
		EQ(o->qp[i] ? ibv_destroy_qp(o->qp[i]) : 0, 0);
	EQ(o->ah ? ibv_destroy_ah(o->ah) : 0, 0);
	EQ(o->xrcd ? ibv_close_xrcd(o->xrcd) : 0, 0);
	EQ(o->srq ? ibv_destroy_srq(o->srq) : 0, 0);
	EQ(o->cq ? ibv_destroy_cq(o->cq) : 0, 0);
	EQ(o->cc ? ibv_destroy_comp_channel(o->cc) : 0, 0);
	EQ(o->mw ? ibv_dealloc_mw(o->mw) : 0, 0);
	EQ(o->mr ? ibv_dereg_mr(o->mr) : 0, 0);
	EQ(o->td ? ibv_dealloc_td(o->td) : 0, 0);
	EQ(o->pd ? ibv_dealloc_pd(o->pd) : 0, 0);
	EQ(o->ctx ? ibv_close_device(o->ctx) : 0, 0);
}

static bool objects(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct objects o = { 0 };
	bool good = false;

	if (list && list[0])
		o.ctx = ibv_open_device(list[0]);
	if (o.ctx)
		good = objects_make(&o) && objects_use(&o);
	objects_free(&o);
	if (list)
		ibv_free_device_list(list);
	return good;
}

static void starved_objects(struct peer *me, void *arg)
{
	struct want *w = arg;

	(void)me;
	conf_addr(AF_INET, 0); /* asks for addresses once, and keeps the answer */
	starve(w->n, w->on);
	objects();
	fate->met = starve_met();
	starve(0, false);
	if (!objects())
		FAIL("there is memory again, but not all works");
}

/* Each process alone, for each n. */
static void starve_alone(void (*fn)(struct peer *me, void *arg), bool on)
{
	struct want w = { .n = conf_env("STARVE_FROM", 1), .on = on };
	struct peer p;

	share_fate();
	do {
		if (getenv("STARVE_FROM"))
			fprintf(stderr, "n = %u\n", w.n);
		p = peer_start(fn, &w);
		close_peer(&p);
		w.n++;
	} while (fate->met);
	CHECK(w.n > 20);
}

static void nobody_listens(void)
{
	starve_alone(starved_caller, false);
	starve_alone(starved_caller, true);
}

static void verbs(void)
{
	starve_alone(starved_objects, false);
	starve_alone(starved_objects, true);
}

static const struct conf_case cases[] = {
	LONG_CASE(nobody_listens, 120),
	LONG_CASE(verbs, 120),
	LONG_CASE(client_once, 120),
	LONG_CASE(client_from_then_on, 120),
	LONG_CASE(server_once, 120),
	LONG_CASE(server_from_then_on, 120),
};

CONF_MAIN(cases)
