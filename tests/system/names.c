/* SPDX-License-Identifier: BSD-2-Clause */
/* Another user has taken the abstract unix names by which processes find each other.
 * Nobody connects to it or tells it anything, and connections that its names are in the
 * way of are made nevertheless, under the next name or over TCP. */
#include "far.h"

#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
	STRANGER = 1234,
	OTHER = 4321,
	REJECTED_NO_LISTENER = 8,
	NAMES_MAX = 4,
	PEERS_MAX = 64,
	LOG_MAX = 4096,
};

/* The first call that asks for devices reads the settings, for children, too. */
static void need_root(void)
{
	lab_transport("auto");
	if (!conf_user_device())
		SKIP("of the user-space device");
	if (geteuid())
		SKIP("only root can be somebody else");
}

/* ---- the squatter ------------------ */

enum way {
	TAKES,	/* accepts, and reads what comes */
	SILENT, /* listens, and never accepts */
	FULL,	/* its queue is full */
	BOUND,	/* does not listen */
	WAYS
};

struct squatter {
	enum way way;
	unsigned n;
	char name[NAMES_MAX][108];
	uint16_t tcp; /* RDMA port whose TCP port it has, too; or 0 */
};

static socklen_t address(const char *name, struct sockaddr_un *un)
{
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, name, strlen(name));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* Until nobody else is let in. */
static void fill(const char *name)
{
	struct sockaddr_un un;
	socklen_t len = address(name, &un);
	int fd;

	do {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		CHECK(fd >= 0);
	} while (!connect(fd, (struct sockaddr *)&un, len));
	EQ(errno, EAGAIN);
}

static int take_name(const struct squatter *s, const char *name)
{
	struct sockaddr_un un;
	socklen_t len = address(name, &un);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	CHECK(fd >= 0);
	OK(bind(fd, (struct sockaddr *)&un, len));
	if (s->way != BOUND)
		OK(listen(fd, s->way == FULL ? 0 : PEERS_MAX));
	if (s->way == FULL)
		fill(name);
	return fd;
}

static int take_tcp(uint16_t port)
{
	conf_sa at = conf_addr(AF_INET, lab_tcp_port(port));
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	OK(bind(fd, SA(at), sizeof(struct sockaddr_in)));
	OK(listen(fd, PEERS_MAX));
	return fd;
}

/* What came, by unix sockets and by TCP. */
struct loot {
	uint32_t unix_bytes, tcp_bytes;
};

static void accept_all(int from, int *conn, unsigned *n)
{
	int fd;

	while (*n < PEERS_MAX && (fd = accept4(from, NULL, NULL, SOCK_NONBLOCK)) >= 0)
		conn[(*n)++] = fd;
}

static void read_all(int *conn, unsigned n, uint32_t *bytes)
{
	char buf[4096];
	ssize_t got;

	for (unsigned i = 0; i < n; i++)
		while (conn[i] >= 0 && (got = recv(conn[i], buf, sizeof(buf), 0)) >= 0) {
			*bytes += (uint32_t)got;
			if (got)
				continue;
			close(conn[i]);
			conn[i] = -1;
		}
}

/* Says 's' when it has them, and what came when it is asked ('r'). */
static void squat(struct peer *me, void *arg)
{
	const struct squatter *s = arg;
	int fd[NAMES_MAX], tcp = -1, near[PEERS_MAX], far[PEERS_MAX];
	struct pollfd in = { .fd = me->in, .events = POLLIN };
	unsigned nnear = 0, nfar = 0;
	struct loot l = { 0, 0 };

	lab_become(STRANGER);
	for (unsigned i = 0; i < s->n; i++)
		fd[i] = take_name(s, s->name[i]);
	if (s->tcp)
		tcp = take_tcp(s->tcp);
	peer_say(me, 's');
	while (!poll(&in, 1, 1)) {
		for (unsigned i = 0; i < s->n && s->way == TAKES; i++)
			accept_all(fd[i], near, &nnear);
		if (tcp >= 0)
			accept_all(tcp, far, &nfar);
		read_all(near, nnear, &l.unix_bytes);
		read_all(far, nfar, &l.tcp_bytes);
	}
	peer_hear(me, 'r');
	peer_say_u32(me, l.unix_bytes);
	peer_say_u32(me, l.tcp_bytes);
	peer_hear(me, 'q');
}

