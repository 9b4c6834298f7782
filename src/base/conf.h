/* SPDX-License-Identifier: BSD-2-Clause */
/* Every tunable, in one table (conf.c: name, default, help), read from the
 * environment once per process. The table also prints the manual's section. */
#ifndef ANYRDMA_BASE_CONF_H
#define ANYRDMA_BASE_CONF_H

#include <stdbool.h>
#include <stdint.h>

enum conf_transport {
	CONF_TRANSPORT_AUTO, /* shared memory where it is possible, else TCP */
	CONF_TRANSPORT_TCP,
	CONF_TRANSPORT_SHM,
};

/* Access to the memory of another process on this host. */
enum conf_direct {
	CONF_DIRECT_AUTO, /* where the kernel allows debuggers the same */
	CONF_DIRECT_ON,
	CONF_DIRECT_MEM, /* by descriptor alone */
	CONF_DIRECT_OFF,
};

/* How `anyrdma run` shows the files of the device. */
enum conf_files {
	CONF_FILES_AUTO,      /* by namespaces where they are permitted, else as the third */
	CONF_FILES_NAMESPACE,
	CONF_FILES_PRELOAD,
	CONF_FILES_OFF,
};

struct conf {
	const char *addr;	 /* ANYRDMA_ADDR: the GID tables' only addresses, or NULL */
	const char *name;	 /* ANYRDMA_NAME: of the devices, or NULL */
	uint32_t devices;	 /* ANYRDMA_DEVICES: how many there are, 1 to 8 */
	bool ports_identity;	 /* ANYRDMA_PORTS=identity */
	bool guard_off;		 /* ANYRDMA_GUARD=off */
	bool link_ib;		 /* ANYRDMA_LINK=ib */
	bool pages_trust;	 /* ANYRDMA_PAGES=trust */
	bool nofile_keep;	 /* ANYRDMA_NOFILE=keep */
	bool strict_timeout;	 /* ANYRDMA_STRICT_TIMEOUT=1 */
	bool crc;		 /* ANYRDMA_CRC=on: ask for MPA CRC32C */
	uint32_t transport;	 /* ANYRDMA_TRANSPORT: enum conf_transport */
	uint32_t direct;	 /* ANYRDMA_DIRECT: enum conf_direct */
	uint32_t files;		 /* ANYRDMA_FILES: enum conf_files */
	uint32_t sndbuf;	 /* ANYRDMA_SNDBUF: SO_SNDBUF of streams, 0 = kernel's */
	uint32_t rcvbuf;	 /* ANYRDMA_RCVBUF: likewise */
	uint32_t cm_retry_ms;	 /* ANYRDMA_CM_RETRY_MS: re-offer interval, default 4000 */
	uint32_t cm_retries;	 /* ANYRDMA_CM_RETRIES: re-offers, default 15 */
	uint32_t sockets_after;	 /* ANYRDMA_SOCKETS_AFTER: calls on TCP before a move, 0: none */
	uint32_t uc_late_ms;	 /* ANYRDMA_UC_LATE_MS: UC waits for a receive, default 50 */
	uint32_t cm_reply_ms;	 /* ANYRDMA_CM_REPLY_MS: wait for an MPA answer, default 5000 */
};

/* Thread-safe; the pointer is valid for ever. */
const struct conf *conf_get(void);

/* For `anyrdma info` and the manual page: row i of the table, false at the end. */
bool conf_row(unsigned i, const char **name, const char **def, const char **help);

#endif
