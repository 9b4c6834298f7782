/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors and processes: dup, fork, exec, descriptors that are passed, peers that end. */
#include "sock.h"

#include <spawn.h>
#include <sys/un.h>

extern char **environ;

static bool ended_well(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void duplicates(void)
{
	struct pair p;
	char c;
	int d, e;

	REQUIRE(pair_make(&p));
	d = dup(p.a);
	REQUIRE(put(p.a, "1", 1) && put(d, "2", 1));
	CHECK(get(p.b, &c, 1) && c == '1' && get(p.b, &c, 1) && c == '2');
	close(p.a);
	REQUIRE(put(d, "3", 1) && get(p.b, &c, 1) && c == '3');
	e = fcntl(d, F_DUPFD_CLOEXEC, 100);
	CHECK(e >= 100);
	CHECK_EQ(dup2(e, d), d);
	REQUIRE(put(d, "4", 1) && get(p.b, &c, 1) && c == '4');
	close(d);
	CHECK_EQ(fcntl(e, F_SETFL, O_NONBLOCK), 0);
	CHECK_ERRNO(read(e, &c, 1), EAGAIN);
	/* The last one goes by being replaced. */
	d = open("/dev/null", O_RDWR);
	CHECK_EQ(dup3(d, e, O_CLOEXEC), e);
	CHECK_EQ(recv(p.b, &c, 1, 0), 0);
	close(e);
	close(d);
	close(p.b);
}

static void names(void)
{
	struct sockaddr_in a, b;
	socklen_t len = sizeof(a);
	struct pair p;
	struct stat st;

	REQUIRE(pair_make(&p));
	CHECK_EQ(getsockname(p.a, (void *)&a, &len), 0);
	CHECK_EQ(getpeername(p.b, (void *)&b, &len), 0);
	CHECK(a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr);
	CHECK(fstat(p.a, &st) == 0 && S_ISSOCK(st.st_mode));
	pair_close(&p);
}

/* What is on the way in both directions stays in order across a fork. */
static void forked(void)
{
	static uint8_t buf[50000];
	struct pair p;
	pid_t pid;

	REQUIRE(pair_make(&p));
	fill(buf, 30000, 0);
	REQUIRE(put(p.a, buf, 30000));	/* not read yet, by the parent */
	fill(buf, 20000, 500);
	REQUIRE(put(p.b, buf, 20000));
	pid = fork();
	if (!pid) {
		if (!get(p.b, buf, 30000) || !same(buf, 30000, 0))
			_exit(1);
		fill(buf, 10000, 20500);
		_exit(!put(p.b, buf, 10000));
	}
	REQUIRE(get(p.a, buf, 30000));
	CHECK(same(buf, 30000, 500));
	CHECK(ended_well(pid));
	/* And goes on in the parent. */
	REQUIRE(pair_warm(&p));
	pair_close(&p);
}

/* Nobody has read what a writer sent that has ended TCP: parent and child share it. */
static void forked_after(bool closes, bool by_child)
{
	static uint8_t buf[60000];
	struct pair p;
	size_t first = by_child ? 60000 : 20000;
	pid_t pid;
	char c;

	REQUIRE(pair_make(&p));
	fill(buf, sizeof(buf), 0);
	REQUIRE(put(p.a, buf, sizeof(buf)));
	if (closes)
		close(p.a);
	else
		CHECK_EQ(shutdown(p.a, SHUT_WR), 0);
	pid = fork();
	if (!pid) {
		alarm(t_scaled(20));
		if (!get(p.b, buf, first) || !same(buf, first, 0))
			_exit(1);
		if (by_child && recv(p.b, &c, 1, 0))
			_exit(2);
		_exit(!closes && !put(p.b, "answer", 6));
	}
	CHECK(ended_well(pid));
	memset(buf, 0, sizeof(buf));
	if (!by_child) {
		CHECK_EQ(recv(p.b, buf, 100, MSG_PEEK), 100);
		CHECK(poll(&(struct pollfd){ p.b, POLLIN, 0 }, 1, 5000) == 1);
		CHECK(get(p.b, buf, 40000) && same(buf, 40000, first));
	}
	CHECK_EQ(recv(p.b, &c, 1, 0), 0);
	if (!closes)
		CHECK(get(p.a, buf, 6) && !memcmp(buf, "answer", 6));
	if (!closes)
		close(p.a);
	close(p.b);
}

static void forked_after_shutdown(void)
{
	forked_after(false, true);
	forked_after(false, false);
}

static void forked_after_close(void)
{
	forked_after(true, true);
	forked_after(true, false);
}

/* A server that forks for each connection: the child's connection moves. */
static void fork_each(void)
{
	struct sockaddr_in in;
	int l = sock_listen(&in);
	pid_t server, child;
	char buf[100];

	server = fork();
	if (!server) {
		for (int i = 0; i < 3; i++) {
			int fd = accept(l, NULL, NULL);

			child = fork();
			if (!child) {
				ssize_t n;

				close(l);
				while ((n = read(fd, buf, sizeof(buf))) > 0)
					put(fd, buf, (size_t)n);
				_exit(0);
			}
			close(fd);
		}
		while (wait(NULL) > 0)
			;
		_exit(0);
	}
	for (int i = 0; i < 3; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0), bits = 0;

		REQUIRE(connect(fd, (void *)&in, sizeof(in)) == 0);
		for (int k = 0; k < 5000 && bits != 3; k++) {
			REQUIRE(put(fd, "hello", 5) && get(fd, buf, 5));
			REQUIRE(!memcmp(buf, "hello", 5));
			bits = moved ? moved(fd) : 3;
			poll(NULL, 0, k % 16 == 0);
		}
		CHECK_EQ(bits, 3);
		close(fd);
	}
	CHECK(ended_well(server));
	close(l);
}

