/* SPDX-License-Identifier: BSD-2-Clause */
/* A datagram rsocket: a UDP socket, which is its descriptor, and an unreliable datagram QP.
 * A datagram to somebody whose QP is not known goes over UDP behind a header that tells
 * this side's QP; who receives such a datagram answers with its own, and from then on the
 * two use their QPs. The UDP socket is read by the calls, so nothing runs in the
 * background. A datagram that is longer than the path's MTU stays with UDP. */
#include "rsocket/dgram.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

static socklen_t sa_len(const struct sockaddr_storage *a)
{
	return a->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					  sizeof(struct sockaddr_in);
}

/* ---- receiving ------------------------------------------------------------------------ */

static void queue(struct dgram *d, const struct sockaddr_storage *src, const uint8_t *data,
		  size_t len)
{
	struct datagram *g;

	if (atomic_load(&d->queued) >= DGRAM_QUEUE)
		return; /* lost, as datagrams may be */
	g = malloc(sizeof(*g) + len);
	if (!g)
		return;
	g->next = NULL;
	g->src = *src;
	g->len = len;
	memcpy(g->data, data, len);
	pthread_mutex_lock(&d->queue_lock);
	*d->end = g;
	d->end = &g->next;
	atomic_fetch_add(&d->queued, 1);
	pthread_mutex_unlock(&d->queue_lock);
}

static struct datagram *take(struct dgram *d, bool peek)
{
	struct datagram *g;

	pthread_mutex_lock(&d->queue_lock);
	g = d->first;
	if (g && !peek) {
		d->first = g->next;
		if (!d->first)
			d->end = &d->first;
		atomic_fetch_sub(&d->queued, 1);
	}
	pthread_mutex_unlock(&d->queue_lock);
	return g;
}

/* shard->lock is held. */
void dgram_complete(struct rs *rs, const struct ibv_wc *wc)
{
	struct dgram *d = rs->dg;
	uint32_t slot = (uint32_t)(wc->wr_id >> 34);
	const uint8_t *at = d->mem + (size_t)slot * DGRAM_SLOT + DGRAM_GRH;
	struct sockaddr_storage src;
	int head;

	if ((wc->wr_id >> 32 & 3) != WR_RECV) {
		atomic_fetch_add(&d->done, 1);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS || wc->byte_len < DGRAM_GRH)
		return;
	head = dproto_ud_get(at, wc->byte_len - DGRAM_GRH, &src);
	if (head > 0)
		queue(d, &src, at + head, wc->byte_len - DGRAM_GRH - (uint32_t)head);
	dgram_recv_post(rs, slot);
}

