/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests of the user backend: the backend against itself over loopback
 * TCP, with the real progress thread and streams that carry control messages
 * alone. To be included by one file of a program, after tests/t.h. */
#ifndef ANYRDMA_CM_USER_PAIR_TEST_H
#define ANYRDMA_CM_USER_PAIR_TEST_H

#include "base/conf.h"
#include "base/fdset.h"
#include "cm/fake_verbs_test.h"
#include "cm/user/user.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>

/* ---- streams that know control messages: type, length, bytes --------------------- */

struct stream {
	struct loop_fd lf;
	const struct stream_user *ops;
	void *user;
	bool released;
};

static atomic_int streams, expects;

static T_UNUSED void fs_done(struct loop_fd *lf)
{
	struct stream *s = container_of(lf, struct stream, lf);

	fdset_close(lf->fd);
	if (s->released)
		s->ops->released(s->user);
	atomic_fetch_sub(&streams, 1);
	free(s);
}

static T_UNUSED void fs_ready(struct loop_fd *lf, uint32_t revents)
{
	struct stream *s = container_of(lf, struct stream, lf);
	uint8_t head[2], data[256];
	ssize_t n = recv(lf->fd, head, 2, MSG_DONTWAIT);

	(void)revents;
	if (n < 0 && errno == EAGAIN)
		return;
	if (n == 2 && head[1])
		n = recv(lf->fd, data, head[1], MSG_WAITALL) == head[1] ? n : -1;
	if (n == 2) {
		s->ops->control(s->user, (enum stream_ctl)head[0], data, head[1]);
		return;
	}
	loop_fd_mod(lf, 0);
	s->ops->closed(s->user, n ? -errno : 0);
}

static struct stream *fs_open(int fd, const struct stream_param *p, const uint8_t *first,
			      size_t len, const struct stream_user *ops, void *user)
{
	struct stream *s = calloc(1, sizeof(*s));

	CHECK(p->extended);
	CHECK(p->local_qpn && p->remote_qpn);
	CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
	s->ops = ops;
	s->user = user;
	s->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = fs_ready };
	atomic_fetch_add(&streams, 1);
	if (len)
		CHECK_EQ(send(fd, first, len, MSG_NOSIGNAL), len);
	loop_fd_add(&s->lf);
	return s;
}

static T_UNUSED int fs_control(struct stream *s, enum stream_ctl type, const uint8_t *data,
		      size_t len)
{
	uint8_t msg[258] = { (uint8_t)type, (uint8_t)len };

	if (len)
		memcpy(msg + 2, data, len);
	return send(s->lf.fd, msg, len + 2, MSG_NOSIGNAL) < 0 ? -EPIPE : 0;
}

/* Messages are handled as soon as they are seen. */
static T_UNUSED bool fs_has_news(struct stream *s)
{
	(void)s;
	return false;
}

static T_UNUSED void fs_release(struct stream *s)
{
	s->released = true;
	shutdown(s->lf.fd, SHUT_WR);
	loop_fd_del(&s->lf, fs_done);
}

/* ---- the rest of the device ------------------------------------------------------ */

static T_UNUSED int gid_device_of(const struct sockaddr *sa)
{
	return sa_loopback(sa) ? 3 : -ENODEV;
}

