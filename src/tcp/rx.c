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
 * Nothing here waits: what a frame obliges us to send is queued. */
#include "rc/stream.h"

#include "base/log.h"
#include "base/sys.h"
#include "tcp/crc32c.h"
#include "tcp/term.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { AHEAD = 4096 }; /* staging behind a direct read */

/* Two idle staging buffers for the whole process: more readers than that at
 * once are rare. */
static _Atomic(uint8_t *) idle[2];

static uint8_t *staging_get(void)
{
	for (int i = 0; i < 2; i++) {
		uint8_t *p = atomic_exchange(&idle[i], NULL);

		if (p)
			return p;
	}
	return malloc(TCP_STAGING);
}

static void staging_put(uint8_t *p)
{
	for (int i = 0; i < 2 && p; i++)
		p = atomic_exchange(&idle[i], p);
	free(p);
}

/* Where the next n payload bytes of the frame go. Number of iovecs, or -errno
 * when the memory is not (any more) to be had. */
static int rx_map(struct stream *s, uint32_t n, struct sge_mem *mem)
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
		/* The memory of an SRQ's receives is its PD's, not the QP's. */
		list = (struct sge_list){ qp->srq ? qp->srq->pd : rx->pd, qp->cur->sge,
					  qp->cur->num_sge, IBV_ACCESS_LOCAL_WRITE };
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
static void rx_unplaceable(struct stream *s, int err)
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
			resp_fail(s, NAK_REM_ACCESS, IBV_WC_SUCCESS, IBV_EVENT_QP_ACCESS_ERR,
				  why);
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

static void rx_placed(struct stream *s, uint32_t n)
{
	s->rx.off += n;
	s->rx.left -= n;
}

/* Payload that lies in the staging buffer. */
void rx_copy(struct stream *s, const uint8_t *p, uint32_t n)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	int k, ret;

	if (s->p.crc)
		s->rx.crc = crc32c(s->rx.crc, p, n);
	k = rx_map(s, n, &mem);
	ret = k < 0 ? k : place_iov(iov, k, p);
	sge_unmap(refs, k);
	if (ret)
		rx_unplaceable(s, ret);
	rx_placed(s, n);
}

int rx_fetch(struct stream *s, uint32_t n, rx_fetch_fn *fetch, const void *arg)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	int k = rx_map(s, n, &mem), ret = 0;

	if (k > 0)
		ret = fetch(arg, s, iov, k);
	sge_unmap(refs, k);
	if (k < 0)
		rx_unplaceable(s, k);
	if (!ret)
		rx_placed(s, n);
	return ret;
}

int rx_frame_begin(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	rx->in_frame = true;
	rx->left = rx->h.payload;
	rx->off = 0;
	rx->trailer_have = 0;
	rx->place = PLACE_SCRATCH;
	rx->large = rx->left >= TCP_IN_PLACE_MIN;
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
		log_info("stream %d: control message of unknown type %d", s->fd,
			 (int)h->ctl.type);
		return -EPROTO;
	}
}

/* The responder may speak, and its user knows that the initiator is there. */
static void rx_first(struct stream *s)
{
	struct rc_frame h = { .op = RC_CTL };

	lock_assert_held(&s->lock);
	s->tx.silent = false;
	h.ctl.type = CTL_USER;
	h.ctl.code = STREAM_CTL_RTU;
	stream_up(s, &h);
}

static int rx_terminate(struct stream *s)
{
	lock_assert_held(&s->lock);
	if (s->p.extended) {
		log_info("stream %d: the peer sent Terminate", s->fd);
		return -ECONNABORTED;
	}
	term_got(s, &s->rx.h);
	return 0;
}

