/* SPDX-License-Identifier: BSD-2-Clause */
/* The receive state machine: a real QP on a real stream, whose peer is this
 * program and says whatever the input holds, cut at random points.
 *
 *	byte 0		how (F_*)
 *	bytes 1, 2	seed of the cuts; its highest bit: an XRC receive QP
 *	rest		the peer's bytes. Keys are random in every process, so
 *			5a5a5a51 stands for the key of a region open to all,
 *			...52 for one without remote rights, ...53 for one of
 *			another PD, ...54 for the number of its XRC SRQ. With
 *			F_CRC the CRC of whole frames is set right. Regions are
 *			at BASE.
 *
 * Whatever came: nothing outside the regions is written, every posted WR
 * completes exactly once and in order, the end of the stream is told, and all
 * can be destroyed. */
#include "base/be.h"
#include "dev/dev.h"
#include "iwarp/crc32c.h"
#include "iwarp/iwarp.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#undef ibv_reg_mr_iova

enum {
	F_CRC = 0x01,
	F_NO_QP = 0x02,	     /* nobody claims the stream */
	F_PLAIN = 0x04,	     /* an iWARP peer: no extension */
	F_DEAF = 0x08,	     /* the peer does not read */
	F_REQUESTS = 0x10,   /* sends, reads, atomics are out */
	F_PASSIVE = 0x20,    /* nobody polls: the thread's work */
	F_FEW_RECVS = 0x40,
	F_FAIL_EARLY = 0x80, /* the QP goes to ERR when half has been said */
};

enum {
	REGION = 1 << 16,
	GUARD = 4096,
	BASE = 0x10000,
	MAX_INPUT = 1 << 17,
	SQ_PSN = 0x100,
	RQ_PSN = 0x200,
	REMOTE_QPN = 0x4321,
	SENDS = 6,
	SEND_ID = 0x100, /* in wr_id: a send's */
	RECVS = 6,
	PATIENCE_S = 20,
};

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other_pd;
	struct ibv_cq *cq;
	struct ibv_xrcd *xrcd;
	uint8_t *mem; /* GUARD, region, GUARD, region, GUARD, region, GUARD */
	struct ibv_mr *mr[3];
} dev;

struct run {
	uint8_t how;
	bool xrc;
	struct ibv_srq *srq; /* XRC */
	struct ibv_qp *qp;
	struct stream *s;
	int peer;
	unsigned sends, recvs;		/* posted */
	unsigned sends_done, recvs_done; /* completed */
	atomic_int closed, released;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(cond) must(!!(cond), __LINE__, #cond)

static void must(bool good, int line, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fuzz_rx.c:%d: not true: %s (errno %d)\n", line, what, errno);
	abort();
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- once ----------------------------------------------------------- */

static uint8_t *region(int i)
{
	return dev.mem + GUARD + (size_t)i * (REGION + GUARD);
}

static void open_device(void)
{
	struct ibv_xrcd_init_attr xrc = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
						       IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = -1, .oflags = O_CREAT };
	unsigned all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t bytes = 3 * REGION + 4 * GUARD;

	MUST(list && list[0]);
	dev.ctx = ibv_open_device(list[0]);
	MUST(dev.ctx);
	ibv_free_device_list(list);
	dev.pd = ibv_alloc_pd(dev.ctx);
	dev.other_pd = ibv_alloc_pd(dev.ctx);
	dev.cq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	dev.xrcd = ibv_open_xrcd(dev.ctx, &xrc);
	dev.mem = aligned_alloc(GUARD, bytes);
	MUST(dev.pd && dev.other_pd && dev.cq && dev.xrcd && dev.mem);
	memset(dev.mem, 0xee, bytes);
	dev.mr[0] = ibv_reg_mr_iova(dev.pd, region(0), REGION, BASE, (int)all);
	dev.mr[1] = ibv_reg_mr_iova(dev.pd, region(1), REGION, BASE, IBV_ACCESS_LOCAL_WRITE);
	dev.mr[2] = ibv_reg_mr_iova(dev.other_pd, region(2), REGION, BASE, (int)all);
	MUST(dev.mr[0] && dev.mr[1] && dev.mr[2]);
}

static bool untouched(const uint8_t *p, size_t n)
{
	return p[0] == 0xee && !memcmp(p, p + 1, n - 1);
}

static void check_guards(void)
{
	/* No remote right, another PD: nobody may write there either. */
	MUST(untouched(dev.mem, GUARD));
	MUST(untouched(region(0) + REGION, 3 * GUARD + 2 * REGION));
}

/* ---- the peer's bytes ----------------------------------------------- */

static void put_keys(const struct run *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 4 <= n; i++) {
		uint32_t v = be32_get(p + i) - 0x5a5a5a51;

		if (v > 3)
			continue;
		be32_put(p + i, v < 3 ? dev.mr[v]->rkey : r->xrc ? to_srq(r->srq)->number : 0);
		i += 3;
	}
}

static void put_crcs(uint8_t *p, size_t n)
{
	size_t at = 0;

	while (n - at >= 6) {
		size_t body = (2u + be16_get(p + at) + 3u) & ~(size_t)3;

		if (body + 4 > n - at)
			return;
		crc32c_put(p + at + body, crc32c(CRC32C_INIT, p + at, body));
		at += body + 4;
	}
}

static uint32_t next_random(uint32_t *x)
{
	*x = *x * 1664525u + 1013904223u;
	return *x >> 8;
}

/* Mostly small pieces, sometimes a large one, so that cuts fall everywhere. */
static size_t piece(uint32_t *seed, size_t left)
{
	uint32_t r = next_random(seed);
	size_t n = r % 4 == 0 ? r % 30000 + 1 : r % 4 == 1 ? r % 300 + 1 : r % 24 + 1;

	return n < left ? n : left;
}

/* ---- the QP --------------------------------------------------------- */

static void post_recvs(struct run *r)
{
	unsigned n = r->how & F_FEW_RECVS ? 1 : RECVS;

	for (unsigned i = 0; i < n; i++) {
		struct ibv_sge sge[2] = {
			{ BASE + 1000 * i, 500, dev.mr[0]->lkey },
			{ BASE + 30000, i % 2 ? 30000 : 10, dev.mr[0]->lkey },
		};
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = sge, .num_sge = 2 }, *bad;

		MUST(!(r->xrc ? ibv_post_srq_recv(r->srq, &wr, &bad) :
				ibv_post_recv(r->qp, &wr, &bad)));
		r->recvs++;
	}
}

