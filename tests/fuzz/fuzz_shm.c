/* SPDX-License-Identifier: BSD-2-Clause */
/* A hostile process at the other end of a link: a real QP, whose peer is this program.
 * It greets, opens streams, writes records and whatever else into the shared segment,
 * while the library reads it, and stops answering.
 *
 *	byte 0	how (F_*)
 *	rest	what the peer does: a byte (enum act) and its arguments, in the host's
 *		byte order. Keys are random in every process, so 5a5a5a51 stands for the
 *		key of a region open to all, ...52 for one without remote rights, ...53
 *		for one of another PD. Regions are at BASE.
 *
 * It grants direct access, too, to a table of its own (KEY_*) and to this very process;
 * what it sends may be fetched from SOURCE. And it asks for the library's keys, which it gets
 * after the right proof and not before.
 *
 * A UD QP receives, too: from ports that lead to the peer's process, which are those of
 * F_LISTEN, and from no others.
 *
 * Whatever it does: nothing outside the regions is written, every posted WR completes
 * exactly once and in order, another connection of the process works on, the link's
 * descriptor is closed when the peer's is, and all can be destroyed. */
#include "base/be.h"
#include "dev/share.h"
#include "input.h"
#include "rc/stream.h"
#include "shm/fdpass.h"
#include "shm/greeting.h"
#include "victim.h"

#include "dgrams.h"
#include "offered.h"
#include "passing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	F_LISTEN = 0x01,  /* the library connects to us; else we to it */
	F_GREETING = 0x02, /* the next bytes are xored into our greeting */
	F_DEAF = 0x04,	   /* nothing is taken from its ring */
	F_REQUESTS = 0x08, /* sends, reads, atomics are posted */
	F_PASSIVE = 0x10,  /* nobody polls: the thread's work */
	F_FEW_RECVS = 0x20,
	F_UC = 0x40,
	F_STORM = 0x80,	   /* another thread scribbles all the while */
};

enum act {
	ACT_LINK,     /* u8 type, u8 slot, u8 from, u8 err: a message of the link */
	ACT_STREAM,   /* struct said, its body: a message of a stream */
	ACT_RECORD,   /* u8 kind, u16 n, n bytes: any record */
	ACT_SCRIBBLE, /* u32 where, u8 n, n bytes: anywhere in the segment */
	ACT_INDEX,    /* u8 which, u32: head, consumer_sleeps or producer_waits */
	ACT_WAKE,     /* its eventfd */
	ACT_STEP,     /* time passes */
	ACT_POST,     /* work for the QP */
	ACT_TAKE,     /* read its ring */
	ACT_SAY,      /* u8 n, n bytes: on the socket */
	ACT_FAIL,     /* the QP goes to ERR */
	ACT_BYE,      /* we end */
	ACT_GRANT,    /* u8 type, u8 n, n x u8, u64 at, u64 word: with n descriptors */
	ACT_DGRAM,    /* struct dgram_said: a datagram */
	ACT_ANSWER,   /* send it datagrams; u8 err: may they come by the link? */
	ACTS,
};

struct said {
	uint8_t op, flags, body, slot;
	uint32_t stag, msn, payload;
	uint64_t to;
};

enum {
	MAX_INPUT = 1 << 14,
	SQ_PSN = 0x100,
	RQ_PSN = 0x200,
	SENDS_MAX = 24,
	LOW_PORT = 1,	   /* its QPs connect to us, ... */
	HIGH_PORT = 65534, /* we to them; or one of the next lower ones */
	HIGH_PORTS = 256,
	PROOF_WORD = 0x5eed,
	TURNS = 50,
	GRANT_TURNS = 400,
};
/* Another connection, and the address of all. */
static struct {
	struct ibv_cq *calm_cq;
	struct ibv_qp *calm[2];
	union ibv_gid gid;
	int gid_index;
} home;

