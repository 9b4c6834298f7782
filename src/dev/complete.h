/* SPDX-License-Identifier: BSD-2-Clause */
/* Completing single work requests. For the files of src/dev, and for what holds qp->lock
 * over a whole message: the short path of small sends (shm/small.c) and datagrams
 * (ud/deliver.c); transports use the services of dev/transport.h otherwise. */
#ifndef ANYRDMA_DEV_COMPLETE_H
#define ANYRDMA_DEV_COMPLETE_H

#include "dev/dev.h"

/* Completes the WQE at sq.done with this status (a CQE if it is signalled or an
 * error) and steps over it. -EOVERFLOW: the CQ is full. */
int sq_complete_locked(struct dev_qp *qp, enum ibv_wc_status status) REQUIRES(qp->lock);

/* Completes the receive r; wc as in recv_done(). -EOVERFLOW: the CQ is full. */
int recv_complete_locked(struct dev_qp *qp, const struct rqe *r, const struct ibv_wc *wc,
			 bool solicited) REQUIRES(qp->lock);

/* Everything begun before SQD has completed. */
static inline bool sq_drained(const struct dev_qp *qp)
{
	return (int32_t)(qp->sqd_upto - qp->sq.done) <= 0;
}

/* State ERR, everything flushed, once copies that are under way have ended. */
void qp_to_err_locked(struct dev_qp *qp) REQUIRES(qp->lock);

/* For the log; the names of the enum without its prefix. */
const char *complete_status_str(enum ibv_wc_status status);

#endif
