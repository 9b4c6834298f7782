/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/lid.h"

#include "base/be.h"
#include "dev/gid.h"

enum { V4 = 12, LOW = 14, NOBODY = 240 }; /* 240.0.0.0/4: RFC 1112 section 4, class E */

/* Groups have LIDs from a subnet manager; ours follow from the MGID. */
static uint16_t of_group(const union ibv_gid *mgid)
{
	uint32_t h = 0;

	for (unsigned i = 0; i < sizeof(mgid->raw); i++)
		h = h * 31 + mgid->raw[i];
	return (uint16_t)(LID_GROUP + h % (LID_PERMISSIVE - LID_GROUP));
}

uint16_t lid_of_gid(const union ibv_gid *gid)
{
	uint16_t low = be16_get(gid->raw + LOW);

	if (gid_is_mcast(gid))
		return of_group(gid);
	return gid_is_v4(gid) && lid_is_port(low) ? low : 0;
}

void lid_to_gid(const union ibv_gid *here, uint16_t lid, union ibv_gid *out)
{
	*out = *here;
	if (here->raw[V4] == 127) {
		out->raw[V4] = NOBODY;
		out->raw[V4 + 1] = 0;
	}
	be16_put(out->raw + LOW, lid);
}
