/* SPDX-License-Identifier: BSD-2-Clause */
/* Makes and destroys everything, LEAK_ROUNDS times (environment, default 2), for
 * valgrind: channels, ids in every state, QPs, CQs, SRQs, memory regions,
 * connections with data, endpoints, groups, datagrams. Its own checks: each step works, and the
 * second half of the rounds leaves no descriptor and no memory more than the first
 * (memory: only where the allocator is glibc's own). */
#include "inuse.h"
#include "t.h"

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>

enum { LEN = 20000, WAIT_MS = 2000 };

static const char *address = "127.0.0.1"; /* or CONF_ADDR */

/* One end of a connection. */
struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr, *null;
	struct ibv_mw *mw;
	uint8_t *buf;
};

struct pair {
	struct rdma_event_channel *ach, *lch;
	struct rdma_cm_id *listener;
	struct sockaddr_in addr; /* of the listener */
	struct end a, p;	 /* active, passive */
};

/* What is in use. A closed stream is read to its end in the background, and its
 * timers may outlive it for some seconds: the count once it has not changed for
 * longer than that. */
struct use {
	int fds;
	size_t bytes;
};

static struct use use_now(void)
{
	struct mallinfo2 m = mallinfo2();

	return (struct use){ inuse_fds(), m.uordblks + m.hblkhd };
}

static struct use settled(void)
{
	struct use use = use_now();
	uint64_t since = t_now_ms();

	while (t_now_ms() - since < 5000) {
		struct use now;

		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		now = use_now();
		if (now.fds != use.fds || now.bytes != use.bytes)
			since = t_now_ms();
		use = now;
	}
	return use;
}

/* Takes the next event, which must be this one, and acks it. Returns its id. */
static struct rdma_cm_id *expect(struct rdma_event_channel *ch,
				 enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!CHECK(rdma_get_cm_event(ch, &event) == 0))
		return NULL;
	if (event->event != type)
		diag("wanted %s, got %s (%d)", rdma_event_str(type),
		     rdma_event_str(event->event), event->status);
	CHECK_EQ(event->event, type);
	id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static bool listener_open(struct pair *c)
{
	c->addr = (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_addr.s_addr = inet_addr(address),
	};
	c->lch = rdma_create_event_channel();
	c->ach = rdma_create_event_channel();
	if (!CHECK(c->lch && c->ach) ||
	    !CHECK(rdma_create_id(c->lch, &c->listener, NULL, RDMA_PS_TCP) == 0) ||
	    !CHECK(rdma_bind_addr(c->listener, (struct sockaddr *)&c->addr) == 0) ||
	    !CHECK(rdma_listen(c->listener, 8) == 0))
		return false;
	c->addr.sin_port = rdma_get_src_port(c->listener);
	return CHECK(c->addr.sin_port != 0);
}

static void listener_close(struct pair *c)
{
	CHECK(rdma_destroy_id(c->listener) == 0);
	rdma_destroy_event_channel(c->lch);
	rdma_destroy_event_channel(c->ach);
}

static struct rdma_cm_id *resolved(struct pair *c)
{
	struct rdma_cm_id *id;

	if (!CHECK(rdma_create_id(c->ach, &id, c, RDMA_PS_TCP) == 0) ||
	    !CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&c->addr,
				     WAIT_MS) == 0) ||
	    !CHECK(expect(c->ach, RDMA_CM_EVENT_ADDR_RESOLVED) == id) ||
	    !CHECK(rdma_resolve_route(id, WAIT_MS) == 0) ||
	    !CHECK(expect(c->ach, RDMA_CM_EVENT_ROUTE_RESOLVED) == id))
		return NULL;
	return id;
}

