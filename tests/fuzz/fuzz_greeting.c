/* SPDX-License-Identifier: BSD-2-Clause */
/* Hostile processes at the unix sockets over which links are made: from the first byte of a
 * greeting to the messages about direct access (grant.h), with descriptors of any kind. The
 * library and they are one process here; some connect to it, it connects to others.
 *
 *	the input: what is done, a byte (enum act), a byte (which connection) and arguments,
 *	in the host's byte order
 *
 * Whatever they do: greetings that are not right get no link; nobody gets our table of keys
 * without the application's consent and the right proof, or ever a descriptor of our memory
 * (but with ANYRDMA_DIRECT=on on both sides); no word is read for them from a place where
 * our challenge is not; all descriptors are closed in the end, nothing is left of their
 * connections, and an honest peer gets its link, in either role. */
#include "base/conf.h"
#include "dev/share.h"
#include "input.h"
#include "passing.h"
#include "shm/setup.h"
#include "tests/inuse.h"

#include <sched.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	INPUT_MAX = 1 << 12,
	ACTS_MAX = 64,
	CONNS = 4,
	HONEST = CONNS, /* the connection that is made at the end */
	ID = 0x88,
};

enum act {
	ACT_CONNECT, /* connects to the library */
	ACT_LISTEN, /* the library connects to it */
	ACT_GREET, /* struct greet, descriptors' kinds, changes (u8 where, u8 xor) */
	ACT_GRANT, /* struct grant, its descriptors' kinds */
	ACT_SAY,   /* u8 n, n bytes */
	ACT_ACCEPTED, /* the application does */
	ACT_HEAR,
	ACT_SHUT, /* u8 how */
	ACT_CLOSE,
	ACT_STEP, /* time passes */
	ACTS,
};

struct greet {
	uint8_t status, fds, changes;
	uint8_t less, more; /* bytes of it that are not said; others that are, behind */
	uint8_t split;	    /* not 0: in two parts, the first of so many bytes */
};

struct grant_said {
	uint8_t type, fds;
	uint8_t where; /* at and word: 0 the right ones; see place() */
	uint8_t version; /* KEYS: not 0: another table's */
	uint64_t at, word;
};

/* Beyond those of pass_fd_of_kind(). */
enum kind {
	KIND_SMALL = 8, /* a segment: too small, without seals, with one */
	KIND_LOOSE,
	KIND_HALF,
	KIND_TABLE,
	KIND_EVENT,
	KIND_SELF, /* the connection itself */
	KIND_EPOLL,
	KIND_FULL, /* a pipe, full */
	KINDS,
};

/* What the peer has in its memory. */
struct pages {
	struct memid_page right, wrong;
};

struct conn {
	int sock;
	bool outgoing;	/* the library has connected */
	bool said;	/* something was */
	bool good;	/* ... a whole greeting that is right */
	bool muddled;	/* ... what the model does not follow */
	bool exists;	/* ... that there is a link already */
	bool heard;	/* the library's greeting */
	bool accepted;	/* the application has */
	bool proving;	/* PROVE was said, with the right place */
	bool asked, proved; /* the library's PROVE has come; the right PROOF was said */
	uint64_t word;	    /* to be proved by */
	struct link_id id;
	struct grant_hello ours, theirs;
	struct link_wait link_wait;
	atomic_bool link_done;
};

static struct {
	bool ready;
	uint16_t port;
	int listener[CONNS + 1];
	uint16_t at[CONNS + 1];
	int kind[KINDS], segment;
	struct pages page[CONNS + 1];
	uint8_t *edge; /* the last word of a file */
	int fds, threads;
} home;

struct run {
	struct input in;
	bool exists; /* somebody has said so */
	struct conn c[CONNS + 1];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- once ------------------------------------------------------------------------- */

static int sealed(size_t size, int seals)
{
	int fd = memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC);

