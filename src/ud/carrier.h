/* SPDX-License-Identifier: BSD-2-Clause */
/* The contract between the protocol of datagrams (src/ud) and what carries them between
 * processes: shared memory (src/shm) or UDP (src/udp).
 *
 * The protocol is the dev_transport of UD QPs. It takes WQEs, checks them, decides which
 * carrier takes a datagram, completes them, and delivers what arrives. It delivers to QPs
 * of this process itself. Carriers know neither the QP's queues nor each other.
 *
 * A datagram is sent at most once and may be lost; nothing is acknowledged. Its WQE is
 * complete when a carrier has taken it.
 *
 * Order. Datagrams of one QP to another one arrive in the order of posting, unless the
 * network reorders them. When another carrier becomes the better one for a peer process,
 * the protocol sends a *mark* by the old one, keeps back what follows for that process
 * until the mark was answered, and then changes over; if UD_MARK_TRIES marks were not, it goes
 * on as before and tries again later (ud/path.c). So a carrier only has to keep the order itself.
 *
 * Locks, outer first: ud_qp.tx_lock, a carrier's locks for sending; a carrier's locks for
 * receiving, ud_qp.rx_lock; then qp->lock. Sending into this process takes the receiver's
 * rx_lock with the sender's tx_lock held, never the other way round. Unless a member says
 * otherwise it is called in any thread, without qp->lock, and does not block. */
#ifndef ANYRDMA_UD_CARRIER_H
#define ANYRDMA_UD_CARRIER_H

#include "dev/av.h"
#include "dev/transport.h"

#include <sys/uio.h>

struct ud_qp; /* ud/ud.h: a UD QP from RTR on */

/* Kinds of datagrams. */
enum ud_kind {
	UD_DATA,     /* for a QP */
	UD_MARK,     /* asks the process that has dst_qpn for UD_MARKED with the same token */
	UD_MARKED,   /* the answer */
};

enum {
	UD_IMM = 1,	  /* ud_head.imm is there */
	UD_SOLICITED = 2,
	UD_NO_GRH = 4,	  /* between InfiniBand ports: sent by LID alone */
	UD_PAYLOAD_MAX = 4096,
	UD_MCAST_QPN = 0xffffff,
	UD_GRH = 40, /* bytes before the payload in a receive */
	UD_MARK_TRIES = 3,
	UD_MARK_MS = 5,
};

/* A datagram without its payload. What came from a peer is checked by the carrier as far
 * as its own format goes (lengths, kind, version); the rest is checked by ud_deliver(). */
struct ud_head {
	uint8_t kind;	/* enum ud_kind */
	uint8_t flags;	/* UD_IMM, UD_SOLICITED, UD_NO_GRH */
	uint8_t traffic_class, hop_limit, sl;
	uint16_t len;	/* payload */
	uint32_t flow_label;
	uint32_t psn; /* 24 bit, counted by the sending QP; nothing depends on it */
	uint32_t src_qpn, dst_qpn; /* dst_qpn UD_MCAST_QPN: to all QPs attached to dgid */
	uint32_t qkey;
	uint32_t imm;	/* network order */
	uint32_t token; /* of a mark */
	union ibv_gid sgid, dgid;
};

/* A datagram that is to be sent. */
struct ud_out {
	struct ud_head head;
	const struct dev_av *av; /* NULL: an answer to a mark; the GIDs of `head` count */
	struct iovec iov[1 + DEV_MAX_SGE + 1]; /* [first, first + n): the payload. A carrier
						* may use [first - 1] for its own header, and
						* [first + n] for what is behind */
	unsigned first, n;
};

/* All members are there unless they say "may be NULL". */
struct ud_carrier {
	const char *name;

	/* The QP is about to enter INIT: peers may send to its number from now on. 0 or
	 * -errno. May come again after a reset. */
	int (*listen)(struct dev_qp *qp);
	/* The QP has entered RTR: pollers of its receive CQ receive for it. qp->poll_cq.
	 * 0 or -errno. */
	int (*attach)(struct ud_qp *u);
	/* The QP is gone: nothing is delivered to it, and it sends nothing any more. The
	 * carrier forgets it. */
	void (*detach)(struct ud_qp *u);

