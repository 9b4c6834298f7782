/* SPDX-License-Identifier: BSD-2-Clause */
/* The GID table of each device: local addresses as RoCE v2 GIDs. An address keeps its slot
 * for the life of the process. The slot of an address that was removed is a hole (zero GID). */
#ifndef ANYRDMA_DEV_GID_H
#define ANYRDMA_DEV_GID_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <sys/socket.h>

struct gid_slot {
	union ibv_gid gid; /* all zero: hole */
	uint32_t ifindex;  /* interface (scope id of link-local addresses) */
	bool loopback;
};

/* Copies slot i of the device's table; false when i is outside the table. Reads the host's
 * addresses on first use. On InfiniBand slot 0 is the port's: the address that its LID follows
 * from, or a hole. */
bool gid_get(unsigned device, unsigned i, struct gid_slot *out);
/* What applications see there: the same GID, and on InfiniBand in slot 0 that of the port,
 * fe80::/64 with the GUID. */
bool gid_shown(unsigned device, unsigned i, union ibv_gid *out);

/* InfiniBand: the LID of the device's port; 0: none. */
uint16_t gid_lid(unsigned device);
/* The port's address, and that of another LID. False: the port has no LID. */
bool gid_of_lid(unsigned device, uint16_t lid, struct gid_slot *from, union ibv_gid *to);
unsigned gid_count(unsigned device); /* used prefix of the table */

/* Slot of an address in the device's table: index, or -ENODEV. 127.0.0.0/8 all map to the
 * slot of 127.0.0.1. */
int gid_of_addr(unsigned device, const struct sockaddr *sa);
/* The same of a GID, exactly. ifindex 0: any */
int gid_index(unsigned device, const union ibv_gid *gid, uint32_t ifindex);

/* Several devices may have an address. The first of them; or -ENODEV. As gid_of_addr(). */
int gid_device(const struct sockaddr *sa);
/* Some device has it: so it is one of this host's. As gid_of_addr(); ifindex is the scope of
 * a link-local GID. */
bool gid_is_ours(const union ibv_gid *gid, uint32_t ifindex);
/* A slot of any device that has this very GID. */
bool gid_find(const union ibv_gid *gid, struct gid_slot *out);

/* The addresses that the device's slots were given to, also those that are gone: how many. */
unsigned gid_given(unsigned device, struct gid_slot *given);
/* The same of the processes before this one, asked before the host is read for the first
 * time, where it is defined (files/live.c). given: room for all slots. */
unsigned gid_given_before(unsigned device, struct gid_slot *given) __attribute__((weak));

/* Conversions between GID and socket address (port in host order). */
void gid_from_addr(const struct sockaddr *sa, union ibv_gid *gid);
socklen_t gid_to_addr(const union ibv_gid *gid, uint32_t ifindex, uint16_t port,
		      struct sockaddr_storage *ss);
bool gid_is_v4(const union ibv_gid *gid);
/* A group: ff00::/8, or ::ffff:224.0.0.0/100, an IPv4 group. */
bool gid_is_mcast(const union ibv_gid *gid);

/* Active MTU (enum ibv_mtu) : from the up, non-loopback links. */
enum ibv_mtu gid_active_mtu(unsigned device);

/* Compares the host's addresses with the table again; raises GID_CHANGE,
 * PORT_ACTIVE, PORT_ERR. Called by the netlink watcher and by tests. */
void gid_refresh(void);

/* Starts the netlink watcher (idempotent; starts the loop thread). Where the
 * host gives no watch socket the table stays as it is and the log says so. */
void gid_watch_start(void);
/* Starts the watcher and has cb run in the loop thread after any change of the
 * table. At most 8 callbacks, for the life of the process. */
void gid_watch(void (*cb)(void));

/* True while some address of the device's table is on a running interface. */
bool gid_port_active(unsigned device);

#endif
