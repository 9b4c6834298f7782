/* SPDX-License-Identifier: BSD-2-Clause */
/* fork() and exec() of a process that uses the library. */
#include "../inuse.h"
#include "lab.h"
#include "side.h"

#include <sys/wait.h>

static struct conf_pair c;
static struct conf_buf b;

static void start(void)
{
	conf_pair_open(&c, &(struct conf_opt){ .abuf = &b, .len = 65536 });
}

static void works(void)
{
	struct ibv_sge sge = conf_sge(&b, 0, 1000);
	struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, b.p + 8192, b.mr->rkey);

	for (int i = 0; i < 20; i++) {
		OK(conf_post(c.a->qp, &wr));
		conf_wc_ok(c.a->send_cq, 1);
	}
	OK(conf_recv(c.p->qp, 2, &b, 16384, 1000));
	wr = conf_wr(3, IBV_WR_SEND, &sge, 1);
	OK(conf_post(c.a->qp, &wr));
	conf_wc_ok(c.a->send_cq, 3);
	conf_wc_ok(c.p->recv_cq, 2);
}

static void wait_child(pid_t pid)
{
	int status;

	AT("waiting for a child");
	EQ(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		FAIL("the child ended with %#x", status);
}

/* A child that does nothing and exits, as system(3) or daemon helpers. */
static void child_that_exits(void)
{
	pid_t pid;

	start();
	works();
	pid = fork();
	if (!pid)
		_exit(0);
	wait_child(pid);
	works();
	conf_quiet(c.ach, 50);
	conf_pair_close(&c);
}

/* ... with exit(3), destructors and all. */
static void child_that_exits_properly(void)
{
	pid_t pid;

#ifdef CONF_SANITIZER
	SKIP("a leak checker in the child of a process with threads sees ghosts");
#endif
	start();
	fflush(NULL);
	pid = fork();
	if (!pid)
		exit(0);
	wait_child(pid);
	works();
	conf_quiet(c.ach, 50);
	conf_pair_close(&c);
}

/* ... while its parent polls, and owes an acknowledgement. */
static void child_of_a_poller(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct ibv_wc wc;
	pid_t pid;

#ifdef CONF_SANITIZER
	SKIP("a leak checker in the child of a process with threads sees ghosts");
#endif
	start();
	sge = conf_sge(&b, 0, 1000);
	fflush(NULL);
	for (int i = 0; i < 20; i++) {
		OK(conf_recv(c.p->qp, 2, &b, 16384, 1000));
		for (int k = 0; k < 2000; k++) /* so that it counts as one who polls */
			EQ(ibv_poll_cq(c.p->recv_cq, 1, &wc), 0);
		wr = conf_wr(3, IBV_WR_SEND, &sge, 1);
		OK(conf_post(c.a->qp, &wr));
		conf_wc_ok(c.p->recv_cq, 2);
		pid = fork();
		if (!pid)
			exit(0);
		wait_child(pid);
		conf_wc_ok(c.a->send_cq, 3);
	}
	conf_pair_close(&c);
}

/* A child that frees what it inherited harms nobody. */
static void child_that_destroys(void)
{
	pid_t pid;

	start();
	pid = fork();
	if (!pid) {
		rdma_destroy_qp(c.a);
		if (rdma_destroy_id(c.a) || rdma_destroy_id(c.listener))
			_exit(1);
		rdma_destroy_event_channel(c.ach);
		_exit(0);
	}
	wait_child(pid);
	works();
	conf_quiet(c.ach, 50);
	conf_quiet(c.lch, 50);
	conf_pair_close(&c);
}

/* A child that goes on using it is told that it cannot. */
static void child_that_uses(void)
{
	struct rdma_conn_param param = conf_param();
	conf_sa dst = conf_addr(AF_INET, 7000);
	pid_t pid;

	start();
	pid = fork();
	if (!pid) {
		struct ibv_sge sge = conf_sge(&b, 0, 10);
		struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1);
		struct rdma_cm_event *ev;

		if (!conf_post(c.a->qp, &wr))
			_exit(1);
		if (rdma_disconnect(c.a) != -1 || errno != ENODEV)
			_exit(2);
		if (rdma_accept(c.p, &param) != -1)
			_exit(3);
		if (rdma_resolve_addr(c.a, NULL, SA(dst), 1000) != -1)
			_exit(4);
		if (rdma_get_cm_event(c.ach, &ev) != -1)
			_exit(5);
		_exit(0);
	}
	wait_child(pid);
	works();
	conf_quiet(c.lch, 50);
	conf_pair_close(&c);
}