struct run {
	uint8_t how;
	struct input in;
	struct work w;
	uint32_t qpn; /* the peer's */
	int sock, wake; /* ours; the library's eventfd */
	struct link_segment *seg;
	struct ring_tx tx;
	struct ring_rx rx;
	uint32_t slot;	/* of the library's stream, as it told us */
	uint32_t from;	/* the slot that it asked for */
	struct grant_hello ours, theirs;
	bool tried, proved; /* we have sent a proof, the right one */
	bool opened, granted; /* a stream may be open; our keys are sent */
	atomic_bool calm_down;
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- QPs ------------------------------------------------------------------------- */

static void connect_qp(struct ibv_qp *qp, uint32_t peer, uint32_t sq_psn, uint32_t rq_psn)
{
	struct ibv_qp_attr to = {
		.dest_qp_num = peer, .rq_psn = rq_psn, .sq_psn = sq_psn, .timeout = 8,
		.retry_cnt = 1,
		.ah_attr.grh = { .sgid_index = (uint8_t)home.gid_index, .dgid = home.gid },
	};

	qp_connect(qp, &to);
}

static struct ibv_qp *new_qp(enum ibv_qp_type type, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { .max_send_wr = SENDS_MAX + 8, .max_recv_wr = 8, .max_send_sge = 2,
			 .max_recv_sge = 2 },
	};
	struct ibv_qp *qp = ibv_create_qp(dev.pd, &init);

	MUST(qp);
	qp_init(qp);
	return qp;
}

/* ---- once ------------------------------------------------------------------------- */

static void find_gid(void)
{
	for (int i = 0; i < DEV_GIDS; i++) {
		if (ibv_query_gid(dev.ctx, 1, i, &home.gid) || home.gid.raw[10] != 0xff ||
		    home.gid.raw[12] != 127)
			continue;
		home.gid_index = i;
		return;
	}
	MUST(!"a GID of the loopback interface");
}

static void open_device(void)
{
	setenv("ANYRDMA_TRANSPORT", "shm", 1);
	setenv("ANYRDMA_UC_LATE_MS", "1", 1);
	device_open();
	find_gid();
	home.calm_cq = ibv_create_cq(dev.ctx, 64, NULL, NULL, 0);
	MUST(home.calm_cq);
	for (int i = 0; i < 2; i++)
		home.calm[i] = new_qp(IBV_QPT_RC, home.calm_cq);
	for (int i = 0; i < 2; i++)
		connect_qp(home.calm[i], home.calm[!i]->qp_num, 1, 1);
	dgrams_open(dev.pd, &home.gid, (uint8_t)home.gid_index);
}

/* ---- what it offers ----------------------------------------------------------------- */

static struct memid_page page;

/* Another connection of the same process: an atomic, which no direct access spares the
 * link. */
static void check_others(void)
{
	struct ibv_sge sge = { BASE + 128, 8, dev.mr[0]->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED,
				  .wr.atomic = { .remote_addr = BASE, .rkey = dev.mr[0]->rkey,
						 .compare_add = 1 } }, *bad;
	double end = now() + PATIENCE_S;
	struct ibv_wc wc;

	MUST(!ibv_post_send(home.calm[0], &wr, &bad));
	while (!ibv_poll_cq(home.calm_cq, 1, &wc))
		MUST(now() < end);
	MUST(wc.status == IBV_WC_SUCCESS);
	check_guards();
}

/* ---- its work --------------------------------------------------------------------- */

static void post_one(struct run *r)
{
	static const struct {
		enum ibv_wr_opcode op;
		uint32_t len;
	} list[] = {
		{ IBV_WR_SEND, 100 },
		{ IBV_WR_RDMA_WRITE_WITH_IMM, 64 },
		{ IBV_WR_SEND, REGION }, /* may be fetched */
		{ IBV_WR_RDMA_READ, 1000 },
		{ IBV_WR_ATOMIC_FETCH_AND_ADD, 8 },
		{ IBV_WR_RDMA_READ, 40000 },
	};
	unsigned i = r->w.sends % (r->how & F_UC ? 3 : 6);

	if (r->w.sends < SENDS_MAX)
		work_send(&r->w, list[i].op, list[i].len);
}

/* ---- the peer's greeting ----------------------------------------------------------- */

static void xor_input(struct run *r, void *p, size_t n)
{
	uint8_t *to = p;

	if (!(r->how & F_GREETING))
		return;
	for (; n && !input_over(&r->in); n--)
		*to++ ^= input_u8(&r->in);
}

static void greet(struct run *r, enum greeting_status status, const int *fds, unsigned n)
{
	static uint64_t serial;
	struct greeting g = { GREETING_MAGIC, GREETING_VERSION, status,
			      sizeof(struct link_segment), { { serial + 1, 77 } },
			      { .challenge = serial + 0x1000 } };

	serial++;
	xor_input(r, &g, sizeof(g));
	r->ours = g.grant;
	pass_message(r->sock, &g, sizeof(g), fds, n);
}

