/* SPDX-License-Identifier: BSD-2-Clause */
/* RDMA ports: which TCP or UDP port carries one, and who owns one.
 *
 * An owner holds the abstract unix name "anyrdma/1/<ps>/<addr>/<port>", which
 * is exclusive in the network namespace and gone with the process. <ps> is hex
 * (PS_IB uses PS_TCP's); <addr> is the numeric address, "::" for a dual-stack
 * wildcard and "::!" for one of IPv6 alone. An owner with RDMA_OPTION_ID_REUSEADDR
 * adds "/r<pid>.<n>", so that several can hold one port. Rules across addresses
 * (a wildcard against a specific one) are decided by reading the names of the
 * namespace after taking one's own: two that come at the same instant may both
 * be refused, never both accepted. */
#ifndef ANYRDMA_CM_USER_PORT_H
#define ANYRDMA_CM_USER_PORT_H

#include "dev/interface.h"

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
	PORT_LIMIT = 64512, /* RDMA ports from here up have no TCP port */
	PORT_BASE = 1024,
	PORT_SHIFT = 10007,
	PORT_SHIFT_IPOIB = 20011, /* UDP ports of RDMA_PS_IPOIB: a port space of its own */
	PORT_NAME_MAX = 107, /* sun_path without the leading NUL */
	PORT_ADDR_STR = 80,
};

struct user_port {
	int name_fd;	/* holds the name; -1: no port owned */
	int tcp_fd;	/* bound, not listening: only a port chosen by us; or -1 */
	uint16_t num;	/* RDMA port, host order */
	char name[PORT_NAME_MAX + 1];
};

/* Who claims a port, for the rules. */
struct port_claim {
	uint8_t addr[16]; /* IPv4 mapped */
	bool ipv6;
	bool any;	  /* wildcard or loopback: both mean "all devices" */
	bool afonly;	  /* binds its own family alone */
	bool reuse;
};

/* 0, -EADDRINUSE (same address) or -EADDRNOTAVAIL (a wildcard is involved). */
int port_conflict(const struct port_claim *a, const struct port_claim *b);
/* "<addr>" part of a name into a claim; false: not one of ours. */
bool port_parse(const char *text, struct port_claim *c, unsigned *port);

/* TCP port of an RDMA port, or -EADDRNOTAVAIL. */
int port_to_tcp(uint16_t port, bool identity);
/* UDP port of an RDMA port, or -EADDRNOTAVAIL. Never the identity: no standard peer
 * uses it. */
int port_to_udp(enum rdma_port_space ps, uint16_t port);

/* Makes p the owner of the port in sa (0: chooses one). 0 or -EACCES (privileged),
 * -EADDRINUSE, -EADDRNOTAVAIL, -EMFILE…; logs the reason. */
int port_bind(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
	      bool reuse, struct user_port *p);
void port_release(struct user_port *p);
/* Closes the TCP socket of a chosen port (the id will not listen). */
void port_close_tcp(struct user_port *p);
/* The port gets its listener: must be unique now even with REUSEADDR. */
int port_unique(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
		struct user_port *p);
/* A TCP socket bound to the port's TCP address, or -errno. */
int port_tcp_bound(const struct sockaddr *sa, bool afonly, uint16_t port);
/* The same for UDP. */
int port_udp_bound(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
		   uint16_t port);
/* True if some process of this namespace owns the port for that address. */
bool port_owned(enum rdma_port_space ps, const struct sockaddr *sa, uint16_t port);
/* The names that a listener for sa may have, the most specific first. */
void port_names(enum rdma_port_space ps, const struct sockaddr *sa, struct stream_names *out);
/* A source port number for an id that owns none; a number only. */
uint16_t port_number(void);

/* Socket address helpers. */
bool sa_any(const struct sockaddr *sa);
bool sa_loopback(const struct sockaddr *sa);
bool sa_group(const struct sockaddr *sa); /* multicast */
uint16_t sa_port(const struct sockaddr *sa); /* host order */
void sa_set_port(struct sockaddr *sa, uint16_t port);
socklen_t sa_len(const struct sockaddr *sa); /* 0: other family */
/* The same address; ports do not count. */
bool sa_same_host(const struct sockaddr *a, const struct sockaddr *b);
/* An IPv4 address that is mapped into IPv6 becomes an IPv4 address. */
void sa_unmap(struct sockaddr_storage *ss);
/* "1.2.3.4:5" or "[::1]:5" */
const char *sa_str(const struct sockaddr *sa, char buf[PORT_ADDR_STR]);

#endif
