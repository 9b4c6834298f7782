/* SPDX-License-Identifier: BSD-2-Clause */
/* repoll: an instance is an epoll set of the kernel, for descriptors that are not ours,
 * and a list of our sockets of which something was heard. Who changes a socket puts it
 * there; so a wait costs what is ready, not what is registered. No thread of its own. */
#include "rsocket/rs.h"

#include <errno.h>
#include <unistd.h>

/* A socket of ours in a set. */
struct item {
	struct watch w;		/* of the socket */
	struct ep *ep;
	struct obj *o;		/* not counted: rclose() takes the item out, see item_gone() */
	int fd;
	uint32_t events;	/* 0: one-shot, and it has fired */
	epoll_data_t data;
	struct item *next;	/* by fd */
	struct item *ready_next, **ready_at; /* at NULL: not in the list */
};

enum { BUCKETS = 64 };

struct ep {
	struct obj obj;
	struct watch_list watch;
	pthread_mutex_t lock;	/* guards all below */
	pthread_cond_t gone;
	struct item **bucket;
	uint32_t nbuckets, nitems;
	struct item *ready, **ready_end;
	_Atomic uint32_t nplain, nready;
};

static struct item **bucket(struct ep *ep, int fd)
{
	return &ep->bucket[(uint32_t)fd % ep->nbuckets];
}

static struct item *item_find(struct ep *ep, int fd)
{
	struct item *i = *bucket(ep, fd);

	while (i && i->fd != fd)
		i = i->next;
	return i;
}

static void ready_del(struct ep *ep, struct item *i)
{
	if (!i->ready_at)
		return;
	*i->ready_at = i->ready_next;
	if (i->ready_next)
		i->ready_next->ready_at = i->ready_at;
	else
		ep->ready_end = i->ready_at;
	i->ready_at = NULL;
	atomic_fetch_sub(&ep->nready, 1);
}

static void ready_add(struct ep *ep, struct item *i)
{
	if (i->ready_at)
		return;
	i->ready_next = NULL;
	i->ready_at = ep->ready_end;
	*ep->ready_end = i;
	ep->ready_end = &i->ready_next;
	atomic_fetch_add(&ep->nready, 1);
}

static void item_del(struct ep *ep, struct item *i)
{
	struct item **at = bucket(ep, i->fd);

	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	ready_del(ep, i);
	ep->nitems--;
}

static struct item *item_of(struct watch *w)
{
	return (struct item *)((char *)w - offsetof(struct item, w));
}

static void item_told(struct watch *w)
{
	struct item *i = item_of(w);
	struct ep *ep = i->ep;
	bool any;

	pthread_mutex_lock(&ep->lock);
	any = i->events && !i->ready_at;
	if (any)
		ready_add(ep, i);
	pthread_mutex_unlock(&ep->lock);
	if (any)
		watch_changed(&ep->watch);
}

/* The socket is closed. */
static void item_gone(struct watch *w)
{
	struct item *i = item_of(w);
	struct ep *ep = i->ep;

	pthread_mutex_lock(&ep->lock);
	item_del(ep, i);
	pthread_cond_broadcast(&ep->gone);
	pthread_mutex_unlock(&ep->lock);
	free(i);
}

/* ---- making, ending ------------------------------------------------------------------ */

int ep_create(int flags)
{
	struct ep *ep = calloc(1, sizeof(*ep));
	int ret;

	if (!ep)
		return -ENOMEM;
	ep->nbuckets = BUCKETS;
	ep->bucket = calloc(BUCKETS, sizeof(struct item *));
	ep->obj.kind = OBJ_EPOLL;
	ep->obj.generation = state_generation();
	ep->obj.fd = ep->bucket ? epoll_create1(flags & O_CLOEXEC ? EPOLL_CLOEXEC : 0) : -1;
	ret = ep->obj.fd < 0 ? -errno : 0;
	if (!ret) {
		atomic_store(&ep->obj.flags, O_RDWR | (flags & O_NONBLOCK));
		watch_list_init(&ep->watch);
		pthread_mutex_init(&ep->lock, NULL);
		pthread_cond_init(&ep->gone, NULL);
		ep->ready_end = &ep->ready;
		ret = table_add(&ep->obj);
	}
	if (!ret)
		return ep->obj.fd;
	if (ep->obj.fd >= 0)
		close(ep->obj.fd);
	free(ep->bucket);
	free(ep);
	return ret;
}

/* Takes an item out whose socket may be closed at the same time by another thread; that
 * one frees it then. */
