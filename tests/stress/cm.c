/* SPDX-License-Identifier: BSD-2-Clause */
/* Links through the connection manager. One thread fetches and acknowledges the
 * events; they become mail of their endpoint, read by its steps. */
#include "stress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

static struct sockaddr_in address(uint16_t port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = port };

	if (inet_pton(AF_INET, sh->o.addr, &sa.sin_addr) != 1)
		fail(NULL, "%s is no IPv4 address", sh->o.addr);
	return sa;
}

/* An id of ours names its endpoint and generation. */
static void *tag_of(unsigned link, uint32_t gen)
{
	return (void *)((uintptr_t)gen << 16 | (link + 1));
}

/* The CM's contexts live as long as the process. A loopback address names none. */
static struct ibv_context *first_device(void)
{
	struct ibv_context **list = rdma_get_devices(NULL), *ctx;

	MUST(list);
	MUST(ctx = list[0]);
	rdma_free_devices(list);
	return ctx;
}

void cm_open(struct side *s)
{
	struct sockaddr_in sa = address(0);

	MUST(s->ch = rdma_create_event_channel());
	OK(fcntl(s->ch->fd, F_SETFL, fcntl(s->ch->fd, F_GETFL) | O_NONBLOCK));
	OK(rdma_create_id(s->ch, &s->listener, NULL, RDMA_PS_TCP));
	OK(rdma_bind_addr(s->listener, (struct sockaddr *)&sa));
	s->ctx = s->listener->verbs ? s->listener->verbs : first_device();
	sh->side[s->id].port = rdma_get_src_port(s->listener);
}

void cm_close(struct side *s)
{
	OK(rdma_destroy_id(s->listener));
	rdma_destroy_event_channel(s->ch);
}

/* ---- events -------------------------------------------------------------- */

struct hello {
	uint32_t link, gen;
};

static void on_request(struct side *s, struct rdma_cm_id *id, struct hello h)
{
	struct ep *e = h.link < sh->o.links ? &s->ep[h.link] : NULL;
	bool mine = false;

	if (e) {
		pthread_mutex_lock(&e->mail_lock);
		mine = e->gen == h.gen && e->c.cm && e->c.active != s->id && !e->mail.request &&
		       e->mail.error != INT32_MAX;
		if (mine) {
			id->context = tag_of(e->link, h.gen);
			e->mail.request = id;
		}
		pthread_mutex_unlock(&e->mail_lock);
	}
	if (mine)
		return;
	rdma_reject(id, NULL, 0); /* of a process that was killed since */
	OK(rdma_destroy_id(id));
}

static void on_event(struct side *s, void *tag, int type, int status)
{
	unsigned link = (unsigned)((uintptr_t)tag & 0xffff) - 1;
	uint32_t gen = (uint32_t)((uintptr_t)tag >> 16);
	struct ep *e;

	if (!tag)
		fail(NULL, "event %s (%d) of the listener", rdma_event_str(type), status);
	e = &s->ep[link];
	pthread_mutex_lock(&e->mail_lock);
	if (e->gen == gen) {
		switch (type) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			e->mail.addr = true;
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			e->mail.route = true;
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			e->mail.established = true;
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			e->mail.disconnected = true;
			break;
		case RDMA_CM_EVENT_TIMEWAIT_EXIT:
			break;
		default:
			e->mail.error = type;
			e->mail.status = status;
		}
	}
	pthread_mutex_unlock(&e->mail_lock);
}

static bool fetch(struct side *s)
{
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	struct hello h = { UINT32_MAX, 0 };
	void *tag;
	int type, status;

	if (rdma_get_cm_event(s->ch, &ev)) {
		if (errno != EAGAIN)
			fail(NULL, "rdma_get_cm_event: errno %d", errno);
		return false;
	}
	id = ev->id;
	tag = id->context;
	type = ev->event;
	status = ev->status;
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST &&
	    ev->param.conn.private_data_len >= sizeof(h))
		memcpy(&h, ev->param.conn.private_data, sizeof(h));
	OK(rdma_ack_cm_event(ev));
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		on_request(s, id, h);
	else
		on_event(s, tag, type, status);
	return true;
}

static void *events(void *arg)
{
	struct side *s = arg;
	struct pollfd fd = { .fd = s->ch->fd, .events = POLLIN };

	while (!atomic_load(&s->quit))
		if (poll(&fd, 1, 50) > 0)
			while (fetch(s))
				;
	return NULL;
}

void cm_start(struct side *s)
{
	OK(rdma_listen(s->listener, 128));
	OK(pthread_create(&s->cm_thread, NULL, events, s));
}

/* ---- an endpoint's steps ------------------------------------------------- */

