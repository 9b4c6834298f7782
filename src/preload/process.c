/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/process.h"
#include "base/log.h"
#include "preload/conn.h"
#include "preload/edge.h"
#include "preload/ep.h"
#include "preload/move.h"
#include "preload/real.h"
#include "preload/share.h"

#include <alloca.h>
#include <pty.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>

static pid_t self;
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER; /* one fork at a time */

bool process_is_vfork(void)
{
	return self && getpid() != self;
}

/* ---- fork ---- */

static void back_begin_one(struct file *f, void *arg)
{
	(void)arg;
	move_back_begin(conn_of(f));
}

static void back_wait_one(struct file *f, void *arg)
{
	(void)arg;
	if (!move_back_wait(conn_of(f)))
		log_warn("a connection did not come back to TCP before a fork: the child "
			 "has it no more");
}

/* All at once, then all waited for. */
static void back_all(void)
{
	file_each(FILE_CONN, back_begin_one, NULL);
	file_each(FILE_CONN, back_wait_one, NULL);
}

static void share_one(struct file *f, void *arg)
{
	(void)arg;
	share_fork(&conn_of(f)->share);
}

static void share_told(struct file *f, void *arg)
{
	pid_t child = *(pid_t *)arg;

	if (child > 0)
		share_child_is(conn_of(f)->share, child);
	else
		share_no_child(conn_of(f)->share);
}

/* glibc calls these around every fork but vfork, in the forking thread. The handlers of the
 * device come first, and nothing can be waited for any more. */
static void before_fork(void)
{
	pthread_mutex_lock(&fork_lock);
	file_each(FILE_CONN, share_one, NULL);
	file_lock_all();
	ep_lock_all();
}

static void after_fork(void)
{
	ep_unlock_all();
	file_unlock_all();
	pthread_mutex_unlock(&fork_lock);
}

static void after_fork_child(void)
{
	pid_t me = getpid();

	self = me;
	ep_unlock_all();
	file_unlock_all();
	pthread_mutex_init(&fork_lock, NULL);
	ep_child();
	move_child();
	file_each(FILE_CONN, share_told, &me);
}

EXPORT pid_t fork(void)
{
	pid_t pid;
	int saved;

	real_need();
	back_all();
	pid = real.fork();
	saved = errno;
	if (pid)
		file_each(FILE_CONN, share_told, &pid);
	errno = saved;
	return pid;
}

/* The C library forks inside of these; the parent that exits, or the slot that is left as of
 * a child to be, does no harm. */
EXPORT int daemon(int nochdir, int noclose)
{
	real_need();
	back_all();
	return real.daemon(nochdir, noclose);
}

EXPORT int forkpty(int *master, char *name, const struct termios *term,
		   const struct winsize *size)
{
	real_need();
	back_all();
	return real.forkpty(master, name, term, size);
}

__attribute__((constructor)) static void process_init(void)
{
	real_need();
	self = getpid();
	pthread_atfork(before_fork, after_fork, after_fork_child);
}

/* ---- exec ---- */

static void back_inherited_one(struct file *f, void *arg)
{
	struct conn *c = conn_of(f);
	int fd = file_any_fd(f);

	(void)arg;
	if (fd >= 0 && c->rail && !(real.fcntl(fd, F_GETFD) & FD_CLOEXEC))
		move_back(c);
}

/* What the new program inherits is TCP. */
static void before_exec(void)
{
	int saved = errno;

	real_need();
	file_each(FILE_CONN, back_inherited_one, NULL);
	if (!process_is_vfork())
		move_flush();
	errno = saved;
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	before_exec();
	return real.execve(path, argv, envp);
}

EXPORT int execv(const char *path, char *const argv[])
{
	return execve(path, argv, environ);
}

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	before_exec();
	return real.execvpe(file, argv, envp);
}

EXPORT int execvp(const char *file, char *const argv[])
{
	return execvpe(file, argv, environ);
}

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	before_exec();
	return real.fexecve(fd, argv, envp);
}

#define COLLECT(argv, first, ap) \
	do { \
		va_list count_; \
		size_t n_ = 1; \
\
		va_copy(count_, ap); \
		while (va_arg(count_, char *)) \
			n_++; \
		va_end(count_); \
		(argv) = alloca((n_ + 1) * sizeof(char *)); \
		(argv)[0] = (char *)(first); \
		for (size_t i_ = 1; i_ <= n_; i_++) \
			(argv)[i_] = va_arg(ap, char *); \
	} while (0)

EXPORT int execl(const char *path, const char *first, ...)
{
	va_list ap;
	char **argv;

	va_start(ap, first);
	COLLECT(argv, first, ap);
	va_end(ap);
	return execve(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *first, ...)
{
	va_list ap;
	char **argv;

	va_start(ap, first);
	COLLECT(argv, first, ap);
	va_end(ap);
	return execvpe(file, argv, environ);
}

EXPORT int execle(const char *path, const char *first, ...)
{
	va_list ap;
	char **argv, **envp;

	va_start(ap, first);
	COLLECT(argv, first, ap);
	envp = va_arg(ap, char **);
	va_end(ap);
	return execve(path, argv, envp);
}

/* A child that is made without fork() may be given any descriptor. */
static void before_spawn(const posix_spawn_file_actions_t *actions)
{
	if (actions)
		back_all();
	else
		file_each(FILE_CONN, back_inherited_one, NULL);
}

EXPORT int posix_spawn(pid_t *pid, const char *path,
		       const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, char *const argv[],
		       char *const envp[])
{
	real_need();
	before_spawn(actions);
	return real.posix_spawn(pid, path, actions, attr, argv, envp);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file,
			const posix_spawn_file_actions_t *actions,
			const posix_spawnattr_t *attr, char *const argv[],
			char *const envp[])
{
	real_need();
	before_spawn(actions);
	return real.posix_spawnp(pid, file, actions, attr, argv, envp);
}

/* ---- exit ---- */

EXPORT void _exit(int status)
{
	real_need();
	if (!process_is_vfork())
		move_flush();
	real._exit(status);
	__builtin_unreachable();
}

EXPORT void _Exit(int status)
{
	_exit(status);
}

EXPORT void quick_exit(int status)
{
	real_need();
	move_flush();
	real.quick_exit(status);
	__builtin_unreachable();
}

__attribute__((destructor)) static void process_end(void)
{
	move_flush();
}

/* ---- system calls by number ---- */

/* An io_uring would read and write past us: programs that have another way take it. */
EXPORT long syscall(long number, ...)
{
	va_list ap;
	long a[6];

	real_need();
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_io_uring_setup) {
		log_info("io_uring_setup is refused: its reads and writes could not be "
			 "moved");
		errno = ENOSYS;
		return -1;
	}
	return real.syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
