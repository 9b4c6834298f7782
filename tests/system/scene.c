/* SPDX-License-Identifier: BSD-2-Clause */
#include "scene.h"

#include "side.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>

struct meeting *here;
int here_fd, me;
bool inside;
static volatile uint64_t *words; /* here->target[me] */

static void meet(void)
{
	static unsigned times;

	times++;
	atomic_fetch_add(&here->arrived, 1);
	WAIT_FOR(atomic_load(&here->arrived) >= 2 * times);
}

/* ---- a connection ---------------------------------------------------------------------- */

enum { MIB = 1 << 20 };
/* Parts of each one's buffer. */
enum {
	OUT = 0,
	RECEIVED = MIB,
	WRITTEN = 2 * MIB,
	FETCHED = 3 * MIB,
	COUNTER = 4 * MIB,
	OLD = COUNTER + 64,
	SIZE = COUNTER + 4096,
};

static struct rdma_event_channel *ch;
static struct rdma_cm_id *listener, *id;
static struct side raw;
static struct ibv_qp *qp;
static struct ibv_cq *send_cq, *recv_cq;
static struct conf_buf buf;

static void buffer(struct ibv_pd *pd)
{
	buf = conf_buf(pd, SIZE, CONF_RW);
	here->addr[me] = (uintptr_t)buf.p;
	here->rkey[me] = buf.mr->rkey;
}

static void cm_qp(void)
{
	conf_qp(id, 16);
	qp = id->qp;
	send_cq = id->send_cq;
	recv_cq = id->recv_cq;
	buffer(id->pd);
}

static void cm_connect(void)
{
	struct rdma_conn_param param = conf_param();

	id = conf_route_resolved(ch, conf_addr(AF_INET, here->port));
	cm_qp();
	OK(rdma_connect(id, &param));
}

static void cm_request(void)
{
	struct rdma_cm_event *ev = conf_get(ch, NULL, RDMA_CM_EVENT_CONNECT_REQUEST);

	id = ev->id;
	OK(rdma_ack_cm_event(ev));
	cm_qp();
}

static void check_nothing(void);

/* Both are here, and hold nothing. */
static void check_pending(const struct scene *s)
{
	meet();
	if (s->pending)
		check_nothing();
	meet();
}

static void cm_join(const struct scene *s)
{
	struct rdma_conn_param param = conf_param();

	ch = conf_channel();
	if (me == LISTENER) {
		listener = conf_listen(ch, AF_INET, 8);
		here->port = ntohs(rdma_get_src_port(listener));
	}
	meet();
	if (me == CLIENT)
		cm_connect();
	else
		cm_request();
	check_pending(s);
	if (me == LISTENER) {
		if (s->decide)
			s->decide();
		OK(rdma_accept(id, &param));
	}
	conf_expect(ch, id, RDMA_CM_EVENT_ESTABLISHED);
	meet();
}

static void raw_ready(void)
{
	EQ(to_rtr(&raw, here->qpn[!me], 0, &dev.gid), 0);
	EQ(to_rts(&raw), 0);
}

/* Of QPs the one with the smaller number calls: it is ready first, as the client is. */
static void raw_join(const struct scene *s)
{
	bool first;

	open_device();
	raw = side_with(0, (struct side_opt){ .bare = true });
	EQ(to_init(&raw), 0);
	qp = raw.qp;
	send_cq = recv_cq = raw.cq;
	buffer(dev.pd);
	here->qpn[me] = qp->qp_num;
	meet();
	first = here->qpn[me] < here->qpn[!me];
	if (first)
		raw_ready();
	check_pending(s);
	if (!first)
		raw_ready();
	meet();
}

static void leave(const struct scene *s)
{
	conf_buf_free(&buf);
	if (s->raw) {
		side_free(&raw);
		close_device();
		return;
	}
	conf_id_free(id);
	if (listener)
		OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(ch);
}

/* ---- traffic --------------------------------------------------------------------------- */

enum { COUNT = 1000, ADDED = 7 };

