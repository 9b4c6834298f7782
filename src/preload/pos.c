/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/pos.h"
#include "preload/real.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>

/* The kernel's tcp_info grows; what it does not know is not filled. */
static int info(int fd, struct tcp_info *ti)
{
	socklen_t len = sizeof(*ti);

	if (real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, ti, &len))
		return -errno;
	if (len < offsetof(struct tcp_info, tcpi_bytes_retrans) +
			  sizeof(ti->tcpi_bytes_retrans))
		return -EOPNOTSUPP;
	return 0;
}

/* By sequence numbers, which retransmissions do not change: what the peer has and what is
 * in the queue. Who connected has its SYN acknowledged, too. */
int pos_written(int fd, bool passive, uint64_t *pos)
{
	struct tcp_info before, after;
	int err, queued;

	do {
		queued = 0;
		err = info(fd, &before);
		if (!err && real.ioctl(fd, SIOCOUTQ, &queued))
			err = -errno;
		if (!err)
			err = info(fd, &after);
	} while (!err && before.tcpi_bytes_acked != after.tcpi_bytes_acked);
	if (!err)
		*pos = after.tcpi_bytes_acked + (uint64_t)queued - !passive;
	return err;
}

int pos_read(int fd, uint64_t *pos)
{
	struct tcp_info ti;
	int err = info(fd, &ti), queued = 0;

	/* In this order: a byte that comes between makes the answer too small. */
	if (!err && real.ioctl(fd, FIONREAD, &queued))
		err = -errno;
	if (!err)
		*pos = ti.tcpi_bytes_received - (uint64_t)queued;
	return err;
}
