/* SPDX-License-Identifier: BSD-2-Clause */
/* Sending and receiving datagrams over a link, and the table of the carrier. */
#include "shm/dgram.h"

#include "base/conf.h"
#include "base/log.h"
#include "dev/gid.h"
#include "dev/qpn.h"
#include "dev/sge.h"
#include "shm/dgram_rec.h"
#include "shm/link_rx.h"
#include "shm/setup.h"
#include "ud/count.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	/* Records of up to this size are composed outside of the ring: ring_put(). */
	COMPOSED_MAX = 7 * RING_LINE,
};

/* What a path of a QP has of this carrier. */
struct dgram_peer {
	atomic_int refs;
	struct ud_qp *u; /* counted */
	struct link *l;	 /* counted */
	struct list node; /* link_dgrams.waiting; link.tx_lock */
	bool turn;	 /* it may use what room there is; link.tx_lock */
};

static void peer_put(struct dgram_peer *p)
{
	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	ud_put(p->u);
	link_put(p->l);
	free(p);
}

/* ---- room ------------------------------------------------------------------------ */

static bool has_room(struct link *l)
{
	return list_empty(&l->queued) && ring_reserve(&l->tx, RING_RECORD_MAX);
}

static uint32_t ring_head(const struct link *l)
{
	return atomic_load_explicit(&l->tx.sh->head, memory_order_relaxed);
}

static void timer_set(struct link *l)
{
	lock_assert_held(&l->tx_lock);
	l->dgrams.head = ring_head(l);
	if (loop_timer_set(&l->dgrams.timer, loop_now() + DGRAM_STALL_MS * MSEC))
		link_get(l);
}

/* p waits for room. False: there is some by now. */
static bool wait_for_room(struct dgram_peer *p)
{
	struct link *l = p->l;

	lock_assert_held(&l->tx_lock);
	if (list_linked(&p->node))
		return true;
	if (list_empty(&l->dgrams.waiting))
		timer_set(l);
	p->turn = false;
	list_add_tail(&l->dgrams.waiting, &p->node);
	atomic_store(&l->tx_waiting, true);
	atomic_store(&l->tx.sh->producer_waits, 1);
	/* The peer may have made room before it could see producer_waits. */
	atomic_thread_fence(memory_order_seq_cst);
	if (!has_room(l))
		return true;
	list_del(&p->node);
	link_tx_waiting_update(l);
	return false;
}

/* The peer has taken nothing since datagrams began to wait. */
static bool is_stalled(struct link *l)
{
	lock_assert_held(&l->tx_lock);
	if (l->dgrams.stalled && ring_head(l) != l->dgrams.head) {
		log_info("process %d takes datagrams again: %llu were lost",
			 (int)l->peer_pid, (unsigned long long)l->dgrams.lost);
		l->dgrams.stalled = false;
	}
	return l->dgrams.stalled;
}

/* Runs the senders that wait, at most once each. No lock. */
static void run_waiting(struct link *l, bool all)
{
	struct dgram_peer *p;
	struct list *n;
	unsigned max = 0;

	lock_get(&l->tx_lock);
	list_for_each(p, &l->dgrams.waiting, node)
		max++;
	while (max-- && (all || has_room(l)) && (n = list_pop(&l->dgrams.waiting))) {
		p = list_entry(n, struct dgram_peer, node);
		p->turn = true;
		atomic_fetch_add(&p->refs, 1);
		link_tx_waiting_update(l);
		lock_put(&l->tx_lock);
		ud_unblocked(p->u);
		lock_get(&l->tx_lock);
		p->turn = false;
		lock_put(&l->tx_lock);
		peer_put(p);
		lock_get(&l->tx_lock);
	}
	link_tx_waiting_update(l);
	if (atomic_load(&l->tx_waiting))
		atomic_store(&l->tx.sh->producer_waits, 1); /* the peer may clear it */
	lock_put(&l->tx_lock);
}

void dgram_unblock(struct link *l)
{
	bool run;

	lock_get(&l->tx_lock);
	run = !list_empty(&l->dgrams.waiting) && has_room(l);
	l->dgrams.streams_next = run;
	lock_put(&l->tx_lock);
	if (run)
		run_waiting(l, false);
}

