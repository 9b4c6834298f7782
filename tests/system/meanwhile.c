/* SPDX-License-Identifier: BSD-2-Clause */
#include "meanwhile.h"

/* Where messages go in a side's memory. */
enum { FROM = 0, TO = 4096, LEN = 1000 };

/* ---- both sides ----------------------------------------------------------------------- */

static void post_receive(struct side *s)
{
	memset(s->b.p + TO, 0, LEN);
	if (s->srq)
		OK(conf_srq_recv(s->srq, 501, &s->b, TO, LEN));
	else
		OK(conf_recv(s->qp, 501, &s->b, TO, LEN));
}

static void receive_one(struct side *s, uint32_t seed)
{
	conf_wc_ok(s->cq, 501);
	CHECK(conf_pattern_ok(s->b.p + TO, LEN, seed));
}

static void send_one(struct side *s, uint32_t seed)
{
	conf_pattern(s->b.p + FROM, LEN, seed);
	OK(conf_send(s->qp, 502, &s->b, FROM, LEN));
	conf_wc_ok(s->cq, 502);
}

/* A new side that is connected to one of the other process. */
static struct far_other new_side(struct peer *p, struct side *s)
{
	struct far_other o;

	*s = side(77);
	EQ(to_init(s), 0);
	far_tell(p, s);
	o = far_hear(p);
	EQ(to_rtr(s, o.qpn, o.psn, &dev.gid), 0);
	EQ(to_rts(s), 0);
	return o;
}

/* ---- the servant ---------------------------------------------------------------------- */

static void serve_message(struct peer *me, struct side *s)
{
	post_receive(s);
	peer_say(me, 'p');
	receive_one(s, 1);
	send_one(s, 2);
}

static void serve_raw(struct peer *me)
{
	struct side s;

	new_side(me, &s);
	peer_hear(me, 'e');
	side_free(&s);
}

static void serve_cm(struct peer *me)
{
	struct end e;

	end_serve(&e, me);
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(e.id));
	end_free(&e);
}

char meanwhile_serve(struct peer *me, struct side *s)
{
	for (;;) {
		char c = peer_hear_any(me);

		switch (c) {
		case 'm':
			serve_message(me, s);
			break;
		case 'q':
			serve_raw(me);
			break;
		case 'c':
			serve_cm(me);
			break;
		default:
			return c;
		}
	}
}

/* ---- who looks ------------------------------------------------------------------------- */

void meanwhile_message(struct peer *servant, struct side *s)
{
	peer_say(servant, 'm');
	peer_hear(servant, 'p');
	post_receive(s);
	send_one(s, 1);
	receive_one(s, 2);
}

static void raw_works(struct peer *servant)
{
	struct far_other o;
	struct side s;

	peer_say(servant, 'q');
	o = new_side(servant, &s);
	far_works(&s, &o, 300, 3);
	far_works(&s, &o, 100000, 4);
	side_free(&s);
	peer_say(servant, 'e');
}

static void cm_works(struct peer *servant)
{
	struct end e;

	peer_say(servant, 'c');
	end_join(&e, servant);
	OK(rdma_disconnect(e.id));
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
}

void meanwhile_works(struct peer *servant, struct side *s)
{
	if (s)
		meanwhile_message(servant, s);
	raw_works(servant);
	cm_works(servant);
}

/* ---- a third process -------------------------------------------------------------------- */

static void third_run(struct peer *me, void *arg)
{
	struct side s;

	(void)arg;
	open_device();
	new_side(me, &s);
	EQ(meanwhile_serve(me, &s), 'x');
	side_free(&s);
}

void third_start(struct third *t)
{
	far_env();
	t->peer = peer_start(third_run, NULL);
}

void third_join(struct third *t)
{
	struct far_other o = new_side(&t->peer, &t->s);

	far_works(&t->s, &o, 300, 3);
}

void third_works(struct third *t)
{
	meanwhile_works(&t->peer, &t->s);
}

void third_end(struct third *t)
{
	peer_say(&t->peer, 'x');
	peer_end(&t->peer);
	side_free(&t->s);
}

/* ---- completions ------------------------------------------------------------------------ */

static void wait_for_event(struct taker *k)
{
	struct ibv_cq *cq;
	void *arg;

	OK(ibv_get_cq_event(k->s->ch, &cq, &arg));
	ibv_ack_cq_events(cq, 1);
	EQ(ibv_req_notify_cq(cq, 0), 0);
}

static void *take(void *arg)
{
	struct taker *k = arg;
	unsigned n = 0;

	while (n < k->want) {
		int got = ibv_poll_cq(k->s->cq, 1, &k->wc[n]);

		CHECK(got >= 0);
		if (got)
			atomic_store(&k->n, ++n);
		else if (k->sleeps)
			wait_for_event(k);
	}
	return NULL;
}

void taker_start(struct taker *k, struct side *s, bool sleeps, unsigned want)
{
	CHECK(want <= sizeof(k->wc) / sizeof(k->wc[0]));
	*k = (struct taker){ .s = s, .sleeps = sleeps, .want = want };
	if (sleeps)
		EQ(ibv_req_notify_cq(s->cq, 0), 0);
	k->thread = conf_thread(take, k);
}
