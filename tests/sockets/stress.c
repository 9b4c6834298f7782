/* SPDX-License-Identifier: BSD-2-Clause */
/* Many connections between two processes, at random: sizes, blocking or not, poll or epoll, forks,
 * duplicated descriptors, orders of shutdown and close, ends without a word. Every byte is
 * compared; what has been cut off must have been right. */
#include "sock.h"

struct end {
	int fd, ep;
	unsigned seed;
	bool active;
	uint64_t send, recv;	/* bytes of each direction */
	uint64_t sent, got;
	uint64_t cut;		/* closes after so many bytes written, or 0 */
	const char *bad;
};

static unsigned draw(struct end *e, unsigned n)
{
	return (unsigned)rand_r(&e->seed) % n;
}

/* What both ends know of a connection. */
static void plan(struct end *e, unsigned seed)
{
	unsigned s = seed;
	uint64_t len[2];

	for (int i = 0; i < 2; i++)
		len[i] = rand_r(&s) % 4 ? (uint64_t)(rand_r(&s) % 300000) :
					  (uint64_t)(rand_r(&s) % 4000000);
	e->send = len[e->active];
	e->recv = len[!e->active];
	e->cut = rand_r(&s) % 8 == 0 && e->active && e->send ? e->send / 2 + 1 : 0;
	e->seed = seed * 2 + e->active;
}

static bool cut_possible(unsigned seed)
{
	unsigned s = seed;

	for (int i = 0; i < 2; i++)
		rand_r(&s) % 4 ? rand_r(&s) : rand_r(&s);
	return rand_r(&s) % 8 == 0;
}

static void write_some(struct end *e)
{
	static __thread uint8_t buf[70000];
	uint64_t left = (e->cut ? e->cut : e->send) - e->sent;
	size_t len = draw(e, draw(e, 3) ? 300 : sizeof(buf)) + 1;
	struct iovec iov[2];
	ssize_t n;

	len = len < left ? len : (size_t)left;
	fill(buf, len, e->sent);
	iov[0] = (struct iovec){ buf, len / 3 };
	iov[1] = (struct iovec){ buf + len / 3, len - len / 3 };
	n = draw(e, 2) ? send(e->fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) :
			 writev(e->fd, iov, 2);
	if (n > 0)
		e->sent += (uint64_t)n;
	else if (n < 0 && errno != EAGAIN)
		e->bad = "write failed";
}

/* False at the end. */
static bool read_some(struct end *e)
{
	static __thread uint8_t buf[70000];
	size_t len = draw(e, draw(e, 3) ? 500 : sizeof(buf)) + 1;
	int flags = MSG_DONTWAIT | (draw(e, 10) ? 0 : MSG_PEEK);
	ssize_t n = recv(e->fd, buf, len, flags);

	if (n > 0 && !same(buf, (size_t)n, e->got))
		e->bad = "bytes differ";
	if (n > 0 && !(flags & MSG_PEEK))
		e->got += (uint64_t)n;
	if (n < 0 && errno != EAGAIN)
		e->bad = "read failed";
	return n != 0;
}

static void something_else(struct end *e)
{
	int n, fd;
	pid_t pid;

	switch (draw(e, 400)) {
	case 0:
		pid = fork();
		if (!pid)
			_exit(0);
		waitpid(pid, NULL, 0);
		break;
	case 1 ... 4:
		fd = dup(e->fd);
		dup2(fd, e->fd);
		close(fd);
		break;
	case 5 ... 10:
		if (ioctl(e->fd, FIONREAD, &n))
			e->bad = "FIONREAD failed";
		break;
	}
}

