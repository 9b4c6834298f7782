/* SPDX-License-Identifier: BSD-2-Clause */
/* Random operations on many connections between two processes: sizes, vectors, flags,
 * blocking or not, orders of shutdown and close; and a process that is killed or stopped
 * meanwhile. Every byte is checked: byte n of a direction follows from the connection's
 * seed and n. A failure says the seed (RS_SEED runs it again). */
#include "rs.h"

#include <signal.h>

enum { CONNS = 6, MOST = 300000 };

struct rnd {
	uint64_t s;
};

static uint32_t rnd(struct rnd *r, uint32_t below)
{
	r->s ^= r->s << 13;
	r->s ^= r->s >> 7;
	r->s ^= r->s << 17;
	return (uint32_t)(r->s >> 20) % below;
}

static uint8_t byte_at(uint32_t seed, size_t n)
{
	return (uint8_t)(((n * 2654435761u) >> 13) ^ (n >> 3) ^ seed);
}

/* One end of a connection. */
struct side {
	int fd;
	uint32_t seed, peer_seed;
	size_t send, sent, want, got; /* bytes in all; so far */
	bool shut;
	struct rnd r;
};

/* How much each side sends follows from the seed: both know. */
static void side_init(struct side *s, int fd, uint32_t seed, bool active)
{
	struct rnd plan = { seed * 77777ull + 1 };
	size_t n[2] = { rnd(&plan, MOST), rnd(&plan, MOST) };

	*s = (struct side){ .fd = fd, .seed = seed * 2 + active,
			    .peer_seed = seed * 2 + !active, .send = n[active],
			    .want = n[!active],
			    .r = { seed * 31ull + active + 5 } };
}

static size_t draw_size(struct rnd *r)
{
	static const uint32_t up_to[] = { 2, 65, 300, 5000, 70000 };

	return 1 + rnd(r, up_to[rnd(r, 5)]);
}

static bool send_some(struct side *s, bool dead)
{
	static __thread uint8_t buf[70001];
	size_t n = draw_size(&s->r);
	struct iovec v[2];
	ssize_t ret;

	if (n > s->send - s->sent)
		n = s->send - s->sent;
	for (size_t i = 0; i < n; i++)
		buf[i] = byte_at(s->seed, s->sent + i);
	v[0] = (struct iovec){ buf, rnd(&s->r, (uint32_t)n + 1) };
	v[1] = (struct iovec){ buf + v[0].iov_len, n - v[0].iov_len };
	ret = rnd(&s->r, 2) ? rwritev(s->fd, v, 2) : rsend(s->fd, buf, n, MSG_DONTWAIT);
	if (ret < 0 && errno != EAGAIN) {
		if (dead)
			return false;
		FAIL("rsend after %zu of %zu: %s", s->sent, s->send, strerror(errno));
	}
	s->sent += ret < 0 ? 0 : (size_t)ret;
	return true;
}

/* False: there is no more. */
static bool receive_some(struct side *s, bool dead)
{
	static __thread uint8_t buf[70001];
	size_t n = draw_size(&s->r);
	bool peek = !rnd(&s->r, 8);
	ssize_t ret = rrecv(s->fd, buf, n, MSG_DONTWAIT | (peek ? MSG_PEEK : 0));

	if (ret < 0 && errno == EAGAIN)
		return true;
	if (ret <= 0) {
		if (!dead && (ret < 0 || s->got != s->want))
			FAIL("rrecv after %zu of %zu: %zd, %s", s->got, s->want, ret,
			     strerror(errno));
		return false;
	}
	for (size_t i = 0; i < (size_t)ret; i++)
		if (buf[i] != byte_at(s->peer_seed, s->got + i))
			FAIL("byte %zu of %zu is wrong", s->got + i, s->want);
	s->got += peek ? 0 : (size_t)ret;
	if (s->got > s->want)
		FAIL("%zu bytes, %zu were sent", s->got, s->want);
	return true;
}

