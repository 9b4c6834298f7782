/* SPDX-License-Identifier: BSD-2-Clause */
/* Reading and writing, in all the ways there are, and ends of streams. */
#include "sock.h"

static void sizes(void)
{
	static uint8_t out[200000], in[200000];
	struct pair p;

	REQUIRE(pair_make(&p));
	for (size_t len = 1; len < 70000; len = len * 3 / 2 + 1) {
		fill(out, len, len);
		REQUIRE(put(p.a, out, len));
		REQUIRE(get(p.b, in, len));
		REQUIRE(same(in, len, len));
		REQUIRE(put(p.b, in, len));
		REQUIRE(get(p.a, in, len));
		REQUIRE(same(in, len, len));
	}
	pair_close(&p);
}

struct flow {
	int fd;
	uint64_t bytes;
	bool good;
};

static void *writer(void *arg)
{
	struct flow *f = arg;
	static __thread uint8_t buf[65536];
	unsigned seed = 1;

	f->good = true;
	for (uint64_t at = 0; at < f->bytes && f->good;) {
		size_t len = (size_t)rand_r(&seed) % sizeof(buf) + 1;

		len = len < f->bytes - at ? len : f->bytes - at;
		fill(buf, len, at);
		f->good = put(f->fd, buf, len);
		at += len;
	}
	return NULL;
}

static void *reader(void *arg)
{
	struct flow *f = arg;
	static __thread uint8_t buf[65536];
	unsigned seed = 2;

	f->good = true;
	for (uint64_t at = 0; at < f->bytes && f->good;) {
		ssize_t n = recv(f->fd, buf, (size_t)rand_r(&seed) % sizeof(buf) + 1, 0);

		f->good = n > 0 && same(buf, (size_t)n, at);
		at += n > 0 ? (uint64_t)n : 0;
	}
	return NULL;
}

static void flow_both(struct pair *p, uint64_t bytes)
{
	struct flow f[4] = { { p->a, bytes, 0 }, { p->b, bytes, 0 },
			     { p->b, bytes, 0 }, { p->a, bytes, 0 } };
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i < 2 ? writer : reader, &f[i]);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		CHECK(f[i].good);
	}
}

static void bulk(void)
{
	struct pair p;

	REQUIRE(pair_make(&p));
	flow_both(&p, t_rounds(8, 256) << 20);
	pair_close(&p);
}

/* The move happens while four threads are at it. */
static void bulk_cold(void)
{
	struct pair p;

	for (int i = 0; i < 5; i++) {
		REQUIRE(pair_open(&p));
		flow_both(&p, t_rounds(3, 64) << 20);
		pair_close(&p);
	}
}

static void flags(void)
{
	struct pair p;
	char buf[20] = { 0 };

	REQUIRE(pair_make(&p));
	CHECK_ERRNO(recv(p.b, buf, 1, MSG_DONTWAIT), EAGAIN);
	REQUIRE(put(p.a, "hello world", 11));
	CHECK_EQ(recv(p.b, buf, 5, MSG_PEEK), 5);
	CHECK_EQ(recv(p.b, buf, 5, MSG_PEEK), 5);
	CHECK(!memcmp(buf, "hello", 5));
	CHECK_EQ(recv(p.b, buf, 5, MSG_WAITALL), 5);
	CHECK(!memcmp(buf, "hello", 5));
	CHECK_EQ(recv(p.b, buf, sizeof(buf), MSG_DONTWAIT), 6);
	CHECK(!memcmp(buf, " world", 6));
	CHECK_EQ(read(p.b, buf, 0), 0);
	CHECK_EQ(send(p.a, buf, 0, 0), 0);
	CHECK_ERRNO(recv(p.b, buf, 1, MSG_DONTWAIT), EAGAIN);
	pair_close(&p);
}

static void *late_put(void *arg)
{
	int fd = *(int *)arg;

	for (int i = 0; i < 5; i++) {
		poll(NULL, 0, 5); /* time is the point: pieces come apart */
		put(fd, "0123456789", 10);
	}
	return NULL;
}