static bool end_open(struct end *e, bool with_srq)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2,
			 .max_recv_sge = 2, .max_inline_data = 16 },
	};

	e->buf = calloc(1, LEN);
	e->pd = ibv_alloc_pd(e->id->verbs);
	e->comp = ibv_create_comp_channel(e->id->verbs);
	if (!CHECK(e->buf && e->pd && e->comp))
		return false;
	e->cq = ibv_create_cq(e->id->verbs, 32, NULL, e->comp, 0);
	e->mr = ibv_reg_mr(e->pd, e->buf, LEN,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	e->null = ibv_alloc_null_mr(e->pd);
	e->mw = ibv_alloc_mw(e->pd, IBV_MW_TYPE_2);
	e->srq = with_srq ? ibv_create_srq(e->pd, &sattr) : NULL;
	if (!CHECK(e->cq && e->mr && e->null && e->mw && (!with_srq || e->srq)))
		return false;
	attr.send_cq = attr.recv_cq = e->cq;
	attr.srq = e->srq;
	return CHECK(rdma_create_qp(e->id, e->pd, &attr) == 0);
}

static void end_close(struct end *e)
{
	rdma_destroy_qp(e->id);
	if (e->srq)
		CHECK(ibv_destroy_srq(e->srq) == 0);
	CHECK(ibv_dealloc_mw(e->mw) == 0);
	CHECK(ibv_dereg_mr(e->null) == 0);
	CHECK(ibv_dereg_mr(e->mr) == 0);
	CHECK(ibv_destroy_cq(e->cq) == 0);
	CHECK(ibv_destroy_comp_channel(e->comp) == 0);
	CHECK(ibv_dealloc_pd(e->pd) == 0);
	CHECK(rdma_destroy_id(e->id) == 0);
	free(e->buf);
}

/* Sleeps on the completion channel until there is one, and takes it. */
static bool completion(struct end *e, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	int n;

	for (;;) {
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (n)
			break;
		if (!CHECK(ibv_req_notify_cq(e->cq, 0) == 0))
			return false;
		n = ibv_poll_cq(e->cq, 1, &wc);
		if (n)
			break;
		if (!CHECK(ibv_get_cq_event(e->comp, &cq, &context) == 0))
			return false;
		ibv_ack_cq_events(cq, 1);
	}
	return (int)CHECK_EQ(n, 1) & (int)CHECK_EQ(wc.wr_id, wr_id) &
	       (int)CHECK_EQ(wc.status, status);
}

static bool recv_post(struct end *e, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, LEN, e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (e->srq)
		return CHECK(ibv_post_srq_recv(e->srq, &wr, &bad) == 0);
	return CHECK(ibv_post_recv(e->id->qp, &wr, &bad) == 0);
}

