/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: a carrier whose peer is the test program. What a stream sends is kept as
 * frames until the test takes them (fake_hear()), what the test says (fake_say()) is received
 * at once, in the caller's thread. The loop thread is there for timers and upcalls alone. And
 * three rendezvous that note what they are asked.
 *
 * Include it, after tests/t.h, in one file of a test program: it defines transport_choose()
 * and rc_rendezvous. */
#ifndef ANYRDMA_RC_FAKE_CARRIER_H
#define ANYRDMA_RC_FAKE_CARRIER_H

#include "rc/build.h"
#include "rc/execute.h"
#include "rc/match.h"
#include "rc/requester.h"
#include "rc/responder.h"
#include "rc/rx.h"
#include "rc/tx.h"

enum {
	FAKE_FRAMES = 512,   /* sent and not heard; more is no room */
	FAKE_IN = 128,	     /* said and not received */
	FAKE_PAYLOAD = 4096, /* of one frame, unless the peer fetches it */
	FAKE_RUNS = 16,
	FAKE_PATIENCE_MS = 20000,
};
#define FAKE_ROOM UINT32_MAX /* no limit */

struct fake_frame {
	struct rc_frame f;
	enum rc_way way;
	uint8_t data[FAKE_PAYLOAD]; /* its payload; RC_BY_REFERENCE: none */
};

/* What rc_executor.run() was called with. */
struct fake_run {
	uint32_t off, len;
	bool locked; /* qp->lock was held */
	bool acked;  /* no acknowledgement was owed */
};

/* The test's end of a stream. It outlives the stream. Fields are guarded by the stream's
 * lock while there is one, unless they say otherwise. */
struct fake_peer {
	struct rc_carrier
		carrier; /* the stream's table: a test may change it before start */
	struct stream *s;

	/* sent; the ring has one producer, who holds the lock, and one consumer, the test */
	struct fake_frame out[FAKE_FRAMES];
	atomic_uint sent, heard;
	uint32_t room; /* frames that send() takes before the carrier is full */

	/* said, and not received yet */
	struct fake_frame in[FAKE_IN];
	unsigned in_head, in_tail;

	/* what the carrier answers */
	int start_ret, join_ret, watch_ret, run_ret;
	bool ended;	 /* the peer has ended: discard() */
	bool finish_now; /* finish() drops the reference at once, else in the loop thread */
	bool likely, fetches, no_room_for_ack;
	void (*while_running)(struct dev_qp *qp); /* in run(); or NULL */
	atomic_bool silent;
	atomic_bool consuming; /* the peer takes something whenever it is looked at */
	atomic_uint_least64_t consumed;

	/* what it was asked */
	unsigned shuts, resets, finishes, watches, joins, leaves, owned;
	unsigned refusals;
	enum nak_code refused_code;
	enum rc_reason refused_reason;
	struct fake_run run[FAKE_RUNS];
	unsigned runs;
	atomic_bool freed; /* fini() was called: nobody names the stream any more */

	/* Upcalls in their order, a letter each: d(elivered), r(eply), c(ontrol), x (closed),
	 * R(eleased). ups_lock. */
	pthread_mutex_t ups_lock;
	char ups[128];
	unsigned nups;
	int closed_err;
	uint8_t ctl_data[RC_CTL_DATA];
	size_t ctl_len;
};

struct fake_stream {
	struct stream s;
	struct fake_peer *peer;
	struct loop_work end_work;
};

static inline struct fake_peer *to_fake(struct stream *s)
{
	return container_of(s, struct fake_stream, s)->peer;
}

/* ---- sending ----------------------------------------------------------------------- */

struct fake_build {
	struct rc_build b;
	struct rc_cursor after; /* the last frame, if any */
};

static bool fake_full(struct rc_build *b, struct stream *s)
{
	struct fake_peer *p = to_fake(s);

	(void)b;
	return !p->room || atomic_load(&p->sent) - atomic_load(&p->heard) == FAKE_FRAMES;
}

static int fake_add(struct rc_build *b, struct stream *s, const struct rc_frame *f,
		    const struct rc_payload *payload, const struct rc_cursor *after)
{
	struct fake_build *fb = container_of(b, struct fake_build, b);
	struct fake_peer *p = to_fake(s);
	struct fake_frame *to = &p->out[atomic_load(&p->sent) % FAKE_FRAMES];
	int ret = 0;

	to->way = payload->by_reference ? RC_BY_REFERENCE : RC_BY_FRAME;
	if (f->payload && to->way == RC_BY_FRAME)
		ret = payload_copy(s->qp, payload, to->data, f->payload);
	if (ret)
		return ret;
	to->f = *f;
	fb->after = *after;
	b->nframes++;
	if (p->room != FAKE_ROOM)
		p->room--;
	atomic_fetch_add(&p->sent, 1);
	rc_frame_out(s, f, to->way);
	return 0;
}