/* A child must not keep a port, a listener or a connection of its parent alive. */
static void child_that_outlives(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *again, *id;
	int hold[2], there[2];
	conf_sa addr;
	pid_t pid;
	char x;

	start();
	addr = conf_listen_addr(c.listener);
	OK(pipe(hold));
	OK(pipe(there));
	pid = fork();
	if (!pid) {
		close(hold[1]);
		if (write(there[1], "", 1) != 1)
			_exit(2);
		_exit(read(hold[0], &x, 1) != 0);
	}
	close(hold[0]);
	EQ(read(there[0], &x, 1), 1); /* until it runs it has what we had */
	OK(rdma_destroy_id(c.listener));
	c.listener = NULL;
	id = conf_route_resolved(c.ach, addr);
	conf_qp(id, 4);
	OK(rdma_connect(id, &param));
	conf_expect_status(c.ach, id, RDMA_CM_EVENT_REJECTED, 8);
	conf_id_free(id);
	again = conf_id(c.lch);
	OK(rdma_bind_addr(again, SA(addr)));
	OK(rdma_listen(again, 1));
	OK(rdma_destroy_id(again));
	conf_id_free(c.a);
	c.a = NULL;
	conf_expect(c.lch, c.p, RDMA_CM_EVENT_DISCONNECTED);
	close(hold[1]);
	wait_child(pid);
	rdma_destroy_qp(c.p);
	conf_buf_free(&b);
	conf_pair_free(&c);
}

/* The peer of a killed process hears of it though a child of it lives. */
static void forking_server(struct peer *me, void *arg)
{
	struct end s;

	(void)arg;
	end_serve(&s, me);
	if (!fork()) {
		peer_say(me, 'f');
		pause();
	}
	pause();
}

static void child_of_a_killed_peer(void)
{
	struct peer p = peer_start(forking_server, NULL);
	struct end e;

	end_join(&e, &p);
	peer_hear(&p, 'f');
	peer_kill(&p); /* its child ends with the case's process group */
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
}