static void wait_some(struct end *e, bool writes)
{
	short events = (short)(POLLIN | (writes ? POLLOUT : 0));
	struct epoll_event ev = { .events = (uint32_t)events };
	struct pollfd pfd = { e->fd, events, 0 };
	uint64_t from;
	int n;

	if (draw(e, 2)) {
		if (poll(&pfd, 1, 20000) != 1)
			e->bad = "nothing came";
		return;
	}
	if (epoll_ctl(e->ep, EPOLL_CTL_MOD, e->fd, &ev))
		epoll_ctl(e->ep, EPOLL_CTL_ADD, e->fd, &ev);
	from = t_now_ms();
	n = epoll_wait(e->ep, &ev, 1, 20000);
	if (n != 1) {
		diag("epoll_wait: %d after %llu ms (%s)", n,
		     (unsigned long long)(t_now_ms() - from), strerror(errno));
		e->bad = "no event came";
	}
}

static void run_end(struct end *e)
{
	bool open = true, shut = false;

	fcntl(e->fd, F_SETFL, O_NONBLOCK);
	e->ep = epoll_create1(EPOLL_CLOEXEC);
	while (!e->bad && (open || !shut)) {
		bool writes = !shut && e->sent < (e->cut ? e->cut : e->send);

		if (draw(e, 3) == 0)
			wait_some(e, writes);
		if (writes)
			write_some(e);
		if (e->cut && e->sent >= e->cut)
			break;
		if (open && !e->bad)
			open = read_some(e);
		if (!shut && e->sent == e->send) {
			shut = true;
			if (shutdown(e->fd, SHUT_WR))
				e->bad = "shutdown failed";
		}
		something_else(e);
	}
	close(e->ep);
	close(e->fd);
}

struct job {
	struct end end;
	unsigned seed;
};

/* True when all that should come came, or the connection was to be cut. */
static bool judge(struct job *j)
{
	struct end *e = &j->end;
	bool cut = cut_possible(j->seed);

	if (!e->bad && e->got == e->recv)
		return true;
	if (cut && (!e->bad || strstr(e->bad, "failed")))
		return true;
	diag("connection %u, %s: %s; sent %llu of %llu, got %llu of %llu", j->seed,
	     e->active ? "active" : "passive", e->bad ? e->bad : "ended early",
	     (unsigned long long)e->sent, (unsigned long long)e->send,
	     (unsigned long long)e->got, (unsigned long long)e->recv);
	return false;
}

static void *run_job(void *arg)
{
	struct job *j = arg;

	run_end(&j->end);
	return (void *)(intptr_t)judge(j);
}

static bool run_process(struct sockaddr_in *in, int l, unsigned rounds, unsigned width)
{
	struct job j[16];
	pthread_t t[16];
	bool good = true;
	void *fine;

	for (unsigned r = 0; r < rounds; r++) {
		for (unsigned i = 0; i < width; i++) {
			memset(&j[i], 0, sizeof(j[i]));
			j[i].end.active = l < 0;
			j[i].end.fd = l < 0 ? socket(AF_INET, SOCK_STREAM, 0) :
					      accept(l, NULL, NULL);
			if (l < 0) {
				j[i].seed = r * 100 + i;
				if (connect(j[i].end.fd, (void *)in, sizeof(*in)) ||
				    !put(j[i].end.fd, &j[i].seed, sizeof(j[i].seed)))
					return false;
			} else if (!get(j[i].end.fd, &j[i].seed, sizeof(j[i].seed))) {
				return false;
			}
			plan(&j[i].end, j[i].seed);
			pthread_create(&t[i], NULL, run_job, &j[i]);
		}
		for (unsigned i = 0; i < width; i++) {
			pthread_join(t[i], &fine);
			good = good && fine;
		}
	}
	return good;
}

static void random_connections(unsigned rounds, unsigned width)
{
	struct sockaddr_in in;
	int l = sock_listen(&in), status;
	pid_t pid = fork();

	if (!pid)
		_exit(!run_process(&in, l, rounds, width));
	CHECK(run_process(&in, -1, rounds, width));
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(l);
}

static void one_at_a_time(void)
{
	random_connections(t_rounds(20, 300), 1);
}

static void eight_at_a_time(void)
{
	random_connections(t_rounds(6, 100), 8);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	sock_init();
	signal(SIGPIPE, SIG_IGN);
	T_RUN(one_at_a_time);
	T_RUN(eight_at_a_time);
	return t_done();
}