static struct rdma_conn_param param(struct ep *e, struct hello *h)
{
	uint8_t rd = (uint8_t)my_cfg(e)->rd_atomic;

	*h = (struct hello){ e->link, e->gen };
	return (struct rdma_conn_param){
		.private_data = h,
		.private_data_len = sizeof(*h),
		.responder_resources = rd,
		.initiator_depth = rd,
		.retry_count = (uint8_t)e->c.retry,
		.rnr_retry_count = (uint8_t)e->c.rnr_retry,
	};
}

static void make_qp(struct ep *e)
{
	struct ibv_qp_init_attr_ex ex;
	struct ibv_qp_init_attr attr;
	uint8_t timeout = (uint8_t)e->c.timeout;

	OK(rdma_set_option(e->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
	if (my_cfg(e)->ex) {
		qp_attr_ex_fill(e, &ex);
		OK(rdma_create_qp_ex(e->id, &ex));
	} else {
		qp_attr_fill(e, &attr);
		OK(rdma_create_qp(e->id, e->side->pd, &attr));
	}
	pthread_mutex_lock(&e->rq.lock);
	e->qp = e->id->qp;
	e->rq.open = e->rq.live = true;
	pthread_mutex_unlock(&e->rq.lock);
	atomic_store(&e->qpn, e->qp->qp_num);
	atomic_store(&e->rqpn, e->qp->qp_num);
	rq_run(e, &e->r);
}

static void begin(struct ep *e)
{
	struct sockaddr_in sa = address(sh->side[!e->side->id].port);

	if (e->c.active != e->side->id) {
		e->cm_step = CM_ACCEPT;
		return;
	}
	if (peer_phase(e) < PH_READY)
		return;
	OK(rdma_create_id(e->side->ch, &e->id, tag_of(e->link, e->gen), RDMA_PS_TCP));
	OK(rdma_resolve_addr(e->id, NULL, (struct sockaddr *)&sa, 5000));
	e->cm_step = CM_ADDR;
}

static void do_connect(struct ep *e)
{
	struct rdma_conn_param p;
	struct hello h;

	make_qp(e);
	p = param(e, &h);
	if (rdma_connect(e->id, &p) && !ep_trouble(e))
		fail(e, "rdma_connect: errno %d", errno);
	e->cm_step = CM_CONNECT;
}

static void do_accept(struct ep *e, struct rdma_cm_id *id)
{
	struct rdma_conn_param p;
	struct hello h;

	e->id = id;
	make_qp(e);
	p = param(e, &h);
	if (rdma_accept(id, &p) && !ep_trouble(e))
		fail(e, "rdma_accept: errno %d", errno);
	e->cm_step = CM_CONNECT;
}

/* RTS to RTS with work under way: the CM has no say in this one. */
static void set_rnr_timer(struct ep *e)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = (uint8_t)e->c.rnr_timer };

	if (ibv_modify_qp(e->qp, &attr, IBV_QP_MIN_RNR_TIMER) && !ep_trouble(e))
		fail(e, "ibv_modify_qp of the RNR timer: errno %d", errno);
}

bool cm_step(struct ep *e)
{
	struct mail m;

	pthread_mutex_lock(&e->mail_lock);
	m = e->mail;
	if (e->cm_step == CM_ACCEPT && m.error < 0)
		e->mail.request = NULL;
	pthread_mutex_unlock(&e->mail_lock);
	if (m.error >= 0) {
		if (!ep_trouble(e))
			fail(e, "event %s, status %d", rdma_event_str(m.error), m.status);
		return false; /* the peer's trouble ends it */
	}
	switch (e->cm_step) {
	case CM_BEGIN:
		begin(e);
		break;
	case CM_ADDR:
		if (!m.addr)
			break;
		OK(rdma_resolve_route(e->id, 5000));
		e->cm_step = CM_ROUTE;
		break;
	case CM_ROUTE:
		if (m.route)
			do_connect(e);
		break;
	case CM_ACCEPT:
		if (m.request)
			do_accept(e, m.request);
		break;
	case CM_CONNECT:
		if (!m.established)
			break;
		set_rnr_timer(e);
		return true;
	}
	return false;
}

void cm_destroy(struct ep *e)
{
	struct rdma_cm_id *request;

	pthread_mutex_lock(&e->mail_lock);
	request = e->mail.request;
	e->mail.request = NULL;
	e->mail.error = INT32_MAX; /* a late request is refused */
	pthread_mutex_unlock(&e->mail_lock);
	if (request)
		OK(rdma_destroy_id(request));
	if (e->qp)
		rdma_destroy_qp(e->id);
	e->qp = NULL;
	if (e->id)
		OK(rdma_destroy_id(e->id));
	e->id = NULL;
	trace(&e->trace, "id destroyed");
}
