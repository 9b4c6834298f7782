/* SPDX-License-Identifier: BSD-2-Clause */
/* Deregistering memory while another process says, by its word, that it accesses it. */
#include "dev/share.h"
#include "dev/verbs.h"
#include "shm/greeting.h"
#include "tests/t.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { SHORT_MS = 100, LONG_MS = 60000 };

static struct dev_ctx *ctx;
static struct dev_pd *pd;
static struct link_segment *seg;
static struct link *l;
static pid_t peer;
static int peer_sock;
static char buf[64];

static _Atomic bool done;

static void *deregisters(void *mr)
{
	mr_dereg(mr);
	atomic_store(&done, true);
	return NULL;
}

static bool done_within(unsigned ms)
{
	return T_WAIT(atomic_load(&done), ms);
}

/* A link to a process that has our keys and does nothing. */
static void up(void)
{
	struct link_id id = { { 1, 2 } };
	struct link_fds fds;
	int s[2], give[2];

	peer = fork();
	if (!peer)
		for (;;)
			pause();
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s) || link_segment_new(&seg) < 0)
		abort();
	fds.wake = greeting_wake_new(&give[0]);
	fds.peer_wake = greeting_wake_new(&give[1]);
	fds.sock = s[0];
	if (link_new(seg, 0, &id, &fds, &l))
		abort();
	peer_sock = s[1];
	l->peer_pid = peer;
	direct_create(l, 0);
	direct_set_keys(l->direct, DIRECT_KEYS_PROVED);
	close(give[0]);
	close(give[1]);
}

static void down(void)
{
	kill(peer, SIGKILL);
	waitpid(peer, NULL, 0);
	close(peer_sock);
	close(l->wake.fd);
	close(l->sock.fd);
	link_put(l);
}

/* Deregisters what the peer's word names. */
static pthread_t begin(_Atomic uint64_t **word)
{
	struct dev_mr *mr;
	pthread_t th;

	if (mr_reg(pd, buf, sizeof(buf), (uintptr_t)buf,
		   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, &mr))
		abort();
	*word = &seg->direct[1].user[0].word;
	atomic_store(&seg->direct[1].words_used, 1);
	atomic_store(*word, (uint64_t)mr->mr.rkey << 32 | 1);
	atomic_store(&done, false);
	pthread_create(&th, NULL, deregisters, mr);
	return th;
}

static void waits_while_a_word_names_it(void)
{
	_Atomic uint64_t *word;
	pthread_t th;

	up();
	th = begin(&word);
	CHECK(!done_within(SHORT_MS));
	atomic_store(word, 0);
	CHECK(done_within(LONG_MS));
	pthread_join(th, NULL);
	down();
}

static void waits_though_the_link_is_broken(void)
{
	_Atomic uint64_t *word;
	uint64_t from;
	pthread_t th;

	up();
	th = begin(&word);
	from = loop_now();
	direct_break(l->direct);
	/* Not for more than a second: not_for_ever_then(). */
	CHECK(!done_within(SHORT_MS) || loop_now() - from >= SEC);
	atomic_store(word, 0);
	CHECK(done_within(LONG_MS));
	pthread_join(th, NULL);
	down();
}

static void not_for_ever_then(void)
{
	_Atomic uint64_t *word;
	pthread_t th;

	up();
	direct_break(l->direct);
	th = begin(&word);
	CHECK(done_within(LONG_MS));
	pthread_join(th, NULL);
	th = begin(&word);
	CHECK(done_within(LONG_MS)); /* the second time it does not wait at all */
	pthread_join(th, NULL);
	down();
}

/* A peer that names the memory by one of two words all the time, in turns. */
static void not_for_ever_in_turns(void)
{
	_Atomic uint64_t *word, *other;
	uint64_t value;
	pthread_t th;

	up();
	other = &seg->direct[1].user[1].word;
	th = begin(&word);
	value = atomic_load(word);
	atomic_store(&seg->direct[1].words_used, 2);
	for (int turn = 0; turn < 200 && !done_within(5); turn++) {
		atomic_store(turn % 2 ? word : other, value);
		atomic_store(turn % 2 ? other : word, 0);
	}
	CHECK(atomic_load(&done));
	atomic_store(word, 0);
	atomic_store(other, 0);
	pthread_join(th, NULL);
	down();
}

/* The words of a peer that has not got the keys are ignored. */
static void not_for_a_peer_without_keys(void)
{
	_Atomic uint64_t *word;
	pthread_t th;

	up();
	direct_set_keys(l->direct, DIRECT_KEYS_NONE);
	th = begin(&word);
	CHECK(done_within(LONG_MS));
	pthread_join(th, NULL);
	down();
}

static uint64_t time_for_a_dead_peer(void)
{
	_Atomic uint64_t *word;
	uint64_t from;
	pthread_t th;

	up();
	direct_break(l->direct);
	kill(peer, SIGKILL);
	waitpid(peer, NULL, 0);
	from = loop_now();
	th = begin(&word);
	pthread_join(th, NULL);
	from = loop_now() - from;
	down();
	return from;
}

/* Less than the second for which a living peer is waited for. Several tries, as the
 * machine may be slow. */
static void not_for_a_dead_peer(void)
{
	int slow = 0;

	while (slow < 5 && time_for_a_dead_peer() >= SEC / 2)
		slow++;
	CHECK(slow < 5);
}

int main(int argc, char **argv)
{
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	t_init(argc, argv);
	if (device_open(device_get(0), &ctx) || pd_alloc(ctx, &pd))
		return 1;
	T_RUN(waits_while_a_word_names_it);
	T_RUN(waits_though_the_link_is_broken);
	T_RUN(not_for_ever_then);
	T_RUN(not_for_ever_in_turns);
	T_RUN(not_for_a_peer_without_keys);
	T_RUN(not_for_a_dead_peer);
	CHECK_EQ(pd_dealloc(pd), 0);
	device_close(ctx);
	return t_done();
}
