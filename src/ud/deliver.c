/* SPDX-License-Identifier: BSD-2-Clause */
/* What arrives: the checks, the receive, the 40 bytes before the payload.
 *
 * A datagram that is not accepted is dropped without a trace at either end (InfiniBand
 * 9.8.3): nobody listens for the QP's state, the Q_Key is wrong, no receive is posted. One
 * that is longer than its receive completes it with LOC_LEN_ERR, and the QP fails, as with
 * adapters and rxe; where the receive is not of an SRQ the specification would drop the
 * datagram (class D). */
#include "base/conf.h"
#include "base/log.h"
#include "dev/complete.h"
#include "dev/gid.h"
#include "dev/lid.h"
#include "dev/sge.h"
#include "dev/verbs.h"
#include "ud/tap.h"
#include "ud/ud.h"

#include <errno.h>
#include <string.h>

/* BTH, DETH and ICRC, and UDP's header, of the RoCE v2 packet that this would be. */
enum { UDP_BYTES = 8, ROCE_BYTES = UDP_BYTES + 12 + 8 + 4, IPPROTO_OF_ROCE = 17 };
enum { NEXT_HEADER_IB = 0x1b };
enum { COMPOSED_MAX = 256 };

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint32_t packet_bytes(const struct ud_head *h)
{
	return ROCE_BYTES + (h->flags & UD_IMM ? 4 : 0) + ((h->len + 3u) & ~3u);
}

/* RFC 791 section 3.1, of a header without options; RFC 1071 section 2: the sum may be taken
 * in words of the host's byte order, and of 32 bits. */
static void checksum_put(uint8_t *ip)
{
	uint64_t sum = 0;
	uint32_t w[5];
	uint16_t folded;

	memcpy(w, ip, sizeof(w));
	for (unsigned i = 0; i < 5; i++)
		sum += w[i];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	folded = (uint16_t)~sum;
	memcpy(ip + 10, &folded, sizeof(folded));
}

/* The header of the IP packet that brought it, as the kernel's drivers and NICs store it for
 * RoCE v2: 20 bytes of zeros and an IPv4 header, or an IPv6 header (RFC 8200 section 3). On
 * InfiniBand a GRH (8.3), whose GIDs are the addresses. */
static void grh_put(uint8_t grh[UD_GRH], const struct ud_head *h)
{
	memset(grh, 0, UD_GRH);
	if (h->flags & UD_NO_GRH) /* what is there then is not defined (11.4.1.2) */
		return;
	if (!conf_get()->link_ib && gid_is_v4(&h->dgid)) {
		uint8_t *ip = grh + 20;

		ip[0] = 0x45;
		ip[1] = h->traffic_class;
		put16(ip + 2, 20 + packet_bytes(h));
		ip[6] = 0x40; /* do not fragment */
		ip[8] = h->hop_limit;
		ip[9] = IPPROTO_OF_ROCE;
		memcpy(ip + 12, h->sgid.raw + 12, 4);
		memcpy(ip + 16, h->dgid.raw + 12, 4);
		checksum_put(ip);
		return;
	}
	grh[0] = (uint8_t)(0x60 | h->traffic_class >> 4);
	grh[1] = (uint8_t)((h->traffic_class & 15) << 4 | (h->flow_label >> 16 & 15));
	put16(grh + 2, h->flow_label & 0xffff);
	put16(grh + 4, packet_bytes(h) - (conf_get()->link_ib ? UDP_BYTES : 0));
	grh[6] = conf_get()->link_ib ? NEXT_HEADER_IB : IPPROTO_OF_ROCE;
	grh[7] = h->hop_limit;
	memcpy(grh + 8, h->sgid.raw, 16);
	memcpy(grh + 24, h->dgid.raw, 16);
}

/* Stores n bytes at iov[*i] + *off, and moves both. */
static int store(const struct iovec *iov, unsigned *i, size_t *off, const uint8_t *from,
		 size_t n)
{
	while (n) {
		size_t k = iov[*i].iov_len - *off;
		int ret;

		if (k > n)
			k = n;
		ret = place_bytes((uint8_t *)iov[*i].iov_base + *off, from, k);
		if (ret)
			return ret;
		from += k;
		n -= k;
		*off += k;
		if (*off == iov[*i].iov_len) {
			*off = 0;
			++*i;
		}
	}
	return 0;
}