static void wait_all(void)
{
	struct pair p;
	pthread_t t;
	char buf[50];

	REQUIRE(pair_make(&p));
	pthread_create(&t, NULL, late_put, &p.a);
	CHECK_EQ(recv(p.b, buf, 50, MSG_WAITALL), 50);
	CHECK(!memcmp(buf + 40, "0123456789", 10));
	pthread_join(t, NULL);
	pair_close(&p);
}

static int queued(int fd)
{
	int n = -1;

	return ioctl(fd, FIONREAD, &n) ? -1 : n;
}

static void vectors(void)
{
	struct pair p;
	volatile int bad = -1;
	char x[3], y[4], z[10] = { 0 };
	struct iovec out[3] = { { "ab", 2 }, { "", 0 }, { "cdefgh", 6 } };
	struct iovec in[3] = { { x, 3 }, { y, 4 }, { z, 10 } };
	struct sockaddr_storage name;
	struct msghdr msg = { .msg_iov = in, .msg_iovlen = 3, .msg_name = &name,
			      .msg_namelen = sizeof(name) };
	struct mmsghdr many[2] = { { .msg_hdr = { .msg_iov = out, .msg_iovlen = 3 } },
				   { .msg_hdr = { .msg_iov = out, .msg_iovlen = 1 } } };
	socklen_t len = sizeof(name);

	REQUIRE(pair_make(&p));
	CHECK_EQ(writev(p.a, out, 3), 8);
	CHECK_EQ(readv(p.b, in, 3), 8);
	CHECK(!memcmp(x, "abc", 3) && !memcmp(y, "defg", 4) && z[0] == 'h');
	CHECK_EQ(sendmmsg(p.a, many, 2, 0), 2);
	CHECK_EQ(many[1].msg_len, 2);
	REQUIRE(T_WAIT(queued(p.b) == 10, 5000));
	CHECK_EQ(recvmsg(p.b, &msg, MSG_WAITALL | MSG_DONTWAIT), 10);
	CHECK(z[2] == 'b');
	CHECK_EQ(msg.msg_flags & ~MSG_CMSG_CLOEXEC, 0);
	CHECK_EQ(msg.msg_controllen, 0);
	REQUIRE(put(p.a, "q", 1));
	CHECK_EQ(recvfrom(p.b, z, 10, 0, (void *)&name, &len), 1);
	CHECK_EQ(write(p.a, "wxyz", 4), 4);
	CHECK_EQ(read(p.b, z, 10), 4);
	CHECK_ERRNO(readv(p.b, in, bad), EINVAL);
	pair_close(&p);
}

/* Full is what stays so: a sender may be refused for a moment, while what it has sent is
 * being taken. */
static uint64_t fill_up(int fd, uint8_t *buf, size_t len)
{
	struct pollfd pfd = { fd, POLLOUT, 0 };
	uint64_t sent = 0;
	ssize_t n;

	do {
		fill(buf, len, sent);
		n = send(fd, buf, len, 0);
		if (n > 0)
			sent += (uint64_t)n;
		else
			CHECK_EQ(errno, EAGAIN);
	} while (n > 0 || poll(&pfd, 1, 200) == 1);
	return sent;
}

static void full(void)
{
	static uint8_t buf[100000];
	struct pair p;
	struct pollfd pfd;
	uint64_t sent, got = 0;
	ssize_t n;

	REQUIRE(pair_make(&p));
	REQUIRE(fcntl(p.a, F_SETFL, O_NONBLOCK) == 0);
	sent = fill_up(p.a, buf, sizeof(buf));
	diag("%llu bytes before it is full", (unsigned long long)sent);
	pfd = (struct pollfd){ p.a, POLLOUT, 0 };
	CHECK_EQ(poll(&pfd, 1, 0), 0);
	while (got < sent) {
		n = recv(p.b, buf, sizeof(buf), 0);
		REQUIRE(n > 0 && same(buf, (size_t)n, got));
		got += (uint64_t)n;
	}
	CHECK_EQ(poll(&pfd, 1, 1000), 1);
	CHECK_EQ(pfd.revents, POLLOUT);
	pair_close(&p);
}

