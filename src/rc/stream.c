/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of a stream.
 *
 * Design notes. References: one is the carrier's (dropped after rc_carrier.finish),
 * one belongs to a pending timer, one to queued upcalls. The two holders, user and QP, need
 * none: the carrier keeps its own until both have let go.
 *
 * Upcalls are queued and run in the loop thread without locks, so the CM may
 * call us under its own.
 *
 * Whoever wants to send while another thread holds the lock leaves a mark
 * (`want`) that the holder looks at after unlocking: a poster never waits for a
 * receiver. */
#include "rc/stream.h"

#include "base/log.h"
#include "dev/share.h"
#include "rc/execute.h"
#include "rc/match.h"
#include "rc/requester.h"
#include "rc/responder.h"
#include "rc/tx.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACK_IDLE_PASSES = 16, BLOCKED_POLLS = 8 };
#define LET_IN MSEC /* a thread has woken up and got the lock by then */

static const char *const state_str[] = {
	[STREAM_OPEN] = "open",
	[STREAM_BROKEN] = "broken",
	[STREAM_CLOSING] = "closing",
	[STREAM_CLOSED] = "closed",
};

/* Row: from; bits: to. */
static const unsigned state_next[] = {
	[STREAM_OPEN] = 1u << STREAM_BROKEN | 1u << STREAM_CLOSING,
	[STREAM_BROKEN] = 1u << STREAM_CLOSED,
	[STREAM_CLOSING] = 1u << STREAM_CLOSED | 1u << STREAM_BROKEN,
	[STREAM_CLOSED] = 0,
};

void stream_set_state(struct stream *s, enum stream_state to)
{
	lock_assert_held(&s->lock);
	if (!(state_next[s->state] & 1u << to))
		log_error("stream %u: %s -> %s is not a way to go", s->id, state_str[s->state],
			  state_str[to]);
	log_debug("stream %u: %s -> %s", s->id, state_str[s->state], state_str[to]);
	s->state = to;
}

void stream_get(struct stream *s)
{
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void stream_put(struct stream *s)
{
	struct list *n;

	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (s->carrier->fini)
		s->carrier->fini(s);
	traffic_end(&s->traffic);
	tx_fini(s);
	free(s->rx.resp);
	free(s->reply);
	while ((n = list_pop(&s->up)))
		free(list_entry(n, struct ctl_msg, link));
	lock_fini(&s->lock);
	free(s);
}

void stream_lock(struct stream *s)
{
	if (lock_try(&s->lock))
		return;
	atomic_fetch_add(&s->waiting, 1);
	lock_get(&s->lock);
	atomic_fetch_sub(&s->waiting, 1);
}

/* A fence on each side orders `want` against the lock word: either the holder sees the
 * mark after unlocking, or the one who set it gets the lock. */
NO_TSA void stream_unlock(struct stream *s)
{
	while (stream_put_lock(s) && lock_try(&s->lock)) {
		atomic_store(&s->want, 0);
		tx_run(s);
	}
}

/* A turn of much work is over and another will begin. A mutex that is free for so
 * short a time is never had by who sleeps on it. */
static void let_in(const struct stream *s)
{
	uint64_t until;

	if (!atomic_load(&s->waiting))
		return;
	until = loop_now() + LET_IN;
	while (atomic_load(&s->waiting) && loop_now() < until)
		sched_yield();
}

/* Sends, and carries out requests of up to *left bytes in all, meanwhile without the
 * lock. What is more is left to a job. */
static void run_executing(struct stream *s, uint32_t *left)
{
	enum { IN_VAIN = 3 }; /* what has to be sent before it waits for room */
	uint32_t before;

	lock_assert_held(&s->lock);
	for (int vain = 0; vain < IN_VAIN;) {
		before = *left;
		execute_turn(s, left);
		vain = *left == before ? vain + 1 : 0;
		s->execute_here = *left && vain < IN_VAIN;
		tx_run(s);
		s->execute_here = false;
		if (!s->tx.more || s->tx.executing || !*left || s->state != STREAM_OPEN)
			return;
	}
}

void stream_kick(struct stream *s)
{
	uint32_t left = RC_EXECUTE_TURN;
	bool again = true;

	atomic_store(&s->want, 1);
#if !defined(__x86_64__) /* there the store is a full barrier */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	while (again && lock_try(&s->lock)) {
		atomic_store(&s->want, 0);
		run_executing(s, &left);
		again = stream_put_lock(s);
	}
}

