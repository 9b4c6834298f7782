/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/tree.h"
#include "dev/verbs.h"
#include "files/count.h"
#include "files/dir.h"
#include "files/slots.h"
#include "files/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#ifndef ANYRDMA_VERSION /* the build defines it */
#define ANYRDMA_VERSION "0"
#endif

/* One file for all empty slots: a table has 256. */
#define HOLE_GID "hole_gid"
/* What port and GIDs are, in short. */
#define NOW "now"

/* What is written while the tree is made: the first error ends it. */
struct out {
	int dir;
	int err;
};

static void __attribute__((format(printf, 3, 4)))
put(struct out *o, const char *name, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (o->err)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	o->err = file_put(o->dir, name, text);
}

static void put_link(struct out *o, const char *name, const char *target)
{
	if (!o->err)
		o->err = symlink_put(o->dir, name, target);
}

/* Calls fill() for a folder below `at`, which is made. */
static int fill_dir(int at, const char *path, const struct files_device *d,
		    void (*fill)(struct out *o, const struct files_device *d))
{
	struct out o = { .dir = dir_make(at, path) };

	if (o.dir < 0)
		return o.dir;
	fill(&o, d);
	close(o.dir);
	return o.err;
}

/* ---- the PCI device -------------------------------------------------------------- */

static void pci_fill(struct out *o, const struct files_device *d)
{
	char cpus[512], list[128];

	text_cpus(cpus, sizeof(cpus), list, sizeof(list));
	put(o, "class", "0x020000\n");
	put(o, "vendor", "0x%04x\n", DEV_VENDOR_ID & 0xffff);
	put(o, "device", "0x%04x\n", 1);
	put(o, "subsystem_vendor", "0x%04x\n", DEV_VENDOR_ID & 0xffff);
	put(o, "subsystem_device", "0x%04x\n", 1);
	put(o, "revision", "0x00\n");
	put(o, "enable", "1\n");
	put(o, "irq", "0\n");
	put(o, "numa_node", "-1\n");
	put(o, "local_cpus", "%s\n", cpus);
	put(o, "local_cpulist", "%s\n", list);
	put(o, "max_link_speed", "16.0 GT/s PCIe\n");
	put(o, "max_link_width", "16\n");
	put(o, "current_link_speed", "16.0 GT/s PCIe\n");
	put(o, "current_link_width", "16\n");
	put(o, "uevent",
	    "PCI_CLASS=20000\nPCI_ID=%04X:0001\nPCI_SUBSYS_ID=%04X:0001\n"
	    "PCI_SLOT_NAME=a4da:%02x:00.0\n",
	    DEV_VENDOR_ID & 0xffff, DEV_VENDOR_ID & 0xffff, d->number);
}

/* The interfaces of its addresses; loopback if there is no other. */
static void net_fill(struct out *o, const struct files_device *d)
{
	bool any = false;

	for (int loopback = 0; loopback < 2 && !any; loopback++) {
		for (unsigned i = 0; i < DEV_GIDS; i++) {
			const struct files_gid *g = &d->gid[i];
			char target[64];

			if (!g->ndev[0] || g->loopback != loopback)
				continue;
			any = true;
			snprintf(target, sizeof(target), "/sys/class/net/%s", g->ndev);
			put_link(o, g->ndev, target);
		}
	}
}

static void uverbs_fill(struct out *o, const struct files_device *d)
{
	put(o, "ibdev", "%s\n", d->name);
	put(o, "abi_version", "1\n");
	put(o, "dev", "1:3\n"); /* /dev/null stands for the character device */
	put(o, "uevent", "MAJOR=1\nMINOR=3\nDEVNAME=infiniband/uverbs%u\n", d->uverbs);
	put_link(o, "subsystem", "../../../../../class/infiniband_verbs");
}

/* ---- the RDMA device ------------------------------------------------------------- */

static void device_fill(struct out *o, const struct files_device *d)
{
	char host[65] = "", guid[32];

	gethostname(host, sizeof(host) - 1);
	text_guid(guid, d->guid);
	put(o, "node_type", "1: CA\n");
	put(o, "node_guid", "%s\n", guid);
	put(o, "sys_image_guid", "%s\n", guid);
	put(o, "node_desc", "%.40s %.20s\n", host, d->name);
	put(o, "fw_ver", "%s\n", ANYRDMA_VERSION);
	put(o, "hw_rev", "1\n");
	put(o, "hca_type", "anyrdma\n");
	put(o, "board_id", "anyrdma\n");
	put(o, "uevent", "NAME=%s\n", d->name);
	put_link(o, "subsystem", "../../../../../class/infiniband");
}