static void stall_timer(struct loop_timer *t)
{
	struct link *l = container_of(t, struct link, dgrams.timer);
	bool stalled = false;

	lock_get(&l->tx_lock);
	if (!list_empty(&l->dgrams.waiting) && !l->dead) {
		stalled = ring_head(l) == l->dgrams.head;
		if (!stalled)
			timer_set(l);
	}
	if (stalled) {
		l->dgrams.stalled = true;
		l->dgrams.lost = 0;
	}
	lock_put(&l->tx_lock);
	if (stalled) {
		log_info("process %d has taken nothing for %d ms: datagrams to it are lost",
			 (int)l->peer_pid, DGRAM_STALL_MS);
		run_waiting(l, true);
	}
	link_put(l);
}

/* ---- sending ---------------------------------------------------------------------- */

static uint32_t head_put(void *at, const struct ud_out *o)
{
	return rec_dgram_put(at, &o->head, o->av ? &o->av->sgid : &o->head.sgid,
			     o->av ? &o->av->attr.grh.dgid : &o->head.dgid);
}

/* 0; -ENOBUFS: there is no room; -EFAULT. */
static int put_composed(struct ring_tx *tx, const struct ud_out *o)
{
	_Alignas(RING_LINE) uint8_t rec[REC_DGRAM_HEAD_MAX + COMPOSED_MAX];
	uint32_t head, bytes;

	/* ring_put() copies the first line whole: nothing of the stack must be in it. */
	memset(rec, 0, RING_LINE);
	head = head_put(rec, o);
	bytes = head + o->head.len;
	if (!ring_reserve(tx, bytes))
		return -ENOBUFS;
	if (o->n && take_iov(rec + head, &o->iov[o->first], (int)o->n))
		return -EFAULT;
	return ring_put(tx, rec, bytes, REC_DGRAM) ? 0 : -ENOBUFS;
}

static int put(struct ring_tx *tx, const struct ud_out *o)
{
	enum { WORD = sizeof(uint32_t) };
	uint8_t rec[REC_DGRAM_HEAD_MAX];
	uint32_t head, bytes;
	uint8_t *at;

	if (o->head.len <= COMPOSED_MAX)
		return put_composed(tx, o);
	head = head_put(rec, o);
	bytes = head + o->head.len;
	at = ring_reserve(tx, bytes);
	if (!at)
		return -ENOBUFS;
	if (take_iov(at + head, &o->iov[o->first], (int)o->n))
		return -EFAULT;
	memcpy(at + WORD, rec + WORD, head - WORD);
	ring_publish(tx, bytes, REC_DGRAM);
	return 0;
}

/* Puts datagrams into the ring. Their number; *err: why there are not more. */
static unsigned put_some(struct link *l, const struct ud_out *out, unsigned n, int *err)
{
	unsigned i = 0;

	lock_assert_held(&l->tx_lock);
	*err = 0;
	while (i < n) {
		*err = put(&l->tx, &out[i]);
		if (*err)
			break;
		i++;
	}
	return i;
}

static int send_locked(struct dgram_peer *p, const struct ud_out *out, unsigned n)
{
	struct link *l = p->l;
	unsigned done = 0;
	int err = -ENOBUFS;

	lock_assert_held(&l->tx_lock);
	if (l->dead)
		return -EPIPE;
	if (p->turn || !atomic_load_explicit(&l->tx_waiting, memory_order_relaxed))
		done = put_some(l, out, n, &err);
	if (done || err != -ENOBUFS)
		return done ? (int)done : err;
	if (is_stalled(l)) {
		l->dgrams.lost += n;
		ud_count_n(UD_LOST_SEND, n);
		return (int)n;
	}
	if (wait_for_room(p))
		return 0;
	done = put_some(l, out, n, &err);
	return done ? (int)done : err;
}

static int send_out(struct ud_qp *u, void *peer, struct ud_out *out, unsigned n)
{
	struct dgram_peer *p = peer;
	int ret;

	(void)u;
	lock_get(&p->l->tx_lock);
	ret = send_locked(p, out, n);
	lock_put(&p->l->tx_lock);
	if (ret > 0)
		link_wake_peer(p->l);
	return ret;
}

/* Only tries locks, as it takes them against their order. */
NO_TSA static bool post_out(struct ud_qp *u, void *peer, const struct ud_out *out)
{
	struct dgram_peer *p = peer;
	struct link *l = p->l;
	bool taken;

	(void)u;
	if (atomic_load_explicit(&l->tx.sh->consumer_sleeps, memory_order_relaxed) ||
	    !lock_try(&l->tx_lock))
		return false;
	taken = !l->dead && !atomic_load_explicit(&l->tx_waiting, memory_order_relaxed) &&
		!put(&l->tx, out);
	lock_put(&l->tx_lock);
	if (taken)
		link_wake_peer(l);
	return taken;
}

