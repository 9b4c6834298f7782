/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending. A call returns when its bytes are on their way or in the socket's buffer: what
 * is accepted is posted at once, so nothing waits here for a later call. Small messages
 * are inline; others are copied into the buffer, which is made when it is first needed and
 * grows to SO_SNDBUF. */
#include "rsocket/rs.h"

#include <errno.h>
#include <limits.h>

enum { BUF_FIRST = 8192, BUF_GROW = 4, ROOM_MIN = 2048 };

#define RELAXED memory_order_relaxed

static uint32_t load(const _Atomic uint32_t *v)
{
	return atomic_load_explicit(v, RELAXED);
}

static struct ibv_mr *old_mr(struct rs_tx *tx)
{
	return atomic_load_explicit(&tx->old.mr, RELAXED);
}

static uint32_t room(struct rs_tx *tx)
{
	return load(&tx->size) -
	       (load(&tx->wr) - atomic_load_explicit(&tx->rd, memory_order_acquire));
}

/* Bytes for the socket's buffer, or place for a larger one. */
static bool room_ready(struct rs *rs)
{
	uint32_t size = load(&rs->tx.size), left = room(&rs->tx);

	/* More than size: the end of a buffer before this one. */
	return (left >= ROOM_MIN && left <= size) ||
	       (size < rs->opts.sndbuf && !old_mr(&rs->tx));
}

static bool may_send(struct rs *rs)
{
	struct rs_tx *tx = &rs->tx;
	uint32_t posted = load(&tx->posted);

	return posted - atomic_load_explicit(&tx->done, memory_order_acquire) < rs->sq &&
	       ((posted - load(&tx->direct)) & 0xffff) != (load(&tx->limit) & 0xffff) &&
	       (load(&tx->len) || load(&tx->taken) !=
		atomic_load_explicit(&tx->announced, memory_order_acquire)) &&
	       room_ready(rs);
}

bool send_ready(struct rs *rs)
{
	return (rs_ended(rs) & (RS_GONE | RS_WR_SHUT | RS_CLOSED)) || may_send(rs);
}

/* ---- the buffer ---------------------------------------------------------------------- */

static void old_free(struct rs_tx *tx)
{
	struct ibv_mr *mr = old_mr(tx);

	if (!mr)
		return;
	ibv_dereg_mr(mr);
	free(tx->old.buf);
	atomic_store_explicit(&tx->old.mr, NULL, RELAXED);
}

/* Once the messages are complete whose bytes are in it. */
static void old_check(struct rs_tx *tx)
{
	uint32_t done = atomic_load_explicit(&tx->done, memory_order_acquire);

	if (old_mr(tx) && (int32_t)(done - tx->old.until) >= 0)
		old_free(tx);
}

static bool buf_grow(struct rs *rs)
{
	struct rs_tx *tx = &rs->tx;
	uint32_t size = load(&tx->size) ? load(&tx->size) * BUF_GROW : BUF_FIRST;
	struct ibv_mr *mr;
	uint8_t *buf;

	while (size / 2 >= rs->opts.sndbuf)
		size /= 2;
	buf = malloc(size);
	if (!buf)
		return false;
	mr = ibv_reg_mr(rs->hub->pd, buf, size, 0);
	if (!mr) {
		free(buf);
		return false;
	}
	tx->old.buf = tx->buf;
	tx->old.until = load(&tx->posted);
	atomic_store_explicit(&tx->old.mr, tx->mr, RELAXED);
	tx->buf = buf;
	tx->mr = mr;
	atomic_store_explicit(&tx->size, size, RELAXED);
	return true;
}

/* Bytes in one piece at the buffer's position, at most n; 0: none now. */
static uint32_t buf_get(struct rs *rs, uint32_t n)
{
	struct rs_tx *tx = &rs->tx;
	uint32_t left, to_end;

	old_check(tx);
	left = room(tx);
	if (left < n && load(&tx->size) < rs->opts.sndbuf && !old_mr(tx) && buf_grow(rs))
		left = room(tx);
	if (!load(&tx->size) || left > load(&tx->size))
		return 0;
	to_end = load(&tx->size) - (load(&tx->wr) & (load(&tx->size) - 1));
	left = left < to_end ? left : to_end;
	return left < n ? left : n;
}

void send_free(struct rs *rs)
{
	old_free(&rs->tx);
	if (rs->tx.mr)
		ibv_dereg_mr(rs->tx.mr);
	free(rs->tx.buf);
}

/* ---- pieces of the application's memory ------------------------------------------------ */

struct source {
	const struct iovec *iov;
	size_t n, off, left;
};

