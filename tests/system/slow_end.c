/* SPDX-License-Identifier: BSD-2-Clause */
/* The end of a QP, of its memory, of its peer or of the process, while a copy stands in the
 * middle, as a page of the application's memory does not come: who takes memory back waits
 * for the copy, and nobody else does. */
#include "late.h"
#include "meanwhile.h"

#include <signal.h>
#include <sys/socket.h>

enum { MIB = 1 << 20, BIG = 4 * MIB, LATE_AT = 2 * MIB, WRS = 4, RECV = 50 };

static struct conf_buf big;
static struct late late;
static struct third third;
static struct peer target;

/* ---- the target ------------------------------------------------------------------------ */

/* What was written is what was posted, byte by byte: nothing that came into the source
 * later. */
static char written(void)
{
	uint8_t *want = malloc(BIG);
	char ok = 'y';

	MUST(want);
	conf_pattern(want, BIG, 7);
	conf_qp_state(far_side[0].qp); /* TSan: as in slow.c */
	for (size_t at = 0; at < BIG; at++)
		if (big.p[at] != want[at] && big.p[at])
			ok = 'n';
	free(want);
	return ok;
}

static void *write_to_case(void *arg)
{
	struct ibv_sge sge = conf_sge(&big, 0, BIG);
	struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1,
					  (void *)(uintptr_t)board->addr[3], board->rkey[3]);

	OK(conf_post(far_side[0].qp, &wr));
	return arg;
}

/* The link to the case and to every other process; this one lives. */
static void break_links(void)
{
	for (int fd = 3; fd < 2048; fd++) {
		int domain = 0;
		socklen_t len = sizeof(domain);

		if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) && domain == AF_UNIX)
			shutdown(fd, SHUT_RDWR);
	}
}

static void command(struct peer *me, char c)
{
	switch (c) {
	case 's':
		conf_pattern(big.p, BIG, 5);
		for (unsigned i = 0; i < WRS; i++)
			OK(conf_send(far_side[0].qp, i, &big, 0, BIG));
		break;
	case 'v':
		peer_say(me, written());
		break;
	case 'w': /* stands in the middle of a write */
		conf_pattern(big.p, BIG, 7);
		late_take(&late, big.p + LATE_AT);
		pthread_detach(conf_thread(write_to_case, NULL));
		late_wanted(&late);
		peer_say(me, 'w');
		break;
	case 'g':
		late_give(&late);
		break;
	case 'b':
		break_links();
		peer_say(me, 'b');
		break;
	default:
		FAIL("no such command: '%c'", c);
	}
}

/* Pair 2 of the board names its memory. */
static void target_serves(struct peer *me, void *arg)
{
	char c;

	(void)arg;
	far_open(1, 2);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	board->addr[2] = (uintptr_t)big.p;
	board->rkey[2] = big.mr->rkey;
	far_meet();
	while ((c = meanwhile_serve(me, &far_side[1])) != 'x')
		command(me, c);
}

/* ---- the case --------------------------------------------------------------------------- */

static void begin(void)
{
	late_need();
	third_start(&third);
	target = far_start(target_serves, NULL);
	far_open(0, 2);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	board->addr[3] = (uintptr_t)big.p;
	board->rkey[3] = big.mr->rkey;
	far_meet();
	third_join(&third);
}

static void end(void)
{
	third_end(&third);
	far_end(&target);
}

enum op { WRITE, READ, RECEIVE };

/* In one call, which returns before it gets to the page. */
static void post_all(enum op op)
{
	struct ibv_sge sge = conf_sge(&big, 0, BIG);
	struct ibv_send_wr wr[WRS];

	for (unsigned i = 0; i < WRS; i++) {
		wr[i] = conf_rdma(i, op == WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge,
				  1, (void *)(uintptr_t)board->addr[2], board->rkey[2]);
		wr[i].next = i + 1 < WRS ? &wr[i + 1] : NULL;
	}
	OK(conf_post(far_side[0].qp, wr));
}

/* WRS requests, of which the first stands. */
static void stand(enum op op)
{
	conf_pattern(big.p, BIG, 7);
	late_take(&late, big.p + LATE_AT);
	if (op != RECEIVE)
		OK(conf_recv(far_side[0].qp, RECV, &far_side[0].b, 0, 100));
	for (unsigned i = 0; i < WRS && op == RECEIVE; i++)
		OK(conf_recv(far_side[0].qp, i, &big, 0, BIG));
	if (op == RECEIVE)
		peer_say(&target, 's');
	else
		post_all(op);
	late_wanted(&late);
}

