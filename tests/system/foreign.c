/* SPDX-License-Identifier: BSD-2-Clause */
#include "foreign.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define KEYS "memfd:anyrdma keys"
#define LINK "memfd:anyrdma link"

static off_t word(const struct target *t, unsigned i)
{
	return (off_t)(t->at + i * sizeof(uint64_t));
}

/* Sanitizers have an opinion about descriptors that other threads may close. */
static bool get(int fd, uint64_t *v, off_t at)
{
	return syscall(SYS_pread64, fd, v, sizeof(*v), at) == sizeof(*v);
}

static bool put(int fd, uint64_t v, off_t at)
{
	return syscall(SYS_pwrite64, fd, &v, sizeof(v), at) == sizeof(v);
}

/* ---- the kernel's leave ---------------------------------------------------------------- */

/* A pid may be another process's in our pid namespace: the secret tells. */
static bool by_pid(const struct target *t)
{
	uint64_t v = 0;
	struct iovec here = { &v, sizeof(v) };
	struct iovec there = { (void *)(uintptr_t)word(t, TARGET_READ), sizeof(v) };
	bool read = process_vm_readv(t->pid, &here, 1, &there, 1, 0) == sizeof(v);

	if (read && v != t->secret)
		return false;
	v = ~t->secret;
	there.iov_base = (void *)(uintptr_t)word(t, TARGET_BY_KERNEL);
	return (process_vm_writev(t->pid, &here, 1, &there, 1, 0) == sizeof(v)) | read;
}

static bool by_open(const struct target *t)
{
	char path[64];
	bool works;
	uint64_t v;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)t->pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return false;
	works = get(fd, &v, word(t, TARGET_READ)) && v == t->secret &&
		put(fd, ~t->secret, word(t, TARGET_BY_KERNEL));
	close(fd);
	return works;
}

bool foreign_by_kernel(const struct target *t)
{
	bool pid = by_pid(t);

	return by_open(t) || pid;
}

/* ---- what it holds --------------------------------------------------------------------- */

static atomic_uint mem_sent, keys_sent;

static bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && !strcmp(s + n - m, end);
}

/* A word that nobody else has: not even the process that we were forked from. */
static bool own_memory(int fd)
{
	static volatile uint64_t mark;
	uint64_t v, drawn;

	if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
		return false;
	mark = drawn;
	return get(fd, &v, (off_t)(uintptr_t)&mark) && v == drawn;
}

static void try_memory(struct foreign *f, const struct target *t, int fd)
{
	uint64_t v;

	if (own_memory(fd))
		return;
	f->mem++;
	f->read |= get(fd, &v, word(t, TARGET_READ));
	f->written |= put(fd, ~t->secret, word(t, TARGET_BY_HELD));
}

struct name {
	char path[64];	/* of the descriptor */
	char text[300]; /* what it is */
};

static struct name name_of(int fd)
{
	struct name name;
	ssize_t n;

	snprintf(name.path, sizeof(name.path), "/proc/self/fd/%d", fd);
	n = readlink(name.path, name.text, sizeof(name.text) - 1);
	name.text[n > 0 ? n : 0] = 0;
	return name;
}

static void look_at(struct foreign *f, const struct target *t, int fd, ino_t own)
{
	struct name name = name_of(fd);
	struct stat st;

	if (ends_in(name.text, "/mem"))
		try_memory(f, t, fd);
	else if (strstr(name.text, KEYS) && !stat(name.path, &st) && st.st_ino != own)
		f->keys++;
}

static void look_at_descriptors(struct foreign *f, const struct target *t, ino_t own)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;

	f->blind |= !d;
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.')
			look_at(f, t, atoi(e->d_name), own);
	if (d)
		closedir(d);
}

struct region {
	char access[8];
	unsigned long ino;
	char name[300];
};

static bool next_region(FILE *maps, struct region *r)
{
	char line[512];

	if (!maps || !fgets(line, sizeof(line), maps))
		return false;
	memset(r, 0, sizeof(*r));
	sscanf(line, "%*s %7s %*s %*s %lu %299[^\n]", r->access, &r->ino, r->name);
	return true;
}

/* Nobody can map another's table to write. 0: there is none. */
static ino_t own_keys(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct region r;
	ino_t own = 0;

	while (next_region(maps, &r))
		if (strstr(r.name, KEYS) && strchr(r.access, 'w'))
			own = r.ino;
	if (maps)
		fclose(maps);
	return own;
}

static void look_at_mappings(struct foreign *f, ino_t own)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	struct region r;

	f->blind |= !maps;
	while (next_region(maps, &r)) {
		f->links += strstr(r.name, LINK) != NULL;
		f->keys += strstr(r.name, KEYS) && r.ino != own;
	}
	if (maps)
		fclose(maps);
}

struct foreign foreign_look(const struct target *t)
{
	struct foreign f = { .mem_sent = atomic_load(&mem_sent),
			     .keys_sent = atomic_load(&keys_sent) };
	ino_t own = own_keys();

	look_at_descriptors(&f, t, own);
	look_at_mappings(&f, own);
	return f;
}

/* ---- what came ------------------------------------------------------------------------- */

static void note(int fd)
{
	struct name name = name_of(fd);

	if (ends_in(name.text, "/mem"))
		atomic_fetch_add(&mem_sent, 1);
	if (strstr(name.text, KEYS))
		atomic_fetch_add(&keys_sent, 1);
}

static void note_all(struct msghdr *msg)
{
	for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
		size_t n = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		int fd;

		for (size_t i = 0; h->cmsg_type == SCM_RIGHTS && i < n; i++) {
			memcpy(&fd, CMSG_DATA(h) + i * sizeof(fd), sizeof(fd));
			note(fd);
		}
	}
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	static _Atomic(ssize_t(*)(int, struct msghdr *, int)) real;
	ssize_t ret;

	if (!real)
		real = dlsym(RTLD_NEXT, "recvmsg");
	ret = real(fd, msg, flags);
	if (ret >= 0)
		note_all(msg);
	return ret;
}

/* The library has calls that are no points of cancellation. */
long syscall(long number, ...)
{
	static _Atomic(long (*)(long, ...)) real;
	long a[6], ret;
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (!real)
		real = dlsym(RTLD_NEXT, "syscall");
	ret = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_recvmsg && ret >= 0)
		note_all((struct msghdr *)a[1]);
	return ret;
}