static bool operation(struct end *from, struct end *to, enum ibv_wr_opcode op)
{
	bool atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		      op == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct ibv_sge sge = { (uintptr_t)from->buf, atomic ? 8 : LEN, from->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 100 + op, .sg_list = &sge, .num_sge = 1, .opcode = op,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (atomic) {
		wr.wr.atomic.remote_addr = (uintptr_t)to->buf;
		wr.wr.atomic.rkey = to->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (op != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)to->buf;
		wr.wr.rdma.rkey = to->mr->rkey;
	}
	return CHECK(ibv_post_send(from->id->qp, &wr, &bad) == 0) &&
	       completion(from, wr.wr_id, IBV_WC_SUCCESS);
}

static bool transfer(struct end *from, struct end *to)
{
	memset(from->buf, 7, LEN);
	return recv_post(to, 1) && operation(from, to, IBV_WR_SEND) &&
	       completion(to, 1, IBV_WC_SUCCESS) && CHECK(to->buf[LEN - 1] == 7) &&
	       operation(from, to, IBV_WR_RDMA_WRITE) &&
	       operation(from, to, IBV_WR_RDMA_READ) &&
	       operation(from, to, IBV_WR_ATOMIC_FETCH_AND_ADD) &&
	       operation(from, to, IBV_WR_ATOMIC_CMP_AND_SWP);
}

static bool pair_connect(struct pair *c, bool with_srq)
{
	struct rdma_conn_param param = {
		.private_data = "hello", .private_data_len = 6,
		.responder_resources = 2, .initiator_depth = 2,
		.retry_count = 7, .rnr_retry_count = 7,
	};

	c->a.id = resolved(c);
	if (!c->a.id || !end_open(&c->a, with_srq) ||
	    !CHECK(rdma_connect(c->a.id, &param) == 0))
		return false;
	c->p.id = expect(c->lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!c->p.id || !end_open(&c->p, with_srq) ||
	    !CHECK(rdma_accept(c->p.id, &param) == 0))
		return false;
	return CHECK(expect(c->ach, RDMA_CM_EVENT_ESTABLISHED) == c->a.id) &&
	       CHECK(expect(c->lch, RDMA_CM_EVENT_ESTABLISHED) == c->p.id);
}

static void connections(void)
{
	struct pair c = { 0 };
	int i;

	REQUIRE(listener_open(&c));
	for (i = 0; i < 2; i++) {
		REQUIRE(pair_connect(&c, i == 1));
		REQUIRE(transfer(&c.a, &c.p) && transfer(&c.p, &c.a));
		/* Left posted: the flush must give it back. */
		REQUIRE(recv_post(&c.a, 5) && recv_post(&c.p, 6));
		CHECK(rdma_disconnect(c.a.id) == 0);
		CHECK(expect(c.lch, RDMA_CM_EVENT_DISCONNECTED) == c.p.id);
		CHECK(rdma_disconnect(c.p.id) == 0);
		CHECK(expect(c.ach, RDMA_CM_EVENT_DISCONNECTED) == c.a.id);
		if (i == 0)
			CHECK(completion(&c.a, 5, IBV_WC_WR_FLUSH_ERR) &&
			      completion(&c.p, 6, IBV_WC_WR_FLUSH_ERR));
		end_close(&c.a);
		end_close(&c.p);
	}
	listener_close(&c);
}

/* Destroyed while connected, nothing said before. */
static void destroyed_connected(void)
{
	struct pair c = { 0 };

	REQUIRE(listener_open(&c));
	REQUIRE(pair_connect(&c, false));
	REQUIRE(recv_post(&c.p, 5));
	end_close(&c.a);
	CHECK(expect(c.lch, RDMA_CM_EVENT_DISCONNECTED) == c.p.id);
	end_close(&c.p);
	listener_close(&c);
}

/* Up to a request that nobody has fetched. */
static bool pair_request(struct pair *c)
{
	struct rdma_conn_param param = { .retry_count = 7 };

	c->a.id = resolved(c);
	return c->a.id && end_open(&c->a, false) &&
	       CHECK(rdma_connect(c->a.id, &param) == 0);
}

static void rejected(void)
{
	struct pair c = { 0 };
	struct rdma_cm_id *id;

	REQUIRE(listener_open(&c) && pair_request(&c));
	id = expect(c.lch, RDMA_CM_EVENT_CONNECT_REQUEST);
	REQUIRE(id);
	CHECK(rdma_reject(id, "no", 3) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	CHECK(expect(c.ach, RDMA_CM_EVENT_REJECTED) == c.a.id);
	end_close(&c.a);
	listener_close(&c);
}

/* A request that is never fetched, an address that is never asked for. */
static void abandoned(void)
{
	struct pair c = { 0 };
	struct rdma_cm_id *id;

	REQUIRE(listener_open(&c) && pair_request(&c));
	REQUIRE(rdma_create_id(c.ach, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&c.addr, WAIT_MS) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	REQUIRE(rdma_create_id(c.ach, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_destroy_id(id) == 0);
	end_close(&c.a);
	listener_close(&c);
}

static void migrated(void)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct pair c = { 0 };

	REQUIRE(other && listener_open(&c) && pair_connect(&c, false));
	CHECK(rdma_migrate_id(c.p.id, other) == 0);
	CHECK(rdma_disconnect(c.a.id) == 0);
	CHECK(expect(other, RDMA_CM_EVENT_DISCONNECTED) == c.p.id);
	end_close(&c.p);
	end_close(&c.a);
	rdma_destroy_event_channel(other);
	listener_close(&c);
}

struct endpoint_arg {
	struct rdma_cm_id *listener;
	bool good;
};

static void *endpoint_server(void *p)
{
	struct endpoint_arg *arg = p;
	struct rdma_cm_id *id;
	struct ibv_wc wc;
	struct ibv_mr *mr;
	char text[16];

	if (rdma_get_request(arg->listener, &id))
		return NULL;
	mr = rdma_reg_msgs(id, text, sizeof(text));
	arg->good = mr && rdma_post_recv(id, NULL, text, sizeof(text), mr) == 0 &&
		    rdma_accept(id, NULL) == 0 && rdma_get_recv_comp(id, &wc) == 1 &&
		    wc.status == IBV_WC_SUCCESS && strcmp(text, "endpoint") == 0;
	rdma_disconnect(id);
	if (mr)
		rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	return NULL;
}

/* The synchronous interface: rdma_getaddrinfo, rdma_create_ep. */
static void endpoints(void)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.sq_sig_all = 1,
	};
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct endpoint_arg arg = { 0 };
	struct rdma_addrinfo *res;
	struct rdma_cm_id *id;
	char port[8], text[16] = "endpoint";
	struct ibv_mr *mr;
	struct ibv_wc wc;
	pthread_t thread;

	REQUIRE(rdma_getaddrinfo((char *)address, "0", &hints, &res) == 0);
	REQUIRE(rdma_create_ep(&arg.listener, res, NULL, &attr) == 0);
	rdma_freeaddrinfo(res);
	REQUIRE(rdma_listen(arg.listener, 1) == 0);
	snprintf(port, sizeof(port), "%u", ntohs(rdma_get_src_port(arg.listener)));
	REQUIRE(pthread_create(&thread, NULL, endpoint_server, &arg) == 0);

	hints.ai_flags = 0;
	REQUIRE(rdma_getaddrinfo((char *)address, port, &hints, &res) == 0);
	REQUIRE(rdma_create_ep(&id, res, NULL, &attr) == 0);
	rdma_freeaddrinfo(res);
	mr = rdma_reg_msgs(id, text, sizeof(text));
	REQUIRE(mr);
	REQUIRE(rdma_connect(id, NULL) == 0);
	CHECK(rdma_post_send(id, NULL, text, sizeof(text), mr, 0) == 0);
	CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	rdma_disconnect(id);
	rdma_dereg_mr(mr);
	rdma_destroy_ep(id);
	pthread_join(thread, NULL);
	CHECK(arg.good);
	rdma_destroy_ep(arg.listener);
}

/* Lists, and a device opened by the application itself. */
static void devices(void)
{
	struct ibv_context **list, *verbs;
	struct ibv_device **devs;
	int n;

	list = rdma_get_devices(&n);
	REQUIRE(list && n == 1);
	rdma_free_devices(list);
	devs = ibv_get_device_list(&n);
	REQUIRE(devs && n == 1);
	verbs = ibv_open_device(devs[0]);
	ibv_free_device_list(devs);
	REQUIRE(verbs);
	CHECK(ibv_close_device(verbs) == 0);
}

/* XRC: a domain, an SRQ, a receive QP with a second handle, a send QP. */
static void xrc(void)
{
	struct ibv_device **devs = ibv_get_device_list(NULL);
	struct ibv_xrcd_init_attr xattr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr_ex sattr = {
		.attr = { .max_wr = 8, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC,
	};
	struct ibv_qp_init_attr_ex recv = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD };
	struct ibv_qp_init_attr send = { .qp_type = IBV_QPT_XRC_SEND,
					 .cap = { .max_send_wr = 4, .max_send_sge = 1 } };
	struct ibv_qp_open_attr oattr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_context *verbs;
	struct ibv_qp *r, *h, *s;
	struct ibv_srq *srq;

	REQUIRE(devs);
	verbs = ibv_open_device(devs[0]);
	ibv_free_device_list(devs);
	REQUIRE(verbs);
	sattr.pd = ibv_alloc_pd(verbs);
	sattr.cq = send.send_cq = ibv_create_cq(verbs, 8, NULL, NULL, 0);
	sattr.xrcd = recv.xrcd = oattr.xrcd = ibv_open_xrcd(verbs, &xattr);
	REQUIRE(sattr.pd && sattr.cq && sattr.xrcd);
	srq = ibv_create_srq_ex(verbs, &sattr);
	r = ibv_create_qp_ex(verbs, &recv);
	s = ibv_create_qp(sattr.pd, &send);
	REQUIRE(srq && r && s);
	oattr.qp_num = r->qp_num;
	h = ibv_open_qp(verbs, &oattr);
	REQUIRE(h);
	CHECK(ibv_destroy_qp(r) == 0);
	CHECK(ibv_destroy_qp(h) == 0);
	CHECK(ibv_destroy_qp(s) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_close_xrcd(sattr.xrcd) == 0);
	CHECK(ibv_destroy_cq(sattr.cq) == 0);
	CHECK(ibv_dealloc_pd(sattr.pd) == 0);
	CHECK(ibv_close_device(verbs) == 0);
}

/* A datagram of the QP to itself, or to the group: who sends it gets no copy. */
static void post_datagram(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	CHECK(T_WAIT(ibv_poll_cq(qp->send_cq, 1, &wc) == 1, WAIT_MS));
}

static struct rdma_cm_id *datagram_id(struct rdma_event_channel *ch, struct sockaddr_in *to,
				      struct rdma_cm_id **out)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct sockaddr_in from = { .sin_family = AF_INET,
				    .sin_addr.s_addr = inet_addr(address) };

	if (!CHECK(rdma_create_id(ch, out, NULL, RDMA_PS_UDP) == 0) ||
	    !CHECK(rdma_resolve_addr(*out, (struct sockaddr *)&from, (struct sockaddr *)to,
				     WAIT_MS) == 0) ||
	    !CHECK(expect(ch, RDMA_CM_EVENT_ADDR_RESOLVED) == *out) ||
	    !CHECK(rdma_create_qp(*out, NULL, &attr) == 0))
		return NULL;
	return *out;
}

