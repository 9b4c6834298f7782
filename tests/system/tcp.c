/* SPDX-License-Identifier: BSD-2-Clause */
/* Programs that do not speak our protocol, on the TCP port behind an RDMA port: clients
 * that send garbage, a part of a request, slowly or nothing, and servers that are not
 * ours. Other connections do not suffer. */
#include "lab.h"

#include <signal.h>
#include <sys/socket.h>

static struct end l;
static uint16_t port;

static void start(void)
{
	if (!conf_user_device())
		SKIP("there is no TCP below this device");
	signal(SIGPIPE, SIG_IGN);
	end_listen(&l, NULL);
	port = ntohs(rdma_get_src_port(l.listener));
}

/* The listener serves an honest client, and nothing else was reported. */
static void still_serves(void)
{
	struct end c;

	conf_quiet(l.ch, 50);
	end_connect(&c, port);
	end_request(&l);
	end_accept(&l, false);
	end_established(&c);
	conf_expect(l.ch, l.id, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_disconnect(c.id));
	conf_expect(l.ch, l.id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(l.id));
	conf_expect(c.ch, c.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&c);
	rdma_destroy_qp(l.id);
	conf_buf_free(&l.buf);
	OK(rdma_destroy_id(l.id));
	l.id = NULL;
}

static void stop(void)
{
	end_free(&l);
}

static void put(int fd, const void *p, size_t len)
{
	const char *b = p;
	ssize_t n;

	while (len) {
		n = send(fd, b, len, MSG_NOSIGNAL);
		if (n <= 0) /* thrown out: fine */
			return;
		b += n;
		len -= n;
	}
}

/* True when the other end closes within ms. */
static bool closed(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t end = conf_now() + ms * 1000000ull;
	char buf[4096];

	for (;;) {
		int64_t left = (int64_t)(end - conf_now()) / 1000000;

		if (left <= 0 || poll(&p, 1, left) != 1)
			return false;
		if (recv(fd, buf, sizeof(buf), 0) <= 0)
			return true;
	}
}

static void random_bytes(void)
{
	uint8_t junk[65536];
	int fd;

	start();
	for (unsigned i = 0; i < 20; i++) {
		conf_pattern(junk, sizeof(junk), i);
		fd = lab_tcp_connect(port);
		put(fd, junk, sizeof(junk) >> (i % 12));
		if (i % 2)
			CHECK(closed(fd, conf_ms(CONF_WAIT)));
		close(fd);
	}
	still_serves();
	stop();
}

static void web_browser(void)
{
	static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	int fd;

	start();
	fd = lab_tcp_connect(port);
	put(fd, get, sizeof(get) - 1);
	CHECK(closed(fd, conf_ms(CONF_WAIT)));
	close(fd);
	still_serves();
	stop();
}

/* The start of an MPA request: key, flags, revision 2, private data length. */
static size_t mpa_head(uint8_t *b, uint8_t flags, uint8_t rev, uint16_t len)
{
	memcpy(b, "MPA ID Req Frame", 16);
	b[16] = flags;
	b[17] = rev;
	b[18] = len >> 8;
	b[19] = (uint8_t)len;
	return 20;
}

static void truncated_at_every_length(void)
{
	uint8_t b[512] = { 0 };
	int fd;

	start();
	mpa_head(b, 0x14, 2, 100);
	for (unsigned len = 0; len < 120; len += len < 24 ? 1 : 7) {
		fd = lab_tcp_connect(port);
		put(fd, b, len);
		close(fd);
	}
	still_serves();
	stop();
}

static void private_data_length_too_large(void)
{
	uint8_t b[70000] = { 0 };
	int fd;

	start();
	mpa_head(b, 0x14, 2, 0xffff);
	fd = lab_tcp_connect(port);
	put(fd, b, sizeof(b));
	CHECK(closed(fd, conf_ms(CONF_WAIT)));
	close(fd);
	still_serves();
	stop();
}

static void unknown_revisions_and_flags(void)
{
	uint8_t b[512] = { 0 };
	int fd;

	start();
	for (unsigned rev = 0; rev < 256; rev += 5)
		for (unsigned flags = 0; flags < 256; flags += 51) {
			memset(b, 0x41, sizeof(b));
			mpa_head(b, flags, rev, 64);
			fd = lab_tcp_connect(port);
			put(fd, b, 84);
			close(fd);
		}
	still_serves();
	stop();
}

static void reset_at_once(void)
{
	struct linger lin = { .l_onoff = 1 };
	int fd;

	start();
	for (int i = 0; i < 100; i++) {
		fd = lab_tcp_connect(port);
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin));
		close(fd);
	}
	still_serves();
	stop();
}

/* One byte a second: does not hold up others, and is thrown out in the end. */
static void slow_client(void)
{
	uint8_t b[256] = { 0 };
	bool out = false;
	int fd;

	start();
	mpa_head(b, 0x14, 2, 100);
	fd = lab_tcp_connect(port);
	for (int i = 0; i < 40 && !out; i++) {
		out = send(fd, b + i, 1, MSG_NOSIGNAL) != 1 || closed(fd, 1000);
		if (i == 2)
			still_serves();
	}
	if (!out)
		FAIL("a client that never finishes is kept for long");
	close(fd);
	still_serves();
	stop();
}

