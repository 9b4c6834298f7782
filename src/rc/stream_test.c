/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of a stream: who holds it, what its user hears and when, how it closes. */
#include "rc/end_test.h"

#include <semaphore.h>

/* A stream that no QP waits for. */
static struct fake_peer *alone(bool extended)
{
	const struct stream_param param = { .local_qpn = 0x111,
					    .remote_qpn = 0x222,
					    .extended = extended };
	struct fake_peer *p = fake_new(&param, true);

	CHECK_EQ(stream_start(p->s), 0);
	return p;
}

static enum stream_state state(struct fake_peer *p)
{
	struct stream *s = p->s;
	enum stream_state st;

	stream_lock(s);
	st = s->state;
	stream_unlock(s);
	return st;
}

static void say_user(struct fake_peer *p, const char *text)
{
	struct rc_frame f = { .op = RC_CTL, .last = true };

	f.ctl.type = CTL_USER;
	f.ctl.code = STREAM_CTL_DREQ;
	f.ctl.len = (uint8_t)strlen(text);
	memcpy(f.ctl.data, text, f.ctl.len);
	fake_say(p, &f, NULL);
}

static void peer_closes(struct fake_peer *p, int err)
{
	struct stream *s = p->s;

	stream_get(s);
	stream_lock(s);
	p->ended = true;
	stream_peer_closed(s, err);
	stream_unlock(s);
	stream_put(s);
}

static bool ended(struct fake_peer *p)
{
	return T_WAIT(atomic_load(&p->freed), FAKE_PATIENCE_MS);
}

/* ---- the loop thread stands still -------------------------------------------------- */

static sem_t gate_in, gate_out;

static void gate_run(struct loop_work *w)
{
	(void)w;
	sem_post(&gate_in);
	sem_wait(&gate_out);
}

static struct loop_work gate_work = { .run = gate_run };

static void gate_close(void)
{
	loop_post(&gate_work);
	sem_wait(&gate_in);
}

static void gate_open(void)
{
	sem_post(&gate_out);
}

/* ---- holders ----------------------------------------------------------------------- */

static void the_user_alone(void)
{
	struct fake_peer *p = alone(true);
	struct stream *s = p->s;

	CHECK_EQ(state(p), STREAM_OPEN);
	stream_get(s);
	stream_release(s);
	CHECK_EQ(state(p), STREAM_CLOSING);
	CHECK_EQ(p->shuts, 1);
	CHECK_EQ(p->finishes, 0);
	fake_pass(p, true);
	CHECK_EQ(state(p), STREAM_CLOSING); /* the peer has not ended */
	p->ended = true;
	fake_pass(p, true);
	CHECK_EQ(state(p), STREAM_CLOSED);
	CHECK_EQ(p->finishes, 1);
	CHECK(!atomic_load(&p->freed));
	CHECK(fake_tells(p, "R"));
	stream_put(s);
	CHECK(ended(p));
	CHECK_EQ(p->resets, 0);
	fake_free(p);
}

static void the_user_goes_first(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct stream *s = e->p->s;

	stream_get(s);
	stream_release(s);
	CHECK(fake_tells(e->p, "R"));
	CHECK_EQ(state(e->p), STREAM_OPEN);
	post(e, IBV_WR_SEND, 1, 16);
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN));
	CHECK(hear(e, RC_SEND));
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	CHECK_EQ(state(e->p), STREAM_CLOSING);
	CHECK(e->p->joins == 1 && e->p->leaves == 1);
	stream_put(s);
	end_free(e);
}

static void the_qp_goes_first(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	CHECK_EQ(state(e->p), STREAM_OPEN);
	CHECK_EQ(stream_control(e->p->s, STREAM_CTL_DREQ, NULL, 0), 0);
	CHECK(hear_ctl(e, CTL_USER, 0));
	say_user(e->p, "yes");
	CHECK(fake_tells(e->p, "c"));
	end_free(e);
}

/* Nobody has it from the start: a rendezvous whose QP has gone. */
static void nobody_has_it(void)
{
	const struct stream_param param = { .extended = true };
	struct fake_peer *p = fake_new(&param, false);

	p->s->serial = 12345;
	p->ended = true;
	stream_get(p->s);
	CHECK_EQ(stream_start(p->s), 0);
	CHECK_EQ(state(p), STREAM_CLOSING);
	fake_pass(p, true);
	CHECK_EQ(state(p), STREAM_CLOSED);
	stream_put(p->s);
	fake_free(p);
}

