/* SPDX-License-Identifier: BSD-2-Clause */
/* The kernel backend's place. Its requests are not written yet: init says what
 * the host lacks and otherwise refuses, so that no other member is ever reached. */
#include "base/log.h"
#include "cm/backend.h"

#include <fcntl.h>
#include <unistd.h>

#define DEV_NODE "/dev/infiniband/rdma_cm"

static int kernel_init(void)
{
	struct ibv_device **list;
	int fd, n = 0;

	list = ibv_get_device_list(&n);
	if (list)
		ibv_free_device_list(list);
	if (!list || !n)
		return log_refuse(ENODEV, "there is no RDMA device; \"anyrdma run\" "
					  "brings its own");
	fd = open(DEV_NODE, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return log_refuse(errno, "%s: %m", DEV_NODE);
	close(fd);
	return log_refuse(ENODEV, "this build cannot use the kernel's rdma_cm");
}

static int kernel_channel_open(struct cm_channel *ch)
{
	(void)ch;
	return -ENODEV;
}

static void kernel_channel_close(struct cm_channel *ch)
{
	(void)ch;
}

static int kernel_event_get(struct cm_channel *ch, struct cm_event **ev)
{
	(void)ch, (void)ev;
	return -ENODEV;
}

/* The members that take the id alone. */
static int kernel_id_only(struct cm_id *id)
{
	(void)id;
	return -ENODEV;
}

static int kernel_id_destroy(struct cm_id *id, uint32_t *delivered)
{
	(void)id, (void)delivered;
	return -ENODEV;
}

static int kernel_id_migrate(struct cm_id *id, struct cm_channel *to,
			     uint32_t *delivered)
{
	(void)id, (void)to, (void)delivered;
	return -ENODEV;
}

static void kernel_child_drop(void *be_child)
{
	(void)be_child;
}

static int kernel_bind(struct cm_id *id, const struct sockaddr *addr)
{
	(void)id, (void)addr;
	return -ENODEV;
}

static int kernel_resolve_addr(struct cm_id *id, const struct sockaddr *src,
			       const struct sockaddr *dst, int timeout_ms)
{
	(void)id, (void)src, (void)dst, (void)timeout_ms;
	return -ENODEV;
}

static int kernel_resolve_route(struct cm_id *id, int timeout_ms)
{
	(void)id, (void)timeout_ms;
	return -ENODEV;
}

static int kernel_listen(struct cm_id *id, int backlog)
{
	(void)id, (void)backlog;
	return -ENODEV;
}

static int kernel_query_addr(struct cm_id *id, struct cm_addrs *out)
{
	(void)id, (void)out;
	return -ENODEV;
}

static int kernel_query_path(struct cm_id *id, struct ibv_path_data *path, int max)
{
	(void)id, (void)path, (void)max;
	return -ENODEV;
}

static int kernel_connect(struct cm_id *id, const struct cm_conn_param *p)
{
	(void)id, (void)p;
	return -ENODEV;
}

static int kernel_accept(struct cm_id *id, const struct cm_conn_param *p)
{
	(void)id, (void)p;
	return -ENODEV;
}

static int kernel_reject(struct cm_id *id, uint8_t reason, const void *data,
			 uint8_t len)
{
	(void)id, (void)reason, (void)data, (void)len;
	return -ENODEV;
}

static int kernel_notify(struct cm_id *id, enum ibv_event_type event)
{
	(void)id, (void)event;
	return -ENODEV;
}

static int kernel_init_qp_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	(void)id, (void)attr, (void)mask;
	return -ENODEV;
}

static int kernel_set_option(struct cm_id *id, int level, int name, const void *val,
			     size_t len)
{
	(void)id, (void)level, (void)name, (void)val, (void)len;
	return -ENODEV;
}

static int kernel_join(struct cm_id *id, struct cm_mcast *mc)
{
	(void)id, (void)mc;
	return -ENODEV;
}

static int kernel_leave(struct cm_id *id, struct cm_mcast *mc, uint32_t *delivered)
{
	(void)id, (void)mc, (void)delivered;
	return -ENODEV;
}

static int kernel_write_event(struct cm_id *id, enum rdma_cm_event_type event,
			      int status, uint64_t arg)
{
	(void)id, (void)event, (void)status, (void)arg;
	return -ENODEV;
}

static int kernel_resolve_service(struct cm_id *id, const char *service)
{
	(void)id, (void)service;
	return -ENODEV;
}

static void kernel_qp_created(struct cm_id *id, struct ibv_qp *qp)
{
	(void)id, (void)qp;
}

const struct cm_backend cm_backend_kernel = {
	.name = "kernel",
	.init = kernel_init,
	.channel_open = kernel_channel_open,
	.channel_close = kernel_channel_close,
	.event_get = kernel_event_get,
	.id_create = kernel_id_only,
	.id_destroy = kernel_id_destroy,
	.id_migrate = kernel_id_migrate,
	.child_drop = kernel_child_drop,
	.bind = kernel_bind,
	.resolve_addr = kernel_resolve_addr,
	.resolve_route = kernel_resolve_route,
	.listen = kernel_listen,
	.query_addr = kernel_query_addr,
	.query_path = kernel_query_path,
	.connect = kernel_connect,
	.accept_prepare = kernel_accept,
	.accept = kernel_accept,
	.reject = kernel_reject,
	.establish = kernel_id_only,
	.abandon = kernel_id_only,
	.disconnect = kernel_id_only,
	.notify = kernel_notify,
	.init_qp_attr = kernel_init_qp_attr,
	.set_option = kernel_set_option,
	.join = kernel_join,
	.leave = kernel_leave,
	.write_event = kernel_write_event,
	.resolve_service = kernel_resolve_service,
	.qp_created = kernel_qp_created,
};
