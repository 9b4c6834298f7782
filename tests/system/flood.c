/* SPDX-License-Identifier: BSD-2-Clause */
/* A listener that is flooded, over TCP and by its unix name, by one process and by
 * several: what it keeps stops growing, goes when the flood is over, and honest clients
 * are served meanwhile. What may be kept is said in doc/security.md; links, which need
 * more than a stranger knows, are in src/shm/setup_test.c. */
#include "../inuse.h"
#include "lab.h"

#include <malloc.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	ROUNDS = 4,
	PLATEAU = 2,	  /* the round from which on nothing may be added */
	FLOODERS = 4,
	STRANGER = 1234,
	BACKLOG = 64,
	HONEST = 'L',	  /* first byte of an honest client's private data */
	HELD_TCP = 320,	  /* connections that are added in a round, */
	HELD_MORE = 640,  /* where more are kept, */
	ENDED = 1600,	  /* or those that end by themselves */
	HELD_MAX = ROUNDS * HELD_MORE,
	KEPT_KIB = 8 * 1024,
	SLACK_KIB = 128,  /* what honest clients leave for a moment */
	SLACK_FDS = 16,
	REQUEST_MAX = 1024,
	RETURN_MS = 20000,
};

/* Bounds of descriptors: USER_HALF_OPEN_MAX, USER_WAITING_MAX, USER_LINGER_MAX,
 * SETUPS_PER_PROCESS and SETUPS_ALL. */
enum { HALF_OPEN = 256, WAITING = 1024, LINGER = 256, VISITORS = 256, VISITORS_ALL = 1024 };

/* What all processes know. */
static struct {
	uint16_t port;
	uint32_t len;
	uint8_t request[REQUEST_MAX];
} *board;

/* ---- the listener ------------------ */

static void honest(struct rdma_cm_id *id)
{
	struct rdma_conn_param param = conf_param();

	conf_qp(id, 4);
	/* A client whose time was over is gone by now. */
	if (rdma_accept(id, &param)) {
		conf_id_free(id);
	}
}

static void end(struct rdma_cm_id *id)
{
	rdma_disconnect(id);
	conf_id_free(id);
}

static void take_event(struct rdma_event_channel *ch)
{
	struct rdma_cm_event *ev = conf_next(ch, conf_ms(CONF_WAIT));
	struct rdma_cm_id *id;
	const uint8_t *priv;
	bool good;
	int type;

	MUST(ev);
	id = ev->id;
	type = ev->event;
	priv = ev->param.conn.private_data;
	good = type == RDMA_CM_EVENT_CONNECT_REQUEST && priv[0] == HONEST;
	OK(rdma_ack_cm_event(ev));
	if (good) {
		honest(id);
	} else if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		rdma_reject(id, NULL, 0);
		OK(rdma_destroy_id(id));
	} else if (type == RDMA_CM_EVENT_DISCONNECTED) {
		end(id);
	}
}

/* Bytes of its own that are in use, and descriptors. (Nothing, under a sanitizer, for the
 * first: what it has freed stays with it for a while.) */
static void tell(struct peer *me)
{
	conf_settle();
	peer_say_u32(me, (uint32_t)(mallinfo2().uordblks / 1024));
	peer_say_u32(me, (uint32_t)inuse_fds());
}

/* Orders: m what it keeps, d fetches no events, f fetches them, q ends. */
static void listener(struct peer *me, void *arg)
{
	struct rdma_event_channel *ch;
	struct pollfd p[2];
	bool deaf = false;
	struct rdma_cm_id *id;
	conf_sa at;
	char order = 0;

	(void)arg;
	setenv("ANYRDMA_TRANSPORT", "auto", 1);
	peer_hear(me, 'l');
	at = conf_addr(AF_INET, board->port);
	ch = conf_channel();
	id = conf_id(ch);
	OK(rdma_bind_addr(id, SA(at)));
	OK(rdma_listen(id, BACKLOG));
	peer_say(me, 'l');
	while (order != 'q') {
		p[0] = (struct pollfd){ .fd = me->in, .events = POLLIN };
		p[1] = (struct pollfd){ .fd = deaf ? -1 : ch->fd, .events = POLLIN };
		CHECK(poll(p, 2, -1) > 0);
		if (p[1].revents)
			take_event(ch);
		if (!p[0].revents)
			continue;
		CHECK(read(me->in, &order, 1) == 1);
		deaf = order == 'd' || (deaf && order != 'f');
		if (order == 'm')
			tell(me);
		else
			peer_say(me, order);
	}
	exit(0);
}

struct kept {
	uint32_t kib, fds;
};

static struct kept kept(struct peer *p)
{
	struct kept k;

	peer_say(p, 'm');
	k.kib = peer_hear_u32(p);
	k.fds = peer_hear_u32(p);
	return k;
}

/* ---- honest clients ------------------ */

