/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections between processes of one host: when they use shared memory and when TCP,
 * which listener they reach, and that the events are the same. */
#include "lab.h"

#include <sys/wait.h>

enum { REJECTED_NO_LISTENER = 8, REJECTED_CONSUMER = 28 };

/* ---- servers ------------------------------------------------------------------------ */

struct server {
	const char *transport;
	uint16_t port;	/* 0: any */
	uint8_t name;	/* first byte of its reply */
	uid_t uid;	/* 0: as it is */
	uid_t later;	/* once it listens */
};

static struct rdma_cm_id *listen_on(struct rdma_event_channel *ch, uint16_t port)
{
	struct rdma_cm_id *id = conf_id(ch);
	conf_sa at = conf_addr(AF_INET, port);

	OK(rdma_bind_addr(id, SA(at)));
	OK(rdma_listen(id, 4));
	return id;
}

/* One connection to its end. */
static void serve_one(struct rdma_event_channel *ch, uint8_t name)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *id = conf_request(ch);

	conf_qp(id, 4);
	param.private_data = &name;
	param.private_data_len = 1;
	OK(rdma_accept(id, &param));
	conf_expect(ch, id, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(ch, id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(id));
	conf_id_free(id);
}

/* Orders: l listen, s serve one, d destroy the listener, q end. */
static void serve(struct peer *me, void *arg)
{
	const struct server *how = arg;
	struct rdma_cm_id *listener = NULL;
	struct rdma_event_channel *ch;
	char order;

	lab_transport(how->transport);
	if (how->uid)
		lab_become(how->uid);
	ch = conf_channel();
	while (read(me->in, &order, 1) == 1 && order != 'q') {
		if (order == 'l') {
			listener = listen_on(ch, how->port);
			if (how->later)
				lab_become(how->later);
			peer_say_u32(me, ntohs(rdma_get_src_port(listener)));
		} else if (order == 's') {
			serve_one(ch, how->name);
		} else if (order == 'd') {
			OK(rdma_destroy_id(listener));
			listener = NULL;
			peer_say(me, 'd');
		}
	}
	if (listener)
		OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

static uint16_t listening(struct peer *p)
{
	peer_say(p, 'l');
	return (uint16_t)peer_hear_u32(p);
}

/* ---- clients ------------------------------------------------------------------------ */

struct client {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	uint8_t reached; /* name of the server */
};

static void call(struct client *c, uint16_t port)
{
	struct rdma_conn_param param = conf_param();

	c->ch = conf_channel();
	c->id = conf_route_resolved(c->ch, conf_addr(AF_INET, port));
	conf_qp(c->id, 4);
	OK(rdma_connect(c->id, &param));
}

static void reached(struct client *c)
{
	struct rdma_cm_event *ev = conf_get(c->ch, c->id, RDMA_CM_EVENT_ESTABLISHED);

	c->reached = *(const uint8_t *)ev->param.conn.private_data;
	OK(rdma_ack_cm_event(ev));
}

static void hang_up(struct client *c)
{
	conf_id_free(c->id);
	rdma_destroy_event_channel(c->ch);
}

static void end_call(struct client *c)
{
	OK(rdma_disconnect(c->id));
	conf_expect(c->ch, c->id, RDMA_CM_EVENT_DISCONNECTED);
	hang_up(c);
}

/* Connects to a server of this kind over as many TCP connections. */
static void one_way(struct server how, const char *mine, int tcp)
{
	struct peer p = peer_start(serve, &how);
	struct client c;
	uint16_t port;

	lab_transport(mine);
	port = listening(&p);
	peer_say(&p, 's');
	call(&c, port);
	reached(&c);
	EQ(c.reached, how.name);
	EQ(lab_tcp_connections(port), tcp);
	end_call(&c);
	peer_say(&p, 'q');
	peer_end(&p);
}

/* ---- which way ---------------------------------------------------------------------- */

static void shared_memory(void)
{
	one_way((struct server){ .transport = "auto", .name = 1 }, "auto", 0);
}

static void server_without(void)
{
	one_way((struct server){ .transport = "tcp", .name = 2 }, "auto", 1);
}

static void client_without(void)
{
	one_way((struct server){ .transport = "auto", .name = 3 }, "tcp", 1);
}

static void another_user(void)
{
	if (geteuid())
		SKIP("only root can be somebody else");
	one_way((struct server){ .transport = "auto", .name = 4, .uid = 1234 }, "auto", 1);
}

static void another_user_since(void)
{
	if (geteuid())
		SKIP("only root can be somebody else");
	one_way((struct server){ .transport = "auto", .name = 5, .later = 1234 }, "auto", 1);
}

/* ---- who ----------------------------------------------------------------------------- */

static void reach(uint16_t port, struct peer *p, uint8_t name)
{
	struct client c;

	peer_say(p, 's');
	call(&c, port);
	reached(&c);
	EQ(c.reached, name);
	EQ(lab_tcp_connections(port), 0);
	end_call(&c);
}

/* The port goes from one process to another while the first lives on. */
static void next_owner(void)
{
	struct server a = { .transport = "auto", .name = 1, .port = conf_port(0) };
	struct server b = { .transport = "auto", .name = 2, .port = conf_port(0) };
	struct peer pa = peer_start(serve, &a), pb = peer_start(serve, &b);
	struct peer *order[] = { &pa, &pb, &pa };

	lab_transport("auto");
	for (int i = 0; i < 3; i++) {
		listening(order[i]);
		reach(a.port, order[i], order[i] == &pa ? 1 : 2);
		reach(a.port, order[i], order[i] == &pa ? 1 : 2);
		peer_say(order[i], 'd');
		peer_hear(order[i], 'd');
	}
	peer_say(&pa, 'q');
	peer_say(&pb, 'q');
	peer_end(&pa);
	peer_end(&pb);
}

/* A server that was reached at this port and does not listen any more. */
static struct peer deaf_server(uint16_t port)
{
	struct server how = { .transport = "auto", .name = 7, .port = port };
	struct peer p = peer_start(serve, &how);

	lab_transport("auto");
	listening(&p);
	reach(port, &p, 7);
	peer_say(&p, 'd');
	peer_hear(&p, 'd');
	return p;
}

/* A server that makes a new listener for each client is without one for a moment. */
static void listener_comes_back(void)
{
	struct peer p = deaf_server(conf_port(1));
	struct client c;

	call(&c, conf_port(1));
	listening(&p);
	peer_say(&p, 's');
	reached(&c);
	end_call(&c);
	peer_say(&p, 'q');
	peer_end(&p);
}

/* Killed while a request waits there: its successor gets it. */
static void successor(void)
{
	struct server how = { .transport = "auto", .name = 1, .port = conf_port(3) };
	struct server next = { .transport = "auto", .name = 2, .port = conf_port(3) };
	struct peer p = peer_start(serve, &how), q = peer_start(serve, &next);
	struct client c;

	lab_transport("auto");
	listening(&p);
	reach(how.port, &p, 1);
	peer_stop(&p);
	call(&c, how.port);
	peer_kill(&p);
	listening(&q);
	peer_say(&q, 's');
	reached(&c);
	EQ(c.reached, 2);
	end_call(&c);
	peer_say(&q, 'q');
	peer_end(&q);
}

/* Fetches one request and does nothing with it. */
static void fetcher(struct peer *me, void *arg)
{
	struct rdma_event_channel *ch;
	const struct server *how = arg;
	struct rdma_cm_event *ev;

	lab_transport(how->transport);
	ch = conf_channel();
	listen_on(ch, how->port);
	peer_say(me, 'l');
	ev = conf_get(ch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);
	OK(rdma_ack_cm_event(ev));
	peer_say(me, 'f');
	peer_hear(me, 'x'); /* never comes */
}

/* Killed with a request that it has fetched: nobody else gets it, as over TCP. */
static void dies_with_the_request(void)
{
	struct server how = { .transport = "auto", .name = 1, .port = conf_port(3) };
	struct server next = { .transport = "auto", .name = 2, .port = conf_port(3) };
	struct peer p = peer_start(fetcher, &how), q = peer_start(serve, &next);
	struct client c;

	lab_transport("auto");
	peer_hear(&p, 'l');
	call(&c, how.port);
	peer_hear(&p, 'f');
	peer_kill(&p);
	conf_expect_status(c.ch, c.id, RDMA_CM_EVENT_REJECTED, REJECTED_CONSUMER);
	hang_up(&c);
	listening(&q);
	reach(how.port, &q, 2);
	peer_say(&q, 'd');
	peer_hear(&q, 'd');
	peer_say(&q, 'q');
	peer_end(&q);
}

static void nobody_listens(void)
{
	struct peer p = deaf_server(conf_port(2));
	struct client c;

	call(&c, conf_port(2));
	conf_expect_status(c.ch, c.id, RDMA_CM_EVENT_REJECTED, REJECTED_NO_LISTENER);
	hang_up(&c);
	peer_say(&p, 'q');
	peer_end(&p);
}

/* ---- requests that wait ---------------------------------------------------------------- */

/* Fetches when it is told to: requests whose callers have gone, and one that has not. */
static void late_server(struct peer *me, void *arg)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *id, *listener;
	struct rdma_event_channel *ch;
	int gone = 0;

	(void)arg;
	lab_transport("auto");
	ch = conf_channel();
	listener = listen_on(ch, 0);
	peer_say_u32(me, ntohs(rdma_get_src_port(listener)));
	peer_hear(me, 'g');
	conf_settle(); /* who has gone has gone: accept knows */
	for (;; gone++) {
		id = conf_request(ch);
		conf_qp(id, 4);
		if (!rdma_accept(id, &param))
			break;
		EQ(errno, EINVAL);
		conf_id_free(id);
	}
	conf_expect(ch, id, RDMA_CM_EVENT_ESTABLISHED);
	peer_say_u32(me, (uint32_t)gone);
	conf_expect(ch, id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(id));
	conf_id_free(id);
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

static void callers_that_do_not_wait(void)
{
	struct peer p = peer_start(late_server, NULL);
	struct client c;
	uint16_t port;

	lab_transport("auto");
	port = (uint16_t)peer_hear_u32(&p);
	for (int i = 0; i < 50; i++) {
		call(&c, port);
		hang_up(&c);
	}
	call(&c, port);
	conf_settle();
	peer_say(&p, 'g');
	reached(&c);
	/* Requests that were queued when their caller went are still fetched. */
	CHECK(peer_hear_u32(&p) <= 50);
	end_call(&c);
	peer_end(&p);
}

enum { CROWD = 2500 };

/* Ids without QPs: what is asked for is the listener's patience. */
static void crowd_server(struct peer *me, void *arg)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_event_channel *ch;
	struct rdma_cm_event *ev;
	unsigned up = 0;

	(void)arg;
	lab_transport("auto");
	ch = conf_channel();
	peer_say_u32(me, ntohs(rdma_get_src_port(listen_on(ch, 0))));
	peer_hear(me, 'g');
	while (up < CROWD) {
		MUST(ev = conf_next(ch, conf_ms(CONF_WAIT)));
		param.qp_num = 0x800000 + up;
		if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			OK(rdma_accept(ev->id, &param));
		else
			EQ(ev->event, RDMA_CM_EVENT_ESTABLISHED);
		up += ev->event == RDMA_CM_EVENT_ESTABLISHED;
		OK(rdma_ack_cm_event(ev));
	}
	peer_say(me, 'u');
	peer_hear(me, 'q');
}