static void half_close(void)
{
	struct pair p;
	char buf[10];

	REQUIRE(pair_make(&p));
	REQUIRE(put(p.a, "last", 4));
	CHECK_EQ(shutdown(p.a, SHUT_WR), 0);
	CHECK_ERRNO(send(p.a, "x", 1, MSG_NOSIGNAL), EPIPE);
	CHECK_EQ(recv(p.b, buf, 10, 0), 4);
	CHECK_EQ(recv(p.b, buf, 10, 0), 0);
	CHECK_EQ(recv(p.b, buf, 10, 0), 0);
	/* The other direction goes on. */
	for (int i = 0; i < 100; i++) {
		REQUIRE(put(p.b, "answer", 6));
		REQUIRE(get(p.a, buf, 6) && !memcmp(buf, "answer", 6));
	}
	close(p.b);
	CHECK_EQ(recv(p.a, buf, 10, 0), 0);
	close(p.a);
}

static void no_more_reading(void)
{
	struct pair p;
	char buf[10];

	REQUIRE(pair_make(&p));
	CHECK_EQ(shutdown(p.b, SHUT_RD), 0);
	CHECK_EQ(recv(p.b, buf, 10, 0), 0);
	REQUIRE(put(p.b, "still", 5));
	CHECK(get(p.a, buf, 5));
	pair_close(&p);
}

static void data_before_end(void)
{
	static uint8_t buf[100000];
	struct pair p;
	size_t got = 0;
	ssize_t n;

	REQUIRE(pair_make(&p));
	fill(buf, sizeof(buf), 0);
	REQUIRE(put(p.a, buf, sizeof(buf)));
	close(p.a);
	while ((n = recv(p.b, buf, sizeof(buf), 0)) > 0) {
		CHECK(same(buf, (size_t)n, got));
		got += (size_t)n;
	}
	CHECK_EQ(n, 0);
	CHECK_EQ(got, sizeof(buf));
	close(p.b);
}

static int pipes;

static void on_pipe(int sig)
{
	(void)sig;
	pipes++;
}

static void peer_closed(void)
{
	struct pair p;
	ssize_t n = 0;

	signal(SIGPIPE, on_pipe);
	REQUIRE(pair_make(&p));
	close(p.b);
	for (int i = 0; i < 1000 && n >= 0; i++) {
		n = write(p.a, "x", 1);
		poll(NULL, 0, i > 10);
	}
	CHECK(n == -1 && (errno == EPIPE || errno == ECONNRESET));
	CHECK_ERRNO(write(p.a, "x", 1), EPIPE);
	CHECK(pipes > 0);
	signal(SIGPIPE, SIG_DFL);
	close(p.a);
}

