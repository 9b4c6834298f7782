/* SPDX-License-Identifier: BSD-2-Clause */
/* The contract between the device and its transports.
 *
 * A transport moves the data of QPs of certain types: src/rc that of connected QPs (RC,
 * UC, XRC), src/ud that of UD QPs. The device knows a transport by the table below alone.
 * A transport knows the QP and the services at the end of this file; it does not know the
 * verbs.
 *
 * Which transport serves a QP follows from its type (transport_choose()). qp->tr is set
 * from the transition to RTR until RESET or destruction. In this time the transport has
 * the QP between a successful attach() and detach().
 *
 * What belongs to the transport, in a QP:
 *  - tr_priv. The transport writes it with qp->lock held; NULL before attach() and after
 *    detach(). The device does not use it.
 *  - sq.next, and sq_step_back(): it takes WQEs from there in order.
 *  - In a WQE: finished, begun, got, pulled. All else in a WQE is constant once posted. A
 *    transport reads attributes, state and queues with qp->lock held. It gets receives by
 *    recv_take() and makes completions by the services alone.
 *
 * Locks. A transport may have locks of its own, outside of qp->lock in the order (dev.h).
 * Unless a member says otherwise, it is called in any thread, without qp->lock and
 * without locks of the transport, and does not wait for a peer. It may wait for another
 * thread of this process that holds a lock of the transport.
 *
 * listen, attach, receive, stop, detach, mcast_attach and mcast_detach of one QP are never
 * called at the same time (the device holds qp->modify_lock). kick, post_locked and
 * recv_posted come in any thread, at any time from attach() on. They may still come while
 * stop() or detach() runs, and after it; then they find nothing to do. None comes after the
 * QP is destroyed. */
#ifndef ANYRDMA_DEV_TRANSPORT_H
#define ANYRDMA_DEV_TRANSPORT_H

#include "dev/dev.h"

/* All members are there unless they say "may be NULL". */
struct dev_transport {
	const char *name;

	/* ---- life of a QP in the transport ---- */

	/* The QP is about to enter INIT from RESET. From now on a peer may try to reach
	 * it by GID and QP number: the transport makes sure that it can. made_by_cm: the
	 * connection manager brings the connection, and no peer comes in another way; a
	 * transport of connections need not do anything then. May be called again after
	 * the QP was reset. 0; -errno refuses the transition. */
	int (*listen)(struct dev_qp *qp);

	/* The QP has just entered RTR. For a connected type ah_attr, dest_qp_num, rq_psn
	 * and local_gid are set, and the transport finds or requests the connection,
	 * without waiting for it: work that is posted before it is there waits. Without
	 * connections, what arrives for the QP is received from now on. -errno (no
	 * memory, no descriptor) refuses the transition; the transport has forgotten the
	 * QP. */
	int (*attach)(struct dev_qp *qp);

	/* ibv_modify_qp() is about to move the QP to ERR, and the work that has not
	 * completed will be flushed: receives what the peer has sent by now, so that work
	 * which it has answered completes. May be NULL. */
	void (*receive)(struct dev_qp *qp);

	/* ibv_modify_qp() has moved the QP to ERR (the state is set). After return the
	 * transport uses neither its WQEs nor the memory that they name. The connection
	 * may stay. */
	void (*stop)(struct dev_qp *qp);

	/* The QP is reset or destroyed: the transport forgets it, and uses the pointer no
	 * more after return. Comes once after a successful attach(). Waits until
	 * processes that access memory in the QP's name have ended the access
	 * (share_qp_wait()). */
	void (*detach)(struct dev_qp *qp);

	/* ---- work ---- */

	/* There are WQEs at sq.next, or the QP has entered RTS: sends what it can without
	 * blocking, in this thread, or leaves it to the thread that holds the transport's
	 * lock. */
	void (*kick)(struct dev_qp *qp);

	/* WQEs were posted, and qp->lock IS HELD: sends what needs no system call. The
	 * transport may only try its own locks, which come before qp->lock. True: nothing
	 * is left to send. False: the device calls kick() when it has given up qp->lock.
	 * May be NULL. */
	bool (*post_locked)(struct dev_qp *qp);

	/* A receive was posted to the QP, or to its SRQ, after recv_take() had returned
	 * -ENOENT. For transports that tell a peer to wait. May be NULL: a message that
	 * finds no receive is dropped. */
	void (*recv_posted)(struct dev_qp *qp);

