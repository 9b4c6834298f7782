/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { REFILL = 32, POLL_BATCH = 16, CHAIN = 16 };

static void make_memory(struct rc *rc)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ;
	struct ibv_device_attr attr;

	if (ibv_query_device(rc->id->verbs, &attr))
		die("ibv_query_device");
	rc->atomics = attr.atomic_cap != IBV_ATOMIC_NONE;
	if (rc->atomics)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	if (posix_memalign((void **)&rc->buf, 4096, MAX_MSG + TAIL))
		die("memory");
	memset(rc->buf, 0, MAX_MSG + TAIL);
	rc->mr = ibv_reg_mr(rc->pd, rc->buf, MAX_MSG + TAIL, access);
	if (!rc->mr)
		die("ibv_reg_mr");
}

static void make_qp(struct rc *rc, const struct side *s)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = SQ_DEPTH, .max_recv_wr = RQ_DEPTH,
			 .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = PING },
		.qp_type = IBV_QPT_RC,
	};

	device_check(s, rc->id->verbs);
	rc->pd = ibv_alloc_pd(rc->id->verbs);
	if (!rc->pd)
		die("ibv_alloc_pd");
	if (rc->with_events) {
		rc->events = ibv_create_comp_channel(rc->id->verbs);
		if (!rc->events)
			die("ibv_create_comp_channel");
	}
	rc->cq = ibv_create_cq(rc->id->verbs, SQ_DEPTH + RQ_DEPTH, NULL, rc->events, 0);
	if (!rc->cq)
		die("ibv_create_cq");
	attr.send_cq = attr.recv_cq = rc->cq;
	if (rdma_create_qp(rc->id, rc->pd, &attr))
		die("rdma_create_qp");
	rc->inline_ok = attr.cap.max_inline_data >= PING;
	make_memory(rc);
	rc->missing = RQ_DEPTH;
	rc_refill(rc);
}

static void open_passive(struct rc *rc, const struct side *s)
{
	struct rdma_conn_param p;
	uint16_t port;

	rc->listener = cm_listen(rc->ch, s->o->addr, &port);
	ctl_put(s, &port, sizeof(port));
	rc->id = cm_expect(rc->ch, RDMA_CM_EVENT_CONNECT_REQUEST);
	make_qp(rc, s);
	cm_param(&p, false);
	if (rdma_accept(rc->id, &p))
		die("rdma_accept");
	cm_expect(rc->ch, RDMA_CM_EVENT_ESTABLISHED);
}

static void open_active(struct rc *rc, const struct side *s)
{
	struct rdma_conn_param p;
	uint16_t port;

	ctl_get(s, &port, sizeof(port));
	rc->id = cm_start(rc->ch, s->o->addr, port);
	cm_expect(rc->ch, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(rc->id, 2000))
		die("rdma_resolve_route");
	cm_expect(rc->ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(rc, s);
	cm_param(&p, true);
	if (rdma_connect(rc->id, &p))
		die("rdma_connect");
	cm_expect(rc->ch, RDMA_CM_EVENT_ESTABLISHED);
}

static void open_either(struct rc *rc, const struct side *s)
{
	struct { uint64_t addr; uint64_t rkey; } mine, peer;

	rc->ch = cm_channel();
	if (s->server)
		open_passive(rc, s);
	else
		open_active(rc, s);
	mine.addr = (uintptr_t)rc->buf;
	mine.rkey = rc->mr->rkey;
	ctl_put(s, &mine, sizeof(mine));
	ctl_get(s, &peer, sizeof(peer));
	rc->peer_addr = peer.addr;
	rc->peer_rkey = (uint32_t)peer.rkey;
}

void rc_open(struct rc *rc, const struct side *s)
{
	memset(rc, 0, sizeof(*rc));
	open_either(rc, s);
}

void rc_open_events(struct rc *rc, const struct side *s)
{
	memset(rc, 0, sizeof(*rc));
	rc->with_events = true;
	open_either(rc, s);
}

void rc_close(struct rc *rc, const struct side *s)
{
	ctl_meet(s);
	if (!s->server && rdma_disconnect(rc->id))
		die("rdma_disconnect");
	cm_expect(rc->ch, RDMA_CM_EVENT_DISCONNECTED);
	if (s->server)
		rdma_disconnect(rc->id);
	rdma_destroy_qp(rc->id);
	if (ibv_dereg_mr(rc->mr) || ibv_destroy_cq(rc->cq) ||
	    (rc->events && ibv_destroy_comp_channel(rc->events)) || ibv_dealloc_pd(rc->pd) ||
	    rdma_destroy_id(rc->id) || (rc->listener && rdma_destroy_id(rc->listener)))
		die("destroying an RC end");
	rdma_destroy_event_channel(rc->ch);
	free(rc->buf);
}

/* Returns how many completions there were. A send's wr_id is the number of WRs
 * it completes: itself and the unsignalled ones before it. */
unsigned rc_poll(struct rc *rc)
{
	struct ibv_wc wc[POLL_BATCH];
	int n = ibv_poll_cq(rc->cq, POLL_BATCH, wc);

	if (n < 0)
		die("ibv_poll_cq");
	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS) {
			errno = EIO;
			die(ibv_wc_status_str(wc[i].status));
		}
		if (wc[i].opcode & IBV_WC_RECV) {
			rc->received++;
			rc->missing++;
		} else {
			rc->done += wc[i].wr_id;
		}
	}
	return (unsigned)n;
}

