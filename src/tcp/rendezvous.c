/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. match.lock guards all objects here. An attempt (out) belongs to a waiting
 * QP and ends by success or cancel(); after a failure it tries again after a pause. An
 * arrival (in) is a connection to our rendezvous port: until its HELLO is complete it may
 * take HELLO_MS; a HELLO for a QP that is not yet in RTR is kept for KEPT_MS, at most
 * KEPT_MAX of them. Where there are too many of either, the oldest of the origin that has
 * the most goes: a peer of ours comes again. Descriptors and memory go when the loop has
 * forgotten them.
 *
 * A question is an attempt whose HELLO only asks (MPA_KIND_ASK). It is answered at once,
 * unless the process is stopped: the kernel takes the connection all the same. A refused
 * connection alone does not mean that the process is gone, as the port of a number listens
 * only from the first QP in INIT on. The UDP port is bound as long as the process lives: an
 * empty datagram, which nobody reads, tells by ICMP.
 *
 * A QP that is connected to itself is its own arrival: a socket pair (struct rdv_self). */
#include "tcp/rendezvous.h"

#include "base/conf.h"
#include "base/origin.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "rc/match.h"
#include "tcp/tcp.h"
#include "tcp/mpa.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	HELLO_MS = 5000,
	KEPT_MS = 10000,
	KEPT_MAX = 64,
	SILENT_MAX = 256, /* arrivals without a complete HELLO */
	RETRY_MIN_MS = 10,
	RETRY_MAX_MS = 200,
	ASK_MIN_MS = 100,
	ASK_MAX_MS = 500,
	ALIVE_S = 1, /* so often a host is asked that has taken a question, */
	ALIVE_MAX = 3, /* and is not there after so many without an answer */
};

/* Of hello.ask it is a question, else an attempt. */
struct rdv_out {
	union {
		struct rc_attempt attempt;
		struct rc_question question; /* hello.ask */
	};
	int refs; /* owner; registered fd; pending timer */
	bool cancelled;
	bool heard; /* question: the process has taken a connection once */
	int udp;    /* question: an empty datagram was sent to the peer's port; or -1 */
	struct stream_key key;
	struct mpa_hello hello;
	struct sockaddr_storage from, to;
	socklen_t from_len, to_len;
	int fd; /* -1 between attempts */
	bool connected, keep_fd, dropped;
	unsigned pause_ms, pause_max;
	struct loop_fd lf;
	struct loop_timer timer;
	uint8_t buf[MPA_FRAME_MAX];
	size_t have;
};

struct rdv_in {
	struct rc_arrival arrival;
	struct list link; /* arrivals */
	int refs;	  /* fd, timer, accept() */
	bool complete, gone, keep_fd;
	uint8_t origin; /* base/origin.h */
	struct stream_key key;
	struct mpa_hello hello;
	struct loop_fd lf;
	struct loop_timer timer;
	uint8_t buf[MPA_FRAME_MAX];
	size_t have;
};

/* A QP that is connected to itself. */
struct rdv_self {
	struct rc_arrival arrival;
	struct stream_param p;
};

static const struct rc_rendezvous tcp_self;

static struct list arrivals PROCESS_STATE = LIST_INIT(arrivals); /* oldest first */
/* Of these [1] have said HELLO, [0] have not. */
static struct {
	unsigned count;
	struct origins origins;
} sorts[2] PROCESS_STATE;

static void tune(int fd)
{
	int on = 1, snd = (int)conf_get()->sndbuf, rcv = (int)conf_get()->rcvbuf;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (snd)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &snd, sizeof(snd));
	if (rcv)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcv, sizeof(rcv));
}

static void param_of(struct stream_param *p, const struct stream_key *k,
		     const uint8_t local_gid[16], bool crc)
{
	*p = (struct stream_param){
		.remote_gid = k->remote_gid,
		.local_qpn = k->local_qpn,
		.remote_qpn = k->remote_qpn,
		.crc = crc,
		.extended = true,
		.unreliable = k->unreliable,
	};
	memcpy(p->local_gid.raw, local_gid, 16);
}

