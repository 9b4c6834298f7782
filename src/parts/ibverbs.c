/* SPDX-License-Identifier: BSD-2-Clause */
/* What libibverbs.so.1 is put together from: which transport a QP gets, and which
 * carriers there are. */
#include "dev/transport.h"
#include "rc/carrier.h"
#include "shm/dgram.h"
#include "shm/shm.h"
#include "tcp/rendezvous.h"
#include "ud/carrier.h"
#include "udp/udp.h"

/* By enum ibv_qp_type. A type without a transport cannot be created (EOPNOTSUPP). */
static const struct dev_transport *const transports[] = {
	[IBV_QPT_RC] = &rc_transport,
	[IBV_QPT_UC] = &rc_transport,
	[IBV_QPT_UD] = &ud_transport,
	[IBV_QPT_XRC_SEND] = &rc_transport,
	[IBV_QPT_XRC_RECV] = &rc_transport,
};

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	return (unsigned)type < sizeof(transports) / sizeof(transports[0]) ?
		       transports[type] :
		       NULL;
}

const struct rc_rendezvous *const rc_rendezvous[] = { &shm_rendezvous, &tcp_rendezvous,
						      NULL };

const struct ud_carrier *const ud_carriers[] = { &shm_ud_carrier, &udp_carrier, NULL };
