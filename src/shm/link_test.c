/* SPDX-License-Identifier: BSD-2-Clause */
/* A full ring: streams and messages that wait for room get it, though nothing else is
 * sent. The test has both ends of the link and runs them itself; the loop thread runs
 * them only when the link posts work to it. */
#include "shm/link_rx.h"
#include "shm/greeting.h"
#include "rc/tx.h"
#include "shm/cm.h"
#include "shm/dgram_rec.h"
#include "shm/setup.h"
#include "tests/t.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ROUNDS = 500, PATIENCE_MS = 10000, CTLS = 3000 };

static struct link_segment *seg;
static struct link *from, *to; /* producer and consumer */
static int from_set, to_set;   /* epoll sets with their eventfds, as the loop has them */

static int set_of(const struct link *l)
{
	struct epoll_event ev = { .events = l->wake.events };
	int set = epoll_create1(EPOLL_CLOEXEC);

	/* The first event comes from being added. */
	if (epoll_ctl(set, EPOLL_CTL_ADD, l->wake.fd, &ev) ||
	    epoll_wait(set, &ev, 1, 0) != 1)
		abort();
	return set;
}

static void up(void)
{
	struct link_id id = { { 1, 2 } };
	struct link_fds fds[2];

	seg = link_segment_map(-1);
	for (int i = 0; i < 2; i++) {
		fds[i].wake = greeting_wake_new(&fds[!i].peer_wake);
		fds[i].sock = -1;
	}
	if (!seg || link_new(seg, 0, &id, &fds[0], &from) ||
	    link_new(seg, 1, &id, &fds[1], &to))
		abort();
	from_set = set_of(from);
	to_set = set_of(to);
}

/* After the work that was posted to the loop thread is done. */
static void down(void)
{
	CHECK(T_WAIT(atomic_load(&from->refs) == 1 && atomic_load(&to->refs) == 1,
		     PATIENCE_MS));
	close(from_set);
	close(to_set);
	close(from->wake.fd);
	if (!to->dead) /* link_break() closes it */
		close(to->wake.fd);
	link_put(from);
	link_put(to);
	munmap(seg, sizeof(*seg));
}

/* For a slot without a stream: it is received and ignored. */
static const struct rec_link announce = { .type = LINK_ANNOUNCE, .slot = 7 };

/* The loop thread would have been woken since the last call, or since up(). */
static bool woken(struct link *l, int ms)
{
	struct epoll_event ev;

	return epoll_wait(l == from ? from_set : to_set, &ev, 1, ms) == 1;
}

static void update_sleep(struct link *l)
{
	lock_get(&l->rx_lock);
	link_update_sleep(l);
	lock_put(&l->rx_lock);
}

static void consume_all(void)
{
	while (link_run(to, true))
		;
}

static void send_until_some_wait(void)
{
	while (!atomic_load(&from->tx_waiting))
		CHECK_EQ(link_send(from, &announce), 0);
}

/* As a stream does that finds room: it does not know that others wait. */
static void fill_the_ring(void)
{
	void *at;

	lock_get(&from->tx_lock);
	while ((at = ring_reserve(&from->tx, sizeof(announce)))) {
		memcpy(at, &announce, sizeof(announce));
		ring_publish(&from->tx, sizeof(announce), REC_LINK);
	}
	lock_put(&from->tx_lock);
}

static void a_waiting_producer_is_woken(void)
{
	up();
	update_sleep(from);
	send_until_some_wait();
	CHECK(!woken(from, 0));
	consume_all();
	CHECK(woken(from, 0));
	link_run(from, true);
	CHECK(!atomic_load(&from->tx_waiting));
	down();
}

/* The consumer clears producer_waits while the producer's thread is awake, and another
 * has used the room when that thread checks once more before it sleeps. */
static void another_uses_the_room(void)
{
	up();
	send_until_some_wait();
	while (atomic_load(&from->tx.sh->producer_waits))
		CHECK(link_run(to, true));
	CHECK(!woken(from, 0)); /* it is awake */
	fill_the_ring();
	update_sleep(from);
	CHECK(!woken(from, 0)); /* there is no room */
	consume_all();
	CHECK(woken(from, 0));
	link_run(from, true);
	CHECK(!atomic_load(&from->tx_waiting));
	down();
}

static _Atomic bool stop;

/* What the loop thread does for a link. */
static void *loop_thread(void *arg)
{
	struct link *l = arg;

	while (!atomic_load(&stop))
		if (woken(l, 1))
			link_wake_ready(&l->wake, EPOLLIN);
	return NULL;
}

