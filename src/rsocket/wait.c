/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that sleep until something happens to sockets. A completion channel can wake
 * one thread, and what it announces may be for any socket. So of all threads that sleep
 * one, the leader, also polls the channels, and tells the others; when it leaves, it
 * makes another one leader. No thread of the library is needed for that, and a thread
 * that waits for its own socket alone is woken without a detour. */
#include "rsocket/rs.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

static struct {
	pthread_mutex_t lock;
	struct sleeper *first;
	struct sleeper *leader;
} room PROCESS_STATE = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The eventfd of a thread, kept for its next sleep. */
static pthread_key_t thread_key;
static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static __thread int thread_fd;		/* + 1; 0: none */
static __thread uint32_t thread_gen;

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- who is to be told ---------------------------------------------------------- */

void watch_list_init(struct watch_list *l)
{
	pthread_mutex_init(&l->lock, NULL);
}

void watch_add(struct watch_list *l, struct watch *w)
{
	pthread_mutex_lock(&l->lock);
	w->list = l;
	w->at = &l->first;
	w->next = l->first;
	if (w->next)
		w->next->at = &w->next;
	l->first = w;
	/* With the fence of those who change something: they see the count, or the
	 * caller's look at the socket after this sees the change. */
	atomic_fetch_add(&l->n, 1);
	pthread_mutex_unlock(&l->lock);
	atomic_thread_fence(memory_order_seq_cst);
}

void watch_del(struct watch *w)
{
	struct watch_list *l = w->list;

	pthread_mutex_lock(&l->lock);
	*w->at = w->next;
	if (w->next)
		w->next->at = w->at;
	atomic_fetch_sub(&l->n, 1);
	pthread_mutex_unlock(&l->lock);
}

void watch_drop(struct watch_list *l)
{
	struct watch *w;

	pthread_mutex_lock(&l->lock);
	while ((w = l->first)) {
		l->first = w->next;
		if (w->next)
			w->next->at = &l->first;
		w->gone(w);
	}
	pthread_mutex_unlock(&l->lock);
}

void watch_tell_(struct watch_list *l)
{
	struct watch *w, *next;

	pthread_mutex_lock(&l->lock);
	for (w = l->first; w; w = next) {
		next = w->next;
		w->notify(w);
	}
	pthread_mutex_unlock(&l->lock);
}

/* ---- sleeping ---------------------------------------------------------------------- */

static void thread_end(void *arg)
{
	int fd = (int)(intptr_t)arg - 1;

	if (thread_gen == state_generation())
		close(fd);
	thread_fd = 0;
}

static void thread_key_make(void)
{
	pthread_key_create(&thread_key, thread_end);
}

static int thread_eventfd(void)
{
	int fd, high;

	if (thread_fd && thread_gen == state_generation())
		return thread_fd - 1;
	pthread_once(&thread_once, thread_key_make);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	/* The low numbers are the application's: FD_SETSIZE. */
	high = fcntl(fd, F_DUPFD_CLOEXEC, 1024);
	if (high >= 0) {
		close(fd);
		fd = high;
	}
	thread_fd = fd + 1;
	thread_gen = state_generation();
	pthread_setspecific(thread_key, (void *)(intptr_t)thread_fd);
	return fd;
}

int sleeper_enter(struct sleeper *s)
{
	int fd = thread_eventfd();

	if (fd < 0)
		return fd;
	s->fd = fd;
	atomic_init(&s->told, false);
	s->prev = NULL;
	pthread_mutex_lock(&room.lock);
	s->next = room.first;
	if (s->next)
		s->next->prev = s;
	room.first = s;
	if (!room.leader)
		room.leader = s;
	atomic_init(&s->leads, room.leader == s);
	pthread_mutex_unlock(&room.lock);
	return 0;
}

static void wake(struct sleeper *s)
{
	static const uint64_t one = 1;
	ssize_t n = write(s->fd, &one, sizeof(one));

	(void)n; /* EAGAIN: it is readable as it is */
}

void sleeper_leave(struct sleeper *s)
{
	pthread_mutex_lock(&room.lock);
	if (s->prev)
		s->prev->next = s->next;
	else
		room.first = s->next;
	if (s->next)
		s->next->prev = s->prev;
	if (room.leader == s) {
		room.leader = room.first;
		if (room.leader) {
			atomic_store(&room.leader->leads, true);
			wake(room.leader);
		}
	}
	pthread_mutex_unlock(&room.lock);
}

void sleeper_tell(struct sleeper *s)
{
	if (!atomic_exchange(&s->told, true))
		wake(s);
}

void sleeper_arm(struct sleeper *s)
{
	struct hub *h;
	struct shard *sh;

	(void)s;
	for (h = hub_first(); h; h = h->next)
		for (sh = atomic_load(&h->shards); sh; sh = sh->next)
			shard_arm(sh);
}

