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

/* Brings t in line with the host. `only` is ANYRDMA_ADDR: a comma list of
 * addresses and interface names, or NULL. 1: a slot changed; 0: none did; -ENOMEM: the
 * table stays as it is.
 * Addresses that are new at one time get slots in this order: global IPv4 of the
 * default-route interface, other global IPv4, global IPv6, link-local,
 * loopback; within a class by interface. */
int gid_table_merge(struct gid_table *t, const struct nl_host *h, const char *only);

enum ibv_mtu gid_table_mtu(const struct nl_host *h);

#endif
