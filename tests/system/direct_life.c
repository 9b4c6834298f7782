/* SPDX-License-Identifier: BSD-2-Clause */
/* Direct access where the kernel forbids a part of it, and to a process that has exec'ed
 * another program, or has ended and left its pid to another. */
#include "far.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { MIB = 1 << 20, USER = 10001 };

/* ---- forbidden ways ------------------------------------------------------------------ */

static void all_sizes_while_stopped(struct peer *t)
{
	peer_stop(t);
	far_do(0, IBV_WR_RDMA_WRITE, 0, 64, IBV_WC_SUCCESS);
	far_do(0, IBV_WR_RDMA_WRITE, 0, MIB, IBV_WC_SUCCESS);
	memset(far_side[0].b.p, 0, MIB);
	far_do(0, IBV_WR_RDMA_READ, 0, MIB, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(far_side[0].b.p, MIB, 3));
	peer_go_on(t);
}

static void works_while_stopped(void (*change)(void), bool early)
{
	struct peer t = far_start(far_idle, NULL);

	if (early && change)
		change();
	far_open(0, 1);
	if (!early && change)
		change();
	conf_pattern(far_side[0].b.p, MIB, 3);
	all_sizes_while_stopped(&t);
	far_end(&t);
}

static void filter_eperm(void)
{
	far_forbid_process_vm(EPERM);
}

static void filter_enosys(void)
{
	far_forbid_process_vm(ENOSYS);
}

static void filtered(void)
{
	works_while_stopped(filter_eperm, true);
}

static void filtered_later(void)
{
	works_while_stopped(filter_enosys, false);
}

static void by_descriptor_alone(void)
{
	setenv("ANYRDMA_DIRECT", "mem", 1);
	works_while_stopped(NULL, false);
}

/* Neither side does so: the ring, and so the target's thread. */
static void switched_off(void)
{
	struct peer t;

	setenv("ANYRDMA_DIRECT", "off", 1);
	t = far_start(far_idle, NULL);
	far_open(0, 1);
	peer_stop(&t);
	far_post(0, IBV_WR_RDMA_WRITE, 1, 0, MIB);
	conf_wc_none(far_side[0].cq, CONF_QUIET);
	peer_go_on(&t);
	conf_wc_ok(far_side[0].cq, 1);
	far_end(&t);
}

/* Somebody without rights over others, but dumpable. */
static void become_user(void)
{
	if (geteuid())
		return;
	if (setresgid(USER, USER, USER) || setresuid(USER, USER, USER))
		SKIP("no right to become another user");
	OK(prctl(PR_SET_DUMPABLE, 1));
}

static void target_not_dumpable(struct peer *me, void *arg)
{
	bool early = arg;

	if (early)
		OK(prctl(PR_SET_DUMPABLE, 0));
	far_open(1, 1);
	OK(prctl(PR_SET_DUMPABLE, 0));
	peer_say(me, 'r');
	peer_hear(me, 'x');
}

/* From the beginning: the kernel refuses its memory, and everything works. */
static void not_dumpable(void)
{
	static char yes;
	struct peer t;

	become_user();
	far_refused = true;
	t = far_start(target_not_dumpable, &yes);
	far_open(0, 1);
	peer_hear(&t, 'r');
	conf_pattern(far_side[0].b.p, MIB, 3);
	far_do(0, IBV_WR_RDMA_WRITE, 0, MIB, IBV_WC_SUCCESS);
	memset(far_side[0].b.p, 0, MIB);
	far_do(0, IBV_WR_RDMA_READ, 0, MIB, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(far_side[0].b.p, MIB, 3));
	far_end(&t);
}

/* Later: the descriptor is still good. */
static void not_dumpable_later(void)
{
	struct peer t;

	become_user();
	t = far_start(target_not_dumpable, NULL);
	far_open(0, 1);
	peer_hear(&t, 'r');
	conf_pattern(far_side[0].b.p, MIB, 3);
	all_sizes_while_stopped(&t);
	far_end(&t);
}

static void user_of_no_rights(void)
{
	become_user();
	works_while_stopped(NULL, false);
}

/* ---- pid namespaces -------------------------------------------------------------------- */

/* Ours is that of the new namespace. */
static void mount_proc(void)
{
	OK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
	OK(mount("proc", "/proc", "proc", 0, NULL));
}