/* The job: a turn, then others get the lock, until there is no more. */
static void execute_run(struct job *j)
{
	struct stream *s = container_of(j, struct stream, execute);
	uint32_t left = RC_EXECUTE_TURN;

	stream_lock(s);
	s->execute_posted = false;
	run_executing(s, &left);
	stream_unlock(s);
	let_in(s);
	stream_put(s);
}

void stream_execute_later(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (!s->tx.more || s->tx.executing || s->execute_posted || s->execute_here)
		return;
	if (s->tx.blocked && s->rx.ack_asked)
		return; /* execute_turn() would do nothing: when there is room */
	s->execute_posted = true;
	stream_get(s);
	job_post(&s->execute, s->qp ? s->qp->poll_cq : NULL);
}

static void close_step(struct stream *s);

/* ---- watching ------------------------------------------------------------ */

static void rewatch(struct stream *s)
{
	lock_assert_held(&s->lock);
	s->carrier->watch(s);
}

void stream_want_output(struct stream *s)
{
	rewatch(s); /* tx.blocked says it */
	if (s->ending)
		close_step(s); /* the last of it may have left */
}

/* ---- upcalls ------------------------------------------------------------- */

void stream_up_post(struct stream *s)
{
	if (!s->ops)
		return;
	stream_get(s);
	if (!loop_post(&s->up_work))
		stream_put(s);
}

/* What the active side of a connection hears first. */
static void up_connect(struct stream *s) REQUIRES(s->lock)
{
	bool delivered = s->up_delivered && !s->up_released;
	struct stream_reply *a;
	void *user = s->user;

	s->up_delivered = false;
	if (delivered) {
		stream_unlock(s);
		s->ops->delivered(user);
		lock_get(&s->lock);
	}
	a = s->up_released ? NULL : s->reply;
	if (!a)
		return;
	s->reply = NULL;
	stream_unlock(s);
	s->ops->reply(user, a->data, a->len);
	free(a);
	lock_get(&s->lock);
}

static void up_run(struct loop_work *w)
{
	struct stream *s = container_of(w, struct stream, up_work);
	struct list *n;
	bool closed;

	lock_get(&s->lock);
	up_connect(s);
	while (!s->up_released && (n = list_pop(&s->up))) {
		struct ctl_msg *m = list_entry(n, struct ctl_msg, link);
		void *user = s->user;

		s->up_count--;
		stream_unlock(s);
		s->ops->control(user, (enum stream_ctl)m->h.ctl.code, m->h.ctl.data,
				m->h.ctl.len);
		free(m);
		lock_get(&s->lock);
	}
	closed = s->up_closed && !s->up_closed_told && !s->up_released;
	s->up_closed_told |= closed;
	if (closed) {
		void *user = s->user;
		int err = s->err;

		stream_unlock(s);
		s->ops->closed(user, err);
		lock_get(&s->lock);
	}
	if (s->up_released && s->user) {
		void *user = s->user;

		s->user = NULL;
		stream_unlock(s);
		s->ops->released(user);
	} else {
		stream_unlock(s);
	}
	stream_put(s);
}

void stream_up(struct stream *s, const struct rc_frame *h)
{
	struct ctl_msg *m;

	if (s->user_gone)
		return;
	if (s->up_count == RC_UP_MAX) {
		stream_broken(s, -EPROTO, "more control messages than any peer needs");
		return;
	}
	m = malloc(sizeof(*m));
	if (!m) {
		stream_broken(s, -ENOMEM, "no memory for a control message");
		return;
	}
	m->h = *h;
	list_add_tail(&s->up, &m->link);
	s->up_count++;
	stream_up_post(s);
}

bool stream_has_news(struct stream *s)
{
	bool news;

	lock_get(&s->lock);
	news = !list_empty(&s->up) || s->reply || s->up_delivered ||
	       (s->up_closed && !s->up_closed_told);
	stream_unlock(s);
	return news;
}

/* ---- the end -------------------------------------------------------------- */

static void finish(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->state == STREAM_CLOSED)
		return;
	stream_set_state(s, STREAM_CLOSED);
	if (loop_timer_stop(&s->timer))
		stream_put(s); /* not the last: the carrier has one */
	s->carrier->finish(s);
}

static bool held(const struct stream *s)
{
	return !s->user_gone || s->qp || s->joined;
}

/* Both holders have let go: the rest is sent, then the peer is told that nothing more
 * comes, and what still arrives is discarded until the peer has ended too, for a second at
 * most. To end at once might destroy frames in flight (TCP: by a reset). */