/* The same to a receive of one SGE: most are. A short datagram is composed first, as each
 * guarded copy costs more than its bytes. */
static int place_one_locked(struct dev_qp *qp, const struct ibv_sge *sge,
			    const struct ud_head *h, const void *payload)
{
	struct mr_range r = { sge->lkey, sge->addr, UD_GRH + h->len };
	uint8_t all[UD_GRH + COMPOSED_MAX];
	struct mr_ref to;
	int ret;

	lock_assert_held(&qp->lock);
	ret = mr_get(qp->pd, &r, IBV_ACCESS_LOCAL_WRITE, &to);
	if (ret)
		return ret;
	grh_put(all, h);
	if (h->len <= COMPOSED_MAX) {
		memcpy(all + UD_GRH, payload, h->len);
		ret = place_bytes(to.ptr, all, r.len);
	} else {
		ret = place_bytes(to.ptr, all, UD_GRH);
		if (!ret)
			ret = place_bytes((uint8_t *)to.ptr + UD_GRH, payload, h->len);
	}
	mr_put(to.slot);
	return ret;
}

/* The 40 bytes, then the payload: a program may spin on its last byte. 0 or -errno. */
static int place_locked(struct dev_qp *qp, const struct rqe *r, const struct ud_head *h,
			const void *payload)
{
	struct sge_list list = { qp->pd, r->sge, r->num_sge, IBV_ACCESS_LOCAL_WRITE };
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	uint8_t grh[UD_GRH];
	unsigned i = 0;
	size_t off = 0;
	int n, ret;

	lock_assert_held(&qp->lock);
	if (r->num_sge == 1)
		return place_one_locked(qp, r->sge, h, payload);
	n = sge_map(&list, 0, UD_GRH + h->len, &mem);
	if (n < 0)
		return n;
	grh_put(grh, h);
	ret = store(iov, &i, &off, grh, UD_GRH);
	if (!ret)
		ret = store(iov, &i, &off, payload, h->len);
	sge_unmap(refs, n);
	return ret;
}

/* The next receive; it stays where it is until complete_locked(). NULL: there is none. */
static const struct rqe *recv_next_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	if (qp->srq)
		return recv_take_locked(qp, 0) ? NULL : qp->cur;
	return qp->rq.head == qp->rq.tail ? NULL : rq_at(&qp->rq, qp->rq.head);
}

/* The service level; but an Ethernet frame without a VLAN tag carries none. What the completion
 * has in its place is the kind of packet (RoCE v2 A17.4.5.1 wants a flag for it), as mlx5's has:
 * 8 for UDP, and 2 for IPv4 or 1 for IPv6. UCX before 1.19 finds the destination's address by
 * it. */
static uint8_t service_level(const struct ud_head *h)
{
	if (conf_get()->link_ib)
		return h->sl;
	return gid_is_v4(&h->dgid) ? 8 | 2 : 8 | 1;
}

static void complete_locked(struct dev_qp *qp, const struct rqe *r, const struct ud_head *h)
	REQUIRES(qp->lock)
{
	struct ibv_wc wc = {
		.status = IBV_WC_SUCCESS,
		.opcode = IBV_WC_RECV,
		.byte_len = UD_GRH + h->len,
		.src_qp = h->src_qpn,
		.wc_flags = h->flags & UD_NO_GRH ? 0 : IBV_WC_GRH,
		.slid = conf_get()->link_ib ? lid_of_gid(&h->sgid) : 0,
		.sl = service_level(h),
	};

	lock_assert_held(&qp->lock);
	if (h->flags & UD_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = h->imm;
	}
	if (qp->srq)
		qp->cur_valid = false;
	else
		qp->rq.head++;
	if (recv_complete_locked(qp, r, &wc, h->flags & UD_SOLICITED))
		qp_to_err_locked(qp);
}

/* UD_RECEIVED or why it is dropped. */
static enum ud_counter receive_locked(struct dev_qp *qp, const struct ud_head *h,
				      const void *payload) REQUIRES(qp->lock)
{
	const struct rqe *r;

	lock_assert_held(&qp->lock);
	if (!qp_heard_locked(qp))
		return UD_DROP_STATE;
	if (h->qkey != qp->attr.qkey)
		return UD_DROP_QKEY;
	r = recv_next_locked(qp);
	if (!r)
		return UD_DROP_NO_RECV;
	if (r->length < UD_GRH + (uint32_t)h->len)
		return UD_DROP_LENGTH;
	if (place_locked(qp, r, h, payload))
		return UD_DROP_MEMORY;
	complete_locked(qp, r, h);
	return UD_RECEIVED;
}

