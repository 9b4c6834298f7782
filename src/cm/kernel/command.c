/* SPDX-License-Identifier: BSD-2-Clause */
/* The one write(2) of every request, and what this kernel can do. */
#include "base/log.h"
#include "cm/kernel/kernel.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>
#include <string.h>

static const char *const names[] = {
	"CREATE_ID", "DESTROY_ID", "BIND_IP", "RESOLVE_IP", "RESOLVE_ROUTE",
	"QUERY_ROUTE", "CONNECT", "LISTEN", "ACCEPT", "REJECT", "DISCONNECT",
	"INIT_QP_ATTR", "GET_EVENT", "GET_OPTION", "SET_OPTION", "NOTIFY",
	"JOIN_IP_MCAST", "LEAVE_MCAST", "MIGRATE_ID", "QUERY", "BIND", "RESOLVE_ADDR",
	"JOIN_MCAST", "RESOLVE_IB_SERVICE", "WRITE_CM_EVENT",
};

static int refused(uint32_t cmd, int err)
{
	if (err == EAGAIN || err == EINTR)
		return -err;
	if (err == EACCES && cmd != RDMA_USER_CM_CMD_BIND &&
	    cmd != RDMA_USER_CM_CMD_BIND_IP)
		return log_refuse(err, "rdma_cm refuses %s: this process changed its "
				       "credentials after it opened the event channel",
				  names[cmd]);
	return log_refuse(err, "rdma_cm refuses %s: %s", names[cmd], strerror(err));
}

int kernel_write(int fd, uint32_t cmd, struct rdma_ucm_cmd_hdr *hdr, size_t len,
		 size_t out)
{
	ssize_t n;

	hdr->cmd = cmd;
	hdr->in = (uint16_t)(len - sizeof(*hdr));
	hdr->out = (uint16_t)out;
	n = kernel_sys->write(fd, hdr, len);
	if (n == (ssize_t)len)
		return 0;
	if (n < 0)
		return refused(cmd, errno);
	return log_refuse(ENODATA, "rdma_cm took %zd of %zu bytes of %s", n, len,
			  names[cmd]);
}

/* An id that cannot exist: whoever knows the command looks for it. */
bool kernel_knows(int fd, uint32_t cmd, struct rdma_ucm_cmd_hdr *hdr, size_t len,
		  uint32_t *handle)
{
	*handle = UINT32_MAX;
	return kernel_write(fd, cmd, hdr, len, 0) != -EINVAL;
}

/* ---- AF_IB ----------------------------------------------------------------------- */

enum { UNKNOWN, ABSENT, PRESENT };
static atomic_int af_ib;

bool kernel_has_af_ib(void)
{
	return atomic_load_explicit(&af_ib, memory_order_relaxed) == PRESENT;
}

void kernel_probe(int fd)
{
	struct cm_sockaddr_ib sib = {
		.sib_family = AF_IB,
		.sib_sid = htobe64((uint64_t)RDMA_PS_TCP << 16),
		.sib_sid_mask = htobe64(0xFFFFFFFFFFFF0000),
	};
	uint32_t handle, reported;
	int r;

	if (atomic_load(&af_ib) != UNKNOWN)
		return;
	if (kernel_raw_create(fd, KERNEL_UID_WAKE, RDMA_PS_IB, IBV_QPT_RC, &handle))
		return; /* the caller will hear of it */
	r = kernel_raw_bind(fd, handle, (struct sockaddr *)&sib, true);
	kernel_raw_destroy(fd, handle, &reported);
	log_debug("the kernel %s AF_IB addresses", r ? "does not take" : "takes");
	atomic_store(&af_ib, r ? ABSENT : PRESENT);
}

void kernel_probe_forget(void)
{
	atomic_store(&af_ib, UNKNOWN);
}