/* The library's greeting: its descriptors, or -1 when it does not answer with any. */
static int greeted(struct run *r, int *fds, int want)
{
	struct greeting g;
	struct iovec iov = { &g, sizeof(g) };
	union {
		struct cmsghdr h;
		char buf[CMSG_SPACE(8 * sizeof(int))];
	} c;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf,
			      .msg_controllen = sizeof(c.buf) };
	struct timeval patience = { .tv_sec = PATIENCE_S };
	int got[8], n = 0;
	ssize_t len;

	setsockopt(r->sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	len = recvmsg(r->sock, &msg, MSG_CMSG_CLOEXEC);
	MUST(len >= 0 || errno != EAGAIN);
	if (len <= 0)
		return -1;
	r->theirs = g.grant;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(got, CMSG_DATA(h), (size_t)n * sizeof(int));
	}
	for (int i = 0; i < n; i++) {
		if (i < want)
			fds[i] = got[i];
		else
			close(got[i]);
	}
	return n >= want ? 0 : -1;
}

/* The library gets access to this process, as to any that it can open: when it has given
 * a stream to its QP it answers, and hear() sends the keys. */
static void grant(struct run *r)
{
	struct grant_msg m = { .type = GRANT_PROVE, .at = (uintptr_t)&page };

	page = (struct memid_page){ r->theirs.challenge, PROOF_WORD };
	pass_message(r->sock, &m, sizeof(m), NULL, 0);
}

