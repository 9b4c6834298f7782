/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel backend's table, and the commands too small for a file of their own. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Any process: without a device node it is init that fails. */
static int serves_any(void)
{
	return 1;
}

static int kernel_init(void)
{
	return kernel_node_find();
}

static int channel_open(struct cm_channel *ch)
{
	int fd = kernel_node_open();

	if (fd < 0)
		return fd;
	kernel_probe(fd);
	ch->pub.fd = fd;
	return 0;
}

static void channel_close(struct cm_channel *ch)
{
	if (ch->pub.fd >= 0)
		close(ch->pub.fd);
	kernel_wake_close(ch);
	lock_fini(&ch->q.lock);
}

/* ---- ids ------------------------------------------------------------------------- */

int kernel_raw_create(int fd, uint64_t uid, enum rdma_port_space ps,
		      enum ibv_qp_type qp_type, uint32_t *handle)
{
	KERNEL_REQ(req, rdma_ucm_create_id);
	struct rdma_ucm_create_id_resp resp = { 0 };
	int r;

	req.p.uid = uid;
	req.p.response = (uintptr_t)&resp;
	req.p.ps = (uint16_t)ps;
	req.p.qp_type = (uint8_t)qp_type;
	r = kernel_command(fd, RDMA_USER_CM_CMD_CREATE_ID, &req, sizeof(resp));
	if (!r)
		*handle = resp.id;
	return r;
}

int kernel_raw_destroy(int fd, uint32_t handle, uint32_t *reported)
{
	KERNEL_REQ(req, rdma_ucm_destroy_id);
	struct rdma_ucm_destroy_id_resp resp = { 0 };
	int r;

	req.p.response = (uintptr_t)&resp;
	req.p.id = handle;
	r = kernel_command(fd, RDMA_USER_CM_CMD_DESTROY_ID, &req, sizeof(resp));
	if (!r)
		*reported = resp.events_reported;
	return r;
}

static int id_create(struct cm_id *id)
{
	struct kernel_obj *o = kernel_obj_new(NULL);
	int r;

	if (!o)
		return -ENOMEM;
	o->id = id;
	r = kernel_obj_register(o);
	if (!r)
		r = kernel_raw_create(kernel_fd(id), o->uid, id->pub.ps,
				      id->pub.qp_type, &o->handle);
	if (r) {
		kernel_obj_unregister(o);
		free(o);
		return r;
	}
	id->be_id = o;
	return 0;
}

static int id_destroy(struct cm_id *id, uint32_t *delivered)
{
	struct kernel_obj *o = to_kernel(id);
	uint32_t reported = 0;
	int r;

	/* A closed channel has taken its ids with it. */
	if (kernel_fd(id) >= 0) {
		r = kernel_raw_destroy(kernel_fd(id), o->handle, &reported);
		if (r)
			return r;
	}
	kernel_obj_settle(o, reported);
	kernel_mcast_forget(id);
	kernel_obj_unregister(o);
	kernel_event_purge(id);
	kernel_wake_settle(to_channel(id->pub.channel));
	*delivered = cm_event_delivered(id);
	id->be_id = NULL;
	if (o->halfway >= 0)
		close(o->halfway);
	free(o);
	return 0;
}

/* ---- small commands -------------------------------------------------------------- */

static int resolve_route(struct cm_id *id, int timeout_ms)
{
	KERNEL_REQ(req, rdma_ucm_resolve_route);

	req.p.id = to_kernel(id)->handle;
	req.p.timeout_ms = (uint32_t)timeout_ms;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_RESOLVE_ROUTE, &req, 0);
}

static int listen_id(struct cm_id *id, int backlog)
{
	KERNEL_REQ(req, rdma_ucm_listen);
	int r;

	req.p.id = to_kernel(id)->handle;
	req.p.backlog = (uint32_t)backlog;
	r = kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_LISTEN, &req, 0);
	if (!r)
		to_kernel(id)->listening = true;
	return r;
}

static void fill(struct rdma_ucm_conn_param *out, struct rdma_ucm_ece *ece,
		 const struct cm_conn_param *p)
{
	out->qp_num = p->qp_num;
	out->private_data_len = p->private_data_len;
	memcpy(out->private_data, p->private_data, p->private_data_len);
	out->srq = p->srq;
	out->responder_resources = p->responder_resources;
	out->initiator_depth = p->initiator_depth;
	out->flow_control = p->flow_control;
	out->retry_count = p->retry_count;
	out->rnr_retry_count = p->rnr_retry_count;
	out->valid = 1;
	ece->vendor_id = p->ece.vendor_id;
	ece->attr_mod = p->ece.options;
}

