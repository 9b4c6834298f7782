/* SPDX-License-Identifier: BSD-2-Clause */
/* The log goes where nobody reads: a full pipe, a full socket. Nothing waits for it, and
 * once somebody reads, a line says how many are missing. */
#include "lab.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

enum { SIZE = 256 };

/* stderr is this descriptor from now on, full, and blocking. */
static void fill(int fd)
{
	static const char dots[4096] = "..........";

	conf_nonblock(fd, true);
	while (write(fd, dots, sizeof(dots)) > 0 || write(fd, dots, 1) > 0)
		;
	EQ(errno, EAGAIN);
	conf_nonblock(fd, false);
	CHECK(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
	close(fd);
	setenv("ANYRDMA_LOG", "debug", 1);
}

/* What has come since the start, as a string. */
static const char *drain(int fd)
{
	static char text[1 << 20];
	static size_t n;
	ssize_t r;

	conf_nonblock(fd, true);
	while ((r = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)r;
	for (size_t i = 0; i < n; i++)
		if (!text[i])
			text[i] = '.';
	text[n] = 0;
	return text;
}

/* Lines are written by this thread and by the library's. */
static void connect_and_send(void)
{
	struct conf_buf ab, pb;
	struct conf_opt opt = { .abuf = &ab, .pbuf = &pb, .len = 2 * SIZE };
	struct conf_pair c;

	conf_pair_open(&c, &opt);
	OK(conf_recv(c.p->qp, 1, &pb, 0, SIZE));
	OK(conf_send(c.a->qp, 2, &ab, 0, SIZE));
	conf_wc_ok(c.a->send_cq, 2);
	conf_wc_ok(c.p->recv_cq, 1);
	ERR(rdma_listen(NULL, 0), EINVAL);
	conf_pair_close(&c);
}

/* Waiting to be read. */
static int held(int fd)
{
	int n = -1;

	OK(ioctl(fd, FIONREAD, &n));
	return n;
}

/* From the first read on the library's thread may write again, and say what is lost. */
static void run(int in, int out)
{
	int full;

	fill(out);
	full = held(in);
	connect_and_send();
	EQ(held(in), full);
	drain(in);
	connect_and_send();
	CHECK(strstr(drain(in), "lines of this log are lost"));
}

static void full_pipe(void)
{
	int fd[2];

	OK(pipe(fd));
	run(fd[0], fd[1]);
}

static void full_socket(void)
{
	int fd[2];

	OK(socketpair(AF_UNIX, SOCK_STREAM, 0, fd));
	run(fd[0], fd[1]);
}

/* The reader of a pipe learns of its end although the library has written into it. */
static void pipe_of_others_ends(void)
{
	int fd[2], null;
	char c;

	OK(pipe(fd));
	CHECK(dup2(fd[1], STDERR_FILENO) == STDERR_FILENO);
	close(fd[1]);
	setenv("ANYRDMA_LOG", "debug", 1);
	ERR(rdma_listen(NULL, 0), EINVAL);
	CHECK(strstr(drain(fd[0]), "anyrdma["));
	MUST((null = open("/dev/null", O_WRONLY)) >= 0);
	CHECK(dup2(null, STDERR_FILENO) == STDERR_FILENO);
	EQ(read(fd[0], &c, 1), 0);
}

static const struct conf_case cases[] = {
	CASE(full_pipe),
	CASE(full_socket),
	CASE(pipe_of_others_ends),
};
CONF_MAIN(cases)