/* rc_carrier.finish may drop the carrier's reference at once: whoever closes a stream has
 * one of his own. */
static void finish_drops_the_reference_at_once(void)
{
	struct end *e = end_new((struct end_opt){ .no_user = true });
	struct fake_peer *p = alone(true);

	p->finish_now = p->ended = true;
	stream_release(p->s);
	CHECK(fake_tells(p, "R"));
	fake_pass(p, true);
	CHECK(ended(p));
	fake_free(p);

	p = alone(true); /* its peer has closed: it ends with stream_release() */
	p->finish_now = true;
	peer_closes(p, 0);
	CHECK(fake_tells(p, "x"));
	stream_release(p->s);
	CHECK(ended(p));
	CHECK(fake_told(p, "xR"));
	fake_free(p);

	e->p->finish_now = true; /* ... or with its QP */
	peer_closes(e->p, 0);
	CHECK_EQ(ibv_destroy_qp(e->qp), 0);
	e->qp = NULL;
	CHECK(ended(e->p));
	end_free(e);
}

/* ---- the end ----------------------------------------------------------------------- */

static void the_peer_closes(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 1, 16);
	post(e, IBV_WR_SEND, 2, 16);
	peer_closes(e->p, -ECONNRESET);
	CHECK(fake_tells(e->p, "x"));
	CHECK_EQ(e->p->closed_err, -ECONNRESET);
	CHECK_EQ(state(e->p), STREAM_BROKEN);
	CHECK(completes(e, 1, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(e, 2, IBV_WC_WR_FLUSH_ERR));
	CHECK_EQ(e->p->finishes, 0); /* it has its holders */
	CHECK_EQ(stream_control(e->p->s, STREAM_CTL_DREQ, NULL, 0), -EPIPE);
	peer_closes(e->p, 0);
	say_user(e->p, "not heard");
	stream_release(e->p->s);
	CHECK_EQ(e->p->finishes, 0);
	CHECK(fake_tells(e->p, "xR"));
	end_free(e);
}

/* Nobody who has nothing to send hears of it by a completion. */
static void the_peer_closes_an_idle_connection(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post_recv(e, 1, 16);
	peer_closes(e->p, 0);
	CHECK(fake_tells(e->p, "x"));
	CHECK_EQ(e->p->closed_err, 0);
	CHECK(nothing(e));
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	post(e, IBV_WR_SEND, 2, 16);
	CHECK(completes(e, 2, IBV_WC_RETRY_EXC_ERR));
	CHECK(completes(e, 1, IBV_WC_WR_FLUSH_ERR));
	end_free(e);
}

static void what_was_queued_leaves_first(void)
{
	struct fake_peer *p = alone(true);
	struct stream *s = p->s;

	stream_get(s);
	fake_room(p, 0);
	CHECK_EQ(stream_control(s, STREAM_CTL_DREQ, (const uint8_t *)"bye", 3), 0);
	stream_release(s);
	CHECK_EQ(state(p), STREAM_CLOSING);
	CHECK_EQ(p->shuts, 0);
	CHECK(fake_quiet(p));
	fake_room(p, FAKE_ROOM);
	fake_pass(p, true);
	CHECK_EQ(p->shuts, 1);
	CHECK(!fake_quiet(p));
	stream_put(s);
	peer_end(p);
}

/* Time is the point: a second after both holders have gone. */
static void a_peer_that_does_not_close(void)
{
	struct fake_peer *p = alone(true), *deaf = alone(true);
	uint64_t from = loop_now();

	fake_room(deaf, 0); /* not even our last words can be said */
	CHECK_EQ(stream_control(deaf->s, STREAM_CTL_DREQ, NULL, 0), 0);
	stream_release(p->s);
	stream_release(deaf->s);
	CHECK(ended(p));
	CHECK(loop_now() - from >= SEC);
	CHECK(ended(deaf));
	CHECK(p->shuts == 1 && deaf->shuts == 0);
	CHECK(fake_told(p, "R"));
	fake_free(p);
	fake_free(deaf);
}