static struct loot loot(struct peer *p)
{
	struct loot l;

	peer_say(p, 'r');
	l.unix_bytes = peer_hear_u32(p);
	l.tcp_bytes = peer_hear_u32(p);
	peer_say(p, 'q');
	peer_end(p);
	return l;
}

static void name_of(char *buf, const char *addr, uint16_t port)
{
	snprintf(buf, 108, "anyrdma/1/%x/%s/%u", RDMA_PS_TCP, addr, port);
}

/* ---- a service and its clients ------------------ */

struct service {
	uint16_t port;
	bool wildcard;
	uid_t uid; /* 0: as it is */
};

/* Serves one connection to its end. */
static void serve(struct peer *me, void *arg)
{
	const struct service *how = arg;
	struct rdma_conn_param param = conf_param();
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener, *id;
	conf_sa at;

	lab_transport("auto");
	if (how->uid)
		lab_become(how->uid);
	ch = conf_channel();
	at = how->wildcard ? conf_any(AF_INET, how->port) : conf_addr(AF_INET, how->port);
	listener = conf_id(ch);
	OK(rdma_bind_addr(listener, SA(at)));
	OK(rdma_listen(listener, 4));
	peer_say(me, 'l');
	id = conf_request(ch);
	conf_qp(id, 4);
	OK(rdma_accept(id, &param));
	conf_expect(ch, id, RDMA_CM_EVENT_ESTABLISHED);
	conf_expect(ch, id, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(id));
	conf_id_free(id);
	conf_id_close(listener);
}

struct client {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
};

static void call(struct client *c, uint16_t port)
{
	struct rdma_conn_param param = conf_param();

	param.private_data = "secret";
	param.private_data_len = 6;
	c->ch = conf_channel();
	c->id = conf_route_resolved(c->ch, conf_addr(AF_INET, port));
	conf_qp(c->id, 4);
	OK(rdma_connect(c->id, &param));
}

static void hang_up(struct client *c)
{
	conf_id_free(c->id);
	rdma_destroy_event_channel(c->ch);
}

static void served(struct client *c, uint16_t port, int tcp)
{
	conf_expect(c->ch, c->id, RDMA_CM_EVENT_ESTABLISHED);
	EQ(lab_tcp_connections(port), tcp);
	OK(rdma_disconnect(c->id));
	conf_expect(c->ch, c->id, RDMA_CM_EVENT_DISCONNECTED);
	hang_up(c);
}

/* ---- before the service ------------------ */

