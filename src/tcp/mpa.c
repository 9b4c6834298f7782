/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/mpa.h"

#include "base/be.h"

#include <errno.h>
#include <string.h>

static const uint8_t req_key[MPA_KEY_LEN + 1] = "MPA ID Req Frame";
static const uint8_t rep_key[MPA_KEY_LEN + 1] = "MPA ID Rep Frame";

enum {
	WORDS_LEN = 4,	   /* RFC 6581 4.: IRD, ORD */
	DEPTH_MASK = 0x3fff, /* the two upper bits of each word are A B and C D */

	/* fixed part of each kind, version and kind included */
	REQ_LEN = 52,
	REP_LEN = 20,
	REJ_LEN = 4,
	HELLO_LEN = 48,
	HELLO_REP_LEN = 4,

	REQ_PRIV_MAX = 56,
	REP_PRIV_MAX = 196,
	REJ_PRIV_MAX = 148,

	FLAG_SRQ = 0x01,
	FLAG_FLOW = 0x02,
	FLAG_IPV6 = 0x04,

	QPT_RC = 2, /* enum ibv_qp_type */
};

static uint32_t be24_get(const uint8_t *p)
{
	return (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
}

static void be24_put(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

/* ---- frames ---------------------------------------------------------------- */

int mpa_decode(const uint8_t *buf, size_t have, struct mpa_frame *f)
{
	size_t key = have < MPA_KEY_LEN ? have : MPA_KEY_LEN;
	bool req = !memcmp(buf, req_key, key), rep = !memcmp(buf, rep_key, key);
	uint16_t pd_len;

	if (!req && !rep)
		return -EPROTO;
	if (have < MPA_HDR_LEN)
		return -EAGAIN;
	pd_len = be16_get(buf + 18);
	if (pd_len > MPA_PD_MAX || buf[17] < 1 || buf[17] > MPA_REV)
		return -EPROTO;
	if (buf[16] & MPA_F_ENHANCED && (buf[17] < 2 || pd_len < WORDS_LEN))
		return -EPROTO;
	if (have < (size_t)MPA_HDR_LEN + pd_len)
		return -EAGAIN;
	*f = (struct mpa_frame){
		.reply = rep,
		.flags = buf[16],
		.rev = buf[17],
		.pd_len = pd_len,
		.pd = buf + MPA_HDR_LEN,
	};
	return MPA_HDR_LEN + pd_len;
}

size_t mpa_want(const uint8_t *buf, size_t have)
{
	size_t total;

	if (have < MPA_HDR_LEN)
		return MPA_HDR_LEN - have;
	total = MPA_HDR_LEN + (size_t)be16_get(buf + 18);
	if (total > MPA_FRAME_MAX || have >= total)
		return 0;
	return total - have;
}

static void put_header(uint8_t *buf, const struct mpa_frame *f)
{
	memcpy(buf, f->reply ? rep_key : req_key, MPA_KEY_LEN);
	buf[16] = f->flags;
	buf[17] = f->rev;
	be16_put(buf + 18, f->pd_len);
}

int mpa_encode(uint8_t *buf, size_t cap, const struct mpa_frame *f)
{
	if (f->pd_len > MPA_PD_MAX)
		return -EINVAL;
	if (cap < (size_t)MPA_HDR_LEN + f->pd_len)
		return -ENOSPC;
	put_header(buf, f);
	if (f->pd_len)
		memcpy(buf + MPA_HDR_LEN, f->pd, f->pd_len);
	return MPA_HDR_LEN + f->pd_len;
}

void mpa_reply_key(uint8_t key[MPA_KEY_LEN])
{
	memcpy(key, rep_key, MPA_KEY_LEN);
}

int mpa_depths(const struct mpa_frame *f, uint16_t *ird, uint16_t *ord)
{
	if (!(f->flags & MPA_F_ENHANCED) || f->pd_len < WORDS_LEN)
		return -EPROTO;
	*ird = be16_get(f->pd) & DEPTH_MASK;
	*ord = be16_get(f->pd + 2) & DEPTH_MASK;
	return 0;
}

unsigned mpa_p2p(const struct mpa_frame *f)
{
	if (!(f->flags & MPA_F_ENHANCED) || f->pd_len < WORDS_LEN)
		return 0;
	return (unsigned)(f->pd[0] >> 6) << 2 | f->pd[2] >> 6;
}

int mpa_plain_encode(uint8_t *buf, size_t cap, const struct mpa_frame *f,
		     uint16_t ird, uint16_t ord, unsigned p2p)
{
	struct mpa_frame out = *f;

	if (f->rev < 2)
		return mpa_encode(buf, cap, f);
	if (f->pd_len > MPA_PD_MAX - WORDS_LEN || ird > DEPTH_MASK || ord > DEPTH_MASK)
		return -EINVAL;
	out.flags |= MPA_F_ENHANCED;
	out.pd_len = (uint16_t)(f->pd_len + WORDS_LEN);
	if (cap < (size_t)MPA_HDR_LEN + out.pd_len)
		return -ENOSPC;
	put_header(buf, &out);
	be16_put(buf + MPA_HDR_LEN, (uint16_t)(ird | (p2p >> 2 & 3) << 14));
	be16_put(buf + MPA_HDR_LEN + 2, (uint16_t)(ord | (p2p & 3) << 14));
	if (f->pd_len)
		memcpy(buf + MPA_HDR_LEN + WORDS_LEN, f->pd, f->pd_len);
	return MPA_HDR_LEN + out.pd_len;
}

/* ---- our header ------------------------------------------------------------ */

/* What a kind looks like: which key, R flag (-1: either), lengths. */
static const struct kind_row {
	bool known, reply;
	int8_t reject;
	uint8_t fixed, priv_max;
} kinds[] = {
	[MPA_KIND_REQ] = { true, false, 0, REQ_LEN, REQ_PRIV_MAX },
	[MPA_KIND_REP] = { true, true, 0, REP_LEN, REP_PRIV_MAX },
	[MPA_KIND_REJ] = { true, true, 1, REJ_LEN, REJ_PRIV_MAX },
	[MPA_KIND_HELLO] = { true, false, 0, HELLO_LEN, 0 },
	[MPA_KIND_HELLO_REP] = { true, true, -1, HELLO_REP_LEN, 0 },
	[MPA_KIND_ASK] = { true, false, 0, HELLO_LEN, 0 },
};

int mpa_kind(const struct mpa_frame *f)
{
	uint8_t mark = f->flags & (MPA_F_OURS_REQ | MPA_F_OURS_REP);
	const struct kind_row *k;
	size_t rest;
	bool reject = f->flags & MPA_F_REJECT;

	if (mark != (f->reply ? MPA_F_OURS_REP : MPA_F_OURS_REQ))
		return -ENOMSG;
	if (!(f->flags & MPA_F_ENHANCED) || f->pd_len < WORDS_LEN + 2)
		return -EPROTO;
	if (f->pd[WORDS_LEN] != MPA_VERSION)
		return -EPROTONOSUPPORT;
	if (f->pd[WORDS_LEN + 1] >= sizeof(kinds) / sizeof(kinds[0]))
		return -EPROTO;
	k = &kinds[f->pd[WORDS_LEN + 1]];
	rest = f->pd_len - WORDS_LEN;
	if (!k->known || k->reply != f->reply || rest < k->fixed ||
	    rest > (size_t)k->fixed + k->priv_max)
		return -EPROTO;
	if (k->reject >= 0 && (bool)k->reject != reject)
		return -EPROTO;
	return f->pd[WORDS_LEN + 1];
}

/* Our header of this kind, or NULL with *err. */
static const uint8_t *open_kind(const struct mpa_frame *f, enum mpa_kind want, int *err)
{
	int kind = mpa_kind(f);

	*err = kind < 0 ? kind : kind == (int)want ? 0 : -EPROTO;
	return *err ? NULL : f->pd + WORDS_LEN;
}

struct out {
	enum mpa_kind kind;
	uint8_t flags;
	uint16_t ird, ord;
	const uint8_t *priv;
	uint8_t priv_len;
};

/* Writes everything but the fields of the kind; *h points to our header. */
static int begin(uint8_t *buf, size_t cap, const struct out *o, uint8_t **h)
{
	const struct kind_row *k = &kinds[o->kind];
	struct mpa_frame f = {
		.reply = k->reply,
		.flags = o->flags | MPA_F_ENHANCED |
			 (k->reply ? MPA_F_OURS_REP : MPA_F_OURS_REQ),
		.rev = MPA_REV,
		.pd_len = (uint16_t)(WORDS_LEN + k->fixed + o->priv_len),
	};
	uint8_t *pd = buf + MPA_HDR_LEN;

	if (o->priv_len > k->priv_max || o->ird > DEPTH_MASK || o->ord > DEPTH_MASK)
		return -EINVAL;
	if (cap < (size_t)MPA_HDR_LEN + f.pd_len)
		return -ENOSPC;
	put_header(buf, &f);
	be16_put(pd, o->ird);
	be16_put(pd + 2, o->ord);
	*h = pd + WORDS_LEN;
	memset(*h, 0, k->fixed);
	(*h)[0] = MPA_VERSION;
	(*h)[1] = (uint8_t)o->kind;
	if (o->priv_len)
		memcpy(*h + k->fixed, o->priv, o->priv_len);
	return MPA_HDR_LEN + f.pd_len;
}

static bool is24(uint32_t v)
{
	return v <= 0xffffff;
}

static bool mtu_ok(uint8_t mtu)
{
	return mtu >= 1 && mtu <= 5;
}

/* ---- request of the connection manager -------------------------------------- */

int mpa_cm_req_encode(uint8_t *buf, size_t cap, const struct mpa_cm_req *r)
{
	struct out o = { MPA_KIND_REQ, r->crc ? MPA_F_CRC : 0, r->ird, r->ord,
			 r->priv, r->priv_len };
	uint8_t *h;
	int ret;

	if (!is24(r->qpn) || !is24(r->psn) || r->retry > 7 || r->rnr_retry > 7 ||
	    r->timeout > 31 || !mtu_ok(r->mtu))
		return -EINVAL;
	ret = begin(buf, cap, &o, &h);
	if (ret < 0)
		return ret;
	be16_put(h + 2, r->ps);
	h[4] = r->qp_type;
	h[5] = (uint8_t)((r->srq ? FLAG_SRQ : 0) | (r->flow_control ? FLAG_FLOW : 0) |
			 (r->ipv6 ? FLAG_IPV6 : 0));
	h[6] = r->retry;
	h[7] = r->rnr_retry;
	h[8] = r->timeout;
	h[9] = r->mtu;
	be24_put(h + 10, r->qpn);
	be24_put(h + 13, r->psn);
	be16_put(h + 16, r->src_port);
	be16_put(h + 18, r->dst_port);
	be32_put(h + 20, r->ece_vendor);
	be32_put(h + 24, r->ece_options);
	memcpy(h + 28, r->src_addr, 16);
	memset(h + 44, 0, 8);
	return ret;
}

int mpa_cm_req_decode(const struct mpa_frame *f, struct mpa_cm_req *r)
{
	int err;
	const uint8_t *h = open_kind(f, MPA_KIND_REQ, &err);

	if (!h)
		return err;
	if (h[6] > 7 || h[7] > 7 || h[8] > 31 || !mtu_ok(h[9]))
		return -EPROTO;
	*r = (struct mpa_cm_req){
		.crc = f->flags & MPA_F_CRC,
		.ps = be16_get(h + 2),
		.qp_type = h[4],
		.srq = h[5] & FLAG_SRQ,
		.flow_control = h[5] & FLAG_FLOW,
		.ipv6 = h[5] & FLAG_IPV6,
		.retry = h[6],
		.rnr_retry = h[7],
		.timeout = h[8],
		.mtu = h[9],
		.qpn = be24_get(h + 10),
		.psn = be24_get(h + 13),
		.src_port = be16_get(h + 16),
		.dst_port = be16_get(h + 18),
		.ece_vendor = be32_get(h + 20),
		.ece_options = be32_get(h + 24),
		.priv = h + REQ_LEN,
		.priv_len = (uint8_t)(f->pd_len - WORDS_LEN - REQ_LEN),
	};
	memcpy(r->src_addr, h + 28, 16);
	return mpa_depths(f, &r->ird, &r->ord);
}

/* ---- reply and reject ------------------------------------------------------- */

int mpa_cm_rep_encode(uint8_t *buf, size_t cap, const struct mpa_cm_rep *r)
{
	struct out o = { MPA_KIND_REP, r->crc ? MPA_F_CRC : 0, r->ird, r->ord,
			 r->priv, r->priv_len };
	uint8_t *h;
	int ret;

	if (!is24(r->qpn) || !is24(r->psn) || r->rnr_retry > 7 || !mtu_ok(r->mtu))
		return -EINVAL;
	ret = begin(buf, cap, &o, &h);
	if (ret < 0)
		return ret;
	h[2] = (uint8_t)((r->srq ? FLAG_SRQ : 0) | (r->flow_control ? FLAG_FLOW : 0));
	h[3] = r->rnr_retry;
	h[4] = r->mtu;
	be24_put(h + 6, r->qpn);
	be24_put(h + 9, r->psn);
	be32_put(h + 12, r->ece_vendor);
	be32_put(h + 16, r->ece_options);
	return ret;
}

int mpa_cm_rep_decode(const struct mpa_frame *f, struct mpa_cm_rep *r)
{
	int err;
	const uint8_t *h = open_kind(f, MPA_KIND_REP, &err);

	if (!h)
		return err;
	if (h[3] > 7 || !mtu_ok(h[4]))
		return -EPROTO;
	*r = (struct mpa_cm_rep){
		.crc = f->flags & MPA_F_CRC,
		.srq = h[2] & FLAG_SRQ,
		.flow_control = h[2] & FLAG_FLOW,
		.rnr_retry = h[3],
		.mtu = h[4],
		.qpn = be24_get(h + 6),
		.psn = be24_get(h + 9),
		.ece_vendor = be32_get(h + 12),
		.ece_options = be32_get(h + 16),
		.priv = h + REP_LEN,
		.priv_len = (uint8_t)(f->pd_len - WORDS_LEN - REP_LEN),
	};
	return mpa_depths(f, &r->ird, &r->ord);
}

int mpa_cm_rej_encode(uint8_t *buf, size_t cap, const struct mpa_cm_rej *r)
{
	struct out o = { MPA_KIND_REJ, MPA_F_REJECT, 0, 0, r->priv, r->priv_len };
	uint8_t *h;
	int ret = begin(buf, cap, &o, &h);

	if (ret >= 0)
		be16_put(h + 2, r->reason);
	return ret;
}

int mpa_cm_rej_decode(const struct mpa_frame *f, struct mpa_cm_rej *r)
{
	int err;
	const uint8_t *h = open_kind(f, MPA_KIND_REJ, &err);

	if (!h)
		return err;
	*r = (struct mpa_cm_rej){
		.reason = be16_get(h + 2),
		.priv = h + REJ_LEN,
		.priv_len = (uint8_t)(f->pd_len - WORDS_LEN - REJ_LEN),
	};
	return 0;
}

/* ---- QPs brought up by GID and QPN ------------------------------------------- */

int mpa_hello_encode(uint8_t *buf, size_t cap, const struct mpa_hello *m)
{
	struct out o = { m->ask ? MPA_KIND_ASK : MPA_KIND_HELLO,
			 m->crc ? MPA_F_CRC : 0, m->ird, m->ord, NULL, 0 };
	uint8_t *h;
	int ret;

	if (!is24(m->src_qpn) || !is24(m->dst_qpn) || !is24(m->rq_psn) ||
	    !is24(m->sq_psn) || !mtu_ok(m->mtu))
		return -EINVAL;
	ret = begin(buf, cap, &o, &h);
	if (ret < 0)
		return ret;
	h[2] = m->mtu;
	h[3] = m->qp_type;
	memcpy(h + 4, m->src_gid, 16);
	memcpy(h + 20, m->dst_gid, 16);
	be24_put(h + 36, m->src_qpn);
	be24_put(h + 39, m->dst_qpn);
	be24_put(h + 42, m->rq_psn);
	be24_put(h + 45, m->sq_psn);
	return ret;
}

int mpa_hello_decode(const struct mpa_frame *f, struct mpa_hello *m)
{
	bool ask = mpa_kind(f) == MPA_KIND_ASK;
	int err;
	const uint8_t *h = open_kind(f, ask ? MPA_KIND_ASK : MPA_KIND_HELLO, &err);

	if (!h)
		return err;
	if (!mtu_ok(h[2]))
		return -EPROTO;
	*m = (struct mpa_hello){
		.ask = ask,
		.crc = f->flags & MPA_F_CRC,
		.mtu = h[2],
		.qp_type = h[3] ? h[3] : QPT_RC,
		.src_qpn = be24_get(h + 36),
		.dst_qpn = be24_get(h + 39),
		.rq_psn = be24_get(h + 42),
		.sq_psn = be24_get(h + 45),
	};
	memcpy(m->src_gid, h + 4, 16);
	memcpy(m->dst_gid, h + 20, 16);
	return mpa_depths(f, &m->ird, &m->ord);
}

int mpa_hello_rep_encode(uint8_t *buf, size_t cap, const struct mpa_hello_rep *r)
{
	uint8_t flags = (uint8_t)((r->crc ? MPA_F_CRC : 0) |
				  (r->status == MPA_HELLO_ACCEPTED ? 0 : MPA_F_REJECT));
	struct out o = { MPA_KIND_HELLO_REP, flags, r->ird, r->ord, NULL, 0 };
	uint8_t *h;
	int ret;

	if ((unsigned)r->status > MPA_HELLO_NO_QP)
		return -EINVAL;
	ret = begin(buf, cap, &o, &h);
	if (ret >= 0)
		h[2] = (uint8_t)r->status;
	return ret;
}

int mpa_hello_rep_decode(const struct mpa_frame *f, struct mpa_hello_rep *r)
{
	int err;
	const uint8_t *h = open_kind(f, MPA_KIND_HELLO_REP, &err);
	bool reject = f->flags & MPA_F_REJECT;

	if (!h)
		return err;
	if (h[2] > MPA_HELLO_NO_QP || reject != (h[2] != MPA_HELLO_ACCEPTED))
		return -EPROTO;
	*r = (struct mpa_hello_rep){
		.crc = f->flags & MPA_F_CRC,
		.status = (enum mpa_hello_status)h[2],
	};
	return mpa_depths(f, &r->ird, &r->ord);
}