static bool queue_is_sent(void)
{
	uint64_t end = loop_now() + t_scaled(PATIENCE_MS) * MSEC;

	while (atomic_load(&from->tx_waiting) && loop_now() < end)
		;
	return !atomic_load(&from->tx_waiting);
}

/* As often as possible at the same time as the consumer's last check. */
static void no_wakeup_is_lost(void)
{
	pthread_t th[2];
	int i;

	up();
	atomic_store(&stop, false);
	update_sleep(from);
	update_sleep(to);
	pthread_create(&th[0], NULL, loop_thread, from);
	pthread_create(&th[1], NULL, loop_thread, to);
	for (i = 0; i < ROUNDS; i++) {
		/* More than fits: in the end some messages wait, or have waited. */
		for (int k = 0; k < RING_LINES; k++)
			CHECK_EQ(link_send(from, &announce), 0);
		if (!queue_is_sent())
			break;
	}
	CHECK_EQ(i, ROUNDS);
	atomic_store(&stop, true);
	pthread_join(th[0], NULL);
	pthread_join(th[1], NULL);
	down();
}

/* A stream with more to send than fits the ring. */
static struct stream *busy_stream(void)
{
	struct stream_param p = { .extended = true };
	struct rc_frame h = { .op = RC_CTL, .last = true };
	struct shm_stream *t = shm_new(&p);
	struct stream *s = &t->s;

	if (!t || link_slot_alloc(from, s))
		abort();
	to_shm(s)->started = to_shm(s)->opened = true;
	h.ctl.type = CTL_USER;
	h.ctl.len = RC_CTL_DATA;
	lock_get(&s->lock);
	for (int i = 0; i < CTLS; i++)
		tx_ctl(s, &h);
	tx_run(s);
	stream_unlock(s);
	return s;
}

static void busy_stream_end(struct stream *s)
{
	link_slot_free(from, to_shm(s)->slot, false);
	link_put(from);
	shm_drop(s);
}

static uint64_t sent(const struct stream *s)
{
	return CTLS - s->tx.nctl;
}

static void every_stream_has_a_turn(void)
{
	enum { N = 3 };
	uint64_t before[N];
	struct stream *s[N];

	up();
	for (int i = 0; i < N; i++)
		s[i] = busy_stream();
	CHECK(sent(s[0]) && !sent(s[1]) && !sent(s[2]));
	for (int i = 0; i < 2 * N; i++) {
		for (int k = 0; k < N; k++)
			before[k] = sent(s[k]);
		consume_all();
		link_run(from, true);
		for (int k = 0; k < N; k++)
			CHECK_EQ(sent(s[k]) > before[k], k == i % N);
	}
	for (int i = 0; i < N; i++)
		busy_stream_end(s[i]);
	down();
}

/* ---- what a peer may send ---------------------------------------------------------- */

static void put(const void *rec, uint32_t bytes, uint8_t kind)
{
	uint8_t *at;

	lock_get(&from->tx_lock);
	at = ring_reserve(&from->tx, bytes);
	memcpy(at + 4, (const uint8_t *)rec + 4, bytes - 4);
	ring_publish(&from->tx, bytes, kind);
	lock_put(&from->tx_lock);
}

/* The record breaks the link, which ends in the loop thread; or it is received. */
static void sends(const void *rec, uint32_t bytes, uint8_t kind, bool breaks)
{
	bool bad;

	up();
	put(rec, bytes, kind);
	CHECK_EQ(link_run(to, true), !breaks);
	lock_get(&to->rx_lock);
	bad = to->bad;
	lock_put(&to->rx_lock);
	CHECK_EQ(bad, breaks);
	/* LINK_OPEN is kept for a QP, and the link with it. */
	CHECK(T_WAIT((shm_open_link_gone(to), atomic_load(&to->refs) == 1), PATIENCE_MS));
	CHECK_EQ(to->dead, breaks);
	CHECK_EQ(ring_has(&to->rx), breaks);
	down();
}

