/* SPDX-License-Identifier: BSD-2-Clause */
/* Datagrams between processes: the order while the way changes, receivers that are stopped,
 * die and come back in another process, and fork. Datagrams may be lost; nothing else. */
#include "numbered.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { RECVS = 256, WINDOW = 64, MOST = 8, STOPS = 200 };

/* What all processes know. */
static struct {
	_Atomic uint32_t qpn[MOST];
	_Atomic uint32_t got[MOST][NUM_FLOWS]; /* the next number that may come */
	_Atomic uint32_t taken[MOST];
	_Atomic bool over;
} *board;

static void start(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(board != MAP_FAILED);
}

static void tell(struct numbered *n, unsigned who)
{
	/* Before what the sender waits for. */
	atomic_store(&board->taken[who], n->got);
	for (unsigned i = 0; i < NUM_FLOWS; i++)
		atomic_store(&board->got[who][i], n->next[i]);
}

/* A receiver, number `who`: until it is over. */
static void receiver(struct peer *me, void *who)
{
	unsigned w = (unsigned)(uintptr_t)who;
	struct numbered n;

	num_open(&n, RECVS);
	atomic_store(&board->qpn[w], n.qp->qp_num);
	peer_say(me, 'r');
	while (!atomic_load(&board->over))
		if (num_take(&n))
			tell(&n, w);
		else
			usleep(20); /* there are more of us than processors */
	num_free(&n);
	peer_say(me, 'q');
}

static void receiver_later(struct peer *me, void *who)
{
	peer_hear(me, 's');
	receiver(me, who);
}

/* Numbers of a flow to receiver w from *seq on, until it has them all or, where loss is
 * allowed, the last of them. So many are under way at most. */
static void numbers(struct numbered *n, unsigned w, unsigned flow, uint32_t *seq,
		    uint32_t count)
{
	uint32_t qpn = atomic_load(&board->qpn[w]), end = *seq + count;

	for (; *seq < end; ++*seq) {
		WAIT_FOR(*seq < atomic_load(&board->got[w][flow]) + WINDOW);
		num_send(n, qpn, flow, *seq);
	}
	WAIT_FOR(atomic_load(&board->got[w][flow]) == end);
}

static void finish(struct peer *p, unsigned n)
{
	atomic_store(&board->over, true);
	for (unsigned i = 0; i < n; i++) {
		peer_hear(&p[i], 'q');
		peer_end(&p[i]);
	}
}

/* ---- order ------------------------------------------------------------------------ */

/* From the first post on, when nothing is known of the receiver yet: where there is a link to
 * be had, the way changes meanwhile. With so few under way nothing is lost on one host. */
static void from_the_first_on(void)
{
	struct numbered n;
	struct peer p;
	uint32_t seq = 0;

	start();
	p = peer_start(receiver, (void *)0);
	num_open(&n, RECVS);
	peer_hear(&p, 'r');
	numbers(&n, 0, 0, &seq, conf_rounds(5000, 200000));
	EQ(atomic_load(&board->taken[0]), seq);
	num_free(&n);
	finish(&p, 1);
}

/* As before, with pauses in which the way may change while nothing moves. */
static void with_pauses(void)
{
	struct numbered n;
	struct peer p;
	uint32_t seq = 0;

	start();
	p = peer_start(receiver, (void *)0);
	num_open(&n, RECVS);
	peer_hear(&p, 'r');
	for (unsigned i = 0; i < 50; i++) {
		numbers(&n, 0, 0, &seq, 1 + i % 7);
		usleep(i * 200); /* time is the point */
	}
	EQ(atomic_load(&board->taken[0]), seq);
	num_free(&n);
	finish(&p, 1);
}

