/* SPDX-License-Identifier: BSD-2-Clause */
/* Destinations of datagrams. The first one names the device, which gives the socket its
 * QP. An address handle needs no answer of the peer; its QP number comes over UDP. */
#include "rsocket/dgram.h"

#include <errno.h>

enum { RESOLVE_MS = 2000 };

static bool same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
	const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET)
		return a4->sin_port == b4->sin_port &&
		       a4->sin_addr.s_addr == b4->sin_addr.s_addr;
	return a6->sin6_port == b6->sin6_port &&
	       !memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr));
}

/* ---- the QP ----------------------------------------------------------------------- */

int dgram_recv_post(struct rs *rs, uint32_t slot)
{
	struct dgram *d = rs->dg;
	struct ibv_sge sge = { (uintptr_t)d->mem + (size_t)slot * DGRAM_SLOT, DGRAM_SLOT,
			       d->mr->lkey };
	struct ibv_recv_wr w = { .wr_id = post_wr_id(rs, WR_RECV, slot),
				 .sg_list = &sge,
				 .num_sge = 1 }, *bad;

	return -ibv_post_recv(d->qp, &w, &bad);
}

static int qp_start(struct dgram *d)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT,
				 .port_num = d->port_num,
				 .qkey = DPROTO_QKEY };
	int ret = ibv_modify_qp(d->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						   IBV_QP_QKEY);

	a.qp_state = IBV_QPS_RTR;
	if (!ret)
		ret = ibv_modify_qp(d->qp, &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_RTS;
	if (!ret)
		ret = ibv_modify_qp(d->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	return -ret;
}

static int memory_make(struct rs *rs)
{
	struct dgram *d = rs->dg;
	size_t len = (size_t)(DGRAM_RECVS + DGRAM_SENDS) * DGRAM_SLOT;
	int ret = 0;

	d->mem = malloc(len);
	if (!d->mem)
		return -ENOMEM;
	d->mr = ibv_reg_mr(rs->hub->pd, d->mem, len, IBV_ACCESS_LOCAL_WRITE);
	if (!d->mr)
		return -errno;
	for (uint32_t i = 0; i < DGRAM_RECVS && !ret; i++)
		ret = dgram_recv_post(rs, i);
	return ret;
}

static int qp_make(struct rs *rs, const struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_UD,
		.sq_sig_all = 1,
		.cap = { DGRAM_SENDS, DGRAM_RECVS, 1, 1, 0 },
	};
	struct dgram *d = rs->dg;
	struct ibv_port_attr port;
	int ret = hub_get(id->verbs, &rs->hub);

	if (ret)
		return ret;
	d->port_num = id->port_num;
	if (ibv_query_port(id->verbs, id->port_num, &port))
		return -ENODEV;
	d->mtu = 128u << port.active_mtu;
	rs->cqes = DGRAM_SENDS + DGRAM_RECVS;
	if (!rs->shard)
		ret = shard_join(rs->hub, rs, rs->cqes);
	if (ret)
		return ret;
	a.send_cq = a.recv_cq = rs->shard->cq;
	d->qp = ibv_create_qp(rs->hub->pd, &a);
	if (!d->qp)
		return -errno;
	ret = qp_start(d);
	if (!ret)
		ret = memory_make(rs);
	if (!ret)
		rs_set_state(rs, RS_CONNECTED);
	return ret;
}

/* ---- destinations -------------------------------------------------------------------- */

static int gid_index(const struct rdma_cm_id *id, const union ibv_gid *gid)
{
	struct ibv_port_attr port;
	union ibv_gid g;

	if (ibv_query_port(id->verbs, id->port_num, &port))
		return 0;
	for (int i = 0; i < port.gid_tbl_len; i++)
		if (!ibv_query_gid(id->verbs, id->port_num, i, &g) &&
		    !memcmp(&g, gid, sizeof(g)))
			return i;
	return 0;
}