/* Reads what is missing of an MPA frame, not a byte more. 0 when complete,
 * -EAGAIN, or another -errno. */
static int frame_read(int fd, uint8_t *buf, size_t *have, struct mpa_frame *f)
{
	for (;;) {
		int ret = mpa_decode(buf, *have, f);
		ssize_t n;

		if (ret != -EAGAIN)
			return ret < 0 ? ret : 0;
		n = recv(fd, buf + *have, mpa_want(buf, *have), MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		*have += (size_t)n;
	}
}

/* ---- outgoing -------------------------------------------------------------- */

static void out_put(struct rdv_out *o)
{
	if (--o->refs)
		return;
	if (o->udp >= 0)
		fdset_close(o->udp);
	free(o);
}

static void out_forgotten(struct loop_fd *lf)
{
	struct rdv_out *o = container_of(lf, struct rdv_out, lf);

	match_lock();
	if (!o->keep_fd)
		fdset_close(lf->fd);
	o->fd = -1;
	out_put(o);
	match_unlock();
}

static void out_retry_later(struct rdv_out *o)
{
	o->refs++;
	if (!loop_timer_set(&o->timer, loop_now() + o->pause_ms * MSEC))
		o->refs--;
	o->pause_ms = o->pause_ms * 2 < o->pause_max ? o->pause_ms * 2 : o->pause_max;
}

/* Lets go of the descriptor; o->fd is -1 when the loop has forgotten it. */
static void out_drop(struct rdv_out *o)
{
	if (o->fd < 0 || o->dropped)
		return;
	o->dropped = true;
	loop_fd_del(&o->lf, out_forgotten);
}

static int out_hello(struct rdv_out *o)
{
	uint8_t frame[MPA_OURS_MAX];
	int len = mpa_hello_encode(frame, sizeof(frame), &o->hello);

	if (len < 0)
		return len;
	/* A fresh connection takes a frame of this size whole. */
	if (send(o->fd, frame, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) != len)
		return -EIO;
	loop_fd_mod(&o->lf, EPOLLIN);
	o->connected = true;
	return 0;
}

/* 1: there is an answer, 0: wait, -errno: try again. */
static int out_step(struct rdv_out *o, struct mpa_hello_rep *rep)
{
	struct mpa_frame f;
	int err = 0, ret;
	socklen_t len = sizeof(err);

	if (!o->connected) {
		getsockopt(o->fd, SOL_SOCKET, SO_ERROR, &err, &len);
		return err ? -err : out_hello(o);
	}
	ret = frame_read(o->fd, o->buf, &o->have, &f);
	if (ret)
		return ret == -EAGAIN ? 0 : ret;
	ret = mpa_hello_rep_decode(&f, rep);
	return ret ? ret : 1;
}

static void out_ready(struct loop_fd *lf, uint32_t revents)
{
	struct rdv_out *o = container_of(lf, struct rdv_out, lf);
	struct mpa_hello_rep rep = { 0 };
	struct stream_param p;
	int ret, fd;

	(void)revents;
	match_lock();
	ret = o->cancelled || o->dropped ? 0 : out_step(o, &rep);
	if (ret > 0 && rep.status != MPA_HELLO_ACCEPTED)
		ret = -EAGAIN;
	if (ret < 0) {
		log_debug("QP %06x: rendezvous with QP %06x: %s", o->key.local_qpn,
			  o->key.remote_qpn, strerror(-ret));
		out_drop(o);
		if (ret != -ECONNREFUSED || !match_failed_locked(&o->attempt, ret))
			out_retry_later(o);
	}
	if (ret <= 0) {
		match_unlock();
		return;
	}
	fd = o->fd;
	param_of(&p, &o->key, o->hello.src_gid, rep.crc);
	o->keep_fd = o->cancelled = true;
	out_drop(o);
	match_found_locked(&o->attempt);
	out_put(o); /* the owner's */
	match_unlock();
	if (!tcp_open(fd, &p, NULL, 0, NULL, NULL))
		fdset_close(fd);
}

static void ask_ready(struct loop_fd *lf, uint32_t revents);

static int out_start(struct rdv_out *o)
{
	int on = 1;

	o->fd = fdset_take(socket(o->to.ss_family,
				  SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (o->fd < 0)
		return -errno;
	tune(o->fd);
	setsockopt(o->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	o->connected = o->keep_fd = o->dropped = false;
	o->have = 0;
	if (bind(o->fd, (struct sockaddr *)&o->from, o->from_len) ||
	    (connect(o->fd, (struct sockaddr *)&o->to, o->to_len) && errno != EINPROGRESS)) {
		int ret = -errno;

		fdset_close(o->fd);
		o->fd = -1;
		return ret;
	}
	o->lf = (struct loop_fd){ .fd = o->fd,
				  .events = EPOLLOUT,
				  .ready = o->hello.ask ? ask_ready : out_ready };
	o->refs++;
	if (loop_fd_add(&o->lf)) {
		o->refs--;
		fdset_close(o->fd);
		o->fd = -1;
		return -EMFILE;
	}
	return 0;
}

static void out_again(struct loop_timer *t)
{
	struct rdv_out *o = container_of(t, struct rdv_out, timer);

	match_lock();
	/* The descriptor of the last attempt may not be forgotten yet. */
	if (!o->cancelled && (o->fd >= 0 || out_start(o)))
		out_retry_later(o);
	out_put(o);
	match_unlock();
}

static struct rdv_out *out_new(struct dev_qp *qp, const struct stream_key *key)
{
	struct rdv_out *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->refs = 1;
	o->fd = o->udp = -1;
	o->key = *key;
	o->from_len = gid_to_addr(&qp->local_gid, qp->local_ifindex, 0, &o->from);
	o->to_len = gid_to_addr(&key->remote_gid, qp->local_ifindex,
				(uint16_t)(key->remote_qpn >> 8), &o->to);
	o->hello = (struct mpa_hello){
		.crc = conf_get()->crc,
		.mtu = (uint8_t)qp->attr.path_mtu,
		.qp_type = (uint8_t)qp->qp.qp_type,
		.ird = qp->attr.max_dest_rd_atomic,
		.src_qpn = key->local_qpn,
		.dst_qpn = key->remote_qpn,
		.rq_psn = qp->attr.rq_psn & 0xffffff,
	};
	memcpy(o->hello.src_gid, qp->local_gid.raw, 16);
	memcpy(o->hello.dst_gid, key->remote_gid.raw, 16);
	return o;
}

/* The serial is not needed: a HELLO of an earlier wait has ended with its connection, which
 * out_cancel() shuts down. */
static struct rc_attempt *rdv_connect(struct dev_qp *qp, const struct stream_key *key,
				      uint64_t serial, bool pause)
{
	struct rdv_out *o = out_new(qp, key);

	(void)serial;
	if (!o)
		return NULL;
	o->attempt.via = &tcp_rendezvous;
	o->pause_ms = RETRY_MIN_MS;
	o->pause_max = RETRY_MAX_MS;
	o->timer.fire = out_again;
	if (pause || out_start(o))
		out_retry_later(o);
	return &o->attempt;
}

/* The peer hears of it at once, not when the loop has closed the descriptor: its QP
 * and ours may be on their way to each other again, and a HELLO that still looks
 * alive would be taken for the new one. */
static void out_cancel(struct rdv_out *o)
{
	o->cancelled = true;
	if (o->fd >= 0 && !o->dropped)
		shutdown(o->fd, SHUT_RDWR);
	out_drop(o);
	if (loop_timer_stop(&o->timer))
		o->refs--;
	out_put(o);
}

static void rdv_cancel(struct rc_attempt *a)
{
	out_cancel(container_of(a, struct rdv_out, attempt));
}

/* ---- questions ---------------------------------------------------------------- */

/* Is the port bound at all? ask_again() looks for what comes back. */
static void ask_udp(struct rdv_out *o)
{
	o->udp = fdset_take(socket(o->to.ss_family,
				   SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (o->udp < 0)
		return;
	if (bind(o->udp, (struct sockaddr *)&o->from, o->from_len) ||
	    connect(o->udp, (struct sockaddr *)&o->to, o->to_len) ||
	    send(o->udp, NULL, 0, MSG_NOSIGNAL) < 0)
		log_debug("QP %06x: no datagram to the process of QP %06x: %s",
			  o->key.local_qpn, o->key.remote_qpn, strerror(errno));
}

/* Nobody answers, for now. */
static void ask_failed(struct rdv_out *o, int err)
{
	if (err != -ECONNREFUSED)
		o->question.peer = RC_PEER_UNKNOWN;
	else if (o->heard)
		o->question.peer = RC_PEER_GONE; /* once it listens, it does to its end */
	else if (o->udp < 0)
		ask_udp(o);
}

/* The kernel of a stopped process acknowledges; a host that is gone does not. */
static void ask_taken(struct rdv_out *o)
{
	int on = 1, every = ALIVE_S, max = ALIVE_MAX;

	o->heard = true;
	o->question.peer = RC_PEER_SILENT;
	setsockopt(o->fd, IPPROTO_TCP, TCP_KEEPIDLE, &every, sizeof(every));
	setsockopt(o->fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(o->fd, IPPROTO_TCP, TCP_KEEPCNT, &max, sizeof(max));
	setsockopt(o->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

static void ask_ready(struct loop_fd *lf, uint32_t revents)
{
	struct rdv_out *o = container_of(lf, struct rdv_out, lf);
	struct mpa_hello_rep rep = { 0 };
	bool was;
	int ret;

	(void)revents;
	match_lock();
	was = o->connected;
	ret = o->cancelled || o->dropped ? 0 : out_step(o, &rep);
	if (!ret && o->connected && !was)
		ask_taken(o);
	if (ret > 0)
		o->question.peer = rep.status == MPA_HELLO_NO_QP ? RC_PEER_NO_QP :
								   RC_PEER_NOT_READY;
	if (ret < 0)
		ask_failed(o, ret);
	if (ret) {
		out_drop(o);
		out_retry_later(o);
	}
	match_unlock();
}

/* What has come back to the datagram. */
static void ask_udp_look(struct rdv_out *o)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (o->udp < 0)
		return;
	getsockopt(o->udp, SOL_SOCKET, SO_ERROR, &err, &len);
	if (err == ECONNREFUSED)
		o->question.peer = RC_PEER_GONE;
	fdset_close(o->udp);
	o->udp = -1;
}

static void ask_again(struct loop_timer *t)
{
	struct rdv_out *o = container_of(t, struct rdv_out, timer);
	int ret = 0;

	match_lock();
	if (!o->cancelled) {
		ask_udp_look(o);
		/* The descriptor of the last time may not be forgotten yet. */
		ret = o->fd >= 0 ? -EAGAIN : out_start(o);
		if (ret && o->fd < 0)
			ask_failed(o, ret);
		if (ret)
			out_retry_later(o);
	}
	out_put(o);
	match_unlock();
}

static struct rc_question *rdv_ask(struct dev_qp *qp, const struct stream_key *key)
{
	struct rdv_out *o = out_new(qp, key);
	int ret;

	if (!o)
		return NULL;
	o->question.via = &tcp_rendezvous;
	o->hello.ask = true;
	o->pause_ms = ASK_MIN_MS;
	o->pause_max = ASK_MAX_MS;
	o->timer.fire = ask_again;
	ret = out_start(o);
	if (ret) {
		ask_failed(o, ret);
		out_retry_later(o);
	}
	return &o->question;
}

static void rdv_forget(struct rc_question *q)
{
	out_cancel(container_of(q, struct rdv_out, question));
}

/* ---- incoming --------------------------------------------------------------- */

static void in_put(struct rdv_in *in)
{
	if (!--in->refs)
		free(in);
}

static void in_forgotten(struct loop_fd *lf)
{
	struct rdv_in *in = container_of(lf, struct rdv_in, lf);

	match_lock();
	if (!in->keep_fd)
		fdset_close(lf->fd);
	in_put(in);
	match_unlock();
}

static void in_count(const struct rdv_in *in, int n)
{
	sorts[in->complete].count += (unsigned)n;
	sorts[in->complete].origins.from[in->origin] += (unsigned)n;
}

/* Out of the list and of the loop; the descriptor follows unless kept. */
static void in_end(struct rdv_in *in)
{
	if (in->gone)
		return;
	in->gone = true;
	list_del(&in->link);
	in_count(in, -1);
	if (loop_timer_stop(&in->timer))
		in->refs--;
	loop_fd_del(&in->lf, in_forgotten);
}

static void in_answer(struct rdv_in *in, enum mpa_hello_status status)
{
	struct mpa_hello_rep rep = { .status = status };
	uint8_t frame[MPA_OURS_MAX];
	int len = mpa_hello_rep_encode(frame, sizeof(frame), &rep);

	if (len > 0 && send(in->lf.fd, frame, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_debug("rendezvous answer not sent: %s", strerror(errno));
}

static void in_drop(struct rdv_in *in)
{
	if (in->complete)
		in_answer(in, MPA_HELLO_NOT_READY);
	in_end(in);
}

static void in_timeout(struct loop_timer *t)
{
	struct rdv_in *in = container_of(t, struct rdv_in, timer);

	match_lock();
	if (!in->gone)
		in_drop(in);
	in_put(in);
	match_unlock();
}

/* For one more of this sort. */
static void make_room(bool complete, unsigned max)
{
	uint32_t most;
	struct rdv_in *in;

	if (sorts[complete].count < max)
		return;
	most = origin_most(&sorts[complete].origins);
	list_for_each(in, &arrivals, link)
		if (in->complete == complete &&
		    sorts[complete].origins.from[in->origin] == most) {
			in_drop(in);
			return;
		}
}

/* Nothing comes after a HELLO before its answer, not even the end. */
static bool in_waits(const struct rdv_in *in)
{
	char c;

	return recv(in->lf.fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       (errno == EAGAIN || errno == EINTR);
}

static struct rc_arrival *self_new(const struct dev_qp *qp)
{
	struct rdv_self *self = calloc(1, sizeof(*self));

	if (!self)
		return NULL;
	self->arrival.via = &tcp_self;
	self->p = (struct stream_param){
		.local_gid = qp->local_gid,
		.remote_gid = qp->local_gid,
		.local_qpn = qp->qp.qp_num,
		.remote_qpn = qp->qp.qp_num,
		.extended = true,
		.unreliable = qp->qp.qp_type == IBV_QPT_UC,
	};
	return &self->arrival;
}

static int self_accept(struct rc_arrival *arrival)
{
	struct rdv_self *self = container_of(arrival, struct rdv_self, arrival);
	int ret = tcp_open_self(&self->p);

	free(self);
	return ret;
}

static const struct rc_rendezvous tcp_self = { .name = "itself", .accept = self_accept };

static struct rc_arrival *rdv_find(const struct dev_qp *qp, const struct stream_key *k)
{
	struct rdv_in *in, *tmp;

	if (stream_key_is_self(k, qp))
		return self_new(qp);
	list_for_each_safe(in, tmp, &arrivals, link) {
		if (!in->complete || in->key.local_qpn != k->local_qpn ||
		    in->key.remote_qpn != k->remote_qpn ||
		    in->key.unreliable != k->unreliable ||
		    memcmp(&in->key.remote_gid, &k->remote_gid, sizeof(k->remote_gid)))
			continue;
		if (!in_waits(in)) {
			in_end(in);
			continue;
		}
		in->refs++;
		return &in->arrival;
	}
	return NULL;
}

static int rdv_accept(struct rc_arrival *arrival)
{
	struct rdv_in *in = container_of(arrival, struct rdv_in, arrival);
	bool crc = in->hello.crc || conf_get()->crc;
	struct mpa_hello_rep rep = { .status = MPA_HELLO_ACCEPTED, .crc = crc };
	uint8_t frame[MPA_OURS_MAX];
	struct stream_param p;
	int fd = in->lf.fd;
	int len = mpa_hello_rep_encode(frame, sizeof(frame), &rep);
	bool mine;

	match_lock();
	mine = !in->gone && len > 0;
	if (mine) {
		in->keep_fd = true;
		param_of(&p, &in->key, in->hello.dst_gid, crc);
		in_end(in);
	}
	in_put(in);
	match_unlock();
	if (mine && !tcp_open(fd, &p, frame, (size_t)len, NULL, NULL))
		fdset_close(fd); /* the peer asks again */
	return 0;
}

/* The HELLO is there: 1 if a QP waits for it, 0 if it is kept or was answered, -errno. */
static int in_complete(struct rdv_in *in, const struct mpa_frame *f)
{
	int ret = mpa_hello_decode(f, &in->hello);

	if (ret)
		return ret;
	in->key.local_qpn = in->hello.dst_qpn;
	in->key.remote_qpn = in->hello.src_qpn;
	memcpy(in->key.remote_gid.raw, in->hello.src_gid, 16);
	in->key.unreliable = in->hello.qp_type == IBV_QPT_UC;
	if (in->hello.ask) {
		in_answer(in, qpn_answers(in->key.local_qpn) ? MPA_HELLO_NOT_READY :
							       MPA_HELLO_NO_QP);
		in_end(in);
		return 0;
	}
	make_room(true, KEPT_MAX);
	in_count(in, -1);
	in->complete = true;
	in_count(in, 1);
	if (!in_waits(in))
		return -ECONNABORTED;
	loop_fd_mod(&in->lf, 0);
	loop_timer_set(&in->timer, loop_now() + KEPT_MS * MSEC);
	return match_waiting_locked(&in->key);
}

static void in_ready(struct loop_fd *lf, uint32_t revents)
{
	struct rdv_in *in = container_of(lf, struct rdv_in, lf);
	struct mpa_frame f;
	int ret = -EAGAIN;

	(void)revents;
	match_lock();
	if (!in->gone && !in->complete)
		ret = frame_read(lf->fd, in->buf, &in->have, &f);
	if (!ret)
		ret = in_complete(in, &f);
	if (ret < 0 && ret != -EAGAIN) {
		log_info("a connection to a QP's port was dropped: %s", strerror(-ret));
		in_end(in);
	}
	if (ret > 0)
		in->refs++;
	match_unlock();
	if (ret > 0)
		rdv_accept(&in->arrival);
}

void tcp_rendezvous_accepted(int fd)
{
	struct rdv_in *in = calloc(1, sizeof(*in));
	struct sockaddr_storage from = { 0 };
	socklen_t len = sizeof(from);

	if (!in) {
		fdset_close(fd);
		return;
	}
	tune(fd);
	in->arrival.via = &tcp_rendezvous;
	in->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = in_ready };
	in->timer.fire = in_timeout;
	in->refs = 2;
	getpeername(fd, (struct sockaddr *)&from, &len);
	in->origin = origin_of((struct sockaddr *)&from);
	match_lock();
	if (loop_fd_add(&in->lf)) {
		match_unlock();
		fdset_close(fd);
		free(in);
		return;
	}
	make_room(false, SILENT_MAX);
	list_add_tail(&arrivals, &in->link);
	in_count(in, 1);
	loop_timer_set(&in->timer, loop_now() + HELLO_MS * MSEC);
	match_unlock();
}

/* ---- the table --------------------------------------------------------------- */

static int rdv_listen(struct dev_qp *qp)
{
	return qpn_listen(qp->qp.qp_num, tcp_rendezvous_accepted);
}

/* ANYRDMA_TRANSPORT=shm: on one host there is nothing but shared memory. */
static bool rdv_reaches(const struct dev_qp *qp, const struct stream_key *key)
{
	(void)qp;
	return conf_get()->transport != CONF_TRANSPORT_SHM || !gid_is_ours(&key->remote_gid, 0);
}

const struct rc_rendezvous tcp_rendezvous = {
	.name = "TCP",
	.listen = rdv_listen,
	.reaches = rdv_reaches,
	.connect = rdv_connect,
	.cancel = rdv_cancel,
	.find = rdv_find,
	.accept = rdv_accept,
	.ask = rdv_ask,
	.forget = rdv_forget,
};
