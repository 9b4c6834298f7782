/* SPDX-License-Identifier: BSD-2-Clause */
/* The table itself: pure functions from what the host has to slots. gid.c holds
 * the process's one table, its lock and its watcher. */
#ifndef ANYRDMA_DEV_GID_TABLE_H
#define ANYRDMA_DEV_GID_TABLE_H

#include "base/nl.h"
#include "dev/dev.h"
#include "dev/gid.h"

struct gid_table {
	struct gid_slot slot[DEV_GIDS];
	/* The address that a slot belongs to: if it comes back, it gets this slot. */
	struct gid_slot given[DEV_GIDS];
	unsigned count; /* slots ever given */
	enum ibv_mtu active_mtu;
	bool port_active; /* some address is on a running interface */
};

/* Which of several devices has which interface, where ANYRDMA_ADDR does not say it: the
 * interfaces with global addresses that run are dealt in turn, in the order of the table, if
 * there are at least as many as devices; the others after them. With fewer every device has
 * all. Decided when the host is first looked at; what comes later is dealt on. */
struct gid_deal {
	bool decided, all;
	unsigned n;
	uint32_t ifindex[DEV_GIDS]; /* the i-th is of device i mod the number of devices */
};

void gid_deal(struct gid_deal *d, const struct nl_host *h, const char *addr,
	      unsigned devices);

/* What of the host belongs to one device. */
struct gid_share {
	const char *addr;	     /* ANYRDMA_ADDR or NULL; see gid_list() */
	const struct gid_deal *deal; /* NULL: all */
	unsigned device, devices;
};

/* The device's own list in ANYRDMA_ADDR: of lists between semicolons device i has the i-th,
 * and if these are fewer than devices, they are used again in turn. It ends with a semicolon
 * or the text. NULL: addr is NULL. */
const char *gid_list(const char *addr, unsigned device);

/* Brings t in line with the host. 1: a slot changed; 0: none did; -ENOMEM: the
 * table stays as it is.
 * Addresses that are new at one time get slots in this order: global IPv4 of the
 * default-route interface, other global IPv4, global IPv6, link-local,
 * loopback; within a class by interface. */
int gid_table_merge(struct gid_table *t, const struct nl_host *h,
		    const struct gid_share *share);

enum ibv_mtu gid_table_mtu(const struct nl_host *h);

#endif