/* What a client sends to a server of its choice. */
static void capture(void)
{
	conf_sa addr = conf_addr(AF_INET, lab_tcp_port(board->port));
	int lfd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, fd;
	struct end c;
	uint32_t want = 20;
	ssize_t n;

	setsockopt(lfd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	OK(bind(lfd, SA(addr), sizeof(struct sockaddr_in)));
	OK(listen(lfd, 1));
	end_connect(&c, board->port);
	fd = accept(lfd, NULL, NULL);
	CHECK(fd >= 0);
	while (board->len < want) {
		n = recv(fd, board->request + board->len, REQUEST_MAX - board->len, 0);
		CHECK(n > 0);
		board->len += (uint32_t)n;
		if (board->len >= 20)
			want = 20 + ((uint32_t)board->request[18] << 8 | board->request[19]);
	}
	close(fd);
	close(lfd);
	end_free(&c);
}

static void connect_once(void)
{
	struct rdma_event_channel *ch = conf_channel();
	struct rdma_cm_id *id = conf_route_resolved(ch, conf_addr(AF_INET, board->port));
	struct rdma_conn_param param = conf_param();
	uint8_t word = HONEST;

	conf_qp(id, 4);
	param.private_data = &word;
	param.private_data_len = 1;
	OK(rdma_connect(id, &param));
	conf_expect(ch, id, RDMA_CM_EVENT_ESTABLISHED);
	OK(rdma_disconnect(id));
	conf_expect(ch, id, RDMA_CM_EVENT_DISCONNECTED);
	conf_id_close(id);
}

/* Orders: x captures a request, c connects, q ends. */
static void client(struct peer *me, void *transport)
{
	char order = 0;

	setenv("ANYRDMA_TRANSPORT", transport, 1);
	while (order != 'q') {
		CHECK(read(me->in, &order, 1) == 1);
		if (order == 'x')
			capture();
		else if (order == 'c')
			connect_once();
		peer_say(me, order);
	}
}

/* ---- flooders ------------------ */

static int held[HELD_MAX];
static unsigned nheld, share; /* share: of a round */

static int dial_tcp(void)
{
	int fd = lab_tcp_connect(board->port);
	struct linger lin = { .l_onoff = 1 };

	/* No port stays in TIME_WAIT for it. */
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &lin, sizeof(lin));
	return fd;
}

static int dial_name(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), n;

	n = snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "anyrdma/1/%x/127.0.0.1/%u",
		     RDMA_PS_TCP, board->port);
	OK(connect(fd, (struct sockaddr *)&un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)));
	return fd;
}