int rx_frame_end(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	rx->in_frame = false;
	if (s->p.crc) {
		uint32_t n = rx->trailer_have;
		uint8_t want[4];

		crc32c_put(want, crc32c(rx->crc, rx->trailer, n - 4));
		if (memcmp(want, rx->trailer + n - 4, 4)) {
			log_info("stream %d: CRC of a %s frame is wrong", s->fd,
				 rc_op_str(rx->h.op));
			return -EBADMSG;
		}
	}
	if (s->tx.silent)
		rx_first(s);
	switch (rx->h.op) {
	case RC_READ_RESP:
		req_read_end(s);
		return 0;
	case RC_ATOMIC_RESP:
		return req_atomic_resp(s, &rx->h);
	case RC_CTL:
		return rx_ctl(s, &rx->h);
	case RC_TERMINATE:
		return rx_terminate(s);
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

/* A header may come in pieces: rx.hdr keeps them. Bytes used, or -errno. */
static int rx_header(struct stream *s, const uint8_t *p, size_t n)
{
	struct rc_rx *rx = &s->rx;
	const uint8_t *hdr = p;
	size_t have = n, before = rx->have;
	int len;

	lock_assert_held(&s->lock);
	if (before) {
		if (n > RDMAP_HDR_MAX - before)
			n = RDMAP_HDR_MAX - before;
		memcpy(rx->hdr + before, p, n);
		hdr = rx->hdr;
		have = before + n;
	}
	len = rdmap_decode(hdr, have, &rx->h);
	if (len == -EAGAIN) {
		if (!before)
			memcpy(rx->hdr, p, n);
		rx->have = (uint32_t)have;
		return (int)n;
	}
	if (len < 0)
		return len;
	rx->have = 0;
	rx->trailer_left = rdmap_trailer((size_t)len, rx->h.payload);
	if (s->p.crc)
		rx->crc = crc32c(CRC32C_INIT, hdr, (size_t)len);
	if (rx_frame_begin(s))
		return -EPROTO;
	return len - (int)before;
}

static uint32_t rx_trailer(struct stream *s, const uint8_t *p, size_t n)
{
	struct rc_rx *rx = &s->rx;
	uint32_t k = n < rx->trailer_left ? (uint32_t)n : rx->trailer_left;

	memcpy(rx->trailer + rx->trailer_have, p, k);
	rx->trailer_have += k;
	rx->trailer_left -= k;
	return k;
}

/* Keeps what is behind a message that waits; p may be in the stash already. */
static int rx_stash(struct stream *s, const uint8_t *p, size_t n)
{
	struct rc_rx *rx = &s->rx;

	if (rx->stash) {
		rx->stash_pos = rx->stash_len - n;
		return 0;
	}
	if (!n)
		return 0;
	rx->stash = malloc(n);
	if (!rx->stash)
		return -ENOMEM;
	memcpy(rx->stash, p, n);
	rx->stash_pos = 0;
	rx->stash_len = n;
	return 0;
}

static int rx_parse(struct stream *s, const uint8_t *p, size_t n)
{
	struct rc_rx *rx = &s->rx;
	int ret;

	lock_assert_held(&s->lock);
	while (!rx->junk) {
		if (rx->in_frame && !rx->left && !rx->trailer_left && !rx->wait) {
			ret = rx_frame_end(s);
			if (ret)
				return ret;
		}
		if (rx->wait)
			return rx_stash(s, p, n);
		if (!n || s->state == STREAM_BROKEN)
			return 0;
		if (!rx->in_frame) {
			ret = rx_header(s, p, n);
			if (ret < 0)
				return ret;
		} else if (rx->left) {
			uint32_t k = n < rx->left ? (uint32_t)n : rx->left;

			rx_copy(s, p, k);
			ret = (int)k;
		} else {
			ret = (int)rx_trailer(s, p, n);
		}
		p += ret;
		n -= (size_t)ret;
	}
	return 0;
}

/* Write order (DESIGN section 2): the last bytes of a placement in an iovec of
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

static ssize_t rx_recv(struct stream *s, struct iovec *iov, int n)
{
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t ret;

	do {
		/* One buffer is the common case and the cheaper call. */
		ret = n == 1 ? sys_recv(s->fd, iov->iov_base, iov->iov_len, MSG_DONTWAIT) :
			       sys_recvmsg(s->fd, &msg, MSG_DONTWAIT);
	} while (ret < 0 && errno == EINTR);
	return ret < 0 ? -errno : ret;
}