/* One build; true if there may be more. */
NO_TSA static bool fake_send_once(struct stream *s, uint32_t *left)
{
	struct fake_build fb = { .b = { .add = fake_add, .full = fake_full } };
	struct dev_qp *qp = s->qp;
	bool failed;

	if (qp)
		lock_get(&qp->lock);
	do
		failed = req_local_locked(s);
	while (!failed && execute_next_locked(s, left));
	rc_build(s, &fb.b);
	if (fb.b.nframes)
		rc_cursor_store(s, &fb.after);
	if (qp && stream_unacked(s))
		req_carried_locked(s);
	s->tx.blocked = fake_full(&fb.b, s);
	if (qp)
		lock_put(&qp->lock);
	if (fb.b.fail && !s->tx.blocked)
		tx_build_failed(s, fb.b.fail);
	if (failed)
		req_hold_over(s);
	return (fb.b.nframes || fb.b.fail) && !s->tx.blocked;
}

static void fake_send(struct stream *s)
{
	uint32_t left = RC_EXECUTE_TURN;

	lock_assert_held(&s->lock);
	s->tx.more = s->tx.executing;
	s->tx.ack_only = s->tx.drain = false;
	while (fake_send_once(s, &left) && s->state != STREAM_BROKEN)
		;
	if (s->qp && (s->tx.requests || s->tx.off))
		req_sent(s);
	s->tx.requests = false;
	stream_execute_later(s);
	stream_want_output(s);
}

/* ---- receiving --------------------------------------------------------------------- */

static void fake_bring(struct stream *s, const struct fake_frame *f)
{
	static const uint8_t zeros[FAKE_PAYLOAD];
	uint32_t left = f->f.payload;

	lock_assert_held(&s->lock);
	if (left && left <= FAKE_PAYLOAD) {
		rx_copy(s, f->data, left);
		return;
	}
	for (; left; left -= left < FAKE_PAYLOAD ? left : FAKE_PAYLOAD)
		rx_copy(s, zeros, left < FAKE_PAYLOAD ? left : FAKE_PAYLOAD);
}

/* The first frame that was said, or the rest of it. */
static int fake_take(struct stream *s)
{
	struct fake_peer *p = to_fake(s);
	const struct fake_frame *f = &p->in[p->in_head % FAKE_IN];
	bool resumed = s->rx.wait != WAIT_NONE, ends = s->rx.wait == WAIT_END;
	int ret;

	lock_assert_held(&s->lock);
	if (!resumed)
		s->rx.h = f->f;
	ret = resumed ? rx_resume(s) : rx_frame_begin(s);
	if (!ret && !resumed && f->f.op == RC_WRITE && !f->f.payload && f->f.msn)
		ret = resp_placed(s, f->f.msn);
	if (!ret && !s->rx.wait && !ends) {
		fake_bring(s, f);
		ret = rx_frame_end(s, RC_BY_FRAME);
	}
	if (!s->rx.wait)
		p->in_head++;
	return ret;
}

static bool fake_receive(struct stream *s)
{
	struct fake_peer *p = to_fake(s);
	bool moved = false;

	lock_assert_held(&s->lock);
	while (p->in_head != p->in_tail &&
	       (s->state == STREAM_OPEN || s->state == STREAM_CLOSING)) {
		int ret = fake_take(s);

		if (ret)
			stream_broken(s, ret, "the test said so");
		if (s->rx.wait)
			break;
		moved = true;
	}
	return moved;
}

/* ---- life -------------------------------------------------------------------------- */

static int fake_start(struct stream *s)
{
	s->payload_max = FAKE_PAYLOAD;
	return to_fake(s)->start_ret;
}

static void fake_shut(struct stream *s)
{
	to_fake(s)->shuts++;
}

static int fake_discard(struct stream *s)
{
	to_fake(s)->in_head = to_fake(s)->in_tail;
	return to_fake(s)->ended ? 0 : -EAGAIN;
}

static void fake_reset(struct stream *s)
{
	to_fake(s)->resets++;
}