/* The log says who has the name. */
static void log_names_holder(const char *file)
{
	char text[LOG_MAX] = "";
	FILE *f = fopen(file, "r");
	size_t n;

	MUST(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	unlink(file);
	if (!n || !strstr(text, "of user 1234"))
		FAIL("the log does not say who has the port: %s", text);
}

/* It is refused, as a TCP port that somebody has. */
static void service_is_refused(const char *addr, const char *taken, int err)
{
	char file[] = "/tmp/anyrdma-names-XXXXXX", log[64];
	uint16_t port = conf_port(170);
	struct squatter s = { .way = TAKES, .n = 1 };
	struct rdma_event_channel *ch;
	struct rdma_cm_id *id;
	struct peer p;
	conf_sa at = conf_parse(addr, port);

	need_root();
	name_of(s.name[0], taken, port);
	p = peer_start(squat, &s);
	peer_hear(&p, 's');
	CHECK(close(mkstemp(file)) == 0);
	snprintf(log, sizeof(log), "warn:%s", file);
	setenv("ANYRDMA_LOG", log, 1);
	ch = conf_channel();
	id = conf_id(ch);
	ERR(rdma_bind_addr(id, SA(at)), err);
	conf_id_close(id);
	EQ(loot(&p).unix_bytes, 0);
	log_names_holder(file);
}

static void exact_name_is_taken(void)
{
	service_is_refused("127.0.0.1", "127.0.0.1", EADDRNOTAVAIL); /* stands for all */
}

static void wildcard_is_taken(void)
{
	service_is_refused("127.0.0.1", "::", EADDRNOTAVAIL);
}

static void specific_name_is_taken(void)
{
	service_is_refused("0.0.0.0", "192.0.2.1", EADDRNOTAVAIL);
}

/* ---- before, or beside, the client's ------------------ */

static void no_service(enum way way)
{
	struct squatter s = { .way = way, .n = 3 };
	uint16_t port = conf_port(171);
	struct client c;
	struct peer p;

	need_root();
	name_of(s.name[0], "127.0.0.1", port);
	name_of(s.name[1], "0.0.0.0", port);
	name_of(s.name[2], "::", port);
	p = peer_start(squat, &s);
	peer_hear(&p, 's');
	lab_transport("auto");
	call(&c, port);
	conf_expect_status(c.ch, c.id, RDMA_CM_EVENT_REJECTED, REJECTED_NO_LISTENER);
	hang_up(&c);
	EQ(loot(&p).unix_bytes, 0);
}

static void no_service_takes(void)
{
	no_service(TAKES);
}

static void no_service_silent(void)
{
	no_service(SILENT);
}

static void no_service_full(void)
{
	no_service(FULL);
}

/* The service has the wildcard; the more specific name, which clients try first, is the
 * stranger's. They find the service by its own name, over shared memory. */
static void beside(enum way way)
{
	struct service how = { .port = conf_port(172), .wildcard = true };
	struct squatter s = { .way = way, .n = 1 };
	struct peer p, service;
	struct client c;

	need_root();
	service = peer_start(serve, &how);
	peer_hear(&service, 'l');
	name_of(s.name[0], "127.0.0.1", how.port);
	p = peer_start(squat, &s);
	peer_hear(&p, 's');
	lab_transport("auto");
	call(&c, how.port);
	served(&c, how.port, 0);
	peer_end(&service);
	EQ(loot(&p).unix_bytes, 0);
}

static void beside_takes(void)
{
	beside(TAKES);
}

static void beside_silent(void)
{
	beside(SILENT);
}

static void beside_full(void)
{
	beside(FULL);
}

static void beside_bound(void)
{
	beside(BOUND);
}

/* Names and TCP port: what any server on that port would get goes there, by TCP. */
static void names_and_tcp_port(void)
{
	struct squatter s = { .way = TAKES, .n = 1, .tcp = conf_port(173) };
	struct loot l;
	struct client c;
	struct peer p;

	need_root();
	name_of(s.name[0], "127.0.0.1", s.tcp);
	setenv("ANYRDMA_CM_REPLY_MS", "500", 1);
	setenv("ANYRDMA_CM_RETRY_MS", "500", 1); /* with a name it counts as one of ours */
	setenv("ANYRDMA_CM_RETRIES", "1", 1);
	p = peer_start(squat, &s);
	peer_hear(&p, 's');
	lab_transport("auto");
	call(&c, s.tcp);
	conf_expect_status(c.ch, c.id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
	hang_up(&c);
	l = loot(&p);
	EQ(l.unix_bytes, 0);
	CHECK(l.tcp_bytes > 0);
}

/* ---- raw queue pairs ------------------ */

/* The QPs of both are there, and so their ports. */
static void raw_open(int who, struct side *s)
{
	lab_transport("auto");
	open_device();
	*s = side((uint32_t)(1000 * who));
	board->qpn[who][0] = s->qp->qp_num;
	far_meet();
}

/* Listens, and connects, after the stranger. */
static void raw_join(int who, struct side *s)
{
	EQ(to_init(s), 0);
	OK(conf_recv(s->qp, 7, &s->b, 4096, 4096));
	EQ(to_rtr(s, board->qpn[!who][0], (uint32_t)(1000 * !who), &dev.gid), 0);
	EQ(to_rts(s), 0);
}

static void raw_send(struct side *s)
{
	OK(conf_send(s->qp, 8, &s->b, 0, 64));
}

static void raw_target(struct peer *me, void *arg)
{
	struct side s;

	(void)arg;
	raw_open(1, &s);
	WAIT_FOR(atomic_load(&board->word[0]));
	raw_join(1, &s);
	conf_wc_ok(s.cq, 7);
	peer_hear(me, 'q');
	side_free(&s);
	close_device();
}

/* Starts the stranger when the ports are known. */
static void raw_starter(struct peer *me, void *arg)
{
	struct squatter s = { .way = *(enum way *)arg, .n = 2 };

	WAIT_FOR(atomic_load(&board->arrived) == 2);
	for (int i = 0; i < 2; i++)
		snprintf(s.name[i], sizeof(s.name[i]), "anyrdma/1/qp/%u",
			 board->qpn[i][0] >> 8);
	squat(me, &s);
}

static void rendezvous(enum way way)
{
	struct peer t, p;
	struct side s;

	need_root();
	t = far_start(raw_target, NULL);
	p = peer_start(raw_starter, &way);
	raw_open(0, &s);
	peer_hear(&p, 's');
	atomic_store(&board->word[0], 1);
	raw_join(0, &s);
	raw_send(&s);
	conf_wc_ok(s.cq, 8);
	peer_say(&t, 'q');
	peer_end(&t);
	EQ(loot(&p).unix_bytes, 0);
	side_free(&s);
	close_device();
}

static void rendezvous_takes(void)
{
	rendezvous(TAKES);
}

static void rendezvous_silent(void)
{
	rendezvous(SILENT);
}

static void rendezvous_full(void)
{
	rendezvous(FULL);
}

/* ---- users that cannot be told apart ------------------ */

/* In a user namespace without a map everybody, we included, is the overflow user. */
static void overflow_user(void)
{
	struct service how = { .port = conf_port(174), .uid = OTHER };
	struct peer service;
	struct client c;

	need_root();
	service = peer_start(serve, &how);
	peer_hear(&service, 'l');
	lab_become(STRANGER);
	if (unshare(CLONE_NEWUSER))
		SKIP("no user namespace: %s", strerror(errno));
	EQ(geteuid(), 65534);
	lab_transport("auto");
	call(&c, how.port);
	served(&c, how.port, 1);
	peer_end(&service);
}

/* root of a namespace of its own is nobody here. */
static void mapped_root(struct peer *me, void *arg)
{
	FILE *f;

	lab_become(STRANGER);
	OK(prctl(PR_SET_DUMPABLE, 1)); /* the files in /proc are its own again */
	if (unshare(CLONE_NEWUSER))
		SKIP("no user namespace: %s", strerror(errno));
	f = fopen("/proc/self/uid_map", "w");
	if (!f || fprintf(f, "0 %d 1\n", STRANGER) < 0 || fclose(f))
		SKIP("no map of users");
	EQ(geteuid(), 0);
	serve(me, arg);
}

static void root_of_another_namespace(void)
{
	struct service how = { .port = conf_port(175) };
	struct peer service;
	struct client c;

	need_root();
	service = peer_start(mapped_root, &how);
	peer_hear(&service, 'l');
	lab_transport("auto");
	call(&c, how.port);
	served(&c, how.port, 1);
	peer_end(&service);
}

static const struct conf_case cases[] = {
	CASE(exact_name_is_taken),
	CASE(wildcard_is_taken),
	CASE(specific_name_is_taken),
	CASE(no_service_takes),
	CASE(no_service_silent),
	CASE(no_service_full),
	CASE(beside_takes),
	CASE(beside_silent),
	CASE(beside_full),
	CASE(beside_bound),
	CASE(names_and_tcp_port),
	CASE(rendezvous_takes),
	CASE(rendezvous_silent),
	CASE(rendezvous_full),
	CASE(overflow_user),
	CASE(root_of_another_namespace),
};
CONF_MAIN(cases)