/* The first may have been done. The others were not, each is told once and in order. */
static void flushed(enum op op, int first)
{
	unsigned n = 0, receives = 0, want = WRS + (op != RECEIVE);
	struct ibv_wc wc;

	for (unsigned i = 0; i < want; i++) {
		conf_wc(far_side[0].cq, &wc);
		if (op != RECEIVE && wc.wr_id == RECV) {
			EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
			receives++;
			continue;
		}
		EQ(wc.wr_id, n);
		EQ(wc.status, n ? IBV_WC_WR_FLUSH_ERR : first);
		n++;
	}
	EQ(n, WRS);
	EQ(receives, op != RECEIVE);
}

/* It is the application's again. */
static void memory_is_ours(enum op op)
{
	memset(big.p, 0xdd, BIG);
	conf_wc_none(far_side[0].cq, CONF_QUIET);
	CHECK(conf_is_fill(big.p, 0xdd, BIG));
	if (op != WRITE)
		return;
	peer_say(&target, 'v');
	peer_hear(&target, 'y');
}

static void others_work(void)
{
	meanwhile_works(&target, &far_side[1]);
	third_works(&third);
}

/* ---- the QP ends ------------------------------------------------------------------------- */

enum how { TO_ERR, TO_RESET, DESTROY };

static atomic_bool ended;

static void *end_qp(void *arg)
{
	enum how how = *(enum how *)arg;

	if (how == DESTROY)
		OK(ibv_destroy_qp(far_side[0].qp));
	else
		EQ(to_state(&far_side[0], how == TO_ERR ? IBV_QPS_ERR : IBV_QPS_RESET), 0);
	atomic_store(&ended, true);
	return NULL;
}

static void qp_ends(enum op op, enum how how)
{
	pthread_t thread;

	begin();
	stand(op);
	thread = conf_thread(end_qp, &how);
	conf_blocked(thread);
	CHECK(!atomic_load(&ended));
	others_work();
	EQ(ibv_poll_cq(far_side[0].cq, 1, &(struct ibv_wc){ 0 }), 0);
	CHECK(!atomic_load(&ended));
	late_give(&late);
	conf_join(thread);
	if (how == TO_ERR)
		flushed(op, IBV_WC_WR_FLUSH_ERR);
	memory_is_ours(op);
	others_work();
	end();
}

static void write_to_err(void)
{
	qp_ends(WRITE, TO_ERR);
}

static void write_to_reset(void)
{
	qp_ends(WRITE, TO_RESET);
}

static void write_destroyed(void)
{
	qp_ends(WRITE, DESTROY);
}

static void read_to_err(void)
{
	qp_ends(READ, TO_ERR);
}

static void read_to_reset(void)
{
	qp_ends(READ, TO_RESET);
}

static void read_destroyed(void)
{
	qp_ends(READ, DESTROY);
}

static void receive_to_err(void)
{
	qp_ends(RECEIVE, TO_ERR);
}

static void receive_to_reset(void)
{
	qp_ends(RECEIVE, TO_RESET);
}

static void receive_destroyed(void)
{
	qp_ends(RECEIVE, DESTROY);
}

static void *to_sqd(void *arg)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1 };

	(void)arg;
	EQ(ibv_modify_qp(far_side[0].qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
	return NULL;
}

/* What was begun ends, and then the queue has drained. */
static void write_to_sqd(void)
{
	begin();
	stand(WRITE);
	conf_join(conf_thread(to_sqd, NULL));
	others_work();
	EQ(ibv_poll_cq(far_side[0].cq, 1, &(struct ibv_wc){ 0 }), 0);
	late_give(&late);
	conf_async(dev.ctx, IBV_EVENT_SQ_DRAINED, far_side[0].qp);
	conf_wc_ok(far_side[0].cq, 0);
	conf_wc_none(far_side[0].cq, CONF_QUIET);
	EQ(to_state(&far_side[0], IBV_QPS_RTS), 0);
	for (unsigned i = 1; i < WRS; i++)
		conf_wc_ok(far_side[0].cq, i);
	end();
}

/* ---- its memory is taken back -------------------------------------------------------------- */

static void memory_goes(enum op op)
{
	struct ibv_wc wc;
	pthread_t thread;

	begin();
	stand(op);
	thread = far_dereg(big.mr);
	conf_blocked(thread);
	others_work();
	EQ(ibv_poll_cq(far_side[0].cq, 1, &wc), 0);
	late_give(&late);
	conf_join(thread);
	conf_wc(far_side[0].cq, &wc); /* the rest of it may still have been possible */
	CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_LOC_PROT_ERR);
	WAIT_FOR(conf_qp_state(far_side[0].qp) == IBV_QPS_ERR);
	conf_settle();
	memset(big.p, 0xdd, BIG);
	conf_settle();
	CHECK(conf_is_fill(big.p, 0xdd, BIG));
	end();
}

static void source_deregistered(void)
{
	memory_goes(WRITE);
}

static void sink_deregistered(void)
{
	memory_goes(READ);
}

static void receive_deregistered(void)
{
	memory_goes(RECEIVE);
}