static void fake_end_run(struct loop_work *w)
{
	stream_put(&container_of(w, struct fake_stream, end_work)->s);
}

static void fake_finish(struct stream *s)
{
	struct fake_peer *p = to_fake(s);

	p->finishes++;
	if (p->finish_now)
		stream_put(s);
	else
		loop_post(&container_of(s, struct fake_stream, s)->end_work);
}

static void fake_fini(struct stream *s)
{
	atomic_store(&to_fake(s)->freed, true);
}

static void fake_own_payload(struct stream *s)
{
	to_fake(s)->owned++;
}

static void fake_refuse(struct stream *s, enum nak_code code)
{
	struct fake_peer *p = to_fake(s);

	p->refusals++;
	p->refused_code = code;
	p->refused_reason = s->rx.reason;
}

static int fake_watch(struct stream *s)
{
	to_fake(s)->watches++;
	return to_fake(s)->watch_ret;
}

/* Without the stream's lock: no test looks while these may run. */
static int fake_join(struct stream *s, struct dev_cq *cq)
{
	(void)cq;
	to_fake(s)->joins++;
	return to_fake(s)->join_ret;
}

static void fake_leave(struct stream *s)
{
	to_fake(s)->leaves++;
}

static bool fake_silent(struct stream *s, uint64_t budget)
{
	(void)budget;
	return atomic_load(&to_fake(s)->silent);
}

static uint64_t fake_consumed(struct stream *s)
{
	struct fake_peer *p = to_fake(s);

	if (atomic_load(&p->consuming))
		atomic_fetch_add(&p->consumed, 1);
	return atomic_load(&p->consumed);
}

static bool fake_fetches(struct stream *s, const struct wqe *w)
{
	(void)w;
	return to_fake(s)->fetches;
}

static bool fake_likely(struct stream *s, const struct wqe *w)
{
	(void)w;
	return to_fake(s)->likely;
}

NO_TSA static int fake_run(struct stream *s, const struct wqe *w, uint32_t off,
			   uint32_t len)
{
	struct fake_peer *p = to_fake(s);
	struct fake_run *r = &p->run[p->runs++ % FAKE_RUNS];

	(void)w;
	*r = (struct fake_run){ off, len, !lock_try(&s->qp->lock), !s->rx.ack_owed };
	if (!r->locked)
		lock_put(&s->qp->lock);
	if (p->while_running)
		p->while_running(s->qp);
	return p->run_ret;
}

static bool fake_send_ack(struct stream *s)
{
	if (to_fake(s)->no_room_for_ack)
		return false;
	lock_assert_held(&s->lock);
	resp_acked(s);
	return true;
}

static const struct rc_executor fake_executor = { .likely = fake_likely,
						  .run = fake_run };

static const struct rc_carrier fake_carrier = {
	.name = "fake",
	.start = fake_start,
	.shut = fake_shut,
	.discard = fake_discard,
	.reset = fake_reset,
	.finish = fake_finish,
	.fini = fake_fini,
	.send = fake_send,
	.receive = fake_receive,
	.own_payload = fake_own_payload,
	.send_ack = fake_send_ack,
	.refuse = fake_refuse,
	.watch = fake_watch,
	.join = fake_join,
	.leave = fake_leave,
	.silent = fake_silent,
	.consumed = fake_consumed,
	.patience = UC_TICKS,
};

/* ---- the user ---------------------------------------------------------------------- */

static void fake_up(struct fake_peer *p, char what)
{
	pthread_mutex_lock(&p->ups_lock);
	if (p->nups < sizeof(p->ups) - 1)
		p->ups[p->nups++] = what;
	pthread_mutex_unlock(&p->ups_lock);
}

static void fake_delivered(void *user)
{
	fake_up(user, 'd');
}

static void fake_keep(struct fake_peer *p, const uint8_t *data, size_t len)
{
	pthread_mutex_lock(&p->ups_lock);
	p->ctl_len = len;
	if (len)
		memcpy(p->ctl_data, data, len);
	pthread_mutex_unlock(&p->ups_lock);
}

static void fake_reply(void *user, const uint8_t *data, size_t len)
{
	fake_keep(user, data, len);
	fake_up(user, 'r');
}

static void fake_control(void *user, enum stream_ctl type, const uint8_t *data,
			 size_t len)
{
	(void)type;
	fake_keep(user, data, len);
	fake_up(user, 'c');
}