static void executed(void)
{
	struct pair p;
	char buf[20], *argv[] = { "cat", NULL };
	posix_spawn_file_actions_t fa;
	pid_t pid;

	REQUIRE(pair_make(&p));
	fcntl(p.a, F_SETFD, FD_CLOEXEC);
	REQUIRE(put(p.a, "early ", 6));
	pid = fork();
	if (!pid) {
		dup2(p.b, 0);
		dup2(p.b, 1);
		execvp("cat", argv);
		_exit(1);
	}
	REQUIRE(put(p.a, "late", 4));
	CHECK(get(p.a, buf, 10) && !memcmp(buf, "early late", 10));
	close(p.b);
	shutdown(p.a, SHUT_WR);
	CHECK_EQ(recv(p.a, buf, 1, 0), 0);
	CHECK(ended_well(pid));
	close(p.a);

	REQUIRE(pair_make(&p));
	fcntl(p.a, F_SETFD, FD_CLOEXEC);
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, p.b, 0);
	posix_spawn_file_actions_adddup2(&fa, p.b, 1);
	REQUIRE(put(p.a, "early ", 6));
	REQUIRE(posix_spawnp(&pid, "cat", &fa, NULL, argv, environ) == 0);
	close(p.b);
	REQUIRE(put(p.a, "late", 4));
	CHECK(get(p.a, buf, 10) && !memcmp(buf, "early late", 10));
	close(p.a);
	posix_spawn_file_actions_destroy(&fa);
	waitpid(pid, NULL, 0);
}

static bool pass(int over, int fd)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} u = { 0 };
	struct iovec iov = { "x", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &u,
			    .msg_controllen = sizeof(u) };

	u.h.cmsg_len = CMSG_LEN(sizeof(int));
	u.h.cmsg_level = SOL_SOCKET;
	u.h.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&u.h), &fd, sizeof(fd));
	return sendmsg(over, &m, 0) == 1;
}

