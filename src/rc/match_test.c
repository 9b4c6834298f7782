/* SPDX-License-Identifier: BSD-2-Clause */
/* Which stream a QP gets, who looks for it and how, and what becomes of work meanwhile. */
#include "rc/end_test.h"

enum { BUSY = EMFILE }; /* what a carrier may answer */

static struct end *end_init(const struct end_opt *o)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	qp_init(e, o);
	return e;
}

/* Back to INIT, through RESET. */
static void end_again(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	CHECK_EQ(qp_to(e, IBV_QPS_RESET), 0);
	CHECK_EQ(ibv_modify_qp(e->qp, &a,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				       IBV_QP_ACCESS_FLAGS),
		 0);
}

static struct stream_key key_to(const struct end *e, const union ibv_gid *gid,
				uint32_t qpn)
{
	return (struct stream_key){ e->qp->qp_num, qpn, *gid, false };
}

/* The number of the QP's wait; 0: it does not wait for a carrier's stream. */
static uint64_t serial_of(const struct end *e)
{
	struct stream_key k = key_to(e, &remote_gid, REMOTE_QPN);
	uint64_t serial;

	match_lock();
	serial = match_serial_locked(&k);
	match_unlock();
	return serial;
}

static bool has(struct fake_peer *p, const struct end *e)
{
	struct stream *s = p->s;
	bool is;

	stream_lock(s);
	is = s->qp == to_qp(e->qp);
	stream_unlock(s);
	return is;
}

static void ways_clear(void)
{
	memset(fake_way, 0, sizeof(fake_way));
}

/* Our GID is the smaller one: we ask. */
static void remote_is_larger(bool larger)
{
	remote_gid = local_gid;
	remote_gid.raw[12] = larger ? 0xfe : 0;
}

/* ---- by key ------------------------------------------------------------------------ */

static void a_stream_waits_for_its_qp(void)
{
	const struct end_opt o = { 0 };
	struct end *e = end_init(&o);

	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(!has(e->p, e));
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK(has(e->p, e));
	CHECK_EQ(e->p->joins, 1);
	end_free(e);
}

static void a_qp_waits_for_its_stream(void)
{
	const struct end_opt o = { 0 };
	struct end *e = end_init(&o);

	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(qp_rts(e, &o), 0);
	post(e, IBV_WR_SEND, 1, 16);
	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(has(e->p, e));
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN)); /* what was posted meanwhile */
	CHECK(hear(e, RC_SEND));
	end_free(e);
}

static void streams_of_others_are_not_taken(void)
{
	const struct end_opt o = { 0 };
	struct end *e = end_init(&o);
	struct stream_param param = param_of(e, &o);
	struct fake_peer *other[4];

	for (int i = 0; i < 4; i++) {
		struct stream_param q = param;

		q.local_qpn ^= i == 0;
		q.remote_qpn ^= i == 1;
		q.remote_gid.raw[15] ^= i == 2;
		q.unreliable = i == 3;
		other[i] = fake_new(&q, true);
		CHECK_EQ(stream_start(other[i]->s), 0);
	}
	CHECK_EQ(qp_rtr(e, &o), 0);
	for (int i = 0; i < 4; i++)
		CHECK(!has(other[i], e));
	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(has(e->p, e));
	for (int i = 0; i < 4; i++)
		peer_end(other[i]);
	end_free(e);
}

static void a_stream_that_was_released_is_not_taken(void)
{
	const struct end_opt o = { 0 };
	struct end *e = end_init(&o);
	struct fake_peer *p = peer_new(e, &o);

	CHECK_EQ(stream_start(p->s), 0);
	stream_release(p->s); /* it closes when the peer ends */
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK(!has(p, e));
	peer_end(p);
	end_free(e);
}

/* A stream of a rendezvous is for the wait that it was made for, and no other. */
static void a_stream_is_for_one_wait(void)
{
	const struct end_opt o = { .by_number = true, .no_user = true };
	struct end *e = end_init(&o);
	struct fake_peer *old = peer_new(e, &o);
	uint64_t first;

	CHECK_EQ(serial_of(e), 0);
	CHECK_EQ(qp_rtr(e, &o), 0);
	first = serial_of(e);
	CHECK(first);
	end_again(e);
	CHECK_EQ(serial_of(e), 0);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK(serial_of(e) != 0 && serial_of(e) != first);

	old->s->serial = first;
	CHECK_EQ(stream_start(old->s), 0);
	CHECK(!has(old, e));
	peer_end(old); /* it closes by itself */

	e->p = peer_new(e, &o);
	e->p->s->serial = serial_of(e);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(has(e->p, e));
	end_free(e);
}

