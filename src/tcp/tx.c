/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending: first the rest of what was begun, then batches, until the socket is
 * full or the turn is over. */
#include "tcp/batch.h"

#include "base/log.h"
#include "base/sys.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static ssize_t push(struct stream *s, struct iovec *iov, unsigned n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = n };
	const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	ssize_t ret;

	do {
		ret = n == 1 ? sys_send(s->out, iov->iov_base, iov->iov_len, flags) :
			       sys_sendmsg(s->out, &msg, flags);
	} while (ret < 0 && errno == EINTR);
	if (ret >= 0)
		return ret;
	return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? 0 : -errno;
}

/* Maps the rest of the part's payload; -errno when its key is gone. */
static int part_map(struct stream *s, struct tx_part *p, struct sge_mem *mem)
{
	uint32_t left = p->payload_len - p->payload_pos;
	struct sge_list list;
	struct mr_range r;

	if (!left)
		return 0;
	switch (p->kind) {
	case PART_OWNED:
		mem->iov[0] = (struct iovec){ p->owned + p->payload_pos, left };
		mem->refs[0] = NULL;
		return 1;
	case PART_RESP:
		r = (struct mr_range){ p->key, p->addr + p->payload_pos, left };
		return sge_map_remote(p->pd, s->qp, &r, IBV_ACCESS_REMOTE_READ, mem);
	default:
		list = wqe_sge_list(s->qp, sq_at(&s->qp->sq, p->idx), MR_LOCAL_READ);
		return sge_map(&list, p->off + p->payload_pos, left, mem);
	}
}

static void part_free(struct stream *s)
{
	free(s->tx.part->owned);
	free(s->tx.part);
	s->tx.part = NULL;
}

static void part_advance(struct tx_part *p, size_t n)
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

void tx_own_part(struct stream *s)
{
	struct tx_part *p = s->tx.part;
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	int n;

	if (!p || p->kind == PART_NONE || p->kind == PART_OWNED)
		return;
	/* Zeros stand in for memory that is gone: the frame must be completed,
	 * its request has failed anyway. */
	p->owned = calloc(1, p->payload_len);
	if (!p->owned) {
		stream_broken(s, -ENOMEM, "no memory to finish a begun FPDU");
		return;
	}
	n = part_map(s, p, &mem);
	take_iov(p->owned + p->payload_pos, iov, n);
	sge_unmap(refs, n);
	p->kind = PART_OWNED;
}

static void taken(struct stream *s)
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
	struct tx_part *p = s->tx.part;
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
		tx_own_part(s);
		if (s->state == STREAM_BROKEN)
			return 0;
		maps = part_map(s, p, &mem);
	}
	n += (unsigned)maps;
	if (p->trailer_len)
		iov[n++] = (struct iovec){ p->trailer + p->trailer_pos,
					   p->trailer_len - p->trailer_pos };
	ret = push(s, iov, n);
	if (p->kind != PART_OWNED)
		sge_unmap(refs, maps);
	if (ret > 0) {
		part_advance(p, (size_t)ret);
		if (p->head_pos == p->head_len && p->payload_pos == p->payload_len &&
		    p->trailer_pos == p->trailer_len) {
			part_free(s);
			taken(s);
		}
	}
	return ret;
}

/* The application has unmapped what the rest of a cut FPDU is to be made of. It
 * cannot be completed with anything that the peer would not take for data. */
static void part_lost(struct stream *s)
{
	struct tx_part *p = s->tx.part;
	struct dev_qp *qp = s->qp;
	bool oldest;

	lock_assert_held(&s->lock);
	if (!p || !qp)
		return;
	if (p->kind == PART_RESP) {
		resp_unreadable(s, -EFAULT);
		return;
	}
	lock_get(&qp->lock);
	oldest = p->idx == qp->sq.done;
	lock_put(&qp->lock);
	if (oldest)
		req_fail(s, p->idx, IBV_WC_LOC_PROT_ERR,
			 "the memory of a posted send was unmapped");
}

static ssize_t first_send(struct stream *s)
{
	struct iovec iov = { s->tx.first + s->tx.first_pos,
			     s->tx.first_len - s->tx.first_pos };
	ssize_t ret = push(s, &iov, 1);

	if (ret > 0) {
		s->tx.first_pos += (uint32_t)ret;
		if (s->tx.first_pos == s->tx.first_len) {
			free(s->tx.first);
			s->tx.first = NULL;
		}
	}
	return ret;
}

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

/* NO_TSA: a stream may have no QP to lock. */
NO_TSA static ssize_t batch_send(struct stream *s, bool *more)
{
	struct dev_qp *qp = s->qp;
	struct batch b;
	bool failed;
	ssize_t ret;

	b.bytes = 0;
	b.niov = b.nrefs = b.nframes = b.used = 0;
	b.fail = 0;
	b.emit = NULL;
	if (qp)
		lock_get(&qp->lock);
	failed = req_local_locked(s);
	batch_build(s, &b);
	if (qp)
		lock_put(&qp->lock);
	ret = b.nframes ? push(s, b.iov, b.niov) : 0;
	sge_unmap(b.refs, (int)b.nrefs);
	if (ret == -EFAULT && !s->tx.suspect) {
		s->tx.suspect = true; /* once more, to find out whose memory it is */
		if (failed)
			req_hold_over(s);
		return 0;
	}
	s->tx.suspect = false;
	if (ret > 0) {
		int err;

		if (qp)
			lock_get(&qp->lock);
		err = batch_commit(s, &b, (size_t)ret);
		if (qp && stream_unacked(s) && !err)
			req_carried_locked(s);
		if (qp)
			lock_put(&qp->lock);
		if (err)
			return err;
	}
	*more = b.nframes && ret >= 0;
	if (*more && (size_t)ret < b.bytes)
		s->tx.blocked = true;
	if (ret >= 0 && b.fail && (size_t)ret == b.bytes) {
		tx_build_failed(s, b.fail);
		*more = true; /* a NAK, or responses behind the request that failed */
	}
	if (failed)
		req_hold_over(s);
	return ret;
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
	s->tx.idle = false;
	if (s->shut)
		return;
	if (s->state == STREAM_BROKEN) {
		resp_settle(s);
		run_broken(s);
		return;
	}
	s->m->send(s);
	resp_settle(s);
	if (s->p.unreliable)
		uc_sent(s);
}

void tx_tcp(struct stream *s)
{
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
		if (s->tx.first) {
			n = first_send(s);
			s->tx.blocked = n >= 0 && s->tx.first;
		} else if (s->tx.part) {
			n = part_send(s);
			s->tx.blocked = n >= 0 && s->tx.part;
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
		s->tx.moved += (uint64_t)n;
	}
	if (s->qp && (s->tx.requests || s->tx.off))
		req_sent(s);
	s->tx.requests = false;
	stream_want_output(s);
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
	s->tx.idle = false;
	list_add_tail(&s->tx.ctl, &m->link);
	s->tx.nctl++;
}

bool tx_drained(const struct stream *s)
{
	return !s->tx.first && !s->tx.part && list_empty(&s->tx.ctl) && !s->rx.nak &&
	       !(s->rx.ack_owed && s->rx.ack_now);
}

void tx_fini(struct stream *s)
{
	struct list *n;

	while ((n = list_pop(&s->tx.ctl)))
		free(list_entry(n, struct ctl_msg, link));
	s->tx.nctl = 0;
	if (s->tx.part)
		part_free(s);
	free(s->tx.first);
	s->tx.first = NULL;
}