/* ---- receiving ---------------------------------------------------------------------- */

static bool gid_same(const union ibv_gid *a, const union ibv_gid *b)
{
	return a->global.subnet_prefix == b->global.subnet_prefix &&
	       a->global.interface_id == b->global.interface_id;
}

/* 127.0.0.5 is an address of this host, too. */
static bool gid_ours(const union ibv_gid *gid)
{
	return gid_is_ours(gid, 0);
}

/* The sender may say so: the port is its own, and the addresses are those of this host, as
 * the kernel has it for UDP. An address that was removed may be taken for one for a
 * while. */
static bool source_believed(struct link_dgrams *d, const struct ud_head *h)
{
	uint16_t port = qpn_port(h->src_qpn);

	if (!d->sources || !(d->sources[port / 8] >> port % 8 & 1))
		return false;
	if (gid_same(&h->sgid, &d->sgid) && gid_same(&h->dgid, &d->dgid))
		return true;
	if (!gid_ours(&h->sgid) || !gid_ours(&h->dgid))
		return false;
	d->sgid = h->sgid;
	d->dgid = h->dgid;
	return true;
}

int dgram_receive(struct link *l, const volatile void *rec, uint32_t bytes,
		  bool by_thread)
{
	struct ud_head h;
	int head;

	(void)by_thread;
	lock_assert_held(&l->rx_lock);
	l->dgrams.rest = false;
	head = rec_dgram_get(rec, bytes, &h);
	if (head < 0)
		return head;
	if (!source_believed(&l->dgrams, &h)) {
		ud_count(UD_DROP_SOURCE);
		if (!l->dgrams.refused++)
			log_info("process %d sends datagrams as QP %06x, which is not its own",
				 (int)l->peer_pid, h.src_qpn);
		return 0;
	}
	l->dgrams.rest = ud_deliver(&h, ring_payload(rec, (size_t)head), NULL);
	return 0;
}

/* ---- life of the link --------------------------------------------------------------- */

void dgram_init(struct link *l)
{
	list_init(&l->dgrams.waiting);
	list_init(&l->dgrams.asks);
	l->dgrams.timer.fire = stall_timer;
}

void dgram_fini(struct link *l)
{
	free(l->dgrams.sources);
}

void dgram_link_gone(struct link *l)
{
	dgram_routes_link_gone(l);
	dgram_cq_link_gone(l);
	run_waiting(l, true); /* they find that it is gone */
	if (loop_timer_stop(&l->dgrams.timer))
		link_put(l);
}

/* ---- the table ---------------------------------------------------------------------- */

/* If this fails, the QP is reached by UDP. */
static int listen_for(struct dev_qp *qp)
{
	if (conf_get()->transport != CONF_TRANSPORT_TCP)
		link_listen_port(qpn_port(qp->qp.qp_num));
	return 0;
}

static int attach(struct ud_qp *u)
{
	return dgram_cq_attach(qpn_port(ud_qpn(u)), ud_cq(u));
}

static void detach(struct ud_qp *u)
{
	dgram_cq_detach(qpn_port(ud_qpn(u)), ud_cq(u));
}

static int reaches(struct ud_qp *u, const union ibv_gid *dgid, uint32_t qpn, void **peer)
{
	struct dgram_peer *p;
	struct link *l;

	if (conf_get()->transport == CONF_TRANSPORT_TCP || !gid_ours(dgid))
		return 0;
	l = dgram_route_find(qpn_port(ud_qpn(u)), qpn_port(qpn));
	if (!l)
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p) {
		link_put(l);
		return 0;
	}
	atomic_init(&p->refs, 1);
	p->u = u;
	ud_get(u);
	p->l = l;
	list_init(&p->node);
	*peer = p;
	return 1;
}

static void drop(void *peer)
{
	struct dgram_peer *p = peer;

	lock_get(&p->l->tx_lock);
	list_del(&p->node);
	lock_put(&p->l->tx_lock);
	peer_put(p);
}

const struct ud_carrier shm_ud_carrier = {
	.name = "shared memory",
	.listen = listen_for,
	.attach = attach,
	.detach = detach,
	.reaches = reaches,
	.drop = drop,
	.send = send_out,
	.post = post_out,
};
