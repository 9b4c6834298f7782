/* SPDX-License-Identifier: BSD-2-Clause */
/* Life of an id: creation, destruction, acknowledgements, migration. */
#include "conf.h"

static void resolve(struct rdma_cm_id *id)
{
	conf_sa dst = conf_addr(AF_INET, 7000);

	OK(rdma_resolve_addr(id, NULL, SA(dst), 2000));
}

static void check_new(struct rdma_cm_id *id, struct rdma_event_channel *ch, void *ctx,
		      int ps, int qp_type)
{
	CHECK(!id->verbs && !id->pd && !id->qp && !id->srq && !id->event);
	CHECK(!id->send_cq && !id->recv_cq);
	CHECK(!id->send_cq_channel && !id->recv_cq_channel);
	CHECK(id->channel == ch && id->context == ctx);
	EQ(id->ps, ps);
	EQ(id->qp_type, qp_type);
	EQ(id->port_num, 0);
	CHECK(!id->route.path_rec);
	EQ(id->route.num_paths, 0);
	EQ(rdma_get_src_port(id), 0);
	EQ(rdma_get_dst_port(id), 0);
}

static void create_in_each_port_space(void)
{
	static const struct { int ps, qp_type; } row[] = {
		{ RDMA_PS_TCP, IBV_QPT_RC },
		{ RDMA_PS_UDP, IBV_QPT_UD },
		{ RDMA_PS_IPOIB, IBV_QPT_UD },
		{ RDMA_PS_IB, IBV_QPT_RC },
	};
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id;
	int ctx;

	for (unsigned i = 0; i < 4; i++) {
		OK(rdma_create_id(ch, &id, &ctx, row[i].ps));
		check_new(id, ch, &ctx, row[i].ps, row[i].qp_type);
		OK(rdma_destroy_id(id));
	}
	rdma_destroy_event_channel(ch);
}

static void create_in_unknown_port_space(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id;

	ERR(rdma_create_id(ch, &id, NULL, 0), EINVAL);
	ERR(rdma_create_id(ch, &id, NULL, 0x999), EINVAL);
	ERR(rdma_create_id(ch, &id, NULL, 0x107), EINVAL);
	rdma_destroy_event_channel(ch);
}

static void create_null_pointer(void)
{
	struct rdma_event_channel *ch;

	if (conf_original())
		SKIP("crashes the original");
	ch = conf_channel();
	ERR(rdma_create_id(ch, NULL, NULL, RDMA_PS_TCP), EINVAL);
	rdma_destroy_event_channel(ch);
}

static void create_synchronous(void)
{
	struct rdma_cm_id *a, *b;
	int fd;

	OK(rdma_create_id(NULL, &a, NULL, RDMA_PS_TCP));
	OK(rdma_create_id(NULL, &b, NULL, RDMA_PS_TCP));
	CHECK(a->channel && b->channel && a->channel != b->channel);
	fd = a->channel->fd;
	CHECK(fd >= 0 && fd != b->channel->fd);
	OK(rdma_destroy_id(a));
	ERR(fcntl(fd, F_GETFL), EBADF);
	OK(rdma_destroy_id(b));
}

static void destroy_null(void)
{
	if (conf_original())
		SKIP("crashes the original");
	ERR(rdma_destroy_id(NULL), EINVAL);
}

static void destroy_frees_the_port(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch), *again;
	conf_sa addr = conf_addr(AF_INET, conf_port(0));

	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_destroy_id(id));
	again = conf_id(ch);
	OK(rdma_bind_addr(again, SA(addr)));
	conf_id_close(again);
}

static void destroy_cancels_resolution(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id;

	for (int i = 0; i < 50; i++) {
		id = conf_id(ch);
		resolve(id);
		OK(rdma_destroy_id(id));
	}
	conf_quiet(ch, CONF_QUIET);
	rdma_destroy_event_channel(ch);
}

