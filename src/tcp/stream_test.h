/* SPDX-License-Identifier: BSD-2-Clause */
/* A real QP on a real stream, whose peer is the test program. */
#ifndef ANYRDMA_TCP_STREAM_TEST_H
#define ANYRDMA_TCP_STREAM_TEST_H

#include "base/be.h"
#include "dev/dev.h"
#include "tcp/tcp.h"
#include "tests/t.h"

#include <netinet/in.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/socket.h>

enum {
	REGION = 1 << 22,
	SQ_PSN = 0x100,
	RQ_PSN = 0x200,
	REMOTE_QPN = 0x4321,
	PATIENCE_S = 20,
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static uint8_t *mem;
static struct ibv_mr *mr;
static struct ibv_srq *the_srq; /* of the QPs made next, or NULL */
static enum ibv_qp_type the_type = IBV_QPT_RC; /* likewise */

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct stream *s;
	int peer;
	uint8_t buf[1 << 17]; /* what the peer has read, not yet looked at */
	size_t have;
	atomic_int closed, released, controls;
};

static T_UNUSED double now(void)
{
	return (double)loop_now() * 1e-9;
}

static T_UNUSED void region_open(void)
{
	mr = ibv_reg_mr(pd, mem, REGION,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
}

static T_UNUSED bool device_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	ibv_free_device_list(list);
	pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	mem = calloc(1, REGION);
	if (pd && mem)
		region_open();
	return mr != NULL;
}

/* ---- the QP --------------------------------------------------------------------- */

static T_UNUSED void gid_of_loopback(union ibv_gid *gid, uint8_t last)
{
	memset(gid, 0, sizeof(*gid));
	gid->raw[10] = gid->raw[11] = 0xff;
	gid->raw[12] = 127;
	gid->raw[15] = last;
}

static T_UNUSED int gid_index(const union ibv_gid *want)
{
	union ibv_gid gid, zero = { .raw = { 0 } };

	for (int i = 0; i < DEV_GIDS; i++) {
		if (ibv_query_gid(ctx, 1, i, &gid) || !memcmp(&gid, &zero, sizeof(gid)))
			continue;
		if (!want || !memcmp(&gid, want, sizeof(gid)))
			return i;
	}
	return -1;
}

static T_UNUSED void qp_init(struct end *e, int cqe, bool by_cm)
{
	struct ibv_qp_init_attr init = { .qp_type = the_type, .sq_sig_all = 1 };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
						    IBV_ACCESS_REMOTE_READ };

	init.cap = (struct ibv_qp_cap){ 64, 64, 1, 1, 0 };
	e->cq = ibv_create_cq(ctx, cqe, NULL, NULL, 0);
	init.send_cq = init.recv_cq = e->cq;
	init.srq = the_srq;
	e->qp = ibv_create_qp(pd, &init);
	REQUIRE(e->qp);
	to_qp(e->qp)->made_by_cm = by_cm;
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						IBV_QP_ACCESS_FLAGS));
}

static T_UNUSED void qp_rtr(struct end *e, int sgid, const union ibv_gid *dgid, uint32_t qpn)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qpn,
		.rq_psn = RQ_PSN, .max_dest_rd_atomic = 4, .min_rnr_timer = 26,
		.ah_attr = { .is_global = 1, .port_num = 1,
			     .grh = { .dgid = *dgid, .sgid_index = (uint8_t)sgid,
				      .hop_limit = 1 } },
	};

	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN;

	if (e->qp->qp_type != IBV_QPT_UC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(!ibv_modify_qp(e->qp, &a, mask));
}

static T_UNUSED void qp_rts(struct end *e)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .sq_psn = SQ_PSN, .timeout = 1,
				 .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };

	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (e->qp->qp_type != IBV_QPT_UC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(!ibv_modify_qp(e->qp, &a, mask));
}

static T_UNUSED enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_UNKNOWN };

	CHECK(!ibv_query_qp(e->qp, &a, IBV_QP_STATE, &init));
	return a.qp_state;
}

static T_UNUSED void post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)mem, len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op },
			   *bad;

	wr.wr.rdma.remote_addr = 0x1000;
	wr.wr.rdma.rkey = 0x77;
	CHECK(!ibv_post_send(e->qp, &wr, &bad));
}

static T_UNUSED void post_recv_of(struct end *e, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)mem, len, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(e->qp, &wr, &bad));
}

static T_UNUSED bool poll_one(struct end *e, struct ibv_wc *wc)
{
	double limit = now() + PATIENCE_S;

	while (ibv_poll_cq(e->cq, 1, wc) != 1)
		if (now() > limit)
			return false;
	return true;
}

/* ---- the stream ------------------------------------------------------------------- */

static sem_t upcalls_allowed; /* control upcalls wait here while it is closed */
static atomic_bool gated;

