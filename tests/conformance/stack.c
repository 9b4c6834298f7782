/* SPDX-License-Identifier: BSD-2-Clause */
/* How much stack the calls of the fast path use. Programs with many coroutines give each a
 * few KiB, and post and poll there. */
#include "side.h"

#include <dirent.h>
#include <poll.h>
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

/* ---- datagrams ------------------------------------------------------------------- */

enum { UD_QKEY = 0x1234567, UD_GRH = 40, UD_RECVS = 8 };

static struct side_opt ud_opt(void)
{
	return (struct side_opt){ .type = IBV_QPT_UD, .sge = SGES, .recv_sge = SGES,
				  .inline_data = 64, .send_ops = IBV_QP_EX_WITH_SEND };
}

static void ud_ready(struct side *s)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = UD_QKEY };

	EQ(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						  IBV_QP_QKEY), 0);
	attr.qp_state = IBV_QPS_RTR;
	EQ(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	EQ(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

static struct ibv_ah *ud_address(const union ibv_gid *gid)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1,
				    .grh = { .dgid = *gid, .sgid_index = dev.gid_index,
					     .hop_limit = 64 } };
	struct ibv_ah *ah;

	MUST(ah = ibv_create_ah(dev.pd, &attr));
	return ah;
}

static uint32_t ud_mtu(void)
{
	return 128u << dev.port.active_mtu;
}

static void ud_recv(struct side *s)
{
	struct ibv_sge sge[SGES];
	struct ibv_recv_wr wr = { .sg_list = sge, .num_sge = SGES };

	for (int i = 0; i < SGES; i++)
		sge[i] = conf_sge(&s->b, 500000 + 512 * i, 512);
	measured_recv(s->qp, &wr);
}

/* As ud_post(), by the calls of the extended QP. */
__attribute__((noinline)) static void ud_post_ex(struct ibv_ah *ah, uint32_t qpn,
						 struct ibv_sge *sge, int n, const char *name)
{
	int ret;

	paint();
	ibv_wr_start(x.qpx);
	x.qpx->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(x.qpx);
	ibv_wr_set_ud_addr(x.qpx, ah, qpn, UD_QKEY);
	ibv_wr_set_sge_list(x.qpx, (size_t)n, sge);
	ret = ibv_wr_complete(x.qpx);
	note(&post_most, name);
	EQ(ret, 0);
}

