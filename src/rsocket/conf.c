/* SPDX-License-Identifier: BSD-2-Clause */
/* The original's configuration files: one number each. */
#include "rsocket/rs.h"

#include <stdio.h>

#define FOLDER "/etc/rdma/rsocket/"

static struct rs_conf defaults = {
	.rmem = 131072,
	.wmem = 131072,
	.sq = 64,
	.rq = 128,
	.inline_max = 64,
	.iomaps = 0,
	.polling_us = 10,
};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
	const char *name;
	uint32_t *to;
	uint32_t least, most;
} files[] = {
	{ "mem_default", &defaults.rmem, 1, 1u << 30 },
	{ "wmem_default", &defaults.wmem, 1, 1u << 30 },
	{ "sqsize_default", &defaults.sq, 1, 65534 },
	{ "rqsize_default", &defaults.rq, 1, 65534 },
	{ "inline_default", &defaults.inline_max, 0, 65535 },
	{ "iomap_size", &defaults.iomaps, 0, PROTO_IOMAP_MAX },
	{ "polling_time", &defaults.polling_us, 0, 10000000 },
};

static void conf_read(void)
{
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[64];
		unsigned v;
		FILE *f;

		snprintf(path, sizeof(path), FOLDER "%s", files[i].name);
		f = fopen(path, "re");
		if (!f)
			continue;
		if (fscanf(f, "%u", &v) == 1 && v >= files[i].least && v <= files[i].most)
			*files[i].to = v;
		fclose(f);
	}
	if (defaults.wmem < 4096)
		defaults.wmem = 4096;
}

const struct rs_conf *rs_conf(void)
{
	pthread_once(&once, conf_read);
	return &defaults;
}