static void kinds_of_records(void)
{
	static const uint8_t rec[RING_RECORD_MAX];

	for (unsigned kind = 1; kind < RING_WRAP; kind++)
		if (kind > REC_DGRAM)
			sends(rec, 64, (uint8_t)kind, true);
	/* One byte less than the least; for a slot without a stream else. */
	sends(rec, sizeof(struct rec_stream) - 1, REC_STREAM, true);
	sends(rec, sizeof(struct rec_stream), REC_STREAM, false);
	sends(rec, RING_RECORD_MAX, REC_STREAM, false);
	sends(rec, sizeof(struct rec_link) - 1, REC_LINK, true);
	sends(rec, sizeof(struct rec_link) + 1, REC_LINK, true);
	sends(rec, sizeof(struct rec_cm) - 1, REC_CM, true);
	sends(rec, sizeof(struct rec_dgram) - 1, REC_DGRAM, true);
	sends(rec, sizeof(struct rec_dgram), REC_DGRAM, false);
	sends(rec, sizeof(struct rec_dgram) + UD_PAYLOAD_MAX, REC_DGRAM, false);
	sends(rec, sizeof(struct rec_dgram) + UD_PAYLOAD_MAX + 1, REC_DGRAM, true);
	sends(rec, 4, REC_STREAM, true);
	sends(rec, 4, REC_LINK, true);
	sends(rec, 4, REC_CM, true);
	sends(rec, 4, REC_DGRAM, true);
}

/* For slots without a stream. */
static void types_of_link_messages(void)
{
	struct rec_link m = { .slot = 7, .from = 3 };

	for (unsigned type = 0; type < 256; type++) {
		m.type = (uint8_t)type;
		sends(&m, sizeof(m), REC_LINK, type < LINK_OPEN || type > LINK_DGRAMS_ANSWER);
	}
}

static void types_of_cm_messages(void)
{
	struct {
		struct rec_cm m;
		uint8_t data[STREAM_NAME_MAX + STREAM_REQUEST_MAX + 2];
	} r = { .m = { .slot = 7, .from = 3 } };
	enum { HEAD = sizeof(r.m) };

	for (unsigned type = 0; type < 256; type++) {
		r.m.type = (uint8_t)type;
		sends(&r, HEAD, REC_CM, type < CM_REQ || type > CM_CANCEL);
	}
	for (unsigned type = CM_REQ; type <= CM_CANCEL; type++) {
		r.m.type = (uint8_t)type;
		r.m.name_len = 1;
		r.m.len = 2;
		sends(&r, HEAD + 3, REC_CM, type == CM_CANCEL);
		sends(&r, HEAD + 2, REC_CM, true);
		sends(&r, HEAD + 4, REC_CM, true);
		r.m.name_len = STREAM_NAME_MAX;
		r.m.len = STREAM_REQUEST_MAX;
		sends(&r, HEAD + STREAM_NAME_MAX + STREAM_REQUEST_MAX, REC_CM,
		      type == CM_CANCEL);
		r.m.name_len++;
		sends(&r, HEAD + STREAM_NAME_MAX + STREAM_REQUEST_MAX + 1, REC_CM, true);
		r.m.name_len--;
		r.m.len++;
		sends(&r, HEAD + STREAM_NAME_MAX + STREAM_REQUEST_MAX + 1, REC_CM, true);
		r.m.name_len = 0;
		r.m.len = 0;
	}
	r.m.type = CM_CANCEL;
	r.m.from = LINK_SLOTS_MAX - 1;
	sends(&r, HEAD, REC_CM, false);
	r.m.from++;
	sends(&r, HEAD, REC_CM, true);
}

/* ---- requests of the CM ------------------------------------------------------------ */

static void nothing(void *user)
{
	(void)user;
}

static atomic_int cancelled, released;

static void on_closed(void *user, int err)
{
	(void)user;
	if (!err) /* else the link is broken */
		atomic_fetch_add(&cancelled, 1);
}

static void on_released(void *user)
{
	(void)user;
	atomic_fetch_add(&released, 1);
}

static const struct stream_user user_ops = { .closed = on_closed, .released = on_released };

enum { REQS = 300 };
static struct stream *incoming[REQS + 1];
static atomic_int nincoming;

static int on_incoming(void *user, struct stream *s, const uint8_t *req, size_t len)
{
	(void)user, (void)req, (void)len;
	if (atomic_load(&nincoming) > REQS)
		return -EBUSY;
	stream_adopt(s, &user_ops, &incoming);
	incoming[atomic_fetch_add(&nincoming, 1)] = s;
	return 0;
}

static const struct listener_user listener_ops = { on_incoming, nothing };

static struct stream_listener *listener_open(int *fd, char name[STREAM_NAME_MAX])
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int n;

	snprintf(name, STREAM_NAME_MAX, "anyrdma-link-test-%d", (int)getpid());
	n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "%s", name);
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(*fd, (struct sockaddr *)&un,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)))
		abort();
	atomic_store(&nincoming, 0);
	atomic_store(&cancelled, 0);
	atomic_store(&released, 0);
	return stream_listen(*fd, name, &listener_ops, NULL);
}

