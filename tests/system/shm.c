/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes of one host over shared memory, one of which ends: the other one gets the
 * right completions at once, and no link or descriptor stays. Each case checks that a
 * link is in use. */
#include "../inuse.h"
#include "far.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { LEN = 100000, FOR_PEER = 1 << 19 }; /* offset of what the peer writes to */
/* Milliseconds that a dead peer may go unnoticed, on a machine that has much else to
 * do. */
enum { IN_TIME = 8000 };

static struct side x;
static struct far_other there;
static int fds_before;

static int fds(void);

/* ---- joining -------------------------------------------------------------------- */

static struct far_other join_peer(struct peer *p, struct side *s)
{
	struct far_other o;

	far_tell(p, s);
	o = far_hear(p);
	o.mem.addr += FOR_PEER;
	EQ(to_init(s), 0);
	fds_before = fds();
	EQ(to_rtr(s, o.qpn, o.psn, &dev.gid), 0);
	EQ(to_rts(s), 0);
	peer_say(p, 'j');
	peer_hear(p, 'j');
	return o;
}

static struct ibv_send_wr write_to(const struct far_other *o, struct ibv_sge *sge,
				   uint64_t id)
{
	return remote_rdma(&o->mem, id, IBV_WR_RDMA_WRITE, sge);
}

/* ---- what a process holds --------------------------------------------------------- */

/* Descriptors, but for that of our own memory, which links are offered. */
static int fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	char own[64], path[300], what[300];
	struct dirent *e;
	int n = 0;

	MUST(d);
	snprintf(own, sizeof(own), "/proc/%d/mem", (int)getpid());
	while ((e = readdir(d))) {
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%s", e->d_name);
		len = readlink(path, what, sizeof(what) - 1);
		what[len > 0 ? len : 0] = 0;
		n += strcmp(what, own) != 0;
	}
	closedir(d);
	return n;
}

/* When the QP is gone, too. */
static void no_link_left(void)
{
	WAIT_TILL(!inuse_links() && fds() <= fds_before, CONF_WAIT,
		  "%d links, %d descriptors more", inuse_links(), fds() - fds_before);
}

/* ---- peers --------------------------------------------------------------------- */

static void hang(struct peer *me)
{
	peer_hear(me, 'x'); /* never comes */
}

static void joined_peer(struct peer *me, struct side *s, struct far_other *o)
{
	open_device();
	*s = side(0x100);
	*o = join_peer(me, s);
	far_works(s, o, LEN, 9);
	EQ(inuse_links(), 1);
	peer_say(me, 'w');
}

static void sleeper(struct peer *me, void *arg)
{
	struct far_other o;
	struct side s;

	(void)arg;
	joined_peer(me, &s, &o);
	hang(me);
}

/* Our half. */
static void start(struct peer *p)
{
	open_device();
	x = side(0x200);
	there = join_peer(p, &x);
	far_works(&x, &there, LEN, 7);
	peer_hear(p, 'w');
	EQ(inuse_links(), 1);
}

static void stop(void)
{
	side_free(&x);
	no_link_left();
	close_device();
}

/* Work posted after the peer's end fails at once. */
static void gone_in_time(uint64_t since)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, LEN);
	struct ibv_send_wr wr = write_to(&there, &sge, 5);

	OK(conf_post(x.qp, &wr));
	conf_wc_is(x.cq, 5, IBV_WC_RETRY_EXC_ERR);
	if (conf_now() - since > conf_ms(IN_TIME) * 1000000ull)
		FAIL("%llu ms after the peer's end",
		     (unsigned long long)((conf_now() - since) / 1000000));
	EQ(conf_qp_state(x.qp), IBV_QPS_ERR);
}

/* ---- ends ----------------------------------------------------------------------- */

static void killed(void)
{
	struct peer p = peer_start(sleeper, NULL);
	char name[64];

	start(&p);
	snprintf(name, sizeof(name), "anyrdma/1/qp/%u", there.qpn >> 8);
	EQ(inuse_lines("/proc/net/unix", name) > 0, 1);
	peer_kill(&p);
	gone_in_time(conf_now());
	EQ(inuse_lines("/proc/net/unix", name), 0);
	stop();
}