/* As receive_locked(); *fails: the QP is to fail with the receive, which is qp->cur; *last:
 * there is no receive for the next one. */
static enum ud_counter receive(struct dev_qp *qp, const struct ud_head *h,
			       const void *payload, bool *fails, bool *last)
{
	enum ud_counter what;

	lock_get(&qp->lock);
	what = receive_locked(qp, h, payload);
	*fails = (what == UD_DROP_LENGTH || what == UD_DROP_MEMORY) &&
		 !recv_take_locked(qp, 0);
	*last = !qp->srq && qp->rq.head == qp->rq.tail;
	lock_put(&qp->lock);
	return what;
}

/* An address of another device of the process: its port would not have taken the datagram. */
static bool elsewhere(struct ud_qp *u, const struct ud_head *h)
{
	struct sockaddr_storage ss;

	if (device_count() == 1 || h->dst_qpn == UD_MCAST_QPN ||
	    !memcmp(&u->ours, &h->dgid, sizeof(h->dgid)))
		return false;
	gid_to_addr(&h->dgid, 0, 0, &ss);
	if (gid_of_addr(u->qp->device, (struct sockaddr *)&ss) < 0)
		return true;
	u->ours = h->dgid;
	return false;
}

bool ud_deliver_to(struct ud_qp *u, const struct ud_head *h, const void *payload)
{
	enum ud_counter what = UD_DROP_NO_QP;
	bool fails = false, last = false;

	lock_get(&u->rx_lock);
	if (!u->gone && elsewhere(u, h))
		what = UD_DROP_ADDRESS;
	else if (!u->gone)
		what = receive(u->qp, h, payload, &fails, &last);
	if (what == UD_RECEIVED)
		traffic_count(&u->traffic, TRAFFIC_RCV, h->len, 1);
	if (fails && what == UD_DROP_LENGTH)
		qp_fail_recv(u->qp, IBV_WC_LOC_LEN_ERR, -1,
			     "a datagram is longer than its receive");
	else if (fails)
		qp_fail_recv(u->qp, IBV_WC_LOC_PROT_ERR, -1,
			     "the memory of a receive cannot be written");
	lock_put(&u->rx_lock);
	ud_count(what);
	ud_tap_in(h, u->qpn, what);
	return last;
}

/* ---- marks ---------------------------------------------------------------------- */

/* The loop thread sends the answer, or goes on: the caller may have locks of a carrier. */
static void mark_in(struct ud_qp *u, const struct ud_head *h)
{
	if (h->kind == UD_MARKED) {
		atomic_store(&u->marked, h->token);
	} else {
		lock_get(&u->answers_lock);
		if (u->nanswers < UD_ANSWERS)
			u->answers[u->nanswers++] = *h;
		lock_put(&u->answers_lock);
	}
	ud_get(u);
	if (!loop_post(&u->answer))
		ud_put(u);
}

/* An InfiniBand port has sent to an Ethernet port. */
static void refuse_local(struct ud_qp *u, const struct ud_head *h)
{
	log_info("QP 0x%x: a datagram of QP 0x%x was sent by LID: its port has "
		 "ANYRDMA_LINK=ib, and this one has not",
		 u->qpn, h->src_qpn);
	ud_count(UD_DROP_FORMAT);
	ud_tap_in(h, u->qpn, UD_DROP_FORMAT);
}

bool ud_deliver(const struct ud_head *h, const void *payload, const struct dev_cq *only)
{
	struct ud_qp *u;
	bool last = false;

	if (h->dst_qpn == UD_MCAST_QPN) {
		if (h->kind == UD_DATA)
			ud_group_deliver(h, payload, only);
		else
			ud_count(UD_DROP_FORMAT);
		return false;
	}
	u = ud_table_get(h->dst_qpn);
	if (!u) {
		ud_count(UD_DROP_NO_QP);
		ud_tap_in(h, h->dst_qpn, UD_DROP_NO_QP);
		return false;
	}
	if (h->flags & UD_NO_GRH && !conf_get()->link_ib)
		refuse_local(u, h);
	else if (h->kind == UD_DATA)
		last = ud_deliver_to(u, h, payload);
	else
		mark_in(u, h);
	ud_put(u);
	return last;
}
