/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/model.h"
#include "base/conf.h"
#include "dev/gid.h"
#include "dev/verbs.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ANYRDMA_VERSION /* the build defines it */
#define ANYRDMA_VERSION "0"
#endif

static void read_gids(struct files_device *d)
{
	for (unsigned i = 0; i < DEV_GIDS; i++) {
		struct files_gid *g = &d->gid[i];
		struct gid_slot s;

		if (!gid_get(i, &s))
			continue;
		g->gid = s.gid;
		g->loopback = s.loopback;
		if (!s.ifindex || !if_indextoname(s.ifindex, g->ndev))
			g->ndev[0] = 0;
	}
}

struct files_device *files_model_read(unsigned *n)
{
	struct files_device *d = calloc(1, sizeof(*d));
	__be16 pkey = 0;

	if (!d)
		return NULL;
	strcpy(d->name, device_the()->name);
	d->guid = device_guid();
	query_port(1, &d->port, sizeof(d->port));
	query_pkey(1, 0, &pkey);
	d->pkey = ntohs(pkey);
	read_gids(d);
	*n = 1;
	return d;
}

void files_model_stamp(char *text, size_t size)
{
	const struct conf *c = conf_get();

	snprintf(text, size, "%s %s %016" PRIx64 " addr=%s", ANYRDMA_VERSION,
		 device_the()->name, device_guid(), c->addr ? c->addr : "");
}