/* Writes without end, polled or not. */
static void writer(struct peer *me, void *arg)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct side s;
	struct far_other z;

	(void)arg;
	joined_peer(me, &s, &z);
	sge = conf_sge(&s.b, 0, LEN);
	for (;;) {
		wr = write_to(&z, &sge, 3);
		OK(conf_post(s.qp, &wr));
		conf_wc_ok(s.cq, 3);
	}
}

static unsigned reap(uint64_t *next, enum ibv_wc_status *failed)
{
	struct ibv_wc wc[8];
	int n = ibv_poll_cq(x.cq, 8, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		EQ(wc[i].wr_id, *next);
		++*next;
		if (*failed)
			EQ(wc[i].status, IBV_WC_WR_FLUSH_ERR);
		*failed = *failed ? *failed : wc[i].status;
	}
	return (unsigned)n;
}

/* Both write; the peer dies after so many microseconds. */
static void killed_in_the_middle(unsigned us, const char *direct)
{
	struct peer p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	uint64_t until, died = 0, posted = 0, next = 0;
	enum ibv_wc_status failed = 0;

	setenv("ANYRDMA_DIRECT", direct, 1);
	p = peer_start(writer, NULL);
	start(&p);
	sge = conf_sge(&x.b, 0, LEN);
	until = conf_now() + us * 1000ull;
	AT("waiting for the first work that fails");
	while (!failed) {
		if (!died && conf_now() >= until) {
			peer_kill(&p);
			died = conf_now();
		}
		if (posted - next < 8) {
			wr = write_to(&there, &sge, posted++);
			OK(conf_post(x.qp, &wr));
		}
		reap(&next, &failed);
	}
	CHECK(died);
	EQ(failed, IBV_WC_RETRY_EXC_ERR);
	if (conf_now() - died > conf_ms(IN_TIME) * 1000000ull)
		FAIL("too late");
	AT("waiting for what is flushed");
	while (next < posted)
		reap(&next, &failed);
	stop();
}

static void killed_at_any_point(void)
{
	unsigned us = 1;

	for (int i = 0; i < 24; i++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid) {
			killed_in_the_middle(us, i % 2 ? "off" : "auto");
			_exit(0);
		}
		EQ(waitpid(pid, &status, 0), pid);
		if (status)
			FAIL("killed after %u us: see above", us);
		us = i % 2 ? us * 2 + 17 : us;
	}
}

/* Nobody polls, nobody posts: an event on the CQ says so. */
static void killed_while_we_sleep(void)
{
	struct peer p;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_cq *cq;
	uint64_t died;
	void *ctx;

	setenv("ANYRDMA_DIRECT", "off", 1); /* else nobody needs the peer */
	p = peer_start(sleeper, NULL);
	open_device();
	x = side_with(0x200, (struct side_opt){ .channel = true });
	there = join_peer(&p, &x);
	far_works(&x, &there, LEN, 7);
	peer_hear(&p, 'w');
	peer_stop(&p); /* so that the work is still to be done when it dies */
	EQ(ibv_req_notify_cq(x.cq, 0), 0);
	sge = conf_sge(&x.b, 0, LEN);
	wr = write_to(&there, &sge, 5);
	OK(conf_post(x.qp, &wr));
	peer_kill(&p);
	died = conf_now();
	AT("waiting for the event");
	OK(ibv_get_cq_event(x.ch, &cq, &ctx));
	ibv_ack_cq_events(cq, 1);
	conf_wc_is(x.cq, 5, IBV_WC_RETRY_EXC_ERR);
	CHECK(conf_now() - died < conf_ms(IN_TIME) * 1000000ull);
	stop();
}