/* Runs a side to its end. dead: the peer may go away at any time. */
static void side_run(struct side *s, bool dead)
{
	bool more = true;

	rs_nonblock(s->fd);
	while (more || s->sent < s->send) {
		struct pollfd f = { s->fd, 0, 0 };

		f.events = (short)((more ? POLLIN : 0) |
				   (s->sent < s->send ? POLLOUT : 0));
		if (rnd(&s->r, 3) && rpoll(&f, 1, conf_ms(CONF_WAIT)) < 1)
			FAIL("stalls: %zu of %zu sent, %zu of %zu received", s->sent,
			     s->send, s->got, s->want);
		if (s->sent < s->send && !send_some(s, dead))
			return;
		if (s->sent == s->send && !s->shut) {
			s->shut = true;
			if (rshutdown(s->fd, SHUT_WR) && !dead)
				FAIL("rshutdown: %s", strerror(errno));
		}
		if (more)
			more = receive_some(s, dead);
		if (dead && !more)
			return;
	}
}

static bool peer_may_die;

static void *side_thread(void *arg)
{
	struct side *s = arg;

	side_run(s, peer_may_die);
	OK(rclose(s->fd));
	return NULL;
}

static void run_all(struct side *s)
{
	pthread_t t[CONNS];

	for (int i = 0; i < CONNS; i++)
		t[i] = conf_thread(side_thread, &s[i]);
	for (int i = 0; i < CONNS; i++)
		conf_join_(__FILE__, __LINE__, t[i], 30000);
}

static void client(int from, uint32_t seed)
{
	struct side s[CONNS];
	conf_sa addr;
	int fd;

	BYTES(read(from, &addr, sizeof(addr)), sizeof(addr));
	for (uint32_t i = 0; i < CONNS; i++) {
		fd = FD(rsocket(AF_INET, SOCK_STREAM, 0));
		OK(rconnect(fd, SA(addr), rs_len(AF_INET)));
		side_init(&s[i], fd, seed + i, true);
	}
	run_all(s);
	_exit(0);
}

static void run(uint32_t seed, int kill_us, int sig)
{
	struct side s[CONNS];
	conf_sa addr;
	int fd[2], l, status;
	pid_t pid;

	OK(pipe(fd));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid)
		client(fd[0], seed);
	l = rs_listener(AF_INET, CONNS, &addr);
	BYTES(write(fd[1], &addr, sizeof(addr)), sizeof(addr));
	for (uint32_t i = 0; i < CONNS; i++)
		side_init(&s[i], FD(raccept(l, NULL, NULL)), seed + i, false);
	peer_may_die = sig != 0;
	if (sig && !fork()) { /* at whatever point that is */
		usleep((useconds_t)kill_us);
		kill(pid, sig);
		usleep(300000);
		kill(pid, SIGKILL);
		_exit(0);
	}
	run_all(s);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (!sig)
		EQ(status, 0);
	OK(rclose(l));
}

static uint32_t seed_of(uint32_t i)
{
	const char *s = getenv("RS_SEED");
	uint32_t seed = s ? (uint32_t)strtoul(s, NULL, 0) :
			    (uint32_t)(conf_now() / 1000) + i;

	printf("# seed %u\n", seed);
	fflush(stdout);
	return seed;
}

/* A case is a process: TSan wants no threads at a fork. */
static void in_peace(void)
{
	run(seed_of(0), 0, 0);
}

static void killed(void)
{
	uint32_t seed = seed_of(1);

	run(seed, (int)(seed % 30000), SIGKILL);
}

static void stopped(void)
{
	uint32_t seed = seed_of(2);

	run(seed, (int)(seed % 30000), SIGSTOP);
}

static const struct conf_case cases[] = {
	{ "in_peace_1", in_peace, 60 }, { "in_peace_2", in_peace, 60 },
	{ "in_peace_3", in_peace, 60 }, { "killed_1", killed, 60 },
	{ "killed_2", killed, 60 },	{ "killed_3", killed, 60 },
	{ "stopped_1", stopped, 60 },	{ "stopped_2", stopped, 60 },
};
CONF_MAIN(cases)
