/* SPDX-License-Identifier: BSD-2-Clause */
/* The tree in a folder of the test's: what is written, again, and changed. */
#include "files/tree.h"
#include "dev/transport.h"
#include "files/count.h"
#include "files/dir.h"
#include "files/slots.h"
#include "t.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>

#define PCI0 "devices/pcia4da:00/a4da:00:00.0"
#define PCI1 "devices/pcia4da:01/a4da:01:00.0"
#define PORT0 PCI0 "/infiniband/one0/ports/1"

/* No QPs are made. */
const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	(void)type;
	return NULL;
}

static char top[] = "/tmp/anyrdma-tree-XXXXXX";
static struct files_device dev[2];
static int root;

static bool says(const char *path, const char *want)
{
	char text[512];

	if (file_get(root, path, text, sizeof(text)) < 0)
		snprintf(text, sizeof(text), "(%s)", strerror(errno));
	if (!strcmp(text, want))
		return true;
	printf("# %s: %s", path, text);
	return false;
}

static ino_t inode(const char *path)
{
	struct stat st;

	return fstatat(root, path, &st, 0) ? 0 : st.st_ino;
}

static bool leads_to(const char *link, const char *path)
{
	return inode(link) && inode(link) == inode(path);
}

static void model(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct files_device *d = &dev[i];

		d->number = i;
		d->uverbs = i + 3;
		snprintf(d->name, sizeof(d->name), i ? "two7" : "one0");
		d->guid = 0x0102030405060708 + i;
		d->pkey = 0xffff;
		d->port.state = IBV_PORT_ACTIVE;
		d->port.phys_state = 5;
		d->port.active_width = 2;
		d->port.active_speed = 4;
		d->port.link_layer = IBV_LINK_LAYER_ETHERNET;
		memset(&d->gid[1].gid, 0x11, 16);
		strcpy(d->gid[1].ndev, "eth7");
	}
}

static void written(void)
{
	CHECK_EQ(files_tree_write(root, dev, 2), 0);
	CHECK(says(PCI0 "/class", "0x020000\n"));
	CHECK(says(PCI0 "/numa_node", "-1\n"));
	CHECK(says(PORT0 "/state", "4: ACTIVE\n"));
	CHECK(says(PORT0 "/pkeys/0", "0xffff\n"));
	CHECK(says(PORT0 "/gids/1", "1111:1111:1111:1111:1111:1111:1111:1111\n"));
	CHECK(says(PORT0 "/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n"));
	CHECK(says(PORT0 "/gid_attrs/types/1", "RoCE v2\n"));
	CHECK_EQ(inode(PORT0 "/gid_attrs/types/255"), 0);
	CHECK(says(PORT0 "/gid_attrs/ndevs/1", "eth7\n"));
	CHECK(says("class/infiniband_verbs/abi_version", "6\n"));
	CHECK(says(PCI1 "/infiniband_verbs/uverbs4/ibdev", "two7\n"));
	CHECK(says(PORT0 "/counters/port_xmit_data", "0\n"));
}

static void links(void)
{
	CHECK(leads_to("class/infiniband/one0", PCI0 "/infiniband/one0"));
	CHECK(leads_to("class/infiniband/two7/device", PCI1));
	CHECK(leads_to("class/infiniband/two7/subsystem", "class/infiniband"));
	CHECK(leads_to("class/infiniband_verbs/uverbs3", PCI0 "/infiniband_verbs/uverbs3"));
	CHECK(leads_to("class/infiniband_verbs/uverbs4/device", PCI1));
	CHECK(leads_to("class/infiniband_verbs/uverbs4/subsystem", "class/infiniband_verbs"));
	CHECK_EQ(inode(PCI0 "/subsystem"), 0);
}

/* Files that say the same are not touched: a reader may keep its descriptor. */
static void written_again(void)
{
	ino_t state = inode(PORT0 "/state"), gid = inode(PORT0 "/gids/1");

	CHECK_EQ(files_tree_write(root, dev, 2), 0);
	CHECK_EQ(inode(PORT0 "/state"), state);
	CHECK_EQ(inode(PORT0 "/gids/1"), gid);
	CHECK_EQ(inode(PORT0 "/gids/7"), inode(PORT0 "/gids/8"));
}

static void a_change(void)
{
	dev[0].port.state = IBV_PORT_DOWN;
	dev[0].gid[5] = dev[0].gid[1];
	memset(&dev[0].gid[1], 0, sizeof(dev[0].gid[1]));
	CHECK_EQ(files_tree_update(root, dev, 2), 0);
	CHECK(says(PORT0 "/state", "1: DOWN\n"));
	CHECK(says(PORT0 "/gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n"));
	CHECK_EQ(inode(PORT0 "/gid_attrs/types/1"), 0);
	CHECK(says(PORT0 "/gids/5", "1111:1111:1111:1111:1111:1111:1111:1111\n"));
	CHECK(says(PORT0 "/gids/6", "0000:0000:0000:0000:0000:0000:0000:0000\n"));
	CHECK(says(PORT0 "/gid_attrs/ndevs/5", "eth7\n"));
	CHECK_EQ(inode(PORT0 "/gids/.new"), 0);
}

