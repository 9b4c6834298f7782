/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams: addresses, and a model that allows loss. Which message of the plan has come
 * is known by its immediate data or its first bytes; those between it and the one before it
 * are lost. */
#include "stress.h"

#include <arpa/inet.h>
#include <string.h>

enum {
	IMPATIENT_MS = 20, /* a receive that was not used, as the message for it was lost */
	SILENT_MS = 150,   /* after the last message has left, and nothing has come */
	IP_HEADER = 20,
};

void ud_address_make(struct ep *e)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = 1,
		.grh = { .sgid_index = (uint8_t)e->side->gid_index, .hop_limit = 64 },
	};

	memcpy(&attr.grh.dgid, sh->side[!e->side->id].gid, 16);
	MUST(e->ah = ibv_create_ah(e->side->pd, &attr));
}

void ud_address_free(struct ep *e)
{
	pthread_mutex_lock(&e->sq.lock);
	if (e->ah)
		OK(ibv_destroy_ah(e->ah));
	e->ah = NULL;
	pthread_mutex_unlock(&e->sq.lock);
}

void ud_address_renew(struct ep *e)
{
	struct ibv_ah *old = e->ah;

	ud_address_make(e);
	OK(ibv_destroy_ah(old));
}

/* Of this generation alone: nothing of an earlier one is received. */
uint32_t ud_qkey(const struct ep *e)
{
	return (uint32_t)key_of(sh->o.seed, e->link, e->gen, 90) & 0x7fffffff;
}

bool ud_impatient(struct sq *q)
{
	uint64_t now = now_ms();

	if (!q->credit_at)
		q->credit_at = now + IMPATIENT_MS;
	return now >= q->credit_at;
}

/* Copies n bytes from place `at` of the message, GRH included. */
static void peek(const struct bufs *b, uint32_t at, uint8_t *to, uint32_t n)
{
	for (unsigned i = 0; i < b->n && n; i++) {
		uint32_t skip = at < b->len[i] ? at : b->len[i];
		uint32_t k = b->len[i] - skip < n ? b->len[i] - skip : n;

		memcpy(to, b->p[i] + skip, k);
		at -= skip;
		to += k;
		n -= k;
	}
}

static bool fits(const struct op *op, const struct ibv_wc *wc, const uint8_t *tells)
{
	uint8_t want[UD_TELLS];
	bool imm = op->kind != OP_SEND;

	if (op->len + UD_GRH != wc->byte_len || imm != !!(wc->wc_flags & IBV_WC_WITH_IMM))
		return false;
	if (imm)
		return wc->imm_data == htonl(op->imm);
	pattern_fill(op->key, 0, want, UD_TELLS);
	return !memcmp(want, tells, UD_TELLS);
}

/* The next one of the plan, or the final one: false when there is none. */
static bool next(struct plan *p, uint32_t last, uint32_t posted, struct op *op)
{
	if (p->seq >= posted || p->seq > last)
		return false;
	if (p->seq < last) {
		plan_next(p, op);
		return true;
	}
	plan_final(p, last, 0, op);
	p->seq++;
	return true;
}

/* What is wrong with a message that fits none of those that may come. */
static const char *diagnose(struct ep *e, const struct ibv_wc *wc, const uint8_t *tells)
{
	struct plan p;
	struct op op;

	plan_init(&p, &sh->o, &e->c, !e->side->id);
	while (next(&p, atomic_load(&end_peer(e)->last), e->rq.plan.seq, &op))
		if (fits(&op, wc, tells))
			return "has come before, or out of order";
	return "is none of the peer's";
}

void ud_expect(struct ep *e, struct op *op, const struct ibv_wc *wc, const struct bufs *b)
{
	/* In this order: what was posted before the last one has its place in the plan. */
	uint32_t posted = atomic_load(&end_peer(e)->posted);
	uint32_t last = atomic_load(&end_peer(e)->last);
	struct rq *q = &e->rq;
	struct plan before = q->plan;
	uint8_t tells[UD_TELLS] = { 0 };

	if (wc->byte_len < UD_GRH)
		fail(e, "a datagram of %u bytes", wc->byte_len);
	peek(b, UD_GRH, tells, UD_TELLS);
	while (next(&q->plan, last, posted, op))
		if (fits(op, wc, tells)) {
			atomic_fetch_add(&sh->lost, q->plan.seq - before.seq - 1);
			atomic_store(&e->heard, now_ms());
			return;
		}
	q->plan = before;
	fail(e, "a datagram of %u bytes, imm %x, begin %02x %02x %02x %02x, %s (%u to %u)",
	     wc->byte_len, wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : 0, tells[0],
	     tells[1], tells[2], tells[3], diagnose(e, wc, tells), before.seq, posted);
}

static bool checksum_ok(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (int i = 0; i < IP_HEADER; i += 2)
		sum += (uint32_t)ip[i] << 8 | ip[i + 1];
	sum = (sum >> 16) + (sum & 0xffff);
	return (sum >> 16) + (sum & 0xffff) == 0xffff;
}

void ud_check_origin(struct ep *e, const struct ibv_wc *wc, const struct bufs *b)
{
	const struct sh_side *s = &sh->side[!e->side->id];
	uint8_t grh[UD_GRH];

	if (!(wc->wc_flags & IBV_WC_GRH))
		fail(e, "a datagram without IBV_WC_GRH");
	if (wc->src_qp != end_peer(e)->qpn && !peer_died(e))
		fail(e, "a datagram of QP %06x, not %06x", wc->src_qp, end_peer(e)->qpn);
	peek(b, 0, grh, UD_GRH);
	if (grh[20] != 0x45 || memcmp(grh + 32, s->gid + 12, 4) || !checksum_ok(grh + 20))
		fail(e, "a datagram with a wrong IPv4 header");
}

bool ud_all_heard(struct ep *e)
{
	uint32_t last = atomic_load(&end_peer(e)->last);
	uint64_t now = now_ms(), heard = atomic_load(&e->heard);

	if (last == NOT_YET || atomic_load(&end_peer(e)->acked) <= last)
		return false;
	if (!heard) { /* nothing at all has come: as if it had now */
		atomic_store(&e->heard, now);
		return false;
	}
	return now > heard + SILENT_MS;
}
