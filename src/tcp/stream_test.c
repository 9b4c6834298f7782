/* SPDX-License-Identifier: BSD-2-Clause */
/* The peer says what honest peers never say, or says it at the worst moment. */
#include "tcp/mpa.h"
#include "tcp/stream_test.h"

#include <poll.h>

/* ---- cases ------------------------------------------------------------------------ */

/* The answer to a read acknowledges the sends before it, and their completions do
 * not fit the CQ: the QP fails while the answer's payload is on its way. */
static void cq_overruns_when_a_read_is_answered(void)
{
	struct end *e = end_new(2);
	struct rc_frame h = { .op = RC_READ_RESP, .last = true, .stag = 3 };
	double limit = now() + PATIENCE_S;

	for (uint64_t i = 0; i < 3; i++)
		post(e, IBV_WR_SEND, i, 16);
	post(e, IBV_WR_RDMA_READ, 3, 100);
	h.payload = 100;
	say(e, &h);
	while (state_of(e) != IBV_QPS_ERR && now() < limit)
		sched_yield();
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	say_ctl(e, CTL_USER, STREAM_CTL_RTU, 0); /* the stream has outlived it */
	while (!atomic_load(&e->controls) && now() < limit)
		sched_yield();
	CHECK_EQ(e->controls, 1);
	end_free(e);
}

/* A NAK says that everything before it was answered: a read that was not is no
 * success. */
static void refusal_past_an_unanswered_read(void)
{
	struct end *e = end_new(16);
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS };

	post(e, IBV_WR_RDMA_READ, 7, 100);
	post(e, IBV_WR_SEND, 8, 100);
	say_ctl(e, CTL_NAK, NAK_REM_ACCESS, SQ_PSN + 1);
	CHECK(poll_one(e, &wc));
	CHECK_EQ(wc.wr_id, 7);
	CHECK(wc.status != IBV_WC_SUCCESS);
	end_free(e);
}

/* The memory of a read goes away while its answer waits for the socket: the read,
 * not what came after it, is refused, and without being asked again. */
static void memory_gone_before_a_read_is_answered(void)
{
	struct end *e = end_new(16);
	struct rc_frame h;
	uint32_t numbers = RQ_PSN;
	double limit = now() + PATIENCE_S;
	bool all;

	for (uint32_t i = 0; i < 3; i++)
		say_read(e, i + 1, REGION);
	do {
		stream_lock(e->s);
		all = e->s->rx.resp_tail == 3;
		stream_unlock(e->s);
	} while (!all && now() < limit);
	CHECK(!ibv_dereg_mr(mr));
	while (hear(e, &h) && !(h.op == RC_CTL && h.ctl.type == CTL_NAK))
		numbers += h.op == RC_READ_RESP && h.last;
	CHECK_EQ(h.op, RC_CTL);
	CHECK_EQ(h.ctl.code, NAK_REM_ACCESS);
	CHECK_EQ(h.ctl.number, numbers);
	CHECK_EQ(state_of(e), IBV_QPS_ERR);
	end_free(e);
	region_open();
}

/* The QP fails while the only frame of a request is half there. */
static void qp_fails_in_the_middle_of_a_frame(void)
{
	struct end *e = end_new(16);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct rc_frame h = { .op = RC_SEND, .last = true, .msn = 1, .payload = 1000 };
	uint8_t frame[RDMAP_HDR_MAX + 4096];
	size_t n = frame_make(frame, &h);
	double limit = now() + PATIENCE_S;

	post_recv_of(e, 4096);
	say_bytes(e, frame, 500);
	while (now() < limit) { /* until the stream has taken it */
		bool begun;

		stream_lock(e->s);
		begun = to_tcp(e->s)->in_frame;
		stream_unlock(e->s);
		if (begun)
			break;
		sched_yield();
	}
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
	say_bytes(e, frame + 500, n - 500);
	CHECK(hear_ctl(e, CTL_NAK, &h));
	CHECK_EQ(h.ctl.code, NAK_NO_QP);
	CHECK_EQ(h.ctl.number, RQ_PSN);
	end_free(e);
}

/* A peer that sends control messages faster than the CM takes them. */
static void control_messages_are_bounded(void)
{
	struct end *e = end_new(16);
	double limit = now() + PATIENCE_S;
	struct ibv_wc wc;
	enum stream_state st = STREAM_OPEN;
	unsigned queued = 0;
	struct list *l;

	sem_init(&upcalls_allowed, 0, 0);
	atomic_store(&gated, true);
	say_ctl(e, CTL_USER, STREAM_CTL_RTU, 0);
	while (atomic_load(&gated) && now() < limit)
		sched_yield();
	for (int i = 0; i < 2000 && st == STREAM_OPEN; i++) {
		say_ctl(e, CTL_USER, STREAM_CTL_DREQ, 0);
		ibv_poll_cq(e->cq, 1, &wc);
		stream_lock(e->s);
		st = e->s->state;
		stream_unlock(e->s);
	}
	stream_lock(e->s);
	for (l = e->s->up.next; l != &e->s->up; l = l->next)
		queued++;
	stream_unlock(e->s);
	CHECK_EQ(st, STREAM_BROKEN);
	CHECK(queued <= 64);
	sem_post(&upcalls_allowed);
	end_free(e);
}