/* Many pairs of processes that meet for the first time, over and over. */
static void many_first_posts(void)
{
	struct peer p[MOST];
	uint32_t seq[MOST] = { 0 };
	struct numbered n;

	start();
	for (uintptr_t i = 0; i < MOST; i++)
		p[i] = peer_start(receiver, (void *)i);
	num_open(&n, RECVS);
	for (unsigned i = 0; i < MOST; i++)
		peer_hear(&p[i], 'r');
	for (unsigned round = 0; round < 20; round++)
		for (unsigned i = 0; i < MOST; i++)
			numbers(&n, i, i, &seq[i], 20);
	for (unsigned i = 0; i < MOST; i++)
		EQ(atomic_load(&board->taken[i]), seq[i]);
	num_free(&n);
	finish(p, MOST);
}

/* Several QPs send to one: each keeps its order, with nobody to wait for. */
static void flows_of_several_qps(void)
{
	struct numbered n[4];
	struct peer p;
	uint32_t count = conf_rounds(2000, 50000);

	start();
	p = peer_start(receiver, (void *)0);
	for (int i = 0; i < 4; i++)
		num_open(&n[i], 8);
	peer_hear(&p, 'r');
	for (uint32_t seq = 0; seq < count; seq++)
		for (unsigned i = 0; i < 4; i++) {
			WAIT_FOR(seq < atomic_load(&board->got[0][i]) + WINDOW / 4);
			num_send(&n[i], atomic_load(&board->qpn[0]), i, seq);
		}
	for (int i = 0; i < 4; i++)
		WAIT_FOR(atomic_load(&board->got[0][i]) == count);
	EQ(atomic_load(&board->taken[0]), 4 * count);
	for (int i = 0; i < 4; i++)
		num_free(&n[i]);
	finish(&p, 1);
}

/* Both send as fast as they can, nobody waits, and much is lost. */
static void flood_each_other(struct numbered *n, uint32_t qpn, unsigned flow)
{
	uint32_t count = conf_rounds(20000, 1000000);

	for (uint32_t seq = 0; seq < count; seq++) {
		num_send(n, qpn, flow, seq);
		if (seq % 16 == 0)
			while (num_take(n))
				;
	}
}

static void other_flooder(struct peer *me, void *arg)
{
	struct numbered n;

	(void)arg;
	num_open(&n, RECVS);
	peer_say_u32(me, n.qp->qp_num);
	flood_each_other(&n, peer_hear_u32(me), 1);
	peer_say(me, 'd');
	peer_hear(me, 'd');
	while (num_take(&n))
		;
	CHECK(n.got > 0);
	num_free(&n);
}

static void without_waiting(void)
{
	struct numbered n;
	struct peer p = peer_start(other_flooder, NULL);

	num_open(&n, RECVS);
	peer_say_u32(&p, n.qp->qp_num);
	flood_each_other(&n, peer_hear_u32(&p), 0);
	peer_say(&p, 'd');
	peer_hear(&p, 'd');
	while (num_take(&n))
		;
	CHECK(n.got > 0);
	num_free(&n);
	peer_end(&p);
}

/* ---- receivers that stand still or end -------------------------------------------------- */

/* Sending goes on while the receiver is stopped; what it then gets is in order, and what is
 * sent afterwards arrives. */
static void stopped_receiver(void)
{
	struct numbered n;
	struct peer p;
	uint32_t seq = 0, more = conf_rounds(20000, 500000), end;

	start();
	p = peer_start(receiver, (void *)0);
	num_open(&n, RECVS);
	peer_hear(&p, 'r');
	numbers(&n, 0, 0, &seq, 500);
	peer_stop(&p);
	for (end = seq + more; seq < end; seq++)
		num_send(&n, atomic_load(&board->qpn[0]), 0, seq);
	peer_go_on(&p);
	WAIT_TILL((num_send(&n, atomic_load(&board->qpn[0]), 0, seq++),
		   atomic_load(&board->got[0][0]) > end), CONF_WAIT,
		  "nothing arrives after the receiver goes on");
	num_free(&n);
	finish(&p, 1);
}

