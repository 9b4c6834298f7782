/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending: first the rest of what was begun, then batches, until the socket is
 * full or the turn is over. */
#include "base/log.h"
#include "base/sys.h"
#include "rc/requester.h"
#include "rc/responder.h"
#include "rc/tx.h"
#include "tcp/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>


static ssize_t push(struct stream *s, struct iovec *iov, unsigned n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
	const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	int out = to_tcp(s)->out;
	ssize_t ret;

	do {
		ret = n == 1 ? sys_send(out, iov->iov_base, iov->iov_len, flags) :
			       sys_sendmsg(out, &msg, flags);
	} while (ret < 0 && errno == EINTR);
	if (ret >= 0)
		return ret;
	return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? 0 : -errno;
}

/* ---- the rest of a cut FPDU ---------------------------------------------------------- */

/* Maps the rest of the part's payload; -errno when its key is gone. */
static int part_map(struct stream *s, struct tcp_part *p, struct sge_mem *mem)
{
	uint32_t left = p->payload_len - p->payload_pos;

	if (!left)
		return 0;
	if (!p->owned)
		return payload_map(s->qp, &p->payload, p->payload_pos, left, mem);
	mem->iov[0] = (struct iovec){ p->owned + p->payload_pos, left };
	mem->refs[0] = NULL;
	return 1;
}

/* Something of the carrier's own is still to be sent before any frame. */
static void cut_update(struct tcp_stream *t)
{
	t->s.tx.cut = t->part || t->first;
}

static void part_free(struct tcp_stream *t)
{
	free(t->part->owned);
	free(t->part);
	t->part = NULL;
	cut_update(t);
}

static void part_advance(struct tcp_part *p, size_t n)
{
	uint32_t k = p->head_len - p->head_pos;

	k = n < k ? (uint32_t)n : k;
	p->head_pos += k;
	n -= k;
	k = p->payload_len - p->payload_pos;
	k = n < k ? (uint32_t)n : k;
	p->payload_pos += k;
	p->trailer_pos += (uint32_t)(n - k);
}

void tcp_own_payload(struct stream *s)
{
	struct tcp_part *p = to_tcp(s)->part;
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	uint8_t *copy;
	int n;

	lock_assert_held(&s->lock);
	if (!p || p->owned || !p->payload_len || s->state == STREAM_BROKEN)
		return;
	/* Zeros stand in for memory that is gone: the frame must be completed,
	 * its request has failed anyway. */
	copy = calloc(1, p->payload_len);
	if (!copy) {
		stream_broken(s, -ENOMEM, "no memory to finish a begun FPDU");
		return;
	}
	n = part_map(s, p, &mem);
	take_iov(copy + p->payload_pos, iov, n);
	sge_unmap(refs, n);
	p->owned = copy;
}

static void complete_carried(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (!stream_unacked(s) || !s->qp)
		return;
	lock_get(&s->qp->lock);
	req_carried_locked(s);
	lock_put(&s->qp->lock);
}

