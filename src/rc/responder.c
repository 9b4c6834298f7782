/* SPDX-License-Identifier: BSD-2-Clause */
/* The peer's requests: checks before a byte is placed, effects after the last.
 *
 * The responder is GOOD or DROP (rx.drop). A request that cannot be accepted is
 * answered with NAK(number), and from then on every request frame is read and
 * discarded until RESYNC(number). Responses and control go on. Reads and
 * atomics run only in GOOD and in order, so never twice.
 *
 * A plain peer knows no NAK: the carrier refuses (iWARP: Terminate), and nothing repeats
 * anything. */
#include "rc/responder.h"

#include "base/be.h"
#include "base/guard.h"
#include "base/log.h"
#include "rc/rx.h"
#include "rc/tx.h"
#include "rc/uc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void resp_nak(struct stream *s, enum nak_code code)
{
	struct rc_rx *rx = &s->rx;

	if (s->p.unreliable) {
		uc_drop(s);
		return;
	}
	rx->drop = true;
	rx->place = PLACE_SCRATCH;
	if (!s->p.extended) {
		s->carrier->refuse(s, code);
		return;
	}
	rx->nak = true;
	rx->nak_code = (uint8_t)code;
	rx->nak_timer = s->qp ? rx->rnr_timer : 0;
	rx->nak_number = rx->expected;
	rx->imm_have = false;
	rx->write_len = rx->msg_off = 0;
	rx->ack_now = rx->ack_owed;
}

void resp_fail_now(struct stream *s, enum ibv_wc_status st, int ev, const char *why)
{
	lock_assert_held(&s->lock);
	if (!s->qp)
		return;
	tx_own_payload(s);
	s->tx.hold = HOLD_NONE;
	/* The answer to a read of our own may be half here: it has no WQE any more. */
	s->rx.place = PLACE_SCRATCH;
	qp_fail_recv(s->qp, st, ev, why);
}

/* The request is refused for good: NAK, and our own QP fails; but not while answers
 * to earlier requests are still to be sent. On the wire they would have left before
 * this one was looked at, and who sees the QP fail may destroy it at once. Nor while its
 * receive is being filled. */
void resp_fail(struct stream *s, enum nak_code code, enum ibv_wc_status st, int ev,
	       const char *why)
{
	struct resp_failure *f = &s->rx.failure;

	if (s->p.unreliable) {
		uc_refuse(s, st, why);
		return;
	}
	resp_nak(s, code);
	if (!s->qp)
		return;
	if (!s->p.extended || (s->rx.resp_head == s->rx.resp_tail && !s->rx.fetching)) {
		resp_fail_now(s, st, ev, why);
		return;
	}
	f->due = true;
	f->status = st;
	f->event = ev;
	snprintf(f->why, sizeof(f->why), "%s", why);
}

void resp_settle(struct stream *s)
{
	struct resp_failure *f = &s->rx.failure;

	lock_assert_held(&s->lock);
	if (!f->due || s->rx.fetching ||
	    (s->state == STREAM_OPEN && s->rx.resp_head != s->rx.resp_tail))
		return;
	f->due = false;
	resp_fail_now(s, f->status, f->event, f->why);
}

/* Gives up what is still to be answered; the number of the first of it. */
static uint32_t responses_drop(struct rc_rx *rx)
{
	uint32_t number = rx->resp[rx->resp_head % RESPONSES].number;

	rx->resp_head = rx->resp_tail;
	return number;
}

void resp_lost(struct stream *s)
{
	uint32_t number;

	if (s->rx.resp_head == s->rx.resp_tail)
		return;
	number = responses_drop(&s->rx);
	s->rx.failure.due = false;
	resp_nak(s, NAK_NO_QP); /* a plain stream ends with its QP anyway */
	s->rx.nak_number = number;
}

void resp_unreadable(struct stream *s, int err)
{
	uint32_t number = responses_drop(&s->rx);

	s->rx.failure.due = false; /* this one was before it */
	s->rx.reason = RC_REASON_STREAM;
	if (err == -EFAULT)
		resp_fail(s, NAK_REM_OP, IBV_WC_SUCCESS, IBV_EVENT_QP_FATAL,
			  "memory of a read was unmapped");
	else
		resp_fail(s, NAK_REM_ACCESS, IBV_WC_SUCCESS, IBV_EVENT_QP_ACCESS_ERR,
			  "memory of a read was deregistered before it was answered");
	s->rx.nak_number = number;
}