/* Stopped before it was ever sent to: links cannot be made then. */
static void stopped_before_the_first(void)
{
	struct numbered n;
	struct peer p;
	uint32_t seq = 0;

	start();
	p = peer_start(receiver, (void *)0);
	num_open(&n, RECVS);
	peer_hear(&p, 'r');
	peer_stop(&p);
	for (; seq < 1000; seq++)
		num_send(&n, atomic_load(&board->qpn[0]), 0, seq);
	peer_go_on(&p);
	WAIT_TILL((num_send(&n, atomic_load(&board->qpn[0]), 0, seq++),
		   atomic_load(&board->got[0][0]) > 1000), CONF_WAIT,
		  "nothing arrives after the receiver goes on");
	num_free(&n);
	finish(&p, 1);
}

/* Stopped for a while soon after the first datagram, when the way may be changing: what went
 * the old way, and waits there, comes before what goes the new one. */
static void stopped_while_the_way_changes(void)
{
	unsigned rounds = conf_rounds(24, STOPS);
	struct peer peers[STOPS], p;
	struct numbered n;

	start();
	for (unsigned i = 0; i < rounds; i++)
		peers[i] = peer_start(receiver_later, NULL);
	num_open(&n, RECVS);
	for (unsigned i = 0; i < rounds; i++) {
		uint32_t seq = 0, qpn;

		atomic_store(&board->over, false);
		atomic_store(&board->got[0][0], 0);
		p = peers[i];
		peer_say(&p, 's');
		peer_hear(&p, 'r');
		qpn = atomic_load(&board->qpn[0]);
		for (; seq < 1 + i % 6; seq++)
			num_send(&n, qpn, 0, seq);
		usleep(i / 6 * 150); /* time is the point, here and below */
		peer_stop(&p);
		for (int k = 0; k < 60; k++) {
			num_send(&n, qpn, 0, seq++);
			usleep(1000);
		}
		peer_go_on(&p);
		numbers(&n, 0, 0, &seq, 100);
		finish(&p, 1);
	}
	num_free(&n);
}

/* Who sends hears nothing of a receiver's death; another one is reached as before. */
static void killed_receiver(void)
{
	struct numbered n;
	struct peer p[2];
	uint32_t seq[2] = { 0 };

	start();
	for (uintptr_t i = 0; i < 2; i++)
		p[i] = peer_start(receiver, (void *)i);
	num_open(&n, RECVS);
	peer_hear(&p[0], 'r');
	peer_hear(&p[1], 'r');
	for (unsigned i = 0; i < 2; i++)
		numbers(&n, i, i, &seq[i], 100);
	peer_kill(&p[0]);
	for (int i = 0; i < 1000; i++) {
		num_send(&n, atomic_load(&board->qpn[0]), 0, seq[0]++);
		if (i % 10 == 0)
			numbers(&n, 1, 1, &seq[1], 10);
	}
	EQ(atomic_load(&board->taken[1]), seq[1]);
	EQ(conf_qp_state(n.qp), IBV_QPS_RTS);
	num_free(&n);
	finish(&p[1], 1);
}

/* A sender that dies in the middle of a flow harms nobody. */
static void sender(struct peer *me, void *arg)
{
	struct numbered n;
	uint32_t seq = 0;

	(void)arg;
	num_open(&n, 8);
	peer_say(me, 'r');
	for (;;)
		num_send(&n, atomic_load(&board->qpn[0]), 1, seq++);
}

static void killed_sender(void)
{
	struct numbered n;
	struct peer p, s;
	uint32_t seq = 0;

	start();
	p = peer_start(receiver, (void *)0);
	peer_hear(&p, 'r');
	s = peer_start(sender, NULL);
	peer_hear(&s, 'r');
	WAIT_FOR(atomic_load(&board->got[0][1]) > 50);
	peer_kill(&s);
	num_open(&n, RECVS);
	numbers(&n, 0, 0, &seq, 1000);
	num_free(&n);
	finish(&p, 1);
}

/* ---- the same number in another process ---------------------------------------------------- */

