/* SPDX-License-Identifier: BSD-2-Clause */
/* A hostile process of the same user passes descriptors that block whoever uses or closes
 * them (blocking.h): in place of those that a link is made of (shm/greeting.h), in
 * addition to them, and in messages about direct access (shm/grant.h). It connects to the
 * library, or listens where the library connects. Meanwhile other processes get their
 * connections and move data. */
#include "../fdpassing.h"
#include "../inuse.h"
#include "blocking.h"
#include "dev/share.h"
#include "far.h"
#include "shm/fdpass.h"
#include "shm/greeting.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { LEN = 10000, FOR_PEER = 1 << 19, IN_TIME = 5000, HIGH = 65000 };
enum { MANY = 400, MORE = 8 }; /* tries */

/* Where it is put. */
enum place {
	AT_SEGMENT, /* who listens: beside the eventfd */
	AT_WAKE,
	AT_MORE,   /* one too many */
	AT_BEHIND, /* with a message that is not read any more: it follows a wrong greeting */
	AT_LATE,   /* of a link: where none is expected, */
	AT_KEYS,   /* in place of the table of keys */
	PLACES,
};

/* What the hostile process is told; anything below is a place. */
enum { DO_LISTEN = 100, DO_LET_GO, DO_END };
/* ... and an honest one. */
enum { DO_GO = 200, DO_AGAIN };

struct plan {
	enum blocking_kind kind;
	bool listens; /* the hostile one does */
	bool hurries; /* it does not stop the other while it passes something */
};

/* ---- the hostile process ------------------------------------------------------------ */

static struct {
	const struct plan *plan;
	int listener, sock[MANY + 64], socks;
	uint32_t port; /* of the one it is hostile to */
	uint64_t serial;
	struct memid_page page;
} bad;

static void pass(int sock, const void *msg, size_t len, const int *fds, unsigned n)
{
	if (fdpassing_send(sock, msg, len, fds, n, 0) != (ssize_t)len)
		CHECK(errno == EPIPE && bad.plan->hurries);
}

static bool is_stopped(pid_t pid)
{
	char path[64], line[128], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	MUST((f = fopen(path, "re")));
	while (fgets(line, sizeof(line), f) && sscanf(line, "State: %c", &state) != 1)
		;
	fclose(f);
	return state == 'T';
}

static void stop_the_other(void)
{
	if (bad.plan->hurries)
		return;
	OK(kill(getppid(), SIGSTOP));
	WAIT_FOR(is_stopped(getppid()));
}

static void wake_up(int sig)
{
	(void)sig;
}

/* If the library was quicker, it is us who wait: not for long. */
static void close_it(int fd)
{
	const struct itimerval soon = { .it_value.tv_usec = 100000 }, never = { 0 };

	signal(SIGALRM, wake_up);
	setitimer(ITIMER_REAL, &soon, NULL);
	close(fd);
	setitimer(ITIMER_REAL, &never, NULL);
}

/* One of them is the blocker. Of what lingers the library's should be the last: a process
 * that is stopped cannot close it before we do. But a signal is the end of all waiting
 * for what lingers, so where several are to wait, we are quick instead; mostly. */
static void pass_blocker(int sock, const void *msg, size_t len, const int *fds, unsigned n,
			 int blocker)
{
	stop_the_other();
	pass(sock, msg, len, fds, n);
	if (bad.plan->kind == BLOCKING_LINGER)
		close_it(blocker);
	if (!bad.plan->hurries)
		OK(kill(getppid(), SIGCONT));
}

/* Whole; descriptors are dropped. */
static bool take(int sock, void *msg, size_t len)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };

	AT("waiting for what the library says");
	return poll(&p, 1, conf_ms(CONF_WAIT)) == 1 &&
	       recv(sock, msg, len, MSG_WAITALL) == (ssize_t)len;
}

