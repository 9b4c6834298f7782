/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams over the link within this process: its two ends are the two processes. The
 * protocol above is a fake one, which keeps what is delivered. */
#include "base/guard.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "shm/dgram_rec.h"
#include "shm/link_rx.h"
#include "shm/setup.h"
#include "shm/pair_test.h"

#include <arpa/inet.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZER 1
#endif
#endif
#ifndef SANITIZER
#define SANITIZER 0
#endif

enum { KEPT = 1 << 16, QKEY = 0x11111111 };

/* ---- the protocol above --------------------------------------------------------- */

struct ud_qp {
	uint32_t qpn;
	struct ibv_cq *cq;
	struct dev_qp dev; /* its number alone */
	atomic_int refs;
	atomic_uint unblocked;
	void *priv;
};

static struct {
	struct lock lock;
	unsigned n;
	pthread_t by;		/* who delivered the last one */
	struct ud_head last;
	uint8_t payload[UD_PAYLOAD_MAX];
	uint32_t imm[KEPT];
} got = { .lock = LOCK_INIT };
static atomic_uint changes;

static atomic_bool queue_is_empty; /* what ud_deliver() says */

bool ud_deliver(const struct ud_head *h, const void *payload, const struct dev_cq *only)
{
	CHECK(!only);
	lock_get(&got.lock);
	got.last = *h;
	got.by = pthread_self();
	memcpy(got.payload, payload, h->len);
	got.imm[got.n % KEPT] = h->imm;
	got.n++;
	lock_put(&got.lock);
	return atomic_load(&queue_is_empty);
}

void ud_unblocked(struct ud_qp *u)
{
	atomic_fetch_add(&u->unblocked, 1);
}

void ud_paths_changed(void)
{
	atomic_fetch_add(&changes, 1);
}

void ud_get(struct ud_qp *u)
{
	atomic_fetch_add(&u->refs, 1);
}

void ud_put(struct ud_qp *u)
{
	atomic_fetch_sub(&u->refs, 1);
}

void **ud_priv(struct ud_qp *u, const struct ud_carrier *c)
{
	(void)c;
	return &u->priv;
}

uint32_t ud_qpn(const struct ud_qp *u)
{
	return u->qpn;
}

struct dev_cq *ud_cq(const struct ud_qp *u)
{
	return to_cq(u->cq);
}

static unsigned delivered(void)
{
	unsigned n;

	lock_get(&got.lock);
	n = got.n;
	lock_put(&got.lock);
	return n;
}

/* ---- two QPs ------------------------------------------------------------------------ */

static const struct ud_carrier *const c = &shm_ud_carrier;
static struct ud_qp a, b;
static union ibv_gid host;
static void *peer; /* of a's path to b */
static struct link *near, *far;

static void ud_open(struct ud_qp *u)
{
	u->cq = ibv_create_cq(ctx, 128, NULL, NULL, 0);
	if (!u->cq || qpn_get(u->cq, &u->qpn))
		abort();
	u->dev.qp.qp_num = u->qpn;
	CHECK(!c->listen(&u->dev));
	CHECK(!c->attach(u));
}

static void ud_close(struct ud_qp *u)
{
	c->detach(u);
	CHECK_EQ(u->refs, 0);
	CHECK(!ibv_destroy_cq(u->cq));
	qpn_put(u->qpn);
}

static void *reach(struct ud_qp *u, uint32_t qpn)
{
	void *p = NULL;

	return c->reaches(u, &host, qpn, &p) == 1 ? p : NULL;
}

/* Nothing that was posted to the loop thread is left. */
static atomic_bool passed;

static void pass_run(struct loop_work *w)
{
	(void)w;
	atomic_store(&passed, true);
}

static void loop_pass(void)
{
	static struct loop_work w = { .run = pass_run };

	atomic_store(&passed, false);
	loop_post(&w);
	CHECK(T_WAIT(atomic_load(&passed), PATIENCE_MS));
}

static void up(void)
{
	host = (union ibv_gid){ 0 };
	loopback_gid(&host);
	ud_open(&a);
	ud_open(&b);
	CHECK(T_WAIT((peer = reach(&a, b.qpn)), PATIENCE_MS));
	setups_lock();
	near = setups.self[0];
	far = setups.self[1];
	setups_unlock();
}

static void down(void)
{
	c->drop(peer);
	ud_close(&a);
	ud_close(&b);
}