/* More requests at once than a listener holds, let alone its backlog: each is
 * answered. */
static void crowd(void)
{
	struct peer p = peer_start(crowd_server, NULL);
	struct rdma_conn_param param = conf_param();
	struct rdma_event_channel *ch;
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	uint16_t port;

	lab_transport("auto");
	port = (uint16_t)peer_hear_u32(&p);
	ch = conf_channel();
	for (unsigned i = 0; i < CROWD; i++) {
		id = conf_route_resolved(ch, conf_addr(AF_INET, port));
		param.qp_num = 0x400000 + i;
		OK(rdma_connect(id, &param));
	}
	peer_say(&p, 'g');
	for (unsigned i = 0; i < CROWD; i++) {
		ev = conf_get(ch, NULL, RDMA_CM_EVENT_CONNECT_RESPONSE);
		OK(rdma_establish(ev->id));
		OK(rdma_ack_cm_event(ev));
	}
	peer_hear(&p, 'u');
	EQ(lab_tcp_connections(port), 0);
	peer_say(&p, 'q');
	peer_end(&p);
}

enum { ROOM = 1024 + 8 }; /* requests that a listener and its backlog hold, and more */

/* Takes all room that there is, and waits. */
static void holder(struct peer *me, void *arg)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	uint16_t port;

	(void)arg;
	lab_transport("auto");
	port = (uint16_t)peer_hear_u32(me);
	ch = conf_channel();
	for (unsigned i = 0; i < ROOM; i++) {
		id = conf_route_resolved(ch, conf_addr(AF_INET, port));
		param.qp_num = 0x400000 + i;
		OK(rdma_connect(id, &param));
	}
	peer_say(me, 'h');
	peer_hear(me, 'q');
}

/* Nobody fetches, and there is no room to wait: who is told to come later gives up when
 * his time is over, as if there had been no answer. */
static void turned_away(void)
{
	struct peer server = peer_start(crowd_server, NULL), crowd_peer = peer_start(holder, NULL);
	uint16_t port = (uint16_t)peer_hear_u32(&server);
	struct client c;

	peer_say_u32(&crowd_peer, port);
	peer_hear(&crowd_peer, 'h');
	setenv("ANYRDMA_CM_RETRY_MS", "100", 1);
	setenv("ANYRDMA_CM_RETRIES", "4", 1);
	lab_transport("auto");
	call(&c, port);
	conf_expect_status(c.ch, c.id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	hang_up(&c);
	peer_kill(&server);
	peer_kill(&crowd_peer);
}

static const struct conf_case cases[] = {
	CASE(shared_memory),
	CASE(server_without),
	CASE(client_without),
	CASE(another_user),
	CASE(another_user_since),
	CASE(next_owner),
	CASE(listener_comes_back),
	CASE(successor),
	CASE(dies_with_the_request),
	CASE(nobody_listens),
	CASE(callers_that_do_not_wait),
	LONG_CASE(crowd, 40),
	CASE(turned_away),
};
CONF_MAIN(cases)
