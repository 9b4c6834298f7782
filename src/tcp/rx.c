/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving: FPDU assembly and placement.
 *
 * Design notes. Bytes come either through a staging buffer (headers, and
 * payload where little is left of a frame) or straight to their place (the rest
 * of a large payload, with a little staging behind it in the same call for the
 * next header). A frame is *begun* when its header is complete: that decides
 * where payload goes, after all checks; nothing else happens. It *ends* when
 * trailer and CRC are there: only then it has effects.
 *
 * With CRC nothing is read to its place: the sum is that of the bytes that came, and memory
 * of the application may change, or be unmapped, as soon as it was written.
 *
 * Nothing here waits: what a frame obliges us to send is queued. */
#include "base/log.h"
#include "base/sys.h"
#include "rc/pages.h"
#include "rc/responder.h"
#include "rc/rx.h"
#include "rc/tx.h"
#include "base/crc32c.h"
#include "tcp/tcp.h"
#include "tcp/term.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { AHEAD = 4096 }; /* staging behind a read in place */

/* Two idle staging buffers for the whole process: more readers than that at
 * once are rare. */
static _Atomic(uint8_t *) idle[2];
/* One for times without memory: what has come can still be received, a little at a time.
 * Whoever finds it taken comes again, as for any bytes that are left in a socket. */
static uint8_t last_resort[AHEAD];
static atomic_bool last_resort_taken;

static uint8_t *staging_get(void)
{
	uint8_t *p;

	for (int i = 0; i < 2; i++) {
		p = atomic_exchange(&idle[i], NULL);
		if (p)
			return p;
	}
	p = malloc(TCP_STAGING);
	if (!p && !atomic_exchange(&last_resort_taken, true))
		p = last_resort;
	return p;
}

static void staging_put(uint8_t *p)
{
	if (p == last_resort) {
		atomic_store(&last_resort_taken, false);
		return;
	}
	for (int i = 0; i < 2 && p; i++)
		p = atomic_exchange(&idle[i], p);
	free(p);
}

/* n bytes of payload lie in the staging buffer. False: they stay there, as pages that they go
 * to are not there. */
static bool payload_staged(struct tcp_stream *t, const uint8_t *p, uint32_t n)
{
	lock_assert_held(&t->s.lock);
	if (rx_copy(&t->s, p, n))
		return false;
	if (t->s.p.crc)
		t->crc = crc32c(t->crc, p, n);
	t->left -= n;
	return true;
}

static int frame_begin(struct tcp_stream *t)
{
	lock_assert_held(&t->s.lock);
	t->in_frame = true;
	t->left = t->s.rx.h.payload;
	t->trailer_have = 0;
	t->large = t->left >= TCP_IN_PLACE_MIN && !t->s.p.crc;
	return rx_frame_begin(&t->s);
}

static bool crc_is_right(struct tcp_stream *t)
{
	uint32_t n = t->trailer_have;
	uint8_t want[4];

	crc32c_put(want, crc32c(t->crc, t->trailer, n - 4));
	if (!memcmp(want, t->trailer + n - 4, 4))
		return true;
	log_info("stream %u: CRC of a %s frame is wrong", t->s.id, rc_op_str(t->s.rx.h.op));
	return false;
}

/* The initiator's first frame: the responder may send requests, and its user knows that the
 * initiator is there. */
static void first_frame(struct stream *s)
{
	struct rc_frame h = { .op = RC_CTL };

	lock_assert_held(&s->lock);
	s->tx.muted = false;
	h.ctl.type = CTL_USER;
	h.ctl.code = STREAM_CTL_RTU;
	stream_up(s, &h);
}

static int frame_end(struct tcp_stream *t)
{
	struct stream *s = &t->s;

	lock_assert_held(&s->lock);
	t->in_frame = false;
	if (s->p.crc && !crc_is_right(t))
		return -EBADMSG;
	if (s->tx.muted)
		first_frame(s);
	if (s->rx.h.op != RC_TERMINATE || s->p.extended)
		return rx_frame_end(s, RC_BY_FRAME);
	rc_frame_in(s, &s->rx.h, RC_BY_FRAME);
	term_got(s, &s->rx.h);
	return 0;
}