/* A frame that breaks the stream, though the QP keeps it: the peer hears of it, and does not
 * wait for answers. */
static void a_bad_frame_ends_the_connection(void)
{
	static const uint8_t nonsense[64] = { 0, 60, 0xff, 0xff };
	struct end *e = end_new(16);
	double limit = now() + PATIENCE_S;
	struct ibv_wc wc;
	char byte;
	ssize_t n = -1;

	say_bytes(e, nonsense, sizeof(nonsense));
	while (n < 0 && now() < limit) {
		ibv_poll_cq(e->cq, 1, &wc);
		n = recv(e->peer, &byte, 1, MSG_DONTWAIT);
		if (n < 0 && errno == ECONNRESET)
			n = 0;
	}
	CHECK_EQ(n, 0);
	end_free(e);
}

/* A peer that has the CM answer again and again, and reads nothing. */
static void answers_are_bounded(void)
{
	static const uint8_t data[RC_CTL_DATA];
	struct end *e = end_new(16);
	int ret = 0;

	for (int i = 0; i < 1000000 && !ret; i++) {
		ret = stream_control(e->s, STREAM_CTL_DREP, data, sizeof(data));
		stream_lock(e->s);
		if (!CHECK(e->s->tx.nctl <= RC_CTL_MAX))
			ret = 1;
		stream_unlock(e->s);
	}
	CHECK_EQ(ret, -EPIPE);
	end_free(e);
}

/* One RECV_POSTED is enough, however often a peer that does not read runs into an
 * empty receive queue. */
static void receives_posted_for_a_deaf_peer(void)
{
	struct end *e = end_new(64);
	struct rc_frame h = { .op = RC_SEND, .last = true };
	double limit = now() + PATIENCE_S;
	unsigned queued = 0;
	struct ibv_wc wc;
	struct list *l;

	say_read(e, 1, REGION); /* fills the socket */
	for (uint32_t i = 0; i < 20; i++) {
		bool told = false;

		h.msn = i ? 2 : 1;
		say(e, &h);
		while (!told && now() < limit) {
			stream_lock(e->s);
			told = e->s->rx.rnr_sent;
			stream_unlock(e->s);
		}
		REQUIRE(told);
		post_recv_of(e, 64);
		say_ctl(e, CTL_RESYNC, 0, RQ_PSN + 1 + i);
		h.msn = 1; /* say_ctl() says so */
		say(e, &h);
		REQUIRE(poll_one(e, &wc));
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	}
	stream_lock(e->s);
	for (l = e->s->tx.ctl.next; l != &e->s->tx.ctl; l = l->next)
		queued++;
	stream_unlock(e->s);
	CHECK(queued <= 1);
	end_free(e);
}

/* Nothing was posted: no retry can run out. */
static void idle_qp_waits_for_its_peer(void)
{
	struct end *e = calloc(1, sizeof(*e));
	union ibv_gid dgid;
	struct timespec ts = { 2, 500000000 };

	e->peer = -1;
	qp_init(e, 4, true);
	gid_of_loopback(&dgid, 77);
	qp_rtr(e, gid_index(NULL), &dgid, REMOTE_QPN);
	qp_rts(e);
	/* Time is the point: longer than timeout 1, and than the two seconds at least. */
	nanosleep(&ts, NULL);
	CHECK_EQ(state_of(e), IBV_QPS_RTS);
	end_free(e);
}

/* An RNR wait that ends while the stream closes must not swallow the close. */
static void closes_in_an_rnr_wait(void)
{
	struct end *e = end_new(16);
	double limit = now() + PATIENCE_S;
	struct rc_frame h = { .op = RC_CTL, .last = true };
	struct stream *s = e->s;
	ssize_t k = 0;

	post(e, IBV_WR_SEND, 1, 16);
	h.ctl.type = CTL_NAK;
	h.ctl.timer = 0; /* 655 ms */
	h.ctl.number = SQ_PSN;
	say(e, &h);
	while (now() < limit) {
		bool held;

		stream_lock(s);
		held = s->tx.hold == HOLD_RNR;
		stream_unlock(s);
		if (held)
			break;
	}
	CHECK(!ibv_destroy_qp(e->qp));
	e->qp = NULL;
	stream_release(s);
	/* The peer keeps its end open: the second is enough. */
	while (now() < limit) {
		k = send(e->peer, "", 1, MSG_NOSIGNAL);
		if (k < 0 && errno != EAGAIN)
			break;
		sched_yield();
	}
	CHECK(k < 0 && (errno == EPIPE || errno == ECONNRESET)); /* some of it was not read */
	while (!atomic_load(&e->released) && now() < limit)
		sched_yield();
	CHECK_EQ(e->released, 1);
	e->s = NULL;
	end_free(e);
}

