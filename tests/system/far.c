/* SPDX-License-Identifier: BSD-2-Clause */
#include "far.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

struct far_board *board;
struct side far_side[FAR_PAIRS];
struct side_opt far_opt;
const char *far_transport = "shm";
bool far_rtr, far_bare, far_refused;

/* Where Yama is at work, direct access is for those who ask for it. */
static bool yama(void)
{
	int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
	char c = '0';

	if (fd >= 0) {
		if (read(fd, &c, 1) != 1)
			c = '?';
		close(fd);
	}
	return c != '0';
}

void far_env(void)
{
	setenv("ANYRDMA_TRANSPORT", far_transport, 1);
	if (yama())
		setenv("ANYRDMA_DIRECT", "on", 0); /* cases that set it have theirs */
}

void far_need_process_vm(const struct peer *p)
{
	char byte;
	struct iovec here = { &byte, 1 }, there = { &board, 1 };

	if (process_vm_readv(p->pid, &here, 1, &there, 1, 0) != 1)
		SKIP("the memory of another process cannot be read here");
}

struct peer far_start(void (*fn)(struct peer *me, void *arg), void *arg)
{
	far_env();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		     -1, 0);
	CHECK(board != MAP_FAILED);
	return peer_start(fn, arg);
}

void far_meet(void)
{
	static unsigned times;

	times++;
	atomic_fetch_add(&board->arrived, 1);
	WAIT_FOR(atomic_load(&board->arrived) >= 2 * times);
}

/* How many tables of keys are mapped: our own, and one of each peer that we access. */
static unsigned tables(void)
{
	unsigned long inode[8];
	char line[512];
	unsigned n = 0;
	FILE *f = fopen("/proc/self/maps", "re");

	CHECK(f);
	while (fgets(line, sizeof(line), f) && n < 8) {
		unsigned i = 0;

		if (!strstr(line, "/memfd:anyrdma keys") ||
		    sscanf(line, "%*s %*s %*s %*s %lu", &inode[n]) != 1)
			continue;
		while (inode[i] != inode[n])
			i++;
		n += i == n;
	}
	fclose(f);
	return n;
}

/* Each side has access to the other a little after they have got their first stream. */
static void wait_for_access(void)
{
	const char *direct = getenv("ANYRDMA_DIRECT");

	if (far_refused || (direct && !strcmp(direct, "off")) || strcmp(far_transport, "shm"))
		return;
	WAIT_FOR(tables() == 2);
	conf_settle();
}

void far_open(int who, unsigned n)
{
	open_device();
	for (unsigned i = 0; i < n; i++) {
		struct side *s = &far_side[i];

		*s = side_with(1000 * (unsigned)who + i,
			       (struct side_opt){ .sge = 4,
						  .recv_sge = 4,
						  .srq = far_opt.srq,
						  .channel = far_opt.channel,
						  .cqe = far_opt.cqe,
						  .bare = who && far_bare });
		board->qpn[who][i] = s->qp->qp_num;
		if (who && !far_bare) {
			board->addr[i] = (uintptr_t)s->b.p;
			board->rkey[i] = s->b.mr->rkey;
		}
		EQ(to_init(s), 0);
	}
	far_meet();
	for (unsigned i = 0; i < n; i++) {
		EQ(to_rtr(&far_side[i], board->qpn[!who][i], 1000 * (unsigned)!who + i, &dev.gid),
		   0);
		if (!who || !far_rtr)
			EQ(to_rts(&far_side[i]), 0);
	}
	far_meet();
	/* The target's QP has its stream when it has answered. */
	for (unsigned i = 0; i < n && !who; i++)
		far_do(i, IBV_WR_RDMA_WRITE, 0, far_bare ? 0 : 8, IBV_WC_SUCCESS);
	wait_for_access();
	far_meet();
}

void far_post(unsigned i, int opcode, uint64_t wr_id, size_t off, size_t len)
{
	struct ibv_sge sge = conf_sge(&far_side[i].b, off, len);
	struct ibv_send_wr wr = conf_rdma(wr_id, opcode, &sge, 1,
					  (void *)(uintptr_t)(board->addr[i] + off),
					  board->rkey[i]);

	OK(conf_post(far_side[i].qp, &wr));
}