static void the_peer_breaks_while_it_closes(void)
{
	struct fake_peer *p = alone(true);

	fake_room(p, 0);
	CHECK_EQ(stream_control(p->s, STREAM_CTL_DREQ, NULL, 0), 0);
	stream_release(p->s);
	peer_closes(p, -ECONNRESET);
	CHECK(ended(p));
	CHECK_EQ(p->shuts, 0);
	fake_free(p);
}

static void aborted(void)
{
	struct end *e = end_new((struct end_opt){ 0 });

	post(e, IBV_WR_SEND, 1, 16);
	stream_abort(e->p->s);
	CHECK_EQ(e->p->resets, 1);
	CHECK_EQ(state(e->p), STREAM_BROKEN);
	CHECK(completes(e, 1, IBV_WC_RETRY_EXC_ERR));
	CHECK(T_WAIT(fake_told(e->p, "R") || fake_told(e->p, "xR"), FAKE_PATIENCE_MS));
	end_free(e);
}

/* ---- upcalls ----------------------------------------------------------------------- */

static void upcalls_in_order(void)
{
	struct fake_peer *p = alone(true);
	char want[RC_CTL_DATA + 1];

	gate_close();
	CHECK(!stream_has_news(p->s));
	say_user(p, "first");
	say_user(p, "second");
	CHECK(stream_has_news(p->s));
	peer_closes(p, 0);
	CHECK(fake_told(p, ""));
	gate_open();
	CHECK(fake_tells(p, "ccx"));
	memcpy(want, p->ctl_data, p->ctl_len);
	want[p->ctl_len] = 0;
	CHECK_STR(want, "second");
	CHECK(!stream_has_news(p->s));
	peer_end(p);
}

static void nothing_is_told_after_a_release(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct fake_peer *p = e->p;

	gate_close();
	say_user(p, "queued");
	stream_release(p->s);
	say_user(p, "late");
	peer_closes(p, -EPIPE);
	gate_open();
	CHECK(fake_tells(p, "R"));
	gate_close(); /* what was posted before has run */
	gate_open();
	CHECK(fake_told(p, "R"));
	end_free(e);
}

/* stream_connect(): the request is there, then the reply, then what follows. */
static void the_answer_comes_first(void)
{
	struct fake_peer *p = alone(true);
	struct stream *s = p->s;
	struct stream_reply *reply = malloc(sizeof(*reply) + 3);

	REQUIRE(reply);
	reply->len = 3;
	memcpy(reply->data, "yes", 3);
	gate_close();
	say_user(p, "control");
	stream_lock(s);
	s->reply = reply;
	s->up_delivered = true;
	stream_up_post(s);
	stream_unlock(s);
	CHECK(stream_has_news(s));
	gate_open();
	CHECK(fake_tells(p, "drc"));
	peer_end(p);
}

/* The user of a connection that is being made does not wait any more. */
static void released_before_it_is_open(void)
{
	const struct stream_param param = { .extended = true };
	struct fake_peer *p = fake_new(&param, true);
	struct stream *s = p->s;

	s->connecting = true;
	s->reply = calloc(1, sizeof(*s->reply));
	s->up_delivered = true;
	stream_release(s);
	CHECK_EQ(p->resets, 1);
	CHECK(ended(p));
	CHECK(fake_told(p, "R"));
	fake_free(p);
}

/* ---- control messages -------------------------------------------------------------- */

static void control_messages(void)
{
	struct fake_peer *p = alone(true), *plain = alone(false);
	uint8_t data[RC_CTL_DATA + 1];
	const struct fake_frame *f;

	memset(data, 0x5a, sizeof(data));
	CHECK_EQ(stream_control(p->s, STREAM_CTL_REJ, data, RC_CTL_DATA + 1), -EINVAL);
	CHECK_EQ(stream_control(plain->s, STREAM_CTL_RTU, NULL, 0), -EINVAL);
	CHECK(fake_quiet(p) && fake_quiet(plain));
	CHECK_EQ(stream_control(p->s, STREAM_CTL_REJ, data, RC_CTL_DATA), 0);
	f = fake_hear(p, 0);
	REQUIRE(f);
	CHECK(f->f.op == RC_CTL && f->f.last && f->f.ctl.type == CTL_USER);
	CHECK(f->f.ctl.code == STREAM_CTL_REJ && f->f.ctl.len == RC_CTL_DATA);
	CHECK(!memcmp(f->f.ctl.data, data, RC_CTL_DATA));
	peer_end(p);
	peer_end(plain);
}

