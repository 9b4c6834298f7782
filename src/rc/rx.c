/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/rx.h"

#include "base/log.h"
#include "rc/pages.h"
#include "rc/requester.h"
#include "rc/responder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The memory of an SRQ's receives is its PD's, not the QP's. */
static struct sge_list receive_list(const struct stream *s)
{
	const struct dev_qp *qp = s->qp;

	return (struct sge_list){ qp->srq ? qp->srq->pd : s->rx.pd, qp->cur->sge,
				  qp->cur->num_sge, IBV_ACCESS_LOCAL_WRITE };
}

int rx_map(struct stream *s, uint32_t n, struct sge_mem *mem)
{
	struct rc_rx *rx = &s->rx;
	struct dev_qp *qp = s->qp;
	struct sge_list list;
	struct mr_range r;
	struct wqe *w;
	uint32_t idx;

	switch (rx->place) {
	case PLACE_WRITE:
		r = (struct mr_range){ rx->h.stag, rx->h.to + rx->off, n };
		return sge_map_remote(rx->pd, qp, &r, IBV_ACCESS_REMOTE_WRITE, mem);
	case PLACE_RECV:
		list = receive_list(s);
		return sge_map(&list, rx->msg_off + rx->off, n, mem);
	case PLACE_READ:
		w = req_oldest_read(s, &idx);
		list = wqe_sge_list(qp, w, IBV_ACCESS_LOCAL_WRITE);
		return sge_map(&list, w->got + rx->off, n, mem);
	default:
		return 0;
	}
}

/* The memory of the frame being received is gone or not ours to write. */
void rx_unplaceable(struct stream *s, int err)
{
	char why[120];
	uint32_t idx = 0;

	lock_assert_held(&s->lock);
	snprintf(why, sizeof(why), "%s: no access to the memory of the payload (%s)",
		 rc_op_str(s->rx.h.op), strerror(-err));
	switch (s->rx.place) {
	case PLACE_WRITE:
		if (err == -EFAULT) /* allowed, and not to be done: no fault of the peer's */
			resp_fail(s, NAK_REM_OP, IBV_WC_SUCCESS, IBV_EVENT_QP_FATAL, why);
		else
			resp_no_access(s, why);
		break;
	case PLACE_RECV:
		resp_fail(s, NAK_REM_OP, IBV_WC_LOC_PROT_ERR, -1, why);
		break;
	case PLACE_READ:
		req_oldest_read(s, &idx);
		req_fail(s, idx, IBV_WC_LOC_PROT_ERR, why);
		break;
	default:
		break;
	}
	s->rx.place = PLACE_SCRATCH;
}

void rx_placed(struct stream *s, uint32_t n)
{
	s->rx.off += n;
}

int rx_copy(struct stream *s, const uint8_t *p, uint32_t n)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	int k, ret;

	k = rx_map(s, n, &mem);
	if (k > 0 && rx_wants_pages(s) && rx_lacks_pages(s, n, &mem, k))
		return -EINPROGRESS;
	ret = k < 0 ? k : place_iov(iov, k, p);
	sge_unmap(refs, k);
	if (ret)
		rx_unplaceable(s, ret);
	rx_placed(s, n);
	return 0;
}

bool rx_fetch_begin(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->rx.place != PLACE_RECV)
		return false;
	s->rx.fetching = true;
	lock_get(&s->qp->lock);
	qp_copy_begin_locked(s->qp);
	lock_put(&s->qp->lock);
	return true;
}

int rx_fetch(struct stream *s, uint32_t off, uint32_t n, rx_fetch_fn *fetch, const void *arg)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	struct sge_list list = receive_list(s);
	int k = sge_map(&list, s->rx.msg_off + off, n, &mem), ret;

	ret = k > 0 ? fetch(arg, s, iov, k) : k;
	sge_unmap(refs, k);
	return ret;
}

/* A QP that has failed meanwhile has no receive any more. */
void rx_fetch_end(struct stream *s, uint32_t n)
{
	lock_assert_held(&s->lock);
	s->rx.fetching = false;
	lock_get(&s->qp->lock);
	qp_copy_end_locked(s->qp);
	if (!s->qp->cur_valid || !qp_may_receive_locked(s->qp))
		s->rx.place = PLACE_SCRATCH;
	lock_put(&s->qp->lock);
	rx_placed(s, n);
	cond_broadcast(&s->copied);
}

int rx_frame_begin(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	rx->off = rx->paged = 0;
	rx->place = PLACE_SCRATCH;
	switch (rx->h.op) {
	case RC_READ_RESP:
		return req_read_begin(s, &rx->h);
	case RC_WRITE:
	case RC_SEND:
	case RC_SEND_INV:
	case RC_SEND_SE:
	case RC_SEND_SE_INV:
		return resp_begin(s);
	default:
		return 0;
	}
}

int rx_resume(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	int where = rx->wait, ret = 0;

	rx->wait = WAIT_NONE;
	if (where == WAIT_BEGIN)
		ret = resp_begin(s);
	else
		resp_end(s);
	return ret;
}

static int rx_ctl(struct stream *s, const struct rc_frame *h)
{
	lock_assert_held(&s->lock);
	if (!s->p.extended)
		return -EPROTO;
	switch (h->ctl.type) {
	case CTL_ACK:
		req_ack(s, h->ctl.number);
		return 0;
	case CTL_NAK:
		req_nak(s, h);
		return 0;
	case CTL_RESYNC:
		resp_resync(s, h);
		return 0;
	case CTL_RECV_POSTED:
		req_recv_posted(s);
		return 0;
	case CTL_SRQ:
		s->rx.srqn = h->ctl.number;
		return 0;
	case CTL_USER:
		stream_up(s, h);
		return 0;
	default:
		log_info("stream %u: control message of unknown type %d", s->id,
			 (int)h->ctl.type);
		return -EPROTO;
	}
}

int rx_frame_end(struct stream *s, enum rc_way way)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	stream_count(s, TRAFFIC_RCV, rx->h.payload);
	rc_frame_in(s, &rx->h, way);
	switch (rx->h.op) {
	case RC_READ_RESP:
		req_read_end(s);
		return 0;
	case RC_ATOMIC_RESP:
		return req_atomic_resp(s, &rx->h);
	case RC_CTL:
		return rx_ctl(s, &rx->h);
	case RC_TERMINATE: /* of a plain stream the carrier takes it */
		log_info("stream %u: the peer sent Terminate", s->id);
		return -ECONNABORTED;
	case RC_READ_REQ:
	case RC_ATOMIC_REQ:
	case RC_IMM:
	case RC_IMM_SE:
		if (resp_begin(s))
			return -EPROTO;
		break;
	default:
		break;
	}
	resp_end(s);
	return 0;
}
