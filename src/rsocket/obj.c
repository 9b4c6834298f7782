/* SPDX-License-Identifier: BSD-2-Clause */
/* What poll and epoll ask of a descriptor, whatever it stands for. */
#include "rsocket/rs.h"

short obj_events(struct obj *o)
{
	return rs_events((struct rs *)o);
}

struct watch_list *obj_watches(struct obj *o)
{
	return &((struct rs *)o)->watch;
}

struct shard *obj_shard(struct obj *o)
{
	struct rs *rs = (struct rs *)o;

	return rs_state(rs) == RS_CONNECTED ? rs->shard : NULL;
}