static void close_step(struct stream *s)
{
	lock_assert_held(&s->lock);
	if ((held(s) && !s->ending) || s->state == STREAM_CLOSED)
		return;
	if (s->state == STREAM_BROKEN) {
		if (!held(s))
			finish(s);
		return;
	}
	if (s->state == STREAM_OPEN && !held(s))
		stream_set_state(s, STREAM_CLOSING);
	if (!s->close_by) {
		s->close_by = loop_now() + SEC;
		stream_timer(s, s->close_by);
	}
	if (!s->shut && tx_drained(s)) {
		s->shut = true;
		s->tx.blocked = false;
		s->carrier->shut(s);
		rewatch(s);
	}
}

static void discard(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->carrier->discard(s))
		return;
	if (held(s))
		stream_broken(s, 0, "both sides have closed");
	else
		finish(s);
}

void stream_end(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->p.extended || s->ending)
		return;
	s->ending = true;
	if (s->input_held) { /* nobody will claim it */
		s->input_held = false;
		s->rx.drop = true;
		rewatch(s);
	}
	close_step(s);
}

void stream_broken(struct stream *s, int err, const char *why)
{
	lock_assert_held(&s->lock);
	if (s->state == STREAM_BROKEN || s->state == STREAM_CLOSED)
		return;
	log_info("stream %u (QP %06x to QP %06x): %s%s%s", s->id, s->p.local_qpn,
		 s->p.remote_qpn, why, err ? ": " : "", err ? strerror(-err) : "");
	stream_set_state(s, STREAM_BROKEN);
	s->err = err;
	s->tx.blocked = s->tx.cut = false;
	rewatch(s);
	tx_fini(s);
	req_peer_gone(s);
	if (err) /* found here: the QP may keep the stream, and the peer would wait */
		s->carrier->reset(s);
	s->up_closed = true;
	if (!s->user_gone)
		stream_up_post(s);
	close_step(s);
}

/* ---- progress ------------------------------------------------------------- */

/* An acknowledgement that was asked for waits for one pass of the
 * poller, so that a reply posted meanwhile can carry it; the thread sends at
 * once. */
static void ack_policy(struct stream *s, bool by_thread, bool asked_before, bool moved)
{
	struct rc_rx *rx = &s->rx;

	if (!rx->ack_owed || rx->ack_now)
		return;
	if (by_thread || asked_before || (rx->ack_asked && !moved) ||
	    (!moved && ++rx->ack_idle > ACK_IDLE_PASSES))
		rx->ack_now = true;
}

/* The carrier had no room: a poller would ask it again and again in vain. The thread
 * comes when there is room. */
static bool worth_a_try(struct stream *s, bool by_thread)
{
	return by_thread || ++s->tx.blocked_polls % BLOCKED_POLLS == 0;
}

/* After something has come, which is most often all that there is. */
static bool nothing_to_send(struct stream *s)
{
	bool none;

	lock_assert_held(&s->lock);
	if (!s->qp || stream_unacked(s) || !stream_settled(s))
		return false;
	lock_get(&s->qp->lock);
	none = s->qp->sq.next == s->qp->sq.tail;
	lock_put(&s->qp->lock);
	return none;
}

static bool has_to_send(struct stream *s, bool by_thread, bool moved)
{
	lock_assert_held(&s->lock);
	if (s->tx.ack_only)
		return s->rx.ack_now && !s->carrier->send_ack(s);
	if (moved && !s->rx.ack_now && nothing_to_send(s))
		return false;
	return moved || s->rx.ack_now || (s->tx.blocked && worth_a_try(s, by_thread));
}

void stream_after(struct stream *s, bool by_thread, bool asked, bool moved)
{
	lock_assert_held(&s->lock);
	ack_policy(s, by_thread, asked, moved);
	if (s->state != STREAM_BROKEN && s->state != STREAM_CLOSED &&
	    has_to_send(s, by_thread, moved))
		tx_run(s);
	close_step(s);
}

bool stream_progress(struct stream *s, bool by_thread)
{
	bool asked = s->rx.ack_asked, moved;

	lock_assert_held(&s->lock);
	if (s->state == STREAM_BROKEN || s->state == STREAM_CLOSED)
		return false;
	if (s->shut) {
		discard(s);
		return false;
	}
	/* A poller may be here between join() and the attachment: what comes is for
	 * the QP, and of an unreliable one nothing comes twice. */
	moved = !s->input_held && !s->rx.paging && (s->qp || !s->joined) &&
		s->carrier->receive(s);
	stream_after(s, by_thread, asked, moved);
	return moved;
}

