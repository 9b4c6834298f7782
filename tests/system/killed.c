/* SPDX-License-Identifier: BSD-2-Clause */
/* The peer process is killed (SIGKILL) in each state of a connection: the events and
 * completions that the other process gets. */
#include "lab.h"

static struct end e;

static void idle(struct peer *me)
{
	peer_hear(me, 'x'); /* never comes */
}

/* Servers that go as far as their name says. */

static void server_listening(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_listen(&s, me);
	idle(me);
}

static void server_request_fetched(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_listen(&s, me);
	end_request(&s);
	peer_say(me, 'r');
	idle(me);
}

static void server_accepted(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_listen(&s, me);
	end_request(&s);
	end_accept(&s, false);
	peer_say(me, 'a');
	idle(me);
}

static void server_established(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_serve(&s, me);
	peer_say(me, 'e');
	remote_say(me, &s.buf);
	idle(me);
}

static void server_disconnected(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_serve(&s, me);
	conf_expect(s.ch, s.id, RDMA_CM_EVENT_DISCONNECTED);
	peer_say(me, 'd');
	idle(me);
}

/* An event that says that it is over; which one depends on the moment. */
static void expect_failure(int also)
{
	struct rdma_cm_event *ev = conf_next(e.ch, conf_ms(CONF_WAIT));

	MUST(ev);
	if (ev->event != RDMA_CM_EVENT_REJECTED && ev->event != RDMA_CM_EVENT_UNREACHABLE &&
	    ev->event != RDMA_CM_EVENT_CONNECT_ERROR && (int)ev->event != also)
		FAIL("got %s, status %d", conf_event_name(ev->event), ev->status);
	OK(rdma_ack_cm_event(ev));
}

static void server_killed_before_the_request(void)
{
	struct peer p = peer_start(server_listening, NULL);
	uint16_t port = peer_hear_u32(&p);

	peer_kill(&p);
	end_connect(&e, port);
	conf_expect_status(e.ch, e.id, RDMA_CM_EVENT_REJECTED, 8);
	end_free(&e);
}

/* The same port can be taken again at once. */
static void port_of_a_killed_server_is_free(void)
{
	struct peer p = peer_start(server_listening, NULL);
	conf_sa addr = conf_addr(AF_INET, peer_hear_u32(&p));
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;

	peer_kill(&p);
	ch = conf_channel();
	id = conf_id(ch);
	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_listen(id, 1));
	conf_id_close(id);
}

static void server_killed_with_the_request_queued(void)
{
	struct peer p = peer_start(server_listening, NULL);

	end_connect(&e, peer_hear_u32(&p));
	conf_quiet(e.ch, CONF_QUIET);
	peer_kill(&p);
	expect_failure(-1);
	conf_quiet(e.ch, CONF_QUIET); /* one end only */
	end_free(&e);
}

static void server_killed_before_accept(void)
{
	struct peer p = peer_start(server_request_fetched, NULL);

	end_connect(&e, peer_hear_u32(&p));
	peer_hear(&p, 'r');
	peer_kill(&p);
	expect_failure(-1);
	conf_quiet(e.ch, CONF_QUIET);
	end_free(&e);
}

static void server_killed_after_accept(void)
{
	struct peer p = peer_start(server_accepted, NULL);
	struct rdma_cm_event *ev;

	end_connect(&e, peer_hear_u32(&p));
	peer_hear(&p, 'a');
	peer_kill(&p);
	conf_settle();
	MUST(ev = conf_next(e.ch, conf_ms(CONF_WAIT)));
	if (ev->event == RDMA_CM_EVENT_ESTABLISHED) { /* the reply came first */
		OK(rdma_ack_cm_event(ev));
		MUST(ev = conf_next(e.ch, conf_ms(CONF_WAIT)));
		EQ(ev->event, RDMA_CM_EVENT_DISCONNECTED);
	} else if (ev->event != RDMA_CM_EVENT_REJECTED) {
		EQ(ev->event, RDMA_CM_EVENT_CONNECT_ERROR);
	}
	OK(rdma_ack_cm_event(ev));
	end_free(&e);
}

static void server_killed_when_established(void)
{
	struct peer p = peer_start(server_established, NULL);

	end_join(&e, &p);
	peer_hear(&p, 'e');
	peer_kill(&p);
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(e.id));
	for (int i = 0; i < 32; i++)
		conf_wc_is(e.id->recv_cq, i, IBV_WC_WR_FLUSH_ERR);
	end_free(&e);
}

