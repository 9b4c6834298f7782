/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets that are read to their end after a reject. They belong to no id. Callbacks
 * run in the loop thread, which is the only one that reads or changes the struct after
 * tcp_linger() has returned: there is no lock. */
#include "cm/user/wire_tcp.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { READS = 16 }; /* per callback: a peer that goes on sending must not keep the thread */

struct lingering {
	atomic_int refs; /* one of each: the loop (lf), the pending timer, tcp_linger() */
	struct loop_fd lf;
	struct loop_timer timer;
	bool reserve; /* of struct tcp_socket */
	bool ended;
};

static atomic_uint count PROCESS_STATE;

static void linger_put(struct lingering *l)
{
	if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1)
		free(l);
}

static void linger_done(struct loop_fd *lf)
{
	struct lingering *l = container_of(lf, struct lingering, lf);

	tcp_socket_close((struct tcp_socket){ .fd = lf->fd, .reserve = l->reserve });
	atomic_fetch_sub(&count, 1);
	linger_put(l);
}

static void linger_end(struct lingering *l)
{
	if (l->ended)
		return;
	l->ended = true;
	if (cm_dev->loop_timer_stop(&l->timer))
		linger_put(l);
	cm_dev->loop_fd_del(&l->lf, linger_done);
}

static void linger_ready(struct loop_fd *lf, uint32_t revents)
{
	char scrap[4096];
	int reads = READS;
	ssize_t got;

	(void)revents; /* errors show in recv() */
	do
		got = recv(lf->fd, scrap, sizeof(scrap), MSG_DONTWAIT);
	while (--reads && (got > 0 || (got < 0 && errno == EINTR)));
	if (!got || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
		linger_end(container_of(lf, struct lingering, lf));
}

static void linger_timeout(struct loop_timer *t)
{
	struct lingering *l = container_of(t, struct lingering, timer);

	linger_end(l);
	linger_put(l);
}

bool tcp_linger(struct tcp_socket s)
{
	struct lingering *l;

	if (atomic_load(&count) >= USER_LINGER_MAX)
		return false;
	l = calloc(1, sizeof(*l));
	if (!l)
		return false;
	atomic_init(&l->refs, 3);
	l->reserve = s.reserve;
	l->timer.fire = linger_timeout;
	l->lf = (struct loop_fd){ .fd = s.fd, .events = EPOLLIN, .ready = linger_ready };
	if (cm_dev->loop_fd_add(&l->lf)) {
		free(l);
		return false;
	}
	atomic_fetch_add(&count, 1);
	if (!cm_dev->loop_timer_set(&l->timer, user_now() + USER_LINGER_MS * MSEC))
		linger_put(l);
	linger_put(l);
	return true;
}
