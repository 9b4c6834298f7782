/* SPDX-License-Identifier: BSD-2-Clause */
/* The device as this program has it, to describe it: no QPs are made. */
#include "dev/transport.h"

const struct dev_transport *transport_choose(enum ibv_qp_type type)
{
	(void)type;
	return NULL;
}
