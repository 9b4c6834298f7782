/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/move.h"
#include "base/log.h"
#include "preload/conf.h"
#include "preload/ep.h"
#include "preload/real.h"
#include "preload/share.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <time.h>

/* Descriptors of ours are out of the way of programs that count on low numbers. */
int own_fd(int fd)
{
	int high;

	if (fd < 0)
		return fd;
	high = real.fcntl(fd, F_DUPFD_CLOEXEC, 1024);
	if (high < 0)
		high = real.fcntl(fd, F_DUPFD_CLOEXEC, 512);
	if (high < 0)
		return fd;
	real.close(fd);
	return high;
}

struct rail *rail_get(struct conn *c)
{
	struct rail *r;

	pthread_mutex_lock(&c->lock);
	r = c->rail;
	if (r && r->step < RAIL_READY)
		r = NULL;
	if (r)
		atomic_fetch_add(&r->refs, 1);
	pthread_mutex_unlock(&c->lock);
	return r;
}

void rail_leave(struct rail *r)
{
	atomic_store(&r->closing, true);
	service_post(r);
}

/* An address as IPv6 has it, and the port. */
static bool endpoint(const struct sockaddr_storage *ss, char *out)
{
	const struct sockaddr_in6 *in6 = (const void *)ss;
	const struct sockaddr_in *in = (const void *)ss;
	uint8_t raw[18] = { [10] = 0xff, [11] = 0xff };

	if (ss->ss_family == AF_INET) {
		memcpy(raw + 12, &in->sin_addr, 4);
		memcpy(raw + 16, &in->sin_port, 2);
	} else if (ss->ss_family == AF_INET6) {
		memcpy(raw, &in6->sin6_addr, 16);
		memcpy(raw + 16, &in6->sin6_port, 2);
	} else {
		return false;
	}
	for (int i = 0; i < 18; i++)
		sprintf(out + 2 * i, "%02x", raw[i]);
	return true;
}

/* The name of the connection, the same at both ends: the active one's address comes first. */
static socklen_t conn_name(int fd, bool passive, struct sockaddr_un *un)
{
	struct sockaddr_storage me, peer;
	socklen_t len = sizeof(me), peer_len = sizeof(peer);
	char a[40], b[40];

	if (getsockname(fd, (void *)&me, &len) ||
	    getpeername(fd, (void *)&peer, &peer_len) ||
	    !endpoint(&me, passive ? b : a) || !endpoint(&peer, passive ? a : b))
		return 0;
	memset(un, 0, sizeof(*un));
	un->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (unsigned)snprintf(un->sun_path + 1, sizeof(un->sun_path) - 1,
					      "anyrdma/sockets/1/%s-%s", a, b));
}

static struct rail *rail_create(struct conn *c)
{
	struct rail *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->refs = 1;
	r->listener = r->ctl = r->rs = -1;
	r->conn = c;
	r->passive = c->passive;
	r->peer_end = RAIL_OPEN;
	pthread_mutex_init(&r->ctl_lock, NULL);
	file_hold(&c->file);
	return r;
}

/* The same user: anybody else may be anybody, and has no shared memory with us. */
static bool peer_is_ours(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !real.getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) &&
	       cred.uid == geteuid();
}

/* The socket of the move's beginning, or -1: the peer has not published, or cannot. */
static int meet(int fd, bool passive)
{
	struct sockaddr_un un;
	socklen_t len = conn_name(fd, passive, &un);
	int sk;

	if (!len)
		return -1;
	sk = real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sk < 0)
		return -1;
	if (passive ? real.bind(sk, (void *)&un, len) || real.listen(sk, 1) :
		      real.connect(sk, (void *)&un, len) || !peer_is_ours(sk)) {
		real.close(sk);
		return -1;
	}
	return own_fd(sk);
}

