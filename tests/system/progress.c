/* SPDX-License-Identifier: BSD-2-Clause */
/* Two processes that poll exchange messages over shared memory without a system call. */
#include "far.h"

enum { RECEIVES = 8, SIZE = 64 };

static unsigned received;

/* Reads and writes of this process, which are the calls that wake and that are woken. */
static uint64_t calls(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n, sum = 0;
	char line[128];

	if (!f)
		SKIP("the kernel does not count calls");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "syscr: %llu", &n) == 1 || sscanf(line, "syscw: %llu", &n) == 1)
			sum += n;
	fclose(f);
	return sum;
}

static void post_recv(void)
{
	OK(conf_recv(far_side[0].qp, 2, &far_side[0].b, 4096, SIZE));
}

/* Polls without a pause. */
static void receive(unsigned upto)
{
	struct ibv_wc wc;

	AT("polling");
	while (received < upto) {
		if (!ibv_poll_cq(far_side[0].cq, 1, &wc))
			continue;
		EQ(wc.status, IBV_WC_SUCCESS);
		if (wc.opcode != IBV_WC_RECV)
			continue;
		received++;
		post_recv();
	}
}

static void send_one(void)
{
	OK(conf_send(far_side[0].qp, 1, &far_side[0].b, 0, SIZE));
}

static void to_and_fro(bool begin, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (begin)
			send_one();
		receive(received + 1);
		if (!begin)
			send_one();
	}
}

/* One pair of those that share the link plays. */
static void play(int who, unsigned pairs)
{
	unsigned n = conf_ms(1) > 1 ? 2000 : 20000;
	uint64_t before;

	far_open(who, pairs);
	for (unsigned i = 0; i < RECEIVES; i++)
		post_recv();
	far_meet();
	to_and_fro(!who, n / 10); /* until both count as ones who poll */
	before = calls();
	to_and_fro(!who, n);
	before = calls() - before;
	/* Who has no processor for a while is asleep for the other: a few. */
	if (before > n / 4)
		FAIL("%llu calls for %u messages", (unsigned long long)before, 2 * n);
	far_meet();
}

static void target_plays(struct peer *me, void *arg)
{
	(void)me;
	play(1, *(unsigned *)arg);
}

static void both_play(unsigned pairs)
{
	struct peer t = far_start(target_plays, &pairs);

	play(0, pairs);
	peer_end(&t);
}

static void no_call_for_a_message(void)
{
	both_play(1);
}

/* Each pair has a CQ of its own. */
static void no_call_with_many_cqs(void)
{
	both_play(FAR_PAIRS);
}

static const struct conf_case cases[] = {
	CASE(no_call_for_a_message),
	CASE(no_call_with_many_cqs),
};

CONF_MAIN(cases)
