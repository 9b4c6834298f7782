/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files say of a device, as plain data: taken from the device at one moment. */
#ifndef ANYRDMA_FILES_MODEL_H
#define ANYRDMA_FILES_MODEL_H

#include "dev/dev.h"
#include "dev/gid.h"

#include <net/if.h>
#include <stdint.h>

enum { FILES_DEVICES = 8 };

struct files_gid {
	union ibv_gid gid;     /* all zero: hole */
	char ndev[IF_NAMESIZE]; /* "" if the interface is gone */
	bool loopback;
};

struct files_device {
	unsigned number; /* 0 ... FILES_DEVICES - 1 */
	unsigned uverbs; /* of uverbsN */
	char name[IBV_SYSFS_NAME_MAX];
	uint64_t guid; /* network order */
	struct ibv_port_attr port;
	uint16_t pkey;
	struct files_gid gid[DEV_GIDS];
	unsigned ngiven;
	struct gid_slot given[DEV_GIDS]; /* gid_given() */
};

/* The devices of this process: an array of *n, to be freed; NULL: no memory. */
struct files_device *files_model_read(unsigned *n);

/* Everything that decides what the files hold, in one line without the end: the version,
 * the network namespace, the settings, and the number N of the first device's uverbsN. Two
 * processes with the same text can share a tree. */
void files_model_stamp(unsigned uverbs, char *text, size_t size);
/* That number as this process has it. */
unsigned files_model_uverbs(unsigned device);

#endif
