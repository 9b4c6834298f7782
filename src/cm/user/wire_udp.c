/* SPDX-License-Identifier: BSD-2-Clause */
/* The wire of datagram ids over UDP, the active side. All ids of the process share two
 * sockets, one for each family, as a process may ask for thousands of ports: an answer
 * finds its id by the number that the request had. */
#include "cm/user/wire_udp.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

enum {
	BUCKETS = 1024,
	PACKETS_PER_TURN = 256,
	SEND_TRIES = 4,
};

struct udp_wire {
	struct user_wire head;
	struct udp_wire *next; /* of the bucket */
	uint64_t number;
	struct sockaddr_storage to; /* the id's lock: where repeats go */
};

/* A socket is made once, and stays. */
struct active_socket {
	struct loop_fd lf;
	bool open;
};

static struct {
	struct lock lock; /* leaf */
	struct udp_wire *bucket[BUCKETS] GUARDED_BY(lock);
	struct active_socket v4, v6;
} active PROCESS_STATE = { .lock = LOCK_INIT };

static struct udp_wire *to_udp(const struct user_id *u)
{
	return container_of(u->wire, struct udp_wire, head);
}

/* ---- the table ------------------------------------------------------------------- */

static struct udp_wire **bucket_of(uint64_t number) REQUIRES(active.lock)
{
	return &active.bucket[number % BUCKETS];
}

static void table_add(struct udp_wire *w)
{
	struct udp_wire **b;

	lock_get(&active.lock);
	b = bucket_of(w->number);
	w->next = *b;
	*b = w;
	lock_put(&active.lock);
}

static void table_del(struct udp_wire *w)
{
	struct udp_wire **at;

	lock_get(&active.lock);
	for (at = bucket_of(w->number); *at != w; at = &(*at)->next)
		;
	*at = w->next;
	lock_put(&active.lock);
}

/* The id whose request has this number, with a reference; or NULL. An id lives as long as
 * its wire is here. */
static struct user_id *table_find(uint64_t number)
{
	struct user_id *u = NULL;
	struct udp_wire *w;

	lock_get(&active.lock);
	for (w = *bucket_of(number); w && w->number != number; w = w->next)
		;
	if (w) {
		u = w->head.id;
		user_get(u);
	}
	lock_put(&active.lock);
	return u;
}

/* Its wire is still the one of that request. */
static bool waits_for(const struct user_id *u, uint64_t number)
{
	return u->wire && u->state == US_AWAIT_REP && to_udp(u)->number == number;
}

/* ---- what arrives ---------------------------------------------------------------- */

static void answer(struct user_id *u, const struct udp_io_packet *p, uint64_t number,
		   bool wait) REQUIRES(u->lock)
{
	struct sidr_rep r;

	if (!waits_for(u, number) || !sa_same_host((const struct sockaddr *)&p->from,
						   (struct sockaddr *)&u->dst))
		return;
	/* Its listener may have ended since, and with it the socket on its port. */
	to_udp(u)->to = p->from;
	if (wait)
		user_sidr_wait(u);
	else if (!sidr_rep_decode(p->data, p->len, &r))
		user_sidr_reply(u, &r);
}

static void packet(const struct udp_io_packet *p)
{
	struct user_id *u;
	uint64_t number;
	int kind = sidr_kind(p->data, p->len, &number);

	if (kind != SIDR_WAIT && kind != SIDR_REP)
		return;
	u = table_find(number);
	if (!u)
		return; /* answered already */
	lock_get(&u->lock);
	answer(u, p, number, kind == SIDR_WAIT);
	lock_put(&u->lock);
	user_put(u);
}

/* The error is about where the request went. A packet that was spoiled on its way, or one that
 * somebody has made up, may be about another place. */
static bool went_there(const struct user_id *u, const struct udp_io_packet *p)
{
	const struct sockaddr *to = (struct sockaddr *)&to_udp(u)->to;
	const struct sockaddr *there = (const struct sockaddr *)&p->from;

	return sa_same_host(there, to) && sa_port(there) == sa_port(to);
}

void udp_icmp_error(const struct udp_io_packet *p, int err)
{
	struct user_id *u;
	uint64_t number;

	if (!sidr_quoted_id(p->data, p->len, &number))
		return; /* time will tell */
	u = table_find(number);
	if (!u)
		return;
	lock_get(&u->lock);
	if (waits_for(u, number) && went_there(u, p)) {
		if (err == ECONNREFUSED)
			user_sidr_refused(u);
		else if (!u->req_acked)
			user_unreachable(u, err);
	}
	lock_put(&u->lock);
	user_put(u);
}

