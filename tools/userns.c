/* SPDX-License-Identifier: BSD-2-Clause */
/* The user namespace of programs that an ordinary user runs. Its users and groups are the
 * same as outside, as far as the kernel lets us map them: our own. */
#include "show.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What entering a user namespace resets, as it was before. */
static struct {
	uint64_t bounding;
	uint32_t inheritable[2];
} before;

static bool caps_get(struct __user_cap_data_struct *cap)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };

	return !syscall(SYS_capget, &head, cap);
}

bool userns_would_cost(const char **what)
{
	struct __user_cap_data_struct cap[2] = { 0 };

	*what = "its capabilities cannot be read";
	if (!caps_get(cap))
		return true;
	*what = "it has capabilities";
	if (cap[0].permitted || cap[1].permitted)
		return true;
	*what = "its real and effective ids differ";
	return getuid() != geteuid() || getgid() != getegid();
}

static void rights_remember(void)
{
	struct __user_cap_data_struct cap[2] = { 0 };

	caps_get(cap);
	before.inheritable[0] = cap[0].inheritable;
	before.inheritable[1] = cap[1].inheritable;
	before.bounding = 0;
	for (int i = 0; i < 64; i++)
		if (prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			before.bounding |= 1ull << i;
}

void userns_leave_rights(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct cap[2] = { 0 };

	for (int i = 0; i < 64; i++)
		if (!(before.bounding & 1ull << i) && prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1)
			prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
	cap[0].inheritable = before.inheritable[0];
	cap[1].inheritable = before.inheritable[1];
	syscall(SYS_capset, &head, cap);
}

static int write_proc(const char *path, const char *text)
{
	int ret = 0, fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (write(fd, text, strlen(text)) < 0)
		ret = -errno;
	close(fd);
	return ret;
}

static int map_ids(uid_t uid, gid_t gid)
{
	char text[64];
	int ret;

	/* The kernel wants this before a group is mapped without rights. */
	ret = write_proc("/proc/self/setgroups", "deny");
	if (ret && ret != -ENOENT)
		return ret;
	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	ret = write_proc("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return ret ? ret : write_proc("/proc/self/gid_map", text);
}

/* other: a namespace to join, or -1. */
static int enter(int other, const char **what)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int ret = 0;

	*what = "setns";
	if (other >= 0 && setns(other, CLONE_NEWUSER))
		return -errno;
	*what = "unshare";
	if (unshare(CLONE_NEWNS | (other < 0 ? CLONE_NEWUSER : 0)))
		return -errno;
	*what = "mapping ids";
	if (other < 0)
		ret = map_ids(uid, gid);
	return ret;
}

/* Nobody can leave a user namespace: so a process of its own tries first whether all is
 * permitted. It sends no SIGCHLD, which the program might get to see. */
static int rehearse(int other, const char **what)
{
	struct {
		int ret;
		const char *what;
	} said = { -EPIPE, "no answer" };
	int status, ret, pipes[2];
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC))
		return -errno;
	pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0);
	if (!pid) {
		said.ret = enter(other, &said.what);
		if (!said.ret)
			said.ret = mounts_try(&said.what);
		_exit(write(pipes[1], &said, sizeof(said)) != sizeof(said));
	}
	ret = pid < 0 ? -errno : 0;
	*what = "clone";
	close(pipes[1]);
	if (!ret) {
		if (read(pipes[0], &said, sizeof(said)) < 0)
			said.ret = -errno;
		while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
			;
		*what = said.what;
		ret = said.ret;
	}
	close(pipes[0]);
	return ret;
}

static bool enter_one(struct show *s, int other)
{
	const char *what = "";
	int ret = rehearse(other, &what);

	if (!ret) {
		rights_remember();
		ret = enter(other, &what);
	}
	return !ret || show_why(s, SHOW_USER, "%s: %s", what, strerror(-ret));
}

bool userns_enter(struct show *s, int *lock)
{
	bool done = false;
	int other;

	*lock = join_lock();
	other = join_find();
	if (other >= 0) {
		done = enter_one(s, other);
		close(other);
	}
	if (!done)
		done = enter_one(s, -1);
	if (!done && *lock >= 0)
		close(*lock);
	return done;
}