static void linger_reset(void)
{
	struct linger l = { 1, 0 };
	struct pair p;
	char c;

	REQUIRE(pair_make(&p));
	setsockopt(p.a, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(p.a);
	CHECK_ERRNO(recv(p.b, &c, 1, 0), ECONNRESET);
	close(p.b);
}

static void timeouts(void)
{
	struct timeval tv = { 0, 50000 };
	static uint8_t buf[100000];
	struct pair p;
	uint64_t from;
	ssize_t n;

	REQUIRE(pair_make(&p));
	setsockopt(p.b, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	setsockopt(p.a, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	from = t_now_ms();
	CHECK_ERRNO(recv(p.b, buf, 1, 0), EAGAIN);
	CHECK(t_now_ms() - from >= 45);
	while ((n = send(p.a, buf, sizeof(buf), 0)) > 0)
		;
	CHECK(n == -1 && errno == EAGAIN);
	pair_close(&p);
}

static void readable_count(void)
{
	struct pair p;
	char buf[100];
	int n = -1;

	REQUIRE(pair_make(&p));
	CHECK(ioctl(p.b, FIONREAD, &n) == 0 && n == 0);
	REQUIRE(put(p.a, buf, 77));
	for (int i = 0; i < 1000 && n != 77; i++) {
		CHECK(ioctl(p.b, FIONREAD, &n) == 0);
		poll(NULL, 0, i > 10);
	}
	CHECK_EQ(n, 77);
	REQUIRE(get(p.b, buf, 70));
	CHECK(ioctl(p.b, FIONREAD, &n) == 0 && n == 7);
	pair_close(&p);
}

static void urgent(void)
{
	struct pair p;
	char buf[10];

	REQUIRE(pair_make(&p));
	REQUIRE(put(p.a, "ab", 2));
	CHECK_EQ(send(p.a, "!", 1, MSG_OOB), 1);
	CHECK(get(p.b, buf, 2) && !memcmp(buf, "ab", 2));
	CHECK_EQ(recv(p.b, buf, 1, MSG_OOB), 1);
	CHECK_EQ(buf[0], '!');
	REQUIRE(put(p.a, "cd", 2));
	CHECK(get(p.b, buf, 2) && !memcmp(buf, "cd", 2));
	pair_close(&p);
}

static void from_files(void)
{
	static uint8_t buf[300000];
	struct pair p;
	FILE *f = tmpfile();
	int fd = fileno(f);
	off_t at = 1000;
	size_t got = 0;
	pid_t pid;
	int status;

	fill(buf, sizeof(buf), 0);
	REQUIRE(pwrite(fd, buf, sizeof(buf), 0) == sizeof(buf));
	REQUIRE(pair_make(&p));
	CHECK_EQ(sendfile(p.a, fd, &at, 5000), 5000);
	CHECK_EQ(at, 6000);
	REQUIRE(get(p.b, buf, 5000) && same(buf, 5000, 1000));
	pid = fork();
	if (!pid) {
		lseek(fd, 0, SEEK_SET);
		while (got < sizeof(buf)) {
			ssize_t n = sendfile(p.a, fd, NULL, sizeof(buf) - got);

			if (n <= 0)
				_exit(1);
			got += (size_t)n;
		}
		_exit(0);
	}
	REQUIRE(get(p.b, buf, sizeof(buf)) && same(buf, sizeof(buf), 0));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	fclose(f);
	pair_close(&p);
}

static void through_pipe(void)
{
	struct pair p;
	char buf[10];
	int fd[2];

	REQUIRE(pair_make(&p) && pipe(fd) == 0);
	REQUIRE(put(p.a, "before", 6));
	REQUIRE(write(fd[1], "spliced", 7) == 7);
	CHECK_EQ(splice(fd[0], NULL, p.a, NULL, 7, 0), 7);
	CHECK(get(p.b, buf, 6) && !memcmp(buf, "before", 6));
	CHECK_EQ(splice(p.b, NULL, fd[1], NULL, 7, 0), 7);
	CHECK_EQ(read(fd[0], buf, 10), 7);
	CHECK(!memcmp(buf, "spliced", 7));
	close(fd[0]);
	close(fd[1]);
	pair_close(&p);
}

static void stdio(void)
{
	struct pair p;
	char line[100];
	FILE *f;

	REQUIRE(pair_make(&p));
	REQUIRE(put(p.a, "one\ntwo\n", 8));
	f = fdopen(p.b, "r+");
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "one\n"));
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "two\n"));
	REQUIRE(put(p.a, "three\n", 6));
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "three\n"));
	CHECK_EQ(dprintf(p.a, "%d and %s\n", 4, "five"), 11);
	CHECK(fgets(line, sizeof(line), f) && !strcmp(line, "4 and five\n"));
	fclose(f);
	close(p.a);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	sock_init();
	T_RUN(sizes);
	T_RUN(bulk);
	T_RUN(bulk_cold);
	T_RUN(flags);
	T_RUN(wait_all);
	T_RUN(vectors);
	T_RUN(full);
	T_RUN(half_close);
	T_RUN(no_more_reading);
	T_RUN(data_before_end);
	T_RUN(peer_closed);
	T_RUN(linger_reset);
	T_RUN(timeouts);
	T_RUN(readable_count);
	T_RUN(urgent);
	T_RUN(from_files);
	T_RUN(through_pipe);
	T_RUN(stdio);
	return t_done();
}