void resp_resync(struct stream *s, const struct rc_frame *h)
{
	struct rc_rx *rx = &s->rx;

	if (s->p.unreliable) {
		uc_drop(s);
		rx->skip = false;
		return;
	}
	/* Without a QP nothing was accepted and no number is known. The first one is for
	 * numbered() to look at. */
	if (s->qp && rx->begun && (!rx->drop || h->ctl.number != rx->expected)) {
		stream_broken(s, -EPROTO, "RESYNC for a request that is not expected");
		return;
	}
	rx->resync = true;
	rx->resync_number = h->ctl.number;
	rx->drop = rx->nak = rx->rnr_sent = rx->not_ready_sent = false;
	rx->msn0 = h->ctl.msn0;
	rx->msn1 = h->ctl.msn1;
}

/* Is the request of the QP's own service? Others get no answer on hardware. */
static bool same_service(const struct stream *s)
{
	switch (s->qp->qp.qp_type) {
	case IBV_QPT_XRC_SEND:
		return false;
	case IBV_QPT_XRC_RECV:
		return s->rx.srqn != NO_SRQ;
	default:
		return s->rx.srqn == NO_SRQ;
	}
}

/* The first request has the number that the QP was told to expect. If not, nobody will
 * ever answer, as on a wire where every packet is out of sequence. */
static bool numbered(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	if (rx->begun || !rx->resync || rx->resync_number == rx->expected) {
		rx->begun = true;
		return true;
	}
	log_info("QP %06x: the first request of QP %06x has number %06x, but rq_psn is %06x",
		 s->qp->qp.qp_num, s->qp->attr.dest_qp_num, rx->resync_number, rx->expected);
	resp_nak(s, NAK_NO_QP);
	rx->nak_number = rx->resync_number;
	return false;
}

/* May the QP take requests? If not, NAK. */
static bool accepting(struct stream *s)
{
	struct dev_qp *qp = s->qp;
	enum ibv_qp_state state;
	bool may;

	lock_assert_held(&s->lock);
	if (!qp) {
		s->rx.not_ready_sent = !s->qp_was && !s->p.unreliable;
		resp_nak(s, s->qp_was ? NAK_NO_QP : NAK_NOT_READY);
		return false;
	}
	lock_get(&qp->lock);
	may = same_service(s) && qp_heard_locked(qp);
	state = qp->qp.state;
	s->rx.rights = qp->attr.qp_access_flags;
	s->rx.rnr_timer = qp->attr.min_rnr_timer;
	lock_put(&qp->lock);
	if (may)
		return numbered(s);
	s->rx.not_ready_sent = state == IBV_QPS_INIT && !s->p.unreliable;
	resp_nak(s, state == IBV_QPS_INIT ? NAK_NOT_READY : NAK_NO_QP);
	return false;
}

/* The QP serves the operation. If not, it is an invalid request, whatever its key. */
static bool served(struct stream *s, unsigned access)
{
	char why[100];

	lock_assert_held(&s->lock);
	if (s->rx.rights & access)
		return true;
	snprintf(why, sizeof(why), "%s by QP %06x: the QP does not allow it",
		 rc_op_str(s->rx.h.op), s->qp->attr.dest_qp_num);
	s->rx.reason = RC_REASON_RIGHTS;
	resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR, why);
	return false;
}

/* What mr_get_remote() found wrong. */
static enum rc_reason reason_of(int err)
{
	switch (err) {
	case -ENOENT:
		return RC_REASON_KEY;
	case -EPERM:
		return RC_REASON_PD;
	case -ERANGE:
		return RC_REASON_BOUNDS;
	default:
		return RC_REASON_RIGHTS;
	}
}

/* No access to the memory that a request names. Of a write with immediate data the receive
 * says so, if there is one: "local access error" is the status for this. Else an event. */
void resp_no_access(struct stream *s, const char *why)
{
	lock_assert_held(&s->lock);
	if (s->rx.h.op == RC_WRITE && s->rx.imm_have && !s->p.unreliable &&
	    !recv_take(s->qp, s->rx.srqn))
		resp_fail(s, NAK_REM_ACCESS, IBV_WC_LOC_ACCESS_ERR, -1, why);
	else
		resp_fail(s, NAK_REM_ACCESS, IBV_WC_SUCCESS, IBV_EVENT_QP_ACCESS_ERR, why);
}

