/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/hello.h"
#include "base/log.h"
#include "preload/conf.h"
#include "preload/real.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GUESTS = 64, GUEST_SECONDS = 5 };

/* Rsockets that have come and have not said which connection they are for. */
struct guest {
	int rs;
	unsigned got;
	uint8_t token[16];
	time_t since;
};

static struct {
	int listener; /* + 1; rsockets of IPv6 that take IPv4, too */
	unsigned port;
	bool failed;
	struct guest guest[GUESTS];
	unsigned guests;
} hello;

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static int make(int family)
{
	int sk = rs.rsocket(family, SOCK_STREAM, 0);

	if (sk < 0)
		return -1;
	conf_rsocket(sk);
	if (rs.rfcntl(sk, F_SETFL, O_NONBLOCK) < 0) {
		rs.rclose(sk);
		return -1;
	}
	return sk;
}

static bool listen_on(int family)
{
	struct sockaddr_storage ss = { .ss_family = (sa_family_t)family };
	socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) :
					    sizeof(struct sockaddr_in6);
	int sk = make(family), off = 0;

	if (sk < 0)
		return false;
	if (family == AF_INET6)
		rs.rsetsockopt(sk, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (rs.rbind(sk, (void *)&ss, len) || rs.rlisten(sk, 1024) ||
	    rs.rgetsockname(sk, (void *)&ss, &len)) {
		rs.rclose(sk);
		return false;
	}
	hello.listener = sk + 1;
	hello.port = ntohs(family == AF_INET ? ((struct sockaddr_in *)&ss)->sin_port :
					       ((struct sockaddr_in6 *)&ss)->sin6_port);
	return true;
}

bool hello_ask(struct rail *r)
{
	if (!hello.listener && !hello.failed && !listen_on(AF_INET6) &&
	    !listen_on(AF_INET)) {
		hello.failed = true;
		log_info("connections stay on TCP: no rsocket can listen: %s",
			 strerror(errno));
	}
	if (hello.failed) {
		r->conn->pinned = true;
		return false;
	}
	return ctl_send(r, CTL_ASK, hello.port, r->token, sizeof(r->token)) == 0;
}

bool hello_connect(struct rail *r)
{
	struct sockaddr_storage ss;
	struct sockaddr_in6 *in6 = (void *)&ss;
	struct sockaddr_in in = { .sin_family = AF_INET };
	socklen_t len = sizeof(ss);
	int fd = file_any_fd(&r->conn->file);

	if (fd < 0 || getpeername(fd, (void *)&ss, &len))
		return false;
	if (ss.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(&in.sin_addr, in6->sin6_addr.s6_addr + 12, 4);
		len = sizeof(in);
		memcpy(&ss, &in, len);
	}
	if (ss.ss_family == AF_INET)
		((struct sockaddr_in *)&ss)->sin_port = htons((uint16_t)r->port);
	else
		in6->sin6_port = htons((uint16_t)r->port);
	r->rs = make(ss.ss_family);
	if (r->rs < 0)
		return false;
	if (!rs.rconnect(r->rs, (void *)&ss, len) || errno == EINPROGRESS)
		return true;
	log_info("a connection stays on TCP: its rsocket cannot connect: %s",
		 strerror(errno));
	return false;
}

bool hello_connected(struct rail *r)
{
	struct pollfd pfd = { r->rs, POLLOUT, 0 };
	socklen_t len = sizeof(int);
	int err = 0;

	if (rs.rpoll(&pfd, 1, 0) <= 0)
		return true;
	if (rs.rgetsockopt(r->rs, SOL_SOCKET, SO_ERROR, &err, &len) || err) {
		log_info("a connection stays on TCP: its rsocket did not connect: %s",
			 strerror(err ? err : errno));
		return false;
	}
	if (rs.rsend(r->rs, r->token, sizeof(r->token), MSG_NOSIGNAL | MSG_DONTWAIT) !=
	    sizeof(r->token))
		return errno == EAGAIN || errno == EINPROGRESS;
	r->step = RAIL_HELLO;
	return true;
}

nfds_t hello_gather(struct pollfd *pfd, nfds_t room, bool expected)
{
	nfds_t n = 0;

	if (expected && hello.listener && hello.guests < GUESTS && n < room)
		pfd[n++] = (struct pollfd){ hello.listener - 1, POLLIN, 0 };
	for (unsigned i = 0; i < hello.guests && n < room; i++)
		pfd[n++] = (struct pollfd){ hello.guest[i].rs, POLLIN, 0 };
	return n;
}

/* False: it has been dealt with. */
static bool guest_waits(struct guest *g)
{
	ssize_t n = rs.rrecv(g->rs, g->token + g->got, sizeof(g->token) - g->got,
			     MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN && now() - g->since <= GUEST_SECONDS)
		return true;
	if (n <= 0) {
		rs.rclose(g->rs);
		return false;
	}
	g->got += (unsigned)n;
	if (g->got < sizeof(g->token))
		return true;
	service_matched(g->token, g->rs);
	return false;
}

void hello_run(void)
{
	unsigned kept = 0;
	int sk;

	while (hello.listener && hello.guests < GUESTS &&
	       (sk = rs.raccept(hello.listener - 1, NULL, NULL)) >= 0) {
		rs.rfcntl(sk, F_SETFL, O_NONBLOCK);
		hello.guest[hello.guests++] = (struct guest){ .rs = sk, .since = now() };
	}
	for (unsigned i = 0; i < hello.guests; i++)
		if (guest_waits(&hello.guest[i]))
			hello.guest[kept++] = hello.guest[i];
	hello.guests = kept;
}

void hello_child(void)
{
	memset(&hello, 0, sizeof(hello));
}