static void post_requests(struct run *r)
{
	static const struct {
		enum ibv_wr_opcode op;
		uint32_t len;
	} list[SENDS] = {
		{ IBV_WR_SEND, 100 },
		{ IBV_WR_RDMA_READ, 1000 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 8 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 64 },
		{ IBV_WR_RDMA_READ, 20000 },
		{ IBV_WR_SEND, 3000 },
	};

	for (unsigned i = 0; i < SENDS; i++) {
		struct ibv_sge sge = { BASE + 4096, list[i].len, dev.mr[0]->lkey };
		struct ibv_send_wr wr = { .wr_id = SEND_ID + i, .sg_list = &sge, .num_sge = 1,
					  .opcode = list[i].op,
					  .send_flags = IBV_SEND_SIGNALED }, *bad;

		if (list[i].op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = 0x1000;
			wr.wr.atomic.rkey = 0x77;
			wr.wr.atomic.compare_add = 1;
		} else {
			wr.wr.rdma.remote_addr = 0x1000;
			wr.wr.rdma.rkey = 0x77;
		}
		MUST(!ibv_post_send(r->qp, &wr, &bad));
		r->sends++;
	}
}

/* Its receives come from an SRQ, which has no other. */
static struct ibv_qp *make_xrc(struct run *r)
{
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = 8, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = dev.pd, .xrcd = dev.xrcd, .cq = dev.cq,
	};
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = dev.xrcd };

	r->srq = ibv_create_srq_ex(dev.ctx, &srq);
	MUST(r->srq);
	return ibv_create_qp_ex(dev.ctx, &init);
}

static void make_qp(struct run *r)
{
	struct ibv_qp_init_attr init = {
		.send_cq = dev.cq, .recv_cq = dev.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2,
			 .max_recv_sge = 2 },
	};
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_READ |
						    IBV_ACCESS_REMOTE_ATOMIC };

	r->qp = r->xrc ? make_xrc(r) : ibv_create_qp(dev.pd, &init);
	MUST(r->qp);
	to_qp(r->qp)->made_by_cm = true;
	MUST(!ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS));
	post_recvs(r);
}

static void remote_gid(union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	gid->raw[12] = 127;
	gid->raw[15] = 77;
}

static int local_gid_index(void)
{
	union ibv_gid gid, zero = { .raw = { 0 } };

	for (int i = 0; i < DEV_GIDS; i++)
		if (!ibv_query_gid(dev.ctx, 1, i, &gid) && memcmp(&gid, &zero, sizeof(gid)))
			return i;
	MUST(!"a GID");
	return 0;
}

static void connect_qp(struct run *r)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = REMOTE_QPN, .rq_psn = RQ_PSN, .max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .sgid_index = (uint8_t)local_gid_index(),
				      .hop_limit = 1 } },
	};

	remote_gid(&a.ah_attr.grh.dgid);
	MUST(!ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = SQ_PSN,
				  .timeout = 14, .retry_cnt = 7, .rnr_retry = 1,
				  .max_rd_atomic = 4 };
	MUST(!ibv_modify_qp(r->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					       IBV_QP_MAX_QP_RD_ATOMIC));
}

static void to_err(struct run *r)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	MUST(!ibv_modify_qp(r->qp, &a, IBV_QP_STATE));
}

