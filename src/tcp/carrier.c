/* SPDX-License-Identifier: BSD-2-Clause */
/* TCP as the carrier of a stream: its descriptor, and who watches it. Without a QP
 * the loop thread does (lf); with one, the poll group of its receive CQ (src). */
#include "rc/stream.h"

#include "base/fdset.h"
#include "base/sys.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* RFC 5044 section 4.1: an FPDU fits one TCP segment; iWARP hardware relies on it.
 * 6: length and CRC, 18: the larger DDP header. */
static uint32_t plain_fpdu_max(int fd)
{
	int mss = 0;
	socklen_t len = sizeof(mss);

	if (getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mss, &len) || mss <= 0)
		return FPDU_PAYLOAD_MAX;
	mss = (mss & ~3) - 6 - 18;
	if (mss < 128)
		return 128;
	return mss > FPDU_PAYLOAD_MAX ? FPDU_PAYLOAD_MAX : (uint32_t)mss & ~3u;
}

static bool source_progress(struct poll_source *src, bool by_thread)
{
	struct stream *s = container_of(src, struct stream, src);
	bool moved;

	if (by_thread)
		lock_get(&s->lock);
	else if (!lock_try(&s->lock))
		return false;
	/* On its way in or out of the group: what is read now would be read without the
	 * QP, and lost if it is an unreliable one. */
	moved = s->grouped && stream_progress(s, by_thread);
	src->again = s->grouped && s->rx.ack_owed;
	src->bulk = moved && s->rx.large;
	stream_unlock(s);
	return moved;
}

/* With the stream's lock. */
NO_TSA static void hangup(struct stream *s)
{
	char byte;
	ssize_t n = sys_recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	stream_ended_early(s, n > 0, n ? -errno : 0);
}

static void lf_ready(struct loop_fd *lf, uint32_t revents)
{
	struct stream *s = container_of(lf, struct stream, lf);

	lock_get(&s->lock);
	if (s->input_held && revents & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		hangup(s);
	stream_progress(s, true);
	stream_unlock(s);
}

static int start(struct stream *s)
{
	s->fpdu_max = s->p.extended ? FPDU_PAYLOAD_MAX : plain_fpdu_max(s->fd);
	s->src.fd = s->fd;
	s->src.progress = source_progress;
	s->lf = (struct loop_fd){ .fd = s->fd, .ready = lf_ready };
	return loop_fd_add(&s->lf);
}

NO_TSA static int watch(struct stream *s)
{
	uint32_t events = stream_events(s);
	int ret = 0;

	if (s->grouped)
		ret = poll_mod(&s->src, events);
	if (ret || s->state == STREAM_CLOSED)
		return ret;
	if (s->grouped)
		events = 0;
	return s->lf.events == events ? 0 : loop_fd_mod(&s->lf, events);
}

static int join(struct stream *s, struct dev_cq *cq)
{
	return poll_add(cq, &s->src);
}

static void leave(struct stream *s)
{
	poll_del(&s->src);
}

static void shut(struct stream *s)
{
	shutdown(s->out, SHUT_WR);
}

static int drain(struct stream *s)
{
	uint8_t junk[4096];
	size_t moved = 0;
	ssize_t n;

	do {
		n = sys_recv(s->fd, junk, sizeof(junk), MSG_DONTWAIT);
		moved += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && moved < RC_TURN) || (n < 0 && errno == EINTR));
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) ? -EAGAIN : 0;
}

static void reset(struct stream *s)
{
	struct linger l = { .l_onoff = 1 };

	setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	shutdown(s->fd, SHUT_RDWR);
}

static void forgotten(struct loop_fd *lf)
{
	struct stream *s = container_of(lf, struct stream, lf);

	if (s->out != s->fd)
		fdset_close(s->out);
	fdset_close(s->fd);
	stream_put(s);
}

static void finish(struct stream *s)
{
	loop_fd_del(&s->lf, forgotten);
}

/* DESIGN section 4, time: the budget runs only while the peer's host is silent,
 * that is, while TCP itself has unacknowledged data and hears nothing. The last
 * ack is old on an idle connection too: only repeated timeouts of TCP itself say
 * that nobody answers. */
static bool silent(struct stream *s, uint64_t budget)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	memset(&ti, 0, sizeof(ti));
	if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &ti, &len))
		return false;
	return ti.tcpi_unacked && ti.tcpi_retransmits > 1 &&
	       ti.tcpi_last_ack_recv * MSEC >= budget;
}

const struct carrier tcp_carrier = {
	.start = start,
	.send = tx_tcp,
	.receive = rx_run,
	.watch = watch,
	.join = join,
	.leave = leave,
	.shut = shut,
	.drain = drain,
	.reset = reset,
	.finish = finish,
	.silent = silent,
	.patience = UC_TICKS,
};