	MUST(fd >= 0 && !ftruncate(fd, (off_t)size) && !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static int full_pipe(void)
{
	static const char junk[4096];
	int p[2];

	MUST(!pipe2(p, O_CLOEXEC | O_NONBLOCK));
	while (write(p[1], junk, sizeof(junk)) > 0)
		;
	return p[1]; /* the other end stays open */
}

/* A peer's table, without keys. */
static int table_new(void)
{
	size_t size = sizeof(struct share_table);
	int fd = sealed(size, F_SEAL_SHRINK | F_SEAL_SEAL);
	uint32_t version = SHARE_VERSION;

	MUST(pwrite(fd, &version, sizeof(version), offsetof(struct share_table, version)) > 0);
	return fd;
}

static void make_kinds(void)
{
	const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	size_t size = sizeof(struct link_segment);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int edge;

	home.segment = sealed(size, all);
	home.kind[KIND_SMALL] = sealed(size - page, all);
	home.kind[KIND_LOOSE] = sealed(size, 0);
	home.kind[KIND_HALF] = sealed(size, F_SEAL_SHRINK);
	home.kind[KIND_TABLE] = table_new();
	home.kind[KIND_EVENT] = eventfd(0, EFD_CLOEXEC);
	home.kind[KIND_EPOLL] = epoll_create1(EPOLL_CLOEXEC);
	home.kind[KIND_FULL] = full_pipe();
	pass_fd_of_kind(1, -1);
	edge = sealed(page, 0);
	home.edge = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, edge, 0);
	MUST(home.edge != MAP_FAILED);
	close(edge);
	home.edge += page - sizeof(uint64_t);
}

/* Others on this machine may use any of the names. */
static uint16_t any_port(void)
{
	uint16_t port;

	MUST(getrandom(&port, sizeof(port), 0) == sizeof(port));
	return port;
}

static int listen_somewhere(uint16_t *port)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct link_name name;
	struct sockaddr_un un;
	socklen_t len;

	MUST(fd >= 0);
	do {
		*port = any_port();
		link_name_of_port(*port, &name);
		len = link_name_address(&name, &un);
	} while (bind(fd, (struct sockaddr *)&un, len));
	MUST(!listen(fd, 8));
	return fd;
}

/* ---- the library ------------------------------------------------------------------- */

struct turn {
	struct loop_work work;
	sem_t done;
};

static void turn_run(struct loop_work *w)
{
	sem_post(&((struct turn *)(void *)w)->done);
}

/* The loop thread has looked at all descriptors once more: one round runs work twice. */
static void settle(void)
{
	static struct turn t = { .work.run = turn_run };

	for (int i = 0; i < 4; i++) {
		MUST(loop_post(&t.work));
		while (sem_wait(&t.done))
			;
	}
}

static bool setups_are_over(void)
{
	bool over;

	setups_lock();
	over = !setups.incoming && list_empty(&setups.pending) && list_empty(&setups.links) &&
	       list_empty(&setups.known_ports);
	setups_unlock();
	return over;
}

/* Of the threads some are closing descriptors. */
static bool all_closed(void)
{
	return setups_are_over() && inuse_entries("/proc/self/fd") == home.fds &&
	       inuse_entries("/proc/self/task") == home.threads;
}

static void wait_for_end(void)
{
	double end = now() + PATIENCE_S;

	while (!all_closed()) {
		if (now() > end)
			fprintf(stderr, "%d descriptors more, %d threads more\n",
				inuse_entries("/proc/self/fd") - home.fds,
				inuse_entries("/proc/self/task") - home.threads);
		MUST(now() < end);
		sched_yield();
	}
}

/* Counted, or NULL. */
static struct link *link_of(const struct conn *c)
{
	struct link *l, *found = NULL;

	setups_lock();
	list_for_each(l, &setups.links, node)
		if (!memcmp(&l->peer_id, &c->id, sizeof(c->id)))
			found = l;
	if (found)
		link_get(found);
	setups_unlock();
	return found;
}

