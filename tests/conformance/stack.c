/* SPDX-License-Identifier: BSD-2-Clause */
/* How much stack the calls of the fast path use. Programs with many coroutines give each a
 * few KiB, and post and poll there. */
#include "side.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

enum {
	STACK = 256 * 1024,
	ENOUGH = 64 * 1024, /* of it is painted: more than any call can use */
	MOST = 4096,
	PAINT = 0xa5,
	OWN = 256, /* more than the frame of paint() */
	SGES = 16,
};

static struct side x, y;
static ucontext_t outside, inside;
static void (*routine)(void);
static const char *call_name; /* of the call that was measured last */
static size_t call_most, post_most, poll_most;

static volatile uint8_t *top; /* where a call begins that is made in place of paint() */

/* Overwrites everything below its own frame, byte by byte, as memset() has one, too. */
__attribute__((noinline)) static void paint(void)
{
	top = __builtin_frame_address(0);
	for (size_t i = OWN; i < ENOUGH; i++)
		top[-(ptrdiff_t)i] = PAINT;
}

/* Bytes below `top` that were used since paint(). */
static size_t painted_over(void)
{
	size_t n = ENOUGH - 1;

	while (n >= OWN && top[-(ptrdiff_t)n] == PAINT)
		n--;
	return n;
}

static void note(size_t *most, const char *name)
{
	size_t n = painted_over();

	if (n > *most)
		*most = n;
	if (n > call_most) {
		call_most = n;
		call_name = name;
	}
}

static void measured_post(struct ibv_qp *qp, struct ibv_send_wr *wr, const char *name)
{
	struct ibv_send_wr *bad;
	int ret;

	paint();
	ret = ibv_post_send(qp, wr, &bad);
	note(&post_most, name);
	EQ(ret, 0);
}

static void measured_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int ret;

	paint();
	ret = ibv_post_recv(qp, wr, &bad);
	note(&post_most, "ibv_post_recv");
	EQ(ret, 0);
}

static int measured_poll(struct ibv_cq *cq, struct ibv_wc *wc, const char *name)
{
	int n;

	paint();
	n = ibv_poll_cq(cq, 1, wc);
	note(&poll_most, name);
	return n;
}

/* Polls both sides until each has had so many completions. */
static void measured_wait(int nx, int ny, int status, const char *name)
{
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;
	struct ibv_wc wc;

	while (nx || ny) {
		if (nx && measured_poll(x.cq, &wc, name)) {
			EQ(wc.status, status);
			nx--;
		}
		if (measured_poll(y.cq, &wc, name)) {
			CHECK(ny--);
			EQ(wc.status, IBV_WC_SUCCESS);
		}
		if (conf_now() > end)
			FAIL("%s: no completion", name);
	}
}

/* len bytes in n pieces of each side's memory. */
static void request(int op, size_t len, int n, const char *name)
{
	struct ibv_sge sx[SGES], sy[SGES];
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = sy, .num_sge = n };
	struct ibv_send_wr wr = conf_rdma(1, op, sx, n, y.b.p, y.b.mr->rkey);
	bool receives = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM ||
			op == IBV_WR_RDMA_WRITE_WITH_IMM;

	for (int i = 0; i < n; i++) {
		sx[i] = conf_sge(&x.b, len / n * i, len / n);
		sy[i] = conf_sge(&y.b, len / n * i, len / n);
	}
	if (len <= 64 && op != IBV_WR_RDMA_READ && op < IBV_WR_ATOMIC_CMP_AND_SWP)
		wr.send_flags |= IBV_SEND_INLINE;
	if (receives)
		measured_recv(y.qp, &recv);
	measured_post(x.qp, &wr, name);
	measured_wait(1, receives, IBV_WC_SUCCESS, name);
}

/* A list of requests that are posted and polled for at once. */
static void chain(size_t len)
{
	struct ibv_send_wr wr[8];
	struct ibv_sge sge[8];

	for (int i = 0; i < 8; i++) {
		sge[i] = conf_sge(&x.b, 0, len);
		wr[i] = conf_rdma(i, i % 4 == 3 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				  &sge[i], 1, y.b.p, y.b.mr->rkey);
		wr[i].next = i < 7 ? &wr[i + 1] : NULL;
	}
	measured_post(x.qp, wr, "a chain");
	measured_wait(8, 0, IBV_WC_SUCCESS, "a chain");
}