	/* Can this carrier reach the process of that QP at that address?
	 *   1: yes;
	 *   0: no, not now. The carrier may have begun to make it possible: it calls
	 *	ud_paths_changed() when the answer may be another one.
	 * Called for the first datagram of a path, and after ud_paths_changed(). The last
	 * carrier says 1 to everything. With u's tx_lock. `*peer` is the carrier's own: it
	 * is kept in the path and given to send() and drop(); counted by the carrier. */
	int (*reaches)(struct ud_qp *u, const union ibv_gid *dgid, uint32_t qpn, void **peer);
	/* The path does not need *peer any more. */
	void (*drop)(void *peer);

	/* Sends datagrams of one QP, in order, to paths that all have this `peer` (of a
	 * carrier whose peers are all NULL: to any of its paths, groups included). Returns
	 * how many were taken. Fewer than n, but not 0: the rest is offered again. 0: there
	 * is no room, and the carrier calls ud_unblocked(u) when there is. -errno: the first
	 * one cannot be sent at all (no route); it counts as sent and lost. -EPIPE: this
	 * carrier does not reach the peer any more; the protocol asks reaches() again.
	 * -EFAULT: the application has unmapped the payload of the first one; its work
	 * request fails. With u's tx_lock. The payload is the application's memory, which may
	 * be unmapped: a carrier copies it by take_iov() (dev/sge.h), or lets the kernel read
	 * it. Its keys are held by mr_get() during the call alone. */
	int (*send)(struct ud_qp *u, void *peer, struct ud_out *out, unsigned n);
	/* The same for one datagram of at most one piece, where it needs no system call;
	 * qp->lock is held, too: the carrier only tries its locks. False: nothing has
	 * happened, and the protocol uses send(). May be NULL. */
	bool (*post)(struct ud_qp *u, void *peer, const struct ud_out *out);
	/* Everything that was taken is published: the sender of a chain of work requests
	 * has come to its end. Only for QPs of which the carrier has something (ud_priv()).
	 * May be NULL. */
	void (*flush)(struct ud_qp *u);

	/* The QP receives what is sent to the group, or does not any more. NULL in all but
	 * the last carrier: groups go by that one. Each receive CQ with members gets a copy
	 * of every datagram, in the sender's process, too: the protocol delivers nothing to
	 * groups by itself. 0 or -errno. */
	int (*join)(struct ud_qp *u, const union ibv_gid *group);
	void (*leave)(struct ud_qp *u, const union ibv_gid *group);
};

/* Every carrier that is linked in, at most UD_CARRIERS, the preferred one first, NULL at the
 * end. Defined by src/parts/ibverbs.c, or by a unit test. */
enum { UD_CARRIERS = 2 };
extern const struct ud_carrier *const ud_carriers[];

/* ---- services of the protocol for a carrier ------------------------------------ */

/* A carrier's own of a QP: NULL before its attach(). The carrier sets it in attach() and
 * detach(), and may read it wherever it is called for the QP. */
void **ud_priv(struct ud_qp *u, const struct ud_carrier *c);
/* The QP number, and the CQ whose pollers receive for it. */
uint32_t ud_qpn(const struct ud_qp *u);
struct dev_cq *ud_cq(const struct ud_qp *u);
/* A carrier that keeps `u` beyond a call, as for ud_unblocked(), holds a reference. */
void ud_get(struct ud_qp *u);
void ud_put(struct ud_qp *u);

/* A datagram has arrived; `payload` has h->len bytes, which a peer may be changing. The
 * protocol finds the QP (or the QPs that `only` receives for, of a group), checks the
 * Q_Key, takes a receive and completes it, or drops the datagram and counts why. `only`:
 * the receive CQ whose QPs a group's datagram is for, as each CQ has a copy of its own;
 * NULL for a datagram to one QP. Carrier's locks for receiving may be held.
 *
 * True: the QP's receive queue is empty now. In a poll the carrier leaves the rest for the
 * next one: the application gets the completions and may post receives before that. A NIC
 * receives while the application polls; here nothing is received meanwhile, and more may
 * have come than an honest program's queue holds. */
bool ud_deliver(const struct ud_head *h, const void *payload, const struct dev_cq *only);

/* There is room again for what send() did not take. No lock of the carrier for sending is
 * held. */
void ud_unblocked(struct ud_qp *u);
/* reaches() may give another answer now. No lock is held. Any thread. */
void ud_paths_changed(void);

#endif
