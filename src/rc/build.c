/* SPDX-License-Identifier: BSD-2-Clause */
/* Order of frames: control, ACK, then responses and requests by turns, NAK once no response
 * is left (a NAK says that everything before it was answered), RECV_POSTED after the NAK it
 * answers. */
#include "rc/build.h"

#include "base/be.h"
#include "rc/execute.h"
#include "rc/requester.h"
#include "rc/responder.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct rc_payload no_payload;

/* ---- payload ----------------------------------------------------------------------- */

int payload_map(struct dev_qp *qp, const struct rc_payload *p, uint32_t off, uint32_t len,
		struct sge_mem *mem)
{
	struct mr_range r = { p->key, p->addr + off, len };
	struct sge_list list;

	if (p->kind == PAYLOAD_RESPONSE)
		return sge_map_remote(p->pd, qp, &r, IBV_ACCESS_REMOTE_READ, mem);
	list = wqe_sge_list(qp, sq_at(&qp->sq, p->idx), MR_LOCAL_READ);
	return sge_map(&list, p->off + off, len, mem);
}

int payload_copy(struct dev_qp *qp, const struct rc_payload *p, uint8_t *to, uint32_t n)
{
	struct wqe *w = p->kind == PAYLOAD_WQE ? sq_at(&qp->sq, p->idx) : NULL;
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	int maps, ret;

	if (w && w->is_inline) {
		memcpy(to, wqe_inline(w) + p->off, n);
		return 0;
	}
	maps = payload_map(qp, p, 0, n, &mem);
	if (maps < 0)
		return maps;
	ret = take_iov(to, iov, maps);
	sge_unmap(refs, maps);
	return ret;
}

/* ---- frames ------------------------------------------------------------------------- */

static const struct response *resp_at(const struct stream *s, uint32_t i)
{
	return &s->rx.resp[i % RESPONSES];
}

static void add_ctl(struct rc_build *b, struct stream *s, struct rc_cursor *c)
{
	unsigned skip = c->ctl;
	struct ctl_msg *m;

	list_for_each(m, &s->tx.ctl, link) {
		if (skip) {
			skip--;
			continue;
		}
		if (b->full(b, s))
			return;
		c->ctl++;
		b->add(b, s, &m->h, &no_payload, c);
	}
}

static void add_number(struct rc_build *b, struct stream *s, struct rc_cursor *c,
		       enum ctl_type type)
{
	struct rc_frame h = { .op = RC_CTL, .last = true, .ctl = { .type = type } };

	switch (type) {
	case CTL_ACK:
		h.ctl.number = (s->rx.expected - 1) & 0xffffff;
		c->ack = false;
		break;
	case CTL_NAK:
		h.ctl.number = s->rx.nak_number;
		h.ctl.code = s->rx.nak_code;
		h.ctl.timer = s->rx.nak_timer;
		c->nak = false;
		break;
	case CTL_RECV_POSTED:
		c->recv_posted = false;
		break;
	case CTL_SRQ:
		h.ctl.number = c->srqn = sq_at(&s->qp->sq, c->idx)->srqn;
		break;
	default: /* CTL_RESYNC */
		h.ctl.number = req_number(s, s->tx.acked_nr);
		h.ctl.msn0 = c->msn0;
		h.ctl.msn1 = c->msn1;
		c->resync = false;
	}
	b->add(b, s, &h, &no_payload, c);
}

