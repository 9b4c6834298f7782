/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection parameters <-> MPA frames. With mapped ports (default) the peer is
 * one of ours and our header is in the private data; with ANYRDMA_PORTS=identity
 * the frames are plain RFC 6581 and the connection has iWARP's semantics. */
#include "base/conf.h"
#include "base/log.h"
#include "cm/user/user.h"

#include <netinet/in.h>
#include <string.h>

enum {
	REJ_TRANSPORT = 9,
	REJ_VERSION = 31,
	PLAIN_DEPTH = 16, /* what we can do; IRD and ORD of a peer that names none */
};

static uint8_t min_u8(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static uint8_t depth8(uint16_t v)
{
	return v > 255 ? 255 : (uint8_t)v;
}

/* RFC 6581: what both ends can do, not what one of them names. */
static uint8_t plain_depth(uint16_t peer, uint8_t ours)
{
	return (uint8_t)(peer < ours ? peer : ours);
}

static bool mapped_v4(const union user_addr *a)
{
	return a->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr);
}

/* ---- active ---------------------------------------------------------------------- */

static int plain_req(struct user_id *u, const struct cm_conn_param *p)
{
	struct mpa_frame f = {
		.flags = u->conn.crc ? MPA_F_CRC : 0,
		.rev = MPA_REV,
		.pd = p->private_data,
		.pd_len = p->private_data_len,
	};

	/* Programs of InfiniBand let either side send first. */
	return mpa_plain_encode(u->req->frame, sizeof(u->req->frame), &f,
				p->responder_resources, p->initiator_depth,
				MPA_P2P | MPA_RTR_WRITE);
}

int user_req_build(struct user_id *u, const struct cm_conn_param *p)
{
	struct user_conn *c = &u->conn;
	struct mpa_cm_req r = {
		.ird = p->responder_resources,
		.ord = p->initiator_depth,
		.crc = conf_get()->crc,
		.ps = (uint16_t)u->ps,
		.qp_type = (uint8_t)u->qp_type,
		.srq = p->srq,
		.flow_control = p->flow_control,
		.ipv6 = u->src.ss_family == AF_INET6 && !mapped_v4(&u->src),
		.retry = min_u8(p->retry_count, 7),
		.rnr_retry = min_u8(p->rnr_retry_count, 7),
		.timeout = (uint8_t)(u->life_time + 1),
		.mtu = (uint8_t)cm_dev->active_mtu(u->device),
		.qpn = p->qp_num & 0xffffff,
		.psn = c->local_psn,
		.src_port = sa_port((struct sockaddr *)&u->src),
		.dst_port = sa_port((struct sockaddr *)&u->dst),
		.ece_vendor = p->ece.vendor_id,
		.ece_options = p->ece.options,
		.priv = p->private_data,
		.priv_len = p->private_data_len,
	};
	int len;

	cm_dev->gid_from_addr((struct sockaddr *)&u->src, &c->local_gid);
	cm_dev->gid_from_addr((struct sockaddr *)&u->dst, &c->remote_gid);
	memcpy(r.src_addr, c->local_gid.raw, 16);
	c->local_qpn = r.qpn;
	c->responder_resources = p->responder_resources;
	c->reads = c->responder_resources != 0;
	c->initiator_depth = p->initiator_depth;
	c->retry = r.retry;
	c->rnr_retry = r.rnr_retry;
	c->mtu = r.mtu;
	c->srq = r.srq;
	c->flow_control = r.flow_control;
	c->ece = p->ece;
	c->crc = r.crc;
	c->extended = !conf_get()->ports_identity;
	len = c->extended ? mpa_cm_req_encode(u->req->frame, sizeof(u->req->frame), &r) :
			    plain_req(u, p);
	if (len < 0)
		return len;
	u->req->len = (size_t)len;
	return 0;
}

static enum user_reply plain_rep(struct user_id *u, const struct mpa_frame *f,
				  const uint8_t **priv, uint8_t *priv_len,
				  uint16_t *reason)
{
	struct user_conn *c = &u->conn;
	uint16_t ird = c->initiator_depth, ord = c->responder_resources, skip = 0, len;
	unsigned p2p = mpa_p2p(f);

	if (f->flags & MPA_F_MARKERS) {
		log_info("the peer wants MPA markers, which we do not send");
		return USER_REPLY_FOREIGN;
	}
	if (!mpa_depths(f, &ird, &ord))
		skip = 4;
	len = f->pd_len - skip;
	*priv = f->pd + skip;
	if (f->flags & MPA_F_REJECT) {
		*reason = CM_REJ_CONSUMER;
		*priv_len = (uint8_t)(len > CM_PRIV_REJ ? CM_PRIV_REJ : len);
		return USER_REPLY_REJ;
	}
	*priv_len = (uint8_t)(len > CM_PRIV_REP ? CM_PRIV_REP : len);
	c->p2p = p2p & MPA_P2P && p2p & MPA_RTR_WRITE ? MPA_RTR_WRITE : 0;
	c->responder_resources = plain_depth(ord, c->responder_resources);
	c->reads = c->responder_resources != 0;
	c->initiator_depth = plain_depth(ird, c->initiator_depth);
	c->crc |= (f->flags & MPA_F_CRC) != 0;
	return USER_REPLY_REP;
}