static int segment_new(void)
{
	int fd = memfd_create("passed", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	CHECK(fd >= 0);
	OK(ftruncate(fd, sizeof(struct link_segment)));
	OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	return fd;
}

static int bad_meet(void)
{
	struct pollfd p = { .fd = bad.listener, .events = POLLIN };
	struct sockaddr_un un;
	socklen_t len = fdpassing_name(bad.port, &un);
	int fd;

	if (bad.plan->listens) {
		AT("waiting to be connected to");
		EQ(poll(&p, 1, conf_ms(CONF_WAIT)), 1);
		fd = accept4(bad.listener, NULL, NULL, SOCK_CLOEXEC);
	} else {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		OK(connect(fd, (struct sockaddr *)&un, len));
	}
	CHECK(fd >= 0);
	bad.sock[bad.socks++] = fd;
	return fd;
}

/* Of one who connects to it, the greeting that comes first is taken. */
static struct greeting bad_greeting(int sock)
{
	struct greeting g, theirs;

	if (bad.plan->listens)
		CHECK(take(sock, &theirs, sizeof(theirs)));
	g = (struct greeting){ GREETING_MAGIC, GREETING_VERSION,
			       bad.plan->listens ? GREETING_OK : GREETING_HELLO,
			       sizeof(struct link_segment), { { ++bad.serial, 66 } },
			       { .challenge = 4711 } };
	if (bad.plan->listens)
		bad.page.nonce = theirs.grant.challenge;
	return g;
}

static void greet_with(enum place at, int blocker)
{
	int wake = eventfd(1, EFD_CLOEXEC), sock = bad_meet(), segment = segment_new();
	struct greeting g = bad_greeting(sock);
	int visit[3] = { segment, -1, blocker }, host[3] = { -1, blocker, blocker };

	visit[1] = host[0] = wake;
	if (at == AT_SEGMENT)
		visit[0] = blocker;
	if (at == AT_WAKE)
		visit[1] = host[0] = blocker;
	if (bad.plan->listens)
		pass_blocker(sock, &g, sizeof(g), host,
			     at == AT_WAKE ? 1 : at == AT_SEGMENT ? 2 : 3, blocker);
	else
		pass_blocker(sock, &g, sizeof(g), visit, at == AT_MORE ? 3 : 2, blocker);
	close(segment);
	close(wake);
}

/* Both messages are there before the first one is read. */
static void greet_and_more(int blocker)
{
	int sock = bad_meet();
	struct greeting g = bad_greeting(sock);

	g.magic++;
	stop_the_other();
	pass(sock, &g, sizeof(g), NULL, 0);
	pass_blocker(sock, &g, sizeof(g), &blocker, 1, blocker);
}

/* A link, as it should be. */
static int greet_well(void)
{
	int wake = eventfd(1, EFD_CLOEXEC), sock = bad_meet(), segment = segment_new(), fds[2];
	struct greeting g = bad_greeting(sock), theirs;

	fds[0] = bad.plan->listens ? wake : segment;
	fds[1] = wake;
	pass(sock, &g, sizeof(g), fds, bad.plan->listens ? 1 : 2);
	if (!bad.plan->listens) {
		CHECK(take(sock, &theirs, sizeof(theirs)));
		EQ(theirs.status, GREETING_OK);
		bad.page.nonce = theirs.grant.challenge;
	}
	close(segment);
	close(wake);
	return sock;
}

/* Before the application has accepted anything: nothing is taken. */
static void keys_with(int blocker)
{
	struct grant_msg m = { .type = GRANT_PROVE, .at = (uintptr_t)&bad.page };
	int sock = greet_well();

	bad.page.word = 99;
	pass(sock, &m, sizeof(m), NULL, 0);
	m.type = GRANT_KEYS;
	m.table = SHARE_VERSION;
	pass_blocker(sock, &m, sizeof(m), &blocker, 1, blocker);
}

static void prove_with(int blocker)
{
	struct grant_msg m = { .type = GRANT_PROVE, .at = (uintptr_t)&bad.page };

	pass_blocker(greet_well(), &m, sizeof(m), &blocker, 1, blocker);
}

static void bad_hang_up(void)
{
	while (bad.socks)
		close(bad.sock[--bad.socks]);
}

static void bad_do(enum place at)
{
	int blocker = blocking_new(bad.plan->kind);

	if (bad.plan->listens)
		bad_hang_up(); /* else nobody connects again */
	if (at == AT_KEYS)
		keys_with(blocker);
	else if (at == AT_LATE)
		prove_with(blocker);
	else if (at == AT_BEHIND)
		greet_and_more(blocker);
	else
		greet_with(at, blocker);
}

static uint32_t bad_listen(void)
{
	struct sockaddr_un un;
	socklen_t len;
	uint32_t port = 0;

	bad.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	do {
		MUST(getrandom(&port, 1, 0) == 1);
		len = fdpassing_name(HIGH + port, &un);
	} while (bind(bad.listener, (struct sockaddr *)&un, len));
	OK(listen(bad.listener, 64));
	return HIGH + port;
}

static void hostile(struct peer *me, void *arg)
{
	uint32_t what;

	bad.plan = arg;
	if (blocking_new(bad.plan->kind) < 0) {
		peer_say(me, 'n');
		return;
	}
	peer_say(me, 'y');
	bad.port = peer_hear_u32(me);
	while ((what = peer_hear_u32(me)) != DO_END) {
		if (what == DO_LISTEN)
			peer_say_u32(me, bad_listen());
		if (what < PLACES)
			bad_do(what);
		if (what == DO_LET_GO) {
			blocking_end();
			bad_hang_up();
		}
		peer_say(me, 'd');
	}
}

/* ---- honest ones --------------------------------------------------------------------- */

static struct far_other join_peer(struct peer *p, struct side *s)
{
	struct far_other o;

	far_tell(p, s);
	o = far_hear(p);
	o.mem.addr += FOR_PEER;
	EQ(to_init(s), 0);
	EQ(to_rtr(s, o.qpn, o.psn, &dev.gid), 0);
	EQ(to_rts(s), 0);
	return o;
}

/* A QP that waits to be connected to: from now on others find this process. */
static struct side wait_for_anybody(uint32_t psn)
{
	struct side s = side(psn);

	EQ(to_init(&s), 0);
	EQ(to_rtr(&s, 1 << 8 | 1, 1, &dev.gid), 0);
	return s;
}

/* What it sends goes through the other one's thread. */
static void honest(struct peer *me, void *arg)
{
	struct side s, waits = { 0 };
	struct far_other o;
	uint32_t what;

	(void)arg;
	setenv("ANYRDMA_DIRECT", "off", 1);
	while ((what = peer_hear_u32(me)) != DO_END) {
		if (what == DO_GO) {
			open_device();
			waits = wait_for_anybody(0x500);
			s = side(0x100);
			o = join_peer(me, &s);
		}
		far_works(&s, &o, LEN, 7);
		peer_say(me, 'w');
	}
	if (waits.qp)
		side_pair_free(&s, &waits);
}

/* ---- ours ------------------------------------------------------------------------------ */

static struct side here, x, to_bad;
static int fds_before;

/* Threads of the library that do nothing but close descriptors. */
static int closing_threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	char path[300];
	int n = 0;

	MUST(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		n += inuse_lines(path, "anyrdma-close") > 0;
	}
	closedir(d);
	return n;
}