/* One frame of the oldest response. */
static int add_response(struct rc_build *b, struct stream *s, struct rc_cursor *c)
{
	const struct response *r = resp_at(s, c->resp);
	struct rc_payload p = { PAYLOAD_RESPONSE, .idx = c->resp, .off = c->resp_done };
	struct rc_frame h = { .last = true };
	uint32_t n;
	int ret;

	if (r->atomic) {
		h.op = RC_ATOMIC_RESP;
		h.msn = c->msn3++;
		h.atomic_resp.id = r->id;
		h.atomic_resp.value = r->value;
		c->resp++;
		return b->add(b, s, &h, &no_payload, c);
	}
	n = r->len - c->resp_done;
	if (n > s->payload_max)
		n = s->payload_max;
	h.op = RC_READ_RESP;
	h.payload = n;
	h.stag = r->stag;
	h.to = r->to + c->resp_done;
	p.key = r->key;
	p.pd = r->pd;
	p.addr = r->addr + c->resp_done;
	c->resp_done += n;
	h.last = c->resp_done == r->len;
	if (h.last) {
		c->resp++;
		c->resp_done = 0;
	}
	ret = b->add(b, s, &h, &p, c);
	if (ret) {
		c->resp = p.idx;
		c->resp_done = p.off;
	}
	return ret;
}

/* The WQE that may go on or begin now, or NULL. */
static struct wqe *next_wqe(struct stream *s, const struct rc_cursor *c)
{
	struct dev_qp *qp = s->qp;
	struct wqe *w;

	if (!qp || s->tx.hold != HOLD_NONE || s->tx.muted || s->tx.more || s->tx.drain ||
	    s->tx.paging_request.waits ||
	    c->idx == qp->sq.tail)
		return NULL;
	w = sq_at(&qp->sq, c->idx);
	if (!qp_may_receive_locked(qp)) /* ERR: not even what was begun */
		return NULL;
	if (wqe_is_local(w)) /* when all before it has left: req_local_locked() */
		return NULL;
	if (c->off || c->imm_sent || c->probe_sent)
		return w;
	if (!qp_may_begin_locked(qp, c->idx))
		return NULL;
	if ((w->send_flags & IBV_SEND_FENCE) && c->rd_out)
		return NULL;
	if (wqe_is_read(w) && c->rd_out >= qp->attr.max_rd_atomic)
		return NULL;
	return w;
}

/* The bytes of an atomic write, in the order they have in memory. */
static int atomic_word(const struct stream *s, const struct wqe *w, uint64_t *word)
{
	struct sge_list list = wqe_sge_list(s->qp, w, MR_LOCAL_READ);
	struct mr_slot *refs[8];
	struct iovec iov[8];
	struct sge_mem mem = { iov, refs, 8 };
	uint8_t raw[8];
	int n, ret;

	if (w->is_inline) {
		*word = be64_get((const uint8_t *)&w->swap);
		return 0;
	}
	n = sge_map(&list, 0, 8, &mem);
	if (n < 0)
		return n;
	ret = take_iov(raw, iov, n);
	sge_unmap(refs, n);
	if (!ret)
		*word = be64_get(raw);
	return ret;
}

static int read_header(const struct stream *s, struct rc_frame *h, const struct wqe *w,
		       uint32_t idx)
{
	if (w->opcode == IBV_WR_RDMA_READ) {
		h->op = RC_READ_REQ;
		memset(&h->read, 0, sizeof(h->read));
		h->read.sink_stag = idx;
		h->read.size = w->length;
		h->read.src_stag = w->rkey;
		h->read.src_to = w->raddr;
		return 0;
	}
	h->op = RC_ATOMIC_REQ;
	memset(&h->atomic, 0, sizeof(h->atomic));
	h->atomic.id = idx;
	h->atomic.stag = w->rkey;
	h->atomic.to = w->raddr;
	if (w->opcode == IBV_WR_ATOMIC_WRITE) {
		h->atomic.opcode = RC_ATOMIC_WRITE;
		return atomic_word(s, w, &h->atomic.add_swap);
	}
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		h->atomic.opcode = RC_FETCH_ADD;
		h->atomic.add_swap = w->compare_add;
	} else {
		h->atomic.opcode = RC_CMP_SWAP;
		h->atomic.add_swap = w->swap;
		h->atomic.compare = w->compare_add;
	}
	return 0;
}