static void cm_message(enum cm_type type, uint32_t slot, const char *name)
{
	struct {
		struct rec_cm m;
		char name[STREAM_NAME_MAX];
	} r = { .m = { .type = (uint8_t)type, .from = slot } };

	r.m.name_len = (uint8_t)strlen(name);
	memcpy(r.name, name, r.m.name_len);
	put(&r, (uint32_t)sizeof(r.m) + r.m.name_len, REC_CM);
	link_run(to, true);
}

static bool is_dead(struct link *l)
{
	bool dead;

	lock_get(&l->rx_lock);
	dead = l->dead;
	lock_put(&l->rx_lock);
	return dead;
}

static void release_all(void)
{
	int n = atomic_load(&nincoming);

	for (int i = 0; i < n; i++)
		stream_release(incoming[i]);
	CHECK(T_WAIT(atomic_load(&released) == n, PATIENCE_MS));
}

/* Each cancels the request of its slot and no other, in any order; the slot may be used
 * again. A second request of a slot whose first waits breaks the link. */
static void requests_are_cancelled(void)
{
	char name[STREAM_NAME_MAX];
	struct stream_listener *ln;
	int fd;

	up();
	ln = listener_open(&fd, name);
	CHECK(ln);
	for (uint32_t i = 0; i < REQS; i++)
		cm_message(CM_REQ, i, name);
	CHECK(T_WAIT(atomic_load(&nincoming) == REQS, PATIENCE_MS));
	for (uint32_t i = 0; i < REQS; i += 2)
		cm_message(CM_CANCEL, REQS - 2 - i, "");
	CHECK(T_WAIT(atomic_load(&cancelled) == REQS / 2, PATIENCE_MS));
	for (int i = 0; i < REQS; i++) {
		stream_lock(incoming[i]);
		CHECK_EQ(incoming[i]->state, i % 2 ? STREAM_OPEN : STREAM_BROKEN);
		stream_unlock(incoming[i]);
	}
	cm_message(CM_CANCEL, 2, ""); /* the second time */
	cm_message(CM_REQ, 2, name);
	CHECK(T_WAIT(atomic_load(&nincoming) == REQS + 1, PATIENCE_MS));
	CHECK(!is_dead(to));
	CHECK_EQ(atomic_load(&cancelled), REQS / 2);
	cm_message(CM_REQ, 3, name);
	CHECK(T_WAIT(is_dead(to), PATIENCE_MS));
	CHECK_EQ(atomic_load(&nincoming), REQS + 1);
	release_all();
	stream_unlisten(ln);
	close(fd);
	down();
}

/* ---- turns --------------------------------------------------------------------------- */

static _Atomic bool held_thread, let_go;
static unsigned left; /* messages, when the work ran that was posted behind them */

static void hold_run(struct loop_work *w)
{
	(void)w;
	atomic_store(&held_thread, true);
	T_WAIT(atomic_load(&let_go), PATIENCE_MS);
}

static _Atomic bool looked;

static void look_run(struct loop_work *w)
{
	(void)w;
	lock_get(&to->rx_lock);
	left = to->ncm_msgs;
	lock_put(&to->rx_lock);
	atomic_store(&looked, true);
}

static unsigned messages_left(void)
{
	unsigned n;

	lock_get(&to->rx_lock);
	n = to->ncm_msgs;
	lock_put(&to->rx_lock);
	return n;
}

/* The loop thread has other things to do, however many messages a peer sends. */
static void messages_are_handled_in_turns(void)
{
	static struct loop_work hold = { .run = hold_run }, look = { .run = look_run };
	enum { N = 3 * LINK_CM_TURN };

	up();
	loop_post(&hold);
	CHECK(T_WAIT(atomic_load(&held_thread), PATIENCE_MS));
	for (uint32_t i = 0; i < N; i++)
		cm_message(CM_CANCEL, i, "");
	CHECK_EQ(messages_left(), N);
	loop_post(&look);
	atomic_store(&let_go, true);
	CHECK(T_WAIT(atomic_load(&looked), PATIENCE_MS));
	CHECK(left > 0);
	CHECK(T_WAIT(!messages_left(), PATIENCE_MS));
	down();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(kinds_of_records);
	T_RUN(types_of_link_messages);
	T_RUN(types_of_cm_messages);
	T_RUN(requests_are_cancelled);
	T_RUN(messages_are_handled_in_turns);
	T_RUN(a_waiting_producer_is_woken);
	T_RUN(another_uses_the_room);
	T_RUN(no_wakeup_is_lost);
	T_RUN(every_stream_has_a_turn);
	return t_done();
}
