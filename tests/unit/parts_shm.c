/* SPDX-License-Identifier: BSD-2-Clause */
/* For the unit tests of src/shm: shared memory is the only carrier. */
#include "dev/transport.h"
#include "rc/carrier.h"
#include "shm/dgram.h"
#include "shm/shm.h"

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	return qp_type_is_connected(type) ? &rc_transport : NULL;
}

const struct rc_rendezvous *const rc_rendezvous[] = { &shm_rendezvous, NULL };

const struct ud_carrier *const ud_carriers[] = { &shm_ud_carrier, NULL };
