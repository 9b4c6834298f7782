/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests: two carriers that keep what they are given. "far" reaches everybody and
 * carries groups, "near" reaches those that the test names. Include it in one file of a test
 * program: it defines ud_carriers and transport_choose(). */
#ifndef ANYRDMA_UD_FAKE_CARRIER_H
#define ANYRDMA_UD_FAKE_CARRIER_H

#include "ud/end_test.h"

enum { FAKE_SENT = 4096 };

struct fake_peer {
	atomic_int refs;
};

struct fake {
	_Atomic bool reaches_all;
	uint16_t reaches; /* a port; 0: none */
	int room;	  /* takes so many more, and then has no room; -1: always */
	int fail;	  /* what send() returns, if not 0 */
	int posts;	  /* post() takes so many more; -1: all */
	int sends, flushes;
	int asked;
	atomic_int attached, joined;
	struct fake_peer peer;
	/* What was sent: the head, and the first bytes of the payload. */
	struct lock lock;
	unsigned n;
	struct ud_head sent[FAKE_SENT];
	uint8_t payload[FAKE_SENT][16];
	struct ud_qp *waits; /* for room */
};

static struct fake near, far;
static void (*near_attached)(struct ud_qp *u); /* far is not yet; or NULL */
static void (*far_sends)(void); /* or NULL */

static int fake_listen(struct dev_qp *qp)
{
	(void)qp;
	return 0;
}

static int fake_attach(struct fake *f)
{
	atomic_fetch_add(&f->attached, 1);
	return 0;
}

static int near_attach(struct ud_qp *u)
{
	if (near_attached)
		near_attached(u);
	return fake_attach(&near);
}

static int far_attach(struct ud_qp *u)
{
	*ud_priv(u, ud_carriers[1]) = &far;
	return fake_attach(&far);
}

static void near_detach(struct ud_qp *u)
{
	(void)u;
	atomic_fetch_sub(&near.attached, 1);
}

static void far_detach(struct ud_qp *u)
{
	*ud_priv(u, ud_carriers[1]) = NULL;
	atomic_fetch_sub(&far.attached, 1);
}

static int fake_reaches(struct fake *f, uint32_t qpn, void **peer)
{
	f->asked++;
	if (!atomic_load(&f->reaches_all) && f->reaches != qpn_port(qpn))
		return 0;
	atomic_fetch_add(&f->peer.refs, 1);
	*peer = &f->peer;
	return 1;
}

static int near_reaches(struct ud_qp *u, const union ibv_gid *dgid, uint32_t qpn, void **peer)
{
	(void)u;
	(void)dgid;
	return fake_reaches(&near, qpn, peer);
}

static int far_reaches(struct ud_qp *u, const union ibv_gid *dgid, uint32_t qpn, void **peer)
{
	(void)u;
	(void)dgid;
	return fake_reaches(&far, qpn, peer);
}

static void fake_drop(void *peer)
{
	atomic_fetch_sub(&((struct fake_peer *)peer)->refs, 1);
}

static void fake_keep(struct fake *f, const struct ud_out *o)
{
	size_t k = o->n && o->iov[o->first].iov_len < 16 ? o->iov[o->first].iov_len : 16;

	if (f->n == FAKE_SENT)
		f->n = 0;
	f->sent[f->n] = o->head;
	if (o->n)
		memcpy(f->payload[f->n], o->iov[o->first].iov_base, k);
	f->n++;
}

static int fake_send(struct fake *f, struct ud_qp *u, struct ud_out *out, unsigned n)
{
	unsigned i;
	int ret;

	lock_get(&f->lock);
	f->sends++;
	ret = f->fail;
	f->fail = 0; /* of one call */
	for (i = 0; !ret && i < n && f->room; i++) {
		fake_keep(f, &out[i]);
		f->room -= f->room > 0;
	}
	if (!ret && !i)
		f->waits = u;
	lock_put(&f->lock);
	return ret ? ret : (int)i;
}

static bool near_post(struct ud_qp *u, void *peer, const struct ud_out *out)
{
	bool takes;

	CHECK(peer == &near.peer);
	lock_assert_held(&u->qp->lock);
	CHECK(out->n <= 1);
	lock_get(&near.lock);
	takes = near.posts != 0;
	near.posts -= near.posts > 0;
	if (takes)
		fake_keep(&near, out);
	lock_put(&near.lock);
	return takes;
}

static int near_send(struct ud_qp *u, void *peer, struct ud_out *out, unsigned n)
{
	CHECK(peer == &near.peer);
	return fake_send(&near, u, out, n);
}

static int far_send(struct ud_qp *u, void *peer, struct ud_out *out, unsigned n)
{
	CHECK(*ud_priv(u, ud_carriers[1]) == &far);
	if (far_sends)
		far_sends();
	CHECK(peer == &far.peer || out->head.dst_qpn == UD_MCAST_QPN);
	return fake_send(&far, u, out, n);
}

static void far_flush(struct ud_qp *u)
{
	(void)u;
	far.flushes++;
}

static int far_join(struct ud_qp *u, const union ibv_gid *group)
{
	(void)u;
	(void)group;
	atomic_fetch_add(&far.joined, 1);
	return 0;
}

static void far_leave(struct ud_qp *u, const union ibv_gid *group)
{
	(void)u;
	(void)group;
	atomic_fetch_sub(&far.joined, 1);
}

static const struct ud_carrier near_carrier = {
	.name = "near",
	.listen = fake_listen,
	.attach = near_attach,
	.detach = near_detach,
	.reaches = near_reaches,
	.drop = fake_drop,
	.send = near_send,
	.post = near_post,
};

static const struct ud_carrier far_carrier = {
	.name = "far",
	.listen = fake_listen,
	.attach = far_attach,
	.detach = far_detach,
	.reaches = far_reaches,
	.drop = fake_drop,
	.send = far_send,
	.flush = far_flush,
	.join = far_join,
	.leave = far_leave,
};

const struct ud_carrier *const ud_carriers[] = { &near_carrier, &far_carrier, NULL };

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? &ud_transport : NULL;
}

static void fake_renew(void)
{
	memset(&near, 0, sizeof(near));
	memset(&far, 0, sizeof(far));
	lock_init(&near.lock);
	lock_init(&far.lock);
	near.room = far.room = -1;
	far.reaches_all = true;
}

/* After a case: no path holds a peer, no QP is attached. */
static T_UNUSED void fake_over(void)
{
	CHECK_EQ(near.peer.refs, 0);
	CHECK_EQ(far.peer.refs, 0);
	CHECK_EQ(near.attached, 0);
	CHECK_EQ(far.attached, 0);
	CHECK_EQ(far.joined, 0);
}

static T_UNUSED unsigned fake_count(struct fake *f)
{
	unsigned n;

	lock_get(&f->lock);
	n = f->n;
	lock_put(&f->lock);
	return n;
}

#endif
