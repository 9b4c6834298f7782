/* SPDX-License-Identifier: BSD-2-Clause */
/* The peer process is stopped for five seconds (SIGSTOP, SIGCONT) in each state of a
 * connection, as by a debugger: nothing is lost. */
#include "lab.h"

static struct end e;

/* Seconds: time is the point of all here, a peer that stands still for longer than
 * anything on the way waits for an answer. */
enum { PAUSE = 5 };

/* Stops the peer, lets us do something meanwhile, waits the rest of the time. */
static void pause_around(struct peer *p, void (*meanwhile)(void))
{
	uint64_t end;

	peer_stop(p);
	end = conf_now() + PAUSE * 1000000000ull;
	if (meanwhile)
		meanwhile();
	AT("the peer is stopped");
	while (conf_now() < end) /* time is the point: so long it is stopped */
		usleep(10000);
	peer_go_on(p);
}

static void exchange(struct end *x, unsigned n)
{
	struct ibv_sge sge = conf_sge(&x->buf, 0, 4096);
	struct ibv_send_wr wr = conf_wr(1000, IBV_WR_SEND, &sge, 1);

	for (unsigned i = 0; i < n; i++) {
		OK(conf_post(x->id->qp, &wr));
		conf_wc_ok(x->id->send_cq, 1000);
	}
}

/* The server: one connection, n messages in, the end. */
static void server(struct peer *me, void *arg)
{
	uintptr_t n = (uintptr_t)arg;
	struct end s;

	end_listen(&s, me);
	end_request(&s);
	peer_say(me, 'r');
	end_accept(&s, true);
	peer_say(me, 'e');
	for (uintptr_t i = 0; i < n; i++)
		conf_wc_ok(s.id->recv_cq, i);
	exchange(&s, n);
	AT("waiting for the end");
	conf_expect(s.ch, s.id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(s.id));
	peer_say(me, 'd');
	end_free(&s);
}

static void received(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		conf_wc_ok(e.id->recv_cq, i);
}

/* The client has called rdma_disconnect(); the server answers and ends. */
static void disconnected(struct peer *p)
{
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	peer_await(p, 'd');
	peer_end(p);
	end_free(&e);
}

/* What the client does from ESTABLISHED on. */
static void finish(struct peer *p, unsigned n)
{
	exchange(&e, n);
	received(n);
	OK(rdma_disconnect(e.id));
	disconnected(p);
}

static uint16_t port;

static void do_connect(void)
{
	end_connect(&e, port);
}

static void while_listening(void)
{
	struct peer p = peer_start(server, (void *)8);

	port = peer_hear_u32(&p);
	pause_around(&p, do_connect);
	end_established(&e);
	finish(&p, 8);
}

static void while_accepting(void)
{
	struct peer p = peer_start(server, (void *)8);

	end_connect(&e, peer_hear_u32(&p));
	peer_await(&p, 'r'); /* somewhere around rdma_accept */
	pause_around(&p, NULL);
	end_established(&e);
	finish(&p, 8);
}

static void post_eight(void)
{
	struct ibv_sge sge = conf_sge(&e.buf, 0, 4096);
	struct ibv_send_wr wr = conf_wr(1000, IBV_WR_SEND, &sge, 1);

	for (int i = 0; i < 8; i++)
		OK(conf_post(e.id->qp, &wr));
	/* Acknowledged means placed by the peer, and that one stands still. */
	conf_wc_none(e.id->send_cq, 500);
	conf_quiet(e.ch, 500);
}

static void when_established(void)
{
	struct peer p = peer_start(server, (void *)8);

	end_join(&e, &p);
	peer_await(&p, 'e');
	pause_around(&p, post_eight);
	for (int i = 0; i < 8; i++)
		conf_wc_ok(e.id->send_cq, 1000);
	received(8);
	OK(rdma_disconnect(e.id));
	disconnected(&p);
}

static void do_disconnect(void)
{
	OK(rdma_disconnect(e.id));
	conf_quiet(e.ch, 500);
}

static void when_disconnecting(void)
{
	struct peer p = peer_start(server, (void *)0);

	end_join(&e, &p);
	peer_await(&p, 'e');
	pause_around(&p, do_disconnect);
	disconnected(&p);
}

/* A client that is stopped between its request and its event. */
static void client(struct peer *me, void *arg)
{
	uintptr_t n = (uintptr_t)arg;
	struct end c;

	end_connect(&c, peer_hear_u32(me));
	peer_say(me, 'c');
	end_established(&c);
	exchange(&c, n);
	OK(rdma_disconnect(c.id));
	conf_expect(c.ch, c.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&c);
}

