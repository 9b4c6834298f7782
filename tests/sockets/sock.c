/* SPDX-License-Identifier: BSD-2-Clause */
#include "sock.h"

int (*moved)(int fd);

void sock_init(void)
{
	void *sym = dlsym(RTLD_DEFAULT, "anyrdma_sockets_moved");

	memcpy(&moved, &sym, sizeof(sym));
}

int sock_listen(struct sockaddr_in *in)
{
	socklen_t len = sizeof(*in);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*in = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(bind(fd, (void *)in, sizeof(*in)) == 0);
	CHECK(listen(fd, 100) == 0);
	CHECK(getsockname(fd, (void *)in, &len) == 0);
	return fd;
}

bool pair_open(struct pair *p)
{
	struct sockaddr_in in;
	int l = sock_listen(&in), one = 1;

	p->a = socket(AF_INET, SOCK_STREAM, 0);
	if (!CHECK(connect(p->a, (void *)&in, sizeof(in)) == 0))
		return false;
	p->b = accept(l, NULL, NULL);
	close(l);
	setsockopt(p->a, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(p->b, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return CHECK(p->b >= 0);
}

bool pair_warm(struct pair *p)
{
	uint64_t end = t_now_ms() + t_scaled(5000);
	int round = 0;
	char c;

	do {
		c = (char)round;
		if (!CHECK(put(p->a, &c, 1) && get(p->b, &c, 1) && c == (char)round &&
			   put(p->b, &c, 1) && get(p->a, &c, 1) && c == (char)round++))
			return false;
		if (!moved || (moved(p->a) == 3 && moved(p->b) == 3))
			return true;
		/* Another thread does it: it gets the processor. */
		poll(NULL, 0, round % 8 == 0);
	} while (t_now_ms() < end);
	return CHECK(!"the connection has not moved");
}

bool pair_make(struct pair *p)
{
	return pair_open(p) && pair_warm(p);
}

void pair_close(struct pair *p)
{
	close(p->a);
	close(p->b);
}

bool put(int fd, const void *buf, size_t len)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = send(fd, (const char *)buf + done, len - done, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			poll(&(struct pollfd){ fd, POLLOUT, 0 }, 1, 1000);
			continue;
		}
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

bool get(int fd, void *buf, size_t len)
{
	size_t done = 0;
	ssize_t n;

	while (done < len) {
		n = recv(fd, (char *)buf + done, len - done, 0);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

static uint8_t byte(uint64_t at)
{
	return (uint8_t)(at ^ at >> 8 ^ at >> 16 ^ at * 7);
}

void fill(uint8_t *buf, size_t len, uint64_t at)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = byte(at + i);
}

bool same(const uint8_t *buf, size_t len, uint64_t at)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != byte(at + i)) {
			diag("byte %llu is wrong", (unsigned long long)(at + i));
			return false;
		}
	return true;
}