static void told(struct peer *p, uint32_t what)
{
	peer_say_u32(p, what);
	peer_hear(p, 'd');
}

static void in_time(uint64_t since)
{
	uint64_t ms = (conf_now() - since) / 1000000;

	if (ms > (uint64_t)conf_ms(IN_TIME))
		FAIL("after %llu ms", (unsigned long long)ms);
}

static void client_comes(struct peer *p)
{
	uint64_t start = conf_now();

	x = side(0x200);
	peer_say_u32(p, DO_GO);
	join_peer(p, &x);
	peer_hear(p, 'w');
	in_time(start);
}

static void client_goes(struct peer *p)
{
	peer_say_u32(p, DO_END);
	peer_end(p);
	side_free(&x);
}

/* The hostile one is told where to connect to; or connected to. */
static void start(struct peer *h, bool listens)
{
	uint32_t port;

	open_device();
	here = wait_for_anybody(0x400);
	to_bad = side(0x300);
	EQ(to_init(&to_bad), 0);
	peer_say_u32(h, here.qp->qp_num >> 8);
	fds_before = inuse_fds();
	if (!listens)
		return;
	peer_say_u32(h, DO_LISTEN);
	port = peer_hear_u32(h);
	peer_hear(h, 'd');
	EQ(to_rtr(&to_bad, port << 8 | 1, 1, &dev.gid), 0);
}

static struct peer bad_start(struct plan *plan)
{
	struct peer h = peer_start(hostile, plan);
	char c = 0;

	MUST(read(h.in, &c, 1) == 1);
	if (c == 'n')
		SKIP("there is no such descriptor here, or not for us");
	return h;
}