static void fake_closed(void *user, int err)
{
	struct fake_peer *p = user;

	pthread_mutex_lock(&p->ups_lock);
	p->closed_err = err;
	pthread_mutex_unlock(&p->ups_lock);
	fake_up(p, 'x');
}

static void fake_released(void *user)
{
	fake_up(user, 'R');
}

static const struct stream_user fake_user = {
	.delivered = fake_delivered,
	.reply = fake_reply,
	.control = fake_control,
	.closed = fake_closed,
	.released = fake_released,
};

/* The upcalls so far are these. */
static T_UNUSED bool fake_told(struct fake_peer *p, const char *ups)
{
	bool same;

	pthread_mutex_lock(&p->ups_lock);
	same = !strcmp(p->ups, ups);
	pthread_mutex_unlock(&p->ups_lock);
	return same;
}

/* ... and will be. */
static T_UNUSED bool fake_tells(struct fake_peer *p, const char *ups)
{
	bool same = T_WAIT(fake_told(p, ups), FAKE_PATIENCE_MS);

	if (!same)
		diag("upcalls: \"%s\", not \"%s\"", p->ups, ups);
	return same;
}

/* ---- for tests --------------------------------------------------------------------- */

/* A stream with a user, if user, that is not started yet. */
static T_UNUSED struct fake_peer *fake_new(const struct stream_param *param, bool user)
{
	struct fake_peer *p = calloc(1, sizeof(*p));
	struct fake_stream *f = calloc(1, sizeof(*f));

	if (!p || !f)
		abort();
	pthread_mutex_init(&p->ups_lock, NULL);
	p->carrier = fake_carrier;
	p->room = FAKE_ROOM;
	p->s = &f->s;
	f->peer = p;
	f->end_work.run = fake_end_run;
	stream_init(&f->s, &p->carrier, param);
	if (user)
		stream_adopt(&f->s, &fake_user, p);
	return p;
}

/* Its stream has ended, or does now. */
static T_UNUSED void fake_free(struct fake_peer *p)
{
	if (!CHECK(T_WAIT(atomic_load(&p->freed), FAKE_PATIENCE_MS)))
		return; /* it may still be used */
	pthread_mutex_destroy(&p->ups_lock);
	free(p);
}

/* The next frame that was sent, or NULL: none was within ms. */
static T_UNUSED const struct fake_frame *fake_hear(struct fake_peer *p, unsigned ms)
{
	unsigned at = atomic_load(&p->heard);
	const struct fake_frame *f = &p->out[at % FAKE_FRAMES];

	if (!T_WAIT(atomic_load(&p->sent) != at, ms))
		return NULL;
	atomic_store(&p->heard, at + 1);
	return f;
}

/* Nothing was sent that was not heard. */
static T_UNUSED bool fake_quiet(struct fake_peer *p)
{
	return atomic_load(&p->sent) == atomic_load(&p->heard);
}

/* A pass of a poller, or of the thread. The stream may end in it. */
static T_UNUSED void fake_pass(struct fake_peer *p, bool by_thread)
{
	struct stream *s = p->s;

	stream_get(s);
	stream_lock(s);
	stream_progress(s, by_thread);
	stream_unlock(s);
	stream_put(s);
}

/* Says a frame. data: f->payload bytes, at most FAKE_PAYLOAD; NULL: zeros, of any length.
 * It is received with the next pass. */
static T_UNUSED void fake_queue(struct fake_peer *p, const struct rc_frame *f,
				const void *data)
{
	struct stream *s = p->s;
	struct fake_frame *to;

	stream_lock(s);
	to = &p->in[p->in_tail % FAKE_IN];
	to->f = *f;
	if (data)
		memcpy(to->data, data, f->payload);
	else
		memset(to->data, 0, sizeof(to->data));
	p->in_tail++;
	stream_unlock(s);
}

static T_UNUSED void fake_say(struct fake_peer *p, const struct rc_frame *f,
			      const void *data)
{
	fake_queue(p, f, data);
	fake_pass(p, false);
}

static T_UNUSED void fake_say_ctl(struct fake_peer *p, enum ctl_type type, uint8_t code,
				  uint32_t number)
{
	struct rc_frame f = { .op = RC_CTL, .last = true };

	f.ctl.type = type;
	f.ctl.code = code;
	f.ctl.number = number;
	f.ctl.msn0 = f.ctl.msn1 = 1;
	fake_say(p, &f, NULL);
}