/* A member of groups, who leaves one and is destroyed with the other; address handles, some of
 * them used and one destroyed behind what was posted with it. */
static void groups(void)
{
	struct sockaddr_in group[2] = {
		{ .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.77.1.1") },
		{ .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("239.77.1.2") },
	};
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	struct ibv_ah *ah;

	REQUIRE(ch);
	REQUIRE(datagram_id(ch, &group[0], &id));
	for (int i = 0; i < 2; i++) {
		REQUIRE(rdma_join_multicast(id, (struct sockaddr *)&group[i], NULL) == 0);
		REQUIRE(rdma_get_cm_event(ch, &event) == 0);
		REQUIRE(event->event == RDMA_CM_EVENT_MULTICAST_JOIN);
		ah = ibv_create_ah(id->pd, &event->param.ud.ah_attr);
		REQUIRE(ah);
		post_datagram(id->qp, ah, event->param.ud.qp_num);
		CHECK(ibv_destroy_ah(ah) == 0);
		CHECK(rdma_ack_cm_event(event) == 0);
	}
	CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group[0]) == 0);
	CHECK(rdma_leave_multicast(id, (struct sockaddr *)&group[1]) == 0);
	rdma_destroy_qp(id); /* which stays as long as it is of a group */
	CHECK(rdma_join_multicast(id, (struct sockaddr *)&group[1], NULL) == 0);
	CHECK(expect(ch, RDMA_CM_EVENT_MULTICAST_JOIN) == id);
	CHECK(rdma_destroy_id(id) == 0);
	rdma_destroy_event_channel(ch);
}

