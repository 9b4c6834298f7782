/* SPDX-License-Identifier: BSD-2-Clause */
/* A process of our user that makes as many links, and half links, as it can. */
#include "shm/setup.h"
#include "dev/verbs.h"
#include "rc/stream.h"
#include "shm/greeting.h"
#include "tests/t.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { PORT = 77, TRIES = 40, MORE = 50, PATIENCE_MS = 3000 };

static int announce(void)
{
	struct sockaddr_un un;
	struct link_name name;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	link_name_of_port(PORT, &name);
	len = link_name_address(&name, &un);
	return connect(fd, (struct sockaddr *)&un, len) ? -1 : fd;
}

/* Our end of a link. */
struct end {
	int sock, wake; /* wake: of the other side */
	struct link_segment *seg;
};

/* A link under this id: 1, or 0: it was refused. The descriptors stay open. */
static int link_open(uint64_t word, struct end *e)
{
	struct link_id id = { { word, (uint64_t)getpid() } };
	struct pollfd p = { .fd = announce(), .events = POLLIN };
	struct grant_hello none = { 0 };
	struct greeting g;
	int fds[2], got[GREETING_FDS];

	fds[0] = link_segment_new(&e->seg);
	if (p.fd < 0 || fds[0] < 0 || greeting_wake_new(&fds[1]) < 0 ||
	    greeting_send(p.fd, &id, GREETING_HELLO, &none, fds, 2) ||
	    poll(&p, 1, (int)t_scaled(PATIENCE_MS)) != 1)
		_exit(100);
	e->sock = p.fd;
	if (greeting_recv(p.fd, &g, got) < 1)
		return 0;
	e->wake = got[0];
	return 1;
}

static int link_under(uint64_t word)
{
	struct end e;

	return link_open(word, &e);
}

typedef int (*child_fn)(void);

static int run_child(child_fn fn)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		_exit(fn());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A process without threads, from which children are made: one of ours might find a lock
 * taken by a thread that it does not have. */
static int nursery;

static void nursery_open(void)
{
	child_fn fn;
	int fd[2], ret;

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd));
	nursery = fd[0];
	if (fork()) {
		close(fd[1]);
		return;
	}
	close(fd[0]);
	while (read(fd[1], &fn, sizeof(fn)) == sizeof(fn)) {
		ret = run_child(fn);
		if (write(fd[1], &ret, sizeof(ret)) < 0)
			break;
	}
	_exit(0);
}

static int in_child(child_fn fn)
{
	int ret = -1;

	CHECK_EQ(write(nursery, &fn, sizeof(fn)), (int)sizeof(fn));
	CHECK_EQ(read(nursery, &ret, sizeof(ret)), (int)sizeof(ret));
	return ret;
}

static unsigned links(void)
{
	struct link *l;
	unsigned n = 0;

	setups_lock();
	list_for_each(l, &setups.links, all)
		n++;
	setups_unlock();
	return n;
}

static int many(void)
{
	int n = 0;

	for (int i = 0; i < TRIES; i++)
		n += link_under((uint64_t)i + 1);
	return n;
}

static int one(void)
{
	return link_under(1);
}

static void wait_for_no_link(void)
{
	CHECK(T_WAIT(!links(), PATIENCE_MS));
}

static void a_process_gets_few_links(void)
{
	CHECK_EQ(in_child(many), LINKS_PER_PROCESS);
	CHECK_EQ(in_child(one), 1); /* others get theirs */
	wait_for_no_link();
	CHECK_EQ(in_child(many), LINKS_PER_PROCESS); /* ended ones do not count */
	wait_for_no_link();
}

static bool ended(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, (int)t_scaled(PATIENCE_MS)) == 1;
}

/* Says nothing; long before it is too late, the first ones are gone. */
static int silent(void)
{
	static int fd[SETUPS_PER_PROCESS + MORE];
	struct pollfd last;

	for (int i = 0; i < SETUPS_PER_PROCESS + MORE; i++) {
		fd[i] = announce();
		if (fd[i] < 0)
			return 1;
	}
	for (int i = 0; i < MORE; i++)
		if (!ended(fd[i]))
			return 2;
	last = (struct pollfd){ .fd = fd[MORE], .events = POLLIN };
	if (poll(&last, 1, 0))
		return 3;
	return run_child(one) == 1 ? 0 : 4;
}

static void a_process_keeps_few_waiting(void)
{
	CHECK_EQ(in_child(silent), 0);
	wait_for_no_link();
}

/* ---- links in all ---------------------------------------------------------------------- */

enum { FEW = 4 };

static void links_max(unsigned n)
{
	setups_lock();
	setups.links_max = n;
	setups_unlock();
}

/* Those without streams make room: nobody is shut out by links that only exist. */
static void idle_links_make_room(void)
{
	links_max(FEW);
	CHECK_EQ(in_child(many), TRIES);
	CHECK(links() <= FEW + 1); /* of the last one the thread may not know yet */
	wait_for_no_link();
	links_max(LINKS_ALL);
}

/* A stream of ours on each of them. */
static unsigned occupy(struct stream **s)
{
	struct link *l;
	unsigned n = 0;

	setups_lock();
	list_for_each(l, &setups.links, all) {
		s[n] = calloc(1, sizeof(struct shm_stream));
		list_init(&to_shm(s[n])->owing);
		list_init(&to_shm(s[n])->blocked);
		CHECK(!link_slot_take(l, s[n]));
		n++;
	}
	setups_unlock();
	return n;
}

static void vacate(struct stream **s, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		link_slot_drop(to_shm(s[i])->l, to_shm(s[i])->slot, false);
		link_put(to_shm(s[i])->l);
		free(s[i]);
	}
}