static int connect_id(struct cm_id *id, const struct cm_conn_param *p)
{
	KERNEL_REQ(req, rdma_ucm_connect);

	req.p.id = to_kernel(id)->handle;
	fill(&req.p.conn_param, &req.p.ece, p);
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_CONNECT, &req, 0);
}

/* The kernel answers INIT_QP_ATTR from the request alone. */
static int accept_prepare(struct cm_id *id, const struct cm_conn_param *p)
{
	(void)id;
	(void)p;
	return 0;
}

static int accept_id(struct cm_id *id, const struct cm_conn_param *p)
{
	KERNEL_REQ(req, rdma_ucm_accept);
	struct kernel_obj *o = to_kernel(id);
	int r;

	if (!o->uid) {
		r = kernel_obj_register(o);
		if (r)
			return r;
	}
	req.p.uid = o->uid;
	req.p.id = o->handle;
	fill(&req.p.conn_param, &req.p.ece, p);
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_ACCEPT, &req, 0);
}

/* Too early, the kernel would reject the request that it sent itself. */
static int establish(struct cm_id *id)
{
	KERNEL_REQ(req, rdma_ucm_accept);

	if (!atomic_load(&to_kernel(id)->responded))
		return log_refuse(EINVAL, "id %p: the peer has not answered yet",
				  (void *)id);
	req.p.id = to_kernel(id)->handle;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_ACCEPT, &req, 0);
}

/* Reason 0 is the consumer's; an old kernel knows no other. */
static int reject(struct cm_id *id, uint8_t reason, const void *data, uint8_t len)
{
	KERNEL_REQ(req, rdma_ucm_reject);

	req.p.id = to_kernel(id)->handle;
	req.p.reason = reason == CM_REJ_CONSUMER ? 0 : reason;
	req.p.private_data_len = len;
	if (len)
		memcpy(req.p.private_data, data, len);
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_REJECT, &req, 0);
}

static int abandon(struct cm_id *id)
{
	return reject(id, CM_REJ_CONSUMER, NULL, 0);
}

static int disconnect(struct cm_id *id)
{
	KERNEL_REQ(req, rdma_ucm_disconnect);

	req.p.id = to_kernel(id)->handle;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_DISCONNECT, &req, 0);
}

static int notify(struct cm_id *id, enum ibv_event_type event)
{
	KERNEL_REQ(req, rdma_ucm_notify);

	req.p.id = to_kernel(id)->handle;
	req.p.event = event;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_NOTIFY, &req, 0);
}

static int set_option(struct cm_id *id, int level, int name, const void *val, size_t len)
{
	KERNEL_REQ(req, rdma_ucm_set_option);

	if (len > UINT32_MAX)
		return log_refuse(EINVAL, "an option of %zu bytes", len);
	req.p.id = to_kernel(id)->handle;
	req.p.level = (uint32_t)level;
	req.p.optname = (uint32_t)name;
	req.p.optval = (uintptr_t)val;
	req.p.optlen = (uint32_t)len;
	return kernel_command(kernel_fd(id), RDMA_USER_CM_CMD_SET_OPTION, &req, 0);
}

/* Verbs and the kernel's CM know each other. */
static void qp_created(struct cm_id *id, struct ibv_qp *qp)
{
	(void)id;
	(void)qp;
}

const struct cm_backend cm_backend_kernel = {
	.name = "kernel",
	.probe = serves_any,
	.init = kernel_init,
	.channel_open = channel_open,
	.channel_close = channel_close,
	.event_get = kernel_event_get,
	.event_unget = kernel_wake,
	.id_create = id_create,
	.id_adopt = kernel_id_adopt,
	.id_destroy = id_destroy,
	.id_migrate = kernel_id_migrate,
	.child_drop = kernel_child_drop,
	.bind = kernel_bind,
	.resolve_addr = kernel_resolve_addr,
	.resolve_route = resolve_route,
	.listen = listen_id,
	.query_addr = kernel_query_addr,
	.query_gid = kernel_query_gid,
	.query_path = kernel_query_path,
	.connect = connect_id,
	.accept_prepare = accept_prepare,
	.accept = accept_id,
	.reject = reject,
	.establish = establish,
	.abandon = abandon,
	.disconnect = disconnect,
	.notify = notify,
	.init_qp_attr = kernel_init_qp_attr,
	.set_option = set_option,
	.join = kernel_join,
	.leave = kernel_leave,
	.write_event = kernel_write_event,
	.resolve_service = kernel_resolve_service,
	.query_service = kernel_query_service,
	.qp_created = qp_created,
};
