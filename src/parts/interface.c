/* SPDX-License-Identifier: BSD-2-Clause */
/* The table that librdmacm's user backend finds by name. */
#include "dev/interface.h"

#include "base/fdset.h"
#include "dev/dev.h"
#include "dev/gid.h"
#include "dev/lid.h"
#include "dev/verbs.h"
#include "rc/match.h"
#include "rc/stream.h"
#include "shm/cm.h"
#include "tcp/tcp.h"

static void qp_made_by_cm(struct ibv_qp *qp)
{
	struct dev_qp *q = to_qp(qp);

	lock_get(&q->lock);
	q->made_by_cm = true;
	lock_put(&q->lock);
}

static const struct anyrdma_interface table = {
	.number = ANYRDMA_INTERFACE,
	.size = sizeof(table),
	.loop_fd_add = loop_fd_add,
	.loop_fd_mod = loop_fd_mod,
	.loop_fd_del = loop_fd_del,
	.loop_timer_set = loop_timer_set,
	.loop_timer_stop = loop_timer_stop,
	.loop_post = loop_post,
	.loop_here = loop_here,
	.fd_take = fdset_take,
	.fd_close = fdset_close,
	.gid_device = gid_device,
	.gid_of_addr = gid_of_addr,
	.gid_from_addr = gid_from_addr,
	.active_mtu = gid_active_mtu,
	.device_guid = device_guid,
	.lid_of_gid = lid_of_gid,
	.gid_watch = gid_watch,
	.fatal_watch = fatal_watch,
	.fatal_renew = fatal_renew,
	.loop_check = loop_check,
	.qp_made_by_cm = qp_made_by_cm,
	.stream_expect = match_expect,
	.stream_unexpect = match_unexpect,
	.stream_open = tcp_open,
	.stream_listen = stream_listen,
	.stream_unlisten = stream_unlisten,
	.stream_connect = stream_connect,
	.stream_adopt = stream_adopt,
	.stream_opened = stream_opened,
	.stream_accept = stream_accept,
	.stream_reject = stream_reject,
	.stream_has_news = stream_has_news,
	.stream_control = stream_control,
	.stream_release = stream_release,
	.stream_abort = stream_abort,
};

__attribute__((visibility("default"))) const struct anyrdma_interface *
anyrdma_interface(void)
{
	fork_watch(); /* its user may begin with the loop, before a device is opened */
	return &table;
}