static T_UNUSED void gid_from(const struct sockaddr *sa, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	if (sa->sa_family == AF_INET6) {
		memcpy(gid->raw, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
		return;
	}
	gid->raw[10] = gid->raw[11] = 0xff;
	memcpy(gid->raw + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
}

static void no_watch(void (*cb)(void))
{
	(void)cb;
}

static int no_renew(void)
{
	return 0;
}

static bool no_check(void)
{
	return true;
}

static T_UNUSED int gid_of(unsigned device, const struct sockaddr *sa)
{
	(void)device;
	return gid_device_of(sa);
}

static T_UNUSED uint64_t guid(unsigned device)
{
	return device;
}

static T_UNUSED enum ibv_mtu mtu(unsigned device)
{
	(void)device;
	return IBV_MTU_4096;
}

static T_UNUSED void expect(const union ibv_gid *gid, uint32_t qpn)
{
	(void)gid, (void)qpn;
	atomic_fetch_add(&expects, 1);
}

static T_UNUSED void unexpect(const union ibv_gid *gid, uint32_t qpn)
{
	(void)gid, (void)qpn;
	atomic_fetch_sub(&expects, 1);
}

static const struct anyrdma_interface device = {
	.loop_fd_add = loop_fd_add,
	.loop_fd_mod = loop_fd_mod,
	.loop_fd_del = loop_fd_del,
	.loop_timer_set = loop_timer_set,
	.loop_timer_stop = loop_timer_stop,
	.loop_post = loop_post,
	.loop_here = loop_here,
	.fd_take = fdset_take,
	.fd_close = fdset_close,
	.gid_device = gid_device_of,
	.gid_of_addr = gid_of,
	.device_guid = guid,
	.gid_from_addr = gid_from,
	.active_mtu = mtu,
	.gid_watch = no_watch,
	.fatal_watch = no_watch,
	.fatal_renew = no_renew,
	.loop_check = no_check,
	.stream_expect = expect,
	.stream_unexpect = unexpect,
	.stream_open = fs_open,
	.stream_control = fs_control,
	.stream_has_news = fs_has_news,
	.stream_release = fs_release,
};

static const struct cm_backend *be = &cm_backend_user;
const struct cm_backend *const cm_backends[] = { &cm_backend_user, NULL };

/* ---- ids and events -------------------------------------------------------------- */

static T_UNUSED struct cm_channel *ch_new(void)
{
	struct cm_channel *ch = NULL;

	cm_channel_new(be, &ch);
	return ch;
}

static T_UNUSED struct cm_id *id_new_ps(struct cm_channel *ch, void *be_id,
					enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct cm_id *id = calloc(1, sizeof(*id));

	lock_init(&id->apply);
	lock_init(&id->post);
	lock_init(&id->lock);
	list_init(&id->holders);
	list_init(&id->mcasts);
	id->be = be;
	id->pub.channel = &ch->pub;
	id->pub.ps = ps;
	id->pub.qp_type = type;
	id->be_id = be_id;
	if (!be_id)
		CHECK_EQ(be->id_create(id), 0);
	return id;
}

static T_UNUSED struct cm_id *id_new(struct cm_channel *ch, void *be_id)
{
	return id_new_ps(ch, be_id, RDMA_PS_TCP, IBV_QPT_RC);
}

static T_UNUSED void id_free(struct cm_id *id)
{
	uint32_t n;

	CHECK_EQ(be->id_destroy(id, &n), 0);
	free(id);
}

/* The next event must be this one; the caller frees it. NULL otherwise. */
static struct cm_event *want_for(struct cm_channel *ch, int type, int status, int ms)
{
	struct pollfd p = { ch->pub.fd, POLLIN, 0 };
	struct cm_event *ev;

	if (!CHECK(poll(&p, 1, (int)t_scaled((unsigned)ms)) == 1)) {
		diag("no %s", rdma_event_str((enum rdma_cm_event_type)type));
		return NULL;
	}
	if (be->event_get(ch, &ev))
		return NULL;
	cm_event_unhold(ev);
	if (!CHECK_EQ(ev->pub.event, type) || !CHECK_EQ(ev->pub.status, status)) {
		diag("got %s", rdma_event_str(ev->pub.event));
		cm_event_free(ev);
		return NULL;
	}
	return ev;
}

static T_UNUSED bool want(struct cm_channel *ch, int type, int status)
{
	struct cm_event *ev = want_for(ch, type, status, 20000);

	if (ev)
		cm_event_free(ev);
	return ev;
}

static T_UNUSED bool silent(struct cm_channel *ch)
{
	struct pollfd p = { ch->pub.fd, POLLIN, 0 };

	return poll(&p, 1, 0) == 0;
}

static T_UNUSED struct sockaddr_in loop_addr(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static T_UNUSED uint16_t src_port(struct cm_id *id)
{
	struct cm_addrs a;

	be->query_addr(id, &a);
	return sa_port((struct sockaddr *)&a.src);
}

static T_UNUSED struct cm_id *listener(struct cm_channel *ch, int backlog)
{
	struct cm_id *id = id_new(ch, NULL);
	struct sockaddr_in a = loop_addr(0);

	CHECK_EQ(be->bind(id, (struct sockaddr *)&a), 0);
	CHECK_EQ(be->listen(id, backlog), 0);
	return id;
}

/* An id that may connect to this RDMA port. */
static T_UNUSED struct cm_id *routed(struct cm_channel *ch, uint16_t port)
{
	struct cm_id *id = id_new(ch, NULL);
	struct sockaddr_in a = loop_addr(port);

	CHECK_EQ(be->resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	want(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK_EQ(be->resolve_route(id, 1000), 0);
	want(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return id;
}

static const struct cm_conn_param conn_param = {
	.qp_num = 0x1234, .responder_resources = 5, .initiator_depth = 3,
	.retry_count = 6, .rnr_retry_count = 2, .private_data_len = 3,
	.private_data = "abc",
};
static const struct cm_conn_param accept_param = {
	.qp_num = 0x4321, .responder_resources = 2, .initiator_depth = 4, .srq = 1,
	.rnr_retry_count = 7, .private_data_len = 4, .private_data = "defg",
};

struct pair {
	struct cm_channel *cs, *cc;
	struct cm_id *lis, *child, *id;
};

static T_UNUSED bool pair_request(struct pair *p)
{
	struct cm_event *ev;

	memset(p, 0, sizeof(*p));
	p->cs = ch_new();
	p->cc = ch_new();
	p->lis = listener(p->cs, 10);
	p->id = routed(p->cc, src_port(p->lis));
	CHECK_EQ(be->connect(p->id, &conn_param), 0);
	ev = want_for(p->cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	if (!ev)
		return false;
	CHECK_EQ(ev->pub.param.conn.private_data_len, 56);
	CHECK(memcmp(ev->pub.param.conn.private_data, "abc\0", 4) == 0);
	CHECK_EQ(ev->pub.param.conn.responder_resources, 3); /* swapped */
	CHECK_EQ(ev->pub.param.conn.initiator_depth, 5);
	CHECK_EQ(ev->pub.param.conn.retry_count, 6);
	CHECK_EQ(ev->pub.param.conn.rnr_retry_count, 2);
	CHECK_EQ(ev->pub.param.conn.qp_num, 0x1234);
	p->child = id_new(p->cs, ev->be_child);
	cm_event_free(ev);
	return true;
}

static T_UNUSED bool pair_accept(struct pair *p)
{
	struct cm_event *ev;

	if (!pair_request(p))
		return false;
	CHECK_EQ(be->accept_prepare(p->child, &accept_param), 0);
	CHECK_EQ(be->accept(p->child, &accept_param), 0);
	ev = want_for(p->cc, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, 5000);
	if (!ev)
		return false;
	CHECK_EQ(ev->pub.param.conn.private_data_len, 196);
	CHECK(memcmp(ev->pub.param.conn.private_data, "defg\0", 5) == 0);
	CHECK_EQ(ev->pub.param.conn.responder_resources, 4);
	CHECK_EQ(ev->pub.param.conn.initiator_depth, 2);
	CHECK_EQ(ev->pub.param.conn.rnr_retry_count, 7);
	CHECK_EQ(ev->pub.param.conn.srq, 1);
	CHECK_EQ(ev->pub.param.conn.qp_num, 0x4321);
	cm_event_free(ev);
	return true;
}

static T_UNUSED bool pair_up(struct pair *p)
{
	if (!pair_accept(p))
		return false;
	CHECK_EQ(be->establish(p->id), 0);
	return want(p->cs, RDMA_CM_EVENT_ESTABLISHED, 0);
}

static T_UNUSED void pair_end(struct pair *p)
{
	if (p->id)
		id_free(p->id);
	if (p->child)
		id_free(p->child);
	if (p->lis)
		id_free(p->lis);
	cm_channel_free(p->cs);
	cm_channel_free(p->cc);
}

/* ---- raw peers ------------------------------------------------------------------- */

static T_UNUSED int raw_connect(uint16_t port)
{
	struct sockaddr_in a = loop_addr((uint16_t)port_to_tcp(port, false));
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	CHECK(!connect(fd, (struct sockaddr *)&a, sizeof(a)));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static T_UNUSED size_t raw_request(uint8_t *buf, size_t cap, uint16_t port)
{
	struct mpa_cm_req r = { .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC, .mtu = 3, .qpn = 7,
				.src_port = 9, .dst_port = port,
				.src_addr = { [10] = 0xff, 0xff, 127, 0, 0, 1 } };
	int n = mpa_cm_req_encode(buf, cap, &r);

	CHECK(n > 0);
	return (size_t)n;
}

/* Reads a whole frame; false at EOF. */
static T_UNUSED bool raw_answer(int fd, uint8_t *buf, struct mpa_frame *f)
{
	size_t have = 0;
	int n;

	while ((n = mpa_decode(buf, have, f)) == -EAGAIN) {
		ssize_t got = read(fd, buf + have, mpa_want(buf, have));

		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	return n > 0;
}

/* How many ids the backend has. */
static T_UNUSED int ids(void)
{
	struct user_id **v;
	int n = user_all(&v);

	for (int i = 0; i < n; i++)
		user_put(v[i]);
	free(v);
	return n;
}

/* Nothing outlives its id. */
static T_UNUSED void nothing_left(void)
{
	T_WAIT(!ids() && !atomic_load(&streams) && !atomic_load(&expects), 5000);
	CHECK_EQ(ids(), 0);
	CHECK_EQ(streams, 0);
	CHECK_EQ(expects, 0);
}

#endif