/* Silent connections are bounded in number and time. */
static void silent_clients(void)
{
	enum { N = 400 };
	int fd[N];

	start();
	for (int i = 0; i < N; i++)
		fd[i] = lab_tcp_connect(port);
	still_serves();
	for (int i = 0; i < N; i++)
		if (!closed(fd[i], conf_ms(30000)))
			FAIL("connection %d is silent and kept", i);
	for (int i = 0; i < N; i++)
		close(fd[i]);
	still_serves();
	stop();
}

/* Somebody else's TCP server where an RDMA port would be. */
static int plain_listener(uint16_t rdma_port)
{
	conf_sa addr = conf_addr(AF_INET, lab_tcp_port(rdma_port));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	OK(bind(fd, SA(addr), sizeof(struct sockaddr_in)));
	OK(listen(fd, 8));
	return fd;
}

/* An honest request in small pieces. */

/* What a client sends first when it connects to this RDMA port. */
static size_t capture(uint16_t rdma_port, uint8_t *b, size_t max)
{
	struct end c;
	size_t len = 0, want;
	ssize_t n;
	int lfd = plain_listener(rdma_port), fd;

	end_connect(&c, rdma_port);
	fd = accept(lfd, NULL, NULL);
	CHECK(fd >= 0);
	do {
		n = recv(fd, b + len, max - len, 0);
		CHECK(n > 0);
		len += n;
		want = len < 20 ? 20 : 20 + ((b[18] << 8) | b[19]);
	} while (len < want);
	close(fd);
	close(lfd);
	end_free(&c);
	return len;
}

static void request_in_small_pieces(void)
{
	conf_sa addr = conf_addr(AF_INET, conf_port(150));
	uint8_t b[1024];
	size_t len;
	int fd;

	if (!conf_user_device())
		SKIP("there is no TCP below this device");
	port = conf_port(150);
	len = capture(port, b, sizeof(b));
	l.ch = conf_channel();
	l.listener = conf_id(l.ch);
	OK(rdma_bind_addr(l.listener, SA(addr)));
	OK(rdma_listen(l.listener, 4));
	fd = lab_tcp_connect(port);
	for (size_t i = 0; i < len; i++) {
		CHECK(send(fd, b + i, 1, MSG_NOSIGNAL) == 1);
		conf_settle(); /* one by one: our thread has read it and sleeps again */
	}
	end_request(&l); /* it is a request, however it came */
	OK(rdma_reject(l.id, NULL, 0));
	CHECK(closed(fd, conf_ms(CONF_WAIT)));
	close(fd);
	rdma_destroy_qp(l.id);
	conf_buf_free(&l.buf);
	OK(rdma_destroy_id(l.id));
	l.id = NULL;
	still_serves();
	stop();
}

/* Servers that are not ours hold the TCP port: REJECTED 8. */

enum kind { SILENT, CLOSES, TALKS, ECHOES };

static void check_foreign(enum kind kind, unsigned i)
{
	struct end c;
	uint8_t b[4096];
	ssize_t n;
	int lfd, fd;

	if (!conf_user_device())
		SKIP("there is no TCP below this device");
	signal(SIGPIPE, SIG_IGN);
	lfd = plain_listener(conf_port(i));
	end_connect(&c, conf_port(i));
	fd = accept(lfd, NULL, NULL);
	CHECK(fd >= 0);
	if (kind == CLOSES) {
		close(fd);
		fd = -1;
	} else if (kind == TALKS) {
		put(fd, "220 mail.example.org ESMTP ready\r\n", 34);
	} else if (kind == ECHOES) {
		n = recv(fd, b, sizeof(b), 0);
		CHECK(n > 0);
		put(fd, b, n);
	}
	conf_expect_status(c.ch, c.id, RDMA_CM_EVENT_REJECTED, 8);
	if (fd >= 0)
		close(fd);
	close(lfd);
	end_free(&c);
}

static void foreign_server_silent(void)
{
	check_foreign(SILENT, 160);
}

static void foreign_server_closes(void)
{
	check_foreign(CLOSES, 161);
}

static void foreign_server_talks(void)
{
	check_foreign(TALKS, 162);
}

static void foreign_server_echoes(void)
{
	check_foreign(ECHOES, 163);
}

/* The TCP port is taken by another program: listening says so. */
static void listen_on_a_taken_tcp_port(void)
{
	struct rdma_event_channel *ch;
	conf_sa addr = conf_addr(AF_INET, conf_port(164));
	struct rdma_cm_id *id;
	int lfd;

	if (!conf_user_device())
		SKIP("there is no TCP below this device");
	lfd = plain_listener(conf_port(164));
	ch = conf_channel();
	id = conf_id(ch);
	OK(rdma_bind_addr(id, SA(addr)));
	ERR(rdma_listen(id, 1), EADDRINUSE);
	OK(rdma_destroy_id(id));
	close(lfd);
	id = conf_id(ch);
	OK(rdma_bind_addr(id, SA(addr)));
	OK(rdma_listen(id, 1));
	conf_id_close(id);
}

static const struct conf_case cases[] = {
	CASE(random_bytes),
	CASE(web_browser),
	CASE(truncated_at_every_length),
	CASE(private_data_length_too_large),
	CASE(unknown_revisions_and_flags),
	CASE(reset_at_once),
	LONG_CASE(slow_client, 60),
	LONG_CASE(silent_clients, 60),
	CASE(request_in_small_pieces),
	CASE(foreign_server_silent),
	CASE(foreign_server_closes),
	CASE(foreign_server_talks),
	CASE(foreign_server_echoes),
	CASE(listen_on_a_taken_tcp_port),
};

CONF_MAIN(cases)