static void stopped(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct peer p;

	setenv("ANYRDMA_DIRECT", "off", 1);
	p = peer_start(sleeper, NULL);
	start(&p);
	peer_stop(&p);
	sge = conf_sge(&x.b, 0, 1 << 19);
	for (int i = 0; i < 4; i++) { /* more than the ring holds */
		wr = write_to(&there, &sge, 10 + i);
		OK(conf_post(x.qp, &wr));
	}
	conf_wc_none(x.cq, 2000);
	peer_go_on(&p);
	for (int i = 0; i < 4; i++)
		conf_wc_ok(x.cq, 10 + i);
	far_works(&x, &there, LEN, 8);
	peer_kill(&p);
	gone_in_time(conf_now());
	stop();
}

static struct side uc_side(uint32_t psn)
{
	return side_with(psn, (struct side_opt){ .type = IBV_QPT_UC });
}

static void uc_taker(struct peer *me, void *arg)
{
	struct side s;

	(void)arg;
	open_device();
	s = uc_side(0x100);
	join_peer(me, &s);
	for (int i = 0; i < 5; i++)
		OK(conf_recv(s.qp, i, &s.b, 0, 1 << 19));
	peer_say(me, 'r');
	conf_wc_ok(s.cq, 0);
	peer_say(me, 'w');
	for (int i = 1; i < 5; i++)
		conf_wc_ok(s.cq, i);
	CHECK(conf_pattern_ok(s.b.p, 1 << 19, 5));
	peer_say(me, 'd');
	hang(me);
}

/* Hardware would place what is sent to a process that does not run. */
static void stopped_unreliable(void)
{
	struct peer p = peer_start(uc_taker, NULL);

	open_device();
	x = uc_side(0x200);
	there = join_peer(&p, &x);
	peer_hear(&p, 'r');
	conf_pattern(x.b.p, 1 << 19, 5);
	OK(conf_send(x.qp, 1, &x.b, 0, 1 << 19));
	conf_wc_ok(x.cq, 1);
	peer_hear(&p, 'w');
	EQ(inuse_links(), 1);
	peer_stop(&p);
	for (int i = 0; i < 4; i++) /* more than the ring holds */
		OK(conf_send(x.qp, 10 + i, &x.b, 0, 1 << 19));
	conf_wc_none(x.cq, 3000);
	peer_go_on(&p);
	for (int i = 0; i < 4; i++)
		conf_wc_ok(x.cq, 10 + i);
	peer_hear(&p, 'd');
	peer_kill(&p);
	stop();
}

/* The process goes on, as another program. */
static void runs_another(struct peer *me, void *arg)
{
	struct far_other z;
	struct side s;

	(void)arg;
	joined_peer(me, &s, &z);
	peer_hear(me, 'g');
	execl("/bin/sleep", "sleep", "30", (char *)NULL);
	FAIL("exec");
}

static void execed_over(void)
{
	struct peer p = peer_start(runs_another, NULL);
	char comm[64];

	start(&p);
	peer_say(&p, 'g');
	snprintf(comm, sizeof(comm), "/proc/%d/comm", (int)p.pid);
	WAIT_FOR(inuse_lines(comm, "sleep"));
	gone_in_time(conf_now());
	EQ(kill(p.pid, 0), 0); /* still there */
	peer_kill(&p);
	stop();
}

/* A child that has nothing to do with it, and outlives its parent. */
static void forks(struct peer *me, void *arg)
{
	struct far_other z;
	struct side s;
	pid_t pid;

	(void)arg;
	joined_peer(me, &s, &z);
	pid = fork();
	if (!pid) {
		alarm(60);
		for (;;)
			pause();
	}
	peer_say_u32(me, (uint32_t)pid);
	far_works(&s, &z, LEN, 11);
	peer_say(me, 'w');
	hang(me);
}

static void forked(void)
{
	struct peer p = peer_start(forks, NULL);
	pid_t child;

	start(&p);
	child = (pid_t)peer_hear_u32(&p);
	peer_hear(&p, 'w');
	far_works(&x, &there, LEN, 12);
	peer_kill(&p);
	gone_in_time(conf_now());
	EQ(kill(child, 0), 0);
	kill(child, SIGKILL);
	stop();
}

