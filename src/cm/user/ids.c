/* SPDX-License-Identifier: BSD-2-Clause */
/* Life of the backend's ids: references, the table of all, the end. */
#include "base/log.h"
#include "base/zalloc.h"
#include "cm/user/user.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static struct {
	struct lock lock; /* leaf */
	struct list head GUARDED_BY(lock);
	unsigned count GUARDED_BY(lock);
} all PROCESS_STATE = { .lock = LOCK_INIT, .head = LIST_INIT(all.head) };

uint64_t user_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

/* From a random start: no connection takes frames of an earlier one for its own. */
static uint32_t random_psn(void)
{
	static _Atomic uint64_t state PROCESS_STATE;
	uint64_t v = atomic_load(&state), none = 0;

	if (!v) {
		if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
			v = user_now();
		atomic_compare_exchange_strong(&state, &none, v | 1);
	}
	/* Even steps keep it odd, and so never 0. */
	v = atomic_fetch_add(&state, 0x9e3779b97f4a7c16u) * 0xbf58476d1ce4e5b9u;
	return (uint32_t)(v >> 40);
}

struct user_id *user_new(enum rdma_port_space ps, enum ibv_qp_type qp_type)
{
	struct user_id *u = zalloc(sizeof(*u));

	if (!u)
		return NULL;
	lock_init(&u->lock);
	atomic_init(&u->refs, 1);
	u->state = US_IDLE;
	u->ps = ps;
	u->qp_type = qp_type;
	u->afonly = -1;
	u->life_time = USER_LIFE_TIME;
	u->port.name_fd = u->port.tcp_fd = -1;
	u->conn.local_psn = random_psn();
	u->timer.fire = user_timer_fire;
	list_init(&u->child_link);

	lock_get(&all.lock);
	list_add_tail(&all.head, &u->all_link);
	all.count++;
	lock_put(&all.lock);
	return u;
}

void user_get(struct user_id *u)
{
	atomic_fetch_add_explicit(&u->refs, 1, memory_order_relaxed);
}

void user_put(struct user_id *u)
{
	struct user_id *listener;

	/* Release: this thread's writes are before the free; acquire: the
	 * thread that frees sees everybody's. */
	if (atomic_fetch_sub_explicit(&u->refs, 1, memory_order_acq_rel) != 1)
		return;
	listener = u->listener;
	lock_fini(&u->lock);
	user_event_unreserve(u);
	free(u->path);
	free(u->req);
	free(u->lis);
	free(u);
	if (listener)
		user_put(listener);
}

int user_all(struct user_id ***out)
{
	struct user_id **v, *u;
	unsigned n = 0;

	lock_get(&all.lock);
	v = calloc(all.count + 1, sizeof(*v));
	if (v)
		list_for_each(u, &all.head, all_link) {
			user_get(u);
			v[n++] = u;
		}
	lock_put(&all.lock);
	*out = v;
	return v ? (int)n : -ENOMEM;
}

void user_release(struct user_id *u)
{
	user_unexpect(u);
	user_stream_release(u);
	user_wire_close(u);
	user_timer_stop(u);
}

void user_destroy(struct user_id *u)
{
	struct user_port port;

	lock_get(&u->lock);
	user_tell_end(u);
	user_step(u, ST_DESTROY);
	u->dead = true;
	u->cm = NULL;
	user_release(u);
	port = u->port;
	u->port.name_fd = u->port.tcp_fd = -1;
	lock_put(&u->lock);

	/* Listener first: who sees the name free finds the TCP port free. */
	if (u->lis)
		user_listener_stop(u);
	port_release(&port);

	lock_get(&all.lock);
	list_del(&u->all_link);
	all.count--;
	lock_put(&all.lock);
	user_put(u);
}
