/* SPDX-License-Identifier: BSD-2-Clause */
/* An rsocket whose peer is no rsocket: a verbs program that says and writes what it wants.
 * It costs its own connection and nothing else. */
#include "rs.h"

#include <endian.h>

enum { CONN_LEN = 40, MESSAGES = 64 };

struct raw {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct conf_buf buf;
	uint64_t addr;		/* the socket's first region */
	uint32_t key, len;
	uint64_t sgl_addr;
	uint32_t sgl_key;
};

static void be_put(uint8_t *to, uint64_t v, int n)
{
	while (n--) {
		to[n] = (uint8_t)v;
		v >>= 8;
	}
}

static uint64_t be_get(const uint8_t *from, int n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | *from++;
	return v;
}

/* Private data as an rsocket's, with memory of this side. */
static void describe(const struct raw *r, uint8_t d[CONN_LEN])
{
	memset(d, 0, CONN_LEN);
	d[0] = 1;
	d[1] = 2;
	be_put(d + 2, MESSAGES, 2);
	be_put(d + 8, (uintptr_t)r->buf.p, 8);
	be_put(d + 16, r->buf.mr->rkey, 4);
	be_put(d + 20, 2, 4);
	be_put(d + 24, (uintptr_t)r->buf.p + 4096, 8);
	be_put(d + 32, r->buf.mr->rkey, 4);
	be_put(d + 36, 4096, 4);
}

static void raw_route(struct raw *r, conf_sa addr)
{
	r->ch = conf_channel();
	r->id = conf_route_resolved(r->ch, addr);
	conf_qp(r->id, 200);
	r->buf = conf_buf(r->id->pd, 16384, CONF_RW);
}

static void raw_connect(struct raw *r, const uint8_t *data, size_t len)
{
	struct rdma_conn_param p = { .private_data = data,
				     .private_data_len = (uint8_t)len,
				     .retry_count = 7,
				     .rnr_retry_count = 7 };

	for (uint64_t i = 0; i < 150; i++)
		OK(conf_recv(r->id->qp, i, &r->buf, 0, 0));
	OK(rdma_connect(r->id, &p));
}

static void raw_open(struct raw *r, conf_sa addr)
{
	struct rdma_cm_event *e;
	uint8_t d[CONN_LEN];

	raw_route(r, addr);
	describe(r, d);
	raw_connect(r, d, sizeof(d));
	e = conf_get(r->ch, r->id, RDMA_CM_EVENT_ESTABLISHED);
	memcpy(d, e->param.conn.private_data, sizeof(d));
	OK(rdma_ack_cm_event(e));
	EQ(d[0], 1);
	r->sgl_addr = be_get(d + 8, 8);
	r->sgl_key = (uint32_t)be_get(d + 16, 4);
	r->addr = be_get(d + 24, 8);
	r->key = (uint32_t)be_get(d + 32, 4);
	r->len = (uint32_t)be_get(d + 36, 4);
}

static void raw_close(struct raw *r)
{
	conf_buf_free(&r->buf);
	conf_id_close(r->id);
}

/* Writes n bytes to the region, with this message. */
static void say(struct raw *r, uint64_t off, uint32_t n, uint32_t imm)
{
	struct ibv_sge sge = conf_sge(&r->buf, 8192, n);
	struct ibv_send_wr w = conf_rdma(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, n ? 1 : 0,
					 (void *)(uintptr_t)(r->addr + off), r->key);

	w.imm_data = htobe32(imm);
	OK(conf_post(r->id->qp, &w));
}

static int listener(conf_sa *addr)
{
	return rs_listener(AF_INET, 16, addr);
}

/* A connection that is as it should be, beside the others. */
static void still_works(int l, conf_sa addr)
{
	int a = FD(rsocket(AF_INET, SOCK_STREAM, 0)), p;
	char c;

	OK(rconnect(a, SA(addr), rs_len(AF_INET)));
	p = FD(raccept(l, NULL, NULL));
	BYTES(rsend(a, "x", 1, 0), 1);
	BYTES(rrecv(p, &c, 1, 0), 1);
	OK(rclose(a));
	OK(rclose(p));
}

static void private_data(void)
{
	conf_sa addr;
	int l = listener(&addr);
	uint8_t d[CONN_LEN];

	/* Another version, no credits, no entries, a region that no message can name,
	 * and too few bytes (zeros, on InfiniBand). */
	for (int i = 0; i < 5; i++) {
		struct raw r;

		raw_route(&r, addr);
		describe(&r, d);
		if (i == 0)
			d[0] = 2;
		else if (i == 1)
			be_put(d + 2, 0, 2);
		else if (i == 2)
			be_put(d + 20, 0, 4);
		else if (i == 3)
			be_put(d + 36, UINT32_MAX, 4);
		raw_connect(&r, d, i == 4 ? 4 : sizeof(d));
		conf_expect_status(r.ch, r.id, RDMA_CM_EVENT_REJECTED, conf_rejected());
		raw_close(&r);
		still_works(l, addr);
	}
	OK(rclose(l));
}