static void item_remove(struct ep *ep, int fd)
{
	struct obj *o = table_get(fd);
	struct item *i;

	pthread_mutex_lock(&ep->lock);
	i = item_find(ep, fd);
	if (i && i->o == o) {
		item_del(ep, i);
		pthread_mutex_unlock(&ep->lock);
		watch_del(&i->w);
		free(i);
	} else {
		if (i)
			pthread_cond_wait(&ep->gone, &ep->lock);
		pthread_mutex_unlock(&ep->lock);
	}
	if (o)
		table_put(o);
}

static int any_fd(struct ep *ep)
{
	int fd = -1;

	pthread_mutex_lock(&ep->lock);
	for (uint32_t b = 0; b < ep->nbuckets && fd < 0; b++)
		if (ep->bucket[b])
			fd = ep->bucket[b]->fd;
	pthread_mutex_unlock(&ep->lock);
	return fd;
}

static void ep_finish(struct obj *o)
{
	struct ep *ep = (struct ep *)o;
	int fd;

	if (obj_is_dead(o))
		return;
	watch_drop(&ep->watch);
	while ((fd = any_fd(ep)) >= 0)
		item_remove(ep, fd);
	pthread_mutex_destroy(&ep->lock);
	pthread_cond_destroy(&ep->gone);
	free(ep->bucket);
	free(ep);
}

int ep_close(struct obj *o)
{
	return table_remove(o, ep_finish) ? 0 : -EBADF;
}

/* ---- members -------------------------------------------------------------------------- */

static void grow(struct ep *ep)
{
	uint32_t n = ep->nbuckets * 4, old = ep->nbuckets;
	struct item **to = calloc(n, sizeof(*to)), **from = ep->bucket, *i, *next;

	if (!to)
		return;
	ep->bucket = to;
	ep->nbuckets = n;
	for (uint32_t b = 0; b < old; b++)
		for (i = from[b]; i; i = next) {
			next = i->next;
			i->next = *bucket(ep, i->fd);
			*bucket(ep, i->fd) = i;
		}
	free(from);
}

static int item_add(struct ep *ep, struct obj *o, const struct epoll_event *ev)
{
	struct item *i = calloc(1, sizeof(*i));

	if (!i)
		return -ENOMEM;
	*i = (struct item){ .ep = ep, .o = o, .fd = o->fd, .data = ev->data };
	i->w.notify = item_told;
	i->w.gone = item_gone;
	pthread_mutex_lock(&ep->lock);
	if (item_find(ep, o->fd)) {
		pthread_mutex_unlock(&ep->lock);
		free(i);
		return -EEXIST;
	}
	if (ep->nitems > ep->nbuckets)
		grow(ep);
	i->next = *bucket(ep, i->fd);
	*bucket(ep, i->fd) = i;
	ep->nitems++;
	i->events = ev->events | EPOLLERR | EPOLLHUP;
	pthread_mutex_unlock(&ep->lock);
	watch_add(obj_watches(o), &i->w);
	item_told(&i->w); /* what it has now is news */
	return 0;
}

static int item_mod(struct ep *ep, struct obj *o, const struct epoll_event *ev)
{
	struct item *i;

	pthread_mutex_lock(&ep->lock);
	i = item_find(ep, o->fd);
	if (i) {
		i->events = ev->events | EPOLLERR | EPOLLHUP;
		i->data = ev->data;
		ready_add(ep, i);
	}
	pthread_mutex_unlock(&ep->lock);
	if (i)
		watch_changed(&ep->watch);
	return i ? 0 : -ENOENT;
}

static int ctl_ours(struct ep *ep, int op, struct obj *o, const struct epoll_event *ev)
{
	struct item *i;

	if (op != EPOLL_CTL_DEL && !ev)
		return -EFAULT;
	switch (op) {
	case EPOLL_CTL_ADD:
		return item_add(ep, o, ev);
	case EPOLL_CTL_MOD:
		return item_mod(ep, o, ev);
	case EPOLL_CTL_DEL:
		pthread_mutex_lock(&ep->lock);
		i = item_find(ep, o->fd);
		pthread_mutex_unlock(&ep->lock);
		if (!i)
			return -ENOENT;
		item_remove(ep, o->fd);
		return 0;
	default:
		return -EINVAL;
	}
}

int ep_ctl(struct obj *epo, int op, int fd, struct epoll_event *ev)
{
	struct ep *ep = (struct ep *)epo;
	struct obj *o = table_get(fd);
	int ret;

	if (o == epo)
		ret = -EINVAL;
	else if (o && obj_is_dead(o))
		ret = -EPERM;
	else if (o)
		ret = ctl_ours(ep, op, o, ev);
	else
		ret = epoll_ctl(ep->obj.fd, op, fd, ev) ? -errno : 0;
	if (!o && !ret && op != EPOLL_CTL_MOD)
		atomic_fetch_add(&ep->nplain, op == EPOLL_CTL_ADD ? 1 : -1u);
	if (!o && !ret) /* those that sleep must look at the set now */
		watch_changed(&ep->watch);
	if (o)
		table_put(o);
	return ret;
}