static enum user_reply set_rep(struct user_id *u, const struct mpa_cm_rep *r)
{
	struct user_conn *c = &u->conn;

	/* The acceptor's view, turned: its ORD is served here, its IRD bounds us. */
	c->responder_resources = depth8(r->ord);
	c->reads = c->responder_resources != 0;
	c->initiator_depth = depth8(r->ird);
	c->rnr_retry = r->rnr_retry;
	c->remote_qpn = r->qpn;
	c->remote_psn = r->psn;
	c->peer_srq = r->srq;
	c->peer_flow_control = r->flow_control;
	c->peer_ece = (struct ibv_ece){ .vendor_id = r->ece_vendor,
					.options = r->ece_options };
	c->mtu = min_u8(c->mtu, r->mtu);
	c->crc |= r->crc;
	return USER_REPLY_REP;
}

enum user_reply user_rep_parse(struct user_id *u, const struct mpa_frame *f,
				const uint8_t **priv, uint8_t *priv_len, uint16_t *reason)
{
	struct mpa_cm_rep rep;
	struct mpa_cm_rej rej;

	if (!f->reply)
		return USER_REPLY_FOREIGN;
	if (!u->conn.extended)
		return plain_rep(u, f, priv, priv_len, reason);
	if (!mpa_cm_rep_decode(f, &rep)) {
		*priv = rep.priv;
		*priv_len = rep.priv_len;
		return set_rep(u, &rep);
	}
	if (!mpa_cm_rej_decode(f, &rej)) {
		*priv = rej.priv;
		*priv_len = rej.priv_len;
		*reason = rej.reason;
		return USER_REPLY_REJ;
	}
	return USER_REPLY_FOREIGN;
}

/* ---- passive --------------------------------------------------------------------- */

static void set_priv(struct user_req *r, const uint8_t *data, size_t len)
{
	r->priv_len = (uint8_t)(len > CM_PRIV_REQ ? CM_PRIV_REQ : len);
	if (r->priv_len)
		memcpy(r->priv, data, r->priv_len);
}

/* How the initiator shall open. An empty FPDU (B) would take a receive here. */
static uint8_t plain_rtr(unsigned p2p)
{
	if (!(p2p & MPA_P2P))
		return 0;
	return p2p & MPA_RTR_READ && !(p2p & MPA_RTR_WRITE) ? MPA_RTR_READ : MPA_RTR_WRITE;
}

static int plain_req_parse(struct user_id *u, const struct mpa_frame *f)
{
	uint16_t ird = PLAIN_DEPTH, ord = PLAIN_DEPTH, skip = 0;
	struct user_conn *c = &u->conn;

	if (f->flags & MPA_F_MARKERS)
		return log_refuse(EPROTO, "the peer wants MPA markers");
	if (!mpa_depths(f, &ird, &ord))
		skip = 4;
	c->mpa_rev = skip ? MPA_REV : 1;
	c->p2p = plain_rtr(mpa_p2p(f));
	if (f->pd_len - skip > CM_PRIV_REQ)
		log_info("private data of %d bytes is cut to %d", f->pd_len - skip, CM_PRIV_REQ);
	c->responder_resources = plain_depth(ord, PLAIN_DEPTH);
	c->reads = c->responder_resources != 0;
	c->initiator_depth = plain_depth(ird, PLAIN_DEPTH);
	c->retry = c->rnr_retry = 7;
	c->mtu = (uint8_t)cm_dev->active_mtu(u->device);
	c->crc = f->flags & MPA_F_CRC || conf_get()->crc;
	c->extended = false;
	set_priv(u->req, f->pd + skip, f->pd_len - skip);
	return 0;
}

static bool same_type(uint8_t wire, enum ibv_qp_type ours)
{
	return wire == ours || (wire == IBV_QPT_XRC_SEND && ours == IBV_QPT_XRC_RECV);
}

/* Why a well-formed request is not for this listener: a reject reason, or 0. */
static uint16_t req_misfit(const struct user_id *u, const struct mpa_cm_req *r)
{
	uint16_t port = sa_port((const struct sockaddr *)&u->src);

	if (r->ps != u->ps || r->dst_port != port) {
		log_info("request for port space 0x%x port %u came to 0x%x port %u", r->ps,
			 r->dst_port, u->ps, port);
		return CM_REJ_NO_LISTENER;
	}
	if (!same_type(r->qp_type, u->qp_type)) {
		log_info("request for QP type %u, the listener has %d", r->qp_type,
			 u->qp_type);
		return REJ_TRANSPORT;
	}
	return 0;
}