static void do_accept(void)
{
	end_accept(&e, false);
}

static void client_while_connecting(void)
{
	struct peer p = peer_start(client, (void *)8);

	end_listen(&e, &p);
	peer_hear(&p, 'c');
	end_request(&e);
	pause_around(&p, do_accept);
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_ESTABLISHED);
	received(8);
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(e.id));
	peer_end(&p);
	end_free(&e);
}

/* Data flows both ways while the peer is stopped and goes on, again and again. */
enum { FLOOD = 3000 };

static void flood(struct end *x)
{
	struct ibv_sge sge = conf_sge(&x->buf, 0, 4096);
	struct ibv_send_wr wr = conf_wr(1000, IBV_WR_SEND, &sge, 1);
	unsigned posted = 0, sent = 0, got = 0;
	uint64_t end = conf_now() + 3 * conf_ms(CONF_WAIT) * 1000000ull;
	struct ibv_wc wc;

	while (sent < FLOOD || got < FLOOD) {
		while (posted < FLOOD && posted - sent < 16) {
			OK(conf_post(x->id->qp, &wr));
			posted++;
		}
		while (ibv_poll_cq(x->id->send_cq, 1, &wc) == 1) {
			EQ(wc.status, 0);
			sent++;
		}
		while (ibv_poll_cq(x->id->recv_cq, 1, &wc) == 1) {
			EQ(wc.status, 0);
			OK(conf_recv(x->id->qp, wc.wr_id, &x->buf, (1 << 19), 4096));
			got++;
		}
		if (conf_now() > end)
			FAIL("sent %u, received %u of %u", sent, got, FLOOD);
	}
}

static void flood_server(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_serve(&s, me);
	flood(&s);
	peer_say(me, 'f');
	conf_expect(s.ch, s.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&s);
}

static void *stopper(void *arg)
{
	struct peer *p = arg;

	for (int i = 0; i < 5; i++) {
		peer_stop(p); /* time is the point: so long it is stopped, and goes on */
		usleep(i == 2 ? PAUSE * 1000000 : 200000);
		peer_go_on(p);
		usleep(10000);
	}
	return NULL;
}

static void under_load(void)
{
	struct peer p = peer_start(flood_server, NULL);
	pthread_t t;

	end_join(&e, &p);
	t = conf_thread(stopper, &p);
	flood(&e);
	conf_join_(__FILE__, __LINE__, t, 3 * CONF_WAIT);
	peer_hear(&p, 'f');
	OK(rdma_disconnect(e.id));
	peer_end(&p);
	end_free(&e);
}

/* One-sided work needs nothing of the target's application. */
static void sleeping_server(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_serve(&s, me);
	remote_say(me, &s.buf);
	peer_hear(me, 'x'); /* sleeps in read(2) all the while */
	CHECK(conf_pattern_ok(s.buf.p, 1 << 18, 6));
	end_free(&s);
}

static void one_sided_while_the_target_sleeps(void)
{
	struct peer p = peer_start(sleeping_server, NULL);
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct remote there;

	end_join(&e, &p);
	there = remote_hear(&p);
	conf_pattern(e.buf.p, 1 << 18, 6);
	sge = conf_sge(&e.buf, 0, 1 << 18);
	for (int i = 0; i < 50; i++) {
		wr = remote_rdma(&there, 1, IBV_WR_RDMA_WRITE, &sge);
		OK(conf_post(e.id->qp, &wr));
		conf_wc_ok(e.id->send_cq, 1);
	}
	sge = conf_sge(&e.buf, 1 << 18, 1 << 18);
	wr = remote_rdma(&there, 2, IBV_WR_RDMA_READ, &sge);
	OK(conf_post(e.id->qp, &wr));
	conf_wc_ok(e.id->send_cq, 2);
	CHECK(conf_pattern_ok(e.buf.p + (1 << 18), 1 << 18, 6));
	peer_say(&p, 'x');
	peer_end(&p);
	end_free(&e);
}

static const struct conf_case cases[] = {
	LONG_CASE(while_listening, 40),
	LONG_CASE(while_accepting, 40),
	LONG_CASE(when_established, 40),
	LONG_CASE(when_disconnecting, 40),
	LONG_CASE(client_while_connecting, 40),
	LONG_CASE(under_load, 60),
	CASE(one_sided_while_the_target_sleeps),
};

CONF_MAIN(cases)
