/* SPDX-License-Identifier: BSD-2-Clause */
/* What libibverbs.so.1 is put together from: which transport a QP gets, and which carriers
 * there are. */
#include "dev/transport.h"
#include "rc/carrier.h"
#include "shm/shm.h"
#include "tcp/rendezvous.h"

const struct dev_transport *transport_choose(struct dev_qp *qp)
{
	(void)qp;
	return &rc_transport;
}

const struct rc_rendezvous *const rc_rendezvous[] = { &shm_rendezvous, &tcp_rendezvous, NULL };
