/* SPDX-License-Identifier: BSD-2-Clause */
/* What tests/programs/files.sh needs beside scripts:
 *
 *	files_helper look		looks at the files by every call that programs use
 *	files_helper forbid COMMAND...	runs it where unshare, setns and mount are refused
 *
 * A reason on stdout and 1: it is not as it should be. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define IB "/sys/class/infiniband"
#define STATE IB "/anyrdma0/ports/1/state"
#define NODE "/dev/infiniband/uverbs0"

static int bad;

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			printf("line %d: %s: %s\n", __LINE__, #cond, strerror(errno)); \
			bad = 1; \
		} \
	} while (0)

static bool reads(int fd)
{
	char text[32] = "";
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (fd >= 0)
		close(fd);
	return n > 0 && !strcmp(text, "4: ACTIVE\n");
}

static bool reads_file(FILE *f)
{
	char text[32] = "";
	bool right = f && fgets(text, sizeof(text), f) && !strcmp(text, "4: ACTIVE\n");

	if (f)
		fclose(f);
	return right;
}

static bool is_anyrdma(const struct dirent *e)
{
	return !strcmp(e->d_name, "anyrdma0");
}

static int only(const struct dirent *e)
{
	return is_anyrdma(e);
}

static void look_open(void)
{
	int dir = open(IB, O_RDONLY | O_DIRECTORY);

	CHECK(reads(open(STATE, O_RDONLY)));
	CHECK(reads(open64(STATE, O_RDONLY)));
	CHECK(reads(openat(AT_FDCWD, STATE, O_RDONLY)));
	CHECK(reads(openat64(dir, STATE, O_RDONLY)));
	CHECK(reads(openat(dir, "anyrdma0/ports/1/state", O_RDONLY)));
	CHECK(reads(open("/sys//class/./infiniband/anyrdma0/ports/1/state", O_RDONLY)));
	CHECK(reads(open(IB "/anyrdma0/device/infiniband/anyrdma0/ports/1/state", O_RDONLY)));
	CHECK(reads_file(fopen(STATE, "r")));
	CHECK(reads_file(fopen64(STATE, "r")));
	CHECK(reads_file(freopen(STATE, "r", fopen("/dev/null", "r"))));
	CHECK(open(IB "/mlx5_99", O_RDONLY) < 0 && errno == ENOENT);
	CHECK(open(NODE, O_RDWR) >= 0);
	close(dir);
}

static void look_stat(void)
{
	struct stat64 st64;
	struct statx stx;
	struct stat st;

	CHECK(!stat(STATE, &st) && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0444);
	CHECK(!stat64(STATE, &st64) && S_ISREG(st64.st_mode));
	CHECK(!lstat(IB "/anyrdma0", &st) && S_ISLNK(st.st_mode));
	CHECK(!lstat64(IB "/anyrdma0", &st64) && S_ISLNK(st64.st_mode));
	CHECK(!fstatat(AT_FDCWD, IB "/anyrdma0", &st, 0) && S_ISDIR(st.st_mode));
	CHECK(!fstatat64(AT_FDCWD, IB "/anyrdma0", &st64, 0) && S_ISDIR(st64.st_mode));
	CHECK(!statx(AT_FDCWD, STATE, 0, STATX_TYPE, &stx) && S_ISREG(stx.stx_mode));
	CHECK(!stat(NODE, &st) && S_ISCHR(st.st_mode) && (st.st_mode & 0666) == 0666);
	CHECK(!lstat(NODE, &st) && S_ISCHR(st.st_mode));
	CHECK(!access(NODE, R_OK | W_OK) && !access(STATE, R_OK));
	CHECK(!faccessat(AT_FDCWD, STATE, R_OK, 0) && !eaccess(STATE, R_OK));
	CHECK(access(IB "/mlx5_99", F_OK) && errno == ENOENT);
}

/* As programs call them that were linked before glibc 2.33. */
static void look_old(void)
{
#if defined(__x86_64__)
	enum { VERSION = 1 };
#else
	enum { VERSION = 0 };
#endif
	int (*xstat)(int, const char *, struct stat *) =
		(int (*)(int, const char *, struct stat *))dlsym(RTLD_DEFAULT, "__xstat");
	int (*lxstat64)(int, const char *, struct stat64 *) =
		(int (*)(int, const char *, struct stat64 *))dlsym(RTLD_DEFAULT, "__lxstat64");
	int (*fxstatat)(int, int, const char *, struct stat *, int) =
		(int (*)(int, int, const char *, struct stat *, int))dlsym(RTLD_DEFAULT,
									   "__fxstatat");
	struct stat64 st64;
	struct stat st;

	CHECK(xstat && lxstat64 && fxstatat);
	if (bad)
		return;
	CHECK(!xstat(VERSION, STATE, &st) && S_ISREG(st.st_mode));
	CHECK(!lxstat64(VERSION, IB "/anyrdma0", &st64) && S_ISLNK(st64.st_mode));
	CHECK(!fxstatat(VERSION, AT_FDCWD, NODE, &st, 0) && S_ISCHR(st.st_mode));
}

