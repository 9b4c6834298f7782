/* SPDX-License-Identifier: BSD-2-Clause */
/* The thread of the process: it takes the events of the connection manager, destroys
 * sockets, and probes those with SO_KEEPALIVE. It has nothing to do with data, and sleeps
 * while nothing of this is to be done. Since it alone reads events and destroys ids, no
 * event can name a socket that is gone. */
#include "rsocket/rs.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	pthread_cond_t destroyed;
	struct rdma_event_channel *channel;
	int wake;
	struct rs *dying;
	struct rs *keep;	/* with SO_KEEPALIVE */
} svc PROCESS_STATE = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.destroyed = PTHREAD_COND_INITIALIZER,
};

static void wake(void)
{
	static const uint64_t one = 1;
	ssize_t n = write(svc.wake, &one, sizeof(one));

	(void)n; /* EAGAIN: it is readable as it is */
}

/* ---- events --------------------------------------------------------------------- */

/* Of a request by AF_IB the first bytes are an IP header. */
static int peer_parse(const struct rdma_cm_event *e, struct proto_conn *c)
{
	const uint8_t *data = e->param.conn.private_data;
	size_t len = e->param.conn.private_data_len, head = 0;

	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST &&
	    e->id->route.addr.src_addr.sa_family == AF_IB)
		head = PROTO_IB_HEADER;
	if (!data || len < head)
		return -EPROTO;
	return proto_conn_get(data + head, len - head, c);
}

static void event_handle(struct rdma_cm_event *e)
{
	enum rdma_cm_event_type type = e->event;
	struct rdma_conn_param param = e->param.conn;
	struct rdma_cm_id *id = e->id, *listener = e->listen_id;
	struct proto_conn peer = { .credits = 0 };
	int status = e->status, err = 0;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_ESTABLISHED)
		err = peer_parse(e, &peer);
	rdma_ack_cm_event(e);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		listen_request(listener->context, id, &param, &peer, err);
	else
		connect_event(id->context, type, status, &peer, err);
}

/* ---- keepalive -------------------------------------------------------------------- */

void service_keepalive(struct rs *rs)
{
	struct rs **at;
	bool on = rs->opts.keepalive && rs_state(rs) == RS_CONNECTED;

	pthread_mutex_lock(&svc.lock);
	for (at = &svc.keep; *at && *at != rs; at = &(*at)->keep_next)
		;
	if (*at && !on) {
		*at = rs->keep_next;
	} else if (!*at && on) {
		rs->keep_next = NULL;
		*at = rs;
	}
	rs->keep_at = now_ns() + (uint64_t)rs->opts.keepidle * 1000000000;
	pthread_mutex_unlock(&svc.lock);
	if (on)
		wake();
}

static void keep_forget(struct rs *rs)
{
	struct rs **at;

	pthread_mutex_lock(&svc.lock);
	for (at = &svc.keep; *at && *at != rs; at = &(*at)->keep_next)
		;
	if (*at)
		*at = rs->keep_next;
	pthread_mutex_unlock(&svc.lock);
}

/* Probes whom it is time for. Milliseconds until the next; -1: there is none. */
static int keep_run(void)
{
	uint64_t now = now_ns(), next = UINT64_MAX;

	pthread_mutex_lock(&svc.lock);
	for (struct rs *rs = svc.keep; rs; rs = rs->keep_next) {
		if (rs_ended(rs) & RS_GONE)
			continue;
		if (now >= rs->keep_at) {
			shard_run(rs->shard, false);
			post_probe(rs);
			rs->keep_at = now + (uint64_t)rs->opts.keepidle * 1000000000;
		}
		next = rs->keep_at < next ? rs->keep_at : next;
	}
	pthread_mutex_unlock(&svc.lock);
	if (next == UINT64_MAX)
		return -1;
	next = (next - now) / 1000000 + 1;
	return next > 1000000 ? 1000000 : (int)next;
}

/* ---- destroying ------------------------------------------------------------------- */

void service_destroy(struct rs *rs, bool wait)
{
	bool done = false;

	pthread_mutex_lock(&svc.lock);
	rs->svc_next = svc.dying;
	rs->svc_done = wait ? &done : NULL;
	svc.dying = rs;
	wake();
	while (wait && !done)
		pthread_cond_wait(&svc.destroyed, &svc.lock);
	pthread_mutex_unlock(&svc.lock);
}

static void destroy_run(void)
{
	struct rs *rs, *next;
	bool *done;

	pthread_mutex_lock(&svc.lock);
	rs = svc.dying;
	svc.dying = NULL;
	pthread_mutex_unlock(&svc.lock);
	for (; rs; rs = next) {
		next = rs->svc_next;
		done = rs->svc_done;
		keep_forget(rs);
		rs_destroy(rs);
		if (!done)
			continue;
		pthread_mutex_lock(&svc.lock);
		*done = true;
		pthread_cond_broadcast(&svc.destroyed);
		pthread_mutex_unlock(&svc.lock);
	}
}

/* ---- the thread --------------------------------------------------------------------- */

static void *run(void *arg)
{
	struct rdma_event_channel *ch = arg;
	struct rdma_cm_event *e;
	struct pollfd fds[2] = {
		{ .fd = ch->fd, .events = POLLIN },
		{ .fd = svc.wake, .events = POLLIN },
	};
	uint64_t n;

	for (;;) {
		poll(fds, 2, keep_run());
		if (fds[1].revents && read(svc.wake, &n, sizeof(n)) < 0 && errno != EAGAIN)
			break;
		while (!rdma_get_cm_event(ch, &e))
			event_handle(e);
		destroy_run();
	}
	return NULL;
}

/* svc.lock is held. */
static int start(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t t;
	int ret, fd;

	if (!ch)
		return -errno;
	fcntl(ch->fd, F_SETFL, fcntl(ch->fd, F_GETFL) | O_NONBLOCK);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0) {
		ret = -errno;
		goto destroy_channel;
	}
	svc.wake = fcntl(fd, F_DUPFD_CLOEXEC, 1024);
	if (svc.wake < 0)
		svc.wake = fd;
	else
		close(fd);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	ret = -pthread_create(&t, &attr, run, ch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (ret)
		goto close_wake;
	svc.channel = ch;
	return 0;

close_wake:
	close(svc.wake);
destroy_channel:
	rdma_destroy_event_channel(ch);
	return ret;
}

struct rdma_event_channel *service_channel(void)
{
	int ret = 0;

	pthread_mutex_lock(&svc.lock);
	if (!svc.channel)
		ret = start();
	pthread_mutex_unlock(&svc.lock);
	if (!ret)
		return svc.channel;
	errno = -ret;
	return NULL;
}