static void udp_send(struct rs *rs, struct dest *t, enum dproto_op op, struct iovec *body,
		     size_t n, int *err)
{
	struct dproto_udp h = { op, rs->dg->qp ? rs->dg->qp->qp_num : 0, t->local };
	uint8_t head[DPROTO_UDP_MAX];
	struct iovec v[IOV_MAX < 16 ? IOV_MAX : 16] = { { head, dproto_udp_put(head, &h) } };
	struct msghdr m = { .msg_name = &t->addr,
			    .msg_namelen = sa_len(&t->addr),
			    .msg_iov = v,
			    .msg_iovlen = n + 1 };

	for (size_t i = 0; i < n; i++)
		v[i + 1] = body[i];
	*err = sendmsg(rs->obj.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void udp_come(struct rs *rs, const uint8_t *in, size_t len,
		     const struct sockaddr_storage *src)
{
	struct dproto_udp h;
	struct dest *t;
	int head = dproto_udp_get(in, len, &h), err;

	if (head < 0)
		return;
	pthread_mutex_lock(&rs->dg->lock);
	dest_learn(rs, src, h.qpn);
	if (h.op == DPROTO_DATA) {
		queue(rs->dg, src, in + head, len - (size_t)head);
		if (!dest_get(rs, src, &t))
			udp_send(rs, t, DPROTO_CTRL, NULL, 0, &err);
	}
	pthread_mutex_unlock(&rs->dg->lock);
}

void dgram_progress(struct rs *rs)
{
	uint8_t buf[DPROTO_MAX + DPROTO_UDP_MAX];
	struct sockaddr_storage src;
	socklen_t len;
	ssize_t n;

	if (rs_state(rs) == RS_CONNECTED)
		shard_run(rs->shard, false);
	for (int i = 0; i < 64; i++) {
		len = sizeof(src);
		memset(&src, 0, sizeof(src));
		n = recvfrom(rs->obj.fd, buf, sizeof(buf), MSG_DONTWAIT,
			     (struct sockaddr *)&src, &len);
		if (n < 0)
			return;
		udp_come(rs, buf, (size_t)n, &src);
	}
}

static bool room(struct dgram *d)
{
	return d->sent - atomic_load(&d->done) < DGRAM_SENDS;
}

short dgram_events(struct rs *rs)
{
	struct pollfd f = { .fd = rs->obj.fd, .events = POLLIN };
	short ev = 0;

	if (atomic_load(&rs->dg->queued) || poll(&f, 1, 0) > 0)
		ev |= POLLIN | POLLRDNORM;
	if (room(rs->dg))
		ev |= POLLOUT | POLLWRNORM;
	return ev;
}

static bool queue_ready(struct rs *rs)
{
	return atomic_load(&rs->dg->queued) || (rs_ended(rs) & (RS_CLOSED | RS_RD_SHUT));
}

static bool send_room(struct rs *rs)
{
	return room(rs->dg) || (rs_ended(rs) & RS_CLOSED);
}

struct waiter {
	struct watch w;
	struct sleeper s;
};

static void told(struct watch *w)
{
	sleeper_tell(&((struct waiter *)((char *)w - offsetof(struct waiter, w)))->s);
}

static int sleep_for(struct rs *rs, bool (*ready)(struct rs *rs), uint64_t until)
{
	struct pollfd fds[SLEEPER_FDS + 1];
	struct waiter w = { .w.notify = told };
	int ret = sleeper_enter(&w.s);

	if (ret)
		return ret;
	watch_add(&rs->watch, &w.w);
	for (;;) {
		sleeper_arm(&w.s);
		dgram_progress(rs);
		if (ready(rs))
			break;
		if (until != UINT64_MAX && now_ns() >= until) {
			ret = -EAGAIN;
			break;
		}
		fds[SLEEPER_FDS] = (struct pollfd){ .fd = rs->obj.fd, .events = POLLIN };
		ret = sleeper_sleep(&w.s, fds, 1, until);
		if (ret < 0)
			break;
		ret = 0;
	}
	watch_del(&w.w);
	sleeper_leave(&w.s);
	return ret;
}

static int wait_for(struct rs *rs, bool (*ready)(struct rs *rs), int flags, uint64_t limit)
{
	uint64_t now = now_ns(), end = now + rs_conf()->polling_us * 1000ull;

	dgram_progress(rs);
	if (ready(rs))
		return 0;
	if (obj_nonblock(&rs->obj, flags))
		return -EAGAIN;
	for (; now < end; now = now_ns()) {
		if (rs_state(rs) == RS_CONNECTED)
			shard_run(rs->shard, false);
		if (ready(rs))
			return 0;
	}
	return sleep_for(rs, ready, limit ? now_ns() + limit : UINT64_MAX);
}

static size_t scatter(const struct iovec *v, size_t n, const uint8_t *from, size_t len)
{
	size_t done = 0, now;

	for (size_t i = 0; i < n && done < len; i++) {
		now = v[i].iov_len < len - done ? v[i].iov_len : len - done;
		memcpy(v[i].iov_base, from + done, now);
		done += now;
	}
	return done;
}

ssize_t dgram_recvv(struct rs *rs, const struct iovec *v, size_t n, int flags,
		    struct dgram_from *from)
{
	bool peek = flags & MSG_PEEK;
	struct datagram *g;
	ssize_t ret = 0;

	pthread_mutex_lock(&rs->rd_lock);
	while (!(g = take(rs->dg, peek)) && !ret) {
		ret = wait_for(rs, queue_ready, flags, rs->opts.rcvtimeo);
		if (!ret && !atomic_load(&rs->dg->queued))
			ret = rs_ended(rs) & RS_CLOSED ? -EBADF : -ENOTCONN;
	}
	if (g) {
		ret = (ssize_t)scatter(v, n, g->data, g->len);
		from->truncated = (size_t)ret < g->len;
		from->src = g->src;
		if (from->truncated && (flags & MSG_TRUNC))
			ret = (ssize_t)g->len;
		if (!peek)
			free(g);
	}
	pthread_mutex_unlock(&rs->rd_lock);
	return ret;
}

/* ---- sending ------------------------------------------------------------------------- */

static size_t gather(uint8_t *to, const struct iovec *v, size_t n)
{
	size_t done = 0;

	for (size_t i = 0; i < n; i++) {
		if (v[i].iov_len)
			memcpy(to + done, v[i].iov_base, v[i].iov_len);
		done += v[i].iov_len;
	}
	return done;
}

/* lock is held. */
static int ud_send(struct rs *rs, const struct dest *t, const struct iovec *v, size_t n)
{
	struct dgram *d = rs->dg;
	uint32_t slot = DGRAM_RECVS + d->sent % DGRAM_SENDS;
	uint8_t *at = d->mem + (size_t)slot * DGRAM_SLOT;
	struct ibv_sge sge = { .addr = (uintptr_t)at, .lkey = d->mr->lkey };
	struct ibv_send_wr w = {
		.wr_id = post_wr_id(rs, WR_DATA, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.wr.ud = { t->ah, t->qpn, DPROTO_QKEY },
	}, *bad;
	size_t head;
	int ret;

	if (!room(d))
		return -EAGAIN;
	head = dproto_ud_put(at, &t->local);
	sge.length = (uint32_t)(head + gather(at + head, v, n));
	ret = ibv_post_send(d->qp, &w, &bad);
	if (!ret)
		d->sent++;
	return -ret;
}

static int send_once(struct rs *rs, const struct sockaddr_storage *to, struct iovec *v,
		     size_t n, size_t len)
{
	struct dgram *d = rs->dg;
	struct dest *t;
	int ret;

	pthread_mutex_lock(&d->lock);
	ret = dest_get(rs, to, &t);
	if (!ret && t->qpn && len + DPROTO_UD_MAX <= d->mtu)
		ret = ud_send(rs, t, v, n);
	else if (!ret)
		udp_send(rs, t, DPROTO_DATA, v, n, &ret);
	pthread_mutex_unlock(&d->lock);
	return ret;
}

ssize_t dgram_sendv(struct rs *rs, struct iovec *v, size_t n, int flags,
		    const struct sockaddr *to, socklen_t tolen)
{
	struct sockaddr_storage addr = rs->dg->peer;
	size_t len = 0, head = rs->domain == AF_INET6 ? DPROTO_UDP_MAX : 16;
	int ret;

	if (n > 15)
		return -EMSGSIZE;
	for (size_t i = 0; i < n; i++)
		len += v[i].iov_len;
	if (len > DPROTO_MAX - head)
		return -EMSGSIZE;
	if (to) {
		if (to->sa_family != rs->domain)
			return -EAFNOSUPPORT;
		if (tolen < sa_len((const void *)to) || tolen > sizeof(addr))
			return -EINVAL;
		memset(&addr, 0, sizeof(addr));
		memcpy(&addr, to, tolen);
	}
	if (!addr.ss_family)
		return -EDESTADDRREQ;
	dgram_progress(rs); /* the peer may have told its QP */
	while ((ret = send_once(rs, &addr, v, n, len)) == -EAGAIN) {
		ret = wait_for(rs, send_room, flags, rs->opts.sndtimeo);
		if (ret)
			break;
	}
	return ret ? ret : (ssize_t)len;
}

/* ---- life ------------------------------------------------------------------------------ */

int dgram_new(int domain, int flags, struct rs **out)
{
	struct rs *rs;
	int ret = -ENOMEM;

	if (domain != AF_INET && domain != AF_INET6)
		return -ENOTSUP;
	if (!service_channel()) /* whose thread ends it */
		return -errno;
	rs = rs_create(domain);
	if (!rs)
		return -ENOMEM;
	rs->obj.kind = OBJ_DGRAM;
	rs->dg = calloc(1, sizeof(*rs->dg));
	if (!rs->dg)
		goto fail;
	pthread_mutex_init(&rs->dg->lock, NULL);
	pthread_mutex_init(&rs->dg->queue_lock, NULL);
	rs->dg->end = &rs->dg->first;
	rs->obj.fd = socket(domain, SOCK_DGRAM | (flags & SOCK_CLOEXEC), 0);
	ret = rs->obj.fd < 0 ? -errno : table_add(&rs->obj);
	if (ret)
		goto fail;
	atomic_store(&rs->obj.flags, flags & SOCK_NONBLOCK ? O_RDWR | O_NONBLOCK : O_RDWR);
	*out = rs;
	return 0;

fail:
	if (rs->obj.fd >= 0)
		close(rs->obj.fd);
	rs_destroy(rs);
	return ret;
}

int dgram_connect(struct rs *rs, const struct sockaddr *addr, socklen_t len)
{
	struct sockaddr_storage peer = { 0 };
	struct dest *t;
	int ret = 0;

	if (!addr || len < sizeof(sa_family_t) || len > sizeof(peer))
		return -EINVAL;
	memcpy(&peer, addr, len);
	if (peer.ss_family != AF_UNSPEC && peer.ss_family != rs->domain)
		return -EAFNOSUPPORT;
	if (peer.ss_family != AF_UNSPEC && len < sa_len(&peer))
		return -EINVAL;
	pthread_mutex_lock(&rs->dg->lock);
	if (peer.ss_family)
		ret = dest_get(rs, &peer, &t);
	if (!ret)
		rs->dg->peer = peer;
	pthread_mutex_unlock(&rs->dg->lock);
	return ret;
}

int dgram_name(struct rs *rs, bool peer, struct sockaddr *addr, socklen_t *len)
{
	if (!peer)
		return getsockname(rs->obj.fd, addr, len) ? -errno : 0;
	if (!rs->dg->peer.ss_family)
		return -ENOTCONN;
	name_copy((struct sockaddr *)&rs->dg->peer, addr, len);
	return 0;
}

void dgram_destroy(struct rs *rs)
{
	struct dgram *d = rs->dg;
	struct datagram *g;

	if (d->qp)
		ibv_destroy_qp(d->qp);
	if (rs->shard)
		shard_leave(rs, rs->cqes);
	dest_free_all(d);
	if (d->mr)
		ibv_dereg_mr(d->mr);
	free(d->mem);
	while (d->end && (g = take(d, false)))
		free(g);
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->queue_lock);
	free(d);
}
