/* SPDX-License-Identifier: BSD-2-Clause */
/* Events that the kernel has handed out already (a synchronous call did not want
 * them), or cannot queue (USER and the like on a kernel without WRITE_CM_EVENT),
 * wait on the channel's own queue. poll() looks at the kernel's fd alone, so while
 * that queue is not empty a kernel id of no other purpose has an event there: the
 * wildcard address resolves at once to whatever device there is, but for iWARP, and
 * an address of this host's always does. Destroying this id takes the event away
 * again. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 1000 };

struct wake {
	uint32_t handle;
};

static struct lock wake_lock PROCESS_STATE = LOCK_INIT;

static int resolve_something(int fd, uint32_t handle)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct ifaddrs *all, *a;
	int r;

	r = kernel_raw_resolve(fd, handle, NULL, (struct sockaddr *)&any, TIMEOUT_MS);
	if (!r || getifaddrs(&all))
		return r;
	for (a = all; a && r; a = a->ifa_next)
		if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET)
			r = kernel_raw_resolve(fd, handle, NULL, a->ifa_addr, TIMEOUT_MS);
	freeifaddrs(all);
	return r;
}

static void wake_locked(struct cm_channel *ch) REQUIRES(wake_lock)
{
	uint32_t reported;
	struct wake *w;
	int r;

	if (ch->be_priv || ch->pub.fd < 0)
		return;
	w = malloc(sizeof(*w));
	if (!w)
		return;
	r = kernel_raw_create(ch->pub.fd, KERNEL_UID_WAKE, RDMA_PS_TCP, IBV_QPT_RC,
			      &w->handle);
	if (!r) {
		r = resolve_something(ch->pub.fd, w->handle);
		if (!r) {
			ch->be_priv = w;
			return;
		}
		kernel_raw_destroy(ch->pub.fd, w->handle, &reported);
	}
	log_info("poll() on channel %p will not see the events that wait on it: errno %d",
		 (void *)ch, -r);
	free(w);
}

static void sleep_locked(struct cm_channel *ch) REQUIRES(wake_lock)
{
	struct wake *w = ch->be_priv;
	uint32_t reported;

	ch->be_priv = NULL;
	if (w && ch->pub.fd >= 0)
		kernel_raw_destroy(ch->pub.fd, w->handle, &reported);
	free(w);
}

void kernel_wake(struct cm_channel *ch)
{
	lock_get(&wake_lock);
	wake_locked(ch);
	lock_put(&wake_lock);
}

void kernel_wake_settle(struct cm_channel *ch)
{
	bool more;

	lock_get(&wake_lock);
	lock_get(&ch->q.lock);
	more = !list_empty(&ch->q.head);
	lock_put(&ch->q.lock);
	if (more)
		wake_locked(ch);
	else
		sleep_locked(ch);
	lock_put(&wake_lock);
}

void kernel_wake_used(struct cm_channel *ch)
{
	lock_get(&wake_lock);
	sleep_locked(ch);
	lock_put(&wake_lock);
}

void kernel_wake_close(struct cm_channel *ch)
{
	free(ch->be_priv);
	ch->be_priv = NULL;
}
