/* SPDX-License-Identifier: BSD-2-Clause */
/* The table for the device: connections, of whatever carrier. */
#include "rc/match.h"
#include "rc/responder.h"
#include "rc/stream.h"
#include "rc/tx.h"

/* With a reference: another thread may reset the QP meanwhile. */
static struct stream *stream_of(struct dev_qp *qp)
{
	struct stream *s;

	lock_get(&qp->lock);
	s = qp->tr_priv;
	if (s)
		stream_get(s);
	lock_put(&qp->lock);
	return s;
}

static bool post_locked(struct dev_qp *qp)
{
	struct stream *s = qp->tr_priv;

	return s && s->carrier->post_locked && s->carrier->post_locked(s);
}

static void kick(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (!s) {
		match_kick(qp);
		return;
	}
	stream_kick(s);
	stream_put(s);
}

static void recv_posted(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (!s)
		return;
	stream_lock(s);
	if (s->rx.wait)
		stream_progress(s, false);
	if (s->rx.rnr_sent && s->state == STREAM_OPEN && s->p.extended) {
		s->rx.rnr_sent = false;
		s->rx.recv_posted = true;
		tx_run(s);
	}
	stream_unlock(s);
	stream_put(s);
}

static void recv_lost(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (!s)
		return;
	stream_lock(s);
	while (s->rx.fetching)
		lock_wait(&s->lock, &s->copied);
	if (s->qp == qp) {
		resp_fail(s, NAK_INV_REQ, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR,
			  "the SRQ was destroyed in the middle of a message for it");
		tx_run(s);
	}
	stream_unlock(s);
	stream_put(s);
}

/* For what comes behind a frame. */
static void pages_wait(struct stream *s)
{
	lock_assert_held(&s->lock);
	while (s->rx.paging)
		lock_wait(&s->lock, &s->copied);
}

/* At most what a peer that never stops could send in the meantime. */
static void receive(struct dev_qp *qp)
{
	enum { PASSES = 16 };
	struct stream *s = stream_of(qp);
	bool moved = true;

	if (!s)
		return;
	if (s->carrier->receive_all)
		s->carrier->receive_all(s);
	for (int i = 0; i < PASSES && moved && !s->carrier->receive_all; i++) {
		stream_lock(s);
		moved = stream_progress(s, true) || s->rx.paging;
		pages_wait(s);
		stream_unlock(s);
	}
	if (s->carrier->receive_all) {
		stream_lock(s);
		pages_wait(s);
		stream_unlock(s);
	}
	stream_put(s);
}

static void stop(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (!s)
		return;
	stream_quiesce(s);
	stream_lock(s);
	stream_stop(s);
	stream_unlock(s);
	stream_put(s);
}

/* The preferred carrier first: a peer that finds the last must have been able to find it.
 * The last one is the one that must work. */
static int listen_for(struct dev_qp *qp)
{
	int ret = 0;

	if (qp->made_by_cm)
		return 0;
	for (const struct rc_rendezvous *const *r = rc_rendezvous; *r; r++)
		ret = (*r)->listen(qp);
	return ret;
}

const struct dev_transport rc_transport = {
	.name = "rc",
	.listen = listen_for,
	.attach = match_attach,
	.kick = kick,
	.post_locked = post_locked,
	.recv_posted = recv_posted,
	.recv_lost = recv_lost,
	.receive = receive,
	.stop = stop,
	.detach = match_detach,
};
