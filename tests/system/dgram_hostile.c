/* SPDX-License-Identifier: BSD-2-Clause */
/* Hostile senders at the UDP port of a QP: every length, what a QP has sent with each byte
 * changed, cut at each place, or again and again, junk without end; by other users and other
 * addresses. They cost nothing but their own datagrams: a friend's arrive beside them and
 * after them, nothing else is received, and nothing is kept. */
#include "../inuse.h"
#include "numbered.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum {
	RECVS = 256,
	FRAME_MAX = 4096,
	STRANGER = 1234,
	FIRST_PORT = 40000,
	WRONG_QKEY = NUM_QKEY ^ 0x7e7e7e7e,
	BESIDE = 300,	/* a friend's datagrams while the attack lasts, and after it */
	KEPT_KIB = 256,
	BATCH = 64,
};

/* What all processes know. */
static struct {
	_Atomic uint32_t next, got;
	_Atomic uint32_t sent; /* by the attacker */
	uint16_t port;
	uint32_t len;
	uint8_t frame[FRAME_MAX]; /* a datagram to the victim's QP, but for its Q_Key */
} *board;

/* ---- the network ------------------------------------------------------------------------ */

/* One of our own with two ports to be had: the friend's, and the one for which the datagram
 * is made before the victim has it. */
static void own_network(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	char text[32];
	int fd, n;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no network namespace of our own: %s", strerror(errno));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	OK(ioctl(fd, SIOCGIFFLAGS, &ifr));
	ifr.ifr_flags |= IFF_UP;
	OK(ioctl(fd, SIOCSIFFLAGS, &ifr));
	close(fd);
	fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
	n = snprintf(text, sizeof(text), "%d %d", FIRST_PORT, FIRST_PORT + 1);
	if (fd < 0 || write(fd, text, (size_t)n) != n)
		SKIP("the range of ports cannot be set: %s", strerror(errno));
	close(fd);
}

static int udp_socket(const char *from, uint16_t port)
{
	conf_sa sa = conf_parse(from, port);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0);
	OK(bind(fd, SA(sa), sizeof(struct sockaddr_in)));
	return fd;
}

/* The first QP of the port that is not the friend's. */
static void capture(struct numbered *n)
{
	struct ibv_sge sge = conf_sge(&n->b, 0, 100);
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
	ssize_t len;
	int fd;

	board->port = n->qp->qp_num >> 8 == FIRST_PORT ? FIRST_PORT + 1 : FIRST_PORT;
	fd = udp_socket("127.0.0.1", board->port);
	wr.wr.ud.ah = n->ah;
	wr.wr.ud.remote_qpn = (uint32_t)board->port << 8;
	wr.wr.ud.remote_qkey = WRONG_QKEY;
	OK(conf_post(n->qp, &wr));
	conf_wc_ok(n->scq, 1);
	WAIT_FOR(conf_readable(fd));
	len = recv(fd, board->frame, FRAME_MAX, 0);
	CHECK(len > 100);
	board->len = (uint32_t)len;
	close(fd);
}

/* ---- the victim ---------------------------------------------------------------------------- */

/* Orders: m what it has in use, q the end. Between them it receives. */
static void victim(struct peer *me, void *arg)
{
	struct numbered n;

	(void)arg;
	peer_hear(me, 's');
	num_open(&n, RECVS);
	EQ(n.qp->qp_num, (uint32_t)board->port << 8);
	peer_say(me, 'r');
	for (;;) {
		if (num_take(&n)) {
			atomic_store(&board->got, n.got);
			atomic_store(&board->next, n.next[0]);
		} else if (conf_readable(me->in)) {
			if (peer_hear_any(me) == 'q')
				break;
			peer_say_u32(me, (uint32_t)(mallinfo2().uordblks / 1024));
			peer_say_u32(me, (uint32_t)inuse_fds());
		}
	}
	num_free(&n);
	peer_say(me, 'q');
}

/* ---- attackers ------------------------------------------------------------------- */

struct attack {
	void (*run)(int fd, const struct sockaddr *to);
	const char *from;
	bool stranger;
};

/* Whether there is room for it is the receiver's business. */
static void hit(int fd, const struct sockaddr *to, const void *p, size_t len)
{
	if (sendto(fd, p, len, 0, to, sizeof(struct sockaddr_in)) >= 0)
		atomic_fetch_add(&board->sent, 1);
}

static uint8_t junk[65536];

static void every_length_of(int fd, const struct sockaddr *to)
{
	for (unsigned kind = 0; kind < 4; kind++) {
		if (kind < 2)
			memset(junk, kind ? 0xff : 0, sizeof(junk));
		else
			conf_pattern(junk, sizeof(junk), kind);
		if (kind == 3) /* a good header before junk */
			memcpy(junk, board->frame, board->len < 64 ? board->len : 64);
		for (size_t len = 0; len <= 2000; len++)
			hit(fd, to, junk, len);
		for (size_t len = 2001; len <= 65507; len = len * 3 / 2)
			hit(fd, to, junk, len);
		hit(fd, to, junk, 65507);
	}
}