static void done(struct ibv_send_wr *wr)
{
	OK(conf_post(qp, wr));
	conf_wc_ok(send_cq, wr->wr_id);
}

static const void *there(size_t off)
{
	return (const void *)(uintptr_t)(here->addr[!me] + off);
}

static void give(size_t len, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&buf, OUT, len),
		       old = conf_sge(&buf, OLD, sizeof(uint64_t));
	uint32_t rkey = here->rkey[!me];
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_ATOMIC_FETCH_AND_ADD, &old, 1);
	uint64_t was;

	wr.wr.atomic.remote_addr = (uintptr_t)there(COUNTER);
	wr.wr.atomic.rkey = rkey;
	wr.wr.atomic.compare_add = ADDED;
	done(&wr);
	memcpy(&was, buf.p + OLD, sizeof(was));
	EQ(was, COUNT);
	wr = conf_rdma(2, IBV_WR_RDMA_READ, &sge, 1, there(FETCHED), rkey);
	done(&wr);
	CHECK(conf_pattern_ok(buf.p + OUT, len, seed + 2));
	conf_pattern(buf.p + OUT, len, seed + 1);
	wr = conf_rdma(3, IBV_WR_RDMA_WRITE, &sge, 1, there(WRITTEN), rkey);
	done(&wr);
	conf_pattern(buf.p + OUT, len, seed);
	wr = conf_wr(4, IBV_WR_SEND, &sge, 1);
	done(&wr);
}

static void expect(size_t len, uint32_t seed)
{
	uint64_t count = COUNT;

	conf_pattern(buf.p + RECEIVED, len, ~seed);
	conf_pattern(buf.p + WRITTEN, len, ~seed);
	conf_pattern(buf.p + FETCHED, len, seed + 2);
	memcpy(buf.p + COUNTER, &count, sizeof(count));
	OK(conf_recv(qp, 5, &buf, RECEIVED, len));
}

/* The message came last: what was done before it is there. */
static void got(size_t len, uint32_t seed)
{
	uint64_t count;
	struct ibv_wc wc;

	conf_wc_get(recv_cq, 5, IBV_WC_SUCCESS, &wc);
	EQ(wc.byte_len, len);
	CHECK(conf_pattern_ok(buf.p + RECEIVED, len, seed));
	CHECK(conf_pattern_ok(buf.p + WRITTEN, len, seed + 1));
	memcpy(&count, buf.p + COUNTER, sizeof(count));
	EQ(count, COUNT + ADDED);
}

static void transfer(int from, size_t len)
{
	uint32_t seed = (uint32_t)(len + 100 * (unsigned)from);

	if (me != from)
		expect(len, seed);
	meet();
	if (me == from)
		give(len, seed);
	meet();
	if (me != from)
		got(len, seed);
}

static void traffic(void)
{
	for (int from = LISTENER; from <= CLIENT; from++) {
		transfer(from, 64);
		transfer(from, MIB);
	}
}

/* ---- what is held ---------------------------------------------------------------------- */

static const char *who(int i)
{
	return i == CLIENT ? "client" : "listener";
}

