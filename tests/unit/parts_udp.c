/* SPDX-License-Identifier: BSD-2-Clause */
/* For the unit tests of src/udp: UDP is the only carrier. */
#include "udp/udp.h"

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? &ud_transport : NULL;
}

const struct ud_carrier *const ud_carriers[] = { &udp_carrier, NULL };
