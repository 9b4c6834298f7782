/* SPDX-License-Identifier: BSD-2-Clause */
/* The file system's daemon, a process by itself, answers the kernel at /dev/fuse as far
 * as opening a file goes, and nothing after that. */
#include "blocking.h"

#include "lab.h"

#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { FILE_NODE = 2, LINGER_S = 600, FAR_ENDS = 512, FILE_BYTES = 1 << 20 };

static struct {
	int dev;
	char dir[64];
	pid_t daemon;
} fs;

static int far_end_of[FAR_ENDS], far_ends;

/* ---- the file system ---------------------------------------------------------------- */

static struct fuse_attr attr_of(uint64_t node)
{
	bool file = node == FILE_NODE;

	return (struct fuse_attr){ .ino = node,
				   .size = file ? FILE_BYTES : 0,
				   .mode = file ? S_IFREG | 0600 : S_IFDIR | 0700,
				   .nlink = 1,
				   .uid = getuid(),
				   .gid = getgid() };
}

/* How long an answer is; -errno. Attributes are asked for each time: they are valid for
 * no time. */
static int answer_to(const struct fuse_in_header *in, void *out)
{
	switch (in->opcode) {
	case FUSE_INIT:
		*(struct fuse_init_out *)out = (struct fuse_init_out){
			.major = FUSE_KERNEL_VERSION,
			.minor = 31,
			.max_write = 4096,
		};
		return sizeof(struct fuse_init_out);
	case FUSE_LOOKUP:
		*(struct fuse_entry_out *)out = (struct fuse_entry_out){
			.nodeid = FILE_NODE, .attr = attr_of(FILE_NODE), .entry_valid = 1000,
		};
		return sizeof(struct fuse_entry_out);
	case FUSE_GETATTR:
		*(struct fuse_attr_out *)out = (struct fuse_attr_out){
			.attr = attr_of(in->nodeid),
		};
		return sizeof(struct fuse_attr_out);
	case FUSE_OPEN:
		*(struct fuse_open_out *)out = (struct fuse_open_out){ .fh = 1 };
		return sizeof(struct fuse_open_out);
	default:
		return -ENOSYS;
	}
}

/* What it takes to open the file. */
static bool is_answered(const struct fuse_in_header *in)
{
	return in->opcode == FUSE_INIT || in->opcode == FUSE_LOOKUP || in->opcode == FUSE_OPEN ||
	       (in->opcode == FUSE_GETATTR && in->nodeid != FILE_NODE);
}

static void serve_one(void)
{
	union {
		struct fuse_in_header h;
		char bytes[64 * 1024];
	} in;
	struct {
		struct fuse_out_header h;
		char body[256];
	} out;
	int len;

	if (read(fs.dev, &in, sizeof(in)) < (ssize_t)sizeof(in.h) || !is_answered(&in.h))
		return;
	len = answer_to(&in.h, out.body);
	out.h = (struct fuse_out_header){ .unique = in.h.unique, .error = len < 0 ? len : 0 };
	out.h.len = (uint32_t)sizeof(out.h) + (len > 0 ? (uint32_t)len : 0);
	CHECK(write(fs.dev, &out, out.h.len) == (ssize_t)out.h.len);
}

/* It ends, or has ended: while it waits for the file system it is never rid of its
 * descriptors, and nobody is told. */
static bool is_over(pid_t pid)
{
	const unsigned exiting = 4; /* PF_EXITING */
	char path[64], line[512] = { 0 }, state = 'X';
	unsigned flags = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (f) {
		if (fgets(line, sizeof(line), f) && strrchr(line, ')'))
			sscanf(strrchr(line, ')'), ") %c %*d %*d %*d %*d %*d %u", &state, &flags);
		fclose(f);
	}
	return state == 'X' || state == 'Z' || flags & exiting;
}

static void serve(pid_t user, pid_t other)
{
	struct pollfd p = { .fd = fs.dev, .events = POLLIN };

	while (!is_over(user) && !is_over(other))
		if (poll(&p, 1, 20) > 0 && p.revents & POLLIN)
			serve_one();
	_exit(0);
}

/* The mount is this process's own, and ends with it. */
static bool fs_mount(void)
{
	pid_t user = getpid(), other = getppid();
	char opt[128];

	if (fs.daemon)
		return true;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	fs.dev = open("/dev/fuse", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fs.dev < 0)
		return false;
	snprintf(fs.dir, sizeof(fs.dir), "/tmp/anyrdma-passed-XXXXXX");
	MUST(mkdtemp(fs.dir));
	snprintf(opt, sizeof(opt), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fs.dev,
		 getuid(), getgid());
	if (mount("anyrdma-test", fs.dir, "fuse", MS_NOSUID | MS_NODEV, opt)) {
		rmdir(fs.dir);
		return false;
	}
	MUST((fs.daemon = fork()) >= 0);
	if (!fs.daemon)
		serve(user, other);
	close(fs.dev);
	return true;
}

static int file_new(void)
{
	char path[80];
	int fd;

	if (!fs_mount())
		return -1;
	snprintf(path, sizeof(path), "%s/file", fs.dir);
	MUST((fd = open(path, O_RDWR | O_CLOEXEC)) >= 0);
	return fd;
}

/* ---- others --------------------------------------------------------------------------- */

static void fill(int fd)
{
	static const char junk[65536];

	conf_nonblock(fd, true);
	while (write(fd, junk, sizeof(junk)) > 0)
		;
	while (write(fd, junk, 1) > 0)
		;
	conf_nonblock(fd, false);
}

static int linger_new(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct linger l = { 1, LINGER_S };
	socklen_t len = sizeof(to);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	OK(bind(listener, SA(to), sizeof(to)));
	OK(listen(listener, 1));
	OK(getsockname(listener, SA(to), &len));
	OK(connect(fd, SA(to), sizeof(to)));
	CHECK(far_ends < FAR_ENDS);
	MUST((far_end_of[far_ends++] = accept(listener, NULL, NULL)) >= 0);
	close(listener);
	OK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l)));
	fill(fd);
	return fd;
}

static int fifo_new(void)
{
	char path[] = "/tmp/anyrdma-passed-XXXXXX", name[64];
	int fd;

	MUST(mkdtemp(path));
	snprintf(name, sizeof(name), "%s/fifo", path);
	OK(mkfifo(name, 0600));
	MUST((fd = open(name, O_RDWR | O_CLOEXEC)) >= 0);
	unlink(name);
	rmdir(path);
	fill(fd);
	return fd;
}

static int pipe_new(void)
{
	int p[2];

	OK(pipe2(p, O_CLOEXEC));
	fill(p[1]);
	return p[1]; /* the other end stays open */
}

int blocking_new(enum blocking_kind kind)
{
	switch (kind) {
	case BLOCKING_FILE:
		return file_new();
	case BLOCKING_LINGER:
		return linger_new();
	case BLOCKING_FIFO:
		return fifo_new();
	default:
		return pipe_new();
	}
}

void blocking_end(void)
{
	while (far_ends)
		close(far_end_of[--far_ends]); /* what was not read is, so to say, refused */
	if (!fs.daemon)
		return;
	OK(kill(fs.daemon, SIGKILL)); /* the kernel answers for it */
	EQ(waitpid(fs.daemon, NULL, 0), fs.daemon);
	umount2(fs.dir, MNT_DETACH);
	rmdir(fs.dir);
	fs.daemon = 0;
}