/* A network of our own in which there are two ports to be had, which two processes have. */
static void two_ports(void)
{
	struct ifreq ifr = { .ifr_name = "lo" };
	int fd;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		SKIP("no network namespace of our own: %s", strerror(errno));
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(fd >= 0);
	OK(ioctl(fd, SIOCGIFFLAGS, &ifr));
	ifr.ifr_flags |= IFF_UP;
	OK(ioctl(fd, SIOCSIFFLAGS, &ifr));
	close(fd);
	fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "40000 40001", 11) != 11)
		SKIP("the range of ports cannot be set: %s", strerror(errno));
	close(fd);
}

/* A receiver ends or is killed, and another process gets its QP number: it is reached. */
static void same_number(bool kill)
{
	uint32_t first, seq = 0;
	struct numbered n;
	struct peer p;

#ifdef CONF_TSAN
	SKIP("TSan: no new threads in a child of threads");
#endif
	if (!conf_user_device())
		SKIP("QP numbers are not ports here");
	two_ports();
	start();
	p = peer_start(receiver, (void *)0);
	peer_hear(&p, 'r');
	first = atomic_load(&board->qpn[0]);
	num_open(&n, RECVS);
	numbers(&n, 0, 0, &seq, 200);
	if (kill)
		peer_kill(&p);
	else
		finish(&p, 1);
	num_send(&n, first, 0, seq++);
	atomic_store(&board->over, false);
	p = peer_start(receiver, (void *)1);
	peer_hear(&p, 'r');
	EQ(atomic_load(&board->qpn[1]), first);
	WAIT_TILL((num_send(&n, first, 0, seq++), atomic_load(&board->got[1][0]) > 0), CONF_WAIT,
		  "the process that has the number now is not reached");
	num_free(&n);
	finish(&p, 1);
}

static void same_number_after_a_kill(void)
{
	same_number(true);
}

static void same_number_after_an_end(void)
{
	same_number(false);
}

/* ---- fork ---------------------------------------------------------------------------------- */

/* The child's QP is another one; the parent's does not work there, and goes on here. */
static void forked(void)
{
	struct numbered n, c;
	uint32_t seq = 0;
	struct peer p;
	pid_t pid;
	int status;

#ifdef CONF_TSAN
	SKIP("TSan: no new threads in a child of threads");
#endif
	if (!conf_user_device())
		SKIP("the child has the parent's device");
	start();
	p = peer_start(receiver, (void *)0);
	peer_hear(&p, 'r');
	num_open(&n, RECVS);
	numbers(&n, 0, 0, &seq, 500);
	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct ibv_sge sge = conf_sge(&n.b, 0, 64);
		struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);

		wr.wr.ud.ah = n.ah;
		wr.wr.ud.remote_qpn = atomic_load(&board->qpn[0]);
		wr.wr.ud.remote_qkey = NUM_QKEY;
		if (!conf_post(n.qp, &wr))
			_exit(1);
		num_open(&c, RECVS);
		if (c.qp->qp_num == n.qp->qp_num)
			_exit(2);
		seq = 0;
		numbers(&c, 0, 2, &seq, 500);
		num_free(&n); /* destroying what was the parent's succeeds */
		num_free(&c);
		_exit(0);
	}
	numbers(&n, 0, 0, &seq, 500); /* beside the child's */
	EQ(waitpid(pid, &status, 0), pid);
	EQ(status, 0);
	numbers(&n, 0, 0, &seq, 500);
	EQ(atomic_load(&board->taken[0]), seq + 500);
	num_free(&n);
	finish(&p, 1);
}

static const struct conf_case cases[] = {
	CASE(from_the_first_on),
	CASE(with_pauses),
	CASE(many_first_posts),
	CASE(flows_of_several_qps),
	CASE(without_waiting),
	CASE(stopped_receiver),
	CASE(stopped_before_the_first),
	LONG_CASE(stopped_while_the_way_changes, 60),
	CASE(killed_receiver),
	CASE(killed_sender),
	CASE(same_number_after_a_kill),
	CASE(same_number_after_an_end),
	CASE(forked),
};
CONF_MAIN(cases)
