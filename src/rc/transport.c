/* SPDX-License-Identifier: BSD-2-Clause */
/* The TCP transport's table for the device. */
#include "rc/stream.h"

#include "dev/qpn.h"
#include "tcp/rendezvous.h"
#include "shm/shm.h"

/* With a reference: another thread may reset the QP meanwhile. */
static struct stream *stream_of(struct dev_qp *qp)
{
	struct stream *s;

	lock_get(&qp->lock);
	s = qp->tr_conn;
	if (s)
		stream_get(s);
	lock_put(&qp->lock);
	return s;
}

static bool post_locked(struct dev_qp *qp)
{
	struct stream *s = qp->tr_conn;

	return s && s->m->post && s->m->post(s);
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
		s->rx.go_on = true;
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
	if (s->qp == qp) {
		resp_fail(s, NAK_INV_REQ, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR,
			  "the SRQ was destroyed in the middle of a message for it");
		tx_run(s);
	}
	stream_unlock(s);
	stream_put(s);
}

static void stop(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (!s)
		return;
	stream_lock(s);
	stream_stop(s);
	stream_unlock(s);
	stream_put(s);
}

/* The nearer way first: who finds TCP must have been able to find it. */
static int listen_for(struct dev_qp *qp)
{
	shm_listen(qp->qp.qp_num);
	return qpn_listen(qp->qp.qp_num, rendezvous_incoming);
}

const struct dev_transport rc_transport = {
	.name = "tcp",
	.listen = listen_for,
	.attach = match_attach,
	.kick = kick,
	.post_locked = post_locked,
	.recv_posted = recv_posted,
	.recv_lost = recv_lost,
	.stop = stop,
	.detach = match_detach,
};