/* A program started by exec gets none of our descriptors. */
static void exec_inherits_nothing(void)
{
	int before = inuse_fds(), out[2], n = 0;
	char text[4096];
	pid_t pid;
	ssize_t len;

	start();
	works();
	CHECK(inuse_fds() > before);
	OK(pipe(out));
	pid = fork();
	if (!pid) {
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl("/bin/ls", "ls", "/proc/self/fd", (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	len = read(out[0], text, sizeof(text));
	wait_child(pid);
	for (ssize_t i = 0; i < len; i++)
		n += text[i] == '\n';
	/* ls sees one more: the one by which it reads the folder. */
	if (n > before + 1)
		FAIL("%d descriptors after exec, %d before the library was used", n,
		     before);
	conf_pair_close(&c);
}

/* ---- verbs ---------------------------------------------------------------------- */

static struct side x, y;

static void sides(void)
{
	side_pair_with(&x, &y,
		       (struct side_opt){ .send_ops = IBV_QP_EX_WITH_SEND,
					  .wc_flags = IBV_WC_STANDARD_FLAGS,
					  .channel = true },
		       (struct side_opt){ .srq = true });
}

/* x writes to y. */
static void sides_work(uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, 30000);
	struct ibv_send_wr wr =
		conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, y.b.p, y.b.mr->rkey);

	conf_pattern(x.b.p, 30000, seed);
	OK(conf_post(x.qp, &wr));
	conf_wc_ok(x.cq, 1);
	CHECK(conf_pattern_ok(y.b.p, 30000, seed));
}

/* Nothing is pinned, so there is nothing to be prepared. */
static void initialization(void)
{
	open_device();
	if (!conf_user_device())
		SKIP("it depends on the kernel");
	EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	EQ(ibv_fork_init(), 0); /* though a device is open */
	EQ(ibv_fork_init(), 0);
	EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	close_device();
	EQ(ibv_fork_init(), 0);
}

/* In the child; the number of the first call that does not answer as it should. */
static int calls_that_fail(void)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, 10);
	struct ibv_send_wr wr = conf_wr(1, IBV_WR_SEND, &sge, 1), *bad;
	struct ibv_recv_wr rwr = { 0 }, *rbad;
	struct ibv_poll_cq_attr pa = { 0 };
	struct ibv_device_attr_ex dx;
	struct ibv_async_event ev;
	struct ibv_qp_init_attr qa = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	struct ibv_port_attr port;
	struct ibv_wc wc;

	if (ibv_post_send(x.qp, &wr, &bad) != ENODEV || bad != &wr)
		return 1;
	if (ibv_post_srq_recv(y.srq, &rwr, &rbad) != ENODEV || rbad != &rwr)
		return 2;
	if (ibv_poll_cq(y.cq, 1, &wc) >= 0 || ibv_start_poll(x.cqx, &pa) != ENODEV)
		return 3;
	ibv_wr_start(x.qpx);
	ibv_wr_send(x.qpx);
	ibv_wr_set_sge(x.qpx, x.b.mr->lkey, (uintptr_t)x.b.p, 10);
	if (ibv_wr_complete(x.qpx) != ENODEV)
		return 4;
	if (ibv_req_notify_cq(x.cq, 0) != ENODEV)
		return 5;
	if (ibv_modify_qp(x.qp, &a, IBV_QP_STATE) != ENODEV)
		return 6;
	if (ibv_query_device_ex(dev.ctx, NULL, &dx) != ENODEV ||
	    ibv_query_port(dev.ctx, 1, &port) != ENODEV)
		return 7;
	if (ibv_alloc_pd(dev.ctx) || errno != ENODEV)
		return 8;
	if (ibv_reg_mr(dev.pd, x.b.p, 100, 0) || errno != ENODEV)
		return 9;
	if (ibv_create_cq(dev.ctx, 1, NULL, NULL, 0) || errno != ENODEV)
		return 10;
	if (ibv_create_qp(dev.pd, &qa) || errno != ENODEV)
		return 11;
	if (ibv_get_async_event(dev.ctx, &ev) != -1 || errno != ENODEV)
		return 12;
	return 0;
}

static int destroys_that_succeed(void)
{
	if (ibv_destroy_qp(x.qp) || ibv_destroy_qp(y.qp) || ibv_destroy_srq(y.srq))
		return 21;
	if (ibv_destroy_cq(x.cq) || ibv_destroy_cq(y.cq))
		return 22;
	if (ibv_destroy_comp_channel(x.ch))
		return 23;
	if (ibv_dereg_mr(x.b.mr) || ibv_dereg_mr(y.b.mr) || ibv_dealloc_pd(dev.pd))
		return 24;
	return ibv_close_device(dev.ctx) ? 25 : 0;
}

static void child_that_uses_verbs(void)
{
	pid_t pid;

	if (!conf_user_device())
		SKIP("undefined elsewhere");
	sides();
	sides_work(1);
	pid = fork();
	if (!pid) {
		int r = calls_that_fail();

		_exit(r ? r : destroys_that_succeed());
	}
	wait_child(pid);
	sides_work(2);
	side_pair_free(&x, &y);
}