static int occupied[2], go_on[2];
static _Atomic int *newcomer; /* shared: what came of it; -1: nothing yet */

static int some_and_wait(void)
{
	int n = 0;
	char c;

	for (int i = 0; i < FEW; i++)
		n += link_under((uint64_t)i + 1);
	return read(go_on[0], &c, 1) == 1 ? n : -1;
}

static int in_two(void)
{
	pid_t pid = fork();
	int status;
	char c;

	if (!pid)
		_exit(some_and_wait());
	if (read(occupied[0], &c, 1) == 1)
		atomic_store(newcomer, run_child(one));
	return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}

static void *run_in_two(void *result)
{
	*(int *)result = in_child(in_two);
	return NULL;
}

static void links_in_use_stay(void)
{
	struct stream *s[FEW];
	int had = -1;
	pthread_t t;

	links_max(FEW);
	REQUIRE(!pthread_create(&t, NULL, run_in_two, &had));
	REQUIRE(T_WAIT(links() == FEW, PATIENCE_MS));
	CHECK_EQ(occupy(s), FEW);
	CHECK_EQ(write(occupied[1], "", 1), 1);
	CHECK(T_WAIT(atomic_load(newcomer) >= 0, 2 * PATIENCE_MS));
	CHECK_EQ(atomic_load(newcomer), 0);
	CHECK_EQ(links(), FEW);
	vacate(s, FEW);
	CHECK_EQ(write(go_on[1], "", 1), 1);
	pthread_join(t, NULL);
	CHECK_EQ(had, FEW);
	wait_for_no_link();
	links_max(LINKS_ALL);
}

/* ---- records ----------------------------------------------------------------------------- */

/* What one hostile process may have us keep, and what the rest of the test needs. */
enum { KEPT_MAX = LINK_LATER_BYTES * 2 + 4 * 1024 * 1024, RECORDS = 400000 };

static size_t allocated(void)
{
	return mallinfo2().uordblks;
}

/* As many as it likes; answers are not read. 0: the link was ended. */
static int flood(const void *rec, uint32_t bytes, enum rec_kind kind)
{
	struct end e;
	struct ring_tx tx = { .limit = RING_LINES };
	struct pollfd p;
	uint8_t *at;

	if (!link_open(1, &e))
		return 1;
	tx.sh = &e.seg->ring[0];
	p = (struct pollfd){ .fd = e.sock, .events = POLLIN };
	for (int i = 0; i < RECORDS; i++) {
		while (!(at = ring_reserve(&tx, bytes))) {
			atomic_store(&tx.sh->full, 1);
			/* Full, or closed: it shows. */
			greeting_wake(e.wake);
			if (poll(&p, 1, 1) > 0)
				return 0;
		}
		memcpy(at + 4, (const uint8_t *)rec + 4, bytes - 4);
		ring_publish(&tx, bytes, (uint8_t)kind);
	}
	return poll(&p, 1, 0) > 0 ? 0 : 3;
}

static int flood_of_calls(uint8_t type, uint8_t name_len, uint32_t len)
{
	struct {
		struct rec_cm m;
		uint8_t data[STREAM_NAME_MAX + STREAM_REQUEST_MAX];
	} r = { .m = { .type = type, .name_len = name_len, .len = len } };

	return flood(&r, (uint32_t)sizeof(r.m) + name_len + len, REC_CM);
}

static int asks(void)
{
	return flood_of_calls(CM_REQ, STREAM_NAME_MAX, STREAM_REQUEST_MAX);
}

static int hangups(void)
{
	return flood_of_calls(CM_CANCEL, 0, 0);
}

static int long_hangups(void)
{
	return flood_of_calls(CM_CANCEL, STREAM_NAME_MAX, STREAM_REQUEST_MAX);
}

static int opens(void)
{
	struct rec_link m = { .type = LINK_OPEN, .src_qpn = 0x4711, .dst_qpn = 0x4712 };

	return flood(&m, sizeof(m), REC_LINK);
}

static atomic_bool watching;

static void *watch(void *most)
{
	size_t now;

	while (atomic_load(&watching)) {
		now = allocated();
		if (now > *(size_t *)most)
			*(size_t *)most = now;
		usleep(500);
	}
	return NULL;
}

static void flooded(child_fn fn, int want)
{
	size_t before = allocated(), most = 0;
	pthread_t t;

	atomic_store(&watching, true);
	REQUIRE(!pthread_create(&t, NULL, watch, &most));
	CHECK_EQ(in_child(fn), want);
	wait_for_no_link();
	atomic_store(&watching, false);
	pthread_join(t, NULL);
	CHECK(most < before + KEPT_MAX);
	CHECK(T_WAIT(allocated() < before + 64 * 1024, PATIENCE_MS));
	CHECK_EQ(in_child(one), 1); /* others are served */
	wait_for_no_link();
}

static void flood_of_requests(void)
{
	flooded(asks, 0);
	flooded(opens, 0);
}

static void flood_of_hangups(void)
{
	flooded(hangups, 3); /* nothing to keep, nothing to answer */
	flooded(long_hangups, 0);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	signal(SIGPIPE, SIG_IGN);
	t_init(argc, argv);
	newcomer = mmap(NULL, sizeof(*newcomer), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (newcomer == MAP_FAILED || pipe(occupied) || pipe(go_on))
		return 1;
	atomic_store(newcomer, -1);
	nursery_open();
	if (link_listen_port(PORT))
		return 1;
	T_RUN(a_process_gets_few_links);
	T_RUN(a_process_keeps_few_waiting);
	T_RUN(idle_links_make_room);
	T_RUN(links_in_use_stay);
	T_RUN(flood_of_requests);
	T_RUN(flood_of_hangups);
	return t_done();
}