static bool has_link(const struct conn *c)
{
	struct link *l = link_of(c);

	if (l)
		link_put(l);
	return l;
}

static void accepted(struct run *r, const struct conn *c)
{
	struct link *found = link_of(c);

	if (!found)
		return;
	/* Ids may be equal; the challenge is not, unless an input made it so. */
	for (int i = 0; i <= CONNS; i++)
		if (!memcmp(&r->c[i].id, &c->id, sizeof(c->id)))
			r->c[i].accepted = true;
	grant_accepted(found);
	link_put(found);
}

/* ---- connections ---------------------------------------------------------------------- */

static struct pages *pages_of(struct run *r, const struct conn *c)
{
	return &home.page[c - r->c];
}

static void conn_init(struct run *r, struct conn *c)
{
	static uint64_t serial;
	uint64_t n = (uint64_t)(c - r->c) + 1;

	*c = (struct conn){ .sock = -1, .id = { { n, ID } } };
	serial++;
	home.page[n - 1] = (struct pages){ .right = { 0, 0x900d000 + serial },
					   .wrong = { 0, 0xbad0000 + serial } };
}

static void conn_connect(struct conn *c)
{
	struct link_name name;
	struct sockaddr_un un;
	socklen_t len;

	if (c->sock >= 0 || c->outgoing)
		return;
	link_name_of_port(home.port, &name);
	len = link_name_address(&name, &un);
	c->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(c->sock >= 0 && !connect(c->sock, (struct sockaddr *)&un, len));
}

static void link_found(struct link_wait *m, struct link *l, int err)
{
	struct conn *c = container_of(m, struct conn, link_wait);

	MUST(!l == !!err);
	atomic_store(&c->link_done, true);
}

/* The library has got the link that it wanted, or has given up. */
static void wait_for_link(struct conn *c)
{
	double end = now() + PATIENCE_S;

	while (!atomic_load(&c->link_done)) {
		MUST(now() < end);
		sched_yield();
	}
	if (!c->link_wait.link)
		return;
	MUST(c->good || c->muddled || c->exists);
	link_put(c->link_wait.link);
}

static void conn_listen(struct run *r, struct conn *c)
{
	int i = (int)(c - r->c);

	if (c->sock >= 0 || c->outgoing)
		return;
	c->outgoing = true;
	c->link_wait.done = link_found;
	link_find_port(home.at[i], &c->link_wait);
	c->sock = accept4(home.listener[i], NULL, NULL, SOCK_CLOEXEC);
	if (c->sock >= 0)
		return;
	/* One of them has said that the link of another is its own, too: they are one
	 * process. */
	MUST(errno == EAGAIN && r->exists && i != HONEST);
	c->exists = true;
	wait_for_link(c);
	conn_init(r, c);
}

static void conn_close(struct run *r, struct conn *c)
{
	if (c->sock >= 0)
		close(c->sock);
	c->sock = -1;
	if (c->outgoing)
		wait_for_link(c);
	/* Else a link to the same name may still be there when the next one is wanted: messages
	 * from before the end are read first, one in each turn. */
	for (int i = 0; i < 2 || (i < 2 + ACTS_MAX && has_link(c)); i++)
		settle();
	conn_init(r, c);
}

/* ---- what the library says -------------------------------------------------------------- */

static bool is_memory(int fd)
{
	char path[64], what[64] = { 0 };

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST(readlink(path, what, sizeof(what) - 1) > 0);
	return !strncmp(what, "/proc/", 6);
}

/* One message of exactly this length; the number of descriptors, or -1: nothing. */
static int take(struct conn *c, void *msg, size_t len, int *fds, int flags)
{
	struct iovec iov = { msg, len };
	union {
		struct cmsghdr h;
		char buf[CMSG_SPACE(8 * sizeof(int))];
	} ctl;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf,
			    .msg_controllen = sizeof(ctl.buf) };
	ssize_t got;
	int n = 0;

	do /* the fuzzer's alarm */
		got = recvmsg(c->sock, &m, MSG_CMSG_CLOEXEC | flags);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return -1;
	MUST((size_t)got == len && !(m.msg_flags & MSG_CTRUNC));
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
	}
	return n;
}