static void changed_frames(int fd, const struct sockaddr *to)
{
	static const uint8_t flip[] = { 0x01, 0x02, 0x10, 0x80, 0xff };
	uint8_t f[FRAME_MAX];

	for (uint32_t i = 0; i < board->len; i++)
		for (unsigned k = 0; k < sizeof(flip); k++) {
			memcpy(f, board->frame, board->len);
			f[i] ^= flip[k];
			hit(fd, to, f, board->len);
		}
	for (uint32_t len = 0; len < board->len; len++)
		hit(fd, to, board->frame, len);
	memset(f, 0, sizeof(f));
	memcpy(f, board->frame, board->len);
	for (uint32_t len = board->len; len < board->len + 600; len++)
		hit(fd, to, f, len);
}

static void flood_with(int fd, const struct sockaddr *to, const uint8_t *p, size_t len)
{
	struct iovec iov = { (void *)(uintptr_t)p, len };
	struct mmsghdr m[BATCH] = { 0 };
	unsigned count = conf_rounds(1000, 20000);

	for (unsigned i = 0; i < BATCH; i++)
		m[i].msg_hdr = (struct msghdr){ .msg_name = (void *)(uintptr_t)to,
						.msg_namelen = sizeof(struct sockaddr_in),
						.msg_iov = &iov, .msg_iovlen = 1 };
	for (unsigned i = 0; i < count; i++)
		atomic_fetch_add(&board->sent, (uint32_t)sendmmsg(fd, m, BATCH, 0));
}

static void junk_without_end(int fd, const struct sockaddr *to)
{
	conf_pattern(junk, sizeof(junk), 9);
	flood_with(fd, to, junk, 100);
}

static void empty_ones_without_end(int fd, const struct sockaddr *to)
{
	flood_with(fd, to, junk, 0);
}

static void again_without_end(int fd, const struct sockaddr *to)
{
	flood_with(fd, to, board->frame, board->len);
}

static void attacker(struct peer *me, void *arg)
{
	const struct attack *k = arg;
	conf_sa to;
	int fd;

	if (k->stranger)
		lab_become(STRANGER);
	peer_hear(me, 'g');
	to = conf_parse("127.0.0.1", board->port);
	fd = udp_socket(k->from, 5000);
	k->run(fd, SA(to));
	peer_say(me, 'd');
}

/* ---- cases ----------------------------------------------------------------------- */

/* So many more of the friend's arrive: what is lost in the flood is not sent again, but others
 * are. */
static void friendly(struct numbered *n, uint32_t *seq, uint32_t count)
{
	uint32_t want = atomic_load(&board->got) + count;

	WAIT_TILL((num_send(n, (uint32_t)board->port << 8, 0, (*seq)++),
		   atomic_load(&board->got) >= want), 3 * CONF_WAIT,
		  "a friend's datagrams do not arrive");
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

static void attacked(const struct attack *k)
{
	struct kept before, after;
	struct peer p, bad;
	struct numbered n;
	uint32_t seq = 0;

	if (!conf_user_device())
		SKIP("there are no sockets below this device");
	if (k->stranger && geteuid())
		SKIP("only root can be somebody else");
	own_network();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(board != MAP_FAILED);
	p = peer_start(victim, NULL);
	bad = peer_start(attacker, (void *)(uintptr_t)k);
	num_open(&n, 8);
	capture(&n);
	peer_say(&p, 's');
	peer_hear(&p, 'r');
	friendly(&n, &seq, BESIDE);
	before = kept(&p);
	peer_say(&bad, 'g');
	while (!conf_readable(bad.in))
		friendly(&n, &seq, 1);
	peer_hear(&bad, 'd');
	CHECK(atomic_load(&board->sent) > 0);
	friendly(&n, &seq, BESIDE);
	after = kept(&p);
	if (after.kib > before.kib + KEPT_KIB || after.fds != before.fds)
		FAIL("%u KiB, %u descriptors; before it %u, %u", after.kib, after.fds, before.kib,
		     before.fds);
	peer_end(&bad);
	peer_say(&p, 'q');
	peer_hear(&p, 'q');
	peer_end(&p);
	num_free(&n);
}

#define ATTACK(name, fn, from, stranger)                                         \
	static void name(void)                                                   \
	{                                                                        \
		attacked(&(struct attack){ fn, from, stranger });                \
	}
ATTACK(every_length, every_length_of, "127.0.0.1", false)
ATTACK(changed, changed_frames, "127.0.0.1", false)
ATTACK(changed_by_strangers, changed_frames, "127.9.9.9", true)
ATTACK(junk_flood, junk_without_end, "127.0.0.1", false)
ATTACK(junk_flood_by_strangers, junk_without_end, "127.9.9.9", true)
ATTACK(empty_flood, empty_ones_without_end, "127.0.0.1", false)
ATTACK(replayed, again_without_end, "127.0.0.1", false)

static const struct conf_case cases[] = {
	LONG_CASE(every_length, 60),
	LONG_CASE(changed, 60),
	LONG_CASE(changed_by_strangers, 60),
	LONG_CASE(junk_flood, 60),
	LONG_CASE(junk_flood_by_strangers, 60),
	LONG_CASE(empty_flood, 60),
	LONG_CASE(replayed, 60),
};
CONF_MAIN(cases)