void stream_peer_closed(struct stream *s, int err)
{
	lock_assert_held(&s->lock);
	if (s->shut && s->state != STREAM_BROKEN && s->state != STREAM_CLOSED)
		discard(s);
	else
		stream_broken(s, err, "the peer closed");
}

void stream_ended_early(struct stream *s, bool rest, int err)
{
	lock_assert_held(&s->lock);
	if (!rest) {
		stream_broken(s, err, "the peer closed");
		return;
	}
	s->peer_ended = s->up_closed = true;
	rewatch(s);
	if (!s->user_gone)
		stream_up_post(s);
}

static void timer_fire(struct loop_timer *t)
{
	struct stream *s = container_of(t, struct stream, timer);
	uint64_t now = loop_now();

	lock_get(&s->lock);
	s->timer_at = 0;
	if (s->rx.wait && s->state == STREAM_OPEN)
		stream_progress(s, true);
	if (s->state == STREAM_CLOSING && now >= s->close_by) {
		finish(s);
	} else if (s->state == STREAM_OPEN && s->ending && now >= s->close_by) {
		stream_broken(s, 0, "the peer did not close in time");
		s->carrier->reset(s);
	} else if (s->state == STREAM_CLOSING || (s->state == STREAM_OPEN && s->ending)) {
		stream_timer(s, s->close_by); /* this was for something earlier */
	} else if (s->state != STREAM_CLOSED) {
		req_timer(s, now);
		if (s->state == STREAM_OPEN)
			tx_run(s);
	}
	stream_unlock(s);
	stream_put(s);
}

void stream_timer(struct stream *s, uint64_t when)
{
	lock_assert_held(&s->lock);
	if (s->timer_at && s->timer_at <= when)
		return;
	s->timer_at = when;
	stream_get(s);
	if (!loop_timer_set(&s->timer, when))
		stream_put(s);
}

/* ---- holders --------------------------------------------------------------- */

void stream_init(struct stream *s, const struct rc_carrier *carrier,
		 const struct stream_param *p)
{
	static atomic_uint ids;

	lock_init(&s->lock);
	atomic_init(&s->refs, 1);
	s->carrier = carrier;
	s->id = atomic_fetch_add_explicit(&ids, 1, memory_order_relaxed);
	s->user_gone = true;
	s->joined = true; /* until stream_start() has offered it */
	s->p = *p;
	s->input_held = !p->extended;
	list_init(&s->tx.ctl);
	list_init(&s->up);
	list_init(&s->unclaimed);
	s->tx.msn0 = s->tx.msn1 = s->tx.msn3 = 1; /* RFC 5041 section 5.1: from 1 */
	s->rx.msn0 = s->rx.msn1 = 1;
	s->tx.srqn = s->rx.srqn = NO_SRQ;
	cond_init(&s->copied);
	job_init(&s->execute, execute_run);
	s->up_work.run = up_run;
	s->timer.fire = timer_fire;
	traffic_begin(&s->traffic);
}

/* The stream is offered to its QP before anything is watched: one without a user and
 * without a QP would close at the peer's first frame. */
int stream_start(struct stream *s)
{
	int ret = s->carrier->start(s);

	if (ret)
		return ret;
	stream_get(s); /* the QP may be destroyed at once */
	match_offer(s);
	if (s->user_gone)
		match_withdraw(s); /* a rendezvous whose QP is gone meanwhile */
	lock_get(&s->lock);
	if (!s->qp)
		s->joined = false;
	tx_run(s);
	rewatch(s);
	close_step(s);
	stream_unlock(s);
	stream_put(s);
	return 0;
}

int stream_control(struct stream *s, enum stream_ctl type, const uint8_t *data,
		   size_t len)
{
	struct rc_frame h = { .op = RC_CTL, .last = true };
	int ret = -EPIPE;

	if (len > RC_CTL_DATA || !s->p.extended)
		return -EINVAL;
	h.ctl.type = CTL_USER;
	h.ctl.code = (uint8_t)type;
	h.ctl.len = (uint8_t)len;
	if (len)
		memcpy(h.ctl.data, data, len);
	lock_get(&s->lock);
	if (s->state == STREAM_OPEN && s->tx.nctl >= RC_CTL_MAX)
		stream_broken(s, -EPROTO, "the peer does not read our control messages");
	if (s->state == STREAM_OPEN) {
		tx_ctl(s, &h);
		tx_run(s);
		ret = s->state == STREAM_OPEN ? 0 : -EPIPE;
	}
	stream_unlock(s);
	return ret;
}