/* Sends the rest of a cut FPDU. Bytes sent, 0 when the socket is full. */
static ssize_t part_send(struct stream *s)
{
	struct tcp_part *p = to_tcp(s)->part;
	struct iovec iov[DEV_MAX_SGE + 2];
	struct mr_slot *refs[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	unsigned n = 0;
	int maps;
	ssize_t ret;

	lock_assert_held(&s->lock);
	if (p->head_pos < p->head_len)
		iov[n++] = (struct iovec){ p->head + p->head_pos, p->head_len - p->head_pos };
	mem.iov = iov + n;
	maps = part_map(s, p, &mem);
	if (maps < 0) {
		tcp_own_payload(s);
		if (s->state == STREAM_BROKEN)
			return 0;
		maps = part_map(s, p, &mem);
	}
	n += (unsigned)maps;
	if (p->trailer_len)
		iov[n++] = (struct iovec){ p->trailer + p->trailer_pos,
					   p->trailer_len - p->trailer_pos };
	ret = push(s, iov, n);
	if (!p->owned)
		sge_unmap(refs, maps);
	if (ret > 0) {
		part_advance(p, (size_t)ret);
		if (p->head_pos == p->head_len && p->payload_pos == p->payload_len &&
		    p->trailer_pos == p->trailer_len) {
			part_free(to_tcp(s));
			complete_carried(s);
		}
	}
	return ret;
}

/* The application has unmapped what the rest of a cut FPDU is to be made of. It
 * cannot be completed with anything that the peer would not take for data. */
static void part_lost(struct stream *s)
{
	struct tcp_part *p = to_tcp(s)->part;
	struct dev_qp *qp = s->qp;
	bool oldest;

	lock_assert_held(&s->lock);
	if (!p || !qp)
		return;
	if (p->payload.kind == PAYLOAD_RESPONSE) {
		resp_unreadable(s, -EFAULT);
		return;
	}
	lock_get(&qp->lock);
	oldest = p->payload.idx == qp->sq.done;
	lock_put(&qp->lock);
	if (oldest)
		req_fail(s, p->payload.idx, IBV_WC_LOC_PROT_ERR,
			 "the memory of a posted send was unmapped");
}

static ssize_t first_send(struct tcp_stream *t)
{
	struct iovec iov = { t->first + t->first_pos, t->first_len - t->first_pos };
	ssize_t ret = push(&t->s, &iov, 1);

	if (ret > 0) {
		t->first_pos += (uint32_t)ret;
		if (t->first_pos == t->first_len) {
			free(t->first);
			t->first = NULL;
			cut_update(t);
		}
	}
	return ret;
}

/* ---- batches -------------------------------------------------------------------------- */

/* The state after n bytes of the batch have left. NO_TSA: a stream may have no QP to lock. */
NO_TSA static int batch_sent(struct stream *s, struct batch *b, size_t n)
{
	struct dev_qp *qp = s->qp;
	int ret;

	if (qp)
		lock_get(&qp->lock);
	ret = batch_commit(s, b, n);
	if (qp && stream_unacked(s) && !ret)
		req_carried_locked(s);
	if (qp)
		lock_put(&qp->lock);
	return ret;
}

/* NO_TSA: likewise. */
NO_TSA static ssize_t batch_fill_and_send(struct stream *s, struct batch *b, bool *more)
{
	struct dev_qp *qp = s->qp;
	bool failed;
	ssize_t ret;

	if (qp)
		lock_get(&qp->lock);
	failed = req_local_locked(s);
	batch_build(s, b);
	if (qp)
		lock_put(&qp->lock);
	ret = b->b.nframes ? push(s, b->iov, b->niov) : 0;
	sge_unmap(b->refs, (int)b->nrefs);
	if (ret == -EFAULT && !to_tcp(s)->suspect) {
		to_tcp(s)->suspect = true; /* once more, to find out whose memory it is */
		if (failed)
			req_hold_over(s);
		return 0;
	}
	to_tcp(s)->suspect = false;
	if (ret > 0) {
		int err = batch_sent(s, b, (size_t)ret);

		if (err)
			return err;
	}
	*more = b->b.nframes && ret >= 0;
	if (*more && (size_t)ret < b->bytes)
		s->tx.blocked = true;
	if (ret >= 0 && b->b.fail && (size_t)ret == b->bytes) {
		tx_build_failed(s, b->b.fail);
		*more = true; /* a NAK, or responses behind the request that failed */
	}
	if (failed)
		req_hold_over(s);
	return ret;
}

static ssize_t batch_send(struct stream *s, bool *more)
{
	struct batch *b = batch_get();
	ssize_t ret;

	lock_assert_held(&s->lock);
	ret = batch_fill_and_send(s, b, more);
	batch_put(b);
	return ret;
}

void tcp_send(struct stream *s)
{
	struct tcp_stream *t = to_tcp(s);
	size_t moved = 0;
	bool more = true;

	lock_assert_held(&s->lock);
	s->tx.blocked = false;
	while (more && !s->tx.blocked && s->state != STREAM_BROKEN &&
	       s->state != STREAM_CLOSED) {
		ssize_t n;

		if (moved >= RC_TURN) {
			s->tx.blocked = true;
			s->tx.blocked_polls = UINT32_MAX; /* there is room: next time */
			break;
		}
		if (t->first) {
			n = first_send(t);
			s->tx.blocked = n >= 0 && t->first;
		} else if (t->part) {
			n = part_send(s);
			s->tx.blocked = n >= 0 && t->part;
		} else {
			n = batch_send(s, &more);
		}
		if (n < 0) {
			if (n == -EFAULT)
				part_lost(s);
			stream_broken(s, (int)n, "sending failed");
			return;
		}
		moved += (size_t)n;
		t->sent += (uint64_t)n;
	}
	if (s->qp && (s->tx.requests || s->tx.off))
		req_sent(s);
	s->tx.requests = false;
	stream_want_output(s);
}

void tcp_tx_fini(struct tcp_stream *t)
{
	if (t->part)
		part_free(t);
	free(t->first);
	t->first = NULL;
}