/* ... and is not kept for a wait to come. */
static void a_stream_for_a_wait_is_not_kept(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = end_init(&o);
	struct fake_peer *p = peer_new(e, &o);

	CHECK_EQ(qp_rtr(e, &o), 0);
	p->s->serial = serial_of(e);
	end_again(e);
	CHECK_EQ(stream_start(p->s), 0);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK(!has(p, e));
	peer_end(p);
	end_free(e);
}

/* Frames of a stream whose two ends are one. */
static void echo(struct end *e)
{
	const struct fake_frame *f;

	while ((f = fake_hear(e->p, 0)))
		fake_say(e->p, &f->f, f->data);
}

static void a_qp_connected_to_itself(void)
{
	struct end_opt o = { .by_number = true, .sq_psn = 7, .rq_psn = 7 };
	struct end *e = end_init(&o);
	struct stream_param param;

	ways_clear();
	fake_way[0].reaches = true;
	o.dest_qpn = e->qp->qp_num;
	param = param_of(e, &o);
	param.remote_gid = local_gid;
	CHECK_EQ(qp_rtr_to(e, &o, &local_gid), 0);
	CHECK_EQ(qp_rts(e, &o), 0);
	CHECK_EQ(fake_way[0].connects, 0); /* nobody is the smaller one */
	e->p = fake_new(&param, false);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(has(e->p, e));
	post_recv(e, 1, 100);
	post(e, IBV_WR_SEND, 2, 100);
	echo(e);
	fake_pass(e->p, true);
	echo(e);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	ways_clear();
	end_free(e);
}

/* ---- a carrier that cannot --------------------------------------------------------- */

static void the_poll_group_is_full(void)
{
	const struct end_opt o = { 0 };
	struct end *e = end_init(&o);

	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	e->p->join_ret = -BUSY;
	CHECK_EQ(qp_rtr(e, &o), BUSY);
	CHECK_EQ(state_of(e), IBV_QPS_INIT);
	CHECK(!has(e->p, e));
	CHECK_EQ(e->p->leaves, 1);
	e->p->join_ret = 0;
	e->p->watch_ret = -BUSY;
	CHECK_EQ(qp_rtr(e, &o), BUSY);
	CHECK_EQ(e->p->leaves, 2);
	e->p->watch_ret = 0;
	CHECK_EQ(qp_rtr(e, &o), 0); /* the stream is still there */
	CHECK(has(e->p, e));
	end_free(e);
}

static void the_poll_group_of_a_waiting_qp_is_full(void)
{
	const struct end_opt o = { 0 };
	struct end *e = end_init(&o);

	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(qp_rts(e, &o), 0);
	post(e, IBV_WR_SEND, 1, 16);
	e->p = peer_new(e, &o);
	e->p->join_ret = -BUSY;
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(!has(e->p, e));
	CHECK(completes(e, 1, IBV_WC_LOC_QP_OP_ERR));
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	end_free(e);
}

static void a_stream_that_does_not_start(void)
{
	const struct end_opt o = { .no_user = true };
	struct end *e = end_init(&o);
	struct fake_peer *p = peer_new(e, &o);

	p->start_ret = -BUSY;
	CHECK_EQ(stream_start(p->s), -BUSY);
	stream_put(p->s);
	fake_free(p);
	CHECK_EQ(qp_rtr(e, &o), 0);
	end_free(e);
}

/* ---- who asks ---------------------------------------------------------------------- */

static void the_smaller_one_asks(void)
{
	const struct end_opt o = { .by_number = true }, cm = { .by_number = false };
	struct end *e = end_init(&o);
	struct end_opt near = o;

	ways_clear();
	fake_way[0].reaches = fake_way[1].reaches = true;
	remote_is_larger(true);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK(fake_way[0].connects == 1 && fake_way[1].connects == 0);
	CHECK_EQ(fake_way[0].serial, serial_of(e));
	CHECK_EQ(fake_way[0].pauses, 0);
	end_again(e);
	remote_is_larger(false);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[0].connects, 1);
	end_again(e);
	near.dest_qpn = e->qp->qp_num + 1;
	CHECK_EQ(qp_rtr_to(e, &near, &local_gid), 0);
	CHECK_EQ(fake_way[0].connects, 2);
	end_again(e);
	near.dest_qpn = e->qp->qp_num - 1;
	CHECK_EQ(qp_rtr_to(e, &near, &local_gid), 0);
	CHECK_EQ(fake_way[0].connects, 2);
	end_free(e);

	e = end_init(&cm); /* the CM brings the stream */
	remote_is_larger(true);
	CHECK_EQ(qp_rtr(e, &cm), 0);
	CHECK_EQ(fake_way[0].connects, 2);
	end_free(e);
}

