/* SPDX-License-Identifier: BSD-2-Clause */
/* Bandwidth and latency: the connections stay open, the kinds take turns on
 * them. The client orders each round. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* TCP_POLL: a rival whose receiver spins, as that of SEND does. */
enum kind { TCP, TCP_POLL, SEND, WRITE, READ, TCP_PP, SEND_PP, WRITE_PP, NKINDS };

static const char *const kind_name[NKINDS] = {
	"tcp", "tcp poll", "send", "write", "read", "tcp", "send", "write",
};

enum { STREAMS = READ + 1, PINGPONGS = NKINDS - TCP_PP };

enum { MAX_PINGS = 1 << 20, MIN_COUNT = 8 };

struct data {
	struct side *s;
	struct rc rc;
	struct rc spin;		/* of WRITE_PP alone: its target polls nothing */
	int bulk;		/* raw TCP for streams */
	int pp;			/* raw TCP for ping-pongs */
	uint32_t *rtt;
	uint64_t seed;
};

/* The order for one round; kind NKINDS ends the group. */
struct order {
	uint32_t kind;
	uint32_t size;
	uint64_t count;
	uint64_t seed;
};

struct outcome {
	long nvcsw;
	long intact;
};

static void serve_round(struct data *d, const struct order *r, struct outcome *o)
{
	const uint8_t *last = d->rc.buf;

	switch ((enum kind)r->kind) {
	case TCP:
	case TCP_POLL:
		last = tcp_stream_rx(d->bulk, d->rc.buf, r->size, r->count,
				     r->kind == TCP_POLL);
		break;
	case SEND:
		rc_stream_rx(&d->rc, r->count);
		break;
	case WRITE:
	case READ:
		/* A passive target: asleep until the client has done. */
		ctl_meet(d->s);
		break;
	case TCP_PP:
		tcp_pong(d->pp, d->rc.buf, r->count);
		break;
	case SEND_PP:
		rc_pong(&d->rc, r->count);
		break;
	case WRITE_PP:
		rc_write_pong(&d->spin, r->count);
		break;
	case NKINDS:
		break;
	}
	o->intact = r->kind > WRITE || pattern_ok(last, r->size, r->seed);
}

static void serve(struct data *d)
{
	struct order r;
	struct outcome o;

	for (;;) {
		ctl_get(d->s, &r, sizeof(r));
		if (r.kind == NKINDS)
			return;
		if (r.kind == READ)
			pattern_fill(d->rc.buf, r.size, r.seed);
		else
			memset(r.kind == WRITE_PP ? d->spin.buf : d->rc.buf, 0, r.size);
		o.nvcsw = switches();
		ctl_meet(d->s);
		serve_round(d, &r, &o);
		rc_drain(&d->rc);
		o.nvcsw = switches() - o.nvcsw;
		ctl_put(d->s, &o, sizeof(o));
	}
}

static double time_round(struct data *d, const struct order *r)
{
	double t = now_s();

	switch ((enum kind)r->kind) {
	case TCP:
	case TCP_POLL:
		tcp_stream_tx(d->bulk, d->rc.buf, r->size, r->count);
		break;
	case SEND:
		rc_stream_tx(&d->rc, IBV_WR_SEND, r->size, r->count);
		break;
	case WRITE:
		rc_stream_tx(&d->rc, IBV_WR_RDMA_WRITE, r->size, r->count);
		break;
	case READ:
		rc_stream_tx(&d->rc, IBV_WR_RDMA_READ, r->size, r->count);
		break;
	case TCP_PP:
		tcp_ping(d->pp, d->rc.buf, r->count, d->rtt);
		break;
	case SEND_PP:
		rc_ping(&d->rc, r->count, d->rtt);
		break;
	case WRITE_PP:
		rc_write_ping(&d->spin, r->count, d->rtt);
		break;
	case NKINDS:
		break;
	}
	return now_s() - t;
}

/* Seconds the round took; *nvcsw: both sides' voluntary switches in it. */
static double round_run(struct data *d, enum kind k, uint32_t size, uint64_t count,
			long *nvcsw)
{
	struct order r = { k, size, count, ++d->seed };
	struct outcome o;
	bool intact = true;
	double t;

	ctl_put(d->s, &r, sizeof(r));
	if (k == READ)
		memset(d->rc.buf, 0, size);
	else
		pattern_fill(d->rc.buf, size, r.seed);
	if (k >= TCP_PP)
		memset(k == WRITE_PP ? d->spin.buf : d->rc.buf, 0, size);
	ctl_meet(d->s);
	*nvcsw = switches();
	t = time_round(d, &r);
	if (k == READ)
		intact = pattern_ok(d->rc.buf, size, r.seed);
	rc_drain(&d->rc);
	*nvcsw = switches() - *nvcsw;
	if (k == WRITE || k == READ)
		ctl_meet(d->s);
	ctl_get(d->s, &o, sizeof(o));
	if (!intact || !o.intact) {
		fprintf(stderr, "bench: %s of %u bytes, round seed %lu: ",
			kind_name[k], size, (unsigned long)r.seed);
		errno = EBADMSG;
		die("the last message does not hold what was sent");
	}
	*nvcsw += o.nvcsw;
	return t;
}