static int take(int over)
{
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int))];
	} u;
	char c;
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &u,
			    .msg_controllen = sizeof(u) };
	int fd = -1;

	if (recvmsg(over, &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static void passed(void)
{
	struct pair p;
	int un[2], fd;
	char buf[20];

	REQUIRE(pair_make(&p) && socketpair(AF_UNIX, SOCK_STREAM, 0, un) == 0);
	REQUIRE(put(p.a, "early", 5));
	CHECK(pass(un[0], p.b));
	fd = take(un[1]);
	REQUIRE(fd >= 0);
	close(p.b);
	REQUIRE(put(p.a, "late", 4));
	CHECK(get(fd, buf, 9) && !memcmp(buf, "earlylate", 9));
	REQUIRE(put(fd, "back", 4) && get(p.a, buf, 4) && !memcmp(buf, "back", 4));
	close(fd);
	CHECK_EQ(recv(p.a, buf, 1, 0), 0);
	close(p.a);
	close(un[0]);
	close(un[1]);
}

/* A peer in another process, warm; it ends by how: 0 exit, else this signal. */
static void peer_ends(int how, bool forks)
{
	static uint8_t buf[5000];
	struct sockaddr_in in;
	int l = sock_listen(&in), status;
	struct pair p = { -1, -1 };
	ssize_t n;
	pid_t pid = fork();
	char c;

	if (!pid) {
		p.a = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(p.a, (void *)&in, sizeof(in)))
			_exit(1);
		while (read(p.a, &c, 1) == 1 && c != '!')
			put(p.a, &c, 1);
		fill(buf, sizeof(buf), 0);
		put(p.a, buf, sizeof(buf));
		if (how)
			kill(getpid(), how);
		exit(0);
	}
	p.b = accept(l, NULL, NULL);
	close(l);
	for (int i = 0; i < 2000 && (!moved || moved(p.b) != 3); i++) {
		REQUIRE(put(p.b, "x", 1) && get(p.b, &c, 1));
		poll(NULL, 0, i % 16 == 0);
		if (!moved && i > 10)
			break;
	}
	CHECK(!moved || moved(p.b) == 3);
	REQUIRE(put(p.b, "!", 1));
	if (forks) {
		REQUIRE(waitpid(pid, &status, 0) == pid);
		pid = fork();
		if (!pid)
			_exit(!get(p.b, buf, sizeof(buf)) || !same(buf, sizeof(buf), 0));
		CHECK(ended_well(pid));
	} else {
		REQUIRE(get(p.b, buf, sizeof(buf)));
		CHECK(same(buf, sizeof(buf), 0));
	}
	n = recv(p.b, buf, 1, 0);
	if (how)
		CHECK(n == 0 || (n == -1 && errno == ECONNRESET));
	else
		CHECK_EQ(n, 0);
	n = recv(p.b, buf, 1, 0);
	CHECK(n <= 0);
	if (!forks)
		waitpid(pid, &status, 0);
	close(p.b);
}

static void peer_exits(void)
{
	peer_ends(0, false);
	peer_ends(0, true);
}

static void peer_killed(void)
{
	peer_ends(SIGKILL, false);
}

/* A stopped peer holds nothing up for ever. */
static void peer_stopped(void)
{
	static uint8_t buf[4000000];
	struct sockaddr_in in;
	int l = sock_listen(&in), fd;
	pid_t pid = fork(), child;
	struct timeval tv = { 0, 100000 };
	char c;

	if (!pid) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (void *)&in, sizeof(in)))
			_exit(1);
		while (read(fd, &c, 1) == 1)
			put(fd, &c, 1);
		_exit(0);
	}
	fd = accept(l, NULL, NULL);
	close(l);
	for (int i = 0; i < 2000 && moved && moved(fd) != 3; i++) {
		REQUIRE(put(fd, "x", 1) && get(fd, &c, 1));
		poll(NULL, 0, i % 16 == 0);
	}
	CHECK(!moved || moved(fd) == 3);
	kill(pid, SIGSTOP);
	waitpid(pid, NULL, WUNTRACED);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	while (send(fd, buf, sizeof(buf), 0) > 0)
		;
	CHECK_EQ(errno, EAGAIN);
	child = fork();
	if (!child)
		_exit(0);
	CHECK(ended_well(child));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	while (recv(fd, buf, sizeof(buf), 0) > 0)
		;
	close(fd);
}

static int open_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 3000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void opened_and_closed(void)
{
	unsigned many = t_rounds(200, 10000);
	struct sockaddr_in in;
	int l = sock_listen(&in), before = 0;
	struct pair p;
	char c;

	for (unsigned i = 0; i < many; i++) {
		/* Some move, some end before. */
		if (i % 4 == 0) {
			REQUIRE(pair_make(&p));
		} else {
			p.a = socket(AF_INET, SOCK_STREAM, 0);
			REQUIRE(connect(p.a, (void *)&in, sizeof(in)) == 0);
			p.b = accept(l, NULL, NULL);
			for (unsigned k = 0; k < i % 5; k++)
				REQUIRE(put(p.a, "x", 1) && get(p.b, &c, 1));
		}
		pair_close(&p);
		if (i == 20)
			before = open_fds();
	}
	for (int i = 0; i < 200 && open_fds() > before + 4; i++)
		poll(NULL, 0, 10); /* rsockets are closed by another thread */
	CHECK(open_fds() <= before + 4);
	close(l);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	sock_init();
	T_RUN(duplicates);
	T_RUN(names);
	T_RUN(forked);
	T_RUN(forked_after_shutdown);
	T_RUN(forked_after_close);
	T_RUN(fork_each);
	T_RUN(executed);
	T_RUN(passed);
	T_RUN(peer_exits);
	T_RUN(peer_killed);
	T_RUN(peer_stopped);
	T_RUN(opened_and_closed);
	return t_done();
}