/* ---- against another thread -------------------------------------------------------- */

static atomic_bool racing;

static void *post_all_the_time(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)mem, 16, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND };
	struct ibv_send_wr *bad;

	while (atomic_load(&racing))
		if (ibv_post_send(arg, &wr, &bad))
			sched_yield();
	return NULL;
}

/* Posts the receives that QPs come and go for. */
static void *feed_all_the_time(void *arg)
{
	struct ibv_recv_wr wr = { .num_sge = 0 }, *bad;

	while (atomic_load(&racing))
		if (ibv_post_srq_recv(arg, &wr, &bad))
			sched_yield();
	return NULL;
}

static void stream_for(struct end *e)
{
	struct stream_param p = { .remote_qpn = REMOTE_QPN, .extended = true };
	union ibv_gid dgid;
	int fd[2];

	gid_of_loopback(&dgid, 77);
	p.remote_gid = dgid;
	p.local_qpn = e->qp->qp_num;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd));
	e->peer = fd[0];
	qp_rtr(e, gid_index(NULL), &dgid, REMOTE_QPN);
	CHECK(tcp_open(fd[1], &p, NULL, 0, NULL, NULL)); /* the QP alone holds it */
	qp_rts(e);
}

static void posts_against_reset(void)
{
	struct end *e = calloc(1, sizeof(*e));
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	pthread_t t;

	qp_init(e, 256, true);
	atomic_store(&racing, true);
	CHECK(!pthread_create(&t, NULL, post_all_the_time, e->qp));
	for (int i = 0; i < 1000; i++) {
		stream_for(e);
		CHECK(!ibv_modify_qp(e->qp, &reset, IBV_QP_STATE));
		CHECK(!ibv_modify_qp(e->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
							   IBV_QP_PORT |
							   IBV_QP_ACCESS_FLAGS));
		close(e->peer);
	}
	atomic_store(&racing, false);
	pthread_join(t, NULL);
	e->peer = -1;
	end_free(e);
}

static void srq_posts_against_destroy(void)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 64, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct rc_frame h = { .op = RC_SEND, .last = true };
	pthread_t t;

	REQUIRE(srq);
	atomic_store(&racing, true);
	CHECK(!pthread_create(&t, NULL, feed_all_the_time, srq));
	for (int i = 0; i < 1000; i++) {
		struct end *e = calloc(1, sizeof(*e));

		the_srq = srq;
		qp_init(e, 256, true);
		the_srq = NULL;
		stream_for(e);
		for (h.msn = 1; h.msn < 100; h.msn++)
			say(e, &h);
		end_free(e);
	}
	atomic_store(&racing, false);
	pthread_join(t, NULL);
	CHECK(!ibv_destroy_srq(srq));
}

/* ---- rendezvous -------------------------------------------------------------------- */

/* A connection to the QP's port. */
static int dial(struct end *e)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)(e->qp->qp_num >> 8)),
				 .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(!connect(fd, (struct sockaddr *)&a, sizeof(a)));
	return fd;
}

static int say_hello(struct end *e, const struct mpa_hello *hello)
{
	uint8_t frame[MPA_OURS_MAX];
	int n, fd = dial(e);

	n = mpa_hello_encode(frame, sizeof(frame), hello);
	CHECK(n > 0);
	CHECK_EQ(send(fd, frame, (size_t)n, MSG_NOSIGNAL), n);
	return fd;
}

/* Says HELLO there, for the QP of this number. */
static int hello_to(struct end *e, uint32_t qpn, const union ibv_gid *src,
		    const union ibv_gid *dst)
{
	struct mpa_hello hello = { .mtu = IBV_MTU_1024, .src_qpn = 0x000100, .dst_qpn = qpn,
				   .rq_psn = SQ_PSN };

	memcpy(hello.src_gid, src, 16);
	memcpy(hello.dst_gid, dst, 16);
	return say_hello(e, &hello);
}

static int hello_from(struct end *e, const union ibv_gid *src, const union ibv_gid *dst)
{
	return hello_to(e, e->qp->qp_num, src, dst);
}