void far_tell(struct peer *p, const struct side *s)
{
	peer_say_u32(p, s->qp->qp_num);
	peer_say_u32(p, s->psn);
	remote_say(p, &s->b);
}

struct far_other far_hear(struct peer *p)
{
	struct far_other o;

	o.qpn = peer_hear_u32(p);
	o.psn = peer_hear_u32(p);
	o.mem = remote_hear(p);
	return o;
}

void far_works(struct side *s, const struct far_other *o, size_t len, uint32_t seed)
{
	struct ibv_sge sge = conf_sge(&s->b, 0, len), back = conf_sge(&s->b, len, len);
	struct ibv_send_wr wr = remote_rdma(&o->mem, 1, IBV_WR_RDMA_WRITE, &sge);

	conf_pattern(s->b.p, len, seed);
	OK(conf_post(s->qp, &wr));
	conf_wc_ok(s->cq, 1);
	wr = remote_rdma(&o->mem, 2, IBV_WR_RDMA_READ, &back);
	OK(conf_post(s->qp, &wr));
	conf_wc_ok(s->cq, 2);
	CHECK(conf_pattern_ok(s->b.p + len, len, seed));
}

struct far_window far_window_bind(void)
{
	struct far_window w;
	struct ibv_send_wr wr;
	const struct conf_buf *b = &far_side[0].b;

	MUST(w.mr = ibv_reg_mr(dev.pd, b->p, b->len, CONF_RW | IBV_ACCESS_MW_BIND));
	MUST(w.mw = ibv_alloc_mw(dev.pd, IBV_MW_TYPE_2));
	wr = conf_bind(9, w.mw, ibv_inc_rkey(w.mw->rkey),
		       (struct ibv_mw_bind_info){ w.mr, (uintptr_t)b->p, 4096,
						  IBV_ACCESS_REMOTE_WRITE });
	OK(conf_post(far_side[0].qp, &wr));
	conf_wc_ok(far_side[0].cq, 9);
	board->rkey[0] = wr.bind_mw.rkey;
	return w;
}

void far_window_free(struct far_window *w)
{
	EQ(ibv_dealloc_mw(w->mw), 0);
	EQ(ibv_dereg_mr(w->mr), 0);
}

void far_idle(struct peer *me, void *arg)
{
	(void)arg;
	far_open(1, 1);
	peer_hear(me, 'x');
}

void far_end(struct peer *t)
{
	peer_say(t, 'x');
	peer_end(t);
}

/* What process_vm_* of all threads comes to from now on. */
static int filter_process_vm(uint32_t action, unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };
	long ret;

	OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	ret = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC | flags,
		      &prog);
	if (ret < 0 || (ret && !flags))
		SKIP("no such seccomp filters here");
	return (int)ret;
}

void far_forbid_process_vm(int with)
{
	filter_process_vm(SECCOMP_RET_ERRNO | (uint32_t)with, 0);
}

static struct {
	int fd;
	void (*run)(void);
} held;

static void *hold(void *arg)
{
	struct seccomp_notif call = { 0 };
	struct seccomp_notif_resp resp = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

	(void)arg;
	OK(ioctl(held.fd, SECCOMP_IOCTL_NOTIF_RECV, &call));
	held.run();
	resp.id = call.id;
	OK(ioctl(held.fd, SECCOMP_IOCTL_NOTIF_SEND, &resp));
	close(held.fd); /* for others there is no such call */
	return NULL;
}

pthread_t far_hold_process_vm(void (*run)(void))
{
	held.run = run;
	held.fd = filter_process_vm(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER |
					    SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
	return conf_thread(hold, NULL);
}

static atomic_int dereg_tid, dereg_done;

static void *deregister(void *arg)
{
	atomic_store(&dereg_tid, gettid());
	EQ(ibv_dereg_mr(arg), 0);
	atomic_store(&dereg_done, 1);
	return NULL;
}

pthread_t far_dereg(struct ibv_mr *mr)
{
	return conf_thread(deregister, mr);
}

bool far_dereg_stands(void)
{
	pid_t tid = atomic_load(&dereg_tid);

	return atomic_load(&dereg_done) || (tid && asleep(getpid(), tid));
}