static void data_header(struct rc_frame *h, const struct wqe *w, struct rc_cursor *c,
			uint32_t n)
{
	bool se = w->send_flags & IBV_SEND_SOLICITED;

	h->payload = n;
	if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		h->op = RC_WRITE;
		h->stag = w->rkey;
		h->to = w->raddr + c->off;
		if (!n) /* so much is in its place: execute_next_locked() */
			h->msn = w->length;
		return;
	}
	h->op = se ? RC_SEND_SE : RC_SEND;
	if (w->opcode == IBV_WR_SEND_WITH_INV) {
		h->op = se ? RC_SEND_SE_INV : RC_SEND_INV;
		h->inv_stag = w->imm_or_rkey;
	}
	h->msn = c->msn0;
	h->mo = c->off;
	if (h->last)
		c->msn0++;
}

static bool has_imm(const struct wqe *w)
{
	return w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static int add_imm(struct rc_build *b, struct stream *s, struct rc_cursor *c,
		   const struct wqe *w)
{
	struct rc_frame h = {
		.op = w->send_flags & IBV_SEND_SOLICITED ? RC_IMM_SE : RC_IMM,
		.last = true,
		.msn = c->msn0++,
		.imm = { .imm = ntohl(w->imm_or_rkey), .kind = IMM_PREFIX },
	};

	c->imm_sent = true;
	return b->add(b, s, &h, &no_payload, c);
}

/* No request is posted behind the one at the cursor. Local work may be, whose
 * completion waits for the answer to this one. */
static bool last_request(struct dev_sq *sq, struct rc_cursor *c)
{
	for (uint32_t i = c->idx + 1; i != sq->tail; i++) {
		const struct wqe *w = sq_at(sq, i);

		if (!wqe_is_local(w))
			return false;
		if (w->send_flags & IBV_SEND_SIGNALED)
			c->sig_since_req = true;
	}
	return true;
}

/* Asks for an answer when this is the last posted request and somebody waits for
 * a completion, or when the queue is half full of unanswered work. */
static bool want_ack(struct stream *s, struct rc_cursor *c, const struct wqe *w)
{
	struct dev_sq *sq = &s->qp->sq;
	uint32_t out = c->idx + 1 - s->tx.acked;

	lock_assert_held(&s->lock);
	if (stream_unacked(s))
		return false;
	if (w->send_flags & IBV_SEND_SIGNALED)
		c->sig_since_req = true;
	if ((last_request(sq, c) && c->sig_since_req) || execute_drains_before(s, c->idx + 1) ||
	    (out >= sq->max_wr / 2 && (out & 7) == 0) || out >= sq->max_wr) {
		c->sig_since_req = false;
		return true;
	}
	return false;
}

/* RFC 5040 has neither; RFC 7306 does, but its peers are rare and number them
 * differently (immediate data behind the write, as a message of its own). And nobody
 * has SRQs with numbers. */
static bool iwarp_has(const struct dev_qp *qp, const struct wqe *w)
{
	return qp->qp.qp_type != IBV_QPT_XRC_SEND && !has_imm(w) &&
	       (!wqe_is_read(w) || w->opcode == IBV_WR_RDMA_READ);
}

/* Whether any of it may be read is found out before the first byte leaves: what is
 * refused here must not have an effect there. Of a single frame the carrier finds it out.
 * Where an answer is to be stored is looked at when it comes, as on NICs: the request may
 * have had its effect, or be refused by the responder. */
static int check_local(const struct stream *s, const struct wqe *w)
{
	struct sge_list list;

	if (wqe_is_read(w))
		return !wqe_is_atomic(w) || (w->num_sge == 1 && w->length == 8) ? 0 :
										 -EMSGSIZE;
	if (w->is_inline || !(has_imm(w) || w->length > s->payload_max))
		return 0;
	list = wqe_sge_list(s->qp, w, MR_LOCAL_READ);
	return sge_check(&list);
}

/* A write of several frames is announced by an empty segment at its end, so that the
 * responder can refuse the whole before it has placed a part (InfiniBand's first
 * packet has the length). */
static bool needs_probe(const struct stream *s, const struct wqe *w)
{
	return s->p.extended && w->length > s->payload_max &&
	       (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
}

static int add_probe(struct rc_build *b, struct stream *s, struct rc_cursor *c,
		     const struct wqe *w)
{
	struct rc_frame h = { .op = RC_WRITE, .stag = w->rkey, .to = w->raddr + w->length };

	c->probe_sent = true;
	return b->add(b, s, &h, &no_payload, c);
}

/* The rest of the WQE is much, and of a send whose payload the peer fetches. */
static bool by_reference(struct stream *s, const struct rc_cursor *c, const struct wqe *w)
{
	return w->length - c->off >= RC_REFERENCE_MIN && s->carrier->by_reference &&
	       wqe_is_send(w) &&
	       c->idx != s->tx.copy_idx && s->tx.references_refused < RC_REFERENCE_REFUSALS &&
	       !s->p.unreliable && s->carrier->by_reference(s, w);
}

/* One frame of the WQE at the cursor. */
static int add_request(struct rc_build *b, struct stream *s, struct rc_cursor *c,
		       struct wqe *w)
{
	struct rc_payload p = { .idx = c->idx, .off = c->off };
	struct rc_cursor old = *c;
	struct rc_frame h;
	uint32_t n, max;
	int ret;

	if (!s->p.extended && !iwarp_has(s->qp, w))
		return -EOPNOTSUPP;
	if (!c->off && !c->imm_sent && !c->probe_sent) {
		ret = check_local(s, w);
		if (ret)
			return ret;
	}
	if (has_imm(w) && !c->imm_sent)
		return add_imm(b, s, c, w);
	if (needs_probe(s, w) && !c->probe_sent)
		return add_probe(b, s, c, w);
	rc_frame_clear(&h);
	h.last = true;
	if (wqe_is_read(w)) {
		ret = read_header(s, &h, w, c->idx);
		if (ret)
			return ret;
		h.msn = c->msn1++;
		c->rd_out++;
		c->idx++;
		return b->add(b, s, &h, &no_payload, c);
	}
	n = w->length - c->off;
	p.by_reference = by_reference(s, c, w);
	max = p.by_reference ? RC_REFERENCE_MAX : s->payload_max;
	if (n > max)
		n = max;
	h.last = c->off + n == w->length;
	h.ack_req = h.last && want_ack(s, c, w);
	data_header(&h, w, c, n);
	p.kind = n ? PAYLOAD_WQE : PAYLOAD_NONE;
	c->off += n;
	if (h.last) {
		c->idx++;
		c->off = 0;
		c->imm_sent = c->probe_sent = false;
	}
	ret = b->add(b, s, &h, &p, c);
	if (ret)
		*c = old;
	else
		w->pulled |= p.by_reference;
	return ret;
}

static void cursor_load(struct stream *s, struct rc_cursor *c)
{
	*c = (struct rc_cursor){
		.idx = s->qp ? s->qp->sq.next : 0,
		.off = s->tx.off,
		.imm_sent = s->tx.imm_sent,
		.probe_sent = s->tx.probe_sent,
		.rd_out = s->tx.rd_out,
		.msn0 = s->tx.msn0,
		.msn1 = s->tx.msn1,
		.msn3 = s->tx.msn3,
		.srqn = s->tx.srqn,
		.sig_since_req = s->tx.sig_since_req,
		.resp_turn = s->tx.resp_turn,
		.resync = s->tx.resync,
		.nak = s->rx.nak,
		.ack = s->rx.ack_owed,
		.recv_posted = s->rx.recv_posted,
		.resp = s->rx.resp_head,
	};
	if (c->resp != s->rx.resp_tail)
		c->resp_done = resp_at(s, c->resp)->done;
}

void rc_cursor_store(struct stream *s, const struct rc_cursor *c)
{
	lock_assert_held(&s->lock);
	for (unsigned i = 0; i < c->ctl; i++)
		free(list_entry(list_pop(&s->tx.ctl), struct ctl_msg, link));
	s->tx.nctl -= c->ctl;
	if (s->qp) {
		struct dev_sq *sq = &s->qp->sq;

		s->tx.requests |= sq->next != c->idx;
		sq->next = c->idx;
		if (c->idx != sq->tail) /* the device asks whether it was begun */
			sq_at(sq, c->idx)->begun =
				c->off || c->imm_sent || c->probe_sent || s->tx.more;
	}
	s->tx.off = c->off;
	s->tx.imm_sent = c->imm_sent;
	s->tx.probe_sent = c->probe_sent;
	s->tx.rd_out = c->rd_out;
	s->tx.msn0 = c->msn0;
	s->tx.msn1 = c->msn1;
	s->tx.msn3 = c->msn3;
	s->tx.srqn = c->srqn;
	s->tx.sig_since_req = c->sig_since_req;
	s->tx.resp_turn = c->resp_turn;
	s->tx.resync = c->resync;
	s->rx.nak = c->nak;
	s->rx.recv_posted = c->recv_posted;
	if (s->rx.ack_owed && !c->ack)
		resp_acked(s);
	s->rx.resp_head = c->resp;
	if (c->resp != s->rx.resp_tail)
		s->rx.resp[c->resp % RESPONSES].done = c->resp_done;
}

/* XRC: the peer must know which SRQ the request is for. */
static bool other_srq(const struct stream *s, const struct rc_cursor *c, const struct wqe *w)
{
	return s->qp->qp.qp_type == IBV_QPT_XRC_SEND && s->p.extended &&
	       c->srqn != w->srqn;
}

void rc_build(struct stream *s, struct rc_build *b)
{
	struct rc_cursor c;
	struct wqe *w;
	int ret;

	cursor_load(s, &c);
	/* A control message may announce the end: what was done before it is known then. */
	if (c.ack && !list_empty(&s->tx.ctl) && !b->full(b, s))
		add_number(b, s, &c, CTL_ACK);
	add_ctl(b, s, &c);
	if (c.ack && !b->full(b, s) &&
	    (s->rx.ack_now || b->nframes || c.resp != s->rx.resp_tail || c.nak || c.recv_posted ||
	     next_wqe(s, &c)))
		add_number(b, s, &c, CTL_ACK);
	while (!b->full(b, s)) {
		bool owed = c.resp != s->rx.resp_tail;
		bool resp = owed && !s->tx.paging_response.waits;

		if (c.nak ? !owed : c.recv_posted) {
			add_number(b, s, &c, c.nak ? CTL_NAK : CTL_RECV_POSTED);
			continue;
		}
		w = next_wqe(s, &c);
		if (resp && (c.resp_turn || !w)) {
			c.resp_turn = false;
			ret = add_response(b, s, &c);
			if (!ret || ret == -EINPROGRESS)
				continue;
			b->fail = ret;
			break;
		}
		if (!w)
			break;
		c.resp_turn = true;
		if (c.resync) {
			add_number(b, s, &c, CTL_RESYNC);
			continue;
		}
		if (other_srq(s, &c, w)) {
			add_number(b, s, &c, CTL_SRQ);
			continue;
		}
		ret = add_request(b, s, &c, w);
		if (ret && ret != -EINPROGRESS) {
			b->fail = ret == -EOPNOTSUPP ? IBV_WC_LOC_QP_OP_ERR :
				  ret == -EMSGSIZE   ? IBV_WC_LOC_LEN_ERR :
						       IBV_WC_LOC_PROT_ERR;
			break;
		}
	}
}