/* How the HELLO on fd is answered; -1: not at all. */
static int status_of(int fd)
{
	struct timeval tv = { PATIENCE_S, 0 };
	struct mpa_hello_rep rep;
	struct mpa_frame f;
	uint8_t buf[MPA_FRAME_MAX];
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
	n = recv(fd, buf, sizeof(buf), 0);
	if (n <= 0 || mpa_decode(buf, (size_t)n, &f) <= 0 || mpa_hello_rep_decode(&f, &rep))
		return -1;
	return (int)rep.status;
}

static bool welcome(int fd)
{
	return status_of(fd) == MPA_HELLO_ACCEPTED;
}

/* A HELLO that only asks about the QP of this number. */
static int asked(struct end *e, uint32_t qpn)
{
	struct mpa_hello hello = { .ask = true, .mtu = IBV_MTU_1024, .src_qpn = 0x000100,
				   .dst_qpn = qpn };
	int fd = say_hello(e, &hello), status = status_of(fd);
	char c;

	CHECK_EQ(recv(fd, &c, 1, 0), 0); /* and that is all */
	close(fd);
	return status;
}

static void questions_are_answered_at_once(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct end *e = calloc(1, sizeof(*e));

	qp_init(e, 4, false);
	CHECK_EQ(asked(e, e->qp->qp_num), MPA_HELLO_NOT_READY);
	CHECK_EQ(asked(e, e->qp->qp_num ^ 0x80), MPA_HELLO_NO_QP);
	CHECK_EQ(asked(e, e->qp->qp_num ^ 0x100), MPA_HELLO_NO_QP);
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
	CHECK_EQ(asked(e, e->qp->qp_num), MPA_HELLO_NO_QP);
	a.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE));
	CHECK_EQ(asked(e, e->qp->qp_num), MPA_HELLO_NOT_READY);
	e->peer = -1;
	end_free(e);
}

/* A peer said HELLO, gave up, and comes again, all before our QP is in RTR. */
static void a_hello_left_behind(void)
{
	struct end *e = calloc(1, sizeof(*e));
	union ibv_gid src, dst;

	gid_of_loopback(&src, 0); /* smaller than ours: it connects */
	gid_of_loopback(&dst, 1);
	SKIP_IF(gid_index(&dst) < 0, "127.0.0.1 is not in the GID table");
	qp_init(e, 4, false);
	close(hello_from(e, &src, &dst));
	e->peer = hello_from(e, &src, &dst);
	qp_rtr(e, gid_index(&dst), &src, 0x000100);
	CHECK(welcome(e->peer));
	end_free(e);
}

/* More than are kept, of both sorts; the one that is waited for comes through. */
static void a_crowd_at_the_rendezvous(void)
{
	enum { SILENT = 300, HELLOS = 100 };
	struct end *e = calloc(1, sizeof(*e));
	union ibv_gid src, dst;
	static int fd[SILENT + HELLOS];
	struct pollfd p;

	gid_of_loopback(&src, 0);
	gid_of_loopback(&dst, 1);
	SKIP_IF(gid_index(&dst) < 0, "127.0.0.1 is not in the GID table");
	qp_init(e, 4, false);
	for (int i = 0; i < SILENT; i++)
		fd[i] = dial(e);
	for (int i = SILENT; i < SILENT + HELLOS; i++)
		fd[i] = hello_to(e, e->qp->qp_num ^ 0x80, &src, &dst);
	p = (struct pollfd){ .fd = fd[0], .events = POLLIN };
	CHECK_EQ(poll(&p, 1, PATIENCE_S * 1000), 1); /* the oldest of each sort goes */
	p.fd = fd[SILENT];
	CHECK_EQ(poll(&p, 1, PATIENCE_S * 1000), 1);
	e->peer = hello_from(e, &src, &dst);
	qp_rtr(e, gid_index(&dst), &src, 0x000100);
	CHECK(welcome(e->peer));
	for (int i = 0; i < SILENT + HELLOS; i++)
		close(fd[i]);
	end_free(e);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	if (!device_open()) {
		ok(false, "device");
		return t_done();
	}
	T_RUN(cq_overruns_when_a_read_is_answered);
	T_RUN(refusal_past_an_unanswered_read);
	T_RUN(memory_gone_before_a_read_is_answered);
	T_RUN(qp_fails_in_the_middle_of_a_frame);
	T_RUN(control_messages_are_bounded);
	T_RUN(a_bad_frame_ends_the_connection);
	T_RUN(answers_are_bounded);
	T_RUN(receives_posted_for_a_deaf_peer);
	T_RUN(idle_qp_waits_for_its_peer);
	T_RUN(closes_in_an_rnr_wait);
	T_RUN(posts_against_reset);
	T_RUN(srq_posts_against_destroy);
	T_RUN(a_hello_left_behind);
	T_RUN(a_crowd_at_the_rendezvous);
	T_RUN(questions_are_answered_at_once);
	return t_done();
}