/* A peer that asks and asks, and reads no answer. */
static void control_messages_to_be_sent_are_bounded(void)
{
	struct fake_peer *p = alone(true);

	fake_room(p, 0);
	for (int i = 0; i < RC_CTL_MAX; i++)
		CHECK_EQ(stream_control(p->s, STREAM_CTL_DREP, NULL, 0), 0);
	CHECK_EQ(state(p), STREAM_OPEN);
	CHECK_EQ(stream_control(p->s, STREAM_CTL_DREP, NULL, 0), -EPIPE);
	CHECK_EQ(state(p), STREAM_BROKEN);
	CHECK(fake_tells(p, "x"));
	CHECK_EQ(p->closed_err, -EPROTO);
	peer_end(p);
}

/* A peer that says more than its user can hear. */
static void control_messages_for_the_user_are_bounded(void)
{
	struct fake_peer *p = alone(true);

	gate_close();
	for (int i = 0; i < RC_UP_MAX; i++)
		say_user(p, "");
	CHECK_EQ(state(p), STREAM_OPEN);
	say_user(p, "");
	CHECK_EQ(state(p), STREAM_BROKEN);
	gate_open();
	CHECK(fake_tells(p, "ccccccccccccccccccccccccccccccccx"));
	CHECK_EQ(p->closed_err, -EPROTO);
	peer_end(p);
}

static void nonsense_breaks_the_stream(void)
{
	static const struct rc_frame row[] = {
		{ .op = RC_CTL, .last = true, .ctl = { .type = 77 } },
		{ .op = RC_TERMINATE, .last = true },
	};

	for (unsigned i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct fake_peer *p = alone(true);

		fake_say(p, &row[i], NULL);
		CHECK_EQ(state(p), STREAM_BROKEN);
		CHECK(fake_tells(p, "x"));
		peer_end(p);
	}
}

/* ---- who holds the lock ------------------------------------------------------------ */

static void *posts(void *arg)
{
	post(arg, IBV_WR_SEND, 1, 16);
	return NULL;
}

/* A poster does not wait for who has the stream, who sends for it. */
static void work_posted_while_another_has_the_stream(void)
{
	struct end *e = end_new((struct end_opt){ 0 });
	struct stream *s = e->p->s;
	pthread_t th;

	stream_lock(s);
	CHECK(!pthread_create(&th, NULL, posts, e));
	pthread_join(th, NULL); /* it has returned */
	CHECK(quiet(e));
	stream_unlock(s);
	CHECK(hear_ctl(e, CTL_RESYNC, SQ_PSN));
	CHECK(hear(e, RC_SEND));
	end_free(e);
}

/* ---- plain streams ----------------------------------------------------------------- */

static struct end *plain_without_qp(void)
{
	const struct end_opt o = { .plain = true };
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	qp_init(e, &o);
	e->p = peer_new(e, &o);
	CHECK_EQ(stream_start(e->p->s), 0);
	return e;
}

static void plain_ready(struct end *e)
{
	const struct end_opt o = { .plain = true };

	CHECK_EQ(qp_rtr(e, &o), 0);
	CHECK_EQ(qp_rts(e, &o), 0);
}

static const struct rc_frame first_send = { .op = RC_SEND,
					    .last = true,
					    .msn = 1,
					    .payload = 20 };

static void plain_input_waits_for_the_qp(void)
{
	struct end *e = plain_without_qp();

	CHECK(e->p->s->input_held);
	fake_say(e->p, &first_send, NULL);
	CHECK_EQ(e->p->in_head, 0); /* it stays in the carrier */
	post_recv(e, 1, 100);
	plain_ready(e);
	CHECK(!e->p->s->input_held);
	fake_pass(e->p, true);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	CHECK(quiet(e)); /* nobody acknowledges */
	end_free(e);
}