static void reap(struct run *r)
{
	struct ibv_wc wc[4];
	int n;

	do {
		n = ibv_poll_cq(dev.cq, 4, wc);
		MUST(n >= 0);
		for (int i = 0; i < n; i++) {
			bool recv = !(wc[i].wr_id & SEND_ID);
			unsigned *done = recv ? &r->recvs_done : &r->sends_done;

			MUST(wc[i].qp_num == r->qp->qp_num);
			MUST((wc[i].wr_id & ~(uint64_t)SEND_ID) == *done);
			++*done;
			if (wc[i].status != IBV_WC_SUCCESS)
				continue;
			MUST(!!(wc[i].opcode & IBV_WC_RECV) == recv);
			MUST(wc[i].opcode != IBV_WC_RECV || wc[i].byte_len <= 30500);
		}
	} while (n > 0);
}

/* ---- the stream ----------------------------------------------------- */

static void on_control(void *user, enum stream_ctl type, const uint8_t *data, size_t len)
{
	struct run *r = user;
	uint8_t copy[RDMAP_CTL_DATA];

	(void)type;
	MUST(!atomic_load(&r->released));
	MUST(len <= sizeof(copy));
	if (len)
		memcpy(copy, data, len);
}

static void on_closed(void *user, int err)
{
	struct run *r = user;

	MUST(err <= 0);
	MUST(!atomic_exchange(&r->closed, 1));
}

static void on_released(void *user)
{
	struct run *r = user;

	MUST(!atomic_exchange(&r->released, 1));
}

static const struct stream_user user_ops = { .control = on_control,
					     .closed = on_closed,
					     .released = on_released };

static void open_stream(struct run *r)
{
	struct stream_param p = { .local_qpn = r->qp->qp_num, .remote_qpn = REMOTE_QPN,
				  .crc = r->how & F_CRC, .extended = !(r->how & F_PLAIN) };
	int fd[2];

	remote_gid(&p.remote_gid);
	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd));
	r->peer = fd[0];
	r->s = stream_open(anyrdma_interface()->fd_take(fd[1]), &p, NULL, 0, &user_ops, r);
	MUST(r->s);
}

static void step(struct run *r)
{
	uint8_t junk[4096];

	if (!(r->how & F_DEAF))
		while (recv(r->peer, junk, sizeof(junk), 0) > 0)
			;
	if (!(r->how & F_PASSIVE))
		reap(r);
}

static void wait_for(struct run *r, atomic_int *flag)
{
	double end = now() + PATIENCE_S;

	while (!atomic_load(flag)) {
		MUST(now() < end);
		step(r);
		sched_yield();
	}
}

static void say(struct run *r, const uint8_t *p, size_t n, uint32_t seed)
{
	double end = now() + PATIENCE_S;
	size_t half = n / 2, left = n;

	while (left && !atomic_load(&r->closed)) {
		size_t k = piece(&seed, left);
		ssize_t sent = send(r->peer, p, k, MSG_NOSIGNAL);

		if (sent < 0 && errno != EAGAIN)
			break;
		if (sent > 0) {
			p += sent;
			left -= (size_t)sent;
		}
		MUST(now() < end);
		step(r);
		if (r->how & F_FAIL_EARLY && left < half) {
			to_err(r);
			r->how &= (uint8_t)~F_FAIL_EARLY;
		}
	}
}

static void finish(struct run *r)
{
	shutdown(r->peer, SHUT_WR);
	wait_for(r, &r->closed);
	to_err(r);
	reap(r);
	MUST(r->sends_done == r->sends);
	/* What nobody took from an SRQ stays there. */
	MUST(r->xrc ? r->recvs_done <= r->recvs : r->recvs_done == r->recvs);
	MUST(!ibv_destroy_qp(r->qp));
	MUST(!r->xrc || !ibv_destroy_srq(r->srq));
	stream_release(r->s);
	close(r->peer);
	while (!atomic_load(&r->released))
		sched_yield();
	check_guards();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run r = { .how = 0 };
	uint8_t *bytes;

	if (size < 3 || size > MAX_INPUT)
		return 0;
	if (!dev.ctx)
		open_device();
	r.how = data[0];
	r.xrc = data[1] & 0x80;
	bytes = malloc(size - 3 ? size - 3 : 1);
	MUST(bytes);
	memcpy(bytes, data + 3, size - 3);
	make_qp(&r);
	put_keys(&r, bytes, size - 3);
	if (r.how & F_CRC)
		put_crcs(bytes, size - 3);
	open_stream(&r);
	if (!(r.how & F_NO_QP))
		connect_qp(&r);
	if (r.how & F_REQUESTS && !(r.how & F_NO_QP) && !r.xrc)
		post_requests(&r);
	say(&r, bytes, size - 3, be16_get(data + 1));
	finish(&r);
	free(bytes);
	return 0;
}