void stream_adopt(struct stream *s, const struct stream_user *ops, void *user)
{
	stream_lock(s);
	s->ops = ops;
	s->user = user;
	s->user_gone = false;
	stream_unlock(s);
}

void stream_release(struct stream *s)
{
	match_withdraw(s);
	stream_get(s); /* the loop may drop the last one before we have unlocked */
	lock_get(&s->lock);
	s->user_gone = s->up_released = true;
	stream_up_post(s);
	if (s->connecting) {
		s->connecting = s->joined = false;
		s->carrier->reset(s);
		stream_broken(s, 0, "its user does not wait any more");
	}
	stream_end(s);
	close_step(s);
	stream_unlock(s);
	stream_put(s);
}

void stream_abort(struct stream *s)
{
	lock_get(&s->lock);
	if (s->state == STREAM_BROKEN)
		s->carrier->reset(s);
	stream_broken(s, -ECONNABORTED, "aborted");
	stream_unlock(s);
	stream_release(s);
}

void stream_stop(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->rx.ack_owed && s->state == STREAM_OPEN) {
		s->rx.ack_now = true; /* what was taken is taken */
		tx_run(s);
	}
	tx_own_payload(s);
	s->tx.hold = HOLD_NONE;
	s->tx.off = 0;
	s->tx.imm_sent = s->tx.probe_sent = s->tx.resync = s->tx.more = false;
	s->rx.place = PLACE_SCRATCH;
	if (s->rx.wait)
		stream_timer(s, loop_now()); /* what is behind it is not for the QP alone */
	stream_end(s);
}

static void attached(struct stream *s, struct dev_qp *qp)
{
	lock_assert_held(&s->lock);
	s->qp = qp;
	atomic_store_explicit(&s->traffic.device, qp->device, memory_order_relaxed);
	atomic_store_explicit(&s->traffic.mtu, 128u << qp->attr.path_mtu,
			      memory_order_relaxed);
	s->qp_was = true;
	s->p.local_qpn = qp->qp.qp_num;
	lock_get(&qp->lock);
	s->rx.expected = qp->attr.rq_psn & 0xffffff;
	req_begin(s);
	qp->tr_priv = s;
	share_qp_bind_locked(qp, s->share_id);
	lock_put(&qp->lock);
	s->rx.recv_posted |= s->rx.not_ready_sent;
	s->rx.not_ready_sent = false;
	log_debug("stream %u: attached to QP %06x (peer's %06x)", s->id, qp->qp.qp_num,
		  s->p.remote_qpn);
}

/* Into the group first: from then on only the lock's holder changes what is watched. */
int stream_attach(struct stream *s, struct dev_qp *qp)
{
	bool input_held;
	int ret;

	lock_get(&s->lock);
	s->joined = true;
	stream_unlock(s);
	ret = s->carrier->join(s, qp->poll_cq);
	lock_get(&s->lock);
	input_held = s->input_held;
	if (!ret) {
		s->input_held = false;
		s->grouped = true;
		ret = s->carrier->watch(s);
	}
	if (ret) {
		s->input_held = input_held && !s->ending;
		s->grouped = false;
		stream_unlock(s);
		s->carrier->leave(s);
		lock_get(&s->lock);
		s->joined = false;
		stream_unlock(s);
		return ret;
	}
	attached(s, qp);
	stream_unlock(s);
	return 0;
}

void stream_quiesce(struct stream *s)
{
	stream_lock(s);
	while (s->tx.executing || s->rx.fetching)
		lock_wait(&s->lock, &s->copied);
	stream_unlock(s);
}

void stream_detach(struct stream *s, struct dev_qp *qp)
{
	lock_get(&s->lock);
	stream_stop(s);
	resp_lost(s);
	s->qp = NULL;
	s->grouped = false;
	lock_get(&qp->lock);
	qp->tr_priv = NULL;
	share_qp_unbind_locked(qp);
	lock_put(&qp->lock);
	stream_unlock(s);
}

void stream_detached(struct stream *s)
{
	stream_get(s); /* as in stream_release() */
	share_qp_wait(s->share_id);
	s->carrier->leave(s);
	lock_get(&s->lock);
	s->joined = false;
	if (s->state == STREAM_OPEN)
		tx_run(s); /* what resp_lost() has to say */
	rewatch(s);
	close_step(s);
	stream_unlock(s);
	stream_put(s);
}