static void port_fill(struct out *o, const struct files_device *d)
{
	const struct ibv_port_attr *p = &d->port;
	char text[64];

	put(o, "state", "%s\n", text_state(p->state));
	put(o, "phys_state", "%s\n", text_phys_state(p->phys_state));
	put(o, "rate", "%s\n", text_rate(text, p->active_width, p->active_speed));
	put(o, "link_layer", "%s\n",
	    p->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	put(o, "lid", "0x%x\n", p->lid);
	put(o, "lid_mask_count", "%u\n", p->lmc);
	put(o, "sm_lid", "0x%x\n", p->sm_lid);
	put(o, "sm_sl", "%u\n", p->sm_sl);
	put(o, "cap_mask", "0x%08x\n", p->port_cap_flags);
}

static void pkeys_fill(struct out *o, const struct files_device *d)
{
	put(o, "0", "0x%04x\n", d->pkey);
}

static void counters_fill(struct out *o, const struct files_device *d)
{
	(void)d;
	o->err = files_count_make(o->dir);
}

static bool is_hole(const struct files_gid *g)
{
	static const union ibv_gid zero;

	return !memcmp(&g->gid, &zero, sizeof(zero));
}

enum gid_file { GID_GID, GID_TYPE, GID_NDEV };

static int gid_put(int dir, const char *name, const struct files_gid *g, enum gid_file what,
		   bool eth)
{
	char text[64];

	if (what == GID_GID)
		return file_printf(dir, name, "%s\n", text_gid(text, &g->gid));
	if (what == GID_TYPE)
		return file_put(dir, name, eth ? "RoCE v2\n" : "IB/RoCE v1\n");
	return file_printf(dir, name, "%s\n", g->ndev);
}

/* The attributes of an empty slot cannot be read. The kernel fails read(2); here there is
 * no file. */
static void gid_attrs_clear(int dir, const struct files_device *d)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *entries = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (entries && (e = readdir(entries))) {
		unsigned i = (unsigned)strtoul(e->d_name, NULL, 10);

		if (e->d_name[0] != '.' && (i >= DEV_GIDS || is_hole(&d->gid[i])))
			unlinkat(dir, e->d_name, 0);
	}
	if (entries)
		closedir(entries);
	else if (fd >= 0)
		close(fd);
}

/* A file for each slot of the table, in three folders. */
static int gids_write(int port, int state, const struct files_device *d, enum gid_file what)
{
	static const char *const path[] = { "gids", "gid_attrs/types", "gid_attrs/ndevs" };
	bool eth = d->port.link_layer == IBV_LINK_LAYER_ETHERNET;
	int dir = dir_make(port, path[what]), ret = 0;

	if (dir < 0)
		return dir;
	if (what != GID_GID)
		gid_attrs_clear(dir, d);
	for (unsigned i = 0; i < DEV_GIDS && !ret; i++) {
		char name[8];

		snprintf(name, sizeof(name), "%u", i);
		if (!is_hole(&d->gid[i]))
			ret = gid_put(dir, name, &d->gid[i], what, eth);
		else if (what == GID_GID)
			ret = file_share(state, HOLE_GID, dir, name);
	}
	close(dir);
	return ret;
}

/* ---- all of it ------------------------------------------------------------------- */

struct paths {
	char address[32]; /* of the PCI device */
	char pci[64], ib[160], uverbs[128], port[192];
};

static void paths_make(struct paths *p, const struct files_device *d)
{
	unsigned bus = d->number & 0xff;

	snprintf(p->address, sizeof(p->address), "a4da:%02x:00.0", bus);
	snprintf(p->pci, sizeof(p->pci), "devices/" FILES_PCI "%02x/%s", bus, p->address);
	snprintf(p->ib, sizeof(p->ib), "%s/infiniband/%s", p->pci, d->name);
	snprintf(p->uverbs, sizeof(p->uverbs), "%s/infiniband_verbs/uverbs%u", p->pci,
		 d->uverbs);
	snprintf(p->port, sizeof(p->port), "%s/ports/1", p->ib);
}