/* Forked between ibv_wr_start and ibv_wr_complete, by the same thread. */
static void child_within_a_region(void)
{
	pid_t pid;

	if (!conf_user_device())
		SKIP("undefined elsewhere");
	sides();
	ibv_wr_start(x.qpx);
	ibv_wr_send(x.qpx);
	pid = fork();
	if (!pid) {
		ibv_wr_send(x.qpx);
		_exit(ibv_wr_complete(x.qpx) != ENODEV);
	}
	wait_child(pid);
	ibv_wr_abort(x.qpx);
	sides_work(1);
	side_pair_free(&x, &y);
}

/* The child's copy of registered memory is its own; the parent's stays the one that
 * the device reads and writes, whoever writes first after the fork. */
static void memory_of_a_child(void)
{
	int go[2], said[2];
	char c1 = 0;
	pid_t pid;

	sides();
	sides_work(1);
	OK(pipe(go));
	OK(pipe(said));
	pid = fork();
	if (!pid) {
		memset(x.b.p, 0xee, 30000); /* before the parent uses it */
		if (write(said[1], "x", 1) != 1 || read(go[0], &c1, 1) != 1)
			_exit(1);
		/* What the device wrote meanwhile is not seen here. */
		_exit(!conf_pattern_ok(y.b.p, 30000, 1) || !conf_is_fill(x.b.p, 0xee, 30000));
	}
	EQ(read(said[0], &c1, 1), 1);
	CHECK(conf_pattern_ok(x.b.p, 30000, 1));
	for (uint32_t i = 2; i < 10; i++)
		sides_work(i);
	EQ(write(go[1], "x", 1), 1);
	wait_child(pid);
	side_pair_free(&x, &y);
}

/* ---- a busy parent ---------------------------------------------------------------- */

static atomic_bool enough;

static void *busy(void *arg)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, 2000);
	struct ibv_send_wr wr =
		conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, y.b.p, y.b.mr->rkey), *bad;
	struct ibv_wc wc;

	(void)arg;
	while (!atomic_load(&enough)) {
		struct ibv_mr *mr = ibv_reg_mr(dev.pd, x.b.p, 4096, IBV_ACCESS_LOCAL_WRITE);

		if (!mr || ibv_post_send(x.qp, &wr, &bad))
			abort();
		while (!ibv_poll_cq(x.cq, 1, &wc))
			;
		if (wc.status || ibv_dereg_mr(mr))
			abort();
	}
	return NULL;
}

/* Whatever locks the other threads hold at that moment, no child hangs on them. */
static void children_of_a_busy_parent(void)
{
	pthread_t t;

	if (!conf_user_device())
		SKIP("undefined elsewhere");
#ifdef CONF_TSAN
	SKIP("TSan does not follow a fork with threads");
#endif
	sides();
	t = conf_thread(busy, NULL);
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();

		if (!pid) {
			int r = calls_that_fail();

			_exit(r ? r : destroys_that_succeed());
		}
		wait_child(pid);
	}
	atomic_store(&enough, true);
	conf_join(t);
	sides_work(3);
	side_pair_free(&x, &y);
}

/* ---- children that have a device -------------------------------------------------- */

/* In a child (or grandchild): everything works as in a process that has just begun. conf.h
 * ends the process with a status if something does not. */
static void begins_anew(void)
{
	struct side u, v;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	memset(&dev, 0, sizeof(dev)); /* the parent's */
	memset(&c, 0, sizeof(c));
	memset(&b, 0, sizeof(b));
	start();
	works();
	conf_pair_close(&c);

	side_pair_with(&u, &v, (struct side_opt){ .channel = true },
		       (struct side_opt){ .srq = true });
	sge = conf_sge(&u.b, 0, 30000);
	wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, v.b.p, v.b.mr->rkey);
	conf_pattern(u.b.p, 30000, 7);
	OK(conf_post(u.qp, &wr));
	conf_wc_ok(u.cq, 1);
	CHECK(conf_pattern_ok(v.b.p, 30000, 7));
	side_pair_free(&u, &v);
}