/* A listener of datagrams that accepts a request, one that rejects one, and a datagram. */
static void datagram_ids(void)
{
	struct rdma_conn_param param = { .private_data = "request", .private_data_len = 8 };
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct rdma_event_channel *lch = rdma_create_event_channel();
	struct rdma_event_channel *ach = rdma_create_event_channel();
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = inet_addr(address) };
	struct rdma_cm_id *listener, *a, *p;
	struct rdma_cm_event *event;
	struct ibv_ah *ah;

	REQUIRE(lch && ach && rdma_create_id(lch, &listener, NULL, RDMA_PS_UDP) == 0);
	REQUIRE(rdma_bind_addr(listener, (struct sockaddr *)&addr) == 0);
	REQUIRE(rdma_listen(listener, 4) == 0);
	addr.sin_port = rdma_get_src_port(listener);
	for (int accept = 0; accept < 2; accept++) {
		REQUIRE(datagram_id(ach, &addr, &a));
		REQUIRE(rdma_resolve_route(a, WAIT_MS) == 0);
		REQUIRE(expect(ach, RDMA_CM_EVENT_ROUTE_RESOLVED) == a);
		REQUIRE(rdma_connect(a, &param) == 0);
		p = expect(lch, RDMA_CM_EVENT_CONNECT_REQUEST);
		REQUIRE(p);
		if (accept) {
			REQUIRE(rdma_create_qp(p, NULL, &attr) == 0);
			param.qp_num = p->qp->qp_num;
			CHECK(rdma_accept(p, &param) == 0);
		} else {
			CHECK(rdma_reject(p, "no", 2) == 0);
		}
		REQUIRE(rdma_get_cm_event(ach, &event) == 0);
		CHECK_EQ(event->event, accept ? RDMA_CM_EVENT_ESTABLISHED :
						RDMA_CM_EVENT_UNREACHABLE);
		if (accept) {
			ah = ibv_create_ah(a->pd, &event->param.ud.ah_attr);
			REQUIRE(ah);
			post_datagram(a->qp, ah, event->param.ud.qp_num);
			CHECK(ibv_destroy_ah(ah) == 0);
			rdma_destroy_qp(p);
		}
		CHECK(rdma_ack_cm_event(event) == 0);
		CHECK(rdma_destroy_id(p) == 0);
		rdma_destroy_qp(a);
		CHECK(rdma_destroy_id(a) == 0);
	}
	CHECK(rdma_destroy_id(listener) == 0);
	rdma_destroy_event_channel(lch);
	rdma_destroy_event_channel(ach);
}

