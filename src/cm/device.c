/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/device.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "cm/backend.h"

#include <fcntl.h>
#include <stdlib.h>

struct entry {
	struct cm_device pub;
	struct list link;
	struct ibv_device *ibdev;
	__be64 guid;
	int index;
	struct ibv_xrcd *xrcd;
	int refs;     /* ids, and lists of rdma_get_devices */
	int ids;      /* of these, the ids: they hold the default PD */
	bool listed;  /* in the newest device list */
	bool failed;  /* could not be opened: skipped, so that others still work */
};

static struct lock table_lock PROCESS_STATE = LOCK_INIT;
static struct list table GUARDED_BY(table_lock) PROCESS_STATE = LIST_INIT(table);
/* The newest list, kept: it holds the ibv_devices that are not open. */
static struct ibv_device **list_now GUARDED_BY(table_lock) PROCESS_STATE;

static struct entry *find_ibdev_locked(struct ibv_device *ibdev) REQUIRES(table_lock)
{
	struct entry *e;

	list_for_each(e, &table, link)
		if (e->ibdev == ibdev)
			return e;
	return NULL;
}

/* Sorted by index, so that rdma_get_devices answers in that order. */
static int add_locked(struct ibv_device *ibdev) REQUIRES(table_lock)
{
	struct entry *e = calloc(1, sizeof(*e)), *pos;

	if (!e)
		return -ENOMEM;
	e->ibdev = ibdev;
	e->guid = ibv_get_device_guid(ibdev);
	e->index = ibv_get_device_index(ibdev);
	e->listed = true;
	list_for_each(pos, &table, link)
		if (pos->index > e->index)
			break;
	list_add_tail(&pos->link, &e->link);
	return 0;
}

static void drop_if_unused_locked(struct entry *e) REQUIRES(table_lock)
{
	if (e->refs || e->listed)
		return;
	list_del(&e->link);
	if (e->xrcd)
		ibv_close_xrcd(e->xrcd);
	if (e->pub.verbs)
		ibv_close_device(e->pub.verbs);
	free(e);
}

static int sync_locked(void) REQUIRES(table_lock)
{
	struct ibv_device **now, **old;
	struct entry *e, *tmp;
	int i, n = 0, r = 0;

	errno = 0;
	now = ibv_get_device_list(&n);
	if (!now && errno == ENOMEM)
		return -ENOMEM;
	if (!now || !n) {
		if (now)
			ibv_free_device_list(now);
		return log_refuse(ENODEV, "there is no RDMA device; \"anyrdma run\" "
					  "brings its own");
	}
	list_for_each(e, &table, link)
		e->listed = false;
	for (i = 0; now[i] && !r; i++) {
		e = find_ibdev_locked(now[i]);
		if (e)
			e->listed = true;
		else
			r = add_locked(now[i]);
	}
	list_for_each_safe(e, tmp, &table, link)
		drop_if_unused_locked(e);
	old = list_now;
	list_now = now;
	if (old)
		ibv_free_device_list(old);
	return r;
}

int cm_device_sync(void)
{
	int r;

	lock_get(&table_lock);
	r = sync_locked();
	lock_put(&table_lock);
	return r;
}

static uint8_t depth(int max)
{
	return max < 0 ? 0 : max > UINT8_MAX ? UINT8_MAX : (uint8_t)max;
}

static int open_locked(struct entry *e) REQUIRES(table_lock)
{
	struct ibv_device_attr attr;
	int r;

	if (e->pub.verbs)
		return 0;
	if (e->failed)
		return -ENODEV;
	e->pub.verbs = ibv_open_device(e->ibdev);
	if (!e->pub.verbs) {
		r = errno ? -errno : -ENODEV;
		goto fail;
	}
	r = -ibv_query_device(e->pub.verbs, &attr);
	if (r) {
		ibv_close_device(e->pub.verbs);
		e->pub.verbs = NULL;
		goto fail;
	}
	e->pub.max_initiator_depth = depth(attr.max_qp_init_rd_atom);
	e->pub.max_responder_resources = depth(attr.max_qp_rd_atom);
	return 0;

fail:
	/* What passes is worth another try. */
	e->failed = r != -EMFILE && r != -ENFILE && r != -ENOMEM && r != -EAGAIN &&
		    r != -EINTR;
	return log_refuse(-r, "device %s cannot be opened: errno %d",
			  ibv_get_device_name(e->ibdev), -r);
}

