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

static void read_gids(unsigned number, struct files_device *d)
{
	const bool ib = conf_get()->link_ib;

	for (unsigned i = 0; i < DEV_GIDS; i++) {
		struct files_gid *g = &d->gid[i];
		struct gid_slot s;

		if (!gid_get(number, i, &s) || !gid_shown(number, i, &g->gid))
			continue;
		g->loopback = s.loopback;
		if (ib || !s.ifindex || !if_indextoname(s.ifindex, g->ndev))
			g->ndev[0] = 0;
	}
}

struct files_device *files_model_read(unsigned *n)
{
	struct files_device *d = calloc(device_count(), sizeof(*d));
	__be16 pkey = 0;

	if (!d)
		return NULL;
	query_pkey(1, 0, &pkey);
	*n = device_count();
	for (unsigned i = 0; i < *n; i++) {
		d[i].number = i;
		d[i].uverbs = files_model_uverbs(i);
		strcpy(d[i].name, device_get(i)->name);
		d[i].guid = device_guid(i);
		query_port(i, 1, &d[i].port, sizeof(d[i].port));
		d[i].pkey = ntohs(pkey);
		read_gids(i, &d[i]);
		d[i].ngiven = gid_given(i, d[i].given);
	}
	return d;
}

unsigned files_model_uverbs(unsigned device)
{
	return (unsigned)atoi(device_get(device)->dev_name + strlen("uverbs"));
}

void files_model_stamp(unsigned uverbs, char *text, size_t size)
{
	const struct conf *c = conf_get();

	snprintf(text, size, "%s %s*%u uverbs%u %016" PRIx64 " link=%s name=%s addr=%s",
		 ANYRDMA_VERSION, device_get(0)->name, device_count(), uverbs,
		 device_guid(0), c->link_ib ? "ib" : "ethernet", c->name ? c->name : "",
		 c->addr ? c->addr : "");
}