void rc_refill(struct rc *rc)
{
	struct ibv_sge sge = { (uintptr_t)rc->buf, MAX_MSG, rc->mr->lkey };
	struct ibv_recv_wr wr[REFILL], *bad;

	while (rc->missing >= REFILL) {
		for (unsigned i = 0; i < REFILL; i++)
			wr[i] = (struct ibv_recv_wr){
				.next = i + 1 < REFILL ? &wr[i + 1] : NULL,
				.sg_list = &sge, .num_sge = 1,
			};
		errno = ibv_post_recv(rc->id->qp, wr, &bad);
		if (errno)
			die("ibv_post_recv");
		rc->missing -= REFILL;
	}
}

void rc_post(struct rc *rc, enum ibv_wr_opcode op, size_t size, unsigned n)
{
	struct ibv_sge sge = { (uintptr_t)rc->buf, (uint32_t)size, rc->mr->lkey };
	struct ibv_send_wr wr[CHAIN], *bad;

	for (unsigned i = 0; i < n; i++) {
		bool last = i + 1 == n;

		wr[i] = (struct ibv_send_wr){
			.wr_id = n, .next = last ? NULL : &wr[i + 1],
			.sg_list = &sge, .num_sge = 1, .opcode = op,
			.send_flags = last ? IBV_SEND_SIGNALED : 0,
			.wr.rdma = { rc->peer_addr, rc->peer_rkey },
		};
	}
	errno = ibv_post_send(rc->id->qp, wr, &bad);
	if (errno)
		die("ibv_post_send");
	rc->posted += n;
	rc->covered = rc->posted;
}

void rc_post_ping(struct rc *rc, enum ibv_wr_opcode op, bool signalled)
{
	struct ibv_sge sge = { (uintptr_t)rc->buf + MAX_MSG, PING, rc->mr->lkey };
	struct ibv_send_wr wr, *bad;

	rc->posted++;
	wr = (struct ibv_send_wr){
		.wr_id = rc->posted - rc->covered, .sg_list = &sge, .num_sge = 1,
		.opcode = op,
		.send_flags = (signalled ? IBV_SEND_SIGNALED : 0) |
			      (rc->inline_ok ? IBV_SEND_INLINE : 0),
		.wr.rdma = { rc->peer_addr, rc->peer_rkey },
	};
	if (signalled)
		rc->covered = rc->posted;
	errno = ibv_post_send(rc->id->qp, &wr, &bad);
	if (errno)
		die("ibv_post_send");
}

void rc_drain(struct rc *rc)
{
	while (rc->done < rc->posted)
		rc_poll(rc);
	rc_refill(rc);
}
