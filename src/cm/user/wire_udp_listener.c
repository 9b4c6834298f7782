/* SPDX-License-Identifier: BSD-2-Clause */
/* The listening side of the UDP wire: a socket, and the requests that came there
 * (`exchange`s). An exchange is waiting while its child decides, and answered after that:
 * its answer is kept for a while, as it may be lost, and then the request comes again.
 *
 * Children may outlive their listener, whose port is free at once. The descriptor becomes
 * another socket then, on any port, and those who wait are told: they repeat their requests
 * where the last message came from. */
#include "cm/user/wire_udp.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

enum {
	BUCKET_BITS = 8,
	BUCKETS = 1 << BUCKET_BITS,
	PACKETS_PER_TURN = 256,
	ANSWERS_MAX = 8192, /* kept by a listener; the oldest go first */
	ANSWER_MS = 60000,  /* how long; a request is repeated for about as long */
};

struct udp_exchange {
	struct user_wire head; /* while it waits; .id: the child */
	struct udp_listener *l; /* counted while it waits */
	struct list bucket;
	struct list age; /* of l's answered or waiting ones */
	struct sockaddr_in6 peer, local; /* of either family */
	uint64_t number;
	uint16_t ps;
	bool answered;
	uint64_t until; /* ns */
	uint8_t rep[SIDR_REP_LEN];
};

struct udp_listener {
	struct user_wire_listener head; /* .id: counted until the struct is freed */
	atomic_int refs; /* one of each: udp_unlisten(), the loop, every waiting exchange */
	struct loop_fd lf;
	int family;
	struct lock lock; /* leaf; guards all below and the exchanges */
	bool ended; /* by udp_unlisten(); there are no answered ones then */
	bool closed; /* the loop has given the descriptor up */
	uint32_t waiting_count, answered_count;
	struct list waiting, answered; /* oldest first */
	struct list bucket[BUCKETS];
	uint64_t secret; /* of bucket_of() */
	uint64_t said_at; /* ns: when the log told of requests that are none, */
	uint32_t unsaid;  /* and how many came since */
};

static struct udp_exchange *to_exchange(const struct user_id *u)
{
	return container_of(u->wire, struct udp_exchange, head);
}

/* ---- life ------------------------------------------------------------------------ */

static void listener_get(struct udp_listener *l)
{
	atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
}

static void listener_put(struct udp_listener *l)
{
	if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) != 1)
		return;
	lock_fini(&l->lock);
	user_put(l->head.id);
	free(l);
}

static void listener_done(struct loop_fd *lf)
{
	cm_dev->fd_close(lf->fd);
	listener_put(container_of(lf, struct udp_listener, lf));
}

/* Peers choose numbers, and forge addresses: without the secret nobody can have all of his
 * requests in one bucket, where each new one is compared with those before it. */
static struct list *bucket_of(struct udp_listener *l, const struct sockaddr_in6 *peer,
			      uint64_t number)
{
	const struct sockaddr *sa = (const struct sockaddr *)peer;
	uint64_t addr[2] = { 0, 0 }, h = number;

	if (sa->sa_family == AF_INET)
		memcpy(addr, &((const struct sockaddr_in *)sa)->sin_addr, 4);
	else
		memcpy(addr, &peer->sin6_addr, 16);
	h = h * l->secret + addr[0];
	h = h * l->secret + addr[1];
	h = h * l->secret + sa_port(sa);
	return &l->bucket[h * l->secret >> (64 - BUCKET_BITS)];
}

static void exchange_free(struct udp_listener *l, struct udp_exchange *x) REQUIRES(l->lock)
{
	list_del(&x->bucket);
	list_del(&x->age);
	if (x->answered)
		l->answered_count--;
	else
		l->waiting_count--;
	free(x);
}

static void forget_old(struct udp_listener *l) REQUIRES(l->lock)
{
	struct udp_exchange *x;
	uint64_t now = user_now();

	while (!list_empty(&l->answered)) {
		x = list_entry(l->answered.next, struct udp_exchange, age);
		if (now < x->until && l->answered_count <= ANSWERS_MAX)
			break;
		exchange_free(l, x);
	}
}