static void over(struct peer *h)
{
	told(h, DO_LET_GO);
	side_free(&to_bad);
	WAIT_TILL(!closing_threads() && !inuse_links() && inuse_fds() <= fds_before,
		  CONF_WAIT, "%d threads, %d links, %d descriptors more",
		  closing_threads(), inuse_links(),
		  inuse_fds() - fds_before);
	peer_say_u32(h, DO_END);
	peer_end(h);
	side_free(&here);
	close_device();
}

static void everywhere(enum blocking_kind kind, bool listens)
{
	struct plan plan = { kind, .listens = listens };
	struct peer h, p[PLACES];

	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	h = bad_start(&plan);
	for (int i = 0; i < PLACES; i++)
		p[i] = peer_start(honest, NULL);
	start(&h, listens);
	for (int i = 0; i < PLACES; i++) {
		told(&h, (uint32_t)i);
		client_comes(&p[i]);
		client_goes(&p[i]);
	}
	over(&h);
}

static void file_of_a_client(void)
{
	everywhere(BLOCKING_FILE, false);
}

static void file_of_a_server(void)
{
	everywhere(BLOCKING_FILE, true);
}

static void lingering_of_a_client(void)
{
	everywhere(BLOCKING_LINGER, false);
}

static void lingering_of_a_server(void)
{
	everywhere(BLOCKING_LINGER, true);
}

static void fifo_of_a_client(void)
{
	everywhere(BLOCKING_FIFO, false);
}

static void fifo_of_a_server(void)
{
	everywhere(BLOCKING_FIFO, true);
}

static void pipe_of_a_client(void)
{
	everywhere(BLOCKING_PIPE, false);
}

static void pipe_of_a_server(void)
{
	everywhere(BLOCKING_PIPE, true);
}

/* More than threads that may wait for them: the ones who come then use TCP, and those who
 * are there go on. */
static void many(enum blocking_kind kind, enum place at)
{
	struct plan plan = { kind, .hurries = true };
	struct peer h, before, meanwhile, after;
	struct side first;

	setenv("ANYRDMA_TRANSPORT", "auto", 1);
	h = bad_start(&plan);
	before = peer_start(honest, NULL);
	meanwhile = peer_start(honest, NULL);
	after = peer_start(honest, NULL);
	start(&h, false);
	client_comes(&before);
	first = x;
	WAIT_FOR(inuse_links() == 1); /* some tries may be on their way */
	/* A try in which the library is quicker than the hostile process blocks nobody.
	 * On a busy machine that is most of them. */
	for (int i = 0; i < MANY && closing_threads() < FDPASS_STUCK_MAX; i++) {
		told(&h, (uint32_t)at);
		conf_settle();
	}
	WAIT_FOR(closing_threads() >= FDPASS_STUCK_MAX);
	for (int i = 0; i < MORE; i++)
		told(&h, (uint32_t)at);
	client_comes(&meanwhile);
	WAIT_FOR(inuse_links() == 1); /* some tries may be on their way */
	EQ(closing_threads(), FDPASS_STUCK_MAX);
	peer_say_u32(&before, DO_AGAIN);
	peer_hear(&before, 'w');
	client_goes(&meanwhile);
	x = first;
	client_goes(&before);
	told(&h, DO_LET_GO);
	WAIT_TILL(!closing_threads(), CONF_WAIT, "%d threads wait", closing_threads());
	client_comes(&after);
	WAIT_FOR(inuse_links() == 1); /* some tries may be on their way */
	client_goes(&after);
	over(&h);
}

static void many_files(void)
{
	many(BLOCKING_FILE, AT_SEGMENT);
}

static void many_lingering(void)
{
	many(BLOCKING_LINGER, AT_WAKE);
}

static void many_lingering_behind(void)
{
	many(BLOCKING_LINGER, AT_BEHIND);
}

static const struct conf_case cases[] = {
	CASE(file_of_a_client),
	CASE(file_of_a_server),
	CASE(lingering_of_a_client),
	CASE(lingering_of_a_server),
	CASE(fifo_of_a_client),
	CASE(fifo_of_a_server),
	CASE(pipe_of_a_client),
	CASE(pipe_of_a_server),
	CASE(many_files),
	LONG_CASE(many_lingering, 120),
	LONG_CASE(many_lingering_behind, 120),
};

CONF_MAIN(cases)
