/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections made and ended per second, QP included. The bare rival's client
 * never waits for its peer (the kernel's backlog decouples the two), so the
 * comparable RC client has several under way: "rc16". "rc" makes one after the
 * other; its rival "tcp cycle" waits for the peer's end of each connection, as
 * rdma_disconnect's DISCONNECTED does. Two processes of one host have unix sockets as
 * a rival, with a message each way, one after the other or 16 under way. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum kind { BARE, CYCLE, UNIX_ONE, UNIX_MANY, RC_ONE, RC_MANY, NKINDS };

static const char *const kind_name[NKINDS] = { "tcp", "tcp cycle", "unix", "unix16", "rc",
					       "rc16" };

enum { IN_FLIGHT = 16, WARM_UP = 32 };

struct conn {
	struct side *s;
	int lfd;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint16_t tcp_port;
	uint16_t rdma_port;
	int ufd;
	pid_t unix_name;	/* the server's pid */
};

struct order {
	uint32_t kind;
	uint32_t count;
};

/* PD and CQ are made once, as a server does; the QP belongs to the connection. */
static void make_qp(struct conn *c, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = IDLE_WRS, .max_recv_wr = IDLE_WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	if (!c->pd) {
		c->verbs = id->verbs;
		device_check(c->s, c->verbs);
		c->pd = ibv_alloc_pd(c->verbs);
		c->cq = ibv_create_cq(c->verbs, 2 * IDLE_WRS * IN_FLIGHT, NULL, NULL, 0);
		if (!c->pd || !c->cq)
			die("PD and CQ");
	}
	attr.send_cq = attr.recv_cq = c->cq;
	if (rdma_create_qp(id, c->pd, &attr))
		die("rdma_create_qp");
}

static void drop(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	if (rdma_destroy_id(id))
		die("rdma_destroy_id");
}

static void rc_serve(struct conn *c, uint32_t count)
{
	struct rdma_conn_param p;
	struct rdma_cm_id *id;
	uint32_t ended = 0;

	cm_param(&p, false);
	while (ended < count) {
		switch (cm_next(c->ch, &id)) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			make_qp(c, id);
			if (rdma_accept(id, &p))
				die("rdma_accept");
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id);
			drop(id);
			ended++;
			break;
		default:
			errno = EPROTO;
			die("event at the server");
		}
	}
}

/* One event of one connection of the client. Returns whether it has ended. */
static bool rc_step(struct conn *c)
{
	struct rdma_conn_param p;
	struct rdma_cm_id *id;

	switch (cm_next(c->ch, &id)) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(id, 2000))
			die("rdma_resolve_route");
		return false;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		make_qp(c, id);
		cm_param(&p, true);
		if (rdma_connect(id, &p))
			die("rdma_connect");
		return false;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (rdma_disconnect(id))
			die("rdma_disconnect");
		return false;
	case RDMA_CM_EVENT_DISCONNECTED:
		drop(id);
		return true;
	default:
		errno = EPROTO;
		die("event at the client");
	}
}

static void rc_storm(struct conn *c, uint32_t count, uint32_t in_flight)
{
	uint32_t begun = 0, ended = 0;

	while (ended < count) {
		while (begun < count && begun - ended < in_flight) {
			cm_start(c->ch, c->s->o->addr, c->rdma_port);
			begun++;
		}
		if (rc_step(c))
			ended++;
	}
}

static void tcp_serve(struct conn *c, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int fd = tcp_accept(c->lfd);
		char b;

		if (recv(fd, &b, 1, 0) != 0)
			die("end of a bare connection");
		close(fd);
	}
}

static void tcp_storm(struct conn *c, uint32_t count, bool cycle)
{
	for (uint32_t i = 0; i < count; i++) {
		int fd = tcp_connect(c->s->o->addr, c->tcp_port);
		char b;

		if (cycle && (shutdown(fd, SHUT_WR) < 0 || recv(fd, &b, 1, 0) != 0))
			die("end of a bare connection");
		close(fd);
	}
}

static socklen_t unix_address(const struct conn *c, struct sockaddr_un *un)
{
	int n;

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1, "bench/%d", c->unix_name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void unix_listen(struct conn *c)
{
	struct sockaddr_un un;
	socklen_t len;

	c->unix_name = getpid();
	len = unix_address(c, &un);
	c->ufd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->ufd < 0 || bind(c->ufd, (struct sockaddr *)&un, len) || listen(c->ufd, 128))
		die("unix socket");
}

static void unix_serve(struct conn *c, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		int fd = accept4(c->ufd, NULL, NULL, SOCK_CLOEXEC);
		char b;

		if (fd < 0 || recv(fd, &b, 1, 0) != 1 || send(fd, &b, 1, MSG_NOSIGNAL) != 1)
			die("message of a unix connection");
		close(fd);
	}
}

