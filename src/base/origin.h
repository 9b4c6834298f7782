/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts connections by where they come from, to find the origin that has the most when
 * there are too many. An origin is an IPv4 address, or a /64 network in IPv6, as an IPv6
 * host has many addresses. It is hashed: two origins may share a count. The caller has a
 * lock around all of it. */
#ifndef ANYRDMA_BASE_ORIGIN_H
#define ANYRDMA_BASE_ORIGIN_H

#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { ORIGIN_COUNT = 256 };

struct origins {
	uint32_t from[ORIGIN_COUNT];
};

/* The index of an address's origin in origins.from. An IPv4 address and the same one
 * mapped into IPv6 have the same index. Other families: 0. */
static inline uint8_t origin_of(const struct sockaddr *sa)
{
	const struct sockaddr_in *in4 = (const void *)sa;
	const struct sockaddr_in6 *in6 = (const void *)sa;
	uint64_t v = 0;

	if (sa->sa_family == AF_INET)
		v = in4->sin_addr.s_addr;
	else if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		v = in6->sin6_addr.s6_addr32[3];
	else if (sa->sa_family == AF_INET6)
		memcpy(&v, &in6->sin6_addr, sizeof(v));
	return (uint8_t)(v * 0x9e3779b97f4a7c15u >> 56);
}

/* The count of the origin that has the most. */
static inline uint32_t origin_most(const struct origins *c)
{
	uint32_t most = 0;

	for (unsigned i = 0; i < ORIGIN_COUNT; i++)
		if (c->from[i] > most)
			most = c->from[i];
	return most;
}

#endif
