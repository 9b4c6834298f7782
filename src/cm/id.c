/* SPDX-License-Identifier: BSD-2-Clause */
/* Ids: made, moved between channels, destroyed. */
#include "base/log.h"
#include "base/zalloc.h"
#include "cm/backend.h"
#include "cm/device.h"

#include <stdlib.h>
#include <time.h>

int cm_id_check(const struct rdma_cm_id *id)
{
	if (!id)
		return log_refuse(EINVAL, "no id given");
	if (state_is_old(container_of(id, struct cm_id, pub)->generation))
		return log_refuse(ENODEV, "id %p is old: the parent's, or of a failed "
				  "device",
				  (const void *)id);
	return 0;
}

static void init_sync(struct cm_id *id)
{
	lock_init(&id->apply);
	lock_init(&id->post);
	lock_init(&id->lock);
	cond_init(&id->acks);
	list_init(&id->holders);
	list_init(&id->mcasts);
}

static void fini_sync(struct cm_id *id)
{
	lock_fini(&id->lock);
	lock_fini(&id->post);
	lock_fini(&id->apply);
}

static int check_ps(enum rdma_port_space ps)
{
	switch (ps) {
	case RDMA_PS_IPOIB:
	case RDMA_PS_TCP:
	case RDMA_PS_UDP:
	case RDMA_PS_IB:
		return 0;
	}
	return log_refuse(EINVAL, "port space 0x%x is unknown", ps);
}

int cm_id_new(struct cm_channel *channel, enum rdma_port_space ps,
	      enum ibv_qp_type qp_type, void *context, void *be_id,
	      struct cm_id **out)
{
	struct cm_channel *ch = channel;
	struct cm_id *id;
	int r;

	r = check_ps(ps);
	if (r)
		return r;
	id = zalloc(sizeof(*id));
	if (!id)
		return -ENOMEM;
	id->be = ch ? ch->be : cm_backend_get(&r);
	if (!id->be)
		goto free_id;
	if (!ch) {
		r = cm_channel_new(id->be, &ch);
		if (r)
			goto free_id;
		id->sync = true;
	}
	id->generation = state_generation();
	id->pub.channel = &ch->pub;
	id->pub.context = context;
	id->pub.ps = ps;
	id->pub.qp_type = qp_type;
	id->be_id = be_id;
	init_sync(id);
	cm_channel_attach(ch);
	r = 0;
	if (!be_id)
		r = id->be->id_create(id);
	else if (id->be->id_adopt)
		r = id->be->id_adopt(id);
	if (r)
		goto detach;
	*out = id;
	return 0;

detach:
	cm_channel_detach(ch);
	fini_sync(id);
	if (id->sync)
		cm_channel_free(ch);
free_id:
	free(id);
	return r;
}

/* What is memory alone; also all that happens in a forked child. */
static void free_memory(struct cm_id *id)
{
	struct list *node;

	while ((node = list_pop(&id->mcasts)))
		free(list_entry(node, struct cm_mcast, link));
	free(id->pub.route.path_rec);
	free(id->connect_blob);
	free(id->ep_attr);
	rdma_freeaddrinfo(id->resolved);
	free(id);
}

static int free_in_child(struct cm_id *id)
{
	if (id->sync)
		cm_channel_free(to_channel(id->pub.channel));
	if (id->pub.event)
		cm_event_free(container_of(id->pub.event, struct cm_event, pub));
	free_memory(id);
	return 0;
}

int cm_id_free(struct cm_id *id)
{
	struct cm_channel *ch = to_channel(id->pub.channel);
	uint32_t delivered = 0, fetched;
	int r;

	if (state_is_old(id->generation))
		return free_in_child(id);

	cm_addrinfo_cancel(id);
	lock_get(&id->apply);
	r = id->be->id_destroy(id, &delivered);
	id->be_gone = !r;
	lock_put(&id->apply);
	if (r)
		return r;

	cm_sync_clear(id);
	lock_get(&id->lock);
	fetched = id->fetched;
	lock_put(&id->lock);
	cm_id_wait_acks(id, delivered, fetched, "rdma_destroy_id");

	if (id->dev)
		cm_device_put(id->dev);
	cm_channel_detach(ch);
	if (id->sync)
		cm_channel_free(ch);
	fini_sync(id);
	free_memory(id);
	return 0;
}

static int check_channel(const struct rdma_event_channel *channel)
{
	const struct cm_channel *ch;

	if (!channel)
		return 0;
	ch = container_of(channel, struct cm_channel, pub);
	if (state_is_old(ch->generation))
		return log_refuse(ENODEV, "event channel %p is old: the parent's, or of "
				  "a failed device",
				  (const void *)ch);
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	NO_CANCEL;
	enum ibv_qp_type type = IBV_QPT_RC;
	struct cm_id *new;
	int r = 0;

	/* Beside a channel nothing is asked of the backend: whoever needs the device
	 * notices that it has failed. */
	if (!channel && !cm_backend_get(&r))
		return cm_ret(r);
	if (!id)
		return cm_ret(log_refuse(EINVAL, "no place for the id given"));
	r = check_channel(channel);
	if (r)
		return cm_ret(r);
	if (ps == RDMA_PS_IPOIB || ps == RDMA_PS_UDP)
		type = IBV_QPT_UD;
	r = cm_id_new(channel ? to_channel(channel) : NULL, ps, type, context, NULL,
		      &new);
	if (r)
		return cm_ret(r);
	*id = &new->pub;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	NO_CANCEL;

	if (!id)
		return cm_ret(log_refuse(EINVAL, "no id given"));
	return cm_ret(cm_id_free(to_id(id)));
}

/* The move itself; `to` is attached. */
static int move(struct cm_id *id, struct cm_channel *to, bool to_sync,
		uint32_t *delivered, uint32_t *moved_at)
{
	int r;

	lock_get(&id->apply);
	lock_get(&id->lock);
	id->moved_at = id->fetched;
	lock_put(&id->lock);
	r = id->be->id_migrate(id, to, delivered);
	if (!r) {
		if (id->sync)
			cm_sync_clear(id);
		id->sync = to_sync;
	}
	lock_get(&id->lock);
	*moved_at = id->moved_at;
	lock_put(&id->lock);
	lock_put(&id->apply);
	return r;
}

static int migrate(struct cm_id *id, struct cm_channel *channel)
{
	struct cm_channel *from = to_channel(id->pub.channel), *to = channel;
	bool was_sync = id->sync;
	uint32_t delivered = 0, moved_at;
	int r;

	if (was_sync && (!channel || channel == from))
		return log_refuse(EINVAL, "id %p is synchronous already", (void *)id);
	if (!to) {
		r = cm_channel_new(id->be, &to);
		if (r)
			return r;
	}
	cm_channel_attach(to);
	r = move(id, to, !channel, &delivered, &moved_at);
	cm_channel_detach(r ? to : from);
	if (r) {
		if (!channel)
			cm_channel_free(to);
		return r;
	}
	if (was_sync)
		cm_channel_free(from);
	cm_id_wait_acks(id, delivered, moved_at, "rdma_migrate_id");
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	NO_CANCEL;
	int r = cm_id_check(id);

	if (!r)
		r = check_channel(channel);
	if (!r)
		r = migrate(to_id(id), channel ? to_channel(channel) : NULL);
	return cm_ret(r);
}