static bool allowed(struct stream *s, unsigned access, uint32_t key, uint64_t addr,
		    uint32_t len)
{
	struct mr_range r = { key, addr, len };
	struct dev_qp *qp = s->qp;
	struct mr_ref ref;
	char why[160];
	int ret;

	lock_assert_held(&s->lock);
	ret = mr_get_remote(s->rx.pd, qp, &r, access, &ref);
	if (!ret) {
		mr_put(ref.slot);
		return true;
	}
	snprintf(why, sizeof(why), "%s by QP %06x: key %08x, %u bytes at %#llx: %s",
		 rc_op_str(s->rx.h.op), qp->attr.dest_qp_num, key, len,
		 (unsigned long long)addr,
		 ret == -ENOENT ? "no such key" :
		 ret == -EPERM	? "other protection domain or QP" :
		 ret == -ERANGE ? "out of bounds" :
				  "the region or window does not allow it");
	s->rx.reason = reason_of(ret);
	resp_no_access(s, why);
	return false;
}

/* No receive is posted. */
static void receiver_not_ready(struct stream *s, int where)
{
	lock_assert_held(&s->lock);
	if (!s->p.extended) {
		resp_fail(s, NAK_RNR, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR,
			  "a send came and no receive is posted: iWARP does not wait");
		return;
	}
	if (s->p.unreliable && uc_late(s, where))
		return;
	if (s->p.unreliable) {
		log_debug("QP 0x%x discards a message: no receive is posted",
			  s->qp->qp.qp_num);
		uc_drop(s);
		return;
	}
	s->rx.rnr_sent = true;
	resp_nak(s, NAK_RNR);
}

/* Annex A14 of InfiniBand: an invalid XRC header, or one of another domain. */
static void no_such_srq(struct stream *s)
{
	char why[100];

	lock_assert_held(&s->lock);
	snprintf(why, sizeof(why), "%s by QP %06x: the domain has no SRQ %06x",
		 rc_op_str(s->rx.h.op), s->qp->attr.dest_qp_num, s->rx.srqn);
	resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_ACCESS_ERR, why);
}

/* A receive is there, in qp->cur; if not, the peer is told why. */
static bool receive_ready(struct stream *s, int where)
{
	int ret = recv_take(s->qp, s->rx.srqn);

	lock_assert_held(&s->lock);
	if (ret == -EINVAL)
		no_such_srq(s);
	else if (ret)
		receiver_not_ready(s, where);
	return !ret;
}

/* RFC 5041 section 5.1.2, message sequence numbers and offsets. Nobody counts
 * messages that were discarded. */
static bool in_sequence(struct stream *s, uint32_t msn, uint32_t mo)
{
	if ((s->rx.h.msn == msn || s->p.unreliable) && s->rx.h.mo == mo)
		return true;
	s->rx.reason = s->rx.h.msn != msn ? RC_REASON_MSN : RC_REASON_MO;
	return false;
}

/* So many bytes more are not too many for one message. If they are, it is refused. Also,
 * the count of a write's bytes does not go round then. */
static bool write_fits(struct stream *s, uint32_t len)
{
	lock_assert_held(&s->lock);
	if (len <= DEV_MAX_MSG - s->rx.write_len)
		return true;
	resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR,
		  "write of more than 2^31 bytes");
	return false;
}

/* An empty segment that is not the last one tells where a larger write ends: if its
 * end and, with the next segment, its beginning lie in the region, all of it does. An
 * empty write as a whole has a key that is not looked at, as in begin_read(). */
static void begin_write(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	bool empty = !rx->h.payload && (rx->h.last || !s->p.extended);

	lock_assert_held(&s->lock);
	if (s->p.extended && !s->p.unreliable && rx->write_len &&
	    (rx->h.to != rx->write_end || rx->h.stag != rx->write_stag)) {
		resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR,
			  "the segments of a write are not one range");
		return;
	}
	if (empty && !s->p.extended) /* may come before anything is allowed (RFC 6581) */
		rx->place = PLACE_WRITE;
	else if (served(s, IBV_ACCESS_REMOTE_WRITE) && write_fits(s, rx->h.payload) &&
		 (empty || allowed(s, IBV_ACCESS_REMOTE_WRITE, rx->h.stag, rx->h.to,
				   rx->h.payload)))
		rx->place = PLACE_WRITE;
}