/* Runs fn in a child that is the first of a new pid namespace. */
static void in_namespace(void (*fn)(void))
{
	int status;
	pid_t pid;

#ifdef CONF_SANITIZER
	SKIP("sanitizers look for their threads in /proc, which is another namespace's");
#endif
	if (unshare(CLONE_NEWPID | CLONE_NEWNS))
		SKIP("no pid namespace can be made: %s", strerror(errno));
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mount_proc();
		fn();
		exit(0);
	}
	EQ(waitpid(pid, &status, 0), pid);
	CHECK(WIFEXITED(status));
	EQ(WEXITSTATUS(status), 0);
}

static struct peer outside;

static void inside(void)
{
	far_open(0, 1);
	conf_pattern(far_side[0].b.p, MIB, 3);
	/* It is not our child: it says itself that it does not run. */
	far_do(0, IBV_WR_RDMA_WRITE, 0, MIB, IBV_WC_SUCCESS);
	memset(far_side[0].b.p, 0, MIB);
	far_do(0, IBV_WR_RDMA_READ, 0, MIB, IBV_WC_SUCCESS);
	CHECK(conf_pattern_ok(far_side[0].b.p, MIB, 3));
	peer_say(&outside, 'x');
}

/* From in there the target has no pid: who wants access all the same has to say so. */
static void out_of_a_namespace(void)
{
	setenv("ANYRDMA_DIRECT", "on", 1);
	outside = far_start(far_idle, NULL);
	in_namespace(inside);
	peer_end(&outside);
}

/* ---- others in its place ------------------------------------------------------------------ */

enum { VICTIM = 64 * 1024 };

static void hold_still(uint8_t *p)
{
	uint64_t end = conf_now() + 200 * 1000000ull;

	memset(p, 0x5a, VICTIM);
	atomic_store(&board->word[1], 1);
	while (conf_now() < end || !atomic_load(&board->word[2]))
		if (!conf_is_fill(p, 0x5a, VICTIM))
			_exit(9);
}

