/* SPDX-License-Identifier: BSD-2-Clause */
/* Atomics per second on one QP, 1 and 16 under way. The rival is a read of as many
 * bytes: it takes the same way there and back. The target sleeps meanwhile. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum kind { FADD, READ, FADD16, READ16, NKINDS };

static const char *const kind_name[NKINDS] = { "fadd", "read", "fadd16", "read16" };

enum { DEPTH = 16, WORD = 8, MAX_COUNT = 1 << 24 };

/* kind NKINDS ends the group. */
struct order {
	uint32_t kind;
	uint32_t pad;
	uint64_t count;
	uint64_t first;		/* what the target's word holds at the beginning */
};

static bool is_read(uint32_t kind)
{
	return kind == READ || kind == READ16;
}

static void post(struct rc *rc, uint32_t kind, uint64_t *slot)
{
	struct ibv_sge sge = { (uintptr_t)slot, WORD, rc->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (is_read(kind)) {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = rc->peer_addr;
		wr.wr.rdma.rkey = rc->peer_rkey;
	} else {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = rc->peer_addr;
		wr.wr.atomic.rkey = rc->peer_rkey;
		wr.wr.atomic.compare_add = 1;
	}
	errno = ibv_post_send(rc->id->qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
	rc->posted++;
}

/* One QP's atomics are executed in order, each once: the n-th finds n. */
static void check(const struct order *o, uint64_t n, uint64_t found)
{
	if (found == (is_read(o->kind) ? o->first : o->first + n))
		return;
	fprintf(stderr, "bench: %s number %lu found %lu: ", kind_name[o->kind],
		(unsigned long)n, (unsigned long)found);
	errno = EBADMSG;
	die("wrong value");
}

static double storm(struct rc *rc, const struct order *o)
{
	uint64_t *slot = (uint64_t *)rc->buf;
	uint64_t base = rc->posted, begun = 0, ended = 0;
	uint64_t depth = o->kind >= FADD16 ? DEPTH : 1;
	double t = now_s();

	while (ended < o->count) {
		while (begun < o->count && begun - ended < depth) {
			post(rc, o->kind, &slot[begun % depth]);
			begun++;
		}
		rc_poll(rc);
		for (; ended < rc->done - base; ended++)
			check(o, ended, slot[ended % depth]);
	}
	return now_s() - t;
}

static void serve(struct side *s, struct rc *rc)
{
	struct order o;
	uint64_t w;

	for (;;) {
		ctl_get(s, &o, sizeof(o));
		if (o.kind == NKINDS)
			return;
		memcpy(rc->buf, &o.first, WORD);
		ctl_meet(s);
		ctl_meet(s);
		memcpy(&w, rc->buf, WORD);
		check(&o, o.count, w);
	}
}

static double round_run(struct side *s, struct rc *rc, enum kind k, uint64_t count)
{
	static uint64_t first;
	struct order o = { .kind = k, .count = count, .first = first += 0x100000001 };
	double t;

	ctl_put(s, &o, sizeof(o));
	ctl_meet(s);
	t = storm(rc, &o);
	ctl_meet(s);
	return t;
}

static uint64_t calibrate(struct side *s, struct rc *rc, enum kind k)
{
	uint64_t n = 64;

	for (int i = 0; i < 2; i++) {
		double t = round_run(s, rc, k, n);

		n = (uint64_t)((double)n / t * s->o->slot_ms * (i == 0 ? 5e-4 : 1e-3));
		n = n < DEPTH ? DEPTH : n > MAX_COUNT ? MAX_COUNT : n;
	}
	return n;
}

static void client(struct side *s, struct rc *rc)
{
	struct order end = { .kind = NKINDS };
	uint64_t n[NKINDS];

	for (int k = 0; k < NKINDS; k++)
		if (kind_wanted(s, kind_name[k]))
			n[k] = calibrate(s, rc, (enum kind)k);
	for (unsigned r = 0; r < s->o->rounds * NKINDS; r++) {
		enum kind k = (enum kind)((r + r / NKINDS) % NKINDS);

		if (kind_wanted(s, kind_name[k]))
			side_emit(s, "atomics", kind_name[k], WORD, r / NKINDS,
				  (double)n[k] / round_run(s, rc, k, n[k]));
	}
	ctl_put(s, &end, sizeof(end));
}

void atomic_run(struct side *s)
{
	struct rc rc;

	rc_open(&rc, s);
	if (!rc.atomics)
		fprintf(stderr, "bench: the device has no atomics\n");
	else if (s->server)
		serve(s, &rc);
	else
		client(s, &rc);
	rc_close(&rc, s);
}
