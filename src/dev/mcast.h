/* SPDX-License-Identifier: BSD-2-Clause */
/* Which multicast groups a UD QP is attached to (dev_qp.groups). They stay over all changes
 * of its state; its transport knows of them from RTR to RESET. For src/dev alone. */
#ifndef ANYRDMA_DEV_MCAST_H
#define ANYRDMA_DEV_MCAST_H

#include "dev/dev.h"

/* The verbs. An attachment is a GID and a LID, as in the kernel: the LID means nothing on
 * Ethernet, but what is detached is what was attached. Attaching again is no change.
 * -EINVAL: not a UD QP, no group, not attached; -ENOMEM: too many groups of the process, or
 * QPs of one. Without modify_lock. */
int mcast_attach(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid);
int mcast_detach(struct dev_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* The QP, in RTR, has the transport qp->tr from now on, which joins all groups; after an
 * error it has joined none. */
int mcast_enter_locked(struct dev_qp *qp) REQUIRES(qp->modify_lock);
/* The QP is about to lose its transport tr: it leaves all groups. */
void mcast_leave_locked(struct dev_qp *qp, const struct dev_transport *tr)
	REQUIRES(qp->modify_lock);

/* Is it attached to any? Such a QP is not destroyed. Without modify_lock. */
bool mcast_any(struct dev_qp *qp);

#endif
