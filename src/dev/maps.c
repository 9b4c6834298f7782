/* SPDX-License-Identifier: BSD-2-Clause */
/* Checks that memory is mapped, and writable if asked. Hardware does so by pinning the
 * pages. Here the kernel is asked to fault in the pages of a small range, which changes
 * no byte. For a large range, and to find out what is wrong, /proc/self/maps is read: it
 * accesses no page, and its cost depends on the number of mappings, not of bytes. From
 * Linux 6.11 on it can be asked for an address; before that the file is read from its
 * beginning, so mappings below the range cost time, too. The kernel lists everything that
 * is mapped during all of the reading, in the order of addresses. */
#include "base/log.h"
#include "base/sys.h"
#include "dev/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	MAPS_BUF = 16384,
	SMALL = 65536, /* faulting in so much costs less than reading the file */
};

/* Linux 5.14; what the C library does not know is refused by older kernels. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

/* Linux 6.11, linux/fs.h; others answer ENOTTY. */
struct procmap {
	uint64_t size, flags, addr;			   /* in */
	uint64_t start, end, vma_flags, page_size, offset; /* out */
	uint64_t inode;
	uint32_t major, minor, name_size, build_id_size;
	uint64_t name, build_id;
};
_Static_assert(sizeof(struct procmap) == 104, "the kernel's layout");
#define PROCMAP _IOWR('f', 17, struct procmap)
enum { PROCMAP_READ = 1, PROCMAP_WRITE = 2 };

struct walk {
	uintptr_t at, end; /* [at, end) is still to be found */
	bool writable;
	int ret; /* 0 go on, 1 all found, -EFAULT */
};

static uintptr_t hex(const char **p)
{
	uintptr_t v = 0;

	for (;; (*p)++) {
		unsigned c = (unsigned char)**p;

		if (c - '0' < 10)
			v = v << 4 | (c - '0');
		else if (c - 'a' < 6)
			v = v << 4 | (c - 'a' + 10);
		else
			return v;
	}
}

static int not_mapped(const struct walk *w)
{
	return log_refuse(EFAULT, "nothing is mapped at %p",
			  (void *)w->at);
}

/* The first mapping that ends behind w->at is [lo, hi). */
static void on_mapping(struct walk *w, uintptr_t lo, uintptr_t hi, bool readable,
		       bool writable)
{
	if (lo > w->at) {
		w->ret = not_mapped(w);
		return;
	}
	if (!readable || (w->writable && !writable)) {
		w->ret = log_refuse(EFAULT, "memory at %p is not %s",
				    (void *)w->at, !readable ? "readable" : "writable");
		return;
	}
	w->at = hi;
	if (w->at >= w->end)
		w->ret = 1;
}

/* One line: "start-end rwxp ...". */
static void on_line(struct walk *w, const char *line)
{
	uintptr_t lo, hi;

	lo = hex(&line);
	if (*line++ != '-')
		return;
	hi = hex(&line);
	if (*line++ != ' ' || hi <= w->at)
		return;
	on_mapping(w, lo, hi, line[0] == 'r', line[1] == 'w');
}

/* False: this kernel cannot be asked so. */
static bool walk_query(struct walk *w, int fd)
{
	while (!w->ret) {
		struct procmap q = { .size = sizeof(q), .addr = w->at };

		if (!ioctl(fd, PROCMAP, &q))
			on_mapping(w, q.start, q.end, q.vma_flags & PROCMAP_READ,
				   q.vma_flags & PROCMAP_WRITE);
		else if (errno == ENOENT)
			w->ret = not_mapped(w);
		else if (errno != EINTR)
			return false;
	}
	return true;
}

/* Calls on_line() for each line of the file. The end of a line (the file name) may be
 * missing: only its beginning is used. buf has MAPS_BUF + 1 bytes. */
static void walk_file(struct walk *w, int fd, char *buf)
{
	size_t have = 0;
	char *line, *nl;
	ssize_t n;

	while (!w->ret) {
		n = sys_read(fd, buf + have, MAPS_BUF - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		have += (size_t)n;
		buf[have] = 0;
		for (line = buf; !w->ret && (nl = strchr(line, '\n')); line = nl + 1)
			on_line(w, line);
		have -= (size_t)(line - buf);
		memmove(buf, line, have);
		if (have == MAPS_BUF)
			return;
	}
}

/* Without /proc: mincore() returns ENOMEM for holes; it does not know the protection. */
static int walk_mincore(uintptr_t at, uintptr_t end)
{
	enum { CHUNK = 512 };
	unsigned char vec[CHUNK];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	at &= ~(page - 1);
	while (at < end) {
		uintptr_t left = end - at;
		uintptr_t len = left < CHUNK * page ? left : CHUNK * page;

		if (mincore((void *)at, len, vec) && errno == ENOMEM)
			return log_refuse(EFAULT,
					  "not all of [%p, %p) is mapped",
					  (void *)at, (void *)(at + len));
		at += len;
	}
	return 0;
}

static bool populate(uintptr_t addr, size_t len, bool writable)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t lo = addr & ~(page - 1);
	uintptr_t hi = (addr + len + page - 1) & ~(page - 1);

	return !madvise((void *)lo, hi - lo,
			writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

/* The buffer is not on the stack: this may run in a coroutine that posts. */
int maps_check_by(enum maps_way way, uintptr_t addr, size_t len, bool writable)
{
	struct walk w = { .at = addr,
			  .end = addr + (len ? len : 1),
			  .writable = writable };
	int fd = way == MAPS_MINCORE ?
			 -1 :
			 sys_open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	bool known = fd >= 0;
	char *buf;

	if (known && (way == MAPS_READ || !walk_query(&w, fd))) {
		buf = malloc(MAPS_BUF + 1);
		known = buf;
		if (buf)
			walk_file(&w, fd, buf);
		free(buf);
	}
	if (fd >= 0)
		sys_close(fd);
	if (!known)
		return walk_mincore(w.at, w.end);
	if (!w.ret)
		return not_mapped(&w);
	return w.ret < 0 ? w.ret : 0;
}

int maps_populate(uintptr_t addr, size_t len, bool writable)
{
	return populate(addr, len, writable) ? 0 : maps_check(addr, len, writable);
}

int maps_check(uintptr_t addr, size_t len, bool writable)
{
	if (len && len <= SMALL && populate(addr, len, writable))
		return 0;
	return maps_check_by(MAPS_QUERY, addr, len, writable);
}