static void source_copy(struct source *s, uint8_t *to, size_t bytes)
{
	while (bytes) {
		size_t now = s->iov->iov_len - s->off;

		if (!now) {
			s->iov++;
			s->off = 0;
			continue;
		}
		now = now < bytes ? now : bytes;
		memcpy(to, (const uint8_t *)s->iov->iov_base + s->off, now);
		to += now;
		s->off += now;
		s->left -= now;
		bytes -= now;
	}
}

static void source_skip(struct source *s, size_t bytes)
{
	s->off += bytes;
	s->left -= bytes;
}

/* ---- messages ------------------------------------------------------------------------ */

static void target_next(struct rs_tx *tx)
{
	uint32_t n = load(&tx->taken);
	const struct proto_sge *e = &tx->sge[n % PROTO_SGES];

	if (load(&tx->len) || n == atomic_load_explicit(&tx->announced, memory_order_acquire))
		return;
	tx->addr = e->addr;
	tx->key = e->key;
	atomic_store_explicit(&tx->len, e->length, RELAXED);
	atomic_store_explicit(&tx->taken, n + 1, RELAXED);
}

/* Posts a write with the flags that w has. message: with immediate data. */
static int post(struct rs *rs, struct ibv_send_wr *w, bool message)
{
	struct rs_tx *tx = &rs->tx;
	uint32_t n = load(&tx->posted) + 1, bytes = w->sg_list->length;
	uint32_t wr = load(&tx->wr) + (w->send_flags & IBV_SEND_INLINE ? 0 : bytes);
	uint64_t wr_id = post_wr_id(rs, WR_DATA, n);
	struct ibv_send_wr *bad;
	int ret;

	if (n - tx->signalled >= rs->sq / 4 || wr - tx->mark >= load(&tx->size) / 4 + 1) {
		w->send_flags |= IBV_SEND_SIGNALED;
		tx->signalled = n;
		tx->mark = wr;
	}
	tx->pos[(n - 1) & tx->mask] = wr;
	if (message) {
		ret = post_message(rs, wr_id, proto_imm(PROTO_DATA, bytes), w);
	} else {
		w->wr_id = wr_id;
		w->opcode = IBV_WR_RDMA_WRITE;
		ret = ibv_post_send(rs->qp, w, &bad);
	}
	if (ret) {
		rs_end(rs, RS_GONE | RS_BROKEN, ECONNRESET);
		return -ECONNRESET;
	}
	atomic_store_explicit(&tx->wr, wr, RELAXED);
	atomic_store_explicit(&tx->posted, n, RELAXED);
	return 0;
}

static int post_data(struct rs *rs, struct ibv_sge *sge, unsigned flags)
{
	struct rs_tx *tx = &rs->tx;
	struct ibv_send_wr w = {
		.sg_list = sge,
		.num_sge = 1,
		.send_flags = flags,
		.wr.rdma = { .remote_addr = tx->addr, .rkey = tx->key },
	};
	int ret = post(rs, &w, true);

	if (ret)
		return ret;
	tx->addr += sge->length;
	atomic_store_explicit(&tx->len, load(&tx->len) - sge->length, RELAXED);
	return 0;
}

/* Sends one message. 0: nothing can be sent now; or -errno. */
static ssize_t send_one(struct rs *rs, struct source *src)
{
	struct rs_tx *tx = &rs->tx;
	uint8_t small[256];
	struct ibv_sge sge;
	uint32_t n;

	target_next(tx);
	n = load(&tx->len);
	n = src->left < n ? (uint32_t)src->left : n;
	n = n < CHUNK_MAX ? n : CHUNK_MAX;
	while (src->off == src->iov->iov_len) {
		src->iov++;
		src->off = 0;
	}
	if (n <= rs->inline_max && n <= sizeof(small)) {
		sge = (struct ibv_sge){ (uintptr_t)src->iov->iov_base + src->off, n, 0 };
		if (n <= src->iov->iov_len - src->off) {
			source_skip(src, n);
		} else {
			source_copy(src, small, n);
			sge.addr = (uintptr_t)small;
		}
		return post_data(rs, &sge, IBV_SEND_INLINE) ? -ECONNRESET : (ssize_t)n;
	}
	n = buf_get(rs, n);
	if (!n)
		return 0;
	sge = (struct ibv_sge){
		(uintptr_t)tx->buf + (load(&tx->wr) & (load(&tx->size) - 1)), n, tx->mr->lkey
	};
	source_copy(src, (uint8_t *)(uintptr_t)sge.addr, n);
	return post_data(rs, &sge, 0) ? -ECONNRESET : (ssize_t)n;
}

