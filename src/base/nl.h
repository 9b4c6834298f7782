/* SPDX-License-Identifier: BSD-2-Clause */
/* Raw rtnetlink: the host's addresses, links and default route, and a socket that becomes
 * readable when they change. */
#ifndef ANYRDMA_BASE_NL_H
#define ANYRDMA_BASE_NL_H

#include <stdbool.h>
#include <stdint.h>

struct nl_addr {
	uint8_t family; /* AF_INET, AF_INET6 */
	uint8_t scope;	/* RT_SCOPE_* */
	uint32_t ifindex;
	uint32_t flags;	  /* IFA_F_* */
	uint8_t addr[16]; /* IPv4: the first four */
};

struct nl_link {
	uint32_t ifindex;
	uint32_t flags; /* IFF_* */
	uint32_t mtu;
	char name[16];
};

struct nl_host {
	struct nl_addr *addrs;
	unsigned naddrs;
	struct nl_link *links;
	unsigned nlinks;
	uint32_t default_ifindex; /* of the IPv4 default route with the least metric, else
				   * of the IPv6 one, else 0 */
};

/* Reads all of it. 0 or -errno; on success free with nl_host_free(). */
int nl_host_read(struct nl_host *h);
void nl_host_free(struct nl_host *h);

/* A non-blocking, close-on-exec socket that becomes readable when an address, a
 * link or a route changes. -errno on failure. */
int nl_watch_open(void);
/* Discards what is readable. True if there was something (an overrun counts). */
bool nl_watch_drain(int fd);

#endif