static void begin_locked(struct conn *c, int fd)
{
	int sk = meet(fd, c->passive);
	struct rail *r;

	if (sk < 0)
		return;
	r = service_start() ? rail_create(c) : NULL;
	if (!r) {
		real.close(sk);
		return;
	}
	if (c->passive) {
		r->listener = sk;
		r->step = RAIL_PUBLISHED;
	} else {
		r->ctl = sk;
		r->step = RAIL_ASKING;
		if (getrandom(r->token, sizeof(r->token), 0) != sizeof(r->token))
			r->closing = true;
	}
	c->rail = r;
	service_post(r);
}

void move_consider(struct conn *c, int fd)
{
	int saved = errno;

	pthread_mutex_lock(&c->lock);
	/* Next time after as many calls again; who has never found a peer gives up. */
	c->ask_at = c->ask_at < 1u << 20 ? c->calls * 2 + 2 : UINT32_MAX;
	if (!c->rail && !c->pinned && !c->kept && !c->shut_wr && !c->shut_rd &&
	    share_sole(&c->share))
		begin_locked(c, fd);
	pthread_mutex_unlock(&c->lock);
	errno = saved;
}

/* ---- back to TCP ---- */

void move_back_begin(struct conn *c)
{
	struct rail *r;

	pthread_mutex_lock(&c->lock);
	r = c->rail;
	if (r && r->step < RAIL_READY) {
		rail_leave(r);
		c->rail = NULL;
		r = NULL;
	}
	if (r)
		atomic_fetch_add(&r->refs, 1);
	pthread_mutex_unlock(&c->lock);
	if (!r)
		return;
	back_begin(r);
	service_post(r);
	rail_put(r);
}

bool move_back_wait(struct conn *c)
{
	struct timespec until;
	bool back;
	int err = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 2;
	pthread_mutex_lock(&c->lock);
	while (c->rail && !err)
		err = pthread_cond_timedwait(&c->turned, &c->lock, &until);
	back = !c->rail;
	pthread_mutex_unlock(&c->lock);
	return back;
}

bool move_back(struct conn *c)
{
	move_back_begin(c);
	return move_back_wait(c);
}

void move_pin(struct conn *c)
{
	if (atomic_exchange(&c->pinned, true) && !c->rail)
		return;
	if (!move_back(c))
		log_warn("a connection does not come back to TCP: its peer does not "
			 "answer");
}

static void child_conn(struct file *f, void *arg)
{
	struct conn *c = conn_of(f);
	struct rail *r = c->rail;

	(void)arg;
	pthread_mutex_init(&c->tx_lock, NULL);
	pthread_mutex_init(&c->rx_lock, NULL);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->turned, NULL);
	c->plain_rx = c->plain_tx = 0;
	c->offer = c->tx_may = false;
	c->calls = 0;
	c->ask_at = c->passive ? (conf_after() + 1) / 2 : conf_after();
	if ((c->rx != RX_TCP && c->rx != RX_KEPT) || c->tx != TX_TCP) {
		c->pinned = true;
		c->lost = true;
	}
	c->rail = NULL;
	if (c->rx != RX_KEPT)
		c->rx = RX_TCP;
	c->tx = TX_TCP;
	if (!r)
		return;
	if (r->listener >= 0)
		real.close(r->listener);
	if (r->ctl >= 0)
		real.close(r->ctl);
}

void move_child(void)
{
	file_each(FILE_CONN, child_conn, NULL);
	service_child();
}

static void flush_conn(struct file *f, void *arg)
{
	struct conn *c = conn_of(f);

	(void)arg;
	/* What the peer returns has to be written before the end. */
	if (c->tx == TX_HELD)
		move_back_wait(c);
	if (!c->rail || pthread_mutex_trylock(&c->tx_lock))
		return;
	if (c->rail && c->tx == TX_RS && c->rail->step == RAIL_READY) {
		rail_say_fin(c->rail, c->tx_count);
		rs.rshutdown(c->rail->rs, SHUT_WR);
	}
	pthread_mutex_unlock(&c->tx_lock);
}

void move_flush(void)
{
	file_each(FILE_CONN, flush_conn, NULL);
	service_flush();
}