static bool hear_greeting(struct run *r, struct conn *c, int flags)
{
	struct greeting g;
	int fds[8], n = take(c, &g, sizeof(g), fds, flags);

	if (n < 0)
		return false;
	MUST(g.magic == GREETING_MAGIC && g.version == GREETING_VERSION);
	MUST(g.status == GREETING_OK || g.status == (c->outgoing ? GREETING_HELLO :
								  GREETING_EXISTS));
	MUST(n == (g.status == GREETING_HELLO ? 2 : g.status == GREETING_OK));
	MUST(g.status != GREETING_OK || c->good || c->muddled);
	c->heard = true;
	c->theirs = g.grant;
	pages_of(r, c)->right.nonce = g.grant.challenge;
	for (int i = 0; i < n; i++) {
		MUST(!is_memory(fds[i]));
		close(fds[i]);
	}
	return true;
}

/* From where we are told to: the link may be over by now, and the page gone, or that of
 * another link in its place. */
static void hear_prove(struct conn *c, uint64_t at)
{
	struct memid_page p;
	struct iovec here = { &p, sizeof(p) };
	struct iovec there = { (void *)(uintptr_t)at, sizeof(p) };

	MUST(c->accepted && !c->asked);
	c->asked = true;
	if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != sizeof(p))
		return;
	if (p.nonce != c->ours.challenge) {
		MUST(c->muddled || !has_link(c));
		return;
	}
	MUST(p.word);
	c->word = p.word;
}

static void hear_keys(struct conn *c, const struct grant_msg *m, const int *fds, int n)
{
	bool on = c->theirs.accepts_memory && c->ours.accepts_memory;

	MUST(c->accepted && c->asked && n == (c->proved ? 1 : 2));
	MUST(on || c->proved);
	MUST(m->table == SHARE_VERSION && m->at);
	MUST(!is_memory(fds[0]) && fcntl(fds[0], F_GET_SEALS) & F_SEAL_SHRINK);
	MUST(n == 1 || is_memory(fds[1]));
}

static bool hear(struct run *r, struct conn *c, int flags)
{
	struct grant_msg m;
	int fds[8], n;

	if (!c->heard)
		return hear_greeting(r, c, flags);
	n = take(c, &m, sizeof(m), fds, flags);
	if (n < 0)
		return false;
	MUST(m.type == GRANT_KEYS || !n);
	if (m.type == GRANT_PROVE)
		hear_prove(c, m.at);
	else if (m.type == GRANT_PROOF)
		MUST(c->accepted &&
		     (!m.word || (c->proving && m.word == pages_of(r, c)->right.word)));
	else if (m.type == GRANT_KEYS)
		hear_keys(c, &m, fds, n);
	else
		MUST(!"a type of message");
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return true;
}

/* ---- what they say ---------------------------------------------------------------------- */

static int fd_of_kind(const struct conn *c, uint8_t kind, int good)
{
	kind %= KINDS;
	if (kind < KIND_SMALL)
		return pass_fd_of_kind(kind, good);
	return kind == KIND_SELF ? c->sock : home.kind[kind];
}

static bool is_wake(int fd)
{
	int own = greeting_wake_accept(fd);

	if (own >= 0)
		close(own);
	return own >= 0;
}

static bool is_right(const struct conn *c, const struct greeting *g, const int *fds, unsigned n)
{
	if (g->magic != GREETING_MAGIC || g->version != GREETING_VERSION ||
	    g->size != sizeof(struct link_segment))
		return false;
	return c->outgoing ? g->status == GREETING_OK && n == 1 && is_wake(fds[0]) :
			   g->status == GREETING_HELLO && n == 2 && fds[0] == home.segment &&
				   is_wake(fds[1]);
}