static T_UNUSED void on_control(void *user, enum stream_ctl type, const uint8_t *data,
				size_t len)
{
	struct end *e = user;

	(void)type, (void)data, (void)len;
	atomic_fetch_add(&e->controls, 1);
	if (atomic_exchange(&gated, false))
		sem_wait(&upcalls_allowed);
}

static T_UNUSED void on_closed(void *user, int err)
{
	(void)err;
	atomic_store(&((struct end *)user)->closed, 1);
}

static T_UNUSED void on_released(void *user)
{
	atomic_store(&((struct end *)user)->released, 1);
}

static const struct stream_user ops = { .control = on_control,
					.closed = on_closed,
					.released = on_released };

static T_UNUSED struct end *end_of(int cqe, struct stream_param p)
{
	struct end *e = calloc(1, sizeof(*e));
	union ibv_gid dgid;
	int fd[2], room = 128 * 1024;

	qp_init(e, cqe, true);
	gid_of_loopback(&dgid, 77);
	p.remote_gid = dgid;
	p.local_qpn = e->qp->qp_num;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd));
	for (int i = 0; i < 2; i++) /* large messages do not fit, whatever is usual here */
		CHECK(!setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
	e->peer = fd[0];
	e->s = tcp_open(fd[1], &p, NULL, 0, &ops, e);
	CHECK(e->s);
	qp_rtr(e, gid_index(NULL), &dgid, p.remote_qpn);
	qp_rts(e);
	return e;
}

static T_UNUSED struct end *end_new(int cqe)
{
	return end_of(cqe, (struct stream_param){ .remote_qpn = REMOTE_QPN,
						  .extended = true });
}

static T_UNUSED void end_free(struct end *e)
{
	double limit = now() + PATIENCE_S;

	if (e->qp)
		CHECK(!ibv_destroy_qp(e->qp));
	if (e->s)
		stream_release(e->s);
	while (e->s && !atomic_load(&e->released) && now() < limit)
		sched_yield();
	CHECK(!e->s || atomic_load(&e->released));
	CHECK(!ibv_destroy_cq(e->cq));
	close(e->peer);
	free(e);
}

/* ---- the peer --------------------------------------------------------------------- */

static T_UNUSED void say_bytes(struct end *e, const uint8_t *p, size_t n)
{
	double limit = now() + PATIENCE_S;

	while (n && now() < limit) {
		ssize_t k = send(e->peer, p, n, MSG_NOSIGNAL);

		if (k < 0 && errno != EAGAIN)
			return;
		p += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	CHECK(!n);
}

static T_UNUSED size_t frame_make(uint8_t *p, const struct rc_frame *h)
{
	size_t n = rdmap_encode(p, h), trailer = rdmap_trailer(n, h->payload);

	memset(p + n, 0, h->payload + trailer);
	return n + h->payload + trailer;
}

static T_UNUSED void say(struct end *e, const struct rc_frame *h)
{
	uint8_t frame[RDMAP_HDR_MAX + 4096];

	say_bytes(e, frame, frame_make(frame, h));
}

static T_UNUSED void say_ctl(struct end *e, int type, uint8_t code, uint32_t number)
{
	struct rc_frame h = { .op = RC_CTL, .last = true };

	h.ctl.type = (enum ctl_type)type;
	h.ctl.code = code;
	h.ctl.number = number;
	h.ctl.msn0 = h.ctl.msn1 = 1;
	say(e, &h);
}

static T_UNUSED void say_read(struct end *e, uint32_t msn, uint32_t size)
{
	struct rc_frame h = { .op = RC_READ_REQ, .last = true, .msn = msn };

	h.read.size = size;
	h.read.src_stag = mr->rkey;
	h.read.src_to = (uintptr_t)mem;
	say(e, &h);
}

/* The next frame's header; its payload is passed over. */
static T_UNUSED bool hear(struct end *e, struct rc_frame *h)
{
	double limit = now() + PATIENCE_S;

	while (now() < limit) {
		int n = rdmap_decode(e->buf, e->have, h);
		ssize_t k;

		if (n > 0) {
			size_t all = (size_t)n + h->payload + rdmap_trailer((size_t)n, h->payload);

			if (e->have >= all) {
				e->have -= all;
				memmove(e->buf, e->buf + all, e->have);
				return true;
			}
		}
		k = recv(e->peer, e->buf + e->have, sizeof(e->buf) - e->have, 0);
		if (!k)
			return false;
		e->have += k > 0 ? (size_t)k : 0;
	}
	return false;
}

static T_UNUSED bool hear_ctl(struct end *e, enum ctl_type type, struct rc_frame *h)
{
	while (hear(e, h))
		if (h->op == RC_CTL && h->ctl.type == type)
			return true;
	return false;
}

#endif