	/* The SRQ whose receive is being filled is about to be destroyed: the transport
	 * fails the message, and the QP with it (qp_fail_recv()). Only for XRC receive
	 * QPs; NULL in a transport that does not serve them. */
	void (*recv_lost)(struct dev_qp *qp);

	/* ---- groups: only for UD, NULL in a transport of connections ---- */

	/* The QP receives what is sent to the group, in addition to what is sent to its
	 * number. The device calls it between attach() and detach(): at once, or, for
	 * groups that were attached before, after attach(). 0 or -errno. */
	int (*mcast_attach)(struct dev_qp *qp, const union ibv_gid *group);
	/* The end of that. Also called before detach() for each group that is left. */
	void (*mcast_detach)(struct dev_qp *qp, const union ibv_gid *group);
};

/* The transport of QPs of this type; NULL: the device has none. Always the same answer.
 * src/parts defines it, for libibverbs.so.1 and its table of transports; unit tests have
 * definitions of their own. */
const struct dev_transport *transport_choose(enum ibv_qp_type type);
extern const struct dev_transport rc_transport, ud_transport;

/* ---- services of the device for a transport ------------------------------
 * Those named _locked are called with qp->lock held, the others without it. The transport
 * may hold its own locks. It calls the services for one QP by one thread at a time, as
 * sq.next and qp->cur are single; those that only ask (qp_may_*, recv_pd) excepted. */

/* True if the QP may send the WQE at sq.next (in RTS; in SQD only what was begun). */
bool qp_may_send_locked(const struct dev_qp *qp);
/* The same for the WQE at SQ index idx, which may be ahead of sq.next. */
bool qp_may_begin_locked(const struct dev_qp *qp, uint32_t idx);
/* True if the QP may accept requests (in RTR, RTS, SQD, SQE). */
bool qp_may_receive_locked(const struct dev_qp *qp);
/* A request of the peer has come: the same answer, and COMM_EST if it is the first
 * one in RTR. */
bool qp_heard_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* Carries out the local work requests (wqe_is_local: bind, local invalidate) at sq.next,
 * if there are any. They need no peer and have no request number, but they have their
 * place in the order: requests behind one see its effect. So a transport calls this when
 * it has sent everything before sq.next, before it sends what is there. It also does so
 * for a QP that has no connection yet.
 *
 * A WQE that was carried out is `finished` and retired, and sq.next moves on. One that is
 * finished already, as the transport has stepped back for a repeat, is only passed. A
 * fenced one waits while `reads` (or atomics) are not answered. Not IBV_WC_SUCCESS: the
 * WQE at sq.next has failed with this status. The transport reports that by
 * qp_fail_send(), when all before it are answered. */
enum ibv_wc_status sq_run_local_locked(struct dev_qp *qp, bool reads)
	REQUIRES(qp->lock);

/* Completes every WQE with `finished` set, in order from sq.done on, up to the first
 * one without: those that are signalled get a CQE. May move the QP to ERR (CQ overrun);
 * raises SQ_DRAINED when due. */
void sq_retire_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* Gets the next receive into qp->cur (cur_valid). 0; or -ENOENT: there is none, and
 * recv_posted() will be called when one is posted. An XRC receive QP gets it from the SRQ
 * of this number; -EINVAL: its domain has none. */
int recv_take(struct dev_qp *qp, uint32_t srqn);
int recv_take_locked(struct dev_qp *qp, uint32_t srqn) REQUIRES(qp->lock);

/* The PD that a peer's request is checked against: the QP's, or that of the SRQ
 * which the request names. NULL: there is no such SRQ. Only to compare with. */
struct dev_pd *recv_pd(struct dev_qp *qp, uint32_t srqn);

/* Completes qp->cur. wc: status, opcode, byte_len, imm_data or invalidated_rkey,
 * wc_flags; for a QP without connection also src_qp and what its wc_flags announce. The
 * rest is filled in here. */
void recv_done(struct dev_qp *qp, const struct ibv_wc *wc, bool solicited);

/* Between these two the transport copies from or to memory that the WQE at sq.next or
 * qp->cur names, or uses the address vector of a WQE, without qp->lock. If the QP fails
 * meanwhile, its work requests are flushed when the last copy has ended: the application
 * may use the memory of a request that is complete. At most 255 at a time. */
void qp_copy_begin_locked(struct dev_qp *qp) REQUIRES(qp->lock);
void qp_copy_end_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* The QP fails. All move it to ERR and flush in order; nothing happens if it is in ERR
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
