/* SPDX-License-Identifier: BSD-2-Clause */
/* Where /dev/infiniband/rdma_cm is and which version it speaks: netlink knows
 * (and loads the module by being asked), else sysfs. */
#include "base/log.h"
#include "cm/kernel/kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define TYPE "rdma_cm"

static int sys_open(const char *path, int flags)
{
	return open(path, flags);
}

/* ---- netlink ----------------------------------------------------------------- */

struct query {
	struct nlmsghdr hdr;
	struct nlattr attr;
	char type[sizeof(TYPE)];
} __attribute__((aligned(4)));

static int nl_ask(int fd)
{
	struct query query = {
		.hdr = {
			.nlmsg_len = NLMSG_LENGTH(NLA_HDRLEN + sizeof(TYPE)),
			.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV,
						       RDMA_NLDEV_CMD_GET_CHARDEV),
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
		.attr = {
			.nla_len = NLA_HDRLEN + sizeof(TYPE),
			.nla_type = RDMA_NLDEV_ATTR_CHARDEV_TYPE,
		},
		.type = TYPE,
	};

	return send(fd, &query, NLMSG_ALIGN(query.hdr.nlmsg_len), 0) < 0 ? -errno : 0;
}

static int nl_take(const struct nlmsghdr *h, struct kernel_node *out)
{
	const char *p = (const char *)h + NLMSG_HDRLEN;
	const char *end = (const char *)h + h->nlmsg_len;
	struct nlattr a;
	uint64_t v;
	int found = 0;

	for (; end - p >= NLA_HDRLEN; p += NLA_ALIGN(a.nla_len)) {
		memcpy(&a, p, sizeof(a));
		if (a.nla_len < NLA_HDRLEN || a.nla_len > end - p)
			return -EPROTO;
		v = 0;
		if (a.nla_len == NLA_HDRLEN + sizeof(v))
			memcpy(&v, p + NLA_HDRLEN, sizeof(v));
		switch (a.nla_type & NLA_TYPE_MASK) {
		case RDMA_NLDEV_ATTR_CHARDEV: /* huge_encode_dev */
			out->dev = makedev((v & 0xFFF00) >> 8,
					   (v & 0xFF) | ((v >> 12) & 0xFFF00));
			found |= 1;
			break;
		case RDMA_NLDEV_ATTR_CHARDEV_ABI:
			out->abi = (int)(uint32_t)v;
			found |= 2;
			break;
		case RDMA_NLDEV_ATTR_CHARDEV_NAME:
			snprintf(out->name, sizeof(out->name), "%.*s",
				 a.nla_len - NLA_HDRLEN, p + NLA_HDRLEN);
			found |= 4;
			break;
		}
		if (NLA_ALIGN(a.nla_len) > end - p)
			break;
	}
	return found == 7 ? 0 : -EPROTO;
}

static int nl_answer(int fd, struct kernel_node *out)
{
	union {
		struct nlmsghdr h;
		char bytes[4096];
	} buf;
	ssize_t n = recv(fd, &buf, sizeof(buf), 0);
	struct nlmsgerr err;

	if (n < 0)
		return -errno;
	if (!NLMSG_OK(&buf.h, (size_t)n))
		return -EPROTO;
	if (buf.h.nlmsg_type != NLMSG_ERROR)
		return nl_take(&buf.h, out);
	memcpy(&err, NLMSG_DATA(&buf.h), sizeof(err));
	return err.error ? err.error : -EPROTO;
}

static int nl_chardev(struct kernel_node *out)
{
	struct timeval limit = { .tv_sec = 5 };
	int fd, r;

	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	r = nl_ask(fd);
	if (!r)
		r = nl_answer(fd, out);
	close(fd);
	return r;
}

/* ---- version ------------------------------------------------------------------ */

static const struct kernel_sys real = { "", sys_open, write, nl_chardev, 5000 };
const struct kernel_sys *kernel_sys = &real;

/* Written by init (under its lock) alone, before any channel is opened. */
static struct kernel_node node;
static bool found;

static int sysfs_abi(const char *file)
{
	char path[200], text[16];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/sys/class/%s/abi_version", kernel_sys->root, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -ENODATA;
	text[n] = 0;
	return atoi(text);
}

int kernel_node_find(void)
{
	int r;

	if (found)
		return 0;
	memset(&node, 0, sizeof(node));
	r = kernel_sys->chardev(&node);
	if (r) {
		log_debug("netlink does not know the device of rdma_cm: errno %d", -r);
		memset(&node, 0, sizeof(node));
		strcpy(node.name, TYPE);
		node.abi = sysfs_abi("misc/rdma_cm");
		if (node.abi < 0)
			node.abi = sysfs_abi("infiniband_ucma");
		if (node.abi < 0)
			node.abi = KERNEL_ABI_MAX; /* opening it will tell */
	}
	if (node.abi < KERNEL_ABI_MIN || node.abi > KERNEL_ABI_MAX)
		return log_refuse(EPERM, "the kernel's rdma_cm speaks version %d, we %d to %d",
				  node.abi, KERNEL_ABI_MIN, KERNEL_ABI_MAX);
	found = true;
	return 0;
}

void kernel_node_forget(void)
{
	found = false;
}

int kernel_abi(void)
{
	return node.abi;
}

/* ---- opening ------------------------------------------------------------------- */

static int open_checked(const char *path)
{
	struct stat st;
	int fd, r;

	fd = kernel_sys->open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (!node.dev)
		return fd;
	/* A stale node, or somebody else's under this name. */
	if (fstat(fd, &st)) {
		r = -errno;
	} else if (S_ISCHR(st.st_mode) && st.st_rdev == node.dev) {
		return fd;
	} else {
		r = -ENOENT;
	}
	close(fd);
	return r;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* udev may not have made the node yet: the module was loaded by our question. */
static int open_wait(const char *dir, const char *path)
{
	int64_t end = now_ms() + kernel_sys->node_wait_ms, left;
	char events[4096];
	struct pollfd p;
	int r;

	p.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	p.events = POLLIN;
	if (p.fd < 0)
		return -errno;
	r = inotify_add_watch(p.fd, dir, IN_CREATE | IN_MOVED_TO) < 0 ? -errno : 0;
	if (r)
		goto out;
	for (;;) {
		r = open_checked(path); /* after the watch: none is missed */
		left = end - now_ms();
		if (r != -ENOENT || left <= 0)
			break;
		poll(&p, 1, (int)left);
		while (read(p.fd, events, sizeof(events)) > 0)
			;
	}
out:
	close(p.fd);
	return r;
}

int kernel_node_open(void)
{
	char path[200], dir[200];
	int fd;

	snprintf(path, sizeof(path), "%s/dev/infiniband/%s", kernel_sys->root, node.name);
	fd = open_checked(path);
	if (fd == -ENOENT && node.dev) {
		snprintf(dir, sizeof(dir), "%s/dev/char", kernel_sys->root);
		snprintf(path, sizeof(path), "%.100s/dev/char/%u:%u", kernel_sys->root,
			 major(node.dev), minor(node.dev));
		fd = open_wait(dir, path);
	}
	if (fd < 0)
		return log_refuse(-fd, "%s cannot be opened: %s", path, strerror(-fd));
	return fd;
}
