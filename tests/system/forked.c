/* SPDX-License-Identifier: BSD-2-Clause */
/* fork() and exec() of a process that uses the library. */
#include "lab.h"

#include <dirent.h>
#include <sys/wait.h>

static struct conf_pair c;
static struct conf_buf b;

static void start(void)
{
	conf_pair_open(&c, NULL);
	b = conf_buf(c.a->pd, 65536, CONF_RW);
}

static void stop(void)
{
	conf_pair_disconnect(&c);
	rdma_destroy_qp(c.a);
	rdma_destroy_qp(c.p);
	conf_buf_free(&b);
	conf_pair_free(&c);
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
	stop();
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
	stop();
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
	stop();
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
	stop();
}

/* A child must not keep a port, a listener or a connection of its parent alive. */
static void child_that_outlives(void)
{
	struct rdma_conn_param param = conf_param();
	struct rdma_cm_id *again, *id;
	int hold[2];
	conf_sa addr;
	pid_t pid;
	char x;

	start();
	addr = conf_listen_addr(c.listener);
	OK(pipe(hold));
	pid = fork();
	if (!pid) {
		close(hold[1]);
		_exit(read(hold[0], &x, 1) != 0);
	}
	close(hold[0]);
	OK(rdma_destroy_id(c.listener));
	c.listener = NULL;
	id = conf_route_resolved(c.ach, addr);
	conf_qp(id, 4);
	OK(rdma_connect(id, &param));
	conf_expect_status(c.ach, id, RDMA_CM_EVENT_REJECTED, 8);
	rdma_destroy_qp(id);
	OK(rdma_destroy_id(id));
	again = conf_id(c.lch);
	OK(rdma_bind_addr(again, SA(addr)));
	OK(rdma_listen(again, 1));
	OK(rdma_destroy_id(again));
	rdma_destroy_qp(c.a);
	OK(rdma_destroy_id(c.a));
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
	end_listen(&s, me);
	end_request(&s);
	end_accept(&s, true);
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

	end_connect(&e, peer_hear_u32(&p));
	end_established(&e);
	peer_hear(&p, 'f');
	peer_kill(&p); /* its child ends with the case's process group */
	conf_expect(e.ch, e.id, RDMA_CM_EVENT_DISCONNECTED);
	end_free(&e);
}

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* A program started by exec gets none of our descriptors. */
static void exec_inherits_nothing(void)
{
	int before = open_fds(), out[2], n = 0;
	char text[4096];
	pid_t pid;
	ssize_t len;

	start();
	works();
	CHECK(open_fds() > before);
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
	/* ls sees one more, its own; open_fds counted ".", ".." and its own. */
	if (n > before - 3 + 1)
		FAIL("%d descriptors after exec, %d before the library was used", n, before - 3);
	stop();
}

static const struct conf_case cases[] = {
	CASE(child_that_exits),
	CASE(child_that_exits_properly),
	CASE(child_that_destroys),
	CASE(child_that_uses),
	CASE(child_that_outlives),
	CASE(child_of_a_killed_peer),
	CASE(exec_inherits_nothing),
};

CONF_MAIN(cases)
