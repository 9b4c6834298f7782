/* SPDX-License-Identifier: BSD-2-Clause */
/* The life of connections, as the application and raw peers see it. */
#include "tests/t.h"

#include "cm/user/pair_test.h"

#include <sys/resource.h>
#include <sys/un.h>

/* ---- cases ----------------------------------------------------------------------- */

static void connects_and_disconnects(void)
{
	struct pair p;
	struct cm_addrs a, b;

	REQUIRE(pair_up(&p));
	be->query_addr(p.id, &a);
	be->query_addr(p.child, &b);
	CHECK(memcmp(&a.src, &b.dst, sizeof(struct sockaddr_in)) == 0);
	CHECK(memcmp(&a.dst, &b.src, sizeof(struct sockaddr_in)) == 0);
	CHECK(a.bound && b.bound && sa_port((struct sockaddr *)&a.src));
	CHECK_EQ(be->disconnect(p.id), 0);
	CHECK(want(p.cs, RDMA_CM_EVENT_DISCONNECTED, 0));
	CHECK(silent(p.cc)); /* the peer has not answered */
	CHECK_EQ(be->disconnect(p.child), 0);
	CHECK(want(p.cc, RDMA_CM_EVENT_DISCONNECTED, 0));
	CHECK(want(p.cc, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
	CHECK(want(p.cs, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
	CHECK_EQ(be->disconnect(p.child), 0);
	pair_end(&p);
}

static void attributes(void)
{
	struct pair p;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR }, b = { .qp_state = IBV_QPS_RTS };
	uint32_t psn;
	int mask;

	REQUIRE(pair_request(&p));
	CHECK_EQ(be->init_qp_attr(p.id, &a, &mask), -EINVAL);
	REQUIRE_EQ(be->init_qp_attr(p.child, &a, &mask), 0);
	CHECK_EQ(mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			       IBV_QP_MIN_RNR_TIMER);
	CHECK_EQ(a.dest_qp_num, 0x1234);
	CHECK_EQ(a.max_dest_rd_atomic, 3);
	CHECK_EQ(a.path_mtu, IBV_MTU_4096);
	CHECK(a.ah_attr.is_global && a.ah_attr.grh.sgid_index == 3);
	CHECK_EQ(a.ah_attr.grh.dgid.raw[12], 127);
	psn = a.rq_psn;
	REQUIRE_EQ(be->init_qp_attr(p.child, &b, &mask), 0);
	CHECK_EQ(b.retry_cnt, 6);
	CHECK_EQ(b.rnr_retry, 2);
	CHECK_EQ(b.max_rd_atomic, 5);
	CHECK_EQ(b.timeout, 17);
	CHECK_EQ(be->accept_prepare(p.child, &accept_param), 0);
	REQUIRE_EQ(be->init_qp_attr(p.child, &a, &mask), 0);
	CHECK_EQ(a.max_dest_rd_atomic, 2);
	CHECK_EQ(be->accept(p.child, &accept_param), 0);
	CHECK(want(p.cc, RDMA_CM_EVENT_CONNECT_RESPONSE, 0));
	b.qp_state = IBV_QPS_RTS;
	REQUIRE_EQ(be->init_qp_attr(p.id, &b, &mask), 0);
	CHECK_EQ(b.sq_psn, psn);
	CHECK_EQ(b.rnr_retry, 7);
	CHECK_EQ(b.retry_cnt, 6);
	CHECK_EQ(b.max_rd_atomic, 2);
	a.qp_state = IBV_QPS_INIT;
	REQUIRE_EQ(be->init_qp_attr(p.id, &a, &mask), 0);
	CHECK_EQ(a.qp_access_flags, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					    IBV_ACCESS_REMOTE_ATOMIC);
	pair_end(&p);
}

static void rejects(void)
{
	struct pair p;
	struct cm_event *ev;
	uint8_t big[148];

	memset(big, 0x5a, sizeof(big));
	REQUIRE(pair_request(&p));
	CHECK_EQ(be->reject(p.child, 9, NULL, 0), -EINVAL);
	CHECK_EQ(be->reject(p.child, 0, big, 149), -EINVAL);
	CHECK_EQ(be->reject(p.child, 0, big, 148), 0);
	ev = want_for(p.cc, RDMA_CM_EVENT_REJECTED, 28, 5000);
	REQUIRE(ev);
	CHECK_EQ(ev->pub.param.conn.private_data_len, 148);
	CHECK(memcmp(ev->pub.param.conn.private_data, big, 148) == 0);
	cm_event_free(ev);
	CHECK_EQ(be->reject(p.child, 0, NULL, 0), -EINVAL);
	CHECK_EQ(be->accept(p.child, &accept_param), -EINVAL);
	CHECK_EQ(be->connect(p.id, &conn_param), -EINVAL);
	pair_end(&p);
}

static void nobody_listens(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = routed(ch, 20050);

	CHECK_EQ(be->connect(id, &conn_param), 0);
	CHECK(want(ch, RDMA_CM_EVENT_REJECTED, 8));
	id_free(id);
	id = routed(ch, 64999);
	CHECK_EQ(be->connect(id, &conn_param), 0);
	CHECK(want(ch, RDMA_CM_EVENT_REJECTED, 8));
	id_free(id);
	cm_channel_free(ch);
}

/* What the other side sees when an id is destroyed in each state. */
static void destroyed_before_accept(void)
{
	struct pair p;

	REQUIRE(pair_request(&p));
	id_free(p.child);
	p.child = NULL;
	CHECK(want(p.cc, RDMA_CM_EVENT_REJECTED, 28));
	pair_end(&p);

	REQUIRE(pair_request(&p));
	id_free(p.id);
	p.id = NULL;
	CHECK(T_WAIT(be->accept_prepare(p.child, &accept_param), 5000));
	CHECK_EQ(be->accept(p.child, &accept_param), -EINVAL);
	CHECK(silent(p.cs));
	pair_end(&p);
}

static void destroyed_after_accept(void)
{
	struct pair p;

	REQUIRE(pair_accept(&p));
	id_free(p.id);
	p.id = NULL;
	CHECK(want(p.cs, RDMA_CM_EVENT_REJECTED, 28));
	pair_end(&p);

	REQUIRE(pair_accept(&p));
	id_free(p.child);
	p.child = NULL;
	CHECK(want(p.cc, RDMA_CM_EVENT_REJECTED, 28));
	CHECK_EQ(be->establish(p.id), -EINVAL);
	pair_end(&p);
}

static void destroyed_when_up(void)
{
	struct pair p;

	REQUIRE(pair_up(&p));
	id_free(p.id);
	p.id = NULL;
	CHECK(want(p.cs, RDMA_CM_EVENT_DISCONNECTED, 0));
	CHECK_EQ(be->disconnect(p.child), 0);
	CHECK(want(p.cs, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
	pair_end(&p);
}

static void listener_destroyed(void)
{
	struct pair p = { .cs = ch_new(), .cc = ch_new() };

	p.lis = listener(p.cs, 10);
	p.id = routed(p.cc, src_port(p.lis));
	CHECK_EQ(be->connect(p.id, &conn_param), 0);
	CHECK(T_WAIT(!silent(p.cs), 5000));
	id_free(p.lis);
	p.lis = NULL;
	CHECK(want(p.cc, RDMA_CM_EVENT_REJECTED, 28));
	CHECK(silent(p.cs));
	pair_end(&p);
}

static void simultaneous_disconnect(void)
{
	struct pair p;

	REQUIRE(pair_up(&p));
	CHECK_EQ(be->disconnect(p.id), 0);
	CHECK_EQ(be->disconnect(p.child), 0);
	CHECK(want(p.cs, RDMA_CM_EVENT_DISCONNECTED, 0));
	CHECK(want(p.cc, RDMA_CM_EVENT_DISCONNECTED, 0));
	CHECK_EQ(be->disconnect(p.id), 0);
	CHECK_EQ(be->disconnect(p.child), 0);
	CHECK(want(p.cs, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
	CHECK(want(p.cc, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0));
	pair_end(&p);
}

static void notified(void)
{
	struct pair p;

	REQUIRE(pair_accept(&p));
	CHECK_EQ(be->notify(p.child, IBV_EVENT_PATH_MIG), -EINVAL);
	CHECK_EQ(be->notify(p.child, IBV_EVENT_COMM_EST), 0);
	CHECK(want(p.cs, RDMA_CM_EVENT_ESTABLISHED, 0));
	CHECK_EQ(be->notify(p.child, IBV_EVENT_COMM_EST), -EISCONN);
	/* DREQ before our RTU: held back until it is sent */
	CHECK_EQ(be->disconnect(p.child), 0);
	CHECK(silent(p.cc));
	CHECK_EQ(be->establish(p.id), 0);
	CHECK(want(p.cc, RDMA_CM_EVENT_DISCONNECTED, 0));
	CHECK(silent(p.cs));
	pair_end(&p);
}

static void abandoned(void)
{
	struct pair p;

	REQUIRE(pair_accept(&p));
	CHECK_EQ(be->abandon(p.id), 0);
	CHECK(want(p.cs, RDMA_CM_EVENT_REJECTED, 28));
	pair_end(&p);
}

static void no_rtu(void)
{
	struct pair p;

	REQUIRE(pair_accept(&p));
	CHECK(want(p.cs, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
	pair_end(&p);
}

static void backlog(void)
{
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *lis = listener(cs, 1), *id[3], *child[3];
	struct cm_event *ev;

	for (int i = 0; i < 3; i++) {
		id[i] = routed(cc, src_port(lis));
		CHECK_EQ(be->connect(id[i], &conn_param), 0);
	}
	for (int i = 0; i < 3; i++) {
		ev = want_for(cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
		REQUIRE(ev);
		CHECK(silent(cs) || i < 2);
		child[i] = id_new(cs, ev->be_child);
		cm_event_free(ev);
	}
	for (int i = 0; i < 3; i++)
		id_free(child[i]);
	for (int i = 0; i < 3; i++)
		CHECK(want(cc, RDMA_CM_EVENT_REJECTED, 28));
	for (int i = 0; i < 3; i++)
		id_free(id[i]);
	id_free(lis);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

static void backlog_full_for_ever(void)
{
	struct cm_channel *cs = ch_new(), *cc = ch_new();
	struct cm_id *lis = listener(cs, 1), *a, *b;

	a = routed(cc, src_port(lis));
	CHECK_EQ(be->connect(a, &conn_param), 0);
	CHECK(T_WAIT(!silent(cs), 5000));
	b = routed(cc, src_port(lis));
	CHECK_EQ(be->connect(b, &conn_param), 0);
	CHECK(want(cc, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
	CHECK(want(cc, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
	id_free(a);
	id_free(b);
	id_free(lis);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

/* A socket on the TCP port of an RDMA port, not ours. */
static int foreign(uint16_t port)
{
	struct sockaddr_in a = loop_addr((uint16_t)port_to_tcp(port, false));
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	CHECK(!bind(fd, (struct sockaddr *)&a, sizeof(a)) && !listen(fd, 5));
	return fd;
}

static void other_programs(void)
{
	struct cm_channel *cc = ch_new();
	int lfd = foreign(20051), fd;
	struct cm_id *id = routed(cc, 20051);

	CHECK_EQ(be->connect(id, &conn_param), 0); /* silent */
	fd = accept(lfd, NULL, NULL);
	CHECK(want(cc, RDMA_CM_EVENT_REJECTED, 8));
	close(fd);
	id_free(id);
	id = routed(cc, 20051);
	CHECK_EQ(be->connect(id, &conn_param), 0); /* talks something else */
	fd = accept(lfd, NULL, NULL);
	CHECK_EQ(write(fd, "SSH-2.0\r\n", 9), 9);
	CHECK(want(cc, RDMA_CM_EVENT_REJECTED, 8));
	close(fd);
	id_free(id);
	id = routed(cc, 20051);
	CHECK_EQ(be->connect(id, &conn_param), 0); /* closes */
	close(accept(lfd, NULL, NULL));
	CHECK(want(cc, RDMA_CM_EVENT_REJECTED, 8));
	id_free(id);
	close(lfd);
	cm_channel_free(cc);
}

static void raw_clients(void)
{
	struct cm_channel *cs = ch_new();
	struct cm_id *lis = listener(cs, 10), *child;
	uint16_t port = src_port(lis);
	uint8_t req[MPA_FRAME_MAX], ans[MPA_FRAME_MAX];
	size_t n = raw_request(req, sizeof(req), port);
	struct mpa_cm_rej rej;
	struct mpa_frame f;
	struct cm_event *ev;
	int fd = raw_connect(port);

	CHECK_EQ(write(fd, "GET / HTTP/1.0\r\n", 16), 16); /* garbage */
	CHECK(read(fd, ans, 1) <= 0);
	close(fd);

	fd = raw_connect(port); /* byte by byte */
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(write(fd, req + i, 1), 1);
	ev = want_for(cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	REQUIRE(ev);
	child = id_new(cs, ev->be_child);
	cm_event_free(ev);
	CHECK_EQ(be->reject(child, 35, "x", 1), 0);
	CHECK(raw_answer(fd, ans, &f) && !mpa_cm_rej_decode(&f, &rej));
	CHECK_EQ(rej.reason, 35);
	close(fd);
	id_free(child);

	fd = raw_connect(port); /* for another port */
	n = raw_request(req, sizeof(req), (uint16_t)(port + 1));
	CHECK_EQ(write(fd, req, n), n);
	CHECK(raw_answer(fd, ans, &f) && !mpa_cm_rej_decode(&f, &rej));
	CHECK_EQ(rej.reason, 8);
	close(fd);

	fd = raw_connect(port); /* another version */
	n = raw_request(req, sizeof(req), port);
	req[24] = 77;
	CHECK_EQ(write(fd, req, n), n);
	CHECK(raw_answer(fd, ans, &f) && !mpa_cm_rej_decode(&f, &rej));
	CHECK_EQ(rej.reason, 31);
	close(fd);

	fd = raw_connect(port); /* a byte too many: the connection, not the listener, pays */
	n = raw_request(req, sizeof(req), port);
	CHECK_EQ(write(fd, req, n + 1), n + 1);
	ev = want_for(cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	REQUIRE(ev);
	child = id_new(cs, ev->be_child);
	cm_event_free(ev);
	CHECK(read(fd, ans, 1) <= 0);
	CHECK_EQ(be->accept(child, &accept_param), -EINVAL);
	id_free(child);
	close(fd);
	id_free(lis);
	cm_channel_free(cs);
}

/* A slow application: the key of the reply comes ahead, the rest with accept. */
static void slow_accept(void)
{
	struct pair p;
	uint8_t buf[MPA_FRAME_MAX], key[MPA_KEY_LEN];
	struct cm_channel *cs = ch_new();
	struct cm_id *lis = listener(cs, 10), *child;
	size_t n = raw_request(buf, sizeof(buf), src_port(lis));
	int fd = raw_connect(src_port(lis));
	struct mpa_cm_rep rep;
	struct mpa_frame f;
	struct cm_event *ev;

	CHECK_EQ(write(fd, buf, n), n);
	ev = want_for(cs, RDMA_CM_EVENT_CONNECT_REQUEST, 0, 5000);
	REQUIRE(ev);
	child = id_new(cs, ev->be_child);
	cm_event_free(ev);
	CHECK_EQ(recv(fd, buf, MPA_KEY_LEN, MSG_WAITALL), MPA_KEY_LEN);
	mpa_reply_key(key);
	CHECK(memcmp(buf, key, MPA_KEY_LEN) == 0);
	CHECK_EQ(be->accept(child, &accept_param), 0);
	n = MPA_KEY_LEN;
	while (mpa_decode(buf, n, &f) == -EAGAIN) {
		ssize_t got = read(fd, buf + n, mpa_want(buf, n));

		REQUIRE(got > 0);
		n += (size_t)got;
	}
	CHECK_EQ(mpa_cm_rep_decode(&f, &rep), 0);
	CHECK_EQ(rep.qpn, 0x4321);
	id_free(child);
	close(fd);
	id_free(lis);
	cm_channel_free(cs);

	/* and between two of ours; time is the point: longer than the verdict takes */
	REQUIRE(pair_request(&p));
	usleep(conf_get()->cm_reply_ms * 1500);
	CHECK(silent(p.cc));
	CHECK_EQ(be->accept(p.child, &accept_param), 0);
	CHECK(want(p.cc, RDMA_CM_EVENT_CONNECT_RESPONSE, 0));
	pair_end(&p);
}

static void wrong_states(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = id_new(ch, NULL);
	struct sockaddr_in a = loop_addr(0), far = loop_addr(1);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_path_data path;
	struct cm_conn_param big = conn_param;
	struct sockaddr odd = { .sa_family = AF_UNIX };
	int mask;

	CHECK_EQ(be->connect(id, &conn_param), -EINVAL);
	CHECK_EQ(be->accept(id, &accept_param), -EINVAL);
	CHECK_EQ(be->reject(id, 0, NULL, 0), -EINVAL);
	CHECK_EQ(be->establish(id), -EINVAL);
	CHECK_EQ(be->disconnect(id), -EINVAL);
	CHECK_EQ(be->notify(id, IBV_EVENT_COMM_EST), -EINVAL);
	CHECK_EQ(be->resolve_route(id, 1000), -EINVAL);
	CHECK_EQ(be->init_qp_attr(id, &attr, &mask), -EINVAL);
	CHECK_EQ(be->query_path(id, &path, 1), 0);
	CHECK_EQ(be->bind(id, &odd), -EAFNOSUPPORT);
	far.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1: nobody's */
	CHECK_EQ(be->bind(id, (struct sockaddr *)&far), -EADDRNOTAVAIL);
	CHECK_EQ(be->resolve_addr(id, (struct sockaddr *)&far, (struct sockaddr *)&a, 100),
		 -EADDRNOTAVAIL);
	CHECK_EQ(be->bind(id, (struct sockaddr *)&a), 0);
	CHECK_EQ(be->bind(id, (struct sockaddr *)&a), -EINVAL);
	a.sin_port = htons(20052);
	CHECK_EQ(be->resolve_addr(id, NULL, (struct sockaddr *)&a, 100), 0);
	CHECK(want(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0));
	CHECK_EQ(be->resolve_route(id, 0), -EINVAL);
	CHECK_EQ(be->resolve_addr(id, NULL, (struct sockaddr *)&a, 100), -EINVAL);
	CHECK_EQ(be->listen(id, 1), -EINVAL);
	CHECK_EQ(be->resolve_route(id, 10), 0);
	CHECK(want(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
	CHECK_EQ(be->query_path(id, &path, 1), 1);
	CHECK_EQ(path.flags, 0x2b);
	CHECK_EQ(path.path.mtu & 0x1f, IBV_MTU_4096);
	big.private_data_len = 57;
	CHECK_EQ(be->connect(id, &big), -EINVAL);
	CHECK_EQ(be->connect(id, &conn_param), 0); /* a refused call can be repeated */
	CHECK(want(ch, RDMA_CM_EVENT_REJECTED, 8));
	CHECK_EQ(be->disconnect(id), 0);
	id_free(id);
	cm_channel_free(ch);
}

static void options(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = id_new(ch, NULL);
	struct sockaddr_in a = loop_addr(0);
	struct ibv_path_data path = { .flags = 0x2b };
	int on = 1, off = 0;
	uint8_t t = 12;

	CHECK_EQ(be->set_option(id, 7, 0, &on, sizeof(on)), -ENOSYS);
	CHECK_EQ(be->set_option(id, 0, 9, &on, sizeof(on)), -ENOSYS);
	CHECK_EQ(be->set_option(id, 0, 1, &on, 1), -EINVAL);
	CHECK_EQ(be->set_option(id, 0, 0, &t, 1), 0);
	CHECK_EQ(be->set_option(id, 0, 1, &on, sizeof(on)), 0);
	CHECK_EQ(be->set_option(id, 0, 1, &off, sizeof(off)), 0);
	CHECK_EQ(be->set_option(id, 0, 2, &on, sizeof(on)), 0);
	CHECK_EQ(be->set_option(id, 0, 3, &t, 1), 0);
	CHECK_EQ(be->set_option(id, 1, 1, &path, sizeof(path)), -EINVAL);
	a.sin_port = htons(20053);
	CHECK_EQ(be->resolve_addr(id, NULL, (struct sockaddr *)&a, 100), 0);
	CHECK(want(ch, RDMA_CM_EVENT_ADDR_RESOLVED, 0));
	CHECK_EQ(be->set_option(id, 0, 1, &off, sizeof(off)), -EINVAL);
	CHECK_EQ(be->set_option(id, 0, 2, &on, sizeof(on)), -EINVAL);
	CHECK_EQ(be->set_option(id, 1, 1, &path, sizeof(path) - 1), -EINVAL);
	path.flags = 0x2a;
	CHECK_EQ(be->set_option(id, 1, 1, &path, sizeof(path)), -EINVAL);
	path.flags = 0x2b;
	CHECK_EQ(be->set_option(id, 1, 1, &path, sizeof(path)), 0);
	CHECK(want(ch, RDMA_CM_EVENT_ROUTE_RESOLVED, 0));
	id_free(id);
	cm_channel_free(ch);
}

/* A port is free at once for the next owner. */
static void listens_again(void)
{
	struct cm_channel *ch = ch_new();
	struct sockaddr_in a = loop_addr(20054);

	for (int i = 0; i < 200; i++) {
		struct cm_id *id = id_new(ch, NULL);

		REQUIRE_EQ(be->bind(id, (struct sockaddr *)&a), 0);
		REQUIRE_EQ(be->listen(id, 0), 0);
		CHECK_EQ(be->listen(id, 0), -EINVAL);
		id_free(id);
	}
	cm_channel_free(ch);
}

static void tcp_port_taken(void)
{
	struct cm_channel *ch = ch_new();
	struct cm_id *id = id_new(ch, NULL);
	struct sockaddr_in a = loop_addr(20055);
	int fd = foreign(20055);

	CHECK_EQ(be->bind(id, (struct sockaddr *)&a), 0);
	CHECK_EQ(be->listen(id, 0), -EADDRINUSE);
	close(fd);
	CHECK_EQ(be->listen(id, 0), 0);
	id_free(id);
	cm_channel_free(ch);
}

static void hook_send(const char *cmd)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	socklen_t len;
	char answer[16] = "";

	CHECK(!bind(fd, (struct sockaddr *)&un, sizeof(sa_family_t))); /* autobind */
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			  (size_t)sprintf(un.sun_path + 1, "anyrdma/test/%d", getpid()));
	CHECK(sendto(fd, cmd, strlen(cmd), 0, (struct sockaddr *)&un, len) > 0);
	CHECK(recv(fd, answer, sizeof(answer) - 1, 0) == 2);
	CHECK_STR(answer, "ok");
	close(fd);
}

static void device_goes(void)
{
	struct pair p;

	REQUIRE(pair_up(&p));
	hook_send("addr_change");
	CHECK(want(p.cc, RDMA_CM_EVENT_ADDR_CHANGE, 0));
	CHECK(want(p.cs, RDMA_CM_EVENT_ADDR_CHANGE, 0));
	hook_send("removal");
	CHECK(want(p.cc, RDMA_CM_EVENT_DEVICE_REMOVAL, 0));
	CHECK(want(p.cs, RDMA_CM_EVENT_DEVICE_REMOVAL, 0));
	CHECK(silent(p.cs)); /* the listener is bound to no device */
	CHECK_EQ(be->disconnect(p.id), -ENXIO);
	pair_end(&p);
}

/* Without a descriptor left: a peer is told, an own connect fails as an event. */
static void descriptors_exhausted(void)
{
	enum { LIMIT = 1100 };
	struct cm_channel *cs, *cc;
	uint8_t req[MPA_FRAME_MAX], ans[MPA_FRAME_MAX];
	struct cm_id *lis, *id;
	struct sockaddr_in a;
	int raw[2];
	size_t n;
	struct timeval patience = { .tv_sec = 10 };
	struct rlimit old, low;
	static int fill[2048];
	struct mpa_cm_rej rej;
	struct mpa_frame f;
	int used = 0;

	REQUIRE(!getrlimit(RLIMIT_NOFILE, &old));
	SKIP_IF(old.rlim_max < LIMIT, "hard limit of %d descriptors", (int)old.rlim_max);
	cs = ch_new();
	cc = ch_new();
	lis = listener(cs, 10);
	id = routed(cc, src_port(lis));
	a = loop_addr((uint16_t)port_to_tcp(src_port(lis), false));
	n = raw_request(req, sizeof(req), src_port(lis));
	for (int i = 0; i < 2; i++)
		raw[i] = socket(AF_INET, SOCK_STREAM, 0);
	low = old;
	low.rlim_cur = LIMIT;
	REQUIRE(!setrlimit(RLIMIT_NOFILE, &low));
	while (used < 2048 && (fill[used] = dup(0)) >= 0)
		used++;
	CHECK(used < 2048 && errno == EMFILE);

	CHECK_EQ(be->connect(id, &conn_param), 0);
	CHECK(want(cc, RDMA_CM_EVENT_UNREACHABLE, -EMFILE));
	for (int i = 0; i < 2; i++) {
		setsockopt(raw[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		CHECK(!connect(raw[i], (struct sockaddr *)&a, sizeof(a)));
		CHECK_EQ(write(raw[i], req, n), n);
		CHECK(raw_answer(raw[i], ans, &f) && !mpa_cm_rej_decode(&f, &rej));
		CHECK_EQ(rej.reason, 3);
		close(raw[i]);
		while (used < 2048 && (fill[used] = dup(0)) >= 0)
			used++;
	}
	while (used)
		close(fill[--used]);
	setrlimit(RLIMIT_NOFILE, &old);
	id_free(id);
	id = routed(cc, src_port(lis));
	CHECK_EQ(be->connect(id, &conn_param), 0);
	CHECK(T_WAIT(!silent(cs), 5000));
	id_free(lis);
	CHECK(want(cc, RDMA_CM_EVENT_REJECTED, 28));
	id_free(id);
	cm_channel_free(cs);
	cm_channel_free(cc);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TEST", "1", 1);
	setenv("ANYRDMA_TRANSPORT", "tcp", 1); /* the fake device has no calls */
	setenv("ANYRDMA_CM_REPLY_MS", "500", 1);
	setenv("ANYRDMA_CM_RETRY_MS", "300", 1);
	setenv("ANYRDMA_CM_RETRIES", "9", 1);
	t_init(argc, argv);
	diag("errors are expected"); /* one case uses up the descriptors */
	cm_dev = &device;
	if (be->init())
		return 1;
	/* First: sockets of other cases close a little later, and a descriptor that
	 * comes free makes an ordinary connection of what should be refused. */
	T_RUN(descriptors_exhausted);
	T_RUN(connects_and_disconnects);
	T_RUN(attributes);
	T_RUN(rejects);
	T_RUN(nobody_listens);
	T_RUN(destroyed_before_accept);
	T_RUN(destroyed_after_accept);
	T_RUN(destroyed_when_up);
	T_RUN(listener_destroyed);
	T_RUN(simultaneous_disconnect);
	T_RUN(notified);
	T_RUN(abandoned);
	T_RUN(no_rtu);
	T_RUN(backlog);
	T_RUN(backlog_full_for_ever);
	T_RUN(other_programs);
	T_RUN(raw_clients);
	T_RUN(slow_accept);
	T_RUN(wrong_states);
	T_RUN(options);
	T_RUN(listens_again);
	T_RUN(tcp_port_taken);
	T_RUN(device_goes);
	T_RUN(nothing_left);
	return t_done();
}