static bool matches(const struct entry *e, __be64 guid, uint32_t index)
{
	if (!guid && index == UINT32_MAX)
		return true;
	return e->guid == guid &&
	       (index == UINT32_MAX || e->index < 0 || (uint32_t)e->index == index);
}

static struct entry *find_locked(__be64 guid, uint32_t index) REQUIRES(table_lock)
{
	struct entry *e;

	list_for_each(e, &table, link)
		if (e->listed && !e->failed && matches(e, guid, index))
			return e;
	return NULL;
}

int cm_device_get(__be64 guid, uint32_t index, struct cm_device **out)
{
	struct entry *e;
	int r = 0;

	lock_get(&table_lock);
	e = find_locked(guid, index);
	if (!e && !(r = sync_locked())) /* it may be new */
		e = find_locked(guid, index);
	if (!e) {
		r = -ENODEV;
		goto out;
	}
	r = open_locked(e);
	if (r)
		goto out;
	if (!e->pub.pd) {
		e->pub.pd = ibv_alloc_pd(e->pub.verbs);
		if (!e->pub.pd) {
			r = errno ? -errno : -ENOMEM;
			goto out;
		}
	}
	e->refs++;
	e->ids++;
	*out = &e->pub;
out:
	lock_put(&table_lock);
	return r;
}

void cm_device_put(struct cm_device *dev)
{
	struct entry *e = container_of(dev, struct entry, pub);

	lock_get(&table_lock);
	if (!--e->ids) {
		/* The application may have left regions in it: then it stays. */
		if (!ibv_dealloc_pd(e->pub.pd))
			e->pub.pd = NULL;
		else
			log_info("default PD of %s is in use by the application: kept",
				 ibv_get_device_name(e->ibdev));
	}
	e->refs--;
	drop_if_unused_locked(e);
	lock_put(&table_lock);
}

int cm_device_xrcd(struct cm_device *dev, struct ibv_xrcd **out)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};
	struct entry *e = container_of(dev, struct entry, pub);
	int r = 0;

	lock_get(&table_lock);
	if (!e->xrcd) {
		e->xrcd = ibv_open_xrcd(e->pub.verbs, &attr);
		if (!e->xrcd)
			r = errno ? -errno : -EOPNOTSUPP;
	}
	*out = e->xrcd;
	lock_put(&table_lock);
	return r;
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	NO_CANCEL;
	struct ibv_context **list = NULL;
	struct entry *e;
	int err = 0, n = 0;

	if (num_devices)
		*num_devices = 0;
	if (!cm_backend_get(&err)) {
		errno = -err;
		return NULL;
	}
	lock_get(&table_lock);
	err = sync_locked();
	if (err)
		goto out;
	list_for_each(e, &table, link)
		n++;
	list = calloc(n + 1, sizeof(*list));
	if (!list) {
		err = -ENOMEM;
		goto out;
	}
	n = 0;
	list_for_each(e, &table, link) {
		if (!e->listed || open_locked(e))
			continue;
		e->refs++;
		list[n++] = e->pub.verbs;
	}
	if (num_devices)
		*num_devices = n;
out:
	lock_put(&table_lock);
	if (!list)
		errno = -err;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	NO_CANCEL;
	struct entry *e, *tmp;
	int i;

	if (!list)
		return;
	lock_get(&table_lock);
	for (i = 0; list[i]; i++) {
		list_for_each_safe(e, tmp, &table, link) {
			if (e->pub.verbs != list[i])
				continue;
			e->refs--;
			drop_if_unused_locked(e);
			break;
		}
	}
	lock_put(&table_lock);
	free(list);
}