int resp_placed(struct stream *s, uint32_t len)
{
	struct rc_rx *rx = &s->rx;

	if (rx->h.payload || !rx->h.last || rx->h.to < len || s->p.unreliable)
		return -EPROTO;
	if (rx->place != PLACE_WRITE)
		return 0; /* it is refused already */
	if (rx->write_len)
		return -EPROTO;
	if (write_fits(s, len) &&
	    allowed(s, IBV_ACCESS_REMOTE_WRITE, rx->h.stag, rx->h.to - len, len))
		rx->write_len = len;
	else
		rx->place = PLACE_SCRATCH;
	return 0;
}

/* InfiniBand 9.9.3: on UC a message that does not fit is discarded and its receive
 * serves the next one (class D), unless the receive came from an SRQ, to which it
 * cannot go back (class E). */
static enum ibv_wc_status too_long_status(const struct stream *s)
{
	return s->p.unreliable && !s->qp->srq ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

static int begin_send(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	struct dev_qp *qp = s->qp;
	char why[100];

	lock_assert_held(&s->lock);
	if (!in_sequence(s, rx->msn0, rx->msg_off))
		return -EPROTO;
	if (!qp->cur_valid && !receive_ready(s, WAIT_BEGIN))
		return 0;
	rx->no_wait = false;
	rx->wait_until = 0;
	if (rx->h.payload > qp->cur->length - rx->msg_off) {
		snprintf(why, sizeof(why), "a send of at least %u bytes, the receive has %u",
			 rx->msg_off + rx->h.payload, qp->cur->length);
		resp_fail(s, NAK_INV_REQ, too_long_status(s), -1, why);
		return 0;
	}
	rx->place = PLACE_RECV;
	return 0;
}

static int begin_imm(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	if ((rx->h.msn != rx->msn0 && !s->p.unreliable) || rx->imm_have)
		return -EPROTO;
	rx->msn0++;
	rx->imm = htonl(rx->h.imm.imm);
	rx->imm_se = rx->h.op == RC_IMM_SE;
	rx->imm_have = true;
	return 0;
}

static struct response *response_new(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	struct response *r;

	lock_assert_held(&s->lock);
	if (rx->resp_tail - rx->resp_head >= s->qp->attr.max_dest_rd_atomic) {
		char why[100];

		snprintf(why, sizeof(why), "more than %u reads and atomics at once",
			 s->qp->attr.max_dest_rd_atomic);
		s->rx.reason = RC_REASON_READS;
		resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR, why);
		return NULL;
	}
	if (!rx->resp)
		rx->resp = calloc(RESPONSES, sizeof(*rx->resp));
	if (!rx->resp) {
		stream_broken(s, -ENOMEM, "no memory for responses");
		return NULL;
	}
	r = &rx->resp[rx->resp_tail % RESPONSES];
	memset(r, 0, sizeof(*r));
	r->number = rx->expected;
	return r;
}

static int begin_read(struct stream *s)
{
	struct rc_frame *h = &s->rx.h;
	struct response *r;

	lock_assert_held(&s->lock);
	if (!in_sequence(s, s->rx.msn1, h->mo))
		return -EPROTO;
	/* A plain peer's first message may be an empty read (RFC 6581). */
	if ((s->p.extended || h->read.size) && !served(s, IBV_ACCESS_REMOTE_READ))
		return 0;
	if (h->read.size > DEV_MAX_MSG) {
		resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR,
			  "read of more than 2^31 bytes");
		return 0;
	}
	/* InfiniBand C9-88, RFC 5040 section 5: of an empty request the key is not
	 * looked at. */
	if (h->read.size && !allowed(s, IBV_ACCESS_REMOTE_READ, h->read.src_stag,
				     h->read.src_to, h->read.size))
		return 0;
	r = response_new(s);
	if (!r)
		return 0;
	r->stag = h->read.sink_stag;
	r->to = h->read.sink_to;
	r->key = h->read.src_stag;
	r->pd = s->rx.pd;
	r->addr = h->read.src_to;
	r->len = h->read.size;
	s->rx.resp_tail++;
	s->rx.msn1++;
	return 0;
}