static void every_way_listens(void)
{
	const struct end_opt o = { .by_number = true }, cm = { .by_number = false };
	struct end *e;

	ways_clear();
	e = end_init(&o);
	for (int i = 0; i < FAKE_WAYS; i++)
		CHECK_EQ(fake_way[i].listens, 1);
	end_free(e);
	e = end_init(&cm);
	for (int i = 0; i < FAKE_WAYS; i++)
		CHECK_EQ(fake_way[i].listens, 1);
	end_free(e);
}

static void the_cm_is_waited_for(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = end_init(&o);

	ways_clear();
	fake_way[0].reaches = true;
	fake_way[1].arrived = true; /* accept() is NULL: it must not be called */
	remote_is_larger(true);
	match_expect(&remote_gid, REMOTE_QPN);
	match_expect(&remote_gid, REMOTE_QPN);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[0].connects, 0);
	CHECK_EQ(serial_of(e), 0);
	match_unexpect(&remote_gid, REMOTE_QPN);
	end_again(e);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[0].connects, 0); /* there is another request */
	match_unexpect(&remote_gid, REMOTE_QPN);
	CHECK(serial_of(e)); /* nothing comes of the CM */
	fake_way[1].arrived = false;
	end_again(e);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[0].connects, 1);

	e->p = peer_new(e, &o); /* and the CM's stream would still win */
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(has(e->p, e));
	CHECK_EQ(fake_way[0].cancels, 1);
	end_free(e);
}

/* ---- arrivals ---------------------------------------------------------------------- */

static struct end *accepting;
static int accept_ret;

/* As a carrier does: for the wait that is there. */
static int accept_it(struct fake_way *w)
{
	const struct end_opt o = { .no_user = true };

	(void)w;
	if (accept_ret)
		return accept_ret;
	accepting->p = peer_new(accepting, &o);
	accepting->p->s->serial = serial_of(accepting); /* match.lock is free */
	return stream_start(accepting->p->s);
}

static void a_peer_has_asked_already(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = accepting = end_init(&o);

	ways_clear();
	remote_is_larger(false);
	fake_way[2].arrived = true;
	fake_way[2].accept = accept_it;
	accept_ret = -BUSY;
	CHECK_EQ(qp_rtr(e, &o), BUSY);
	CHECK_EQ(state_of(e), IBV_QPS_INIT);
	CHECK_EQ(serial_of(e), 0);
	accept_ret = 0;
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[2].accepts, 2);
	REQUIRE(e->p);
	CHECK(has(e->p, e));
	ways_clear();
	end_free(e);
}

/* ---- attempts ---------------------------------------------------------------------- */

static void attempts_end_with_the_wait(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = end_init(&o);
	struct rc_attempt *a;

	ways_clear();
	fake_way[0].reaches = true;
	remote_is_larger(true);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[0].cancels, 0);
	CHECK_EQ(qp_to(e, IBV_QPS_RESET), 0);
	CHECK_EQ(fake_way[0].cancels, 1);
	end_free(e);

	e = end_init(&o);
	CHECK_EQ(qp_rtr(e, &o), 0);
	end_free(e);
	CHECK_EQ(fake_way[0].cancels, 2);

	e = end_init(&o);
	CHECK_EQ(qp_rtr(e, &o), 0);
	match_lock();
	a = fake_way[0].attempt;
	match_found_locked(a); /* the carrier's own again */
	match_unlock();
	free(a);
	end_free(e);
	CHECK_EQ(fake_way[0].cancels, 2);
	CHECK_EQ(fake_way[0].connects, 3);
}

/* The attempt that is under way fails. */
static bool fails(unsigned way)
{
	bool other;

	match_lock();
	other = fake_way[way].attempt &&
		match_failed_locked(fake_way[way].attempt, -BUSY);
	match_unlock();
	return other;
}

static void ways_are_tried_in_a_circle(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = end_init(&o);

	ways_clear();
	fake_way[0].reaches = fake_way[1].reaches = fake_way[2].reaches = true;
	remote_is_larger(true);
	CHECK_EQ(qp_rtr(e, &o), 0);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < FAKE_WAYS; i++) {
			CHECK(fake_way[i].attempt);
			CHECK_EQ(fake_way[i].serial, serial_of(e));
			CHECK_EQ(fake_way[i].pauses,
				 i ? 0 : round); /* when it was wrapped */
			CHECK(fails(i));
			CHECK_EQ(fake_way[i].cancels, round + 1);
			CHECK(!fake_way[i].attempt);
		}
	}
	CHECK_EQ(fake_way[0].pauses, 3);
	fake_way[1].reaches = false; /* an address has gone */
	CHECK(fails(0));
	CHECK(!fake_way[1].attempt && fake_way[2].attempt);
	end_free(e);
}