static void active_ready(struct loop_fd *lf, uint32_t revents)
{
	struct udp_io_packet p;
	int err, n;

	for (n = 0; n < PACKETS_PER_TURN; n++) {
		err = udp_io_recv(lf->fd, &p);
		if (!err)
			packet(&p);
		else if (err != -ECONNREFUSED && err != -EHOSTUNREACH &&
			 err != -ENETUNREACH && err != -EINTR)
			break;
	}
	if (!(revents & EPOLLERR))
		return;
	for (n = 0; n < PACKETS_PER_TURN && (err = udp_io_error(lf->fd, &p)); n++)
		udp_icmp_error(&p, err);
}

/* ---- the sockets ----------------------------------------------------------------- */

static int socket_open(struct active_socket *s, int family) REQUIRES(active.lock)
{
	int fd = udp_io_socket(family, true), ret;

	if (fd < 0)
		return fd;
	fd = cm_dev->fd_take(fd);
	ret = udp_io_prepare(fd, family, true);
	if (!ret) {
		s->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN,
					  .ready = active_ready };
		ret = cm_dev->loop_fd_add(&s->lf);
	}
	if (ret)
		cm_dev->fd_close(fd);
	s->open = !ret;
	return ret;
}

/* The descriptor, or -errno. */
static int socket_for(int family)
{
	struct active_socket *s = family == AF_INET ? &active.v4 : &active.v6;
	int ret = 0;

	lock_get(&active.lock);
	if (!s->open)
		ret = socket_open(s, family);
	lock_put(&active.lock);
	return ret ? ret : s->lf.fd;
}

/* Errors that a repeat may not meet. */
static bool passes(int err)
{
	return !err || err == -EAGAIN || err == -ENOBUFS || err == -ENOMEM ||
	       err == -EPERM || err == -ECONNREFUSED;
}

/* An ICMP error about another id's request is reported to whoever calls next, once:
 * then the call is repeated. */
static int send_request(struct user_id *u) REQUIRES(u->lock)
{
	const struct sockaddr *from = (struct sockaddr *)&u->src;
	int fd = socket_for(u->src.ss_family), err, n = 0;

	if (fd < 0)
		return fd;
	do {
		err = udp_io_send(fd, u->src.ss_family, from,
				  (struct sockaddr *)&to_udp(u)->to, u->req->frame,
				  u->req->len);
	} while (err && err != -EAGAIN && ++n < SEND_TRIES);
	return passes(err) ? 0 : err;
}

/* ---- the wire -------------------------------------------------------------------- */

static bool udp_can_connect(const struct user_id *u)
{
	(void)u;
	return true;
}

static void udp_connect(struct user_id *u)
{
	int port = port_to_udp(u->ps, sa_port((struct sockaddr *)&u->dst)), ret;
	struct udp_wire *w = calloc(1, sizeof(*w));

	lock_assert_held(&u->lock);
	if (!w) {
		user_unreachable(u, ENOMEM);
		return;
	}
	w->head = (struct user_wire){ .ops = &user_wire_udp, .id = u };
	w->number = u->req->sidr_id;
	w->to = user_addr_get(&u->dst);
	sa_set_port((struct sockaddr *)&w->to, (uint16_t)port);
	u->wire = &w->head;
	table_add(w);
	ret = send_request(u);
	if (ret)
		user_unreachable(u, -ret);
	else
		user_sidr_sent(u);
}

static void udp_repeat(struct user_id *u)
{
	int ret;

	lock_assert_held(&u->lock);
	ret = send_request(u);
	if (ret)
		user_unreachable(u, -ret);
}

static void udp_close(struct user_id *u)
{
	struct udp_wire *w;

	lock_assert_held(&u->lock);
	if (u->listener) {
		udp_close_passive(u);
		return;
	}
	w = to_udp(u);
	u->wire = NULL;
	table_del(w);
	free(w);
}

/* A datagram that has arrived is handled before or after its timeout: it is repeated. */
static enum user_todo udp_poll(struct user_id *u)
{
	(void)u;
	return TODO_NOTHING;
}

const struct user_wire_ops user_wire_udp = {
	.name = "udp",
	.datagram = true,
	.can_connect = udp_can_connect,
	.connect = udp_connect,
	.repeat = udp_repeat,
	.attach = udp_attach,
	.ack_request = udp_ack_request,
	.accept = udp_accept,
	.reject = udp_reject,
	.close = udp_close,
	.poll = udp_poll,
	.listen = udp_listen,
	.unlisten = udp_unlisten,
};