/* ---- the peer ends ------------------------------------------------------------------------- */

/* Requests fail with the first; receives wait for the application to end the QP. */
static void peer_goes(enum op op, bool killed)
{
	struct ibv_wc wc;

	begin();
	stand(op);
	if (killed) {
		peer_kill(&target);
	} else {
		peer_say(&target, 'b');
		peer_hear(&target, 'b');
	}
	third_works(&third);
	EQ(ibv_poll_cq(far_side[0].cq, 1, &wc), 0);
	late_give(&late);
	if (op != RECEIVE) {
		flushed(op, IBV_WC_RETRY_EXC_ERR);
	} else {
		conf_settle();
		if (ibv_poll_cq(far_side[0].cq, 1, &wc)) { /* all of it was fetched */
			EQ(wc.wr_id, 0);
			EQ(wc.status, IBV_WC_SUCCESS);
			CHECK(conf_pattern_ok(big.p, BIG, 5));
		}
		EQ(to_state(&far_side[0], IBV_QPS_ERR), 0);
	}
	memset(big.p, 0xdd, BIG);
	conf_settle();
	CHECK(conf_is_fill(big.p, 0xdd, BIG));
	third_works(&third);
	if (!killed)
		peer_kill(&target);
	third_end(&third);
}

static void write_killed(void)
{
	peer_goes(WRITE, true);
}

static void read_killed(void)
{
	peer_goes(READ, true);
}

static void receive_killed(void)
{
	peer_goes(RECEIVE, true);
}

static void write_broken(void)
{
	peer_goes(WRITE, false);
}

static void read_broken(void)
{
	peer_goes(READ, false);
}

static void receive_broken(void)
{
	peer_goes(RECEIVE, false);
}

/* ---- the peer stands in our memory ----------------------------------------------------------- */

static char state_of(pid_t pid)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	MUST(f = fopen(path, "re"));
	EQ(fscanf(f, "%*d (%*[^)]) %c", &state), 1);
	fclose(f);
	return state;
}

/* Not all of its threads: the kernel does not stop the one that waits for a page. */
static void stop_others(struct peer *p)
{
	peer_signal(p, SIGSTOP);
	WAIT_FOR(state_of(p->pid) == 'T');
}

/* The peer is stopped in the middle of a write. What takes the memory back waits for it, and
 * nobody else does. */
static void peer_stands(bool dereg, bool killed)
{
	enum how how = DESTROY;
	pthread_t thread;

	begin();
	peer_say(&target, 'w');
	peer_hear(&target, 'w');
	stop_others(&target);
	thread = dereg ? far_dereg(big.mr) : conf_thread(end_qp, &how);
	conf_blocked(thread);
	CHECK(!atomic_load(&ended));
	third_works(&third);
	far_do(1, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_SUCCESS);
	third_works(&third);
	if (killed) {
		peer_kill(&target);
	} else {
		peer_go_on(&target);
		meanwhile_message(&third.peer, &third.s);
		CHECK(!atomic_load(&ended));
		peer_say(&target, 'g');
	}
	conf_join(thread);
	memset(big.p, 0xdd, BIG);
	conf_settle();
	CHECK(conf_is_fill(big.p, 0xdd, BIG));
	if (!killed)
		peer_kill(&target);
	third_works(&third);
	third_end(&third);
}

static void dereg_waits_for_peer(void)
{
	peer_stands(true, false);
}

static void destroy_waits_for_peer(void)
{
	peer_stands(false, false);
}

static void dereg_until_peer_is_killed(void)
{
	peer_stands(true, true);
}

static void destroy_until_peer_is_killed(void)
{
	peer_stands(false, true);
}

/* ---- in frames ------------------------------------------------------------------------------- */

/* Nobody copies while the page is awaited: the end of the QP need not wait for that, and may,
 * to receive what has come. */
static void qp_ends_framed(enum op op, enum how how)
{
	struct ibv_wc wc;
	pthread_t thread;

	begin();
	stand(op);
	thread = conf_thread(end_qp, &how);
	others_work();
	late_give(&late);
	conf_join(thread);
	for (unsigned i = 0; how == TO_ERR && i < WRS + (op != RECEIVE); i++) {
		conf_wc(far_side[0].cq, &wc);
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR || !wc.status);
	}
	memory_is_ours(op);
	others_work();
	end();
}

/* What the kernel has got of the answer to a read is as good as any. */
static void peer_goes_framed(enum op op)
{
	struct ibv_wc wc;

	begin();
	stand(op);
	peer_kill(&target);
	third_works(&third);
	late_give(&late);
	if (op == WRITE) {
		flushed(op, IBV_WC_RETRY_EXC_ERR);
	} else if (op == READ) {
		do
			conf_wc(far_side[0].cq, &wc);
		while (!wc.status);
		EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	} else {
		conf_settle();
		EQ(to_state(&far_side[0], IBV_QPS_ERR), 0);
	}
	memset(big.p, 0xdd, BIG);
	conf_settle();
	CHECK(conf_is_fill(big.p, 0xdd, BIG));
	third_works(&third);
	third_end(&third);
}