/* A datagram from a to b, of one piece. */
static struct ud_out out_of(const void *payload, uint16_t len)
{
	struct ud_out o = {
		.head = { .kind = UD_DATA, .hop_limit = 64, .len = len, .src_qpn = a.qpn,
			  .dst_qpn = b.qpn, .qkey = QKEY, .sgid = host, .dgid = host },
		.first = 1,
		.n = len ? 1 : 0,
	};

	o.iov[1] = (struct iovec){ (void *)(uintptr_t)payload, len };
	return o;
}

static void send_one(struct ud_out *o)
{
	unsigned n = delivered();

	CHECK_EQ(c->send(&a, peer, o, 1), 1);
	CHECK(T_WAIT(delivered() == n + 1, PATIENCE_MS));
}

/* ---- cases --------------------------------------------------------------------------- */

static void every_length_arrives(void)
{
	static const uint16_t len[] = { 0, 1, 31, 32, 33, 64, 448, 449, 512, 4095, 4096 };

	up();
	for (unsigned i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		struct ud_out o = out_of(mem + i, len[i]);

		o.head.flags = i & 1 ? UD_IMM | UD_SOLICITED : 0;
		o.head.imm = i;
		send_one(&o);
		CHECK_EQ(got.last.len, len[i]);
		CHECK_EQ(got.last.flags, o.head.flags);
		CHECK_EQ(got.last.src_qpn, a.qpn);
		CHECK_EQ(got.last.dst_qpn, b.qpn);
		CHECK_EQ(got.last.qkey, QKEY);
		CHECK(!memcmp(&got.last.sgid, &host, sizeof(host)));
		CHECK(!memcmp(got.payload, mem + i, len[i]));
	}
	down();
}

/* The payload in many pieces, the addresses in the address vector. */
static void pieces_and_an_address_vector(void)
{
	struct ud_out o = out_of(mem, 1000);
	struct dev_av av = { .sgid = host };

	up();
	av.sgid = av.attr.grh.dgid = host;
	o = out_of(mem, 1000);
	o.av = &av;
	o.head.sgid = o.head.dgid = (union ibv_gid){ 0 };
	o.n = 10;
	for (unsigned i = 0; i < 10; i++)
		o.iov[1 + i] = (struct iovec){ mem + 5000 - i * 300, 100 };
	send_one(&o);
	for (unsigned i = 0; i < 10; i++)
		CHECK(!memcmp(got.payload + i * 100, mem + 5000 - i * 300, 100));
	CHECK(!memcmp(&got.last.dgid, &host, sizeof(host)));
	down();
}

/* What belongs to others is not delivered, and what comes next is. */
static void sources_that_are_not_believed(void)
{
	union ibv_gid other;
	struct ud_out o;
	unsigned n;

	up();
	CHECK(inet_pton(AF_INET6, "::ffff:192.0.2.77", other.raw) == 1);
	n = delivered();
	o = out_of(mem, 64);
	o.head.src_qpn += 256;
	CHECK_EQ(c->send(&a, peer, &o, 1), 1);
	o = out_of(mem, 64);
	o.head.sgid = other;
	CHECK_EQ(c->send(&a, peer, &o, 1), 1);
	o = out_of(mem, 64);
	o.head.dgid = other;
	CHECK_EQ(c->send(&a, peer, &o, 1), 1);
	o = out_of(mem, 64);
	CHECK_EQ(c->send(&a, peer, &o, 1), 1);
	CHECK(T_WAIT(delivered() == n + 1, PATIENCE_MS));
	CHECK_EQ(got.last.src_qpn, a.qpn);
	lock_get(&far->rx_lock);
	CHECK_EQ(far->dgrams.refused, 3);
	lock_put(&far->rx_lock);
	CHECK(!far->dead);
	down();
}

/* Memory that the application has unmapped: nothing is sent, and the ring is as it was. */
static void an_unmapped_payload(void)
{
	struct ud_out o[2];
	unsigned n;

	SKIP_IF(SANITIZER, "the sanitizer has the signal");
	up();
	n = delivered();
	o[0] = out_of(mem, 8);
	for (unsigned len = 64; len <= 4096; len *= 8) {
		o[1] = out_of((void *)4096, (uint16_t)len);
		CHECK_EQ(c->send(&a, peer, &o[1], 1), -EFAULT);
		CHECK_EQ(c->send(&a, peer, o, 2), 1);
	}
	CHECK(T_WAIT(delivered() == n + 3, PATIENCE_MS));
	o[0].head.flags = UD_IMM;
	o[0].head.imm = 7;
	send_one(&o[0]);
	down();
}