static void say_greeting(struct run *r, struct conn *c, const struct greeting *g,
			 const struct greet *how, const int *fds, unsigned n)
{
	static uint8_t bytes[sizeof(*g) + UINT8_MAX];
	size_t len = sizeof(*g) - how->less % (sizeof(*g) + 1) + how->more;
	size_t part = how->split && how->split < len ? how->split : len;
	bool whole = len == sizeof(*g) && part == len;

	memcpy(bytes, g, sizeof(*g));
	c->muddled |= c->said || !whole;
	c->exists |= g->status == GREETING_EXISTS;
	r->exists |= c->exists;
	if (!c->said) {
		c->good = whole && is_right(c, g, fds, n);
		c->id = g->id;
		c->ours = g->grant;
	}
	c->said |= len > 0;
	pass_message(c->sock, bytes, part, fds, n);
	if (part < len)
		pass_message(c->sock, bytes + part, len - part, NULL, 0);
}

static void act_greet(struct run *r, struct conn *c)
{
	struct greeting g = { GREETING_MAGIC, GREETING_VERSION, 0, sizeof(struct link_segment),
			      c->id, { .challenge = 0x1000 + c->id.word[0] } };
	uint8_t change[2];
	int fds[PASS_MAX];
	struct greet how;
	unsigned n;

	input_get(&r->in, &how, sizeof(how));
	g.status = how.status;
	n = how.fds % (PASS_MAX + 1);
	for (unsigned i = 0; i < n; i++)
		fds[i] = fd_of_kind(c, input_u8(&r->in), home.segment);
	for (unsigned i = 0; i < how.changes; i++) {
		input_get(&r->in, change, sizeof(change));
		((uint8_t *)&g)[change[0] % sizeof(g)] ^= change[1];
	}
	say_greeting(r, c, &g, &how, fds, n);
}

/* Where PROVE says that the proof is. */
static uint64_t place(struct run *r, struct conn *c, const struct grant_said *how)
{
	struct pages *p = pages_of(r, c);

	p->wrong.nonce = p->right.nonce ^ 1;
	switch (how->where % 6) {
	case 0:
		return (uintptr_t)&p->right;
	case 1:
		return (uintptr_t)&p->wrong;
	case 2: /* right for another one */
		return (uintptr_t)&home.page[(c - r->c + 1) % CONNS].right;
	case 3: /* it ends behind the challenge */
		memcpy(home.edge, &p->right.nonce, sizeof(p->right.nonce));
		return (uintptr_t)home.edge;
	case 4:
		return (uintptr_t)&p->right + 1;
	default:
		return how->at;
	}
}

static void act_grant(struct run *r, struct conn *c)
{
	struct grant_msg m = { .table = SHARE_VERSION };
	struct grant_said how;
	int fds[PASS_MAX];
	bool right;
	unsigned n;

	input_get(&r->in, &how, sizeof(how));
	n = how.fds % (PASS_MAX + 1);
	for (unsigned i = 0; i < n; i++)
		fds[i] = fd_of_kind(c, input_u8(&r->in), home.kind[KIND_TABLE]);
	right = !(how.where % 6);
	m.type = how.type;
	m.table += how.version;
	m.at = how.at;
	m.word = how.word;
	if (m.type == GRANT_PROVE) {
		m.at = place(r, c, &how);
		c->proving |= right;
	} else if (m.type == GRANT_PROOF && right && c->word) {
		m.word = c->word;
		c->proved = true;
	} else if (m.type == GRANT_KEYS && right) {
		m.at = (uintptr_t)&pages_of(r, c)->right;
	}
	c->muddled |= !c->said;
	c->said = true;
	pass_message(c->sock, &m, sizeof(m), fds, n);
}