static void make_words(void *at)
{
	struct target *t = &here->target[me];

	words = mmap(at, 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
	CHECK(words != MAP_FAILED);
	CHECK(getrandom(&t->secret, sizeof(t->secret), 0) == sizeof(t->secret));
	t->at = (uintptr_t)words;
	for (unsigned i = 0; i < TARGET_WORDS; i++)
		words[i] = t->secret;
}

/* Keys come by the socket: if none was seen there, we would not have seen others'. */
static bool direct_works(struct foreign *f)
{
	*f = foreign_look(&here->target[!me]);
	return f->read && f->written && f->keys && f->keys_sent;
}

#define HELD "the %s holds %u descriptors of memory (%s) and %u of keys, got %u and %u"
#define HELD_ARGS(f) \
	who(me), (f).mem, (f).read ? "works" : "does not work", (f).keys, (f).mem_sent, \
		(f).keys_sent

/* What comes later comes while threads run: several looks. */
static void check_nothing(void)
{
	struct foreign f;

	for (int i = 0; i < 3; i++) {
		conf_settle();
		f = foreign_look(&here->target[!me]);
		CHECK(!f.blind);
		if (f.mem || f.keys || f.mem_sent || f.keys_sent)
			FAIL(HELD, HELD_ARGS(f));
	}
}

static void check_held(const struct scene *s, enum may may)
{
	struct foreign f;

	if (may == NOTHING)
		check_nothing();
	if (may == DIRECT)
		WAIT_TILL(direct_works(&f), CONF_WAIT, HELD, HELD_ARGS(f));
	if (s->not_passed)
		EQ(foreign_look(&here->target[!me]).mem_sent, 0);
}

static void check_link(const struct scene *s)
{
	EQ(foreign_look(&here->target[!me]).links, s->by_tcp ? 0 : 1);
}

/* What the kernel says is what the case is about, or it is skipped. */
static void ask_kernel(const struct scene *s)
{
	bool lets = foreign_by_kernel(&here->target[!me]);

	if (s->refused[me] && lets)
		SKIP("the kernel lets the %s at the other's memory here", who(me));
	if (s->may[me] == DIRECT && !s->direct && !lets)
		SKIP("the kernel does not let the %s at the other's memory here",
		     who(me));
}

static void check_untouched(const struct scene *s)
{
	uint64_t secret = here->target[me].secret;

	CHECK(words[TARGET_READ] == secret);
	CHECK(!s->refused[!me] || words[TARGET_BY_KERNEL] == secret);
	CHECK(s->may[!me] != NOTHING || words[TARGET_BY_HELD] == secret);
}

/* ---- both processes -------------------------------------------------------------------- */

static void play(const struct scene *s)
{
	if (s->raw)
		raw_join(s);
	else
		cm_join(s);
	ask_kernel(s);
	check_held(s, s->may[me]);
	meet();
	traffic();
	meet();
	check_held(s, s->may[me]);
	check_link(s);
	meet();
	check_untouched(s);
	if (s->after[me])
		s->after[me]();
	if (!s->apart)
		meet();
	leave(s);
}

struct part {
	const struct scene *scene;
	int who;
};

static void take_part(struct peer *unused, void *arg)
{
	const struct part *p = arg;

	(void)unused;
	me = p->who;
	if (p->scene->prepare[me])
		p->scene->prepare[me]();
	if (inside)
		WAIT_FOR(here->target[me].pid);
	else
		here->target[me].pid = getpid();
	make_words(me == LISTENER ? p->scene->words_at : NULL);
	meet();
	play(p->scene);
	if (inside)
		_exit(0); /* sanitizers look for our threads in /proc, which may be another's */
}

static void make_meeting(void)
{
	here_fd = memfd_create("meeting", 0);
	CHECK(here_fd >= 0);
	OK(ftruncate(here_fd, sizeof(*here)));
	here = mmap(NULL, sizeof(*here), PROT_READ | PROT_WRITE, MAP_SHARED, here_fd, 0);
	CHECK(here != MAP_FAILED);
}

/* The first that fails, or skips the case, ends it. */
void scene_run(const struct scene *s)
{
	struct part parts[2] = { { s, LISTENER }, { s, CLIENT } };
	struct peer peers[2];
	int status;

	setenv("ANYRDMA_TRANSPORT", "auto", 1);
	setenv("ANYRDMA_DIRECT", s->direct ? s->direct : "auto", 1);
	make_meeting();
	for (int i = 0; i < 2; i++)
		peers[i] = peer_start(take_part, &parts[i]);
	for (int i = 0; i < 2; i++) {
		pid_t pid = waitpid(-1, &status, 0);
		const char *name = who(pid == peers[CLIENT].pid);

		if (WIFSIGNALED(status))
			FAIL("the %s died of signal %d", name, WTERMSIG(status));
		if (WEXITSTATUS(status))
			FAIL("the %s ended with %d", name, WEXITSTATUS(status));
	}
}