/* Work under way fails, in order, the rest is flushed. */
static void server_killed_under_load(void)
{
	struct peer p = peer_start(server_established, NULL);
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	uint64_t next = 0, posted = 0;
	struct remote there;

	end_join(&e, &p);
	peer_hear(&p, 'e');
	there = remote_hear(&p);
	sge = conf_sge(&e.buf, 0, 1 << 18);
	while (next < 500) {
		if (next == 100 && posted < 1000000) {
			peer_kill(&p);
			posted += 1000000;
		}
		while (posted % 1000000 - next < 8) {
			wr = remote_rdma(&there, posted % 1000000, IBV_WR_RDMA_WRITE,
					 &sge);
			if (conf_post(e.id->qp, &wr))
				break;
			posted++;
		}
		conf_wc(e.id->send_cq, &wc);
		EQ(wc.wr_id, next);
		if (wc.status)
			break;
		next++;
	}
	EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	while (++next < posted % 1000000)
		conf_wc_is(e.id->send_cq, next, IBV_WC_WR_FLUSH_ERR);
	EQ(conf_qp_state(e.id->qp), IBV_QPS_ERR);
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
}

static void server_killed_instead_of_answering_disconnect(void)
{
	struct peer p = peer_start(server_disconnected, NULL);
	struct rdma_cm_event *ev;

	end_join(&e, &p);
	OK(rdma_disconnect(e.id));
	peer_hear(&p, 'd');
	peer_kill(&p);
	MUST(ev = conf_next(e.ch, 2 * conf_ms(CONF_WAIT)));
	EQ(ev->event, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_ack_cm_event(ev));
	end_free(&e);
}

/* Clients. */

static void client_requested(struct peer *me, void *arg)
{
	struct end c;

	(void)arg;
	end_connect(&c, peer_hear_u32(me));
	idle(me);
}

/* Its event is there, nobody has fetched it. */
static void client_answered(struct peer *me, void *arg)
{
	struct end c;

	(void)arg;
	end_connect(&c, peer_hear_u32(me));
	WAIT_FOR(conf_readable(c.ch->fd));
	peer_say(me, 'a');
	idle(me);
}

static void client_established(struct peer *me, void *arg)
{
	struct end c;

	(void)arg;
	end_join(&c, me);
	peer_say(me, 'e');
	idle(me);
}

static void client_killed_before_accept(void)
{
	struct rdma_conn_param param = conf_param();
	struct peer p = peer_start(client_requested, NULL);

	end_listen(&e, &p);
	end_request(&e);
	peer_kill(&p);
	conf_quiet(e.ch, CONF_QUIET); /* no events before accept */
	conf_settle();
	ERR(rdma_accept(e.id, &param), EINVAL);
	EQ(conf_qp_state(e.id->qp), IBV_QPS_ERR);
	end_free(&e);
}

static void client_killed_with_the_request_queued(void)
{
	struct peer p = peer_start(client_requested, NULL);
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_event *ev;

	end_listen(&e, &p);
	WAIT_FOR(conf_readable(e.ch->fd));
	peer_kill(&p);
	conf_settle();
	ev = conf_next(e.ch, 0); /* withdrawn, or still there and dead */
	if (ev) {
		e.id = ev->id;
		OK(rdma_ack_cm_event(ev));
		conf_qp(e.id, 4);
		ERR(rdma_accept(e.id, &param), EINVAL);
	}
	end_free(&e);
}

static void client_killed_before_its_event(void)
{
	struct peer p = peer_start(client_answered, NULL);

	end_listen(&e, &p);
	end_request(&e);
	end_accept(&e, false);
	peer_hear(&p, 'a');
	peer_kill(&p);
	expect_failure(RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
}

static void client_killed_when_established(void)
{
	struct peer p = peer_start(client_established, NULL);

	end_serve(&e, &p);
	peer_hear(&p, 'e');
	peer_kill(&p);
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
}

/* Nobody else notices. */
static void others_live_on(void)
{
	struct peer p = peer_start(client_established, NULL);
	struct conf_pair c;
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	end_serve(&e, &p);
	peer_hear(&p, 'e');
	conf_pair_open(&c, NULL);
	peer_kill(&p);
	sge = conf_sge(&e.buf, 0, 1000);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, e.buf.p + 4096, e.buf.mr->rkey);
	for (int i = 0; i < 100; i++) {
		OK(conf_post(c.a->qp, &wr));
		conf_wc_ok(c.a->send_cq, 1);
	}
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	conf_quiet(c.ach, 50);
	conf_quiet(c.lch, 50);
	conf_pair_close(&c);
	end_free(&e);
}

static const struct conf_case cases[] = {
	CASE(server_killed_before_the_request),
	CASE(port_of_a_killed_server_is_free),
	CASE(server_killed_with_the_request_queued),
	CASE(server_killed_before_accept),
	CASE(server_killed_after_accept),
	CASE(server_killed_when_established),
	CASE(server_killed_under_load),
	LONG_CASE(server_killed_instead_of_answering_disconnect, 40),
	CASE(client_killed_before_accept),
	CASE(client_killed_with_the_request_queued),
	CASE(client_killed_before_its_event),
	CASE(client_killed_when_established),
	CASE(others_live_on),
};

CONF_MAIN(cases)
