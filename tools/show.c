/* SPDX-License-Identifier: BSD-2-Clause */
#include "show.h"
#include "base/conf.h"
#include "files/tree.h"

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

bool show_why(struct show *s, enum show_way way, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->why[way], sizeof(s->why[way]), fmt, ap);
	va_end(ap);
	return false;
}

const char *show_name(enum show_way way)
{
	static const char *const name[] = {
		[SHOW_THERE] = "by the anyrdma run around it",
		[SHOW_MOUNT] = "in a mount namespace",
		[SHOW_USER] = "in a user and mount namespace",
		[SHOW_PRELOAD] = "by a preloaded library",
		[SHOW_NOT] = "not shown",
	};

	return name[way];
}

static bool there(struct show *s)
{
	int root = files_tree_open(s->stamp);

	if (root < 0)
		return false;
	close(root);
	return true;
}

static bool may_mount(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct cap[2] = { 0 };

	return !syscall(SYS_capget, &head, cap) &&
	       cap[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN);
}

static bool by_mount(struct show *s)
{
	const char *what = "";
	int ret;

	if (!may_mount())
		return show_why(s, SHOW_MOUNT, "no right to mount (CAP_SYS_ADMIN)");
	if (unshare(CLONE_NEWNS))
		return show_why(s, SHOW_MOUNT, "unshare: %s", strerror(errno));
	ret = mounts_make(s, false, &what);
	return !ret || show_why(s, SHOW_MOUNT, "%s: %s", what, strerror(-ret));
}

static bool by_user(struct show *s)
{
	const char *what = "";
	int lock = -1, ret;

	if (may_mount())
		return show_why(s, SHOW_USER, "a mount namespace should have done");
	if (userns_would_cost(&what))
		return show_why(s, SHOW_USER, "it would take rights away: %s", what);
	if (!userns_enter(s, &lock))
		return false;
	ret = mounts_make(s, true, &what);
	if (ret)
		show_why(s, SHOW_USER, "%s: %s", what, strerror(-ret));
	userns_leave_rights();
	if (lock >= 0)
		close(lock);
	return !ret;
}

static bool wanted(enum show_way way)
{
	switch (conf_get()->files) {
	case CONF_FILES_NAMESPACE:
		return way != SHOW_PRELOAD;
	case CONF_FILES_PRELOAD:
		return way == SHOW_THERE || way == SHOW_PRELOAD;
	default:
		return true;
	}
}

static bool is_real(unsigned uverbs)
{
	char path[64], target[256];
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/class/infiniband_verbs/uverbs%u", uverbs);
	n = readlink(path, target, sizeof(target) - 1);
	target[n < 0 ? 0 : n] = 0;
	return n >= 0 && !strstr(target, "/" FILES_PCI);
}

/* Real devices keep their numbers. */
static void number_nodes(struct show *s)
{
	for (unsigned i = 0, next = 0; i < s->n; i++) {
		struct files_device *d = &s->dev[i];

		if (d->uverbs < next)
			d->uverbs = next;
		while (is_real(d->uverbs))
			d->uverbs++;
		next = d->uverbs + 1;
	}
}

enum show_way show_files(struct show *s)
{
	static bool (*const show_by[SHOW_WAYS])(struct show *s) = {
		[SHOW_THERE] = there,
		[SHOW_MOUNT] = by_mount,
		[SHOW_USER] = by_user,
		[SHOW_PRELOAD] = preload_show,
	};

	if (conf_get()->files == CONF_FILES_OFF)
		return SHOW_NOT;
	number_nodes(s);
	files_model_stamp(s->dev[0].uverbs, s->stamp, sizeof(s->stamp));
	for (enum show_way way = 0; way < SHOW_WAYS; way++)
		if (wanted(way) && show_by[way](s))
			return way;
	return SHOW_NOT;
}
