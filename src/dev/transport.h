/* SPDX-License-Identifier: BSD-2-Clause */
/* The seam between the device and what carries its bytes.
 *
 * A connected QP has one transport from RTR until RESET or destroy. A transport
 * has a *stream* (its own object, with its own lock) that may outlive the QP
 * and may exist before it; the QP is attached to at most one stream.
 *
 * Rules for all members: none blocks for a peer; all are called WITHOUT
 * qp->lock; a transport takes its stream lock first and qp->lock inside.
 *
 * A transport never touches CQ memory and never reads ibv_* structs other than
 * the SGEs of a WQE. */
#ifndef ANYRDMA_DEV_TRANSPORT_H
#define ANYRDMA_DEV_TRANSPORT_H

#include "dev/dev.h"

struct dev_transport {
	const char *name;

	/* The application itself has brought the QP to INIT: a peer may come by
	 * GID and QP number. 0 or -errno. */
	int (*listen)(struct dev_qp *qp);

	/* The QP has just entered RTR (attr.ah_attr, dest_qp_num, rq_psn,
	 * local_gid are set): find or request a stream. 0 at once; the stream
	 * may come later, work posted meanwhile waits. -errno refuses the
	 * transition (no memory, no descriptor). */
	int (*attach)(struct dev_qp *qp);

	/* Work was posted, or the QP entered RTS, or leaves SQD: send what can
	 * be sent without blocking, inline in the caller. */
	void (*kick)(struct dev_qp *qp);

	/* Work was posted, and qp->lock is still held: sends at once what needs no
	 * other lock that is taken, no wait and no system call. True if that was all
	 * of it; else kick() follows. May be NULL. */
	bool (*post_locked)(struct dev_qp *qp);

	/* A receive was posted on the QP (or on the SRQ it waits at) after
	 * recv_take() had answered -ENOENT: tell the peer to go on. */
	void (*recv_posted)(struct dev_qp *qp);

	/* The SRQ of the receive being filled (an XRC receive QP's) goes away: fail
	 * the message, and the QP with it. */
	void (*recv_lost)(struct dev_qp *qp);

	/* The QP has left RTR/RTS/SQD for ERR (state already set): after return
	 * neither its WQEs nor memory named by them is touched. Control traffic
	 * of the stream goes on. */
	void (*stop)(struct dev_qp *qp);

	/* The QP goes away (RESET or destroy): forget it. After return nobody
	 * uses the pointer. */
	void (*detach)(struct dev_qp *qp);
};

/* Chooses qp->tr at the transition to RTR: the one place that asks. */
const struct dev_transport *transport_choose(struct dev_qp *qp);
extern const struct dev_transport rc_transport;

/* ---- services of the device for a transport ------------------------------
 * Called with the stream lock held, qp->lock not held unless _locked. */

/* True if the QP may send requests (RTS; in SQD only what was begun). */
bool qp_may_send_locked(const struct dev_qp *qp);
/* The same for the WQE at SQ index idx, which may be ahead of sq.next. */
bool qp_may_begin_locked(const struct dev_qp *qp, uint32_t idx);
/* True if the QP may accept requests (RTR, RTS, SQD, SQE). */
bool qp_may_receive_locked(const struct dev_qp *qp);
/* A request of the peer has come: the same answer, and COMM_EST if it is the first
 * one in RTR. */
bool qp_heard_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* Local work requests (wqe_is_local: bind, local invalidate) need no peer and have
 * no request number, but their place in the order. A transport calls this when
 * it has sent everything before sq.next, before it looks at what is there: those
 * that are at sq.next are carried out, `finished` (retired) and stepped over; one
 * that is finished already, because the transport has stepped back for a repeat,
 * is only stepped over. Requests behind one see its effect, so none may be sent
 * earlier. A fenced one waits while `reads` or atomics are out. Not IBV_WC_SUCCESS:
 * the WQE at sq.next has failed with this status, to be reported by
 * qp_fail_send() when all before it are answered. To be called without a stream,
 * too: a bind does not wait for a connection. */
enum ibv_wc_status sq_run_local_locked(struct dev_qp *qp, bool reads)
	REQUIRES(qp->lock);

/* Completes, in order from sq.done, every WQE with `finished` set: a CQE for
 * those signalled. Stops at the first unfinished one. May move the QP to ERR
 * (CQ overrun); raises SQ_DRAINED when due. */
void sq_retire_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* Takes the next receive into qp->cur (cur_valid). 0, or -ENOENT: the peer is
 * to be told RNR and recv_posted() will be called when one is there. An XRC
 * receive QP takes it from the SRQ of this number; -EINVAL: its domain has none. */
int recv_take(struct dev_qp *qp, uint32_t srqn);

/* The PD that a peer's request is checked against: the QP's, or that of the SRQ
 * which the request names. NULL: there is no such SRQ. Only to compare with. */
struct dev_pd *recv_pd(struct dev_qp *qp, uint32_t srqn);

/* Completes qp->cur. wc: status, opcode, byte_len, imm_data or
 * invalidated_rkey, wc_flags; the rest is filled in here. */
void recv_done(struct dev_qp *qp, const struct ibv_wc *wc, bool solicited);

/* The QP fails. All move it to ERR and flush in order; harmless if it is in ERR
 * already. The transport has stopped using its WQEs before the call. A failed
 * send of an unreliable QP moves it to SQE and flushes the send queue alone: it
 * still receives, and the application may bring it back to RTS.
 *  qp_fail_send: the WQE at SQ index idx gets `status`; those before it count as
 *	finished. If no WQE is there: QP_FATAL.
 *  qp_fail_recv: qp->cur (if valid) gets `status`; and async event `ev`, if >= 0.
 * `why` is one sentence for the log, with the numbers. */
void qp_fail_send(struct dev_qp *qp, uint32_t idx, enum ibv_wc_status status,
		  const char *why);
void qp_fail_recv(struct dev_qp *qp, enum ibv_wc_status status, int ev,
		  const char *why);

#endif