static int update_one(int root, int state, const struct files_device *d)
{
	struct paths p;
	int ret, port;

	paths_make(&p, d);
	ret = fill_dir(root, p.port, d, port_fill);
	if (ret)
		return ret;
	port = openat(root, p.port, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (port < 0)
		return -errno;
	for (enum gid_file what = GID_GID; what <= GID_NDEV && !ret; what++)
		ret = gids_write(port, state, d, what);
	close(port);
	if (!ret)
		ret = files_slots_write(root, d->number, d->given, d->ngiven);
	if (!ret)
		ret = fill_dir(root, strcat(p.pci, "/net"), d, net_fill);
	return ret;
}

/* A link from ROOT/CLASS/NAME to the folder, as the kernel makes them. */
static int class_link(int root, const char *class, const char *name, const char *path)
{
	char target[256];
	int ret, dir = dir_make(root, class);

	if (dir < 0)
		return dir;
	snprintf(target, sizeof(target), "../../%s", path);
	ret = symlink_put(dir, name, target);
	close(dir);
	return ret;
}

/* The link `device` of a folder that is two below the PCI device's. */
static int device_link(int root, const char *path, const char *address)
{
	char target[64];
	int ret, dir = dir_make(root, path);

	if (dir < 0)
		return dir;
	snprintf(target, sizeof(target), "../../../%s", address);
	ret = symlink_put(dir, "device", target);
	close(dir);
	return ret;
}

static int write_fixed(int root, const struct files_device *d)
{
	char path[256], uverbs[16];
	struct paths p;
	int ret;

	paths_make(&p, d);
	ret = fill_dir(root, p.pci, d, pci_fill);
	if (!ret)
		ret = fill_dir(root, p.ib, d, device_fill);
	if (!ret)
		ret = fill_dir(root, p.uverbs, d, uverbs_fill);
	snprintf(path, sizeof(path), "%s/pkeys", p.port);
	if (!ret)
		ret = fill_dir(root, path, d, pkeys_fill);
	if (!ret)
		ret = fill_dir(root, p.port, d, counters_fill);
	if (!ret)
		ret = device_link(root, p.ib, p.address);
	if (!ret)
		ret = device_link(root, p.uverbs, p.address);
	if (!ret)
		ret = class_link(root, "class/infiniband", d->name, p.ib);
	snprintf(uverbs, sizeof(uverbs), "uverbs%u", d->uverbs);
	if (!ret)
		ret = class_link(root, "class/infiniband_verbs", uverbs, p.uverbs);
	return ret;
}

static void state_fill(struct out *o, const struct files_device *d)
{
	static const union ibv_gid zero;
	char text[64];

	(void)d;
	put(o, "lock", "%s", "");
	put(o, "use", "%s", "");
	put(o, HOLE_GID, "%s\n", text_gid(text, &zero));
}

static void verbs_class_fill(struct out *o, const struct files_device *d)
{
	(void)d;
	put(o, "abi_version", "6\n");
}

/* Of what the files hold that may change. */
static uint64_t hash(const struct files_device *d, unsigned n)
{
	const uint8_t *p = (const uint8_t *)d;
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t len = n * sizeof(*d); len; len--)
		h = (h ^ *p++) * 0x100000001b3ull;
	return h;
}

int files_tree_update(int root, const struct files_device *d, unsigned n)
{
	char now[32], text[32];
	int ret = 0, state = openat(root, FILES_STATE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (state < 0)
		return -errno;
	/* To look at each of a thousand files takes a millisecond. */
	snprintf(now, sizeof(now), "%016" PRIx64, hash(d, n));
	if (file_get(state, NOW, text, sizeof(text)) < 0 || strcmp(text, now)) {
		for (unsigned i = 0; i < n && !ret; i++)
			ret = update_one(root, state, &d[i]);
		if (!ret)
			ret = file_put(state, NOW, now);
	}
	close(state);
	return ret;
}

int files_tree_write(int root, const struct files_device *d, unsigned n)
{
	int ret = fill_dir(root, FILES_STATE, NULL, state_fill);

	if (!ret)
		ret = fill_dir(root, "class/infiniband_verbs", NULL, verbs_class_fill);
	for (unsigned i = 0; i < n && !ret; i++)
		ret = write_fixed(root, &d[i]);
	return ret ? ret : files_tree_update(root, d, n);
}

int files_tree_stamp(int root, const char *stamp)
{
	int state = openat(root, FILES_STATE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret;

	if (state < 0)
		return -errno;
	ret = file_put(state, "stamp", stamp);
	close(state);
	return ret;
}

int files_tree_open(const char *stamp)
{
	int root, state = open("/sys/" FILES_STATE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[512];

	if (state < 0)
		return -errno;
	/* By way of the folder: what /sys is for it may not be what /sys is. */
	root = openat(state, "../../..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (root >= 0 &&
	    (file_get(state, "stamp", text, sizeof(text)) < 0 || strcmp(text, stamp))) {
		close(root);
		errno = ESTALE;
		root = -1;
	}
	root = root < 0 ? -errno : root;
	close(state);
	return root;
}

int files_tree_port(int root, const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "class/infiniband/%s/ports/1", name);
	fd = openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int files_tree_lock(int root)
{
	int fd = openat(root, FILES_STATE "/lock", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX))
		if (errno != EINTR) {
			int err = errno;

			close(fd);
			return -err;
		}
	return fd;
}
