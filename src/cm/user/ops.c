/* SPDX-License-Identifier: BSD-2-Clause */
/* The user backend's table, and the members too small for a file of their own. */
#include "base/log.h"
#include "cm/user/user.h"

static int user_init(void)
{
	if (!cm_dev)
		return -ENODEV;
	cm_dev->fatal_watch(cm_backend_failed);
	return user_hook_init();
}

static int user_renew(void)
{
	return cm_dev->fatal_renew();
}

static void user_suspect(void)
{
	cm_dev->loop_check();
}

static int channel_open(struct cm_channel *ch)
{
	int ret = evq_init(&ch->q);

	if (!ret)
		ch->pub.fd = ch->q.fd;
	return ret;
}

static void channel_close(struct cm_channel *ch)
{
	evq_fini(&ch->q);
}

/* As the kernel has it: only in RDMA_PS_IB the caller's choice counts. */
static enum ibv_qp_type type_of(const struct rdma_cm_id *id)
{
	switch (id->ps) {
	case RDMA_PS_TCP:
		return IBV_QPT_RC;
	case RDMA_PS_UDP:
	case RDMA_PS_IPOIB:
		return IBV_QPT_UD;
	default:
		return id->qp_type;
	}
}

static int id_create(struct cm_id *id)
{
	struct user_id *u = user_new(id->pub.ps, type_of(&id->pub));

	if (!u)
		return -ENOMEM;
	u->cm = id;
	id->be_id = u;
	return 0;
}

static int id_destroy(struct cm_id *id, uint32_t *delivered)
{
	struct user_id *u = to_user(id);

	id->be_id = NULL;
	user_destroy(u);
	user_event_purge(id);
	*delivered = cm_event_delivered(id);
	return 0;
}

static int id_migrate(struct cm_id *id, struct cm_channel *to, uint32_t *delivered)
{
	cm_event_move(id, to);
	*delivered = cm_event_delivered(id);
	return 0;
}

static void child_drop(void *be_child)
{
	user_listener_fetched(be_child); /* its place in the backlog */
	user_destroy(be_child);
}

static int write_event(struct cm_id *id, struct cm_event *ev)
{
	struct user_id *u = to_user(id);
	bool dead = !u; /* destroyed */

	if (u) {
		lock_get(&u->lock);
		dead = u->dead;
		if (!dead)
			cm_event_post(ev);
		lock_put(&u->lock);
	}
	if (dead)
		cm_event_free(ev);
	return dead ? -EINVAL : 0;
}

static int resolve_service(struct cm_id *id, const char *service)
{
	(void)id;
	return log_refuse(EOPNOTSUPP, "service %s: there is no subnet administration on "
			  "Ethernet", service);
}

static void qp_created(struct cm_id *id, struct ibv_qp *qp)
{
	(void)id;
	cm_dev->qp_made_by_cm(qp);
}

const struct cm_backend cm_backend_user = {
	.name = "user",
	.probe = user_dev_probe,
	.init = user_init,
	.renew = user_renew,
	.suspect = user_suspect,
	.channel_open = channel_open,
	.channel_close = channel_close,
	.event_get = user_event_get,
	.id_create = id_create,
	.id_destroy = id_destroy,
	.id_migrate = id_migrate,
	.child_drop = child_drop,
	.bind = user_bind,
	.resolve_addr = user_resolve_addr,
	.resolve_route = user_resolve_route,
	.listen = user_listen,
	.query_addr = user_query_addr,
	.query_path = user_query_path,
	.connect = user_connect,
	.accept_prepare = user_accept_prepare,
	.accept = user_accept,
	.reject = user_reject,
	.establish = user_establish,
	.abandon = user_abandon,
	.disconnect = user_disconnect,
	.notify = user_notify,
	.init_qp_attr = user_init_qp_attr,
	.set_option = user_set_option,
	.join = user_join,
	.leave = user_leave,
	.write_event = write_event,
	.resolve_service = resolve_service,
	.qp_created = qp_created,
};
