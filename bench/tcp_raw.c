/* SPDX-License-Identifier: BSD-2-Clause */
/* The rival: what the same two processes do with a plain TCP socket. A stream
 * uses blocking calls, Nagle's algorithm (faster for small messages), large
 * socket buffers, a receive buffer that takes many small messages in one call,
 * and no answer but the one at the end of a round; a ping-pong spins, and so does
 * the receiver of "tcp poll". */
#include "bench.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RX_CHUNK = 256 << 10, SOCKBUF = 1 << 20 };

int tcp_listen(const char *addr, uint16_t *port)
{
	struct sockaddr_storage ss;
	socklen_t len = addr_make(&ss, addr, 0);
	int one = 1;
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, (struct sockaddr *)&ss, len) < 0 || listen(fd, 4096) < 0)
		die("tcp listen");
	len = sizeof(ss);
	if (getsockname(fd, (struct sockaddr *)&ss, &len) < 0)
		die("getsockname");
	*port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
	return fd;
}

int tcp_connect(const char *addr, uint16_t port)
{
	struct sockaddr_storage ss;
	socklen_t len = addr_make(&ss, addr, port);
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&ss, len) < 0)
		die("tcp connect");
	return fd;
}

int tcp_accept(int lfd)
{
	int fd;

	do {
		fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		die("tcp accept");
	return fd;
}

/* BENCH_SOCKBUF: bytes of the socket buffers, 0 = as the kernel tunes them. */
void tcp_tune(int fd, bool pingpong)
{
	const char *e = getenv("BENCH_SOCKBUF");
	int size = e ? atoi(e) : SOCKBUF;
	int one = 1;

	if (size > 0 &&
	    (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)) < 0 ||
	     setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)) < 0))
		die("SO_SNDBUF");
	if (pingpong &&
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) < 0)
		die("TCP_NODELAY");
}

void tcp_stream_tx(int fd, const uint8_t *buf, size_t size, uint64_t count)
{
	int on = 1, none = 0;
	char c;

	for (uint64_t i = 0; i < count; i++) {
		size_t off = 0;

		while (off < size) {
			ssize_t n = send(fd, buf + off, size - off, MSG_NOSIGNAL);

			if (n < 0 && errno != EINTR)
				die("tcp send");
			if (n > 0)
				off += (size_t)n;
		}
	}
	/* Nagle's algorithm would hold the last segment back. */
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
	    recv(fd, &c, 1, 0) != 1 ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &none, sizeof(none)) < 0)
		die("tcp recv of the final answer");
}

/* Returns where the last message lies. */
const uint8_t *tcp_stream_rx(int fd, uint8_t *buf, size_t size, uint64_t count, bool spin)
{
	int flags = spin ? MSG_DONTWAIT : 0;
	uint64_t total = size * count;
	size_t room = size > RX_CHUNK ? size : RX_CHUNK;
	uint64_t got = 0;

	while (got < total) {
		size_t off = (size_t)(got % room);
		size_t want = room - off;
		ssize_t n;

		if (want > total - got)
			want = (size_t)(total - got);
		n = recv(fd, buf + off, want, flags);
		if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
			die("tcp recv");
		if (n > 0)
			got += (uint64_t)n;
	}
	if (send(fd, "", 1, MSG_NOSIGNAL) != 1)
		die("tcp send of the final answer");
	return buf + (size_t)((total - size) % room);
}

static void spin_recv(int fd, uint8_t *buf, uint64_t seq)
{
	size_t got = 0;
	uint64_t w;

	while (got < PING) {
		ssize_t n = recv(fd, buf + got, PING - got, MSG_DONTWAIT);

		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			die("tcp recv");
		if (n > 0)
			got += (size_t)n;
	}
	memcpy(&w, buf, sizeof(w));
	if (w != seq) {
		errno = EBADMSG;
		die("tcp ping-pong content");
	}
}

static void spin_send(int fd, uint8_t *buf, uint64_t seq)
{
	memcpy(buf, &seq, sizeof(seq));
	if (send(fd, buf, PING, MSG_NOSIGNAL) != PING)
		die("tcp send");
}

void tcp_ping(int fd, uint8_t *buf, uint64_t count, uint32_t *rtt)
{
	double t = now_s();

	for (uint64_t i = 0; i < count; i++) {
		double u;

		spin_send(fd, buf + MAX_MSG, i);
		spin_recv(fd, buf, i);
		u = now_s();
		rtt[i] = (uint32_t)((u - t) * 1e9);
		t = u;
	}
}

void tcp_pong(int fd, uint8_t *buf, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		spin_recv(fd, buf, i);
		spin_send(fd, buf + MAX_MSG, i);
	}
}