static void set_peer_addr(struct user_id *u, const struct mpa_cm_req *r)
{
	uint32_t scope = 0;
	struct sockaddr_in6 *in6 = &u->dst.in6;
	struct sockaddr_in *in4 = &u->dst.in4;

	if (u->dst.ss_family == AF_INET6)
		scope = in6->sin6_scope_id; /* of the TCP connection */
	memset(&u->dst, 0, sizeof(u->dst));
	if (r->ipv6) {
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, r->src_addr, 16);
		if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
			in6->sin6_scope_id = scope;
	} else {
		in4->sin_family = AF_INET;
		memcpy(&in4->sin_addr, r->src_addr + 12, 4);
	}
	sa_set_port((struct sockaddr *)&u->dst, r->src_port);
}

static void set_req(struct user_id *u, const struct mpa_cm_req *r)
{
	struct user_conn *c = &u->conn;

	set_peer_addr(u, r);
	c->remote_qpn = r->qpn;
	c->remote_psn = r->psn;
	c->responder_resources = depth8(r->ord);
	c->reads = c->responder_resources != 0;
	c->initiator_depth = depth8(r->ird);
	c->retry = r->retry;
	c->rnr_retry = r->rnr_retry;
	c->timeout = r->timeout;
	c->mtu = min_u8(r->mtu, (uint8_t)cm_dev->active_mtu(u->device));
	c->peer_srq = r->srq;
	c->peer_flow_control = r->flow_control;
	c->peer_ece = (struct ibv_ece){ .vendor_id = r->ece_vendor,
					.options = r->ece_options };
	c->crc = r->crc || conf_get()->crc;
	c->extended = true;
	set_priv(u->req, r->priv, r->priv_len);
}

int user_req_parse(struct user_id *u, const struct mpa_frame *f, uint16_t *reason)
{
	struct mpa_cm_req r;
	int ret;

	*reason = 0;
	if (f->reply)
		return -EPROTO;
	if (conf_get()->ports_identity) {
		ret = plain_req_parse(u, f);
	} else {
		ret = mpa_cm_req_decode(f, &r);
		if (ret == -EPROTONOSUPPORT)
			*reason = REJ_VERSION;
		if (!ret)
			*reason = req_misfit(u, &r);
		if (*reason)
			ret = -ECONNREFUSED;
		if (!ret)
			set_req(u, &r);
	}
	if (ret)
		return ret;
	cm_dev->gid_from_addr((struct sockaddr *)&u->src, &u->conn.local_gid);
	cm_dev->gid_from_addr((struct sockaddr *)&u->dst, &u->conn.remote_gid);
	return 0;
}

int user_rep_build(struct user_id *u, const struct cm_conn_param *p, uint8_t *buf,
		   size_t cap)
{
	struct user_conn *c = &u->conn;
	struct mpa_cm_rep r = {
		.ird = p->responder_resources,
		.ord = p->initiator_depth,
		.crc = c->crc,
		.srq = p->srq,
		.flow_control = p->flow_control,
		.rnr_retry = min_u8(p->rnr_retry_count, 7),
		.mtu = c->mtu,
		.qpn = p->qp_num & 0xffffff,
		.psn = c->local_psn,
		.ece_vendor = p->ece.vendor_id,
		.ece_options = p->ece.options,
		.priv = p->private_data,
		.priv_len = p->private_data_len,
	};
	struct mpa_frame f = {
		.reply = true,
		.flags = c->crc ? MPA_F_CRC : 0,
		.rev = c->mpa_rev,
		.pd = p->private_data,
		.pd_len = p->private_data_len,
	};

	if (c->extended)
		return mpa_cm_rep_encode(buf, cap, &r);
	return mpa_plain_encode(buf, cap, &f, r.ird, r.ord,
				c->p2p ? MPA_P2P | c->p2p : 0u);
}

int user_rej_build(struct user_id *u, uint16_t reason, const void *data, uint8_t len,
		   uint8_t *buf, size_t cap)
{
	struct mpa_cm_rej r = { .reason = reason, .priv = data, .priv_len = len };
	struct mpa_frame f = {
		.reply = true,
		.flags = MPA_F_REJECT,
		.rev = u->conn.mpa_rev ? u->conn.mpa_rev : MPA_REV,
		.pd = data,
		.pd_len = len,
	};

	return conf_get()->ports_identity ? mpa_plain_encode(buf, cap, &f, 0, 0, 0) :
					    mpa_cm_rej_encode(buf, cap, &r);
}
