/* SPDX-License-Identifier: BSD-2-Clause */
/* Receiving never waits for sending: two processes send much to each other at the same
 * time, through socket buffers that are far too small for it. */
#include "lab.h"

#include <sched.h>

static uint64_t total; /* bytes each way */
/* A buffer has two of them: local memory of one's own operations, and what the peer's
 * reach. */
enum { CHUNK = 1 << 19, DEPTH = 4 };

/* Buffers of 4 KiB are full after a few messages; what is rarer needs the long run. */
static void setup(unsigned def_mib)
{
	unsigned most = conf_rounds(64, 1024);

#ifdef CONF_SANITIZER
	most = 64;
#endif
	def_mib = def_mib > most ? most : def_mib;
	total = (uint64_t)conf_env("CONF_SIZE", def_mib) << 20;
	setenv("ANYRDMA_SNDBUF", "4096", 1);
	setenv("ANYRDMA_RCVBUF", "4096", 1);
}

/* Moves `total` bytes. */
static void pump(struct end *e, struct remote t, int opcode)
{
	uint64_t n = total / CHUNK, posted = 0, done = 0, last = conf_now();
	struct ibv_sge sge = conf_sge(&e->buf, 0, CHUNK);
	struct ibv_send_wr wr = remote_rdma(&t, 1, opcode, &sge);
	struct ibv_wc wc;
	int got;

	wr.wr.rdma.remote_addr += CHUNK;
	while (done < n) {
		while (posted < n && posted - done < DEPTH) {
			OK(conf_post(e->id->qp, &wr));
			posted++;
		}
		got = ibv_poll_cq(e->id->send_cq, 1, &wc);
		if (got == 1) {
			if (wc.status)
				FAIL("operation %llu: %s", (unsigned long long)done,
				     ibv_wc_status_str(wc.status));
			done++;
			last = conf_now();
		} else if (conf_now() - last > 2 * conf_ms(CONF_WAIT) * 1000000ull) {
			FAIL("standing still after %llu of %llu MiB",
			     (unsigned long long)(done * CHUNK >> 20),
			     (unsigned long long)(total >> 20));
		} else {
			sched_yield();
		}
	}
}

struct roles {
	int client, server; /* opcodes */
};

static void server(struct peer *me, void *arg)
{
	struct roles *r = arg;
	struct remote t;
	struct end s;

	end_serve(&s, me);
	remote_say(me, &s.buf);
	t = remote_hear(me);
	pump(&s, t, r->server);
	peer_say(me, 'd');
	peer_hear(me, 'q');
	end_free(&s);
}

static void flood(struct roles r)
{
	struct peer p = peer_start(server, &r);
	struct remote t;
	struct end e;

	end_join(&e, &p);
	t = remote_hear(&p);
	remote_say(&p, &e.buf);
	pump(&e, t, r.client);
	peer_hear(&p, 'd');
	peer_say(&p, 'q');
	peer_end(&p);
	end_free(&e);
}

static void both_sides_write(void)
{
	setup(1024);
	flood((struct roles){ IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE });
}

static void both_sides_read(void)
{
	setup(256);
	flood((struct roles){ IBV_WR_RDMA_READ, IBV_WR_RDMA_READ });
}

static void read_while_the_peer_writes(void)
{
	setup(256);
	flood((struct roles){ IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE });
}

/* Sends both ways, each side posts its receives one at a time. */
static void send_server(struct peer *me, void *arg)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct end s;
	unsigned n = (uintptr_t)arg, posted = 0, sent = 0, got = 0;
	uint64_t end = conf_now() + 4 * conf_ms(CONF_WAIT) * 1000000ull;
	bool client = me->pid != 0;

	if (client) {
		end_connect(&s, peer_hear_u32(me));
		end_established(&s);
	} else {
		end_serve(&s, me);
	}
	sge = conf_sge(&s.buf, 0, 4096);
	wr = conf_wr(1000, IBV_WR_SEND, &sge, 1);
	while (sent < n || got < n) {
		while (posted < n && posted - sent < 32) {
			OK(conf_post(s.id->qp, &wr));
			posted++;
		}
		if (ibv_poll_cq(s.id->send_cq, 1, &wc) == 1) {
			EQ(wc.status, 0);
			sent++;
		}
		if (ibv_poll_cq(s.id->recv_cq, 1, &wc) == 1) {
			EQ(wc.status, 0);
			OK(conf_recv(s.id->qp, 0, &s.buf, 1 << 19, 4096));
			got++;
		}
		if (conf_now() > end)
			FAIL("sent %u, received %u of %u", sent, got, n);
	}
	peer_say(me, 'd');
	peer_hear(me, 'd');
	end_free(&s);
}

static void both_sides_send(void)
{
	void *n = (void *)(uintptr_t)(conf_ms(1) > 1 ? 2000 : 20000);
	struct peer p;

	setup(1);
	p = peer_start(send_server, n);
	send_server(&p, n);
	peer_end(&p);
}

/* A send waits for a receive; the other direction, and its acknowledgements, go on. */
static void waiting_send_holds_up_nothing_else(void)
{
	struct conf_pair c;
	struct conf_buf b;
	unsigned n = conf_ms(1) > 1 ? 500 : 5000;
	uint64_t end;

	setup(1);
	conf_pair_open(&c, NULL);
	b = conf_buf(c.a->pd, 1 << 20, CONF_RW);
	OK(conf_send(c.a->qp, 1, &b, 0, 65536)); /* nobody posted a receive for it */
	/* A round is many turns of two threads: fewer where others want the
	 * processors. */
	end = conf_now() + conf_ms(10000) * 1000000ull;
	for (unsigned i = 0; i < n && conf_now() < end; i++) {
		OK(conf_recv(c.a->qp, 2, &b, 1 << 19, 65536));
		OK(conf_send(c.p->qp, 3, &b, 0, 65536));
		conf_wc_ok(c.p->send_cq, 3);
		conf_wc_ok(c.a->recv_cq, 2);
	}
	conf_wc_none(c.a->send_cq, 20);
	OK(conf_recv(c.p->qp, 4, &b, 1 << 18, 65536));
	conf_wc_ok(c.a->send_cq, 1);
	conf_wc_ok(c.p->recv_cq, 4);
	conf_pair_disconnect(&c);
	rdma_destroy_qp(c.a);
	rdma_destroy_qp(c.p);
	conf_buf_free(&b);
	conf_pair_free(&c);
}

static const struct conf_case cases[] = {
	LONG_CASE(both_sides_write, 120),
	LONG_CASE(both_sides_read, 60),
	LONG_CASE(read_while_the_peer_writes, 60),
	LONG_CASE(both_sides_send, 60),
	LONG_CASE(waiting_send_holds_up_nothing_else, 40),
};

CONF_MAIN(cases)
