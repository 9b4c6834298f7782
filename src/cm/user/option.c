/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_set_option: one row per option, with the state rules of the kernel. */
#include "base/log.h"
#include "cm/user/user.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef RDMA_OPTION_ID_ACK_TIMEOUT
#define RDMA_OPTION_ID_ACK_TIMEOUT 3
#endif

bool user_afonly(const struct user_id *u, int family)
{
	FILE *f;
	int only = 0;

	if (u->afonly >= 0)
		return u->afonly;
	if (family == AF_INET)
		return true;
	f = fopen("/proc/sys/net/ipv6/bindv6only", "re");
	if (!f)
		return false;
	if (fscanf(f, "%d", &only) != 1)
		only = 0;
	fclose(f);
	return only;
}

static int set_tos(struct user_id *u, const void *val, size_t len)
{
	(void)len;
	memcpy(&u->tos, val, 1);
	return 0;
}

static int set_reuse(struct user_id *u, const void *val, size_t len)
{
	int on;

	(void)len;
	memcpy(&on, val, sizeof(on));
	if (u->state != US_IDLE && (!on || u->state == US_LISTEN))
		return -EINVAL;
	u->reuse = on;
	return 0;
}

static int set_afonly(struct user_id *u, const void *val, size_t len)
{
	int on;

	(void)len;
	memcpy(&on, val, sizeof(on));
	if (u->state != US_IDLE && u->state != US_BOUND)
		return -EINVAL;
	u->afonly = on != 0;
	return 0;
}

static int set_ack_timeout(struct user_id *u, const void *val, size_t len)
{
	uint8_t v;

	(void)len;
	memcpy(&v, val, 1);
	if (u->qp_type != IBV_QPT_RC && u->qp_type != IBV_QPT_XRC_SEND)
		return -EINVAL;
	if (v > 31)
		return -EINVAL; /* the QP attribute has 5 bits */
	u->timeout = v;
	u->timeout_set = true;
	return 0;
}

static int set_path(struct user_id *u, const void *val, size_t len)
{
	enum { WANT = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
		      IBV_PATH_FLAG_BIDIRECTIONAL };
	struct ibv_path_data d, *path;
	size_t off;
	int ret;

	lock_assert_held(&u->lock);
	if (len % sizeof(d))
		return -EINVAL;
	for (off = 0; off < len; off += sizeof(d)) {
		memcpy(&d, (const char *)val + off, sizeof(d));
		if (d.flags == WANT)
			break;
	}
	if (off >= len || !u->bound)
		return -EINVAL;
	ret = user_event_reserve(u, USER_EVENT_ONE);
	if (ret)
		return ret;
	path = malloc(sizeof(*path));
	ret = path ? user_step(u, ST_SET_PATH) : -ENOMEM;
	if (ret) {
		free(path);
		return ret;
	}
	*path = d;
	free(u->path);
	u->path = path;
	user_post(u, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	return 0;
}

static const struct {
	int level, name;
	size_t len; /* 0: any */
	int (*set)(struct user_id *u, const void *val, size_t len);
	const char *text;
} options[] = {
	{ RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1, set_tos, "TOS" },
	{ RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, sizeof(int), set_reuse, "REUSEADDR" },
	{ RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, sizeof(int), set_afonly, "AFONLY" },
	{ RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, 1, set_ack_timeout, "ACK_TIMEOUT" },
	{ RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, 0, set_path, "IB_PATH" },
};

int user_set_option(struct cm_id *id, int level, int name, const void *val, size_t len)
{
	struct user_id *u = to_user(id);
	size_t i;
	int ret;

	for (i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (options[i].level == level && options[i].name == name)
			break;
	if (i == sizeof(options) / sizeof(options[0]))
		return log_refuse(ENOSYS, "option %d of level %d is unknown", name, level);
	if (!val || (options[i].len && options[i].len != len))
		return log_refuse(EINVAL, "option %s takes %zu bytes, not %zu",
				  options[i].text, options[i].len, len);
	lock_get(&u->lock);
	ret = u->state == US_REMOVED ? -ENXIO : options[i].set(u, val, len);
	if (ret)
		log_info("option %s is refused in state %s of the id", options[i].text,
			 user_state_str(u->state));
	lock_put(&u->lock);
	return ret;
}