/* A header may come in pieces: t->hdr keeps them. Bytes used, or -errno. */
static int rx_header(struct tcp_stream *t, const uint8_t *p, size_t n)
{
	const uint8_t *hdr = p;
	size_t have = n, before = t->have;
	int len;

	lock_assert_held(&t->s.lock);
	if (before) {
		if (n > RDMAP_HDR_MAX - before)
			n = RDMAP_HDR_MAX - before;
		memcpy(t->hdr + before, p, n);
		hdr = t->hdr;
		have = before + n;
	}
	len = rdmap_decode(hdr, have, &t->s.rx.h);
	if (len == -EAGAIN) {
		if (!before)
			memcpy(t->hdr, p, n);
		t->have = (uint32_t)have;
		return (int)n;
	}
	if (len < 0)
		return len;
	t->have = 0;
	t->trailer_left = rdmap_trailer((size_t)len, t->s.rx.h.payload);
	if (t->s.p.crc)
		t->crc = crc32c(CRC32C_INIT, hdr, (size_t)len);
	if (frame_begin(t))
		return -EPROTO;
	return len - (int)before;
}

static uint32_t rx_trailer(struct tcp_stream *t, const uint8_t *p, size_t n)
{
	uint32_t k = n < t->trailer_left ? (uint32_t)n : t->trailer_left;

	memcpy(t->trailer + t->trailer_have, p, k);
	t->trailer_have += k;
	t->trailer_left -= k;
	return k;
}

/* Keeps what is behind a message that waits; p may be in the stash already. */
static int rx_stash(struct tcp_stream *t, const uint8_t *p, size_t n)
{
	if (t->stash) {
		t->stash_pos = t->stash_len - n;
		return 0;
	}
	if (!n)
		return 0;
	t->stash = malloc(n);
	if (!t->stash)
		return -ENOMEM;
	memcpy(t->stash, p, n);
	t->stash_pos = 0;
	t->stash_len = n;
	return 0;
}

static int rx_parse(struct tcp_stream *t, const uint8_t *p, size_t n)
{
	int ret;

	lock_assert_held(&t->s.lock);
	while (!t->unframed) {
		if (t->in_frame && !t->left && !t->trailer_left && !t->s.rx.wait) {
			ret = frame_end(t);
			if (ret)
				return ret;
		}
		if (t->s.rx.wait)
			return rx_stash(t, p, n);
		if (!n || t->s.state == STREAM_BROKEN)
			return 0;
		if (!t->in_frame) {
			ret = rx_header(t, p, n);
			if (ret < 0)
				return ret;
		} else if (t->left) {
			uint32_t k = n < t->left ? (uint32_t)n : t->left;

			if (!payload_staged(t, p, k))
				return rx_stash(t, p, n);
			ret = (int)k;
		} else {
			ret = (int)rx_trailer(t, p, n);
		}
		p += ret;
		n -= (size_t)ret;
	}
	return 0;
}

/* Write order (doc/architecture.md): the last bytes of a placement in an iovec of
 * their own, so that they become visible after all before them. */
static int split_tail(struct iovec *iov, int n)
{
	struct iovec *last = &iov[n - 1];

	if (last->iov_len <= TCP_TAIL)
		return n;
	last->iov_len -= TCP_TAIL;
	iov[n] = (struct iovec){ (uint8_t *)last->iov_base + last->iov_len, TCP_TAIL };
	return n + 1;
}

