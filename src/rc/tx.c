/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/tx.h"

#include "rc/requester.h"
#include "rc/responder.h"
#include "rc/uc.h"

#include <errno.h>
#include <stdlib.h>

void tx_build_failed(struct stream *s, int fail)
{
	lock_assert_held(&s->lock);
	if (fail < 0) {
		resp_unreadable(s, fail);
		return;
	}
	s->tx.hold = HOLD_FAIL;
	s->tx.fail_status = (enum ibv_wc_status)fail;
	req_hold_over(s);
}

/* Nobody answers any more, but local work needs no answer. */
static void run_broken(struct stream *s)
{
	bool failed = false;

	lock_assert_held(&s->lock);
	if (s->qp) {
		lock_get(&s->qp->lock);
		failed = req_local_locked(s);
		lock_put(&s->qp->lock);
	}
	if (failed)
		req_hold_over(s);
	req_peer_gone(s);
}

void tx_run(struct stream *s)
{
	lock_assert_held(&s->lock);
	s->tx.ack_only = false;
	if (s->shut)
		return;
	if (s->state == STREAM_BROKEN) {
		resp_settle(s);
		run_broken(s);
		return;
	}
	s->carrier->send(s);
	resp_settle(s);
	if (s->p.unreliable)
		uc_sent(s);
}

void tx_ctl(struct stream *s, const struct rc_frame *h)
{
	struct ctl_msg *m = malloc(sizeof(*m));

	lock_assert_held(&s->lock);
	if (!m) {
		stream_broken(s, -ENOMEM, "no memory for a control message");
		return;
	}
	m->h = *h;
	s->tx.ack_only = false;
	list_add_tail(&s->tx.ctl, &m->link);
	s->tx.nctl++;
}

bool tx_drained(const struct stream *s)
{
	return !s->tx.cut && list_empty(&s->tx.ctl) && !s->rx.nak &&
	       !(s->rx.ack_owed && s->rx.ack_now);
}

void tx_own_payload(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->carrier->own_payload)
		s->carrier->own_payload(s);
}

void tx_fini(struct stream *s)
{
	struct list *n;

	while ((n = list_pop(&s->tx.ctl)))
		free(list_entry(n, struct ctl_msg, link));
	s->tx.nctl = 0;
}
