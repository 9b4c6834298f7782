/* SPDX-License-Identifier: BSD-2-Clause */
/* Helpers of the rsocket programs (rs_*.c). */
#ifndef ANYRDMA_TESTS_RS_H
#define ANYRDMA_TESTS_RS_H

#include "conf.h"

#include <rdma/rsocket.h>
#include <sys/wait.h>

/* A call that gives a descriptor. */
#define FD(call)                                                                 \
	({                                                                       \
		int fd_;                                                         \
		AT(#call);                                                       \
		fd_ = (call);                                                    \
		if (fd_ < 0)                                                     \
			FAIL("%s: errno %d (%s)", #call, errno, strerror(errno)); \
		fd_;                                                             \
	})
/* One that must give this number of bytes. */
#define BYTES(call, n)                                                           \
	do {                                                                     \
		ssize_t n_;                                                      \
		AT(#call);                                                       \
		n_ = (call);                                                     \
		if (n_ != (ssize_t)(n))                                          \
			FAIL("%s: %zd, wanted %zd; errno %d (%s)", #call, n_,    \
			     (ssize_t)(n), errno, strerror(errno));              \
	} while (0)

struct rs_pair {
	int l, a, p; /* listener, active, passive; -1: none */
};

static inline socklen_t rs_len(int family)
{
	return family == AF_INET6 ? sizeof(struct sockaddr_in6) :
				    sizeof(struct sockaddr_in);
}

static inline int rs_listener(int family, int backlog, conf_sa *addr)
{
	conf_sa at = conf_addr(family, 0);
	socklen_t len = sizeof(*addr);
	int l = FD(rsocket(family, SOCK_STREAM, 0));

	OK(rbind(l, SA(at), rs_len(family)));
	OK(rlisten(l, backlog));
	OK(rgetsockname(l, (struct sockaddr *)addr, &len));
	return l;
}

/* prepare is called with each socket that is made here, before it connects. */
static inline struct rs_pair rs_pair_of(int family, void (*prepare)(int fd))
{
	struct rs_pair p;
	conf_sa addr;

	p.l = FD(rsocket(family, SOCK_STREAM, 0));
	if (prepare)
		prepare(p.l);
	addr = conf_addr(family, 0);
	OK(rbind(p.l, SA(addr), rs_len(family)));
	OK(rlisten(p.l, 16));
	OK(rgetsockname(p.l, SA(addr), &(socklen_t){ sizeof(addr) }));
	p.a = FD(rsocket(family, SOCK_STREAM, 0));
	if (prepare)
		prepare(p.a);
	OK(rconnect(p.a, SA(addr), rs_len(family)));
	p.p = FD(raccept(p.l, NULL, NULL));
	return p;
}

static inline struct rs_pair rs_pair(void)
{
	return rs_pair_of(AF_INET, NULL);
}

static inline void rs_pair_close(struct rs_pair *p)
{
	if (p->a >= 0)
		OK(rclose(p->a));
	if (p->p >= 0)
		OK(rclose(p->p));
	if (p->l >= 0)
		OK(rclose(p->l));
}

static inline void rs_nonblock(int fd)
{
	OK(rfcntl(fd, F_SETFL, O_NONBLOCK));
}

/* Waits until the socket has one of these events; gives all that it has. */
static inline short rs_ready(int fd, short events)
{
	struct pollfd f = { .fd = fd, .events = events };

	EQ(rpoll(&f, 1, conf_ms(CONF_WAIT)), 1);
	return f.revents;
}

/* Sends all, receives all, in a pattern of this seed. */
static inline void rs_send_all(int fd, size_t len, uint32_t seed)
{
	uint8_t *buf = malloc(len);
	size_t off = 0;
	ssize_t n;

	conf_pattern(buf, len, seed);
	for (; off < len; off += (size_t)n) {
		n = rsend(fd, buf + off, len - off, 0);
		if (n < 0 && errno == EAGAIN) {
			rs_ready(fd, POLLOUT);
			n = 0;
		}
		if (n < 0)
			FAIL("rsend: %s", strerror(errno));
	}
	free(buf);
}

static inline void rs_recv_all(int fd, size_t len, uint32_t seed)
{
	uint8_t *buf = malloc(len);
	size_t off = 0;
	ssize_t n;

	for (; off < len; off += (size_t)n) {
		n = rrecv(fd, buf + off, len - off, 0);
		if (n < 0 && errno == EAGAIN) {
			rs_ready(fd, POLLIN);
			n = 0;
		} else if (n <= 0) {
			FAIL("rrecv: %zd (%s) after %zu of %zu bytes", n,
			     strerror(errno), off, len);
		}
	}
	if (!conf_pattern_ok(buf, len, seed))
		FAIL("%zu bytes are not those that were sent", len);
	free(buf);
}

#endif