/* After its end a listener has a socket for as long as children wait. */
static void close_unused(struct udp_listener *l)
{
	bool close;

	lock_get(&l->lock);
	close = l->ended && !l->waiting_count && !l->closed;
	l->closed |= close;
	lock_put(&l->lock);
	if (close)
		cm_dev->loop_fd_del(&l->lf, listener_done);
}

/* One that waited does not any more. */
static void waited(struct udp_listener *l)
{
	close_unused(l);
	listener_put(l);
}

/* ---- sending --------------------------------------------------------------------- */

static void send_to(struct udp_listener *l, const struct sockaddr_in6 *from,
		    const struct sockaddr_in6 *to, const void *data, size_t len)
{
	char a[PORT_ADDR_STR];
	int ret = udp_io_send(l->lf.fd, l->family, (const struct sockaddr *)from,
			      (const struct sockaddr *)to, data, len);

	if (ret)
		log_info("an answer to %s is lost: %s", sa_str((const struct sockaddr *)to, a),
			 strerror(-ret));
}

static void send_wait(struct udp_exchange *x)
{
	uint8_t buf[SIDR_WAIT_LEN];

	sidr_wait_encode(buf, x->ps, x->number);
	send_to(x->l, &x->local, &x->peer, buf, sizeof(buf));
}

/* ---- what arrives ---------------------------------------------------------------- */

/* The log is told at most once a second. */
static void say(struct udp_listener *l, const struct udp_io_packet *p, const char *why)
{
	uint64_t now = user_now();
	char a[PORT_ADDR_STR];
	uint32_t n = 0;

	lock_get(&l->lock);
	l->unsaid++;
	if (!l->said_at || now - l->said_at >= SEC) {
		l->said_at = now;
		n = l->unsaid;
		l->unsaid = 0;
	}
	lock_put(&l->lock);
	if (n)
		log_info("RDMA port %u: %u datagrams were refused or dropped; the last one, of "
			 "%zu bytes from %s: %s", l->head.id->port.num, n, p->len,
			 sa_str((const struct sockaddr *)&p->from, a), why);
}

static void refuse(struct udp_listener *l, const struct udp_io_packet *p, uint64_t number,
		   enum sidr_status status)
{
	struct sidr_rep r = { .id = number, .ps = (uint16_t)l->head.id->ps,
			      .status = (uint8_t)status };
	uint8_t buf[SIDR_REP_LEN];

	sidr_rep_encode(buf, &r);
	udp_io_send(l->lf.fd, l->family, (const struct sockaddr *)&p->to,
		    (const struct sockaddr *)&p->from, buf, sizeof(buf));
	say(l, p, status == SIDR_NO_SERVICE  ? "it is for another port or port space" :
		  status == SIDR_BAD_VERSION ? "it is of another version" :
					       "the backlog is full");
}

static bool is_peer(const struct udp_exchange *x, const struct udp_io_packet *p)
{
	const struct sockaddr *a = (const struct sockaddr *)&x->peer;
	const struct sockaddr *b = (const struct sockaddr *)&p->from;

	return sa_same_host(a, b) && sa_port(a) == sa_port(b);
}

/* A repeated request is answered as before. False: it is a new one. */
static bool repeated(struct udp_listener *l, const struct udp_io_packet *p, uint64_t number)
{
	struct udp_exchange *x;
	bool found = false;

	lock_get(&l->lock);
	forget_old(l);
	list_for_each(x, bucket_of(l, (const void *)&p->from, number), bucket) {
		found = x->number == number && is_peer(x, p);
		if (found && x->answered)
			send_to(l, &x->local, &x->peer, x->rep, sizeof(x->rep));
		else if (found)
			send_wait(x);
		if (found)
			break;
	}
	lock_put(&l->lock);
	return found;
}