/* The count that fills a slot, found in two steps, which also warm things up. */
static uint64_t calibrate(struct data *d, enum kind k, uint32_t size)
{
	double slot = d->s->o->slot_ms * 1e-3;
	uint64_t max = k >= TCP_PP ? MAX_PINGS : 1ull << 24;
	uint64_t n = k >= TCP_PP ? 64 : (2 << 20) / size + 1;

	for (int i = 0; i < 2; i++) {
		long sw;
		double t = round_run(d, k, size, n, &sw);

		n = (uint64_t)((double)n / t * (i == 0 ? slot / 2 : slot));
		if (n < MIN_COUNT)
			n = MIN_COUNT;
		if (n > max)
			n = max;
	}
	return n;
}

static void stream_round(struct data *d, enum kind k, uint32_t size, uint64_t n,
			 unsigned round)
{
	long sw;
	double t = round_run(d, k, size, n, &sw);

	side_emit(d->s, "bandwidth", kind_name[k], size, round,
		  (double)size * (double)n / t / 1e6);
	side_emit(d->s, "stream switches", kind_name[k], size, round,
		  (double)sw / (double)n);
}

static void streams(struct data *d)
{
	const struct opts *o = d->s->o;

	for (uint32_t size = 64; size <= MAX_MSG; size *= size < (1 << 20) ? 4 : 8) {
		uint64_t n[NKINDS];

		if (o->size && o->size != size)
			continue;
		for (int k = TCP; k <= READ; k++)
			if (kind_wanted(d->s, kind_name[k]))
				n[k] = calibrate(d, (enum kind)k, size);
		for (unsigned r = 0; r < o->rounds * STREAMS; r++) {
			/* Each round begins with another kind. */
			enum kind k = (enum kind)((r + r / STREAMS) % STREAMS);

			if (kind_wanted(d->s, kind_name[k]))
				stream_round(d, k, size, n[k], r / STREAMS);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void pingpong_round(struct data *d, enum kind k, uint64_t n, unsigned round)
{
	long sw;
	double t = round_run(d, k, PING, n, &sw);

	/* One way, in microseconds. */
	side_emit(d->s, "latency", kind_name[k], PING, round, t / (double)n / 2 * 1e6);
	side_emit(d->s, "switches", kind_name[k], PING, round, (double)sw / (double)n / 2);
	qsort(d->rtt, n, sizeof(*d->rtt), by_value);
	side_emit(d->s, "latency p50", kind_name[k], PING, round, d->rtt[n / 2] / 2e3);
	side_emit(d->s, "latency p99", kind_name[k], PING, round,
		  d->rtt[n * 99 / 100] / 2e3);
}

static void pingpongs(struct data *d)
{
	unsigned rounds = d->s->o->rounds;
	uint64_t n[NKINDS];

	for (int k = TCP_PP; k <= WRITE_PP; k++)
		if (kind_wanted(d->s, kind_name[k]))
			n[k] = calibrate(d, (enum kind)k, PING);
	for (unsigned r = 0; r < rounds * PINGPONGS; r++) {
		enum kind k = (enum kind)(TCP_PP + (r + r / PINGPONGS) % PINGPONGS);

		if (kind_wanted(d->s, kind_name[k]))
			pingpong_round(d, k, n[k], r / PINGPONGS);
	}
}

static void open_tcp(struct data *d)
{
	uint16_t port;
	int lfd = -1;

	if (d->s->server) {
		lfd = tcp_listen(d->s->o->addr, &port);
		ctl_put(d->s, &port, sizeof(port));
		d->bulk = tcp_accept(lfd);
		d->pp = tcp_accept(lfd);
		close(lfd);
	} else {
		ctl_get(d->s, &port, sizeof(port));
		d->bulk = tcp_connect(d->s->o->addr, port);
		d->pp = tcp_connect(d->s->o->addr, port);
	}
	tcp_tune(d->bulk, false);
	tcp_tune(d->pp, true);
}

/* Both groups open the same connections, so that neither is favoured. */
static void data_run(struct side *s, void (*client)(struct data *d))
{
	struct data d = { .s = s };
	struct order end = { .kind = NKINDS };

	d.rtt = malloc(MAX_PINGS * sizeof(*d.rtt));
	if (!d.rtt)
		die("memory");
	open_tcp(&d);
	rc_open(&d.rc, s);
	rc_open(&d.spin, s);
	if (s->server) {
		serve(&d);
	} else {
		client(&d);
		ctl_put(s, &end, sizeof(end));
	}
	rc_close(&d.spin, s);
	rc_close(&d.rc, s);
	close(d.bulk);
	close(d.pp);
	free(d.rtt);
}

void latency_run(struct side *s)
{
	data_run(s, pingpongs);
}

void bandwidth_run(struct side *s)
{
	data_run(s, streams);
}