static void the_only_way_is_tried_again(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = end_init(&o);
	struct rc_attempt other = { .via = rc_rendezvous[1] };

	ways_clear();
	fake_way[1].reaches = true;
	remote_is_larger(true);
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(fake_way[0].connects, 0);
	CHECK(!fails(1));
	CHECK(fake_way[1].attempt);
	CHECK(fake_way[1].connects == 1 && fake_way[1].cancels == 0);
	match_lock();
	CHECK(!match_failed_locked(&other, -BUSY)); /* whose wait is over */
	match_unlock();
	end_free(e);
	CHECK_EQ(fake_way[1].cancels, 1);
}

static void no_memory_for_an_attempt(void)
{
	const struct end_opt o = { .by_number = true };
	struct end *e = end_init(&o);

	ways_clear();
	fake_way[0].reaches = fake_way[0].no_memory = true;
	remote_is_larger(true);
	CHECK_EQ(qp_rtr(e, &o), ENOMEM);
	CHECK_EQ(state_of(e), IBV_QPS_INIT);
	CHECK_EQ(serial_of(e), 0);
	fake_way[0].no_memory = false;
	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK(serial_of(e));
	end_free(e);
}

/* ---- work that waits --------------------------------------------------------------- */

static void post_bad(struct end *e, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)mem, 16, mr->lkey ^ 0x5a00 };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	wr.opcode = IBV_WR_SEND;
	CHECK_EQ(ibv_post_send(e->qp, &wr, &bad), 0);
}