static struct udp_exchange *exchange_new(struct udp_listener *l,
					 const struct udp_io_packet *p,
					 const struct sidr_req *r)
{
	struct udp_exchange *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->head.ops = &user_wire_udp;
	x->l = l;
	memcpy(&x->peer, &p->from, sizeof(x->peer));
	memcpy(&x->local, &p->to, sizeof(x->local));
	x->number = r->id;
	x->ps = r->ps;
	return x;
}

static void new_request(struct udp_listener *l, const struct udp_io_packet *p,
			const struct sidr_req *r)
{
	struct user_incoming in = { .wire = &user_wire_udp, .src = p->to, .dst = p->from,
				    .sidr = r };
	struct udp_exchange *x;
	int ret;

	if (r->ps != l->head.id->ps || r->dst_port != l->head.id->port.num) {
		refuse(l, p, r->id, SIDR_NO_SERVICE);
		return;
	}
	ret = user_listener_room(l->head.id);
	if (ret == -EBUSY) {
		refuse(l, p, r->id, SIDR_REJECTED);
		return;
	}
	x = exchange_new(l, p, r);
	in.from = x;
	ret = x ? user_listener_request(l->head.id, &in) : -ENOMEM;
	if (!ret)
		return;
	say(l, p, ret == -ENOENT ? "the listener ends" : "no memory");
	free(x);
}

static void packet(struct udp_listener *l, const struct udp_io_packet *p)
{
	struct sidr_req r;
	uint64_t number;
	int kind = sidr_kind(p->data, p->len, &number);

	if (!sa_len((const struct sockaddr *)&p->to) ||
	    !sa_port((const struct sockaddr *)&p->from) ||
	    cm_dev->gid_device((const struct sockaddr *)&p->to) < 0)
		say(l, p, "it was sent to no address of the device");
	else if (kind == -EPROTONOSUPPORT)
		refuse(l, p, number, SIDR_BAD_VERSION);
	else if (kind != SIDR_REQ || sidr_req_decode(p->data, p->len, &r))
		say(l, p, "it is no request");
	else if (!repeated(l, p, number))
		new_request(l, p, &r);
}

static void listener_ready(struct loop_fd *lf, uint32_t revents)
{
	struct udp_listener *l = container_of(lf, struct udp_listener, lf);
	struct udp_io_packet p;

	(void)revents;
	for (int n = 0; n < PACKETS_PER_TURN && !udp_io_recv(lf->fd, &p); n++)
		packet(l, &p);
}

/* ---- the wire of a child --------------------------------------------------------- */

int udp_attach(struct user_id *child, void *from)
{
	struct udp_exchange *x = from;
	struct udp_listener *l = x->l;

	lock_assert_held(&child->lock);
	x->head.id = child;
	child->wire = &x->head;
	listener_get(l);
	lock_get(&l->lock);
	list_add_tail(bucket_of(l, &x->peer, x->number), &x->bucket);
	list_add_tail(&l->waiting, &x->age);
	l->waiting_count++;
	lock_put(&l->lock);
	return 0;
}

int udp_ack_request(struct user_id *u)
{
	lock_assert_held(&u->lock);
	send_wait(to_exchange(u));
	return 0;
}

static void answer(struct user_id *u, const uint8_t *rep, size_t len) REQUIRES(u->lock)
{
	struct udp_exchange *x = to_exchange(u);
	struct udp_listener *l = x->l;

	u->wire = NULL;
	lock_get(&l->lock);
	memcpy(x->rep, rep, len);
	send_to(l, &x->local, &x->peer, rep, len);
	if (l->ended) {
		exchange_free(l, x);
	} else {
		list_del(&x->age);
		list_add_tail(&l->answered, &x->age);
		l->waiting_count--;
		l->answered_count++;
		x->answered = true;
		x->until = user_now() + ANSWER_MS * MSEC;
		forget_old(l);
	}
	lock_put(&l->lock);
	waited(l);
}