/* ---- writing to a mapping ---------------------------------------------------------------- */

static int send_error(struct rs *rs)
{
	unsigned ended = rs_ended(rs);

	if (ended & RS_CLOSED)
		return -EBADF;
	if (ended & RS_WR_SHUT)
		return -EPIPE;
	if (ended & RS_GONE) {
		int err = atomic_exchange(&rs->err, 0);

		return err ? -err : -ECONNRESET;
	}
	return 0;
}

static uint64_t until_of(struct rs *rs, int flags)
{
	if (obj_nonblock(&rs->obj, flags))
		return 0;
	return rs->opts.sndtimeo ? now_ns() + rs->opts.sndtimeo : UINT64_MAX;
}

static bool direct_ready(struct rs *rs)
{
	struct rs_tx *tx = &rs->tx;

	return (load(&tx->posted) - atomic_load_explicit(&tx->done, memory_order_acquire) <
			rs->sq && room_ready(rs)) ||
	       (rs_ended(rs) & (RS_GONE | RS_WR_SHUT | RS_CLOSED));
}

int send_direct(struct rs *rs, const void *from, uint32_t *n, uint64_t addr, uint32_t key,
		int flags)
{
	struct rs_tx *tx = &rs->tx;
	struct ibv_sge sge;
	struct ibv_send_wr w = {
		.sg_list = &sge,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = addr, .rkey = key },
	};
	uint64_t until = until_of(rs, flags);
	uint32_t want = *n < CHUNK_MAX ? *n : CHUNK_MAX, got = 0;
	int ret;

	*n = 0;
	do {
		ret = rs_wait(rs, direct_ready, until);
		if (!ret)
			ret = send_error(rs);
		if (ret)
			return ret == -ETIMEDOUT ? -EAGAIN : ret;
		got = want <= rs->inline_max ? want : buf_get(rs, want);
	} while (!got);
	sge = (struct ibv_sge){ (uintptr_t)from, got, 0 };
	if (got <= rs->inline_max) {
		w.send_flags = IBV_SEND_INLINE;
	} else {
		sge.addr = (uintptr_t)tx->buf + (load(&tx->wr) & (load(&tx->size) - 1));
		sge.lkey = tx->mr->lkey;
		memcpy((void *)(uintptr_t)sge.addr, from, got);
	}
	ret = post(rs, &w, false);
	if (ret)
		return ret;
	atomic_store_explicit(&tx->direct, load(&tx->direct) + 1, RELAXED);
	*n = got;
	return 0;
}

/* ---- the call ------------------------------------------------------------------------- */

static bool connect_over(struct rs *rs)
{
	return rs_state(rs) != RS_CONNECTING || (rs_ended(rs) & RS_CLOSED);
}

static int send_begin(struct rs *rs, uint64_t until)
{
	int ret;

	if (__builtin_expect(rs_state(rs) == RS_CONNECTED, 1))
		return 0;
	if (rs_state(rs) != RS_CONNECTING)
		return -ENOTCONN;
	ret = rs_wait(rs, connect_over, until);
	if (ret)
		return ret;
	return rs_state(rs) == RS_CONNECTED ? 0 : -ENOTCONN;
}

static ssize_t send_all(struct rs *rs, struct source *src, uint64_t until)
{
	size_t total = src->left;
	ssize_t ret = 0;

	while (src->left) {
		ret = send_error(rs);
		if (ret)
			break;
		if (may_send(rs)) {
			ret = send_one(rs, src);
			if (ret > 0)
				continue;
			if (ret < 0)
				break;
		}
		ret = rs_wait(rs, send_ready, until);
		if (ret)
			break;
	}
	if (src->left < total)
		return (ssize_t)(total - src->left);
	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

ssize_t rs_sendv(struct rs *rs, const struct iovec *iov, size_t n, int flags)
{
	struct source src = { .iov = iov, .n = n };
	uint64_t until = until_of(rs, flags);
	ssize_t ret;

	for (size_t i = 0; i < n; i++)
		src.left += iov[i].iov_len;
	if (src.left > SSIZE_MAX)
		return -EINVAL;
	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	ret = send_begin(rs, until);
	if (ret)
		return ret == -ETIMEDOUT ? -EAGAIN : ret;
	pthread_mutex_lock(&rs->wr_lock);
	if (rs->iomap)
		ret = iomap_announce(rs);
	if (!ret)
		ret = src.left ? send_all(rs, &src, until) : send_error(rs);
	pthread_mutex_unlock(&rs->wr_lock);
	return ret;
}