/* We fork; the child shares nothing with the peer, whatever becomes of it. */
static void we_fork(void)
{
	struct peer p = peer_start(sleeper, NULL);
	int status;
	pid_t pid;

	start(&p);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		_exit(inuse_links() || !ibv_destroy_qp(x.qp) ? inuse_links() : 0);
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	far_works(&x, &there, LEN, 12);
	peer_kill(&p);
	gone_in_time(conf_now());
	stop();
}

/* ---- hostile peers ---------------------------------------------------------------- */

/* A peer that lays hands on the descriptors of wake-ups, which both sides have: fills
 * them, empties them, has whoever uses them wait. Its own thread gets nothing of this: it
 * looks at an end of nowhere. */
static void seize(int fd)
{
	uint64_t much = UINT64_MAX - 1;
	int keep = dup(fd), null = open("/dev/null", O_RDWR);

	MUST(keep >= 0 && null >= 0);
	MUST(dup2(null, fd) == fd);
	close(null);
	MUST(!fcntl(keep, F_SETFL, O_NONBLOCK));
	while (write(keep, &much, sizeof(much)) > 0)
		;
	MUST(!fcntl(keep, F_SETFL, 0));
}

static void seizer(struct peer *me, void *arg)
{
	char path[64], what[64];
	struct far_other o;
	struct side s;
	int seized = 0;

	(void)arg;
	joined_peer(me, &s, &o);
	usleep(100000); /* time is the point: leases end, the thread dozes */
	for (int fd = 1024; fd < 1100; fd++) { /* ours are there: base/fdset.h */
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, what, sizeof(what) - 1);
		what[n > 0 ? n : 0] = 0;
		if (strcmp(what, "anon_inode:[eventfd]") && strncmp(what, "pipe:[", 6))
			continue;
		seize(fd);
		seized++;
	}
	CHECK(seized >= 2);
	peer_say(me, 's');
	hang(me);
}

static void its_descriptors_block(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct rlimit r;
	struct peer p;

	OK(getrlimit(RLIMIT_NOFILE, &r));
	if (r.rlim_max < 1100)
		SKIP("the hard limit is %lu", (unsigned long)r.rlim_max);
	setenv("ANYRDMA_DIRECT", "off", 1); /* each write is said, and wakes */
	p = peer_start(seizer, NULL);
	start(&p);
	peer_hear(&p, 's');
	sge = conf_sge(&x.b, 0, 8);
	AT("posting: what the peer's wake-up is must not matter");
	for (int i = 0; i < 20; i++) {
		wr = write_to(&there, &sge, 10 + i);
		OK(conf_post(x.qp, &wr));
		conf_wc_ok(x.cq, 10 + i); /* its thread spins: nothing is taken back */
		usleep(10000); /* time is the point: the lease ends, ours is in charge */
	}
	peer_kill(&p);
	gone_in_time(conf_now());
	stop();
}

/* ---- who may ---------------------------------------------------------------------- */

/* In a namespace of its own, where our pid does not exist. */
static void elsewhere(struct peer *me, void *arg)
{
	struct far_other z;
	struct side s;
	int status;
	pid_t pid;

	(void)arg;
	if (unshare(CLONE_NEWPID)) {
		peer_say(me, 'n');
		return;
	}
	pid = fork();
	if (pid) {
		waitpid(pid, &status, 0);
		_exit(0);
	}
	EQ(getpid(), 1);
	peer_say(me, 'y');
	joined_peer(me, &s, &z);
	peer_hear(me, 'g');
	kill(getpid(), SIGKILL); /* is ignored: the namespace's first process */
	_exit(0);
}

static bool allowed(struct peer *p)
{
	char c;

	return read(p->in, &c, 1) == 1 && c == 'y';
}

static void another_pid_namespace(void)
{
	struct peer p = peer_start(elsewhere, NULL);

	if (!allowed(&p))
		SKIP("no right to make a pid namespace");
	start(&p);
	peer_say(&p, 'g');
	peer_end(&p);
	gone_in_time(conf_now());
	stop();
}