static unsigned count(const char *path, const char *name)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	unsigned n = 0;

	while (dir && (e = readdir(dir)))
		n += !strcmp(e->d_name, name);
	if (dir)
		closedir(dir);
	return n;
}

static void look_folder(void)
{
	struct dirent **list;
	struct dirent64 **list64;
	char path[4096];

	CHECK(count(IB, "anyrdma0") == 1);
	CHECK(count("/sys/class", "infiniband") == 1 && count("/sys/class/", "net") == 1);
	CHECK(count("/dev/infiniband", "uverbs0") == 1);
	CHECK(scandir(IB, &list, only, alphasort) == 1);
	CHECK(scandir64(IB, &list64, NULL, alphasort64) == 3);
	CHECK(!chdir(IB "/anyrdma0/ports") && reads(open("1/state", O_RDONLY)));
	CHECK(getcwd(path, sizeof(path)) && strstr(path, "/infiniband/anyrdma0/ports") &&
	      !strncmp(path, "/sys/devices/pci", 16));
	CHECK(!chdir("/sys/class") && reads(open("infiniband/anyrdma0/ports/1/state", 0)));
	CHECK(getcwd(path, sizeof(path)) && !strcmp(path, "/sys/class"));
	CHECK(getcwd(path, sizeof("/sys/class")) && !strcmp(path, "/sys/class"));
	CHECK(!getcwd(path, 4) && errno == ERANGE);
	CHECK(!chdir("/"));
}

static bool globbed(const char *pattern, const char *want)
{
	bool right;
	glob_t g;

	if (glob(pattern, 0, NULL, &g))
		return false;
	right = g.gl_pathc == 1 && !strcmp(g.gl_pathv[0], want);
	globfree(&g);
	return right;
}

static void look_links(void)
{
	const char *device = realpath(IB "/anyrdma0/device", NULL);
	char path[4096] = "";
	glob64_t g;
	ssize_t n;

	CHECK(device && !strncmp(device, "/sys/devices/pci", 16));
	CHECK(realpath(IB "/anyrdma0", path) == path && !strncmp(path, device, strlen(device)));
	CHECK(!strcmp(canonicalize_file_name(IB "/anyrdma0/device"), device));
	strcat(path, "/../../device"); /* UCX */
	CHECK(!access(path, R_OK));
	CHECK(realpath(NODE, path) && !strcmp(path, NODE));
	CHECK(!realpath(IB "/mlx5_99", path) && errno == ENOENT);
	n = readlink(IB "/anyrdma0", path, sizeof(path) - 1);
	path[n < 0 ? 0 : n] = 0;
	CHECK(!strncmp(path, "../../devices/pci", 17));
	n = readlinkat(AT_FDCWD, IB "/anyrdma0", path, 5);
	CHECK(n == 5 && !strncmp(path, "../..", 5));
	CHECK(globbed(IB "/any*/ports/*/state", STATE));
	CHECK(globbed("/dev/infiniband/uv*", NODE));
	CHECK(globbed("/sys/class/infiniband_ver*", "/sys/class/infiniband_verbs"));
	CHECK(!glob64(IB "/*/node_type", 0, NULL, &g) && g.gl_pathc == 1);
	CHECK(glob(IB "/qib*", 0, NULL, (glob_t *)&g) == GLOB_NOMATCH);
}

/* Refuses what namespaces need; with clone(2) a flag would have to be looked at, and
 * `anyrdma run` does not use it for namespaces. */
static void forbid(void)
{
	static const int calls[] = { SYS_unshare, SYS_setns, SYS_mount };
	struct sock_filter f[16] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog prog = { .filter = f };
	unsigned n = 1;

	for (unsigned i = 0; i < 3; i++) {
		f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
		f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
						      SECCOMP_RET_ERRNO | EPERM);
	}
	f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = (unsigned short)n;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
		perror("seccomp");
		exit(77);
	}
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "forbid")) {
		forbid();
		execvp(argv[2], argv + 2);
		perror(argv[2]);
		return 127;
	}
	if (argc != 2 || strcmp(argv[1], "look"))
		return 2;
	look_open();
	look_stat();
	look_old();
	look_folder();
	look_links();
	return bad;
}
