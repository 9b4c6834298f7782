/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/conf.h"
#include "show.h"
#include "tool.h"

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The public verbs that info uses, from our library whatever else is installed. */
static struct {
	struct ibv_device **(*get_device_list)(int *n);
	struct ibv_context *(*open_device)(struct ibv_device *dev);
	int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
	ssize_t (*query_gid_table)(struct ibv_context *ctx, struct ibv_gid_entry *entry,
				   size_t max, uint32_t flags, size_t size);
} verbs;

static bool verbs_load(const char *dir)
{
	static const struct {
		const char *name;
		void *to;
	} want[] = {
		{ "ibv_get_device_list", &verbs.get_device_list },
		{ "ibv_open_device", &verbs.open_device },
		{ "ibv_query_device", &verbs.query_device },
		{ "ibv_query_port", &verbs.query_port },
		{ "_ibv_query_gid_table", &verbs.query_gid_table },
	};
	char path[PATH_MAX + 128];
	void *lib, *sym;

	snprintf(path, sizeof(path), "%s/libibverbs.so.1", dir);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		fail(1, "%s", dlerror());
		return false;
	}
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		sym = dlsym(lib, want[i].name);
		if (!sym) {
			fail(1, "%s", dlerror());
			return false;
		}
		memcpy(want[i].to, &sym, sizeof(sym));
	}
	return true;
}

static void show_gids(struct ibv_context *ctx)
{
	static struct ibv_gid_entry entry[256];
	ssize_t n = verbs.query_gid_table(ctx, entry, 256, 0, sizeof(entry[0]));
	char text[INET6_ADDRSTRLEN], ifname[IF_NAMESIZE];

	if (n < 0) {
		fail(1, "GID table: %s", strerror((int)-n));
		return;
	}
	printf("addresses (GID index, address, interface):\n");
	for (ssize_t i = 0; i < n; i++) {
		const uint8_t *raw = entry[i].gid.raw;
		bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)raw);

		inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? raw + 12 : raw, text, sizeof(text));
		if (!if_indextoname(entry[i].ndev_ifindex, ifname))
			strcpy(ifname, "-");
		printf("  %3u  %-39s  %s\n", entry[i].gid_index, text, ifname);
	}
}

static int show_device(struct ibv_device *device)
{
	static const char *const state[] = { "no change", "down", "init", "armed",
					     "active", "active, deferred" };
	struct ibv_context *ctx = verbs.open_device(device);
	struct ibv_device_attr dev;
	struct ibv_port_attr port = { 0 };

	if (!ctx)
		return fail(1, "%s: %s", device->name, strerror(errno));
	if (verbs.query_device(ctx, &dev) || verbs.query_port(ctx, 1, &port))
		return fail(1, "%s cannot be queried", device->name);
	printf("device: %s, port 1 %s, MTU %d", device->name,
	       port.state < sizeof(state) / sizeof(state[0]) ? state[port.state] : "?",
	       port.active_mtu ? 128 << port.active_mtu : 0);
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		printf(", InfiniBand, LID %u", port.lid);
	printf("\n");
	printf("limits: %d QPs, %d WRs each, %d SGEs, %d CQs, %d MRs, read depth %d\n",
	       dev.max_qp, dev.max_qp_wr, dev.max_sge, dev.max_cq, dev.max_mr,
	       dev.max_qp_rd_atom);
	show_gids(ctx);
	return 0;
}

static int show_devices(void)
{
	int n = 0, ret = 0;
	struct ibv_device **list = verbs.get_device_list(&n);

	if (!list || !n)
		return fail(1, "the library shows no device");
	for (int i = 0; i < n && !ret; i++)
		ret = show_device(list[i]);
	return ret;
}

/* Which libibverbs a program started in this environment would load. Asked in a
 * child: two libraries of one name do not fit into one process. */
static void show_without(void)
{
	struct link_map *map;
	void *lib;
	pid_t pid;

	printf("libibverbs without `anyrdma run`: ");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		lib = dlopen("libibverbs.so.1", RTLD_LAZY);
		if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map))
			printf("none\n");
		else if (dlsym(lib, "anyrdma_interface"))
			printf("%s (anyrdma: user backend)\n", map->l_name);
		else
			printf("%s (not anyrdma: kernel backend, %s)\n", map->l_name,
			       access("/dev/infiniband/rdma_cm", F_OK) ?
				       "but /dev/infiniband/rdma_cm is missing" :
				       "/dev/infiniband/rdma_cm is there");
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

static void show_ports(void)
{
	static const unsigned example[] = { 4420, 7471, 18515 };
	bool identity = conf_get()->ports_identity;

	printf("ports: RDMA port p is TCP port %s;",
	       identity ? "p" : "1024 + (p + 10007) mod 64512");
	for (size_t i = 0; i < sizeof(example) / sizeof(example[0]); i++)
		printf(" %u is %u%c", example[i],
		       identity ? example[i] : 1024 + (example[i] + 10007) % 64512,
		       i + 1 < sizeof(example) / sizeof(example[0]) ? ',' : '\n');
}

static void show_settings(void)
{
	const char *name, *def, *help, *value;

	printf("settings:\n");
	for (unsigned i = 0; conf_row(i, &name, &def, &help); i++) {
		value = getenv(name);
		printf("  %s=%s%s\n      %s\n", name, value && *value ? value : def,
		       value && *value ? "" : " (default)", help);
	}
}

/* What `anyrdma run` would do, in a process of its own that does it. */
static void show_ways(void)
{
	static struct show s;
	enum show_way way;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		s.dev = files_model_read(&s.n);
		way = s.dev ? show_files(&s) : SHOW_NOT;
		printf("files of the device with `anyrdma run`: %s%s\n", show_name(way),
		       conf_get()->files == CONF_FILES_OFF ? " (ANYRDMA_FILES=off)" : "");
		for (int i = 0; i < SHOW_WAYS; i++)
			if (*s.why[i])
				printf("  not %s: %s\n", show_name(i), s.why[i]);
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
}

int cmd_info(void)
{
	char dir[PATH_MAX + 64];
	int status = 1;

	printf("anyrdma %s\n", ANYRDMA_VERSION);
	show_without();
	if (!libs_find(dir, sizeof(dir))) {
		fail(1, "librdmacm.so.1 and libibverbs.so.1 were not found");
	} else {
		printf("libibverbs with `anyrdma run`: %s/libibverbs.so.1 (user backend)\n",
		       dir);
		if (verbs_load(dir))
			status = show_devices();
	}
	show_ways();
	show_ports();
	show_settings();
	return status;
}