static int ah_make(struct rs *rs, struct dest *t, struct rdma_cm_id *id)
{
	const struct rdma_ib_addr *ib = &id->route.addr.addr.ibaddr;
	struct ibv_ah_attr a = {
		.is_global = 1,
		.port_num = id->port_num,
		.grh = { .dgid = ib->dgid,
			 .sgid_index = (uint8_t)gid_index(id, &ib->sgid),
			 .hop_limit = 64 },
	};
	const struct ibv_sa_path_rec *path = id->route.num_paths ? id->route.path_rec : NULL;

	if (path) {
		a.dlid = ntohs(path->dlid);
		a.sl = path->sl;
		a.grh.flow_label = ntohl(path->flow_label);
		a.grh.traffic_class = path->traffic_class;
	}
	t->ah = ibv_create_ah(rs->hub->pd, &a);
	return t->ah ? 0 : -errno;
}

/* The socket's port, in network order: a header has it before the first datagram is sent. */
static in_port_t own_port(struct rs *rs)
{
	struct sockaddr_storage a = { .ss_family = (sa_family_t)rs->domain };
	socklen_t len = sizeof(a);

	for (int i = 0; i < 2; i++) {
		/* At the same place in sockaddr_in6. */
		if (!getsockname(rs->obj.fd, (struct sockaddr *)&a, &len) &&
		    ((struct sockaddr_in *)&a)->sin_port)
			break;
		len = rs->domain == AF_INET6 ? sizeof(struct sockaddr_in6) :
					       sizeof(struct sockaddr_in);
		if (bind(rs->obj.fd, (struct sockaddr *)&a, len))
			break;
		len = sizeof(a);
	}
	return ((struct sockaddr_in *)&a)->sin_port;
}

/* The address of this side that reaches it. */
static void local_set(struct rs *rs, struct dest *t, struct rdma_cm_id *id)
{
	const struct sockaddr *src = rdma_get_local_addr(id);

	memcpy(&t->local, src, src->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
							    sizeof(struct sockaddr_in));
	((struct sockaddr_in *)&t->local)->sin_port = own_port(rs);
}

static int resolve(struct rs *rs, struct dest *t)
{
	struct rdma_cm_id *id;
	int ret = 0;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP))
		return -errno;
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&t->addr, RESOLVE_MS) ||
	    rdma_resolve_route(id, RESOLVE_MS))
		ret = -errno;
	if (!ret && !rs->dg->qp)
		ret = qp_make(rs, id);
	if (!ret && rs->hub->verbs != id->verbs)
		ret = -ENETUNREACH; /* its QP is on another device */
	if (!ret) {
		local_set(rs, t, id);
		ret = ah_make(rs, t, id);
	}
	rdma_destroy_id(id);
	return ret;
}

static void dest_free(struct dest *t)
{
	if (t->ah)
		ibv_destroy_ah(t->ah);
	free(t);
}

/* Room for one more: the one that was used least recently goes. */
static void dests_limit(struct dgram *d)
{
	struct dest **at = &d->dests;

	if (d->ndests < DGRAM_DESTS)
		return;
	while ((*at)->next)
		at = &(*at)->next;
	dest_free(*at);
	*at = NULL;
	d->ndests--;
}

int dest_get(struct rs *rs, const struct sockaddr_storage *addr, struct dest **out)
{
	struct dgram *d = rs->dg;
	struct dest **at, *t;
	int ret;

	for (at = &d->dests; (t = *at); at = &t->next) {
		if (!same(&t->addr, addr))
			continue;
		*at = t->next;
		t->next = d->dests;
		d->dests = *out = t;
		return 0;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->addr = *addr;
	ret = resolve(rs, t);
	if (ret) {
		dest_free(t);
		return ret;
	}
	dests_limit(d);
	t->next = d->dests;
	d->dests = *out = t;
	d->ndests++;
	return 0;
}

void dest_learn(struct rs *rs, const struct sockaddr_storage *addr, uint32_t qpn)
{
	struct dest *t;

	if (qpn > 1 && !dest_get(rs, addr, &t))
		t->qpn = qpn;
}

void dest_free_all(struct dgram *d)
{
	struct dest *t;

	while ((t = d->dests)) {
		d->dests = t->next;
		dest_free(t);
	}
}