/* The socket's connection must end; reading gives ECONNRESET or what was right before. */
static void must_end(int p)
{
	char buf[256];
	ssize_t n;

	while ((n = rrecv(p, buf, sizeof(buf), 0)) > 0)
		;
	CHECK(n == 0 || errno == ECONNRESET);
	ERR((int)rsend(p, "x", 1, 0), ECONNRESET);
}

static void lengths(void)
{
	conf_sa addr;
	int l = listener(&addr), p;
	struct raw r;

	for (int i = 0; i < 3; i++) {
		raw_open(&r, addr);
		p = FD(raccept(l, NULL, NULL));
		/* More than the region has; behind its end; more than there is. */
		say(&r, 0, 4, i == 0 ? r.len + 1 : i == 1 ? r.len - 1 : 0x1fffffff);
		if (i == 1)
			say(&r, 0, 4, 4);
		must_end(p);
		OK(rclose(p));
		raw_close(&r);
		still_works(l, addr);
	}
	OK(rclose(l));
}

/* Messages that mean nothing, and credits that change nothing. */
static void operations(void)
{
	conf_sa addr;
	int l = listener(&addr), p;
	struct raw r;
	char c = 0;

	raw_open(&r, addr);
	p = FD(raccept(l, NULL, NULL));
	for (uint32_t op = 1; op < 8; op++)
		for (uint32_t v = 3; v < 12; v += 8) {
			if (op == 4 && v == 11)
				continue;
			say(&r, 0, 0, op << 29 | v);
			conf_wc_ok(r.id->send_cq, 1);
		}
	r.buf.p[8192] = 'q';
	say(&r, 0, 1, 1);
	BYTES(rrecv(p, &c, 1, 0), 1);
	EQ(c, 'q');
	say(&r, 0, 0, 7u << 29); /* disconnect */
	BYTES(rrecv(p, &c, 1, 0), 0);
	OK(rclose(p));
	raw_close(&r);
	still_works(l, addr);
	OK(rclose(l));
}

/* An entry that names memory that is not there: sending there fails the connection. */
static void entries(void)
{
	conf_sa addr;
	int l = listener(&addr), p;
	uint64_t entry[2] = { 0x1234567890, 0x0000100000000077 };
	struct ibv_sge sge;
	struct ibv_send_wr w;
	static char buf[8192];
	struct raw r;

	raw_open(&r, addr);
	p = FD(raccept(l, NULL, NULL));
	memcpy(r.buf.p + 8192, entry, sizeof(entry));
	sge = conf_sge(&r.buf, 8192, sizeof(entry));
	w = conf_rdma(1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 1,
		      (void *)(uintptr_t)(r.sgl_addr + 16), r.sgl_key);
	w.imm_data = htobe32(4u << 29 | MESSAGES);
	OK(conf_post(r.id->qp, &w));
	conf_wc_ok(r.id->send_cq, 1);
	BYTES(rsend(p, buf, 4096, 0), 4096);
	rsend(p, buf, 4096, MSG_DONTWAIT);
	must_end(p);
	OK(rclose(p));
	raw_close(&r);
	still_works(l, addr);
	OK(rclose(l));
}

/* Random messages, as many as may be under way. */
static void noise(void)
{
	conf_sa addr;
	int l = listener(&addr), p;
	uint32_t seed = 12345;

#ifdef CONF_TSAN
	SKIP("TSan: such a peer writes what is being read");
#endif
	for (unsigned round = 0; round < conf_rounds(10, 300); round++) {
		struct raw r;
		char buf[64];

		raw_open(&r, addr);
		p = FD(raccept(l, NULL, NULL));
		rs_nonblock(p);
		for (int i = 0; i < 60; i++) {
			seed = seed * 1664525 + 1013904223;
			say(&r, seed >> 16 & 63, 8,
			    (seed >> 8 & 7) << 29 | (seed >> 20 & (i & 1 ? 0xfff : 15)));
			if (rrecv(p, buf, sizeof(buf), 0) < 0)
				CHECK(errno == EAGAIN || errno == ECONNRESET);
			rsend(p, buf, seed >> 24 & 63, 0);
		}
		OK(rclose(p));
		raw_close(&r);
	}
	still_works(l, addr);
	OK(rclose(l));
}

static const struct conf_case cases[] = {
	CASE(private_data),
	CASE(lengths),
	CASE(operations),
	CASE(entries),
	CASE(noise),
};
CONF_MAIN(cases)
