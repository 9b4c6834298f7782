/* SPDX-License-Identifier: BSD-2-Clause */
/* Which memory of another process a process can reach. Two processes are connected, and
 * each tries to reach memory of the other that is not registered: with system calls, and
 * with the descriptors and mappings that the library has left it. Where the kernel
 * refuses access, or the application has not accepted the connection, there must be no
 * such descriptor or mapping; all traffic works nevertheless. */
#include "far.h"
#include "scene.h"

#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { USER = 10001, NOBODY = 65534 };

static void run(struct scene s)
{
	scene_run(&s);
}

/* ---- rights ---------------------------------------------------------------------------- */

static void drop_capabilities(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[2] = { 0 };

	OK(syscall(SYS_capset, &head, none));
}

static void not_dumpable(void)
{
	OK(prctl(PR_SET_DUMPABLE, 0));
}

static void drop_capabilities_not_dumpable(void)
{
	drop_capabilities();
	not_dumpable();
}

static void forbid_process_vm(void)
{
	far_forbid_process_vm(EPERM);
}

static void become(uid_t uid)
{
	if (setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
		SKIP("no right to become another user");
	OK(prctl(PR_SET_DUMPABLE, 1));
}

static void become_user(void)
{
	become(USER);
}

static void become_nobody(void)
{
	become(NOBODY);
}

/* ---- namespaces ------------------------------------------------------------------------ */

static void set_proc(const char *name, const char *text)
{
	char path[64];
	ssize_t len = (ssize_t)strlen(text);
	int fd;

	snprintf(path, sizeof(path), "/proc/self/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, (size_t)len) != len)
		SKIP("no mapping of users: %s: %s", name, strerror(errno));
	close(fd);
}

static void map_users(uid_t uid, gid_t gid)
{
	char text[64];

	set_proc("setgroups", "deny");
	snprintf(text, sizeof(text), "0 %u 1", uid);
	set_proc("uid_map", text);
	snprintf(text, sizeof(text), "0 %u 1", gid);
	set_proc("gid_map", text);
}

/* Returns in a child, the first process of the new namespace. */
static void go_inside(void)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	inside = true;
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return;
	}
	here->target[me].pid = pid;
	EQ(waitpid(pid, &status, 0), pid);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static void mount_proc(void)
{
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
		SKIP("no /proc can be mounted: %s", strerror(errno));
}

static void enter(int flags)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(flags))
		SKIP("no such namespaces can be made: %s", strerror(errno));
	if (flags & CLONE_NEWUSER)
		map_users(uid, gid);
	if (flags & CLONE_NEWPID)
		go_inside();
	if (flags & CLONE_NEWNS)
		mount_proc();
}

static void enter_container(void)
{
	enter(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS);
}

static void enter_container_old_proc(void)
{
	enter(CLONE_NEWUSER | CLONE_NEWPID);
}

static void enter_pid_namespace(void)
{
	enter(CLONE_NEWPID | CLONE_NEWNS);
}

static void enter_pid_namespace_old_proc(void)
{
	enter(CLONE_NEWPID);
}

static void enter_user_namespace(void)
{
	enter(CLONE_NEWUSER);
}

/* ---- cases: what is given, and when ---------------------------------------------------- */

static void before_accept(void)
{
	run((struct scene){ .pending = true, .may = { DIRECT, DIRECT } });
}

static void before_accept_raw(void)
{
	run((struct scene){ .raw = true, .pending = true, .may = { DIRECT, DIRECT } });
}

static void ordinary_processes_get_direct_access(void)
{
	run((struct scene){ .may = { DIRECT, DIRECT } });
}

static void ordinary_processes_get_direct_access_raw(void)
{
	run((struct scene){ .raw = true, .may = { DIRECT, DIRECT } });
}

/* Each opens the other's memory itself: the kernel decides. */
static void no_descriptor_of_memory_is_passed(void)
{
	run((struct scene){ .may = { DIRECT, DIRECT }, .not_passed = true });
}

/* ---- cases: the kernel refuses --------------------------------------------------------- */

static void client_has_fewer_capabilities(void)
{
	run((struct scene){ .prepare[CLIENT] = drop_capabilities,
			    .refused[CLIENT] = true,
			    .may[LISTENER] = ANYTHING });
}