/* The pollers of b's CQ receive what comes for b, and the loop thread does not. */
static void pollers_receive(void)
{
	unsigned n, mine = 0;
	struct ud_out o;

	up();
	o = out_of(mem, 64);
	for (int i = 0; i < 100000 && mine < 100; i++) {
		n = delivered();
		CHECK_EQ(c->send(&a, peer, &o, 1), 1);
		do
			poll_run(to_cq(b.cq));
		while (delivered() == n);
		lock_get(&got.lock);
		mine = pthread_equal(got.by, pthread_self()) ? mine + 1 : 0;
		lock_put(&got.lock);
	}
	CHECK_EQ(mine, 100);
	CHECK_EQ(atomic_load(&near->tx.sh->consumer_sleeps), 0);
	down();
}

/* A poll ends when a receive queue is empty: the application gets what has come. */
static void a_poll_ends_with_the_last_receive(void)
{
	unsigned n, before, steps = 0;
	struct ud_out o;

	up();
	o = out_of(mem, 64);
	atomic_store(&queue_is_empty, true);
	/* Some are the loop thread's, as long as there is no lease. */
	for (int tries = 0; tries < 10000 && steps != 5; tries++) {
		n = delivered();
		steps = 0;
		for (int k = 0; k < 5; k++)
			CHECK_EQ(c->send(&a, peer, &o, 1), 1);
		while ((before = delivered()) != n + 5) {
			poll_run(to_cq(b.cq));
			steps += delivered() == before + 1;
		}
	}
	CHECK_EQ(steps, 5);
	atomic_store(&queue_is_empty, false);
	down();
}

/* ---- room ---------------------------------------------------------------------------- */

static struct ring_shared empty;
static struct ring_rx stopped;

/* The far end takes nothing: it looks at another ring. */
static void far_stop(void)
{
	lock_get(&far->rx_lock);
	stopped = far->rx;
	far->rx = (struct ring_rx){ .sh = &empty };
	lock_put(&far->rx_lock);
}

static void far_go(void)
{
	lock_get(&far->rx_lock);
	far->rx = stopped;
	link_wake_thread(far);
	lock_put(&far->rx_lock);
}

/* Sends, numbered from `from`, until there is no room. Their number. */
static unsigned fill(unsigned from, uint16_t len)
{
	struct ud_out o = out_of(mem, len);
	unsigned n = 0;
	int ret;

	o.head.flags = UD_IMM;
	do {
		o.head.imm = from + n;
		ret = c->send(&a, peer, &o, 1);
		n += ret == 1;
	} while (ret == 1);
	CHECK_EQ(ret, 0);
	return n;
}

static void datagrams_wait_for_room(void)
{
	unsigned first, sent = 0;

	up();
	first = delivered();
	for (unsigned round = 0; round < 20; round++) {
		unsigned before = atomic_load(&a.unblocked), n;

		far_stop();
		n = fill(sent, round & 1 ? 4096 : 64);
		CHECK(atomic_load(&near->tx_waiting));
		far_go();
		sent += n;
		/* In turn: only one that was unblocked may send again. */
		CHECK(T_WAIT(atomic_load(&a.unblocked) == before + 1, PATIENCE_MS));
	}
	CHECK(sent > 2000);
	CHECK(T_WAIT(delivered() == first + sent, PATIENCE_MS));
	for (unsigned i = 0; i < sent; i++)
		CHECK_EQ(got.imm[(first + i) % KEPT], i);
	CHECK(!near->dgrams.stalled);
	down();
}

/* One that takes nothing holds up its senders for a while only. When it goes on, the first
 * ones arrive, those in between are lost, and the next ones arrive. */
static void a_peer_that_stands_still(void)
{
	unsigned first, kept, before = atomic_load(&a.unblocked);
	struct ud_out o;

	up();
	first = delivered();
	far_stop();
	kept = fill(0, 512);
	CHECK(T_WAIT(atomic_load(&a.unblocked) == before + 1, PATIENCE_MS));
	o = out_of(mem, 512);
	for (unsigned i = 0; i < 3000; i++)
		CHECK_EQ(c->send(&a, peer, &o, 1), 1);
	lock_get(&near->tx_lock);
	CHECK(near->dgrams.stalled);
	CHECK(near->dgrams.lost > 0);
	kept += 3000 - (unsigned)near->dgrams.lost;
	lock_put(&near->tx_lock);
	far_go();
	CHECK(T_WAIT(delivered() == first + kept, PATIENCE_MS));
	send_one(&o);
	down();
}

