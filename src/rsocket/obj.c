/* SPDX-License-Identifier: BSD-2-Clause */
/* What poll and epoll ask of a descriptor, whatever it stands for. */
#include "rsocket/rs.h"

short obj_events(struct obj *o)
{
	switch (o->kind) {
	case OBJ_EPOLL:
		return ep_events(o);
	case OBJ_DGRAM:
		return dgram_events((struct rs *)o);
	default:
		return rs_events((struct rs *)o);
	}
}

struct watch_list *obj_watches(struct obj *o)
{
	return o->kind == OBJ_EPOLL ? ep_watches(o) : &((struct rs *)o)->watch;
}

struct shard *obj_shard(struct obj *o)
{
	struct rs *rs = (struct rs *)o;

	if (o->kind == OBJ_EPOLL)
		return NULL;
	return rs_state(rs) == RS_CONNECTED ? rs->shard : NULL;
}