static void client_has_fewer_capabilities_raw(void)
{
	run((struct scene){ .prepare[CLIENT] = drop_capabilities,
			    .raw = true,
			    .refused[CLIENT] = true,
			    .may[LISTENER] = ANYTHING });
}

static void listener_has_fewer_capabilities(void)
{
	run((struct scene){ .prepare[LISTENER] = drop_capabilities,
			    .refused[LISTENER] = true,
			    .may[CLIENT] = ANYTHING });
}

static void listener_is_not_dumpable(void)
{
	run((struct scene){
		.prepare = { drop_capabilities_not_dumpable, drop_capabilities },
		.refused[CLIENT] = true,
		.may[LISTENER] = ANYTHING });
}

static void listener_is_not_dumpable_when_it_accepts(void)
{
	run((struct scene){ .prepare = { drop_capabilities, drop_capabilities },
			    .decide = not_dumpable,
			    .refused[CLIENT] = true,
			    .may[LISTENER] = ANYTHING });
}

static void client_is_not_dumpable(void)
{
	run((struct scene){
		.prepare = { drop_capabilities, drop_capabilities_not_dumpable },
		.refused[LISTENER] = true,
		.may[CLIENT] = ANYTHING });
}

/* The filter leaves /proc/PID/mem. */
static void seccomp_filter(void)
{
	run((struct scene){ .prepare[CLIENT] = forbid_process_vm,
			    .may = { ANYTHING, ANYTHING } });
}

static void seccomp_filter_of_both(void)
{
	run((struct scene){ .prepare = { forbid_process_vm, forbid_process_vm },
			    .may = { ANYTHING, ANYTHING } });
}

static void another_user(void)
{
	run((struct scene){ .prepare[CLIENT] = become_user,
			    .refused[CLIENT] = true,
			    .by_tcp = true });
}

static void another_user_nobody(void)
{
	run((struct scene){ .prepare[CLIENT] = become_nobody,
			    .refused[CLIENT] = true,
			    .by_tcp = true });
}

/* The number of all who are not known: it says nothing. */
static void both_nobody(void)
{
	run((struct scene){ .prepare = { become_nobody, become_nobody },
			    .by_tcp = true });
}

static void yama(void)
{
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	char c = '0';

	if (fd < 0)
		SKIP("no Yama in this kernel");
	EQ(read(fd, &c, 1), 1);
	close(fd);
	if (c == '0')
		SKIP("Yama's ptrace_scope is 0");
	run((struct scene){ .prepare = { drop_capabilities, drop_capabilities },
			    .refused = { true, true } });
}

/* ---- cases: namespaces ----------------------------------------------------------------- */

static void two_containers_of_a_pod(void)
{
	run((struct scene){ .prepare = { enter_container, enter_container },
			    .refused = { true, true } });
}

static void client_in_a_container(void)
{
	run((struct scene){ .prepare[CLIENT] = enter_container,
			    .refused[CLIENT] = true });
}

static void listener_in_a_container(void)
{
	run((struct scene){ .prepare[LISTENER] = enter_container,
			    .refused[LISTENER] = true });
}

static void client_in_a_container_old_proc(void)
{
	run((struct scene){ .prepare[CLIENT] = enter_container_old_proc,
			    .refused[CLIENT] = true });
}

static void client_in_a_pid_namespace(void)
{
	run((struct scene){ .prepare[CLIENT] = enter_pid_namespace,
			    .refused[CLIENT] = true });
}

/* It sees the listener in /proc, and the kernel would let it. */
static void client_in_a_pid_namespace_old_proc(void)
{
	run((struct scene){ .prepare[CLIENT] = enter_pid_namespace_old_proc });
}

static void client_in_a_user_namespace(void)
{
	run((struct scene){ .prepare[CLIENT] = enter_user_namespace,
			    .refused[CLIENT] = true });
}

static void direct_on_in_two_pid_namespaces(void)
{
	run((struct scene){ .prepare = { enter_pid_namespace, enter_pid_namespace },
			    .direct = "on",
			    .pending = true,
			    .may = { DIRECT, DIRECT } });
}

/* ---- cases: exec and fork -------------------------------------------------------------- */

/* Where a program that was exec'ed has its words, too. */
#define FIXED ((void *)0x510000000000)

enum { HAS_MEM = 1, HAS_KEYS = 2, HAS_LINK = 4, BLIND = 8 };

