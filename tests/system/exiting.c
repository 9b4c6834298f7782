/* SPDX-License-Identifier: BSD-2-Clause */
/* A signal handler that calls exit(), as programs have one for SIGINT, while the thread
 * that it interrupts posts and polls: whatever lock that thread holds, the process ends. */
#include "lab.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { SIZE = 256, RECEIVES = 16 };

static void on_alarm(int sig)
{
	(void)sig;
	exit(0);
}

static void answer(struct ibv_cq *cq, struct rdma_cm_id *id, struct conf_buf *b)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 1) {
		EQ(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		OK(conf_recv(id->qp, 1, b, SIZE, SIZE));
		OK(conf_send(id->qp, 2, b, 0, SIZE));
	}
}

/* Never returns. after: microseconds from the first message on. */
static void play(long after)
{
	struct conf_buf ab, pb;
	struct conf_opt opt = { .wr = RECEIVES, .abuf = &ab, .pbuf = &pb, .len = 2 * SIZE };
	struct itimerval t = { .it_value.tv_usec = after };
	struct conf_pair c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	conf_pair_open(&c, &opt);
	for (int i = 0; i < RECEIVES / 2; i++) {
		OK(conf_recv(c.a->qp, 1, &ab, SIZE, SIZE));
		OK(conf_recv(c.p->qp, 1, &pb, SIZE, SIZE));
	}
	signal(SIGALRM, on_alarm);
	OK(setitimer(ITIMER_REAL, &t, NULL));
	for (int i = 0; i < RECEIVES / 4; i++)
		OK(conf_send(c.a->qp, 2, &ab, 0, SIZE));
	for (;;) {
		answer(c.p->recv_cq, c.p, &pb);
		answer(c.a->recv_cq, c.a, &ab);
		answer(c.p->send_cq, c.p, &pb);
		answer(c.a->send_cq, c.a, &ab);
	}
}

static bool ended(pid_t pid, int *status)
{
	return waitpid(pid, status, WNOHANG) == pid;
}

static void in_a_signal_handler(void)
{
	unsigned rounds = conf_rounds(150, 2000);

	for (unsigned i = 0; i < rounds; i++) {
		pid_t pid = fork();
		int status;

		CHECK(pid >= 0);
		if (!pid)
			play(500 + (long)(i * 37 % 3000));
		WAIT_TILL(ended(pid, &status), CONF_WAIT, "process %u of %u does not end", i,
			  rounds);
		EQ(status, 0);
	}
}

static const struct conf_case cases[] = {
	LONG_CASE(in_a_signal_handler, 120),
};
CONF_MAIN(cases)
