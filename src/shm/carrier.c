/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of a stream over shared memory, and the table of the carrier. */
#include "base/log.h"
#include "dev/share.h"
#include "shm/cm.h"
#include "shm/direct.h"
#include "shm/grant.h"
#include "shm/link.h"
#include "shm/pull.h"
#include "shm/small.h"

#include <errno.h>
#include <stdlib.h>

enum {
	/* Of one record: small enough that both ends copy at the same time. */
	PAYLOAD_MAX = 16 * 1024,
	MAX_ERRNO = 4096,
};

/* ---- events of the link ---------------------------------------------------------- */

/* The peer has closed a stream that was never started. */
static void end_unstarted(struct stream *s)
{
	bool before = to_shm(s)->closed_in;

	lock_assert_held(&s->lock);
	to_shm(s)->closed_in = true;
	if (to_shm(s)->connector)
		shm_open_done(s, -EAGAIN);
	else if (!before) /* once: end_run() frees the stream */
		loop_post(&to_shm(s)->end_work);
}

void shm_announced(struct stream *s)
{
	stream_lock(s);
	if (s->qp && s->state == STREAM_OPEN) {
		lock_get(&s->qp->lock);
		qp_heard_locked(s->qp);
		lock_put(&s->qp->lock);
	}
	stream_unlock(s);
}

void shm_close_received(struct stream *s, int err)
{
	stream_lock(s);
	if (to_shm(s)->started || to_shm(s)->cm)
		shm_input_ended(s, err < 0 && err > -MAX_ERRNO ? err : 0);
	else
		end_unstarted(s);
	stream_unlock(s);
}

void shm_link_broken(struct stream *s, const char *why)
{
	stream_lock(s);
	log_debug("stream in slot %u: %s", to_shm(s)->slot, why);
	to_shm(s)->closed_out = true;
	if (to_shm(s)->started || to_shm(s)->cm)
		shm_input_ended(s, to_shm(s)->cm ? shm_cm_lost(s) : 0);
	else
		end_unstarted(s);
	stream_unlock(s);
}

/* ---- the table ------------------------------------------------------------------- */

static int start(struct stream *s)
{
	s->payload_max = PAYLOAD_MAX;
	lock_get(&s->lock);
	to_shm(s)->started = true;
	lock_put(&s->lock);
	return 0;
}

/* What is in the ring by now, and not what a busy peer adds. */
static void receive_all(struct stream *s)
{
	struct link *l = to_shm(s)->l;
	uint32_t from, at;

	if (!l)
		return;
	lock_get(&l->rx_lock);
	from = at = l->rx.head;
	lock_put(&l->rx_lock);
	while (at - from < RING_LINES && link_run(l, true)) {
		lock_get(&l->rx_lock);
		at = l->rx.head;
		lock_put(&l->rx_lock);
	}
}

/* A pass of the link receives for all streams. */
static int watch(struct stream *s)
{
	lock_assert_held(&s->lock);
	shm_let_link_go_on(s);
	return 0;
}

static int join(struct stream *s, struct dev_cq *cq)
{
	return link_cq_join(to_shm(s)->l, cq, &to_shm(s)->cq);
}

static void leave(struct stream *s)
{
	struct link_cq *m = to_shm(s)->cq;

	to_shm(s)->cq = NULL;
	if (m)
		link_cq_leave(m);
}

/* Tells the peer, once, that this side has closed. */
static void send_close(struct stream *s, int err)
{
	struct rec_link m = { .type = LINK_CLOSE,
			      .slot = to_shm(s)->peer_slot,
			      .err = err };

	if (to_shm(s)->cm && !to_shm(s)->closed_out)
		shm_cm_cancel(s);
	else if (to_shm(s)->peer_known && !to_shm(s)->closed_out)
		link_send(to_shm(s)->l, &m);
	to_shm(s)->closed_out = true;
}

static void shut(struct stream *s)
{
	send_close(s, 0);
}

static int discard(struct stream *s)
{
	return to_shm(s)->closed_in ? 0 : -EAGAIN;
}

static void reset(struct stream *s)
{
	send_close(s, -ECONNRESET);
}

void shm_end(struct stream *s)
{
	struct link *l = to_shm(s)->l;
	bool peer_open;

	lock_get(&s->lock);
	send_close(s, 0);
	peer_open = (to_shm(s)->peer_known || to_shm(s)->cm == SHM_CM_REQ_SENT) &&
		    !to_shm(s)->closed_in && !to_shm(s)->end_pending;
	shm_kept_drop(to_shm(s));
	shm_let_link_go_on(s);
	stream_unlock(s);
	list_del(&to_shm(s)->request);
	if (l)
		link_slot_free(l, to_shm(s)->slot, peer_open);
	share_qp_free(s->share_id);
	stream_put(s);
	if (l)
		link_put(l);
}

static void end_run(struct loop_work *w)
{
	shm_end(&container_of(w, struct shm_stream, end_work)->s);
}

static void finish(struct stream *s)
{
	loop_post(&to_shm(s)->end_work);
}

/* A process of this host that sends nothing is stopped, not dead: had it ended, the link
 * would be broken. */
static bool silent(struct stream *s, uint64_t budget)
{
	(void)s;
	(void)budget;
	return false;
}

static uint64_t consumed(struct stream *s)
{
	return atomic_load_explicit(&to_shm(s)->l->tx.sh->head, memory_order_relaxed);
}

/* stream_put() frees it by the address of the stream. */
_Static_assert(offsetof(struct shm_stream, s) == 0, "begins with the stream");

struct shm_stream *shm_new(const struct stream_param *p)
{
	struct shm_stream *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	stream_init(&t->s, &shm_carrier, p);
	list_init(&t->after_rx);
	list_init(&t->blocked);
	list_init(&t->kept);
	list_init(&t->request);
	t->end_work.run = end_run;
	t->s.share_id = share_qp_new();
	return t;
}

void shm_drop(struct stream *s)
{
	share_qp_free(s->share_id);
	stream_put(s);
}

int shm_start(struct stream *s, bool accepted)
{
	struct link *l = to_shm(s)->l;
	int ret;

	link_get(l);
	stream_get(s); /* its QP may be destroyed as soon as it is started */
	ret = stream_start(s);
	stream_lock(s);
	accepted |= s->qp_was;
	stream_unlock(s);
	stream_put(s);
	if (!ret && accepted)
		grant_accepted(l);
	link_put(l);
	return ret;
}

const struct rc_carrier shm_carrier = {
	.name = "shared memory",
	.start = start,
	.shut = shut,
	.discard = discard,
	.reset = reset,
	.finish = finish,
	.send = shm_send,
	.receive = shm_resume,
	.go_on = shm_go_on,
	.receive_all = receive_all,
	.post_locked = shm_post_locked,
	.send_ack = small_ack,
	.executor = &direct_executor,
	.by_reference = pull_offers,
	.watch = watch,
	.join = join,
	.leave = leave,
	.silent = silent,
	.consumed = consumed,
	.patience = UC_TICKS_HOST,
};