/* The peer has said all and closed, before our QP is there. */
static void plain_end_behind_held_input(void)
{
	struct end *e = plain_without_qp();
	struct stream *s = e->p->s;
	unsigned watches;

	fake_queue(e->p, &first_send, NULL);
	stream_lock(s);
	watches = e->p->watches;
	stream_ended_early(s, true, 0);
	CHECK(e->p->watches > watches); /* the end is not to be told again and again */
	CHECK(s->peer_ended && s->state == STREAM_OPEN);
	stream_unlock(s);
	CHECK(fake_tells(e->p, "x"));
	post_recv(e, 1, 100);
	plain_ready(e);
	fake_pass(e->p, true);
	CHECK(completes(e, 1, IBV_WC_SUCCESS));
	peer_closes(e->p, 0); /* now the carrier has come to it */
	gate_close();
	gate_open();
	CHECK(fake_told(e->p, "x")); /* once */
	end_free(e);
}

static void plain_end_without_a_word(void)
{
	struct end *e = plain_without_qp();
	struct stream *s = e->p->s;

	stream_lock(s);
	stream_ended_early(s, false, -ECONNRESET);
	CHECK_EQ(s->state, STREAM_BROKEN);
	stream_unlock(s);
	CHECK(fake_tells(e->p, "x"));
	CHECK_EQ(e->p->closed_err, -ECONNRESET);
	end_free(e);
}

/* What nobody has claimed is discarded with the user. */
static void plain_ends_with_its_user(void)
{
	struct end *e = plain_without_qp();
	struct stream *s = e->p->s;

	fake_queue(e->p, &first_send, NULL);
	stream_get(s);
	stream_release(s);
	CHECK(!s->input_held);
	CHECK_EQ(e->p->shuts, 1);
	fake_pass(e->p, true);
	CHECK_EQ(e->p->in_head, 1);
	stream_put(s);
	end_free(e);
}

/* A QP in ERR has no connection in iWARP. Time is the point: the peer has a second. */
static void plain_ends_with_its_qp(void)
{
	struct end *e = plain_without_qp();
	uint64_t from;

	plain_ready(e);
	from = loop_now();
	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	CHECK_EQ(e->p->shuts, 1);
	CHECK_EQ(state(e->p), STREAM_OPEN);
	CHECK(fake_tells(e->p, "x"));
	CHECK(loop_now() - from >= SEC);
	CHECK_EQ(state(e->p), STREAM_BROKEN);
	CHECK_EQ(e->p->resets, 1);
	end_free(e);
}

static void plain_peer_ends_in_time(void)
{
	struct end *e = plain_without_qp();

	plain_ready(e);
	CHECK_EQ(qp_to(e, IBV_QPS_ERR), 0);
	e->p->ended = true;
	fake_pass(e->p, true);
	CHECK(fake_tells(e->p, "x"));
	CHECK_EQ(e->p->closed_err, 0);
	CHECK_EQ(e->p->resets, 0);
	end_free(e);
}

static void run_plain(void)
{
	T_RUN(plain_input_waits_for_the_qp);
	T_RUN(plain_end_behind_held_input);
	T_RUN(plain_end_without_a_word);
	T_RUN(plain_ends_with_its_user);
	T_RUN(plain_ends_with_its_qp);
	T_RUN(plain_peer_ends_in_time);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	sem_init(&gate_in, 0, 0);
	sem_init(&gate_out, 0, 0);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(the_user_alone);
	T_RUN(the_user_goes_first);
	T_RUN(the_qp_goes_first);
	T_RUN(nobody_has_it);
	T_RUN(finish_drops_the_reference_at_once);
	T_RUN(the_peer_closes);
	T_RUN(the_peer_closes_an_idle_connection);
	T_RUN(what_was_queued_leaves_first);
	T_RUN(a_peer_that_does_not_close);
	T_RUN(the_peer_breaks_while_it_closes);
	T_RUN(aborted);
	T_RUN(upcalls_in_order);
	T_RUN(nothing_is_told_after_a_release);
	T_RUN(the_answer_comes_first);
	T_RUN(released_before_it_is_open);
	T_RUN(control_messages);
	T_RUN(control_messages_to_be_sent_are_bounded);
	T_RUN(control_messages_for_the_user_are_bounded);
	T_RUN(nonsense_breaks_the_stream);
	T_RUN(work_posted_while_another_has_the_stream);
	run_plain();
	T_RUN(nothing_is_left);
	return t_done();
}