struct atomic_call {
	uint64_t *p;
	const struct rc_frame *h;
	uint64_t result;
};

static uint64_t atomic_apply(uint64_t *p, const struct rc_frame *h)
{
	uint64_t old = h->atomic.compare;
	uint64_t word;

	if (h->atomic.opcode == RC_ATOMIC_WRITE) {
		be64_put((uint8_t *)&word, h->atomic.add_swap);
		__atomic_store_n(p, word, __ATOMIC_SEQ_CST);
		return 0;
	}
	if (h->atomic.opcode == RC_FETCH_ADD)
		return __atomic_fetch_add(p, h->atomic.add_swap, __ATOMIC_SEQ_CST);
	__atomic_compare_exchange_n(p, &old, h->atomic.add_swap, false, __ATOMIC_SEQ_CST,
				    __ATOMIC_SEQ_CST);
	return old;
}

static void atomic_run(void *arg)
{
	struct atomic_call *c = arg;

	c->result = atomic_apply(c->p, c->h);
}

static int begin_atomic(struct stream *s)
{
	struct rc_frame *h = &s->rx.h;
	struct response *r;
	bool write = h->atomic.opcode == RC_ATOMIC_WRITE;
	unsigned access = write ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_ATOMIC;
	struct atomic_call call = { .h = h };
	struct mr_range range = { h->atomic.stag, h->atomic.to, 8 };
	struct mr_ref ref;
	bool done;

	lock_assert_held(&s->lock);
	if (h->msn != s->rx.msn1 ||
	    (!write && h->atomic.opcode != RC_FETCH_ADD &&
	     h->atomic.opcode != RC_CMP_SWAP))
		return -EPROTO;
	if (!served(s, access))
		return 0;
	if (h->atomic.to & 7) {
		resp_fail(s, NAK_INV_REQ, IBV_WC_SUCCESS, IBV_EVENT_QP_REQ_ERR,
			  "atomic on an address that is not a multiple of 8");
		return 0;
	}
	if (!allowed(s, access, h->atomic.stag, h->atomic.to, 8))
		return 0;
	r = response_new(s);
	if (!r)
		return 0;
	if (mr_get_remote(s->rx.pd, s->qp, &range, access, &ref)) {
		resp_no_access(s, "the memory of an atomic was deregistered");
		return 0;
	}
	call.p = ref.ptr;
	done = guard_call(ref.ptr, 8, atomic_run, &call);
	mr_put(ref.slot);
	if (!done) {
		resp_fail(s, NAK_REM_OP, IBV_WC_SUCCESS, IBV_EVENT_QP_FATAL,
			  "the memory of an atomic was unmapped");
		return 0;
	}
	r->atomic = true;
	r->id = h->atomic.id;
	r->value = call.result;
	s->rx.resp_tail++;
	s->rx.msn1++;
	return 0;
}

int resp_begin(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	if (rx->drop || rx->skip || !accepting(s))
		return 0;
	rx->reason = RC_REASON_NONE;
	rx->pd = recv_pd(s->qp, rx->srqn);
	if (!rx->pd) {
		no_such_srq(s);
		return 0;
	}
	if (!s->p.extended && (rx->h.op == RC_ATOMIC_REQ || rx->h.op == RC_IMM ||
			       rx->h.op == RC_IMM_SE)) {
		rx->reason = RC_REASON_OPCODE;
		return -EPROTO;
	}
	switch (rx->h.op) {
	case RC_WRITE:
		begin_write(s);
		return 0;
	case RC_READ_REQ:
	case RC_ATOMIC_REQ:
		if (s->p.unreliable) {
			uc_drop(s); /* UC has neither */
			return 0;
		}
		return rx->h.op == RC_READ_REQ ? begin_read(s) : begin_atomic(s);
	case RC_IMM:
	case RC_IMM_SE:
		return begin_imm(s);
	default:
		return begin_send(s);
	}
}

void resp_accepted(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	rx->expected = (rx->expected + 1) & 0xffffff;
	rx->imm_have = false;
	rx->msg_off = rx->write_len = 0;
	if (stream_unacked(s))
		return;
	rx->ack_owed = true;
	rx->ack_idle = 0;
	rx->ack_msgs++;
	if (rx->h.ack_req)
		rx->ack_asked = true;
	if (rx->ack_msgs >= RC_ACK_MSGS || rx->ack_bytes >= RC_ACK_BYTES)
		rx->ack_now = true;
}