/* The peer of one who goes by TCP. */
static void by_tcp(struct peer *me)
{
	struct far_other z;
	struct side s;

	setenv("ANYRDMA_TRANSPORT", "auto", 1);
	open_device();
	s = side(0x100);
	z = join_peer(me, &s);
	far_works(&s, &z, LEN, 9);
	EQ(inuse_links(), 0);
	peer_say(me, 'w');
	peer_hear(me, 'e');
	side_free(&s);
	close_device();
}

static void goes_by_tcp(struct peer *p)
{
	setenv("ANYRDMA_TRANSPORT", "auto", 1);
	open_device();
	x = side(0x200);
	there = join_peer(p, &x);
	far_works(&x, &there, LEN, 7);
	peer_hear(p, 'w');
	EQ(inuse_links(), 0);
	peer_say(p, 'e');
	peer_end(p);
}

static void another_user(struct peer *me, void *arg)
{
	(void)arg;
	if (setgid(12345) || setuid(12345)) {
		peer_say(me, 'n');
		return;
	}
	peer_say(me, 'y');
	by_tcp(me);
}

static void another_uid_falls_back_to_tcp(void)
{
	struct peer p = peer_start(another_user, NULL);

	if (!allowed(&p))
		SKIP("no right to become another user");
	goes_by_tcp(&p);
	side_free(&x);
	close_device();
}

static void without_large_files(struct peer *me, void *arg)
{
	(void)arg;
	by_tcp(me);
}

/* `ulimit -f` counts for memory that is shared, too, and SIGXFSZ ends who goes beyond. */
static void no_large_files(void)
{
	struct rlimit small = { 100 * 1024, 100 * 1024 };
	struct peer p;

	OK(setrlimit(RLIMIT_FSIZE, &small));
	p = peer_start(without_large_files, NULL);
	goes_by_tcp(&p);
	CHECK(!ibv_alloc_null_mr(dev.pd));
	EQ(errno, ENOMEM);
	side_free(&x);
	close_device();
}

/* ---- rest ------------------------------------------------------------------------- */

static uint64_t cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* Of the best of a few: what a virtual machine's host takes away is counted, too. */
static uint64_t cpu_of_a_second(uint64_t enough)
{
	uint64_t before, best = UINT64_MAX, us;

	for (int i = 0; i < 5 && best > enough; i++) {
		usleep(100000); /* time is the point: leases end, the thread goes to sleep */
		before = cpu_us();
		usleep(1000000); /* so does this one: what an idle second costs */
		us = cpu_us() - before;
		best = us < best ? us : best;
	}
	return best;
}

static void idler(struct peer *me, void *arg)
{
	struct far_other z;
	struct side s;

	(void)arg;
	joined_peer(me, &s, &z);
	peer_hear(me, 'i');
	peer_say_u32(me, (uint32_t)cpu_of_a_second(conf_ms(3) * 1000ull));
	hang(me);
}

static void idle_processes_use_no_cpu(void)
{
	struct peer p = peer_start(idler, NULL);
	uint64_t us, most = conf_ms(3) * 1000ull;

	start(&p);
	peer_say(&p, 'i');
	us = cpu_of_a_second(most);
	if (us > most)
		FAIL("%llu us in an idle second", (unsigned long long)us);
	us = peer_hear_u32(&p);
	if (us > most)
		FAIL("the peer: %llu us in an idle second", (unsigned long long)us);
	peer_kill(&p);
	gone_in_time(conf_now());
	stop();
}

static const struct conf_case cases[] = {
	CASE(killed),
	LONG_CASE(killed_at_any_point, 60),
	CASE(killed_while_we_sleep),
	CASE(stopped),
	CASE(stopped_unreliable),
	CASE(execed_over),
	CASE(forked),
	CASE(we_fork),
	CASE(its_descriptors_block),
	CASE(another_pid_namespace),
	CASE(another_uid_falls_back_to_tcp),
	CASE(no_large_files),
	CASE(idle_processes_use_no_cpu),
};

CONF_MAIN(cases)