/* Time is the point: two seconds, the shortest that a peer is waited for. */
static void nobody_comes(void)
{
	const struct end_opt o = { .by_number = true },
			     never = { .by_number = true, .never = true },
			     uc = { .by_number = true, .type = IBV_QPT_UC };
	struct end *a = end_init(&o), *b = end_init(&never), *c = end_init(&uc),
		   *idle = end_init(&o);
	uint64_t from;

	ways_clear();
	CHECK(!qp_rtr(a, &o) && !qp_rtr(b, &never) && !qp_rtr(c, &uc) &&
	      !qp_rtr(idle, &o));
	CHECK(!qp_rts(a, &o) && !qp_rts(b, &never) && !qp_rts(c, &uc) &&
	      !qp_rts(idle, &o));
	from = loop_now();
	for (uint64_t i = 0; i < 2; i++) {
		post(a, IBV_WR_SEND, i, 16);
		post(b, IBV_WR_SEND, i, 16);
		post(c, IBV_WR_SEND, i, 16);
	}
	CHECK(nothing(a) && nothing(b) && nothing(c));
	CHECK(completes(a, 0, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(a, 1, IBV_WC_WR_FLUSH_ERR));
	CHECK(loop_now() - from >= 19 * RC_TICK_MS * MSEC);
	CHECK_EQ(state_of(a), IBV_QPS_ERR);
	CHECK(completes(c, 0, IBV_WC_SUCCESS));
	CHECK(completes(c, 1, IBV_WC_SUCCESS));
	post(c, IBV_WR_SEND, 2, 16);
	CHECK(completes(c, 2, IBV_WC_SUCCESS)); /* does not wait again */
	post_bad(c, 3);
	CHECK(completes(c, 3, IBV_WC_LOC_PROT_ERR)); /* there is no peer in this */
	CHECK_EQ(state_of(c), IBV_QPS_SQE);
	CHECK(nothing(b));
	CHECK_EQ(state_of(b), IBV_QPS_RTS);
	CHECK_EQ(state_of(idle), IBV_QPS_RTS); /* nothing was posted */
	end_free(a);
	end_free(b);
	end_free(c);
	end_free(idle);
}

/* A QP in RTS with work that waits. */
static struct end *waiting(const struct end_opt *o)
{
	struct end *e = end_init(o);

	CHECK(!qp_rtr(e, o) && !qp_rts(e, o));
	post(e, IBV_WR_SEND, 1, 16);
	return e;
}

/* What every question hears from now on. */
static void peer_is(enum rc_peer peer)
{
	match_lock();
	fake_way[1].question.peer = peer;
	match_unlock();
}

static unsigned asks(void)
{
	unsigned n;

	match_lock();
	n = fake_way[1].asks;
	match_unlock();
	return n;
}

/* Time is the point: longer than a peer is waited for that is not there. Both sides ask. */
static void a_stopped_peer_is_waited_for(void)
{
	const struct end_opt o = { .by_number = true };
	uint64_t until = loop_now() + 3 * SEC;
	struct end *a, *b;

	ways_clear();
	peer_is(RC_PEER_SILENT);
	remote_is_larger(true);
	a = waiting(&o);
	remote_is_larger(false);
	b = waiting(&o);
	while (loop_now() < until)
		CHECK(nothing(a) && nothing(b));
	CHECK_EQ(asks(), 2);
	peer_is(RC_PEER_GONE);
	CHECK(completes(a, 1, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(b, 1, IBV_WC_RETRY_EXC_ERR));
	end_free(a);
	end_free(b);
	CHECK_EQ(fake_way[1].forgets, 2);
}

/* Whatever the timeout is. */
static void a_peer_without_its_qp_or_process(void)
{
	const struct end_opt never = { .by_number = true, .never = true };
	struct end *e;

	ways_clear();
	remote_is_larger(true);
	peer_is(RC_PEER_NOT_READY);
	e = waiting(&never);
	CHECK(T_WAIT(asks() == 1, 5000));
	CHECK(nothing(e));
	peer_is(RC_PEER_NO_QP);
	CHECK(completes(e, 1, IBV_WC_RETRY_EXC_ERR));
	end_free(e);
	peer_is(RC_PEER_GONE);
	e = waiting(&never);
	CHECK(completes(e, 1, IBV_WC_RETRY_EXC_ERR));
	end_free(e);
	CHECK_EQ(fake_way[1].forgets, 2);
}

/* Nobody asks for a stream that the CM brings, nor without work. */
static void who_does_not_ask(void)
{
	const struct end_opt cm = { .by_number = false }, o = { .by_number = true },
			     uc = { .by_number = true, .type = IBV_QPT_UC };
	struct end *a, *b, *c, *idle;

	ways_clear();
	remote_is_larger(true);
	match_expect(&remote_gid, REMOTE_QPN);
	a = waiting(&o);
	b = waiting(&cm);
	CHECK(completes(a, 1, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(b, 1, IBV_WC_RETRY_EXC_ERR));
	match_unexpect(&remote_gid, REMOTE_QPN);
	idle = end_init(&o);
	CHECK(!qp_rtr(idle, &o) && !qp_rts(idle, &o));
	c = waiting(&uc);
	CHECK(completes(c, 1, IBV_WC_SUCCESS));
	CHECK_EQ(asks(), 0);
	end_free(a);
	end_free(b);
	end_free(c);
	end_free(idle);
}

static void an_unreliable_peer_comes_late(void)
{
	const struct end_opt o = { .by_number = true, .type = IBV_QPT_UC };
	struct end *e = end_init(&o);
	const struct fake_frame *f;

	ways_clear();
	CHECK(!qp_rtr(e, &o) && !qp_rts(e, &o));
	post(e, IBV_WR_SEND, 1, 16);
	CHECK(completes(e, 1, IBV_WC_SUCCESS)); /* lost */
	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	CHECK(has(e->p, e));
	post(e, IBV_WR_SEND, 2, 33);
	f = hear(e, RC_SEND);
	CHECK(f && f->f.payload == 33 && f->f.msn == 1);
	CHECK(completes(e, 2, IBV_WC_SUCCESS));
	end_free(e);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(a_stream_waits_for_its_qp);
	T_RUN(a_qp_waits_for_its_stream);
	T_RUN(streams_of_others_are_not_taken);
	T_RUN(a_stream_that_was_released_is_not_taken);
	T_RUN(a_stream_is_for_one_wait);
	T_RUN(a_stream_for_a_wait_is_not_kept);
	T_RUN(a_qp_connected_to_itself);
	T_RUN(the_poll_group_is_full);
	T_RUN(the_poll_group_of_a_waiting_qp_is_full);
	T_RUN(a_stream_that_does_not_start);
	T_RUN(the_smaller_one_asks);
	T_RUN(every_way_listens);
	T_RUN(the_cm_is_waited_for);
	T_RUN(a_peer_has_asked_already);
	T_RUN(attempts_end_with_the_wait);
	T_RUN(ways_are_tried_in_a_circle);
	T_RUN(the_only_way_is_tried_again);
	T_RUN(no_memory_for_an_attempt);
	T_RUN(nobody_comes);
	T_RUN(a_stopped_peer_is_waited_for);
	T_RUN(a_peer_without_its_qp_or_process);
	T_RUN(who_does_not_ask);
	T_RUN(an_unreliable_peer_comes_late);
	T_RUN(nothing_is_left);
	return t_done();
}
