/* SPDX-License-Identifier: BSD-2-Clause */
/* The TCP transport's table for the device. */
#include "iwarp/iwarp.h"

#include "dev/qpn.h"
#include "iwarp/rendezvous.h"

static struct stream *stream_of(struct dev_qp *qp)
{
	return __atomic_load_n(&qp->tr_conn, __ATOMIC_ACQUIRE);
}

static void kick(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (s)
		stream_kick(s);
	else
		park_kick(qp);
}

static void recv_posted(struct dev_qp *qp)
{
	struct rdmap_hdr h = { .op = RDMAP_CTL, .last = true };
	struct stream *s = stream_of(qp);

	if (!s)
		return;
	h.ctl.type = CTL_RECV_POSTED;
	stream_lock(s);
	if (s->rx.rnr_sent && s->state == STREAM_OPEN) {
		s->rx.rnr_sent = false;
		tx_ctl(s, &h);
		tx_run(s);
	}
	stream_unlock(s);
}

static void stop(struct dev_qp *qp)
{
	struct stream *s = stream_of(qp);

	if (!s)
		return;
	stream_lock(s);
	stream_stop(s);
	stream_unlock(s);
}

static int listen_for(struct dev_qp *qp)
{
	return qpn_listen(qp->qp.qp_num, rendezvous_incoming);
}

const struct dev_transport iw_transport = {
	.name = "tcp",
	.listen = listen_for,
	.attach = park_attach,
	.kick = kick,
	.recv_posted = recv_posted,
	.stop = stop,
	.detach = park_detach,
};