/* ---- waiting -------------------------------------------------------------------------- */

static void progress(void)
{
	for (struct hub *h = hub_first(); h; h = h->next)
		for (struct shard *sh = atomic_load(&h->shards); sh; sh = sh->next)
			shard_run(sh, false);
}

/* Each item that was in the list at the beginning is looked at once. Of those that are
 * level triggered the ready ones stay. */
static int take_ours(struct ep *ep, struct epoll_event *ev, int most)
{
	uint32_t left, got;
	struct item *i;
	int n = 0;

	if (!atomic_load(&ep->nready))
		return 0;
	pthread_mutex_lock(&ep->lock);
	for (left = atomic_load(&ep->nready); left && n < most; left--) {
		i = ep->ready;
		/* News that comes from here on puts it there again. */
		ready_del(ep, i);
		got = (uint16_t)obj_events(i->o) & i->events;
		if (!got)
			continue;
		ev[n].events = got;
		ev[n++].data = i->data;
		if (i->events & EPOLLONESHOT)
			i->events = 0;
		else if (!(i->events & EPOLLET))
			ready_add(ep, i);
	}
	pthread_mutex_unlock(&ep->lock);
	return n;
}

static int take(struct ep *ep, struct epoll_event *ev, int most)
{
	int n, k;

	progress();
	n = take_ours(ep, ev, most);
	if (n == most || !atomic_load(&ep->nplain))
		return n;
	k = epoll_wait(ep->obj.fd, ev + n, most - n, 0);
	return k < 0 ? (n ? n : -errno) : n + k;
}

static int take_spinning(struct ep *ep, struct epoll_event *ev, int most, uint64_t until)
{
	uint64_t now = now_ns(), end = now + rs_conf()->polling_us * 1000ull;
	int n;

	end = until < end ? until : end;
	for (; ep->nitems && now < end; now = now_ns()) {
		progress();
		n = take_ours(ep, ev, most);
		if (n)
			return n;
	}
	return 0;
}

struct waiter {
	struct watch w;
	struct sleeper s;
};

static void waiter_told(struct watch *w)
{
	sleeper_tell(&((struct waiter *)((char *)w - offsetof(struct waiter, w)))->s);
}

static int take_sleeping(struct ep *ep, struct epoll_event *ev, int most, uint64_t until)
{
	struct pollfd fds[SLEEPER_FDS + 1];
	struct waiter w = { .w.notify = waiter_told };
	int ret = sleeper_enter(&w.s);

	if (ret)
		return ret;
	watch_add(&ep->watch, &w.w);
	for (;;) {
		sleeper_arm(&w.s);
		ret = take(ep, ev, most);
		if (ret || (until != UINT64_MAX && now_ns() >= until))
			break;
		fds[SLEEPER_FDS] = (struct pollfd){ .fd = ep->obj.fd, .events = POLLIN };
		ret = sleeper_sleep(&w.s, fds, atomic_load(&ep->nplain) ? 1 : 0, until);
		if (ret < 0)
			break;
	}
	watch_del(&w.w);
	sleeper_leave(&w.s);
	return ret;
}

int ep_wait(struct obj *o, struct epoll_event *ev, int most, uint64_t until)
{
	struct ep *ep = (struct ep *)o;
	int n;

	if (most <= 0)
		return -EINVAL;
	if (!ev)
		return -EFAULT;
	n = take(ep, ev, most);
	if (!n && until)
		n = take_spinning(ep, ev, most, until);
	if (!n && until)
		n = take_sleeping(ep, ev, most, until);
	return n;
}

/* For a set that is itself in a set, or polled. */
short ep_events(struct obj *o)
{
	struct ep *ep = (struct ep *)o;
	struct pollfd f = { .fd = ep->obj.fd, .events = POLLIN };
	bool any = false;

	pthread_mutex_lock(&ep->lock);
	for (struct item *i = ep->ready; i && !any; i = i->ready_next)
		any = (uint16_t)obj_events(i->o) & i->events;
	pthread_mutex_unlock(&ep->lock);
	if (!any && atomic_load(&ep->nplain))
		any = poll(&f, 1, 0) > 0;
	return any ? POLLIN | POLLRDNORM : 0;
}

struct watch_list *ep_watches(struct obj *o)
{
	return &((struct ep *)o)->watch;
}