static void destroy_drops_only_its_events(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *a = conf_id(ch), *b = conf_id(ch), *c = conf_id(ch);

	resolve(a);
	WAIT_FOR(conf_readable(ch->fd));
	resolve(b);
	resolve(c);
	OK(rdma_destroy_id(a));
	conf_expect(ch, b, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_expect(ch, c, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_quiet(ch, CONF_QUIET);
	OK(rdma_destroy_id(b));
	conf_id_close(c);
}

/* A call that has to wait for an acknowledgement. */
struct waiter {
	struct rdma_cm_id *id;
	struct rdma_event_channel *to;
	atomic_int started, done;
};

static void *destroyer(void *arg)
{
	struct waiter *w = arg;

	w->started = 1;
	OK(rdma_destroy_id(w->id));
	w->done = 1;
	return NULL;
}

static void *mover(void *arg)
{
	struct waiter *w = arg;

	w->started = 1;
	OK(rdma_migrate_id(w->id, w->to));
	w->done = 1;
	return NULL;
}

static void check_waits(struct waiter *w, void *(*fn)(void *), struct rdma_cm_event *ev)
{
	pthread_t t = conf_thread(fn, w);

	WAIT_FOR(w->started);
	conf_blocked(t);
	EQ(w->done, 0);
	OK(rdma_ack_cm_event(ev));
	conf_join(t);
	EQ(w->done, 1);
}

static void destroy_waits_for_ack(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct waiter w = { .id = conf_id(ch) };

	resolve(w.id);
	check_waits(&w, destroyer, conf_get(ch, w.id, RDMA_CM_EVENT_ADDR_RESOLVED));
	rdma_destroy_event_channel(ch);
}

static void destroy_waits_for_every_ack(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct waiter w = { .id = conf_id(ch) };
	struct rdma_cm_event *first, *second;
	pthread_t t;

	resolve(w.id);
	first = conf_get(ch, w.id, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(w.id, 2000));
	second = conf_get(ch, w.id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	t = conf_thread(destroyer, &w);
	WAIT_FOR(w.started);
	OK(rdma_ack_cm_event(second));
	conf_blocked(t);
	EQ(w.done, 0);
	OK(rdma_ack_cm_event(first));
	conf_join(t);
	rdma_destroy_event_channel(ch);
}

static void destroy_another_id_does_not_wait(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *a = conf_id(ch), *b = conf_id(ch);
	struct rdma_cm_event *ev;

	resolve(a);
	ev = conf_get(ch, a, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_destroy_id(b));
	OK(rdma_ack_cm_event(ev));
	conf_id_close(a);
}

/* A request up to its event: the event is unacknowledged. */
static struct rdma_cm_event *request(struct conf_pair *c)
{
	struct rdma_conn_param param = conf_param();

	conf_pair_resolve(c, NULL);
	OK(rdma_connect(c->a, &param));
	return conf_get(c->lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
}

static void destroy_child_before_ack_of_request(void)
{
	struct conf_pair c;
	struct rdma_cm_event *ev = request(&c);

	OK(rdma_destroy_id(ev->id)); /* the event counts for the listener */
	OK(rdma_ack_cm_event(ev));
	conf_expect_status(c.ach, c.a, RDMA_CM_EVENT_REJECTED, conf_rejected());
	conf_pair_free(&c);
}

static void destroy_listener_waits_for_ack_of_request(void)
{
	struct conf_pair c;
	struct rdma_cm_event *ev = request(&c);
	struct waiter w = { .id = c.listener };

	c.p = ev->id;
	check_waits(&w, destroyer, ev);
	c.listener = NULL;
	conf_pair_free(&c);
}

static void destroy_listener_keeps_children(void)
{
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_destroy_id(c.listener));
	c.listener = NULL;
	conf_pair_accept(&c);
	conf_pair_close(&c);
}

static void child_inherits(void)
{
	struct conf_pair c;
	struct rdma_cm_event *ev;
	int ctx;
	struct rdma_conn_param param = conf_param();

	conf_pair_resolve(&c, NULL);
	c.listener->context = &ctx;
	OK(rdma_connect(c.a, &param));
	ev = conf_get(c.lch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	c.p = ev->id;
	CHECK(ev->listen_id == c.listener && c.p != c.listener);
	CHECK(c.p->context == &ctx);
	CHECK(c.p->channel == c.lch);
	EQ(c.p->ps, RDMA_PS_TCP);
	EQ(c.p->qp_type, IBV_QPT_RC);
	CHECK(c.p->verbs && c.p->pd && !c.p->qp && !c.p->event);
	CHECK(c.p->verbs == c.a->verbs && c.p->pd == c.a->pd);
	EQ(c.p->port_num, 1);
	EQ(c.p->route.num_paths, conf_iwarp() ? 0 : 1);
	CHECK(c.p->route.path_rec);
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
}

static void context_may_change(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);
	struct rdma_cm_event *ev;
	int other;

	resolve(id);
	id->context = &other;
	ev = conf_get(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(ev->id->context == &other);
	OK(rdma_ack_cm_event(ev));
	CHECK(id->context == &other);
	conf_id_close(id);
}

/* Migration. */

static void migrate_idle(void)
{
	struct rdma_event_channel *a = conf_channel(), *b = conf_channel();
	struct rdma_cm_id *id = conf_id(a);

	OK(rdma_migrate_id(id, b));
	CHECK(id->channel == b);
	rdma_destroy_event_channel(a); /* nothing is left on it */
	resolve(id);
	conf_expect(b, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(b);
}

static void migrate_to_the_same_channel(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);

	resolve(id);
	WAIT_FOR(conf_readable(ch->fd));
	OK(rdma_migrate_id(id, ch));
	CHECK(id->channel == ch);
	conf_expect(ch, id, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_id_close(id);
}

static void migrate_moves_only_its_events(void)
{
	struct rdma_event_channel *x = conf_channel(), *y = conf_channel();
	struct rdma_cm_id *a = conf_id(x), *b = conf_id(x), *c = conf_id(y);

	resolve(a);
	WAIT_FOR(conf_readable(x->fd));
	OK(rdma_migrate_id(a, y));
	WAIT_FOR(conf_readable(y->fd));
	CHECK(!conf_readable(x->fd));
	resolve(c);
	resolve(b);
	conf_expect(y, a, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_expect(y, c, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_expect(x, b, RDMA_CM_EVENT_ADDR_RESOLVED);
	conf_quiet(x, 50);
	conf_quiet(y, 50);
	OK(rdma_destroy_id(a));
	OK(rdma_destroy_id(b));
	OK(rdma_destroy_id(c));
	rdma_destroy_event_channel(x);
	rdma_destroy_event_channel(y);
}

/* Two events of one id wait on the old channel: they keep their order. */
static void migrate_keeps_the_order(void)
{
	struct rdma_event_channel *to = conf_channel();
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_accept(c.p, &param));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_ESTABLISHED);
	WAIT_FOR(conf_readable(c.lch->fd)); /* ESTABLISHED */
	OK(rdma_disconnect(c.a));
	conf_settle(); /* DISCONNECTED is behind it now, or comes after */
	OK(rdma_migrate_id(c.p, to));
	CHECK(!conf_readable(c.lch->fd));
	conf_expect(to, c.p, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(to, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	conf_expect(c.ach, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_pair_free(&c);
	rdma_destroy_event_channel(to);
}

static void migrate_waits_for_ack(void)
{
	struct rdma_event_channel *a = conf_channel(), *b = conf_channel();
	struct waiter w = { .id = conf_id(a), .to = b };

	resolve(w.id);
	check_waits(&w, mover, conf_get(a, w.id, RDMA_CM_EVENT_ADDR_RESOLVED));
	CHECK(w.id->channel == b);
	OK(rdma_destroy_id(w.id));
	rdma_destroy_event_channel(a);
	rdma_destroy_event_channel(b);
}

static void migrate_child_does_not_wait_for_request(void)
{
	struct rdma_event_channel *to = conf_channel();
	struct conf_pair c;
	struct rdma_cm_event *ev = request(&c);

	c.p = ev->id;
	OK(rdma_migrate_id(c.p, to)); /* the event counts for the listener */
	CHECK(c.p->channel == to);
	OK(rdma_ack_cm_event(ev));
	conf_pair_free(&c);
	rdma_destroy_event_channel(to);
}

static void migrate_to_null_makes_synchronous(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_id(ch);

	OK(rdma_migrate_id(id, NULL));
	CHECK(id->channel && id->channel != ch);
	rdma_destroy_event_channel(ch);
	resolve(id); /* blocks, so the answer is there */
	CHECK(id->event && id->verbs);
	EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_destroy_id(id));
}

static void migrate_to_null_when_synchronous(void)
{
	struct rdma_cm_id *id;

	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	ERR(rdma_migrate_id(id, NULL), EINVAL);
	resolve(id); /* nothing changed */
	OK(rdma_destroy_id(id));
}

static void migrate_from_synchronous(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id;
	int fd;

	OK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	resolve(id);
	CHECK(id->event);
	fd = id->channel->fd;
	OK(rdma_migrate_id(id, ch));
	CHECK(id->channel == ch && !id->event);
	ERR(fcntl(fd, F_GETFL), EBADF);
	OK(rdma_resolve_route(id, 2000));
	conf_expect(ch, id, RDMA_CM_EVENT_ROUTE_RESOLVED);
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(ch);
}

/* The listener goes to another channel, and its old one is destroyed. */
static void move_listener(struct conf_pair *c)
{
	struct rdma_event_channel *old = c->lch;

	c->lch = conf_channel();
	OK(rdma_migrate_id(c->listener, c->lch));
	CHECK(!conf_readable(old->fd));
	rdma_destroy_event_channel(old);
}

/* The request comes on the new channel, and is accepted. */
static void accept_there(struct conf_pair *c)
{
	c->p = conf_request(c->lch);
	CHECK(c->p->channel == c->lch);
	conf_qp(c->p, 4);
	conf_pair_accept(c);
	conf_pair_close(c);
}

static void migrate_listener(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_resolve(&c, NULL);
	move_listener(&c);
	OK(rdma_connect(c.a, &param));
	accept_there(&c);
}

static void migrate_listener_with_waiting_requests(void)
{
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_resolve(&c, NULL);
	OK(rdma_connect(c.a, &param));
	WAIT_FOR(conf_readable(c.lch->fd));
	move_listener(&c);
	accept_there(&c);
}

static void migrate_connected(void)
{
	struct rdma_event_channel *to = conf_channel();
	struct conf_pair c;

	conf_pair_open(&c, NULL);
	OK(rdma_migrate_id(c.a, to));
	OK(rdma_migrate_id(c.p, to));
	OK(rdma_disconnect(c.a));
	conf_expect(to, c.p, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(c.p));
	conf_expect(to, c.a, RDMA_CM_EVENT_DISCONNECTED);
	conf_quiet(c.ach, 50);
	conf_quiet(c.lch, 50);
	conf_pair_free(&c);
	rdma_destroy_event_channel(to);
}

static void migrate_while_connecting(void)
{
	struct rdma_event_channel *to = conf_channel();
	struct rdma_conn_param param = conf_param();
	struct conf_pair c;

	conf_pair_request(&c, NULL);
	OK(rdma_migrate_id(c.a, to));
	OK(rdma_accept(c.p, &param));
	conf_expect(to, c.a, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_migrate_id(c.a, c.ach));
	conf_pair_close(&c);
	rdma_destroy_event_channel(to);
}

static void migrate_null_id(void)
{
	if (conf_original())
		SKIP("crashes the original");
	ERR(rdma_migrate_id(NULL, NULL), EINVAL);
}

static const struct conf_case cases[] = {
	CASE(create_in_each_port_space),
	CASE(create_in_unknown_port_space),
	CASE(create_null_pointer),
	CASE(create_synchronous),
	CASE(destroy_null),
	CASE(destroy_frees_the_port),
	CASE(destroy_cancels_resolution),
	CASE(destroy_drops_only_its_events),
	CASE(destroy_waits_for_ack),
	CASE(destroy_waits_for_every_ack),
	CASE(destroy_another_id_does_not_wait),
	CASE(destroy_child_before_ack_of_request),
	CASE(destroy_listener_waits_for_ack_of_request),
	CASE(destroy_listener_keeps_children),
	CASE(child_inherits),
	CASE(context_may_change),
	CASE(migrate_idle),
	CASE(migrate_to_the_same_channel),
	CASE(migrate_moves_only_its_events),
	CASE(migrate_keeps_the_order),
	CASE(migrate_waits_for_ack),
	CASE(migrate_child_does_not_wait_for_request),
	CASE(migrate_to_null_makes_synchronous),
	CASE(migrate_to_null_when_synchronous),
	CASE(migrate_from_synchronous),
	CASE(migrate_listener),
	CASE(migrate_listener_with_waiting_requests),
	CASE(migrate_connected),
	CASE(migrate_while_connecting),
	CASE(migrate_null_id),
};

CONF_MAIN(cases)
