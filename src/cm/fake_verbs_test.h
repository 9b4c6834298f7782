/* SPDX-License-Identifier: BSD-2-Clause */
/* For unit tests of the connection manager: verbs that only count objects and
 * remember the moves of QPs. They stand for libibverbs, which these tests do not
 * link. To be included by one file of a program. */
#ifndef ANYRDMA_CM_FAKE_VERBS_TEST_H
#define ANYRDMA_CM_FAKE_VERBS_TEST_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct ibv_device dev, *list[2];
	struct verbs_context ctx;
	int opened, pds, cqs, channels, qps, srqs; /* alive */
	int fail_open;		    /* the next ibv_open_device fails with this errno */
	int fail_cq;		    /* the n-th ibv_create_cq from now fails */
	int fail_state;		    /* the move to this state fails; -1: none */
	char moves[200];	    /* states that QPs were moved to, in order */
	struct ibv_qp_attr attr[8]; /* last attributes, by state */
	int attached;
	bool infiniband;	    /* the port's link layer */
} fv = { .fail_state = -1 };

#define FV_NEW(type, ptr) type *ptr = calloc(1, sizeof(*ptr))

struct ibv_device **ibv_get_device_list(int *n)
{
	fv.dev.node_type = IBV_NODE_CA;
	fv.dev.transport_type = IBV_TRANSPORT_IB;
	strcpy(fv.dev.name, "fake0");
	fv.list[0] = &fv.dev;
	if (n)
		*n = 1;
	return fv.list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

const char *ibv_get_device_name(struct ibv_device *dev)
{
	return dev->name;
}

__be64 ibv_get_device_guid(struct ibv_device *dev)
{
	(void)dev;
	return 77;
}

int ibv_get_device_index(struct ibv_device *dev)
{
	(void)dev;
	return 4;
}

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	if (fv.fail_open) {
		errno = fv.fail_open;
		fv.fail_open = 0;
		return NULL;
	}
	fv.ctx.context.device = dev;
	fv.opened++;
	return &fv.ctx.context;
}

int ibv_close_device(struct ibv_context *ctx)
{
	(void)ctx;
	fv.opened--;
	return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	(void)ctx;
	memset(attr, 0, sizeof(*attr));
	attr->max_qp_rd_atom = 16;
	attr->max_qp_init_rd_atom = 12;
	attr->max_pkeys = 5;
	attr->phys_port_cnt = 1;
	return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *ctx, uint8_t port,
		   struct _compat_ibv_port_attr *attr)
{
	struct ibv_port_attr *out = (struct ibv_port_attr *)attr;

	(void)ctx, (void)port;
	out->state = IBV_PORT_ACTIVE;
	out->link_layer = fv.infiniband ? IBV_LINK_LAYER_INFINIBAND :
					  IBV_LINK_LAYER_UNSPECIFIED;
	return 0;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	(void)ctx, (void)port, (void)index;
	memset(gid, 0xF0, sizeof(*gid));
	return 0;
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)
{
	(void)ctx, (void)port;
	*pkey = index == 3 ? 0xFFFF : 0x1234;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	FV_NEW(struct ibv_pd, pd);
	pd->context = ctx;
	fv.pds++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	fv.pds--;
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	FV_NEW(struct ibv_comp_channel, ch);
	ch->context = ctx;
	fv.channels++;
	return ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	free(ch);
	fv.channels--;
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
			     struct ibv_comp_channel *ch, int vector)
{
	(void)vector;
	if (fv.fail_cq && !--fv.fail_cq) {
		errno = ENOMEM;
		return NULL;
	}
	FV_NEW(struct ibv_cq, cq);
	cq->context = ctx;
	cq->cqe = cqe;
	cq->cq_context = cq_context;
	cq->channel = ch;
	fv.cqs++;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	fv.cqs--;
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	static uint32_t qpn = 0x100;
	FV_NEW(struct ibv_qp, qp);
	qp->context = pd->context;
	qp->pd = pd;
	qp->srq = attr->srq;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->qp_num = ++qpn;
	qp->qp_type = attr->qp_type;
	attr->cap.max_inline_data = 123;
	fv.qps++;
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	static const char *const names[] = { "RESET", "INIT", "RTR", "RTS", "SQD",
					     "SQE", "ERR" };

	(void)mask;
	if ((int)attr->qp_state == fv.fail_state)
		return ENOSPC;
	strcat(strcat(fv.moves, " "), names[attr->qp_state]);
	fv.attr[attr->qp_state] = *attr;
	qp->state = attr->qp_state;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	fv.qps--;
	return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	FV_NEW(struct ibv_srq, srq);
	srq->context = pd->context;
	srq->pd = pd;
	attr->attr.max_wr *= 2;
	fv.srqs++;
	return srq;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	free(srq);
	fv.srqs--;
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	return EOPNOTSUPP;
}

int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	(void)qp, (void)ece;
	return EOPNOTSUPP;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	fv.attached++;
	return 0;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	(void)qp, (void)gid, (void)lid;
	fv.attached--;
	return 0;
}

#endif
