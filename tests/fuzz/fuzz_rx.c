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
#include "base/crc32c.h"
#include "tcp/tcp.h"
#include "victim.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

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
	MAX_INPUT = 1 << 17,
	SQ_PSN = 0x100,
	RQ_PSN = 0x200,
	REMOTE_QPN = 0x4321,
};

static struct ibv_xrcd *xrcd;

struct run {
	uint8_t how;
	bool xrc;
	struct work w; /* its SRQ: XRC */
	struct stream *s;
	int peer;
	atomic_int closed, released;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void open_device(void)
{
	struct ibv_xrcd_init_attr xrc = { .comp_mask = IBV_XRCD_INIT_ATTR_FD |
						       IBV_XRCD_INIT_ATTR_OFLAGS,
					  .fd = -1, .oflags = O_CREAT };

	device_open();
	xrcd = ibv_open_xrcd(dev.ctx, &xrc);
	MUST(xrcd);
}

/* ---- the peer's bytes ----------------------------------------------- */

static void put_keys(const struct run *r, uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 4 <= n; i++) {
		uint32_t v = be32_get(p + i) - 0x5a5a5a51;

		if (v > 3)
			continue;
		be32_put(p + i, v < 3 ? dev.mr[v]->rkey : r->xrc ? to_srq(r->w.srq)->number : 0);
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

static void post_requests(struct run *r)
{
	MUST(work_send(&r->w, IBV_WR_SEND, 100));
	MUST(work_send(&r->w, IBV_WR_RDMA_READ, 1000));
	MUST(work_send(&r->w, IBV_WR_ATOMIC_FETCH_AND_ADD, 8));
	MUST(work_send(&r->w, IBV_WR_RDMA_WRITE_WITH_IMM, 64));
	MUST(work_send(&r->w, IBV_WR_RDMA_READ, 20000));
	MUST(work_send(&r->w, IBV_WR_SEND, 3000));
}

/* Its receives come from an SRQ, which has no other. */
static struct ibv_qp *make_xrc(struct run *r)
{
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = 8, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = dev.pd, .xrcd = xrcd, .cq = dev.cq,
	};
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV,
					    .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					    .xrcd = xrcd };

	r->w.srq = ibv_create_srq_ex(dev.ctx, &srq);
	MUST(r->w.srq);
	return ibv_create_qp_ex(dev.ctx, &init);
}

static void make_qp(struct run *r)
{
	struct ibv_qp_init_attr init = {
		.send_cq = dev.cq, .recv_cq = dev.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2,
			 .max_recv_sge = 2 },
	};

	r->w.qp = r->xrc ? make_xrc(r) : ibv_create_qp(dev.pd, &init);
	MUST(r->w.qp);
	to_qp(r->w.qp)->made_by_cm = true;
	qp_init(r->w.qp);
	work_recvs(&r->w, r->how & F_FEW_RECVS ? 1 : RECVS);
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
	struct ibv_qp_attr to = {
		.dest_qp_num = REMOTE_QPN, .rq_psn = RQ_PSN, .sq_psn = SQ_PSN, .timeout = 14,
		.retry_cnt = 7,
		.ah_attr.grh.sgid_index = (uint8_t)local_gid_index(),
	};

	remote_gid(&to.ah_attr.grh.dgid);
	qp_connect(r->w.qp, &to);
}

/* ---- the stream ----------------------------------------------------- */

static void on_control(void *user, enum stream_ctl type, const uint8_t *data, size_t len)
{
	struct run *r = user;
	uint8_t copy[RC_CTL_DATA];

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
	struct stream_param p = { .local_qpn = r->w.qp->qp_num, .remote_qpn = REMOTE_QPN,
				  .crc = r->how & F_CRC, .extended = !(r->how & F_PLAIN) };
	int fd[2];

	remote_gid(&p.remote_gid);
	MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd));
	r->peer = fd[0];
	r->s = tcp_open(anyrdma_interface()->fd_take(fd[1]), &p, NULL, 0, &user_ops, r);
	MUST(r->s);
}

static void step(struct run *r)
{
	uint8_t junk[4096];

	if (!(r->how & F_DEAF))
		while (recv(r->peer, junk, sizeof(junk), 0) > 0)
			;
	if (!(r->how & F_PASSIVE))
		work_reap(&r->w);
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
			qp_err(r->w.qp);
			r->how &= (uint8_t)~F_FAIL_EARLY;
		}
	}
}

static void finish(struct run *r)
{
	shutdown(r->peer, SHUT_WR);
	wait_for(r, &r->closed);
	qp_err(r->w.qp);
	work_reap(&r->w);
	MUST(r->w.sends_done == r->w.sends);
	/* What nobody took from an SRQ stays there. */
	MUST(r->xrc ? r->w.recvs_done <= r->w.recvs : r->w.recvs_done == r->w.recvs);
	MUST(!ibv_destroy_qp(r->w.qp));
	MUST(!r->xrc || !ibv_destroy_srq(r->w.srq));
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