static ssize_t rx_recv(struct tcp_stream *t, struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t ret;

	do {
		/* One buffer is the common case and the cheaper call. */
		ret = n == 1 ? sys_recv(t->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) :
			       sys_recvmsg(t->fd, &msg, MSG_DONTWAIT);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

/* Reads the rest of a large payload to its place, or sets rx.paging. *want: bytes asked
 * for. */
static ssize_t rx_in_place(struct tcp_stream *t, uint8_t *buf, size_t *want)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE + 2];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	uint32_t left = t->left, placed;
	int maps, n;
	ssize_t got;

	lock_assert_held(&t->s.lock);
	maps = rx_map(&t->s, left, &mem);
	if (maps <= 0) {
		if (maps < 0)
			rx_unplaceable(&t->s, maps);
		return 0;
	}
	if (rx_lacks_pages(&t->s, left, &mem, maps))
		return 0;
	n = split_tail(iov, maps);
	iov[n++] = (struct iovec){ buf, AHEAD };
	*want = left + AHEAD;
	got = rx_recv(t, iov, n);
	if (got > 0) {
		placed = (size_t)got < left ? (uint32_t)got : left;
		rx_placed(&t->s, placed);
		t->left -= placed;
	}
	sge_unmap(refs, maps);
	return got;
}

/* What was kept while it waited. */
static ssize_t rx_unstash(struct tcp_stream *t)
{
	size_t n = t->stash_len - t->stash_pos;
	int ret = rx_parse(t, t->stash + t->stash_pos, n);

	if (!stream_stands(&t->s) || ret) {
		free(t->stash);
		t->stash = NULL;
	}
	return ret ? ret : (ssize_t)n;
}

/* One system call's worth. Bytes, 0 nothing there (*more false), -errno. */
static ssize_t rx_once(struct tcp_stream *t, uint8_t *buf, bool *more)
{
	uint32_t left = t->left;
	size_t want = t->large || buf == last_resort ? AHEAD : TCP_STAGING;
	struct iovec iov = { buf, want };
	ssize_t got = 0;
	int ret;

	lock_assert_held(&t->s.lock);
	if (t->s.rx.wait)
		return rx_resume(&t->s);
	if (t->stash)
		return rx_unstash(t);
	if (t->in_frame && left >= TCP_IN_PLACE_MIN && t->s.rx.place != PLACE_SCRATCH &&
	    !t->s.p.crc) {
		got = rx_in_place(t, buf, &want);
		if (!got && t->s.rx.place == PLACE_SCRATCH)
			return 0; /* became unplaceable: try again into staging */
	} else {
		left = 0;
		iov.iov_len = want;
		got = rx_recv(t, &iov, 1);
	}
	if (got == -EAGAIN || t->s.rx.paging) {
		*more = false;
		return 0;
	}
	if (got <= 0)
		return got ? got : -EPIPE;
	*more = (size_t)got == want;
	ret = rx_parse(t, buf, (size_t)got > left ? (size_t)got - left : 0);
	return ret ? ret : got;
}

/* A completion that did not fit its CQ has flushed the QP: its work requests are
 * the application's again. */
static void rx_flushed(struct stream *s)
{
	struct dev_qp *qp = s->qp;
	bool gone;

	lock_assert_held(&s->lock);
	if (!to_tcp(s)->part || !qp)
		return;
	lock_get(&qp->lock);
	gone = !qp_may_receive_locked(qp);
	lock_put(&qp->lock);
	if (gone)
		tx_own_payload(s);
}

bool tcp_receive(struct stream *s)
{
	bool more = true, stood = stream_stands(s);
	size_t moved = 0;
	uint8_t *buf;

	lock_assert_held(&s->lock);
	buf = staging_get();
	if (!buf)
		return false;
	while (more && moved < RC_TURN && s->state != STREAM_BROKEN &&
	       s->state != STREAM_CLOSED) {
		ssize_t n = rx_once(to_tcp(s), buf, &more);

		if (n == -EPIPE) {
			stream_broken(s, 0, "the peer closed");
		} else if (n == -EFAULT) {
			rx_unplaceable(s, -EFAULT);
		} else if ((n == -EPROTO || n == -EBADMSG) && !s->p.extended) {
			term_bad_frame(s, (int)n);
			moved++; /* Terminate is to be sent */
		} else if (n < 0) {
			stream_broken(s, (int)n, "receiving failed");
		} else {
			moved += (size_t)n;
		}
		more &= !stream_stands(s);
	}
	staging_put(buf);
	if (stood != stream_stands(s))
		s->carrier->watch(s);
	rx_flushed(s);
	return moved > 0;
}

void tcp_go_on(struct stream *s)
{
	s->carrier->watch(s);
	stream_progress(s, true);
}
