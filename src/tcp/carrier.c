/* SPDX-License-Identifier: BSD-2-Clause */
/* The descriptor of a stream over TCP, and who watches it. Without a QP the loop thread does
 * (lf); with one, the poll group of its receive CQ (src). */
#include "base/fdset.h"
#include "base/sys.h"
#include "rc/tx.h"
#include "tcp/tcp.h"
#include "tcp/term.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
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

/* ---- watching ---------------------------------------------------------------------- */

static bool source_progress(struct poll_source *src, bool by_thread)
{
	struct tcp_stream *t = container_of(src, struct tcp_stream, src);
	struct stream *s = &t->s;
	bool moved;

	if (by_thread)
		lock_get(&s->lock);
	else if (!lock_try(&s->lock))
		return false;
	/* On its way in or out of the group: what is read now would be read without the
	 * QP, and lost if it is an unreliable one. */
	moved = s->grouped && stream_progress(s, by_thread);
	src->again = s->grouped && s->rx.ack_owed;
	src->bulk = moved && t->large;
	stream_unlock(s);
	return moved;
}

/* The peer has ended while input is held. With the stream's lock. */
NO_TSA static void held_end(struct stream *s)
{
	char byte;
	ssize_t n = sys_recv(to_tcp(s)->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	stream_ended_early(s, n > 0, n ? -errno : 0);
}

static void lf_ready(struct loop_fd *lf, uint32_t revents)
{
	struct stream *s = &container_of(lf, struct tcp_stream, lf)->s;

	lock_get(&s->lock);
	if (s->input_held && revents & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		held_end(s);
	stream_progress(s, true);
	stream_unlock(s);
}

/* epoll's bits of what the stream waits for. */
static uint32_t events_of(const struct stream *s)
{
	uint32_t out = s->tx.blocked ? EPOLLOUT : 0;

	if (s->state == STREAM_BROKEN || s->state == STREAM_CLOSED)
		return 0;
	if (s->rx.paging || (s->rx.wait && s->qp && s->state == STREAM_OPEN))
		return out;
	if (s->input_held)
		return (s->peer_ended ? 0 : EPOLLRDHUP) | out;
	return EPOLLIN | out;
}

NO_TSA static int watch(struct stream *s)
{
	struct tcp_stream *t = to_tcp(s);
	uint32_t events = events_of(s);
	int ret = 0;

	if (s->grouped)
		ret = poll_mod(&t->src, events);
	if (ret || s->state == STREAM_CLOSED)
		return ret;
	if (s->grouped)
		events = 0;
	return t->lf.events == events ? 0 : loop_fd_mod(&t->lf, events);
}

static int join(struct stream *s, struct dev_cq *cq)
{
	return poll_add(cq, &to_tcp(s)->src);
}

static void leave(struct stream *s)
{
	poll_del(&to_tcp(s)->src);
}

/* ---- who sends first on a plain stream (RFC 5044 section 7.1, RFC 6581 section 3) ------ */

static void yield_over(struct loop_timer *timer)
{
	struct stream *s = &container_of(timer, struct tcp_stream, yield)->s;

	lock_get(&s->lock);
	s->tx.muted = false;
	if (s->state == STREAM_OPEN)
		tx_run(s);
	stream_unlock(s);
	stream_put(s);
}

static void plain_start(struct tcp_stream *t)
{
	struct rc_frame rtr = { .op = RC_WRITE, .last = true };
	struct stream *s = &t->s;

	lock_get(&s->lock);
	if (s->p.first == STREAM_FIRST_SEND)
		tx_ctl(s, &rtr);
	s->tx.muted = s->p.first == STREAM_FIRST_WAIT || s->p.first == STREAM_FIRST_YIELD;
	if (s->p.first == STREAM_FIRST_YIELD) {
		t->yield.fire = yield_over;
		stream_get(s);
		if (!loop_timer_set(&t->yield, loop_now() + TCP_YIELD_MS * MSEC))
			stream_put(s);
	}
	lock_put(&s->lock);
}

/* ---- life ---------------------------------------------------------------------------- */

static int start(struct stream *s)
{
	struct tcp_stream *t = to_tcp(s);
	int ret;

	s->payload_max = s->p.extended ? FPDU_PAYLOAD_MAX : plain_fpdu_max(t->fd);
	if (s->p.crc && s->payload_max > TCP_CRC_PAYLOAD_MAX)
		s->payload_max = TCP_CRC_PAYLOAD_MAX;
	t->src.fd = t->fd;
	t->src.progress = source_progress;
	t->lf = (struct loop_fd){ .fd = t->fd, .ready = lf_ready };
	ret = loop_fd_add(&t->lf);
	if (!ret && !s->p.extended)
		plain_start(t);
	return ret;
}

static void shut(struct stream *s)
{
	shutdown(to_tcp(s)->out, SHUT_WR);
}

static int discard(struct stream *s)
{
	int fd = to_tcp(s)->fd;
	uint8_t scrap[1024]; /* of the stack of a poller */
	size_t moved = 0;
	ssize_t n;

	do {
		n = sys_recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT);
		moved += n > 0 ? (size_t)n : 0;
	} while ((n > 0 && moved < RC_TURN) || (n < 0 && errno == EINTR));
	return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) ? -EAGAIN : 0;
}