static void map(struct run *r, int fd, int side)
{
	r->seg = mmap(NULL, sizeof(*r->seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	MUST(r->seg != MAP_FAILED);
	r->tx = (struct ring_tx){ .sh = &r->seg->ring[side], .limit = RING_LINES };
	r->rx = (struct ring_rx){ .sh = &r->seg->ring[!side] };
	atomic_store(&r->seg->direct[side].works, !(r->how & F_DEAF));
}

static void accept_wake(struct run *r, int fd)
{
	r->wake = greeting_wake_accept(fd);
	MUST(r->wake >= 0);
	close(fd);
}

static bool link_connect(struct run *r)
{
	int memfd = memfd_create("fuzz", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	int wake = -1, own = greeting_wake_new(&wake), fds[2] = { memfd, wake };
	struct sockaddr_un un;
	socklen_t len = fdpassing_name(r->w.qp->qp_num >> 8, &un);
	bool good;
	int got;

	r->sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	MUST(memfd >= 0 && wake >= 0 && r->sock >= 0);
	MUST(!ftruncate(memfd, sizeof(*r->seg)));
	MUST(!fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
	MUST(!connect(r->sock, (struct sockaddr *)&un, len));
	map(r, memfd, 0);
	greet(r, GREETING_HELLO, fds, 2);
	close(memfd);
	close(wake);
	close(own);
	good = !greeted(r, &got, 1);
	if (good) {
		accept_wake(r, got);
		grant(r);
	}
	return good;
}

/* Once: memory of an ordinary file, which knows no seals and could be cut off under
 * the library, is refused. */
static void offer_file(const struct run *r)
{
	static bool done;
	struct run c = { .wake = -1, .w.qp = r->w.qp };
	int file = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), got;
	int wake = -1, own = greeting_wake_new(&wake), fds[2] = { file, wake };
	struct sockaddr_un un;
	socklen_t len = fdpassing_name(r->w.qp->qp_num >> 8, &un);

	if (!done && file >= 0) {
		c.sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		MUST(!ftruncate(file, sizeof(*r->seg)));
		MUST(!connect(c.sock, (struct sockaddr *)&un, len));
		greet(&c, GREETING_HELLO, fds, 2);
		MUST(greeted(&c, &got, 1) == -1);
		close(c.sock);
	}
	done = true;
	if (file >= 0)
		close(file);
	close(own);
	close(wake);
}

static bool link_accept(struct run *r, int listener)
{
	int wake = -1, own = greeting_wake_new(&wake), fds[2];
	struct timeval patience = { .tv_sec = PATIENCE_S };

	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	r->sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	MUST(r->sock >= 0 && wake >= 0);
	MUST(!greeted(r, fds, 2));
	map(r, fds[0], 1);
	close(fds[0]);
	accept_wake(r, fds[1]);
	greet(r, GREETING_OK, &wake, 1);
	close(wake);
	close(own);
	grant(r);
	return true;
}

/* ---- what the peer does -------------------------------------------------------------- */

static void wake(struct run *r)
{
	atomic_store(&r->tx.sh->consumer_sleeps, 0);
	if (r->wake >= 0)
		MUST(!greeting_wake(r->wake));
}

/* Small numbers stand for themselves, from 0x40 on for the slot that is right, from
 * 0xc0 on for nonsense. */
static uint32_t slot_of(const struct run *r, uint8_t v)
{
	return v < 0x40 ? v : v < 0xc0 ? r->slot : v * 0x01010101u;
}

static void put_record(struct run *r, const void *rec, uint32_t bytes, uint8_t kind)
{
	uint8_t *at = ring_reserve(&r->tx, bytes);

	if (!at)
		return;
	memcpy(at + 4, (const uint8_t *)rec + 4, bytes - 4);
	ring_publish(&r->tx, bytes, kind);
}

static void act_link(struct run *r)
{
	struct rec_link m = { .unreliable = !!(r->how & F_UC),
			      .src_qpn = r->qpn, .dst_qpn = r->w.qp->qp_num,
			      .share_id = PEER_SHARE_ID, .src_gid = home.gid, .dst_gid = home.gid };

	m.type = input_u8(&r->in);
	m.slot = slot_of(r, input_u8(&r->in));
	m.from = input_u8(&r->in);
	m.err = -(int)input_u8(&r->in);
	r->opened |= m.type == LINK_OPENED || m.type == LINK_READY;
	if (m.type == LINK_OPENED)
		m.slot = m.slot == r->slot ? r->from : m.slot;
	put_record(r, &m, sizeof(m), REC_LINK);
	wake(r);
}

/* The library's UD QP sends to ours, and asks before it does so by the link. */
static void act_answer(struct run *r)
{
	struct rec_link m = { .type = LINK_DGRAMS_ANSWER, .err = -(int)input_u8(&r->in),
			      .src_qpn = dgrams.qp->qp_num, .dst_qpn = r->qpn };

	dgrams_send(r->qpn);
	put_record(r, &m, sizeof(m), REC_LINK);
	wake(r);
}

static void act_dgram(struct run *r)
{
	static _Alignas(RING_LINE) uint8_t rec[RING_RECORD_MAX];
	uint32_t n = dgrams_record(&r->in, rec, r->qpn, &home.gid);

	put_record(r, rec, n, REC_DGRAM);
	wake(r);
}

static void act_stream(struct run *r)
{
	static uint8_t rec[RING_RECORD_MAX];
	struct rec_stream *h = (void *)rec;
	struct said s;
	uint32_t n;

	input_get(&r->in, &s, sizeof(s));
	*h = (struct rec_stream){ .slot = slot_of(r, s.slot), .op = s.op, .flags = s.flags,
				  .body = s.body, .ack = s.msn, .stag = s.stag, .msn = s.msn,
				  .to = s.to };
	input_get(&r->in, h + 1, s.body);
	n = (uint32_t)sizeof(*h) + s.body;
	memset(rec + n, s.op, sizeof(rec) - n);
	n += s.payload % (RING_RECORD_MAX - n);
	put_record(r, rec, n, REC_STREAM);
	wake(r);
}

static void act_record(struct run *r)
{
	static uint8_t rec[RING_RECORD_MAX];
	uint8_t kind = input_u8(&r->in);
	uint32_t n = input_u8(&r->in);

	n |= (uint32_t)input_u8(&r->in) << 8;
	n = n % (RING_RECORD_MAX - 4) + 4;
	input_get(&r->in, rec + 4, n - 4 < 64 ? n - 4 : 64);
	put_record(r, rec, n, kind ? kind : 1);
	wake(r);
}

static void act_scribble(struct run *r)
{
	uint32_t at = input_u32(&r->in) % (sizeof(*r->seg) - 256);
	uint8_t n = input_u8(&r->in);

	input_get(&r->in, (uint8_t *)r->seg + at, n);
}

static void act_index(struct run *r)
{
	uint8_t which = input_u8(&r->in);
	struct ring_shared *sh = &r->seg->ring[which & 1];
	_Atomic uint32_t *p = which & 4 ? &sh->head :
			      which & 2 ? &sh->consumer_sleeps :
					  &sh->producer_waits;

	atomic_store(p, input_u32(&r->in));
}

static void act_grant(struct run *r)
{
	struct grant_msg m = { .type = input_u8(&r->in), .table = SHARE_VERSION };
	unsigned n = input_u8(&r->in) % (PASS_MAX + 1);
	int fds[PASS_MAX];

	for (unsigned i = 0; i < n; i++)
		fds[i] = pass_fd_of_kind(input_u8(&r->in), table_fd());
	input_get(&r->in, &m.at, sizeof(m.at));
	input_get(&r->in, &m.word, sizeof(m.word));
	r->tried |= m.type == GRANT_PROOF;
	pass_message(r->sock, &m, sizeof(m), fds, n);
}

static void give_keys(struct run *r)
{
	struct grant_msg m = { GRANT_KEYS, SHARE_VERSION, (uintptr_t)&page, 0 };
	int table = table_fd();

	pass_message(r->sock, &m, sizeof(m), &table, 1);
	r->granted = true;
}

/* PROVE is answered as an honest peer would, unless another proof was tried. The one
 * descriptor that the library ever sends comes after that. */
static void hear(struct run *r)
{
	struct grant_msg m, answer = { .type = GRANT_PROOF };
	int fds[FDPASS_MAX], n = fdpass_recv(r->sock, &m, sizeof(m), fds, FDPASS_MAX);

	if (n < 0)
		return;
	MUST(n == (m.type == GRANT_KEYS));
	for (int i = 0; i < n; i++)
		close(fds[i]);
	MUST(m.type != GRANT_KEYS || r->proved);
	if (m.type == GRANT_PROOF && m.word == PROOF_WORD)
		give_keys(r);
	if (m.type != GRANT_PROVE || r->tried)
		return;
	MUST(((const struct memid_page *)m.at)->nonce == r->ours.challenge);
	answer.word = ((const struct memid_page *)m.at)->word;
	r->tried = r->proved = true;
	pass_message(r->sock, &answer, sizeof(answer), NULL, 0);
}

/* What a peer would do: learns slots, makes room. A ring that was scribbled full has no
 * end, as nobody clears what lies ahead. */
static void take(struct run *r)
{
	uint32_t bytes;
	uint8_t kind;
	const volatile void *rec;

	for (unsigned n = 0; n < RING_LINES && (rec = ring_peek(&r->rx, &bytes, &kind)); n++) {
		struct rec_link m;

		if (kind == REC_LINK && bytes == sizeof(m)) {
			ring_read(&m, rec, sizeof(m));
			if (m.type == LINK_OPENED)
				r->slot = m.from;
			if (m.type == LINK_OPEN)
				r->from = r->slot = m.from;
		}
		ring_consume(&r->rx, bytes);
	}
}

/* What fetches need may take a little longer. */
static void step(struct run *r)
{
	int turns = r->opened && !(r->how & (F_DEAF | F_UC)) ? GRANT_TURNS : TURNS;

	r->opened = false;
	for (int i = 0; i < turns && (i < TURNS || !r->granted); i++) {
		if (!(r->how & F_DEAF)) {
			take(r);
			hear(r);
		}
		if (!(r->how & F_PASSIVE)) {
			work_reap(&r->w);
			dgrams_reap(r->how & F_LISTEN ? r->qpn : 0);
		}
		sched_yield();
	}
}

static void *storm(void *arg)
{
	struct run *r = arg;
	uint8_t *p = (uint8_t *)r->seg;
	uint32_t x = r->qpn + r->how;

	while (!atomic_load_explicit(&r->calm_down, memory_order_relaxed)) {
		uint32_t at;

		x = x * 1664525u + 1013904223u;
		/* Mostly where something is: indices, and the lines in use. */
		at = x >> 8;
		at %= x & 0x40000000 ? sizeof(*r->seg) : 64 * 64;
		if (x & 0x20000000)
			at += offsetof(struct link_segment, ring[1]);
		__atomic_store_n(p + at % sizeof(*r->seg), (uint8_t)(x >> 16),
				 __ATOMIC_RELAXED);
		/* Now and then: else nothing could be fetched. */
		if (x >> 24 == 0)
			__atomic_store_n(table_byte(x >> 4), (uint8_t)x, __ATOMIC_RELAXED);
	}
	table_fill();
	return NULL;
}

static void act(struct run *r)
{
	uint8_t junk[256], n;

	switch ((enum act)(input_u8(&r->in) % ACTS)) {
	case ACT_LINK:
		act_link(r);
		break;
	case ACT_STREAM:
		act_stream(r);
		break;
	case ACT_RECORD:
		act_record(r);
		break;
	case ACT_SCRIBBLE:
		act_scribble(r);
		break;
	case ACT_INDEX:
		act_index(r);
		break;
	case ACT_WAKE:
		wake(r);
		break;
	case ACT_POST:
		post_one(r);
		break;
	case ACT_TAKE:
		take(r);
		break;
	case ACT_SAY:
		n = input_u8(&r->in);
		input_get(&r->in, junk, n);
		if (send(r->sock, junk, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			MUST(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
		break;
	case ACT_GRANT:
		act_grant(r);
		break;
	case ACT_DGRAM:
		act_dgram(r);
		break;
	case ACT_ANSWER:
		act_answer(r);
		break;
	case ACT_FAIL:
		qp_err(r->w.qp);
		break;
	case ACT_BYE:
		r->in.at = r->in.end;
		break;
	default:
		step(r);
	}
}

/* ---- a run --------------------------------------------------------------------------- */

static void put_keys(uint8_t *p, size_t n)
{
	for (size_t i = 0; i + 4 <= n; i++) {
		uint32_t v;

		memcpy(&v, p + i, 4);
		v -= 0x5a5a5a51;
		if (v > 2)
			continue;
		memcpy(p + i, &dev.mr[v]->rkey, 4);
		i += 3;
	}
}

/* The library has closed its end. */
static void wait_for_end(struct run *r)
{
	double end = now() + PATIENCE_S;
	char junk[256];
	ssize_t n;

	shutdown(r->sock, SHUT_WR);
	do {
		n = recv(r->sock, junk, sizeof(junk), MSG_DONTWAIT);
		MUST(now() < end);
		work_reap(&r->w);
		sched_yield();
	} while (n > 0 || (n < 0 && errno == EAGAIN));
}

static void talk(struct run *r)
{
	pthread_t t;

	table_fd();
	if (r->how & F_STORM)
		MUST(!pthread_create(&t, NULL, storm, r));
	step(r);
	while (!input_over(&r->in))
		act(r);
	step(r);
	atomic_store(&r->calm_down, true);
	if (r->how & F_STORM)
		pthread_join(t, NULL);
}

/* Somebody else on this machine may have the name. */
static int listen_high(unsigned *port)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un un;
	socklen_t len;

	for (*port = HIGH_PORT; *port > HIGH_PORT - HIGH_PORTS; --*port) {
		len = fdpassing_name(*port, &un);
		if (!bind(fd, (struct sockaddr *)&un, len) && !listen(fd, 8))
			return fd;
		MUST(errno == EADDRINUSE);
	}
	MUST(!"a name");
	return -1;
}

static void run(struct run *r)
{
	unsigned port = LOW_PORT;
	int listener = r->how & F_LISTEN ? listen_high(&port) : -1;

	r->qpn = port << 8 | 1;
	r->w.qp = new_qp(r->how & F_UC ? IBV_QPT_UC : IBV_QPT_RC, dev.cq);
	work_recvs(&r->w, r->how & F_FEW_RECVS ? 1 : RECVS);
	connect_qp(r->w.qp, r->qpn, SQ_PSN, RQ_PSN);
	for (int i = 0; i < 6 && r->how & F_REQUESTS; i++)
		post_one(r);
	if (!(r->how & F_LISTEN))
		offer_file(r);
	if (r->how & F_LISTEN ? link_accept(r, listener) : link_connect(r))
		talk(r);
	if (listener >= 0)
		close(listener);
	check_others();
	wait_for_end(r);
	qp_err(r->w.qp);
	work_reap(&r->w);
	MUST(r->w.sends_done == r->w.sends);
	MUST(r->w.recvs_done == r->w.recvs);
	MUST(!ibv_destroy_qp(r->w.qp));
	close(r->sock);
	if (r->wake >= 0)
		close(r->wake);
	munmap(r->seg, sizeof(*r->seg));
	dgrams_over(r->how & F_LISTEN ? r->qpn : 0);
	check_others();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run r = { .wake = -1 };
	uint8_t *bytes;

	if (size < 1 || size > MAX_INPUT)
		return 0;
	if (!dev.ctx)
		open_device();
	bytes = malloc(size);
	MUST(bytes);
	memcpy(bytes, data, size);
	put_keys(bytes + 1, size - 1);
	r.how = bytes[0];
	r.in = (struct input){ bytes + 1, bytes + size };
	run(&r);
	free(bytes);
	return 0;
}