static void needs_threads_in_a_child(void)
{
	if (!conf_user_device())
		SKIP("undefined elsewhere");
#ifdef CONF_TSAN
	SKIP("TSan ends a child that starts threads");
#endif
}

static void child_has_a_device(void)
{
	pid_t pid;

	needs_threads_in_a_child();
	start();
	works();
	pid = fork();
	if (!pid) {
		begins_anew();
		_exit(0);
	}
	works(); /* both at once */
	wait_child(pid);
	works();
	conf_pair_close(&c);
}

static void grandchild_has_a_device(void)
{
	pid_t pid;

	needs_threads_in_a_child();
	start();
	works();
	pid = fork();
	if (!pid) {
		struct conf_pair parents = c;

		begins_anew();
		start();
		pid = fork();
		if (!pid) {
			begins_anew();
			_exit(rdma_disconnect(parents.a) != -1 || errno != ENODEV);
		}
		works();
		wait_child(pid);
		works();
		conf_pair_close(&c);
		_exit(0);
	}
	wait_child(pid);
	works();
	conf_pair_close(&c);
}

/* Objects of the parent are refused beside the child's own, too. */
static int mixed_calls(const struct side *old_x, struct ibv_pd *old_pd,
		       struct ibv_context *old)
{
	struct ibv_qp_init_attr qa = { .qp_type = IBV_QPT_RC, .cap = { 1, 1, 1, 1, 0 } };
	struct ibv_cq *cq;

	if (!(cq = ibv_create_cq(dev.ctx, 4, NULL, NULL, 0)))
		return 31;
	qa.send_cq = cq;
	qa.recv_cq = old_x->cq;
	if (ibv_create_qp(dev.pd, &qa) || errno != ENODEV)
		return 32;
	if (ibv_create_cq(dev.ctx, 4, NULL, old_x->ch, 0) || errno != ENODEV)
		return 33;
	qa.recv_cq = cq;
	if (ibv_create_qp(old_pd, &qa) || errno != ENODEV)
		return 34;
	if (ibv_alloc_pd(old) || errno != ENODEV)
		return 35;
	return ibv_destroy_cq(cq) ? 36 : 0;
}

static void objects_of_both(void)
{
	pid_t pid;

	needs_threads_in_a_child();
	sides();
	sides_work(1);
	pid = fork();
	if (!pid) {
		struct ibv_context *old = dev.ctx;
		struct ibv_pd *pd = dev.pd;
		int r;

		begins_anew();
		open_device();
		r = mixed_calls(&x, pd, old);
		close_device();
		dev.ctx = old;
		dev.pd = pd;
		r = r ? r : calls_that_fail();
		_exit(r ? r : destroys_that_succeed());
	}
	wait_child(pid);
	sides_work(2);
	side_pair_free(&x, &y);
}

/* A server that listens, forks, and lets the child listen on the port that it gave up. */
static void child_that_takes_over(void)
{
	conf_sa addr;
	pid_t pid;

	needs_threads_in_a_child();
	start();
	addr = conf_listen_addr(c.listener);
	conf_pair_close(&c);
	pid = fork();
	if (!pid) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct rdma_cm_id *id = NULL;

		if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP))
			_exit(1);
		if (rdma_bind_addr(id, SA(addr)) || rdma_listen(id, 1))
			_exit(2);
		if (rdma_destroy_id(id))
			_exit(3);
		rdma_destroy_event_channel(ch);
		_exit(0);
	}
	wait_child(pid);
}

static void forker(struct peer *me, void *arg)
{
	struct end s;
	pid_t pid;

	(void)arg;
	start(); /* it has used the device */
	works();
	pid = fork();
	if (!pid) {
		memset(&dev, 0, sizeof(dev));
		end_serve(&s, me);
		peer_await(me, 'q');
		end_free(&s);
		_exit(0);
	}
	wait_child(pid);
	conf_pair_close(&c);
	peer_say(me, 'd');
}