static void reset(struct stream *s)
{
	struct linger l = { .l_onoff = 1 };
	int fd = to_tcp(s)->fd;

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	shutdown(fd, SHUT_RDWR);
}

static void forgotten(struct loop_fd *lf)
{
	struct tcp_stream *t = container_of(lf, struct tcp_stream, lf);

	if (t->out != t->fd)
		fdset_close(t->out);
	fdset_close(t->fd);
	stream_put(&t->s);
}

static void finish(struct stream *s)
{
	struct tcp_stream *t = to_tcp(s);

	if (loop_timer_stop(&t->yield))
		stream_put(s); /* not the last: the descriptor has one */
	loop_fd_del(&t->lf, forgotten);
}

static void fini(struct stream *s)
{
	tcp_tx_fini(to_tcp(s));
	free(to_tcp(s)->stash);
}

/* stream_put() frees it by the address of the stream. */
_Static_assert(offsetof(struct tcp_stream, s) == 0, "begins with the stream");

static struct tcp_stream *tcp_new(int fd, int out, const struct stream_param *p)
{
	struct tcp_stream *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	stream_init(&t->s, &tcp_carrier, p);
	t->fd = fd;
	t->out = out;
	return t;
}

static int first_bytes(struct tcp_stream *t, const uint8_t *first, size_t len)
{
	if (!len)
		return 0;
	t->first = malloc(len);
	if (!t->first)
		return -ENOMEM;
	memcpy(t->first, first, len);
	t->first_len = (uint32_t)len;
	t->s.tx.cut = true;
	return 0;
}

struct stream *tcp_open(int fd, const struct stream_param *p, const uint8_t *first, size_t len,
			const struct stream_user *ops, void *user)
{
	struct tcp_stream *t = tcp_new(fd, fd, p);
	int ret;

	if (!t)
		return NULL;
	t->s.ops = ops;
	t->s.user = user;
	t->s.user_gone = !ops;
	ret = first_bytes(t, first, len);
	if (!ret)
		ret = stream_start(&t->s);
	if (!ret)
		return &t->s;
	stream_put(&t->s);
	errno = -ret;
	return NULL;
}

int tcp_open_self(const struct stream_param *p)
{
	struct tcp_stream *t;
	int sv[2], ret = -ENOMEM;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sv))
		return -errno;
	sv[0] = fdset_take(sv[0]);
	sv[1] = fdset_take(sv[1]);
	t = tcp_new(sv[0], sv[1], p);
	if (t)
		ret = stream_start(&t->s);
	if (!ret)
		return 0;
	if (t)
		stream_put(&t->s);
	fdset_close(sv[0]);
	fdset_close(sv[1]);
	return ret;
}

/* ---- time ---------------------------------------------------------------------------- */

/* The retry budget of a QP runs only while the peer's host is silent,
 * that is, while TCP itself has unacknowledged data and hears nothing. The last
 * ack is old on an idle connection too: only repeated timeouts of TCP itself say
 * that nobody answers. */
static bool silent(struct stream *s, uint64_t budget)
{
	struct tcp_info ti;
	socklen_t len = sizeof(ti);

	memset(&ti, 0, sizeof(ti));
	if (getsockopt(to_tcp(s)->fd, IPPROTO_TCP, TCP_INFO, &ti, &len))
		return false;
	return ti.tcpi_unacked && ti.tcpi_retransmits > 1 &&
	       ti.tcpi_last_ack_recv * MSEC >= budget;
}

static uint64_t consumed(struct stream *s)
{
	return to_tcp(s)->sent;
}

const struct rc_carrier tcp_carrier = {
	.name = "TCP",
	.start = start,
	.shut = shut,
	.discard = discard,
	.reset = reset,
	.finish = finish,
	.fini = fini,
	.send = tcp_send,
	.receive = tcp_receive,
	.go_on = tcp_go_on,
	.own_payload = tcp_own_payload,
	.refuse = term_refuse,
	.watch = watch,
	.join = join,
	.leave = leave,
	.silent = silent,
	.consumed = consumed,
	.patience = UC_TICKS,
};
