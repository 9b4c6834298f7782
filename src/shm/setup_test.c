/* SPDX-License-Identifier: BSD-2-Clause */
/* Hostile processes of the same user that make as many links and setups as they can. */
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

static int connect_to_listener(void)
{
	struct sockaddr_un un;
	struct link_name name;
	socklen_t len;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	link_name_of_port(PORT, &name);
	len = link_name_address(&name, &un);
	return connect(fd, (struct sockaddr *)&un, len) ? -1 : fd;
}

/* The child's end of a link. */
struct end {
	int sock, wake; /* wake: the other side's eventfd */
	struct link_segment *seg;
};

/* Makes a link with this id. 1; or 0: it was refused. The descriptors stay open. */
static int link_open(uint64_t word, struct end *e)
{
	struct link_id id = { { word, (uint64_t)getpid() } };
	struct pollfd p = { .fd = connect_to_listener(), .events = POLLIN };
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
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ?
		       WEXITSTATUS(status) :
		       -1;
}

/* A process without threads that forks the children. In a child of the test itself a lock
 * might be held by a thread that the child does not have. */
static int forker;

static void forker_start(void)
{
	child_fn fn;
	int fd[2], ret;

	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd));
	forker = fd[0];
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

	CHECK_EQ(write(forker, &fn, sizeof(fn)), (int)sizeof(fn));
	CHECK_EQ(read(forker, &ret, sizeof(ret)), (int)sizeof(ret));
	return ret;
}

static unsigned links(void)
{
	struct link *l;
	unsigned n = 0;

	setups_lock();
	list_for_each(l, &setups.links, node)
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
	CHECK_EQ(in_child(one), 1); /* another process gets its link */
	wait_for_no_link();
	CHECK_EQ(in_child(many), LINKS_PER_PROCESS); /* ended links do not count */
	wait_for_no_link();
}

static bool ended(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, (int)t_scaled(PATIENCE_MS)) == 1;
}

/* Connects too often and sends nothing: the first connections are closed long before
 * their time is over. */
static int silent(void)
{
	static int fd[SETUPS_PER_PROCESS + MORE];
	struct pollfd last;

	for (int i = 0; i < SETUPS_PER_PROCESS + MORE; i++) {
		fd[i] = connect_to_listener();
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

/* ---- links in all ---------------------------------------------------------------- */

enum { FEW = 4 };

static void links_max(unsigned n)
{
	setups_lock();
	setups.links_max = n;
	setups_unlock();
}

/* Links without streams are ended for new ones. */
static void idle_links_make_room(void)
{
	links_max(FEW);
	CHECK_EQ(in_child(many), TRIES);
	CHECK(links() <= FEW + 1); /* the last one may not have ended yet */
	wait_for_no_link();
	links_max(LINKS_ALL);
}

/* Puts a stream on each link. */
static unsigned use_all(struct stream **s)
{
	struct link *l;
	unsigned n = 0;

	setups_lock();
	list_for_each(l, &setups.links, node) {
		s[n] = calloc(1, sizeof(struct shm_stream));
		list_init(&to_shm(s[n])->after_rx);
		list_init(&to_shm(s[n])->blocked);
		CHECK(!link_slot_alloc(l, s[n]));
		n++;
	}
	setups_unlock();
	return n;
}

static void free_all(struct stream **s, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		link_slot_free(to_shm(s[i])->l, to_shm(s[i])->slot, false);
		link_put(to_shm(s[i])->l);
		free(s[i]);
	}
}

static int in_use[2], go_on[2];
static _Atomic int *another; /* shared: result of another process; -1: none yet */

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
	if (read(in_use[0], &c, 1) == 1)
		atomic_store(another, run_child(one));
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
	CHECK_EQ(use_all(s), FEW);
	CHECK_EQ(write(in_use[1], "", 1), 1);
	CHECK(T_WAIT(atomic_load(another) >= 0, 2 * PATIENCE_MS));
	CHECK_EQ(atomic_load(another), 0);
	CHECK_EQ(links(), FEW);
	free_all(s, FEW);
	CHECK_EQ(write(go_on[1], "", 1), 1);
	pthread_join(t, NULL);
	CHECK_EQ(had, FEW);
	wait_for_no_link();
	links_max(LINKS_ALL);
}

/* ---- records --------------------------------------------------------------------- */

/* Bytes that one hostile process can make us keep, and what the rest of the test
 * needs. */
enum { KEPT_MAX = LINK_QUEUED_BYTES * 2 + 4 * 1024 * 1024, RECORDS = 400000 };

static size_t allocated(void)
{
	return mallinfo2().uordblks;
}

/* Sends this record again and again, and reads no replies. 0: the link was broken. */
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
			atomic_store(&tx.sh->producer_waits, 1);
			/* The ring is full, or the link is broken: then the socket is
			 * readable. */
			greeting_wake(e.wake);
			if (poll(&p, 1, 1) > 0)
				return 0;
		}
		memcpy(at + 4, (const uint8_t *)rec + 4, bytes - 4);
		ring_publish(&tx, bytes, (uint8_t)kind);
	}
	return poll(&p, 1, 0) > 0 ? 0 : 3;
}

static int flood_of_cm(uint8_t type, uint8_t name_len, uint32_t len)
{
	struct {
		struct rec_cm m;
		uint8_t data[STREAM_NAME_MAX + STREAM_REQUEST_MAX];
	} r = { .m = { .type = type, .name_len = name_len, .len = len } };

	return flood(&r, (uint32_t)sizeof(r.m) + name_len + len, REC_CM);
}

static int cm_requests(void)
{
	return flood_of_cm(CM_REQ, STREAM_NAME_MAX, STREAM_REQUEST_MAX);
}

static int cm_cancels(void)
{
	return flood_of_cm(CM_CANCEL, 0, 0);
}

static int long_cm_cancels(void)
{
	return flood_of_cm(CM_CANCEL, STREAM_NAME_MAX, STREAM_REQUEST_MAX);
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
	CHECK_EQ(in_child(one), 1); /* other processes are served */
	wait_for_no_link();
}

static void flood_of_requests(void)
{
	flooded(cm_requests, 0);
	flooded(opens, 0);
}

static void flood_of_cancels(void)
{
	flooded(cm_cancels, 3); /* nothing is kept, nothing is sent */
	flooded(long_cm_cancels, 0);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	signal(SIGPIPE, SIG_IGN);
	t_init(argc, argv);
	another = mmap(NULL, sizeof(*another), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (another == MAP_FAILED || pipe(in_use) || pipe(go_on))
		return 1;
	atomic_store(another, -1);
	forker_start();
	if (link_listen_port(PORT))
		return 1;
	T_RUN(a_process_gets_few_links);
	T_RUN(a_process_keeps_few_waiting);
	T_RUN(idle_links_make_room);
	T_RUN(links_in_use_stay);
	T_RUN(flood_of_requests);
	T_RUN(flood_of_cancels);
	return t_done();
}
