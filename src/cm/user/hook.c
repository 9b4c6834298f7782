/* SPDX-License-Identifier: BSD-2-Clause */
/* What cannot be caused from outside otherwise, for tests: with ANYRDMA_TEST=1
 * in the environment the process listens on the abstract unix datagram name
 * "anyrdma/test/<pid>" for "removal" and "addr_change", and answers "ok" or
 * "unknown" to a sender that has a name. */
#include "base/log.h"
#include "cm/user/user.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/un.h>
#include <unistd.h>

static struct loop_fd hook PROCESS_STATE = { .fd = -1 };

static void remove_one(struct user_id *u)
{
	bool listener = false;

	lock_get(&u->lock);
	if (u->bound && !u->dead && user_state_next(u->state, ST_REMOVAL) >= 0) {
		listener = u->state == US_LISTEN;
		user_tell_end(u);
		user_step(u, ST_REMOVAL);
		user_release(u);
		user_post(u, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	}
	lock_put(&u->lock);
	if (listener)
		user_listener_stop(u);
}

void user_remove_device(void)
{
	struct user_id **v;
	int i, n = user_all(&v);

	for (i = 0; i < n; i++) {
		remove_one(v[i]);
		user_put(v[i]);
	}
	free(v);
}

void user_change_addr(void)
{
	struct user_id **v;
	int i, n = user_all(&v);

	for (i = 0; i < n; i++) {
		lock_get(&v[i]->lock);
		if (v[i]->bound && v[i]->state != US_REMOVED)
			user_post(v[i], RDMA_CM_EVENT_ADDR_CHANGE, 0);
		lock_put(&v[i]->lock);
		user_put(v[i]);
	}
	free(v);
}

static void hook_ready(struct loop_fd *lf, uint32_t revents)
{
	struct sockaddr_un from;
	socklen_t len = sizeof(from);
	const char *answer = "ok";
	char cmd[32];
	ssize_t n = recvfrom(lf->fd, cmd, sizeof(cmd) - 1, MSG_DONTWAIT,
			     (struct sockaddr *)&from, &len);

	(void)revents;
	if (n < 0)
		return;
	cmd[n] = 0;
	log_debug("test hook: %s", cmd);
	if (!strcmp(cmd, "removal"))
		user_remove_device();
	else if (!strcmp(cmd, "addr_change"))
		user_change_addr();
	else
		answer = "unknown";
	if (len > offsetof(struct sockaddr_un, sun_path))
		sendto(lf->fd, answer, strlen(answer), MSG_DONTWAIT | MSG_NOSIGNAL,
		       (struct sockaddr *)&from, len);
}

int user_hook_init(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	const char *env = getenv("ANYRDMA_TEST");
	int fd, n, ret;

	if (!env || strcmp(env, "1") || hook.fd >= 0)
		return 0;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "anyrdma/test/%d", getpid());
	if (bind(fd, (struct sockaddr *)&un,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n))) {
		ret = -errno;
		close(fd);
		return ret;
	}
	hook.fd = cm_dev->fd_take(fd);
	hook.events = EPOLLIN;
	hook.ready = hook_ready;
	ret = cm_dev->loop_fd_add(&hook);
	if (ret) {
		cm_dev->fd_close(hook.fd);
		hook.fd = -1;
	}
	return ret;
}
