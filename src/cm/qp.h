/* SPDX-License-Identifier: BSD-2-Clause */
/* What srq.c and connect.c share with qp.c. */
#ifndef ANYRDMA_CM_QP_H
#define ANYRDMA_CM_QP_H

#include "cm/cm.h"

/* A CQ of the id's own (cq_context is the id) with a channel of its own. */
int cm_qp_make_cq(struct cm_id *id, int cqe, struct ibv_comp_channel **ch,
		  struct ibv_cq **cq);
/* Destroys the CQs and channels that the library made for the id. */
void cm_qp_free_cqs(struct cm_id *id);

/* The QP's part of a disconnect: ERR; iWARP: SQD. 0 or -errno. */
int cm_qp_disconnect(struct cm_id *id);

#endif