/* The allocator keeps some freed blocks as if they were in use: a leak is what
 * grows by this much with every round (every object of ours is larger). */
enum { LEAK_PER_ROUND = 64 };

int main(int argc, char **argv)
{
	const char *env = getenv("LEAK_ROUNDS");
	int round, rounds = env ? atoi(env) : 2;
	struct use first = { 0 };
	size_t limit;

	t_init(argc, argv);
	if (getenv("CONF_ADDR"))
		address = getenv("CONF_ADDR");
	for (round = 0; round < rounds; round++) {
		T_RUN(devices);
		T_RUN(connections);
		T_RUN(destroyed_connected);
		T_RUN(rejected);
		T_RUN(abandoned);
		T_RUN(migrated);
		T_RUN(endpoints);
		T_RUN(xrc);
		T_RUN(groups);
		T_RUN(datagram_ids);
		if (round + 1 == rounds / 2)
			first = settled();
	}
	limit = first.bytes + LEAK_PER_ROUND * (unsigned)(rounds / 2);
	if (!ok(T_WAIT(use_now().fds <= first.fds, 10000), "no descriptor is left"))
		diag("%d after half of the rounds, %d after %d", first.fds,
		     use_now().fds, rounds);
	if (!ok(T_WAIT(use_now().bytes < limit, 10000), "no memory is left"))
		diag("%zu after half of the rounds, %zu after %d", first.bytes,
		     use_now().bytes, rounds);
	return t_done();
}