static void act_say(struct run *r, struct conn *c)
{
	uint8_t n = input_u8(&r->in), bytes[UINT8_MAX];

	input_get(&r->in, bytes, n);
	c->muddled |= !c->said;
	c->said |= n > 0;
	pass_message(c->sock, bytes, n, NULL, 0);
}

static void talk(struct run *r, struct conn *c, enum act what)
{
	switch (what) {
	case ACT_GREET:
		act_greet(r, c);
		break;
	case ACT_GRANT:
		act_grant(r, c);
		break;
	case ACT_SAY:
		act_say(r, c);
		break;
	case ACT_ACCEPTED:
		accepted(r, c);
		break;
	case ACT_HEAR:
		settle();
		while (hear(r, c, MSG_DONTWAIT))
			;
		break;
	case ACT_SHUT:
		shutdown(c->sock, input_u8(&r->in) % 3);
		break;
	default:
		conn_close(r, c);
	}
}

static void act(struct run *r)
{
	enum act what = input_u8(&r->in) % ACTS;
	struct conn *c = &r->c[input_u8(&r->in) % CONNS];

	if (what == ACT_STEP)
		settle();
	else if (what == ACT_CONNECT)
		conn_connect(c);
	else if (what == ACT_LISTEN)
		conn_listen(r, c);
	else if (c->sock >= 0)
		talk(r, c, what);
}

/* ---- an honest one ------------------------------------------------------------------------ */

static void honest(struct run *r, bool outgoing)
{
	struct conn *c = &r->c[HONEST];
	struct timeval patience = { .tv_sec = PATIENCE_S };
	struct greeting g = { GREETING_MAGIC, GREETING_VERSION,
			      outgoing ? GREETING_OK : GREETING_HELLO,
			      sizeof(struct link_segment), c->id, { .challenge = 0x4091 } };
	struct greet whole = { 0 };
	struct grant_msg m = { .type = GRANT_PROOF };
	int wake = pass_fd_of_kind(4, -1), fds[2] = { outgoing ? wake : home.segment, wake };

	if (outgoing)
		conn_listen(r, c);
	else
		conn_connect(c);
	setsockopt(c->sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (outgoing)
		MUST(hear(r, c, 0));
	say_greeting(r, c, &g, &whole, fds, outgoing ? 1 : 2);
	if (outgoing)
		settle();
	else
		MUST(hear(r, c, 0) && c->good);
	accepted(r, c);
	MUST(c->accepted);
	if (conf_get()->direct != CONF_DIRECT_OFF) {
		MUST(hear(r, c, 0) && c->word);
		m.word = c->word;
		c->proved = true;
		pass_message(c->sock, &m, sizeof(m), NULL, 0);
		MUST(hear(r, c, 0));
	}
	conn_close(r, c);
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void run_end(struct run *r)
{
	for (int i = 0; i < CONNS; i++)
		if (r->c[i].sock >= 0 || r->c[i].outgoing)
			conn_close(r, &r->c[i]);
	wait_for_end();
	honest(r, false);
	honest(r, true);
	wait_for_end();
}

static void first(struct run *r)
{
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	do
		home.port = any_port();
	while (link_listen_port(home.port));
	for (int i = 0; i <= CONNS; i++)
		home.listener[i] = listen_somewhere(&home.at[i]);
	make_kinds();
	home.ready = true;
	honest(r, false);
	while (!setups_are_over())
		sched_yield();
	settle(); /* the sockets are closed behind it */
	settle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct run r;

	if (size > INPUT_MAX)
		return 0;
	for (int i = 0; i <= CONNS; i++)
		conn_init(&r, &r.c[i]);
	if (!home.ready)
		first(&r);
	home.fds = inuse_entries("/proc/self/fd"); /* the caller has some open, too */
	home.threads = inuse_entries("/proc/self/task");
	r.in = (struct input){ data, data + size };
	for (int i = 0; i < ACTS_MAX && !input_over(&r.in); i++)
		act(&r);
	run_end(&r);
	return 0;
}
