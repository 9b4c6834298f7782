/* SPDX-License-Identifier: BSD-2-Clause */
/* dgram [BYTES]: millions of datagrams a second that one UD QP receives from another process, each
 * on a core of its own, both polling. perftest counts what was sent, and waits for ever for
 * what is lost. ANYRDMA_TRANSPORT=tcp: over UDP. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	DEPTH = 512,
	CHAIN = 16, /* work requests of one call */
	ROOM = 40 + 4096,
	QKEY = 0x11111111,
	WARM_MS = 300,
	SLOT_MS = 500,
	ALARM_S = 60,
};

static struct shared {
	_Atomic uint32_t qpn; /* of the receiver, once it receives */
	_Alignas(128) _Atomic uint64_t arrived;
	_Alignas(128) _Atomic int done;
} *sh;

struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *mem;
	union ibv_gid gid; /* of 127.0.0.1 */
	int gid_index;
};

static uint32_t bytes = 64;

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void find_gid(struct side *s)
{
	static const uint8_t loopback[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };

	for (s->gid_index = 0; !ibv_query_gid(s->ctx, 1, s->gid_index, &s->gid); s->gid_index++)
		if (!memcmp(s->gid.raw, loopback, sizeof(loopback)))
			return;
	die("no GID of 127.0.0.1");
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };

	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		die("INIT");
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE))
		die("RTR");
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN))
		die("RTS");
}

static void side_open(struct side *s, int core)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD,
					 .cap = { DEPTH, DEPTH, 1, 1, 0 } };
	struct ibv_device **list = ibv_get_device_list(NULL);
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
	alarm(ALARM_S);
	s->ctx = list && list[0] ? ibv_open_device(list[0]) : NULL;
	s->pd = s->ctx ? ibv_alloc_pd(s->ctx) : NULL;
	s->cq = s->pd ? ibv_create_cq(s->ctx, 2 * DEPTH, NULL, NULL, 0) : NULL;
	s->mem = calloc(DEPTH, ROOM);
	if (!s->cq || !s->mem)
		die("a device");
	init.send_cq = init.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &init);
	s->mr = ibv_reg_mr(s->pd, s->mem, (size_t)DEPTH * ROOM, IBV_ACCESS_LOCAL_WRITE);
	if (!s->qp || !s->mr)
		die("a UD QP");
	find_gid(s);
	to_rts(s->qp);
}

static void post_recvs(struct side *s, const uint64_t *slot, int n)
{
	struct ibv_recv_wr wr[CHAIN], *bad;
	struct ibv_sge sge[CHAIN];

	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){ (uintptr_t)s->mem + slot[i] * ROOM, ROOM, s->mr->lkey };
		wr[i] = (struct ibv_recv_wr){ .wr_id = slot[i], .sg_list = &sge[i], .num_sge = 1,
					      .next = i + 1 < n ? &wr[i + 1] : NULL };
	}
	if (ibv_post_recv(s->qp, wr, &bad))
		die("ibv_post_recv");
}

static int receiver(void)
{
	struct ibv_wc wc[CHAIN];
	uint64_t slot[CHAIN];
	struct side s;

	side_open(&s, 1);
	for (uint64_t i = 0; i < DEPTH; i++)
		post_recvs(&s, &i, 1);
	atomic_store(&sh->qpn, s.qp->qp_num);
	while (!atomic_load_explicit(&sh->done, memory_order_relaxed)) {
		int n = ibv_poll_cq(s.cq, CHAIN, wc);

		for (int i = 0; i < n; i++) {
			if (wc[i].status != IBV_WC_SUCCESS || wc[i].byte_len != 40 + bytes)
				die("a receive");
			slot[i] = wc[i].wr_id;
		}
		if (n > 0) {
			post_recvs(&s, slot, n);
			atomic_fetch_add(&sh->arrived, (uint64_t)n);
		}
	}
	return 0;
}

/* Sends for so many milliseconds, with half of the send queue under way at most. */
static void send_for(struct side *s, struct ibv_ah *ah, unsigned ms)
{
	struct ibv_sge sge = { (uintptr_t)s->mem, bytes, s->mr->lkey };
	struct ibv_send_wr wr[CHAIN] = { 0 }, *bad;
	double end = now() + ms * 1e-3;
	unsigned out = 0;
	struct ibv_wc wc;

	for (int i = 0; i < CHAIN; i++)
		wr[i] = (struct ibv_send_wr){
			.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
			.send_flags = i + 1 < CHAIN ? 0 : IBV_SEND_SIGNALED,
			.next = i + 1 < CHAIN ? &wr[i + 1] : NULL,
			.wr.ud = { ah, atomic_load(&sh->qpn), QKEY },
		};
	while (now() < end || out) {
		if (now() < end && out < DEPTH / CHAIN / 2) {
			if (ibv_post_send(s->qp, wr, &bad))
				die("ibv_post_send");
			out++;
		}
		while (ibv_poll_cq(s->cq, 1, &wc) == 1) {
			if (wc.status != IBV_WC_SUCCESS)
				die("a send");
			out--;
		}
	}
}

int main(int argc, char **argv)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };
	struct ibv_ah *ah;
	uint64_t before;
	struct side s;
	double begin;
	pid_t pid;

	if (argc > 1)
		bytes = (uint32_t)strtoul(argv[1], NULL, 0);
	if (bytes < 1 || bytes > ROOM - 40)
		return 2;
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED)
		die("mmap");
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		_exit(receiver());
	side_open(&s, 0);
	while (!atomic_load(&sh->qpn))
		sched_yield();
	to.grh.dgid = s.gid;
	to.grh.sgid_index = (uint8_t)s.gid_index;
	ah = ibv_create_ah(s.pd, &to);
	if (!ah)
		die("ibv_create_ah");
	send_for(&s, ah, WARM_MS);
	before = atomic_load(&sh->arrived);
	begin = now();
	send_for(&s, ah, SLOT_MS);
	printf("%.4f\n", (double)(atomic_load(&sh->arrived) - before) / (now() - begin) / 1e6);
	atomic_store(&sh->done, 1);
	waitpid(pid, NULL, 0);
	return 0;
}