/* The carrier has room for so many frames from now on. */
static T_UNUSED void fake_room(struct fake_peer *p, uint32_t n)
{
	struct stream *s = p->s;

	stream_lock(s);
	p->room = n;
	tx_run(s);
	stream_unlock(s);
}

/* ---- rendezvous -------------------------------------------------------------------- */

enum { FAKE_WAYS = 3 };

/* match.lock, but for accept(). */
struct fake_way {
	bool reaches, no_memory;
	unsigned listens, connects, pauses, cancels, accepts;
	struct rc_attempt *attempt; /* the last one, while there is one */
	uint64_t serial;	    /* it was made for this wait */
	bool arrived;		    /* a peer that looks for the QP is there */
	struct rc_arrival arrival;
	int (*accept)(struct fake_way *w);
	unsigned asks, forgets;
	struct rc_question question; /* .peer: what every question hears */
};
static struct fake_way fake_way[FAKE_WAYS];
extern const struct rc_rendezvous *const rc_rendezvous[];

static unsigned fake_way_of(const struct rc_rendezvous *via)
{
	unsigned i = 0;

	while (rc_rendezvous[i] != via)
		i++;
	return i;
}

static int fake_way_listen(struct fake_way *w)
{
	w->listens++;
	return 0;
}

static struct rc_attempt *fake_way_connect(unsigned i, uint64_t serial, bool pause)
{
	struct fake_way *w = &fake_way[i];

	w->connects++;
	w->pauses += pause;
	w->serial = serial;
	w->attempt = w->no_memory ? NULL : malloc(sizeof(*w->attempt));
	if (w->attempt)
		w->attempt->via = rc_rendezvous[i];
	return w->attempt;
}

static void fake_cancel(struct rc_attempt *a)
{
	struct fake_way *w = &fake_way[fake_way_of(a->via)];

	w->cancels++;
	if (w->attempt == a)
		w->attempt = NULL;
	free(a);
}

static struct rc_arrival *fake_way_find(unsigned i)
{
	struct fake_way *w = &fake_way[i];

	w->arrival.via = rc_rendezvous[i];
	return w->arrived ? &w->arrival : NULL;
}

static int fake_accept(struct rc_arrival *in)
{
	struct fake_way *w = container_of(in, struct fake_way, arrival);

	w->accepts++;
	return w->accept(w);
}

static struct rc_question *fake_ask(struct dev_qp *qp, const struct stream_key *key)
{
	(void)qp, (void)key;
	fake_way[1].asks++;
	fake_way[1].question.via = rc_rendezvous[1];
	return &fake_way[1].question;
}

static void fake_forget(struct rc_question *q)
{
	container_of(q, struct fake_way, question)->forgets++;
}

/* The second one alone can ask. */
#define FAKE_WAY(i) \
	static int fake_listen##i(struct dev_qp *qp) \
	{ \
		(void)qp; \
		return fake_way_listen(&fake_way[i]); \
	} \
	static bool fake_reaches##i(const struct dev_qp *qp, \
				    const struct stream_key *key) \
	{ \
		(void)qp, (void)key; \
		return fake_way[i].reaches; \
	} \
	static struct rc_attempt *fake_connect##i(struct dev_qp *qp, \
						  const struct stream_key *key, \
						  uint64_t serial, bool pause) \
	{ \
		(void)qp, (void)key; \
		return fake_way_connect(i, serial, pause); \
	} \
	static struct rc_arrival *fake_find##i(const struct dev_qp *qp, \
					       const struct stream_key *key) \
	{ \
		(void)qp, (void)key; \
		return fake_way_find(i); \
	} \
	static const struct rc_rendezvous fake_rendezvous##i = { \
		.name = "way " #i, \
		.listen = fake_listen##i, \
		.reaches = fake_reaches##i, \
		.connect = fake_connect##i, \
		.cancel = fake_cancel, \
		.find = fake_find##i, \
		.accept = fake_accept, \
		.ask = (i) == 1 ? fake_ask : NULL, \
		.forget = (i) == 1 ? fake_forget : NULL, \
	}

FAKE_WAY(0);
FAKE_WAY(1);
FAKE_WAY(2);

const struct rc_rendezvous *const rc_rendezvous[] = { &fake_rendezvous0,
						      &fake_rendezvous1,
						      &fake_rendezvous2, NULL };

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	return qp_type_is_connected(type) ? &rc_transport : NULL;
}

#endif
