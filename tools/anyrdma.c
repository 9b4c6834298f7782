/* SPDX-License-Identifier: BSD-2-Clause */
/* anyrdma run|info|version: see man/anyrdma.1.scd. */
#include "base/conf.h"

#include <infiniband/verbs.h>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Exit statuses of env(1). */
enum { EXIT_OWN = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

static const char usage[] =
	"usage: anyrdma run COMMAND [ARGUMENT...]\n"
	"       anyrdma info\n"
	"       anyrdma version\n"
	"\n"
	"run      runs COMMAND with anyrdma's librdmacm and libibverbs in front\n"
	"info     shows the device, its addresses, the port mapping and all settings\n"
	"version  shows the version\n"
	"\n"
	"Settings are environment variables: see anyrdma(7) or `anyrdma info`.\n";

static int __attribute__((format(printf, 2, 3))) fail(int status, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "anyrdma: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	return status;
}

static bool have(const char *dir, const char *rest)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, rest);
	return access(path, F_OK) == 0;
}

/* The folder of our libraries, beside the program's real path: ../lib/anyrdma
 * where it is installed, ../lib in a build tree. A plain ../lib elsewhere is the
 * distribution's and never taken. */
static bool find_libs(char *out, size_t size)
{
	static const char *const rest[] = { "lib/anyrdma", "lib" };
	char root[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", root, sizeof(root) - 1);
	char *slash;

	if (n <= 0)
		return false;
	root[n] = 0;
	for (int i = 0; i < 2; i++) {
		slash = strrchr(root, '/');
		if (!slash)
			return false;
		*slash = 0;
	}
	for (int i = 0; i < 2; i++) {
		snprintf(out, size, "%s/%s", root, rest[i]);
		if (have(out, "libibverbs.so.1") && have(out, "librdmacm.so.1") &&
		    (i == 0 || have(root, "build.ninja")))
			return true;
	}
	return false;
}

/* ---- run ---- */

/* The file that execvp would take; false when there is none. */
static bool find_command(const char *name, char *out, size_t size)
{
	const char *path = getenv("PATH"), *end;

	if (strchr(name, '/')) {
		snprintf(out, size, "%s", name);
		return access(out, F_OK) == 0;
	}
	for (; path; path = *end ? end + 1 : NULL) {
		end = strchrnul(path, ':');
		snprintf(out, size, "%.*s/%s", end == path ? 1 : (int)(end - path),
			 end == path ? "." : path, name);
		if (access(out, X_OK) == 0)
			return true;
	}
	return false;
}

/* The dynamic linker drops LD_LIBRARY_PATH for programs that gain privileges:
 * they would run on the distribution's libraries without a word. */
static bool gains_privileges(const char *file)
{
	struct stat st;

	if (stat(file, &st) || !S_ISREG(st.st_mode))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return true;
	if ((st.st_mode & S_ISGID) && st.st_gid != getgid())
		return true;
	return getuid() != 0 && getxattr(file, "security.capability", NULL, 0) > 0;
}

static bool put_in_front(const char *dir)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	size_t len = strlen(dir);
	char *value;
	bool done;

	if (!old || !*old)
		return setenv("LD_LIBRARY_PATH", dir, 1) == 0;
	if (!strncmp(old, dir, len) && (!old[len] || old[len] == ':'))
		return true;
	if (asprintf(&value, "%s:%s", dir, old) < 0)
		return false;
	done = setenv("LD_LIBRARY_PATH", value, 1) == 0;
	free(value);
	return done;
}

static int cmd_run(char **argv)
{
	char dir[PATH_MAX + 64], file[PATH_MAX + 64];

	if (*argv && !strcmp(*argv, "--"))
		argv++;
	if (!*argv) {
		fputs(usage, stderr);
		return EXIT_OWN;
	}
	if (!find_libs(dir, sizeof(dir)))
		return fail(EXIT_OWN, "librdmacm.so.1 and libibverbs.so.1 are in neither "
			    "../lib/anyrdma nor a build tree's ../lib of this program");
	if (strpbrk(dir, ":;"))
		return fail(EXIT_OWN, "%s: LD_LIBRARY_PATH cannot name a folder with a "
			    "colon or a semicolon", dir);
	if (find_command(*argv, file, sizeof(file)) && gains_privileges(file))
		return fail(EXIT_CANNOT_RUN, "%s gains privileges when run, so the dynamic "
			    "linker would ignore our libraries", file);
	if (!put_in_front(dir))
		return fail(EXIT_OWN, "environment: %s", strerror(errno));
	execvp(*argv, argv);
	return fail(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, "%s: %s", *argv,
		    strerror(errno));
}

/* ---- info ---- */

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

static int show_device(void)
{
	static const char *const state[] = { "no change", "down", "init", "armed",
					     "active", "active, deferred" };
	struct ibv_device **list;
	struct ibv_context *ctx;
	struct ibv_device_attr dev;
	struct ibv_port_attr port = { 0 };
	int n = 0;

	list = verbs.get_device_list(&n);
	if (!list || !n)
		return fail(1, "the library shows no device");
	ctx = verbs.open_device(list[0]);
	if (!ctx)
		return fail(1, "%s: %s", list[0]->name, strerror(errno));
	if (verbs.query_device(ctx, &dev) || verbs.query_port(ctx, 1, &port))
		return fail(1, "%s cannot be queried", list[0]->name);
	printf("device: %s, port 1 %s, MTU %d\n", list[0]->name,
	       port.state < sizeof(state) / sizeof(state[0]) ? state[port.state] : "?",
	       port.active_mtu ? 128 << port.active_mtu : 0);
	printf("limits: %d QPs, %d WRs each, %d SGEs, %d CQs, %d MRs, read depth %d\n",
	       dev.max_qp, dev.max_qp_wr, dev.max_sge, dev.max_cq, dev.max_mr,
	       dev.max_qp_rd_atom);
	show_gids(ctx);
	return 0;
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

static int cmd_info(void)
{
	char dir[PATH_MAX + 64];
	int status = 1;

	printf("anyrdma %s\n", ANYRDMA_VERSION);
	show_without();
	if (!find_libs(dir, sizeof(dir))) {
		fail(1, "librdmacm.so.1 and libibverbs.so.1 were not found");
	} else {
		printf("libibverbs with `anyrdma run`: %s/libibverbs.so.1 (user backend)\n",
		       dir);
		if (verbs_load(dir))
			status = show_device();
	}
	show_ports();
	show_settings();
	return status;
}

int main(int argc, char **argv)
{
	const char *cmd = argc > 1 ? argv[1] : "";

	if (!strcmp(cmd, "run"))
		return cmd_run(argv + 2);
	if (!strcmp(cmd, "info") && argc == 2)
		return cmd_info();
	if (!strcmp(cmd, "version") || !strcmp(cmd, "--version")) {
		printf("anyrdma %s\n", ANYRDMA_VERSION);
		return 0;
	}
	if (!strcmp(cmd, "help") || !strcmp(cmd, "--help") || !strcmp(cmd, "-h")) {
		fputs(usage, stdout);
		return 0;
	}
	fputs(usage, stderr);
	return EXIT_OWN;
}