static int leftovers(void)
{
	struct foreign f = foreign_look(&here->target[LISTENER]);

	return (f.mem ? HAS_MEM : 0) | (f.keys ? HAS_KEYS : 0) |
	       (f.links ? HAS_LINK : 0) | (f.blind ? BLIND : 0);
}

static void exec_self(const char *role)
{
	char fd[20];

	snprintf(fd, sizeof(fd), "%d", here_fd);
	execl("/proc/self/exe", "isolation", role, fd, (char *)NULL);
	FAIL("exec: %s", strerror(errno));
}

static void become_another_program(void)
{
	exec_self("--look");
}

static void after_exec(void)
{
	run((struct scene){ .may = { DIRECT, DIRECT },
			    .after[CLIENT] = become_another_program,
			    .apart = true });
}

static void fork_and_look(void)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid)
		_exit(leftovers());
	EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	EQ(WEXITSTATUS(status), 0); /* HAS_... */
}

static void after_fork(void)
{
	run((struct scene){ .may = { DIRECT, DIRECT }, .after[CLIENT] = fork_and_look });
}

enum { STAGE_NEW = 1, STAGE_TRIED };

/* The listener's memory is another program's. */
static void try_the_new_program(void)
{
	struct foreign f;

	WAIT_FOR(atomic_load(&here->stage) == STAGE_NEW);
	for (int i = 0; i < 3; i++) {
		f = foreign_look(&here->target[LISTENER]);
		CHECK(!f.read && !f.written && !f.blind);
		conf_settle();
	}
	atomic_store(&here->stage, STAGE_TRIED);
}

static void exec_listener(void)
{
	exec_self("--wait");
}

static void after_exec_of_the_listener(void)
{
#ifdef CONF_TSAN
	SKIP("the sanitizer has another use for the addresses");
#endif
	run((struct scene){ .may = { DIRECT, DIRECT },
			    .words_at = FIXED,
			    .after = { exec_listener, try_the_new_program },
			    .apart = true });
}

/* The new program: its words are where the old one's were. */
static int wait_for_the_client(void)
{
	volatile uint64_t *p = mmap(FIXED, 4096, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
				    0);
	uint64_t secret = here->target[LISTENER].secret;

	if (p == MAP_FAILED)
		return 21;
	for (unsigned i = 0; i < TARGET_WORDS; i++)
		p[i] = secret;
	atomic_store(&here->stage, STAGE_NEW);
	for (unsigned i = 0; atomic_load(&here->stage) != STAGE_TRIED; i++) {
		if (i == 200000) /* 40 s: the client has died */
			return 23;
		usleep(200);
	}
	for (unsigned i = 0; i < TARGET_WORDS; i++)
		if (p[i] != secret)
			return 22;
	return 0;
}

static int exec_main(const char *role, int fd)
{
	here = mmap(NULL, sizeof(*here), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (here == MAP_FAILED)
		return 20;
	return strcmp(role, "--look") ? wait_for_the_client() : leftovers();
}

static const struct conf_case cases[] = {
	CASE(before_accept),
	CASE(before_accept_raw),
	CASE(ordinary_processes_get_direct_access),
	CASE(ordinary_processes_get_direct_access_raw),
	CASE(no_descriptor_of_memory_is_passed),
	CASE(client_has_fewer_capabilities),
	CASE(client_has_fewer_capabilities_raw),
	CASE(listener_has_fewer_capabilities),
	CASE(listener_is_not_dumpable),
	CASE(listener_is_not_dumpable_when_it_accepts),
	CASE(client_is_not_dumpable),
	CASE(seccomp_filter),
	CASE(seccomp_filter_of_both),
	CASE(another_user),
	CASE(another_user_nobody),
	CASE(both_nobody),
	CASE(yama),
	CASE(two_containers_of_a_pod),
	CASE(client_in_a_container),
	CASE(listener_in_a_container),
	CASE(client_in_a_container_old_proc),
	CASE(client_in_a_pid_namespace),
	CASE(client_in_a_pid_namespace_old_proc),
	CASE(client_in_a_user_namespace),
	CASE(direct_on_in_two_pid_namespaces),
	CASE(after_exec),
	CASE(after_exec_of_the_listener),
	CASE(after_fork),
};

int main(int argc, char **argv)
{
	if (argc == 3 && !strncmp(argv[1], "--", 2))
		return exec_main(argv[1], atoi(argv[2]));
	return conf_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
