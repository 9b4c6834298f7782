/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving: bytes are copied out of the regions in the order of the records. */
#include "rsocket/rs.h"

#include <errno.h>
#include <limits.h>

/* A place in the stream. */
struct place {
	uint32_t head, rec_off;	/* record, bytes of it that are read */
	uint32_t reg, nreg, off; /* region, regions left with it, bytes of it that are read */
	bool freed;		 /* a region was read to its end */
};

struct sink {
	const struct iovec *iov;
	size_t n, off, left;
};

bool recv_pending(struct rs *rs)
{
	return atomic_load_explicit(&rs->rx.tail, memory_order_acquire) !=
	       atomic_load_explicit(&rs->rx.head_seen, memory_order_relaxed);
}

bool recv_ready(struct rs *rs)
{
	return recv_pending(rs) || (rs_ended(rs) & RS_EOF);
}

static void sink_copy(struct sink *s, const uint8_t *from, size_t bytes)
{
	while (bytes) {
		size_t now = s->iov->iov_len - s->off;

		if (!now) {
			s->iov++;
			s->off = 0;
			continue;
		}
		now = now < bytes ? now : bytes;
		memcpy((uint8_t *)s->iov->iov_base + s->off, from, now);
		from += now;
		s->off += now;
		s->left -= now;
		bytes -= now;
	}
}

/* The region at p is read to its end: p is at the next one. */
static void region_next(struct rs *rs, struct place *p, bool peek)
{
	p->reg = (p->reg + 1) % PROTO_SGES;
	p->nreg--;
	p->off = 0;
	p->freed = true;
	if (!peek)
		credit_region_read(rs);
}

/* Copies from the record at p. -EPROTO: it says more than fits where it must be. */
static int record_copy(struct rs *rs, struct place *p, struct sink *to, bool peek)
{
	struct rs_rx *rx = &rs->rx;
	uint32_t left = rx->rec[p->head & rx->mask] - p->rec_off, n;
	const struct region *r = &rx->reg[p->reg];

	if (left && (!p->nreg || left > r->len - p->off))
		return -EPROTO;
	n = to->left < left ? (uint32_t)to->left : left;
	sink_copy(to, r->buf + p->off, n);
	p->off += n;
	p->rec_off += n;
	if (n == left) {
		p->head++;
		p->rec_off = 0;
	}
	if (n && p->off == r->len)
		region_next(rs, p, peek);
	return 0;
}

static void place_set(struct rs *rs, const struct place *p)
{
	struct rs_rx *rx = &rs->rx;

	rx->head = p->head;
	rx->rec_off = p->rec_off;
	rx->off = p->off;
	atomic_store_explicit(&rx->head_seen, p->head, memory_order_release);
	if (p->freed || credit_wanted(rs))
		credit_give(rs);
}

/* Copies what is there. 0 or -errno; what was copied before an error counts. */
static int take(struct rs *rs, struct place *p, struct sink *to, bool peek)
{
	struct rs_rx *rx = &rs->rx;
	uint32_t tail = atomic_load_explicit(&rx->tail, memory_order_acquire);
	int ret = 0;

	while (to->left && p->head != tail && !ret)
		ret = record_copy(rs, p, to, peek);
	if (!peek)
		place_set(rs, p);
	if (ret) {
		log_info("rsocket %d: the peer's message does not fit its place",
			 rs->obj.fd);
		rs_end(rs, RS_GONE | RS_BROKEN, ECONNRESET);
		return -ECONNRESET;
	}
	return 0;
}

static struct place place_now(struct rs *rs)
{
	return (struct place){
		.head = rs->rx.head,
		.rec_off = rs->rx.rec_off,
		.reg = rs->rx.first,
		.nreg = atomic_load_explicit(&rs->rx.announced, memory_order_relaxed),
		.off = rs->rx.off,
	};
}

/* ---- the call ------------------------------------------------------------------------- */

static bool connect_over(struct rs *rs)
{
	return rs_state(rs) != RS_CONNECTING || (rs_ended(rs) & RS_CLOSED);
}

static uint64_t until_of(struct rs *rs, int flags)
{
	if (obj_nonblock(&rs->obj, flags))
		return 0;
	return rs->opts.rcvtimeo ? now_ns() + rs->opts.rcvtimeo : UINT64_MAX;
}

/* Nothing more will come: 0; or why. 1: more may come. */
static int at_end(struct rs *rs)
{
	unsigned ended = rs_ended(rs);
	int err;

	if (recv_pending(rs) || !(ended & RS_EOF))
		return 1;
	if (ended & RS_CLOSED)
		return -EBADF;
	if (!(ended & (RS_PEER_SHUT | RS_RD_SHUT)) && (ended & RS_BROKEN)) {
		err = atomic_exchange(&rs->err, 0);
		return -err;
	}
	return 0;
}

static ssize_t receive(struct rs *rs, struct sink *to, int flags, uint64_t until)
{
	size_t total = to->left;
	bool peek = flags & MSG_PEEK;
	struct place p;
	ssize_t ret;

	if (peek) /* all that has come by now */
		shard_run(rs->shard, false);
	for (;;) {
		p = place_now(rs);
		ret = take(rs, &p, to, peek);
		if (ret)
			break;
		if (!to->left || (to->left < total && !(flags & MSG_WAITALL)))
			break;
		if (peek && to->left < total) { /* there is no waiting behind a peek */
			ret = rs_ended(rs) & RS_EOF ? 0 : ret;
			break;
		}
		ret = rs_wait(rs, recv_ready, until);
		if (ret)
			break;
		ret = at_end(rs);
		if (ret <= 0)
			break;
	}
	if (to->left < total)
		return (ssize_t)(total - to->left);
	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

static int recv_begin(struct rs *rs, uint64_t until)
{
	int ret;

	if (__builtin_expect(rs_state(rs) == RS_CONNECTED, 1))
		return 0;
	if (rs_state(rs) != RS_CONNECTING)
		return -ENOTCONN;
	ret = rs_wait(rs, connect_over, until);
	if (ret)
		return ret == -ETIMEDOUT ? -EAGAIN : ret;
	return rs_state(rs) == RS_CONNECTED ? 0 : -ENOTCONN;
}

ssize_t rs_recvv(struct rs *rs, const struct iovec *iov, size_t n, int flags)
{
	struct sink to = { .iov = iov, .n = n };
	uint64_t until = until_of(rs, flags);
	ssize_t ret;

	for (size_t i = 0; i < n; i++)
		to.left += iov[i].iov_len;
	if (to.left > SSIZE_MAX)
		return -EINVAL;
	if (flags & MSG_OOB)
		return -EINVAL;
	ret = recv_begin(rs, until);
	if (ret)
		return ret;
	if (!to.left)
		return 0;
	pthread_mutex_lock(&rs->rd_lock);
	ret = receive(rs, &to, flags, until);
	pthread_mutex_unlock(&rs->rd_lock);
	return ret;
}