/* Whether it takes all of it is the listener's business. */
static void say(int fd, const void *p, size_t len)
{
	if (send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0;
}

static uint8_t junk[4096];

static void tcp_silent(int fd)
{
	(void)fd;
}

static void tcp_garbage(int fd)
{
	say(fd, junk, sizeof(junk));
}

static void tcp_half(int fd)
{
	say(fd, board->request, board->len / 2);
}

static void tcp_request(int fd)
{
	say(fd, board->request, board->len);
}

static void name_half(int fd)
{
	say(fd, junk, 10);
}

static void name_garbage(int fd)
{
	say(fd, junk, 256);
}

struct kind {
	int (*dial)(void);
	void (*speak)(int fd);
	unsigned count;	    /* in a round, by all */
	bool hold;
	bool stranger;	    /* another user */
	bool deaf;	    /* the listener fetches no events */
	uint32_t most;	    /* descriptors that it keeps for these, */
	uint32_t most_of_one; /* and for those of one process */
};

/* Orders: g one round, c closes what it holds, q ends. */
static void flooder(struct peer *me, void *arg)
{
	const struct kind *k = arg;
	struct rlimit r = { HELD_MAX + 100, HELD_MAX + 100 };
	char order = 0;
	int fd;

	if (setrlimit(RLIMIT_NOFILE, &r))
		SKIP("a limit of fewer than %d descriptors", HELD_MAX);
	if (k->stranger)
		OK(setuid(STRANGER));
	conf_pattern(junk, sizeof(junk), 5);
	while (order != 'q') {
		CHECK(read(me->in, &order, 1) == 1);
		for (unsigned i = 0; order == 'g' && i < share; i++) {
			fd = k->dial();
			k->speak(fd);
			if (k->hold)
				held[nheld++] = fd;
			else
				close(fd);
		}
		while (order == 'c' && nheld)
			close(held[--nheld]);
		peer_say(me, order);
	}
}

static void order_all(struct peer *p, unsigned n, char order)
{
	for (unsigned i = 0; i < n; i++)
		peer_say(&p[i], order);
	for (unsigned i = 0; i < n; i++)
		peer_hear(&p[i], order);
}

/* ---- cases ------------------ */

enum { BY_TCP, NEAR, CLIENTS };

static struct peer the_listener, clients[CLIENTS], flooders[FLOODERS];

static void start(const struct kind *k, unsigned n)
{
	if (!conf_user_device())
		SKIP("there is no TCP below this device");
	if (k->stranger && geteuid())
		SKIP("only root can be somebody else");
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(board != MAP_FAILED);
	board->port = conf_port(180);
	the_listener = peer_start(listener, NULL);
	clients[BY_TCP] = peer_start(client, "tcp");
	clients[NEAR] = peer_start(client, "auto");
	share = k->count / n;
	for (unsigned i = 0; i < n; i++)
		flooders[i] = peer_start(flooder, (void *)(uintptr_t)k);
	order_all(&clients[BY_TCP], 1, 'x');
	order_all(&the_listener, 1, 'l');
	order_all(clients, CLIENTS, 'c'); /* what stays from then on was made for them */
}

static void stop(unsigned n)
{
	order_all(flooders, n, 'q');
	order_all(clients, CLIENTS, 'q');
	peer_say(&the_listener, 'q');
	peer_hear(&the_listener, 'q');
	peer_end(&the_listener);
}

static bool is_back(const struct kept *before)
{
	struct kept k = kept(&the_listener);

	return k.kib <= before->kib + SLACK_KIB && k.fds <= before->fds;
}

static void flooded(const struct kind *k, unsigned n)
{
	uint32_t most = n == 1 ? k->most_of_one : k->most;
	struct kept before, at[ROUNDS];

	start(k, n);
	before = kept(&the_listener);
	if (k->deaf)
		order_all(&the_listener, 1, 'd');
	for (int i = 0; i < ROUNDS; i++) {
		order_all(flooders, n, 'g');
		if (!k->deaf)
			order_all(clients, CLIENTS, 'c');
		at[i] = kept(&the_listener);
		if (at[i].fds > before.fds + most + SLACK_FDS || at[i].kib > before.kib + KEPT_KIB)
			FAIL("round %d: %u KiB, %u descriptors; before it %u, %u", i, at[i].kib,
			     at[i].fds, before.kib, before.fds);
	}
	CHECK(at[ROUNDS - 1].kib <= at[PLATEAU - 1].kib + at[PLATEAU - 1].kib / 4 + SLACK_KIB);
	order_all(flooders, n, 'c');
	if (k->deaf)
		order_all(&the_listener, 1, 'f');
	WAIT_TILL(is_back(&before), RETURN_MS, "what was kept for the flood stays");
	order_all(clients, CLIENTS, 'c');
	stop(n);
}

static const struct kind kinds[] = {
	/* dial, speak, count, hold, stranger, deaf, most, most_of_one */
	{ dial_tcp, tcp_silent, HELD_TCP, true, false, false, HALF_OPEN, HALF_OPEN },
	{ dial_tcp, tcp_half, HELD_TCP, true, false, false, HALF_OPEN, HALF_OPEN },
	{ dial_tcp, tcp_garbage, ENDED, false, false, false, HALF_OPEN, HALF_OPEN },
	{ dial_tcp, tcp_silent, ENDED, false, false, false, HALF_OPEN, HALF_OPEN },
	{ dial_tcp, tcp_request, HELD_TCP, true, false, false, BACKLOG + HALF_OPEN + LINGER,
	  BACKLOG + HALF_OPEN + LINGER },
	{ dial_tcp, tcp_request, HELD_MORE, true, false, true, BACKLOG + WAITING + HALF_OPEN,
	  BACKLOG + WAITING + HALF_OPEN },
	{ dial_name, tcp_silent, HELD_MORE, true, false, false, VISITORS_ALL, VISITORS },
	{ dial_name, name_half, HELD_MORE, true, false, false, 0, 0 },
	{ dial_name, name_garbage, HELD_MORE, true, false, false, 0, 0 },
	{ dial_name, tcp_silent, ENDED, false, false, false, VISITORS_ALL, VISITORS },
	{ dial_name, tcp_silent, HELD_MORE, true, true, false, 0, 0 },
};

/* The name of a kind, by one process and by several. */
#define FLOOD(i, name)                                                           \
	static void name(void)                                                   \
	{                                                                        \
		flooded(&kinds[i], 1);                                           \
	}                                                                        \
	static void name##_by_several(void)                                      \
	{                                                                        \
		flooded(&kinds[i], FLOODERS);                                    \
	}
FLOOD(0, silent_streams)
FLOOD(1, half_requests)
FLOOD(2, garbage)
FLOOD(3, closed_at_once)
FLOOD(4, requests_rejected)
FLOOD(5, requests_not_fetched)
FLOOD(6, silent_visitors)
FLOOD(7, half_greetings)
FLOOD(8, garbage_greetings)
FLOOD(9, visitors_that_go)
FLOOD(10, visits_of_another_user)

#define CASES(name) LONG_CASE(name, 90), LONG_CASE(name##_by_several, 90)

static const struct conf_case cases[] = {
	CASES(silent_streams),
	CASES(half_requests),
	CASES(garbage),
	CASES(closed_at_once),
	CASES(requests_rejected),
	CASES(requests_not_fetched),
	CASES(silent_visitors),
	CASES(half_greetings),
	CASES(garbage_greetings),
	CASES(visitors_that_go),
	CASES(visits_of_another_user),
};
CONF_MAIN(cases)