/* A QP that goes away while it waits. */
static void a_path_ends_while_it_waits(void)
{
	up();
	far_stop();
	fill(0, 4096);
	c->drop(peer);
	CHECK(list_empty(&near->dgrams.waiting));
	far_go();
	CHECK(T_WAIT((peer = reach(&a, b.qpn)), PATIENCE_MS));
	down();
}

/* ---- beside streams ------------------------------------------------------------------ */

/* A stream and datagrams wait for the same room: both get some, and all arrives. */
static void streams_and_datagrams_share_the_room(void)
{
	unsigned first, sent = 0, done = 0, posted = 0;
	struct ud_out o = out_of(mem, 2048);
	struct ibv_wc wc;
	struct pair p;

	up();
	pair_open(&p, NULL);
	o = out_of(mem, 2048);
	first = delivered();
	while (done < 200) {
		if (posted < 200 && posted - done < 8) {
			post_recv_of(&p.b, 1, recv_mem(), 32768);
			post_send_of(&p.a, 2, 32768, IBV_SEND_SIGNALED);
			posted++;
		}
		for (int i = 0; i < 100 && c->send(&a, peer, &o, 1) == 1; i++)
			sent++;
		done += (unsigned)ibv_poll_cq(p.a.cq, 1, &wc);
		while (ibv_poll_cq(p.b.cq, 1, &wc))
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	}
	CHECK(sent > 100);
	CHECK(T_WAIT(delivered() >= first + sent, PATIENCE_MS));
	pair_close(&p);
	down();
}

/* ---- routes ------------------------------------------------------------------------- */

/* An address of another host, and a port that nobody has: no, and it is remembered. */
static void processes_without_a_link(void)
{
	enum { PORT = 7 };
	struct ud_qp x = { .qpn = PORT << 8 | 1 };
	union ibv_gid other;
	unsigned before;
	void *p = NULL;

	up();
	CHECK(inet_pton(AF_INET6, "::ffff:192.0.2.77", other.raw) == 1);
	CHECK_EQ(c->reaches(&a, &other, b.qpn, &p), 0);
	CHECK_EQ(c->reaches(&a, &host, x.qpn, &p), 0);
	loop_pass(); /* it asks, */
	loop_pass(); /* and hears that nobody is there */
	CHECK(!link_listen_port(PORT));
	before = atomic_load(&changes);
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(c->reaches(&a, &host, x.qpn, &p), 0);
		loop_pass();
	}
	CHECK_EQ(atomic_load(&changes), before);
	/* Until the process itself comes. */
	CHECK(T_WAIT((p = reach(&x, a.qpn)), PATIENCE_MS));
	CHECK(atomic_load(&changes) > before + 1);
	c->drop(p);
	CHECK_EQ(x.refs, 0);
	down();
}

static struct link *to_break;

static void break_run(struct loop_work *w)
{
	(void)w;
	link_break(to_break, "the test breaks it");
	atomic_store(&passed, true);
}

/* Last: the process has no link to itself any more. */
static void a_link_ends(void)
{
	static struct loop_work w = { .run = break_run };
	unsigned before, blocked;
	struct ud_out o;

	up();
	o = out_of(mem, 64);
	before = atomic_load(&changes);
	blocked = atomic_load(&a.unblocked);
	far_stop();
	fill(0, 4096);
	to_break = near;
	atomic_store(&passed, false);
	loop_post(&w);
	CHECK(T_WAIT(atomic_load(&passed), PATIENCE_MS));
	CHECK_EQ(c->send(&a, peer, &o, 1), -EPIPE);
	CHECK(atomic_load(&changes) > before);
	CHECK_EQ(atomic_load(&a.unblocked), blocked + 1);
	down();
	CHECK(!a.refs && !b.refs);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	lock_init(&got.lock);
	if (!pair_device_open())
		abort();
	guard_install();
	T_RUN(every_length_arrives);
	T_RUN(pieces_and_an_address_vector);
	T_RUN(sources_that_are_not_believed);
	T_RUN(an_unmapped_payload);
	T_RUN(pollers_receive);
	T_RUN(a_poll_ends_with_the_last_receive);
	T_RUN(datagrams_wait_for_room);
	T_RUN(a_peer_that_stands_still);
	T_RUN(a_path_ends_while_it_waits);
	T_RUN(streams_and_datagrams_share_the_room);
	T_RUN(processes_without_a_link);
	T_RUN(a_link_ends);
	pair_device_close();
	return t_done();
}