/* Posts a chain of three in n pieces each. */
static void ud_post(struct ibv_ah *ah, uint32_t qpn, size_t len, int n, bool ex,
		    const char *name)
{
	struct ibv_send_wr wr[3];
	struct ibv_sge sge[SGES];

	for (int i = 0; i < n; i++)
		sge[i] = conf_sge(&x.b, len / n * i, len / n);
	for (int i = 0; i < 3; i++) {
		wr[i] = conf_wr(1, IBV_WR_SEND, sge, n);
		if (len <= 64)
			wr[i].send_flags |= IBV_SEND_INLINE;
		wr[i].wr.ud.ah = ah;
		wr[i].wr.ud.remote_qpn = qpn;
		wr[i].wr.ud.remote_qkey = UD_QKEY;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	if (ex)
		for (int i = 0; i < 3; i++)
			ud_post_ex(ah, qpn, sge, n, name);
	else
		measured_post(x.qp, wr, name);
}

/* Polls the side until it has sent so many and received at least so many. What was lost
 * does not come: an answer is waited for some time. False: it has not come. */
static bool ud_wait(struct side *s, int sent, int received, const char *name)
{
	uint64_t end = conf_now() + conf_ms(received ? 100 : CONF_WAIT) * 1000000ull;
	struct ibv_wc wc;

	while (sent || received > 0) {
		if (measured_poll(s->cq, &wc, name)) {
			EQ(wc.status, IBV_WC_SUCCESS);
			if (wc.opcode == IBV_WC_RECV)
				received--, ud_recv(s);
			else
				sent--;
		} else if (conf_now() > end && !sent) {
			return false;
		}
	}
	return true;
}

static void ud_sizes(struct ibv_ah *ah, uint32_t qpn, struct side *to, const char *name)
{
	const size_t sizes[] = { 16, 64, 256, 512, 1024, ud_mtu() };
	int arrived = 0;

	for (int round = 0; round < 40; round++)
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			for (int n = 1; n <= SGES; n += SGES - 1) {
				ud_post(ah, qpn, sizes[i], n, round % 2, name);
				if (to == &x) {
					arrived += ud_wait(&x, 3, 3, name);
				} else {
					CHECK(ud_wait(&x, 3, 0, name));
					arrived += ud_wait(to, 0, 3, name);
				}
			}
	CHECK(arrived > 100);
}

static void ud_open(void)
{
	x = side_with(1, ud_opt());
	ud_ready(&x);
	for (int i = 0; i < UD_RECVS; i++)
		ud_recv(&x);
}

/* QPs of one process, and groups. */
static void datagrams_here(void)
{
	union ibv_gid mgid = { .raw = { [10] = 0xff, [11] = 0xff, 239, 77, 9, 9 } };
	struct ibv_ah *ah, *group;

	open_device();
	ud_open();
	y = side_with(2, ud_opt());
	ud_ready(&y);
	for (int i = 0; i < UD_RECVS; i++)
		ud_recv(&y);
	ah = ud_address(&dev.gid);
	group = ud_address(&mgid);
	ud_sizes(ah, y.qp->qp_num, &y, "a datagram to this process");
	ud_sizes(ah, x.qp->qp_num, &x, "a datagram to itself");
	EQ(ibv_attach_mcast(y.qp, &mgid, 0), 0);
	ud_sizes(group, 0xffffff, &y, "a datagram to a group");
	EQ(ibv_detach_mcast(y.qp, &mgid, 0), 0);
	OK(ibv_destroy_ah(ah));
	OK(ibv_destroy_ah(group));
	side_free(&x);
	side_free(&y);
	close_device();
}

/* Sends back what it gets until the other process has ended. */
static void echo(int from, int to)
{
	struct pollfd end = { .fd = from, .events = POLLIN };
	struct ibv_ah *ah;
	struct ibv_wc wc;

	open_device();
	ud_open();
	ah = ud_address(&dev.gid);
	CHECK(write(to, &x.qp->qp_num, 4) == 4);
	while (!poll(&end, 1, 0))
		for (int i = 0; i < 100; i++) {
			if (!ibv_poll_cq(x.cq, 1, &wc) || wc.opcode != IBV_WC_RECV)
				continue;
			ud_recv(&x);
			ud_post_ex(ah, wc.src_qp, &(struct ibv_sge){ 0 }, 0, "an echo");
		}
	_exit(0);
}

/* In the beginning they go by UDP; unless ANYRDMA_TRANSPORT says otherwise, then by shared
 * memory. */
static void datagrams_to_another_process(void)
{
	struct ibv_ah *ah;
	int in[2], out[2];
	uint32_t qpn;

	OK(pipe(in));
	OK(pipe(out));
	if (!fork()) {
		close(out[1]);
		echo(out[0], in[1]);
	}
	open_device();
	ud_open();
	ah = ud_address(&dev.gid);
	CHECK(read(in[0], &qpn, 4) == 4);
	ud_sizes(ah, qpn, &x, "a datagram to another process");
	OK(ibv_destroy_ah(ah));
	side_free(&x);
	close_device();
}

static void measure_datagrams(void (*fn)(void))
{
	if (!conf_user_device())
		SKIP("of the user-space device");
#ifdef CONF_SANITIZER
	SKIP("the sanitizer's frames are larger");
#endif
	on_own_stack(fn);
	printf("# bytes of stack: posting %zu, polling %zu (%s)\n", post_most, poll_most,
	       call_name);
	CHECK(post_most <= MOST);
	CHECK(poll_most <= MOST);
}

static void datagrams(void)
{
	measure_datagrams(datagrams_here);
}

static void datagrams_of_two_processes(void)
{
	measure_datagrams(datagrams_to_another_process);
}

static const struct conf_case cases[] = {
	CASE(good_work),
	CASE(work_that_fails),
	CASE(work_that_is_refused),
	CASE(work_without_memory),
	CASE(datagrams),
	CASE(datagrams_of_two_processes),
};
CONF_MAIN(cases)