/* Reads the rest of a large payload to its place. *want: bytes asked for. */
static ssize_t rx_direct(struct stream *s, uint8_t *buf, size_t *want)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE + 2];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	uint32_t left = s->rx.left, direct;
	int maps, n;
	ssize_t got;

	maps = rx_map(s, left, &mem);
	if (maps <= 0) {
		if (maps < 0)
			rx_unplaceable(s, maps);
		return 0;
	}
	n = split_tail(iov, maps);
	iov[n++] = (struct iovec){ buf, AHEAD };
	*want = left + AHEAD;
	got = rx_recv(s, iov, n);
	if (got > 0) {
		direct = (size_t)got < left ? (uint32_t)got : left;
		if (s->p.crc) {
			uint32_t k = direct;

			for (int i = 0; i < n && k; i++) {
				size_t part = iov[i].iov_len < k ? iov[i].iov_len : k;

				s->rx.crc = crc32c(s->rx.crc, iov[i].iov_base, part);
				k -= (uint32_t)part;
			}
		}
		rx_placed(s, direct);
	}
	sge_unmap(refs, maps);
	return got;
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

/* What was kept while it waited. */
static ssize_t rx_unstash(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	size_t n = rx->stash_len - rx->stash_pos;
	int ret = rx_parse(s, rx->stash + rx->stash_pos, n);

	if (!rx->wait || ret) {
		free(rx->stash);
		rx->stash = NULL;
	}
	return ret ? ret : (ssize_t)n;
}

/* One system call's worth. Bytes, 0 nothing there (*more false), -errno. */
static ssize_t rx_once(struct stream *s, uint8_t *buf, bool *more)
{
	uint32_t left = s->rx.left;
	size_t want = s->rx.large ? AHEAD : TCP_STAGING;
	struct iovec iov = { buf, want };
	ssize_t got = 0;
	int ret;

	lock_assert_held(&s->lock);
	if (s->rx.wait)
		return rx_resume(s);
	if (s->rx.stash)
		return rx_unstash(s);
	if (s->rx.in_frame && left >= TCP_IN_PLACE_MIN && s->rx.place != PLACE_SCRATCH) {
		got = rx_direct(s, buf, &want);
		if (!got && s->rx.place == PLACE_SCRATCH)
			return 0; /* became unplaceable: try again into staging */
	} else {
		left = 0;
		iov.iov_len = want;
		got = rx_recv(s, &iov, 1);
	}
	if (got == -EAGAIN) {
		*more = false;
		return 0;
	}
	if (got <= 0)
		return got ? got : -EPIPE;
	*more = (size_t)got == want;
	ret = rx_parse(s, buf, (size_t)got > left ? (size_t)got - left : 0);
	return ret ? ret : got;
}

/* A completion that did not fit its CQ has flushed the QP: its work requests are
 * the application's again. */
static void rx_flushed(struct stream *s)
{
	struct dev_qp *qp = s->qp;
	bool gone;

	lock_assert_held(&s->lock);
	if (!s->tx.part || !qp)
		return;
	lock_get(&qp->lock);
	gone = !qp_may_receive_locked(qp);
	lock_put(&qp->lock);
	if (gone)
		tx_own_part(s);
}

bool rx_run(struct stream *s)
{
	bool more = true, waited = s->rx.wait != WAIT_NONE;
	size_t moved = 0;
	uint8_t *buf;

	lock_assert_held(&s->lock);
	buf = staging_get();
	if (!buf)
		return false;
	while (more && moved < RC_TURN && s->state != STREAM_BROKEN &&
	       s->state != STREAM_CLOSED) {
		ssize_t n = rx_once(s, buf, &more);

		if (n == -EPIPE) {
			stream_broken(s, 0, "the peer closed");
		} else if (n == -EFAULT) {
			rx_unplaceable(s, -EFAULT);
		} else if ((n == -EPROTO || n == -EBADMSG) && !s->p.extended) {
			resp_bad_frame(s, (int)n);
			moved++; /* Terminate is to be sent */
		} else if (n < 0) {
			stream_broken(s, (int)n, "receiving failed");
		} else {
			moved += (size_t)n;
		}
		more &= !s->rx.wait;
	}
	staging_put(buf);
	if (waited != (s->rx.wait != WAIT_NONE))
		s->m->watch(s);
	rx_flushed(s);
	return moved > 0;
}