static int unix_connect(struct conn *c)
{
	struct sockaddr_un un;
	socklen_t len = unix_address(c, &un);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char b = 'b';

	if (fd < 0 || connect(fd, (struct sockaddr *)&un, len) ||
	    send(fd, &b, 1, MSG_NOSIGNAL) != 1)
		die("unix connect");
	return fd;
}

static void unix_storm(struct conn *c, uint32_t count, uint32_t in_flight)
{
	int fd[IN_FLIGHT];
	uint32_t begun = 0;
	char b;

	for (uint32_t ended = 0; ended < count; ended++) {
		for (; begun < count && begun - ended < in_flight; begun++)
			fd[begun % IN_FLIGHT] = unix_connect(c);
		if (recv(fd[ended % IN_FLIGHT], &b, 1, 0) != 1)
			die("answer of a unix connection");
		close(fd[ended % IN_FLIGHT]);
	}
}

static void serve(struct conn *c)
{
	struct order o;
	char done = 'd';

	for (;;) {
		ctl_get(c->s, &o, sizeof(o));
		if (o.kind == NKINDS)
			return;
		if (o.kind >= RC_ONE)
			rc_serve(c, o.count);
		else if (o.kind >= UNIX_ONE)
			unix_serve(c, o.count);
		else
			tcp_serve(c, o.count);
		ctl_put(c->s, &done, 1);
	}
}

/* Connections per second, both sides having seen the end of all. */
static double round_run(struct conn *c, enum kind k, uint32_t count)
{
	struct order o = { k, count };
	double t = now_s();
	char done;

	ctl_put(c->s, &o, sizeof(o));
	if (k >= RC_ONE)
		rc_storm(c, count, k == RC_ONE ? 1 : IN_FLIGHT);
	else if (k >= UNIX_ONE)
		unix_storm(c, count, k == UNIX_ONE ? 1 : IN_FLIGHT);
	else
		tcp_storm(c, count, k == CYCLE);
	ctl_get(c->s, &done, 1);
	return count / (now_s() - t);
}

/* Abstract unix names are those of a network namespace. */
static bool wanted(const struct side *s, enum kind k)
{
	bool apart = s->o->ns[0] || s->o->ns[1];

	return kind_wanted(s, kind_name[k]) && !(apart && (k == UNIX_ONE || k == UNIX_MANY));
}

static void client(struct conn *c)
{
	const struct opts *o = c->s->o;
	struct order end = { .kind = NKINDS };
	uint32_t n[NKINDS];

	for (int k = 0; k < NKINDS; k++) {
		double rate;

		if (!wanted(c->s, (enum kind)k))
			continue;
		rate = round_run(c, (enum kind)k, WARM_UP);
		/* A slow library gets fewer, so that the whole stays bounded. */
		n[k] = rate < o->conns ? (uint32_t)rate / 2 + WARM_UP : o->conns;
	}
	for (unsigned r = 0; r < o->rounds * NKINDS; r++) {
		enum kind k = (enum kind)((r + r / NKINDS) % NKINDS);

		if (wanted(c->s, k))
			side_emit(c->s, "connections", kind_name[k], 0, r / NKINDS,
				  round_run(c, k, n[k]));
	}
	ctl_put(c->s, &end, sizeof(end));
}

void conn_run(struct side *s)
{
	struct conn c = { .s = s, .lfd = -1 };

	c.ch = cm_channel();
	if (s->server) {
		c.lfd = tcp_listen(s->o->addr, &c.tcp_port);
		c.listener = cm_listen(c.ch, s->o->addr, &c.rdma_port);
		ctl_put(s, &c.tcp_port, sizeof(c.tcp_port));
		ctl_put(s, &c.rdma_port, sizeof(c.rdma_port));
		unix_listen(&c);
		ctl_put(s, &c.unix_name, sizeof(c.unix_name));
		serve(&c);
		close(c.lfd);
		close(c.ufd);
		if (rdma_destroy_id(c.listener))
			die("rdma_destroy_id");
	} else {
		ctl_get(s, &c.tcp_port, sizeof(c.tcp_port));
		ctl_get(s, &c.rdma_port, sizeof(c.rdma_port));
		ctl_get(s, &c.unix_name, sizeof(c.unix_name));
		client(&c);
	}
	if (c.pd && (ibv_destroy_cq(c.cq) || ibv_dealloc_pd(c.pd)))
		die("destroying CQ and PD");
	rdma_destroy_event_channel(c.ch);
}