void resp_acked(struct stream *s)
{
	s->rx.ack_owed = s->rx.ack_asked = s->rx.ack_now = false;
	s->rx.ack_msgs = s->rx.ack_bytes = s->rx.ack_idle = 0;
}

static void imm_to_wc(struct stream *s, struct ibv_wc *wc)
{
	if (!s->rx.imm_have)
		return;
	wc->imm_data = s->rx.imm;
	wc->wc_flags |= IBV_WC_WITH_IMM;
}

/* A send has arrived, but the key that it names cannot be invalidated. InfiniBand 9.9.3,
 * class J: the receive fails and the QP with it, and no NAK is sent. The send itself is
 * acknowledged, as Linux' rxe and hfi1 do: the requester hears of it by its next request.
 * A plain peer is told (RFC 5040 section 4.8). */
static void not_invalidated(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	char why[80];

	lock_assert_held(&s->lock);
	snprintf(why, sizeof(why), "send with invalidate: key %08x cannot be",
		 rx->h.inv_stag);
	rx->reason = RC_REASON_INVALIDATE;
	if (!s->p.extended) {
		resp_fail(s, NAK_REM_ACCESS, IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_ACCESS_ERR,
			  why);
		return;
	}
	resp_accepted(s);
	resp_fail(s, NAK_NO_QP, IBV_WC_LOC_PROT_ERR, -1, why);
}

static void end_send(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	enum rc_op op = rx->h.op;
	bool inv = op == RC_SEND_INV || op == RC_SEND_SE_INV;
	bool se = op == RC_SEND_SE || op == RC_SEND_SE_INV;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV };

	lock_assert_held(&s->lock);
	rx->msg_off += rx->h.payload;
	if (!rx->h.last)
		return;
	rx->msn0++;
	if (inv && mw_invalidate(s->qp, rx->h.inv_stag)) {
		not_invalidated(s);
		return;
	}
	wc.byte_len = rx->msg_off;
	imm_to_wc(s, &wc);
	if (inv) {
		wc.invalidated_rkey = rx->h.inv_stag;
		wc.wc_flags |= IBV_WC_WITH_INV;
	}
	resp_accepted(s);
	recv_done(s->qp, &wc, se);
}

static void end_write(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV_RDMA_WITH_IMM };
	bool se = rx->imm_se;

	lock_assert_held(&s->lock);
	if (rx->h.last && rx->imm_have && !receive_ready(s, WAIT_END))
		return;
	rx->write_len += rx->h.payload;
	rx->write_stag = rx->h.stag;
	rx->write_end = rx->h.to + rx->h.payload;
	if (!rx->h.last)
		return;
	if (!rx->imm_have) {
		resp_accepted(s);
		return;
	}
	rx->no_wait = false;
	rx->wait_until = 0;
	wc.byte_len = rx->write_len;
	imm_to_wc(s, &wc);
	resp_accepted(s);
	recv_done(s->qp, &wc, se);
}

/* Payload that was to be placed when its frame began, and is not: the QP went away
 * or failed meanwhile, and nothing else may follow that would be refused. */
static bool cut_off(const struct stream *s)
{
	switch (s->rx.h.op) {
	case RC_READ_REQ:
	case RC_ATOMIC_REQ:
	case RC_IMM:
	case RC_IMM_SE:
		return !s->qp;
	default:
		return !s->qp || s->rx.place == PLACE_SCRATCH;
	}
}

static void end_frame(struct stream *s)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	if (rx->drop || rx->skip)
		return;
	if (cut_off(s)) {
		resp_nak(s, NAK_NO_QP);
		return;
	}
	rx->ack_bytes += rx->h.payload;
	switch (rx->h.op) {
	case RC_WRITE:
		end_write(s);
		break;
	case RC_READ_REQ:
	case RC_ATOMIC_REQ:
		resp_accepted(s);
		break;
	case RC_IMM:
	case RC_IMM_SE:
		break;
	default:
		end_send(s);
	}
}

void resp_end(struct stream *s)
{
	end_frame(s);
	if (s->rx.skip)
		uc_frame_end(s);
}
