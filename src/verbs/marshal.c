/* SPDX-License-Identifier: BSD-2-Clause */
/* Copying between the kernel's structs and those of the API, and reading sysfs:
 * exported helpers that other libraries (an original librdmacm, providers,
 * programs) call. None of them is declared in a public header. */
#include "verbs/export.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst,
				       struct ib_uverbs_ah_attr *src);
EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst,
				       struct ib_uverbs_qp_attr *src);
EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst,
					struct ib_user_path_rec *src);
EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst,
				      struct ibv_sa_path_rec *src);
EXPORT const char *ibv_get_sysfs_path(void);
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
EXPORT int ibv_dontfork_range(void *base, size_t size);
EXPORT int ibv_dofork_range(void *base, size_t size);

EXPORT void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *dst,
				       struct ib_uverbs_ah_attr *src)
{
	memcpy(dst->grh.dgid.raw, src->grh.dgid, sizeof(dst->grh.dgid.raw));
	dst->grh.flow_label = src->grh.flow_label;
	dst->grh.sgid_index = src->grh.sgid_index;
	dst->grh.hop_limit = src->grh.hop_limit;
	dst->grh.traffic_class = src->grh.traffic_class;
	dst->dlid = src->dlid;
	dst->sl = src->sl;
	dst->src_path_bits = src->src_path_bits;
	dst->static_rate = src->static_rate;
	dst->is_global = src->is_global;
	dst->port_num = src->port_num;
}

EXPORT void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *dst,
				       struct ib_uverbs_qp_attr *src)
{
	dst->cur_qp_state = (enum ibv_qp_state)src->cur_qp_state;
	dst->path_mtu = (enum ibv_mtu)src->path_mtu;
	dst->path_mig_state = (enum ibv_mig_state)src->path_mig_state;
	dst->qkey = src->qkey;
	dst->rq_psn = src->rq_psn;
	dst->sq_psn = src->sq_psn;
	dst->dest_qp_num = src->dest_qp_num;
	dst->qp_access_flags = src->qp_access_flags;
	dst->cap.max_send_wr = src->max_send_wr;
	dst->cap.max_recv_wr = src->max_recv_wr;
	dst->cap.max_send_sge = src->max_send_sge;
	dst->cap.max_recv_sge = src->max_recv_sge;
	dst->cap.max_inline_data = src->max_inline_data;
	ibv_copy_ah_attr_from_kern(&dst->ah_attr, &src->ah_attr);
	ibv_copy_ah_attr_from_kern(&dst->alt_ah_attr, &src->alt_ah_attr);
	dst->pkey_index = src->pkey_index;
	dst->alt_pkey_index = src->alt_pkey_index;
	dst->en_sqd_async_notify = src->en_sqd_async_notify;
	dst->sq_draining = src->sq_draining;
	dst->max_rd_atomic = src->max_rd_atomic;
	dst->max_dest_rd_atomic = src->max_dest_rd_atomic;
	dst->min_rnr_timer = src->min_rnr_timer;
	dst->port_num = src->port_num;
	dst->timeout = src->timeout;
	dst->retry_cnt = src->retry_cnt;
	dst->rnr_retry = src->rnr_retry;
	dst->alt_port_num = src->alt_port_num;
	dst->alt_timeout = src->alt_timeout;
}

/* The two path records have fields of the same names in another order. */
#define PATH_FIELDS(F) \
	F(dlid) \
	F(slid) F(flow_label) F(hop_limit) F(traffic_class) F(numb_path) F(pkey) F(sl) \
		F(mtu_selector) F(rate_selector) F(rate) F(packet_life_time_selector) \
			F(packet_life_time) F(preference)

EXPORT void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *dst,
					struct ib_user_path_rec *src)
{
	memcpy(dst->dgid.raw, src->dgid, sizeof(dst->dgid.raw));
	memcpy(dst->sgid.raw, src->sgid, sizeof(dst->sgid.raw));
	dst->raw_traffic = (int)src->raw_traffic;
	dst->reversible = (int)src->reversible;
	dst->mtu = (uint8_t)src->mtu;
#define F(name) dst->name = src->name;
	PATH_FIELDS(F)
#undef F
}

EXPORT void ibv_copy_path_rec_to_kern(struct ib_user_path_rec *dst,
				      struct ibv_sa_path_rec *src)
{
	memcpy(dst->dgid, src->dgid.raw, sizeof(src->dgid.raw));
	memcpy(dst->sgid, src->sgid.raw, sizeof(src->sgid.raw));
	dst->raw_traffic = (uint32_t)src->raw_traffic;
	dst->reversible = (uint32_t)src->reversible;
	dst->mtu = src->mtu;
#define F(name) dst->name = src->name;
	PATH_FIELDS(F)
#undef F
}

/* ---- sysfs --------------------------------------------------------------------- */

static char sysfs_path[256];

static void find_sysfs(void)
{
	const char *env = getuid() == geteuid() ? getenv("SYSFS_PATH") : NULL;
	size_t len;

	snprintf(sysfs_path, sizeof(sysfs_path), "%s", env && *env ? env : "/sys");
	len = strlen(sysfs_path);
	while (len > 1 && sysfs_path[len - 1] == '/')
		sysfs_path[--len] = 0;
}

EXPORT const char *ibv_get_sysfs_path(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_sysfs);
	return sysfs_path;
}

/* Length of the contents without a final newline, or -1. */
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size)
{
	char path[1024];
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	n = read(fd, buf, size);
	close(fd);
	if (n < 0)
		return -1;
	if (n > 0 && buf[n - 1] == '\n')
		buf[--n] = 0;
	else if ((size_t)n < size)
		buf[n] = 0;
	else
		n = -1; /* no room for the terminating zero */
	return (int)n;
}

/* Nothing is pinned, so no page needs to be kept from a child. */
EXPORT int ibv_dontfork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}

EXPORT int ibv_dofork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}