#define FRAMED(name, what)                                                       \
	static void ring_##name(void)                                            \
	{                                                                        \
		setenv("ANYRDMA_DIRECT", "off", 1);                              \
		what;                                                            \
	}                                                                        \
	static void tcp_##name(void)                                             \
	{                                                                        \
		far_transport = "tcp";                                           \
		what;                                                            \
	}

FRAMED(write_to_err, qp_ends_framed(WRITE, TO_ERR))
FRAMED(write_to_reset, qp_ends_framed(WRITE, TO_RESET))
FRAMED(write_destroyed, qp_ends_framed(WRITE, DESTROY))
FRAMED(read_to_err, qp_ends_framed(READ, TO_ERR))
FRAMED(read_destroyed, qp_ends_framed(READ, DESTROY))
FRAMED(receive_to_err, qp_ends_framed(RECEIVE, TO_ERR))
FRAMED(receive_to_reset, qp_ends_framed(RECEIVE, TO_RESET))
FRAMED(receive_destroyed, qp_ends_framed(RECEIVE, DESTROY))
FRAMED(source_deregistered, memory_goes(WRITE))
FRAMED(sink_deregistered, memory_goes(READ))
FRAMED(receive_deregistered, memory_goes(RECEIVE))
FRAMED(write_killed, peer_goes_framed(WRITE))
FRAMED(read_killed, peer_goes_framed(READ))
FRAMED(receive_killed, peer_goes_framed(RECEIVE))

/* ---- the process ends ------------------------------------------------------------------------ */

static void target_exits(struct peer *me, void *arg)
{
	(void)arg;
	far_open(1, 1);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	far_meet();
	late_take(&late, big.p + LATE_AT);
	peer_hear(me, 'w');
	pthread_detach(conf_thread(write_to_case, NULL));
	late_wanted(&late);
	OK(conf_recv(far_side[0].qp, 1, &big, 0, BIG)); /* the page is not needed for that */
}

static void exit_does_not_wait(void)
{
#if defined(CONF_SANITIZER) && !defined(CONF_TSAN)
	SKIP("the leak checker waits for all threads");
#endif
	late_need();
	target = far_start(target_exits, NULL);
	far_open(0, 1);
	big = conf_buf(dev.pd, BIG, CONF_RW);
	board->addr[3] = (uintptr_t)big.p;
	board->rkey[3] = big.mr->rkey;
	far_meet();
	peer_say(&target, 'w');
	peer_end(&target);
	conf_buf_free(&big);
}

static const struct conf_case cases[] = {
	CASE(write_to_err),
	CASE(write_to_reset),
	CASE(write_destroyed),
	CASE(read_to_err),
	CASE(read_to_reset),
	CASE(read_destroyed),
	CASE(receive_to_err),
	CASE(receive_to_reset),
	CASE(receive_destroyed),
	CASE(write_to_sqd),
	CASE(source_deregistered),
	CASE(sink_deregistered),
	CASE(receive_deregistered),
	CASE(write_killed),
	CASE(read_killed),
	CASE(receive_killed),
	CASE(write_broken),
	CASE(read_broken),
	CASE(receive_broken),
	CASE(dereg_waits_for_peer),
	CASE(destroy_waits_for_peer),
	CASE(dereg_until_peer_is_killed),
	CASE(destroy_until_peer_is_killed),
	CASE(exit_does_not_wait),
	CASE(ring_write_to_err),
	CASE(ring_write_to_reset),
	CASE(ring_write_destroyed),
	CASE(ring_read_to_err),
	CASE(ring_read_destroyed),
	CASE(ring_receive_to_err),
	CASE(ring_receive_to_reset),
	CASE(ring_receive_destroyed),
	CASE(ring_source_deregistered),
	CASE(ring_sink_deregistered),
	CASE(ring_receive_deregistered),
	CASE(ring_write_killed),
	CASE(ring_read_killed),
	CASE(ring_receive_killed),
	CASE(tcp_write_to_err),
	CASE(tcp_write_to_reset),
	CASE(tcp_write_destroyed),
	CASE(tcp_read_to_err),
	CASE(tcp_read_destroyed),
	CASE(tcp_receive_to_err),
	CASE(tcp_receive_to_reset),
	CASE(tcp_receive_destroyed),
	CASE(tcp_source_deregistered),
	CASE(tcp_sink_deregistered),
	CASE(tcp_receive_deregistered),
	CASE(tcp_write_killed),
	CASE(tcp_read_killed),
	CASE(tcp_receive_killed),
};

CONF_MAIN(cases)