/* A child serves another process: links between them are made anew. */
static void child_that_serves(void)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	struct peer p;
	struct end e;

	needs_threads_in_a_child();
	p = peer_start(forker, NULL);
	end_join(&e, &p);
	sge = conf_sge(&e.buf, 0, 4096);
	for (uint64_t i = 0; i < 32; i++) {
		wr = conf_wr(i, IBV_WR_SEND, &sge, 1);
		OK(conf_post(e.id->qp, &wr));
		conf_wc_ok(e.id->send_cq, i);
	}
	peer_say(&p, 'q');
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
	peer_hear(&p, 'd');
}

/* Channels, ids and listeners, without an end. */
static void *busy_with_the_cm(void *arg)
{
	conf_sa any = conf_addr(AF_INET, 0);

	(void)arg;
	while (!atomic_load(&enough)) {
		struct rdma_event_channel *ch = rdma_create_event_channel();
		struct rdma_cm_id *id;

		if (!ch || rdma_create_id(ch, &id, NULL, RDMA_PS_TCP) ||
		    rdma_bind_addr(id, SA(any)) || rdma_listen(id, 1) || rdma_destroy_id(id))
			abort();
		rdma_destroy_event_channel(ch);
	}
	return NULL;
}

/* ... whatever the other threads of the parent were doing. */
static void devices_of_a_busy_parent(void)
{
	struct ibv_context *old;
	pthread_t t, u;

	needs_threads_in_a_child();
	sides();
	old = dev.ctx;
	t = conf_thread(busy, NULL);
	u = conf_thread(busy_with_the_cm, NULL);
	for (unsigned i = 0; i < conf_rounds(20, 200); i++) {
		pid_t pid = fork();

		if (!pid) {
			begins_anew();
			_exit(ibv_close_device(old) != 0);
		}
		wait_child(pid);
	}
	atomic_store(&enough, true);
	conf_join(t);
	conf_join(u);
	sides_work(3);
	side_pair_free(&x, &y);
}

/* ---- children that begin ---------------------------------------------------------- */

/* Nothing was used before the fork: parent and child have a device each. */
static void fork_before_use(void)
{
	pid_t pid = fork();

	sides();
	for (uint32_t i = 0; i < 5; i++)
		sides_work(i);
	side_pair_free(&x, &y);
	if (!pid)
		_exit(0);
	wait_child(pid);
}

/* A program that is started by a process with an open device has one of its own. */
static void program_of_a_child(void)
{
	int r;

	if (!conf_user_device())
		SKIP("of the user-space device");
#ifdef CONF_SANITIZER
	SKIP("a program without the sanitizer cannot load the library");
#endif
	sides();
	sides_work(1);
	r = system("ibv_devices 2>/dev/null | grep -q anyrdma0");
	if (WIFEXITED(r) && WEXITSTATUS(r) == 127)
		SKIP("no ibv_devices");
	EQ(r, 0);
	sides_work(2);
	side_pair_free(&x, &y);
}

static const struct conf_case cases[] = {
	CASE(child_that_exits),
	CASE(child_that_exits_properly),
	CASE(child_of_a_poller),
	CASE(child_that_destroys),
	CASE(child_that_uses),
	CASE(child_that_outlives),
	CASE(child_of_a_killed_peer),
	CASE(exec_inherits_nothing),
	CASE(initialization),
	CASE(child_that_uses_verbs),
	CASE(child_within_a_region),
	CASE(memory_of_a_child),
	CASE(children_of_a_busy_parent),
	CASE(child_has_a_device),
	CASE(grandchild_has_a_device),
	CASE(objects_of_both),
	CASE(child_that_takes_over),
	CASE(child_that_serves),
	CASE(devices_of_a_busy_parent),
	CASE(fork_before_use),
	CASE(program_of_a_child),
};

CONF_MAIN(cases)