/* A process that begins later finds what was given, and adds to it. */
static void slots_are_kept(void)
{
	struct gid_slot s[DEV_GIDS], read[DEV_GIDS];

	memset(s, 0, sizeof(s));
	for (unsigned i = 0; i < 3; i++) {
		memset(&s[i].gid, (int)i + 1, 16);
		s[i].ifindex = i + 7;
		s[i].loopback = i == 2;
	}
	CHECK_EQ(files_slots_read(root, 1, read), 0);
	CHECK_EQ(files_slots_write(root, 1, s, 2), 0);
	CHECK_EQ(files_slots_read(root, 1, read), 2);
	CHECK_EQ(files_slots_write(root, 1, s, 3), 0);
	CHECK_EQ(files_slots_write(root, 1, s + 1, 2), 0); /* knows less: changes nothing */
	CHECK_EQ(files_slots_read(root, 1, read), 3);
	for (unsigned i = 0; i < 3; i++)
		CHECK(!memcmp(&read[i].gid, &s[i].gid, 16) && read[i].ifindex == i + 7 &&
		      read[i].loopback == (i == 2));
	files_slots_forget(root, 1);
	CHECK_EQ(files_slots_read(root, 1, read), 0);
}

static void a_umask_does_not_matter(void)
{
	mode_t mask = umask(077);
	struct stat st;

	dev[0].port.lid = 7;
	CHECK_EQ(files_tree_update(root, dev, 2), 0);
	umask(mask);
	CHECK(says(PORT0 "/lid", "0x7\n"));
	CHECK(!fstatat(root, PORT0 "/lid", &st, 0) && (st.st_mode & 0777) == 0444);
}

/* Two processes, each of which has counted for itself. */
static void counters_add_up(void)
{
	static struct files_counted a, b;
	static struct traffic t;
	int port = openat(root, PORT0, O_RDONLY | O_DIRECTORY);

	traffic_begin(&t);
	traffic_count(&t, TRAFFIC_XMIT, 4002, 1);
	CHECK(files_count_add(&a, 0, port, false));
	CHECK(says(PORT0 "/counters/port_xmit_data", "1000\n"));
	CHECK(says(PORT0 "/counters/port_xmit_packets", "1\n"));
	CHECK(!files_count_add(&a, 0, port, false)); /* two bytes wait for their word */
	CHECK(files_count_add(&b, 0, port, false));
	CHECK(says(PORT0 "/counters/port_xmit_data", "2000\n"));
	traffic_count(&t, TRAFFIC_XMIT, 2, 1);
	CHECK(files_count_news(&a, 1));
	CHECK(files_count_add(&a, 0, port, true));
	CHECK(!files_count_news(&a, 1));
	CHECK(says(PORT0 "/counters/port_xmit_data", "2001\n"));
	CHECK(says(PORT0 "/counters/port_rcv_data", "0\n"));
	atomic_store(&t.mtu, 1024);
	traffic_count(&t, TRAFFIC_RCV, 4096, 1);
	traffic_end(&t); /* what has ended still counts */
	CHECK(files_count_add(&a, 0, port, false));
	CHECK(says(PORT0 "/counters/port_rcv_packets", "4\n"));
	/* Writing the tree again keeps them. */
	CHECK_EQ(files_tree_write(root, dev, 2), 0);
	CHECK(says(PORT0 "/counters/port_xmit_data", "2001\n"));
	close(port);
}

static void a_lock_is_waited_for(void)
{
	int a = files_tree_lock(root), b = openat(root, FILES_STATE "/lock", O_RDONLY);

	CHECK(a >= 0 && b >= 0 && flock(b, LOCK_EX | LOCK_NB) < 0);
	close(a);
	CHECK(!flock(b, LOCK_EX | LOCK_NB));
	close(b);
}

static int gone(const char *path, const struct stat *st, int type, struct FTW *f)
{
	(void)st;
	(void)type;
	(void)f;
	return remove(path);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!mkdtemp(top))
		skip_all("no folder in /tmp");
	root = open(top, O_RDONLY | O_DIRECTORY);
	model();
	T_RUN(written);
	T_RUN(links);
	T_RUN(written_again);
	T_RUN(a_change);
	T_RUN(slots_are_kept);
	T_RUN(a_umask_does_not_matter);
	T_RUN(counters_add_up);
	T_RUN(a_lock_is_waited_for);
	nftw(top, gone, 16, FTW_DEPTH | FTW_PHYS);
	return t_done();
}