/* Has memory at the same place. */
static void another(uint8_t *at)
{
	uint8_t *p = mmap(at, VICTIM, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (p != at)
		_exit(8);
	hold_still(p);
	_exit(0);
}

static void victim(void)
{
	uint8_t *p = mmap((void *)0x510000000000, VICTIM, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	struct ibv_mr *mr;

	CHECK(p != MAP_FAILED);
	MUST(mr = ibv_reg_mr(dev.pd, p, VICTIM, CONF_RW));
	board->addr[0] = (uintptr_t)p;
	board->rkey[0] = mr->rkey;
}

/* Writes until it fails. */
static void hammer(void)
{
	unsigned n = 0;
	struct ibv_wc wc;

	memset(far_side[0].b.p, 1, VICTIM);
	do {
		far_post(0, IBV_WR_RDMA_WRITE, 7, 0, n % 2 ? VICTIM : 200);
		conf_wc(far_side[0].cq, &wc);
		atomic_store(&board->word[0], ++n);
	} while (!wc.status);
	EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	atomic_store(&board->word[2], 1);
}

static void target_execs(struct peer *me, void *arg)
{
	char fd[20];

	(void)arg;
	(void)me;
	far_open(1, 1);
	victim();
	far_meet();
	WAIT_FOR(atomic_load(&board->word[0]) > 100);
	snprintf(fd, sizeof(fd), "%d", *(int *)arg);
	execl("/proc/self/exe", "direct_life", "another", fd, NULL);
	_exit(7);
}

/* The board in a file, so that the new program finds it. */
static int board_file(void)
{
	int fd = memfd_create("board", 0);

	CHECK(fd >= 0);
	OK(ftruncate(fd, sizeof(*board)));
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(board != MAP_FAILED);
	return fd;
}

static struct peer start_target_execs(void)
{
	static int fd;
	struct peer t;

#ifdef CONF_TSAN
	SKIP("the sanitizer has another use for the addresses");
#endif
	far_env();
	fd = board_file();
	t = peer_start(target_execs, &fd);
	far_open(0, 1);
	far_meet();
	return t;
}

static void another_program(void)
{
	struct peer t = start_target_execs();

	hammer();
	peer_end(&t);
}

static void let_it_exec(void)
{
	atomic_store(&board->word[0], 1000);
	WAIT_FOR(atomic_load(&board->word[1]));
}

/* The other program is there when everything has been checked and the kernel is
 * called. */
static void exec_at_the_call(enum ibv_wr_opcode op)
{
	struct peer t = start_target_execs();
	pthread_t thread;

	far_need_process_vm(&t);
	memset(far_side[0].b.p, 1, VICTIM);
	far_do(0, IBV_WR_RDMA_WRITE, 0, 200, IBV_WC_SUCCESS);
	thread = far_hold_process_vm(let_it_exec);
	far_do(0, op, 0, VICTIM, IBV_WC_RETRY_EXC_ERR);
	atomic_store(&board->word[2], 1);
	conf_join(thread);
	peer_end(&t);
}

static void written_to_another_program(void)
{
	exec_at_the_call(IBV_WR_RDMA_WRITE);
}

static void read_from_another_program(void)
{
	exec_at_the_call(IBV_WR_RDMA_READ);
}

static void target_waits_for_its_end(struct peer *me, void *arg)
{
	(void)arg;
	far_open(1, 1);
	victim();
	far_meet();
	peer_hear(me, 'x'); /* never comes */
}

static void *hammer_thread(void *arg)
{
	(void)arg;
	hammer();
	return NULL;
}

static bool last_pid(pid_t pid)
{
	FILE *f = fopen("/proc/sys/kernel/ns_last_pid", "w");
	bool good = f && fprintf(f, "%d", (int)pid) > 0;

	return f && !fclose(f) && good;
}

/* First of a pid namespace, where nobody else takes pids. */
static void same_pid(void)
{
	struct peer t = far_start(target_waits_for_its_end, NULL);
	pthread_t thread;
	int status;
	pid_t pid;

	far_open(0, 1);
	far_meet();
	thread = conf_thread(hammer_thread, NULL);
	WAIT_FOR(atomic_load(&board->word[0]) > 100);
	if (!last_pid(t.pid - 1))
		SKIP("pids cannot be chosen here");
	peer_kill(&t);
	if (!last_pid(t.pid - 1))
		FAIL("pids could be chosen, and cannot now");
	pid = fork();
	if (!pid)
		another((void *)0x510000000000);
	EQ(pid, t.pid);
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	conf_join(thread);
}

static void pid_is_used_again(void)
{
	if (geteuid())
		SKIP("only root makes pid namespaces");
	in_namespace(same_pid);
}

/* ---- no time for us ------------------------------------------------------------------ */

static void send_before_the_peer_is_ready(struct peer *me, void *arg)
{
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, NULL, 0);

	(void)me;
	(void)arg;
	open_device();
	far_side[0] = side(0);
	board->qpn[1][0] = far_side[0].qp->qp_num;
	EQ(to_init(&far_side[0]), 0);
	far_meet();
	EQ(to_rtr(&far_side[0], board->qpn[0][0], 1, &dev.gid), 0);
	EQ(to_rts(&far_side[0]), 0);
	OK(conf_post(far_side[0].qp, &wr));
	atomic_store(&board->word[0], 1);
	conf_wc_ok(far_side[0].cq, 1);
}

/* Whose process did not run has not waited in vain for a peer that is there by now. */
static void stopped_while_it_waits_for_its_peer(void)
{
	struct peer t = far_start(send_before_the_peer_is_ready, NULL);

	open_device();
	far_side[0] = side(1);
	board->qpn[0][0] = far_side[0].qp->qp_num;
	EQ(to_init(&far_side[0]), 0);
	OK(conf_recv(far_side[0].qp, 2, &far_side[0].b, 0, 0));
	far_meet();
	WAIT_FOR(atomic_load(&board->word[0]));
	peer_stop(&t);
	usleep(2500000); /* time is the point: more than the two seconds that it has */
	EQ(to_rtr(&far_side[0], board->qpn[1][0], 0, &dev.gid), 0);
	peer_go_on(&t);
	conf_wc_ok(far_side[0].cq, 2);
	peer_end(&t);
}

static const struct conf_case cases[] = {
	CASE(filtered),
	CASE(filtered_later),
	CASE(by_descriptor_alone),
	CASE(switched_off),
	CASE(not_dumpable),
	CASE(not_dumpable_later),
	CASE(user_of_no_rights),
	CASE(out_of_a_namespace),
	CASE(another_program),
	CASE(written_to_another_program),
	CASE(read_from_another_program),
	CASE(pid_is_used_again),
	CASE(stopped_while_it_waits_for_its_peer),
};

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "another")) {
		board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED,
			     atoi(argv[2]), 0);
		if (board == MAP_FAILED)
			return 6;
		another((void *)0x510000000000);
	}
	return conf_main(argc, argv, cases, sizeof(cases) / sizeof(*cases));
}