static int threads(void)
{
	DIR *d = opendir("/proc/self/task");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Threads for large copies have ended, and new ones are needed. */
static void threads_begin_anew(int before)
{
	for (int i = 0; i < 3; i++) {
		WAIT_FOR(threads() <= before);
		chain((1 << 20) - 1);
	}
}

static void requests(void)
{
	static const size_t sizes[] = { 1, 64, 256, 512, 2048, 4096, 16384, 100000, 1 << 20 };

	const int before = threads();

	for (int round = 0; round < 20; round++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
			size_t len = sizes[i];

			for (int n = 1; n <= SGES && n <= (int)len; n += SGES - 1) {
				request(IBV_WR_SEND, len, n, "a send");
				request(IBV_WR_SEND_WITH_IMM, len, n,
					"a send with immediate");
				request(IBV_WR_RDMA_WRITE, len, n, "a write");
				request(IBV_WR_RDMA_WRITE_WITH_IMM, len, n,
					"a write with immediate");
				request(IBV_WR_RDMA_READ, len, n, "a read");
			}
			request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, "an atomic");
			chain(len / 8 + 1);
		}
	threads_begin_anew(before);
}

/* The request fails here, and the QP with it. The connection is made before. */
static void failing_request(void)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, 100);
	struct ibv_send_wr wr[2] = { conf_wr(1, IBV_WR_SEND, &sge, 1),
				     conf_wr(2, IBV_WR_SEND, &sge, 1) };
	struct ibv_wc wc;

	request(IBV_WR_SEND, 100, 1, "a send");
	sge.lkey ^= 0x100;
	wr[0].next = &wr[1];
	measured_post(x.qp, wr, "a bad key");
	while (!measured_poll(x.cq, &wc, "a bad key"))
		;
	EQ(wc.status, IBV_WC_LOC_PROT_ERR);
	while (!measured_poll(x.cq, &wc, "a bad key"))
		;
	EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

/* The request is refused there, and both QPs fail. */
static void refused_request(void)
{
	struct ibv_sge sge = conf_sge(&x.b, 0, 100000);
	struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, y.b.p,
					  y.b.mr->rkey ^ 0x100);

	request(IBV_WR_SEND, 100, 1, "a send");
	measured_post(x.qp, &wr, "a refused key");
	measured_wait(1, 0, IBV_WC_REM_ACCESS_ERR, "a refused key");
}

/* The memory of a large request is not there. A copy of ours may fault: the kernel puts
 * the frame of the signal, of some KiB, on the stack, unless there is one for signals. */
static void unmapped_request(void)
{
	static uint8_t stack[64 * 1024];
	const stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct ibv_sge sge = conf_sge(&x.b, 0, 200000);
	struct ibv_send_wr wr = conf_rdma(1, IBV_WR_RDMA_WRITE, &sge, 1, y.b.p,
					  y.b.mr->rkey);
	const uintptr_t page = 4096, lo = ((uintptr_t)x.b.p + page - 1) & ~(page - 1);

	request(IBV_WR_SEND, 100, 1, "a send");
	OK(sigaltstack(&ss, NULL));
	OK(mprotect((void *)lo, 100 * page, PROT_NONE));
	measured_post(x.qp, &wr, "unmapped memory");
	measured_wait(1, 0, IBV_WC_LOC_PROT_ERR, "unmapped memory");
	OK(mprotect((void *)lo, 100 * page, PROT_READ | PROT_WRITE));
}

static void enter(void)
{
	routine();
	swapcontext(&inside, &outside);
}

static void on_own_stack(void (*fn)(void))
{
	uint8_t *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(stack != MAP_FAILED);
	routine = fn;
	OK(getcontext(&inside));
	inside.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = STACK };
	makecontext(&inside, enter, 0);
	OK(swapcontext(&outside, &inside));
	munmap(stack, STACK);
}

static void measure(void (*fn)(void))
{
	struct side_opt o = { .sge = SGES, .recv_sge = SGES, .inline_data = 64 };

	if (!conf_user_device())
		SKIP("of the user-space device");
#ifdef CONF_SANITIZER
	SKIP("the sanitizer's frames are larger");
#endif
	side_pair_with(&x, &y, o, o);
	on_own_stack(fn);
	printf("# bytes of stack: posting %zu, polling %zu (%s)\n", post_most, poll_most,
	       call_name);
	CHECK(post_most <= MOST);
	CHECK(poll_most <= MOST);
	side_pair_free(&x, &y);
}

static void good_work(void)
{
	measure(requests);
}

static void work_that_fails(void)
{
	measure(failing_request);
}

static void work_that_is_refused(void)
{
	measure(refused_request);
}

static void work_without_memory(void)
{
	measure(unmapped_request);
}

static const struct conf_case cases[] = {
	CASE(good_work),
	CASE(work_that_fails),
	CASE(work_that_is_refused),
	CASE(work_without_memory),
};
CONF_MAIN(cases)