int udp_accept(struct user_id *u, const uint8_t *rep, size_t len)
{
	lock_assert_held(&u->lock);
	answer(u, rep, len);
	return 0;
}

void udp_reject(struct user_id *u, const uint8_t *rej, size_t len)
{
	lock_assert_held(&u->lock);
	answer(u, rej, len);
}

void udp_close_passive(struct user_id *u)
{
	struct udp_exchange *x = to_exchange(u);
	struct udp_listener *l = x->l;

	lock_assert_held(&u->lock);
	u->wire = NULL;
	lock_get(&l->lock);
	exchange_free(l, x);
	lock_put(&l->lock);
	waited(l);
}

/* ---- listen ---------------------------------------------------------------------- */

static int listener_socket(struct user_id *u) REQUIRES(u->lock)
{
	const struct sockaddr *src = (struct sockaddr *)&u->src;
	char a[PORT_ADDR_STR];
	int fd, ret;

	port_close_tcp(&u->port); /* RDMA_PS_IB: it was chosen before the type was known */
	fd = port_udp_bound(u->ps, src, user_afonly(u, src->sa_family), u->port.num);
	ret = fd < 0 ? fd : udp_io_prepare(fd, src->sa_family, false);
	if (!ret)
		return fd;
	if (fd >= 0)
		cm_dev->fd_close(fd);
	return log_refuse(-ret, "cannot listen on %s: its UDP port %d: %s", sa_str(src, a),
			  port_to_udp(u->ps, u->port.num), strerror(-ret));
}

int udp_listen(struct user_id *u, struct user_wire_listener **out)
{
	struct udp_listener *l = calloc(1, sizeof(*l));
	int fd, ret;

	lock_assert_held(&u->lock);
	if (!l)
		return -ENOMEM;
	fd = listener_socket(u);
	if (fd < 0) {
		free(l);
		return fd;
	}
	l->head = (struct user_wire_listener){ .ops = &user_wire_udp, .id = u };
	user_get(u);
	atomic_init(&l->refs, 2);
	l->family = u->src.ss_family;
	lock_init(&l->lock);
	list_init(&l->waiting);
	list_init(&l->answered);
	for (unsigned i = 0; i < BUCKETS; i++)
		list_init(&l->bucket[i]);
	if (getrandom(&l->secret, sizeof(l->secret), GRND_NONBLOCK) != sizeof(l->secret))
		l->secret = user_now();
	l->secret |= 1;
	l->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = listener_ready };
	ret = cm_dev->loop_fd_add(&l->lf);
	if (ret) {
		cm_dev->fd_close(fd);
		atomic_init(&l->refs, 1);
		listener_put(l);
		return ret;
	}
	*out = &l->head;
	return 0;
}

/* The descriptor becomes a socket on no port, in one step: others may be using it. False:
 * there is no descriptor for the moment in between, and the port is free when it closes. */
static bool leave_port(struct udp_listener *l)
{
	int fd = udp_io_socket(l->family, false);
	bool done;

	if (fd < 0)
		return false;
	done = !udp_io_prepare(fd, l->family, false) && dup3(fd, l->lf.fd, O_CLOEXEC) >= 0;
	close(fd);
	return done;
}

void udp_unlisten(struct user_wire_listener *head)
{
	struct udp_listener *l = container_of(head, struct udp_listener, head);
	struct udp_exchange *x;
	bool waiting;

	cm_dev->loop_fd_mod(&l->lf, 0);
	lock_get(&l->lock);
	while (!list_empty(&l->answered))
		exchange_free(l, list_entry(l->answered.next, struct udp_exchange, age));
	if (leave_port(l))
		list_for_each(x, &l->waiting, age)
			send_wait(x);
	waiting = l->waiting_count;
	lock_put(&l->lock);
	if (waiting)
		cm_dev->loop_fd_mod(&l->lf, EPOLLIN);
	lock_get(&l->lock);
	l->ended = true;
	lock_put(&l->lock);
	close_unused(l);
	listener_put(l);
}