static void fds_fill(struct sleeper *s, struct pollfd *fds)
{
	struct hub *h = hub_first();

	fds[0] = (struct pollfd){ .fd = s->fd, .events = POLLIN };
	for (int i = 1; i < SLEEPER_FDS; i++, h = h ? h->next : NULL)
		fds[i] = (struct pollfd){
			.fd = h && atomic_load(&s->leads) ? h->channel->fd : -1,
			.events = POLLIN,
		};
}

/* What of fds is the sleeper's own. True: it has been told. */
static bool fds_handle(struct sleeper *s, const struct pollfd *fds)
{
	struct hub *h = hub_first();
	uint64_t n;

	for (int i = 1; i < SLEEPER_FDS && h; i++, h = h->next)
		if (fds[i].revents)
			hub_events(h);
	if (fds[0].revents && read(s->fd, &n, sizeof(n)) < 0)
		return false;
	return atomic_exchange(&s->told, false);
}

static int poll_until(struct pollfd *fds, nfds_t n, uint64_t until)
{
	uint64_t now, left;
	struct timespec t;
	int ret;

	if (until == UINT64_MAX) {
		ret = ppoll(fds, n, NULL, NULL);
		return ret < 0 ? -errno : ret;
	}
	now = now_ns();
	left = until > now ? until - now : 0;
	t.tv_sec = (time_t)(left / 1000000000);
	t.tv_nsec = (long)(left % 1000000000);
	ret = ppoll(fds, n, &t, NULL);
	return ret < 0 ? -errno : ret;
}

int sleeper_sleep(struct sleeper *s, struct pollfd *fds, unsigned n, uint64_t until)
{
	int ret, ready;
	bool told;

	for (;;) {
		if (atomic_load(&s->told))
			until = 0;
		fds_fill(s, fds);
		ret = poll_until(fds, SLEEPER_FDS + n, until);
		if (ret < 0)
			return ret;
		told = fds_handle(s, fds);
		ready = 0;
		for (unsigned i = 0; i < n; i++)
			ready += fds[SLEEPER_FDS + i].revents != 0;
		if (told || ready || ret == 0)
			return ready;
		if (atomic_load(&s->leads))
			sleeper_arm(s);
	}
}

/* ---- waiting for one socket ------------------------------------------------------ */

struct one {
	struct watch w;
	struct sleeper s;
};

static void one_told(struct watch *w)
{
	sleeper_tell(&((struct one *)((char *)w - offsetof(struct one, w)))->s);
}

/* Polls for a while: what answers at once is served without a system call. How long it
 * is worth is learned. */
static bool spin(struct rs *rs, struct shard *sh, bool (*ready)(struct rs *rs))
{
	uint32_t most = rs_conf()->polling_us * 1000;
	uint32_t budget = atomic_load_explicit(&rs->spin_ns, memory_order_relaxed);
	uint64_t end;

	if (!sh || !most)
		return false;
	end = now_ns() + budget;
	do {
		for (int i = 0; i < 16; i++) {
			shard_run(sh, false);
			if (ready(rs)) {
				if (budget < most)
					atomic_store_explicit(&rs->spin_ns, most,
							      memory_order_relaxed);
				return true;
			}
		}
	} while (now_ns() < end);
	atomic_store_explicit(&rs->spin_ns, budget / 2 > 500 ? budget / 2 : 500,
			      memory_order_relaxed);
	return false;
}

static int sleep_for(struct rs *rs, bool (*ready)(struct rs *rs), uint64_t until)
{
	struct pollfd fds[SLEEPER_FDS];
	struct one o = { .w.notify = one_told };
	int ret = sleeper_enter(&o.s);

	if (ret)
		return ret;
	watch_add(&rs->watch, &o.w);
	for (;;) {
		sleeper_arm(&o.s);
		if (ready(rs))
			break;
		if (until != UINT64_MAX && now_ns() >= until) {
			ret = -ETIMEDOUT;
			break;
		}
		ret = sleeper_sleep(&o.s, fds, 0, until);
		if (ret < 0 && !ready(rs))
			break;
		ret = 0;
	}
	watch_del(&o.w);
	sleeper_leave(&o.s);
	return ret;
}

int rs_wait(struct rs *rs, bool (*ready)(struct rs *rs), uint64_t until)
{
	/* Before that the service thread makes it. */
	struct shard *sh = rs_state(rs) == RS_CONNECTED ? rs->shard : NULL;

	if (ready(rs))
		return 0;
	if (sh) {
		shard_run(sh, false);
		if (ready(rs))
			return 0;
	}
	if (!until)
		return -EAGAIN;
	if (spin(rs, sh, ready))
		return 0;
	return sleep_for(rs, ready, until);
}
