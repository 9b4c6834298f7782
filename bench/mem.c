/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of idle connections, taken in fresh processes: resident memory of each
 * side (smaps_rollup), and the kernel's. The kernel's is the growth of the slab
 * caches a socket lives in (/proc/slabinfo, which only root reads; else the
 * whole Slab of /proc/meminfo) plus TCP's buffer pages (/proc/net/sockstat).
 * Both ends are on this machine, so a connection's kernel memory is split in
 * two halves, one for each side. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct kernel_mem {
	double slab;		/* bytes */
	double all_slab;
	double buffers;
};

struct mem {
	struct side *s;
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	struct rdma_cm_id **id;
	struct pool pool;
	int *fd;
	double base;		/* resident, before the connections */
	double idle_cpu;
};

static double resident(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	double kb = -1;

	if (!f)
		die("/proc/self/smaps_rollup");
	while (kb < 0 && fgets(line, sizeof(line), f))
		sscanf(line, "Rss: %lf", &kb);
	fclose(f);
	return kb * 1024;
}

static bool socket_cache(const char *name)
{
	static const char *const list[] = {
		"TCP", "TCPv6", "dentry", "ep_head", "eventpoll_epi",
		"eventpoll_pwq", "filp", "request_sock_TCP", "request_sock_TCPv6",
		"skbuff_ext_cache", "skbuff_fclone_cache", "skbuff_head_cache",
		"skbuff_small_head", "sock_inode_cache", "tw_sock_TCP",
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++)
		if (!strcmp(list[i], name))
			return true;
	return false;
}

static bool read_slabinfo(struct kernel_mem *k)
{
	FILE *f = fopen("/proc/slabinfo", "r");
	char line[512], name[128];
	double active, total, size;

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%127s %lf %lf %lf", name, &active, &total, &size) == 4 &&
		    socket_cache(name))
			k->slab += active * size;
	fclose(f);
	return true;
}

static struct kernel_mem kernel_mem(void)
{
	struct kernel_mem k = { 0, 0, 0 };
	FILE *f = fopen("/proc/meminfo", "r");
	char line[256];
	double n;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Slab: %lf", &n) == 1)
			k.all_slab = n * 1024;
	if (f)
		fclose(f);
	if (!read_slabinfo(&k))
		k.slab = k.all_slab;
	f = fopen("/proc/net/sockstat", "r");
	while (f && fgets(line, sizeof(line), f)) {
		char *m = strstr(line, "mem ");

		if (!strncmp(line, "TCP:", 4) && m)
			k.buffers = atof(m + 4) * (double)sysconf(_SC_PAGESIZE);
	}
	if (f)
		fclose(f);
	return k;
}

static double cpu_used(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* The client's: takes the server's growth over ctl and emits all. Sizes are per
 * connection and side, in KiB. */
static void emit(struct mem *m, const char *kind, unsigned round,
		 const struct kernel_mem *before)
{
	struct kernel_mem k = kernel_mem();
	double n = m->s->o->idle, kib = 1024 * n;
	double grown = resident() - m->base, peer;

	ctl_get(m->s, &peer, sizeof(peer));
	side_emit(m->s, "rss client", kind, 0, round, grown / kib);
	side_emit(m->s, "rss server", kind, 0, round, peer / kib);
	side_emit(m->s, "slab", kind, 0, round, (k.slab - before->slab) / kib / 2);
	side_emit(m->s, "slab all", kind, 0, round,
		  (k.all_slab - before->all_slab) / kib / 2);
	side_emit(m->s, "tcp buffers", kind, 0, round,
		  (k.buffers - before->buffers) / kib / 2);
	side_emit(m->s, "both", kind, 0, round,
		  (grown + peer + k.slab + k.buffers - before->slab - before->buffers) / kib);
	if (peer > grown)
		grown = peer;
	side_emit(m->s, "memory", kind, 0, round,
		  (grown + (k.slab + k.buffers - before->slab - before->buffers) / 2) / kib);
}

static void tell(struct mem *m)
{
	double grown = resident() - m->base;

	ctl_put(m->s, &grown, sizeof(grown));
}

/* What one second of having them costs, in milliseconds of CPU. */
static void idle_second(struct mem *m, const char *kind, unsigned round)
{
	struct timespec second = { 1, 0 };
	double used, peer;

	ctl_meet(m->s);
	used = cpu_used();
	nanosleep(&second, NULL);
	used = (cpu_used() - used) * 1e3;
	if (m->s->server) {
		ctl_put(m->s, &used, sizeof(used));
		return;
	}
	ctl_get(m->s, &peer, sizeof(peer));
	side_emit(m->s, "idle cpu", kind, 0, round, used + peer);
}

/* A QP with all its receives posted, as an idle connection of a server has. */
static void make_qp(struct mem *m, struct rdma_cm_id *id)
{
	pool_open(&m->pool, id->verbs, (int)(m->s->o->idle * IDLE_WRS * 2));
	pool_qp(&m->pool, id, IDLE_WRS);
}

static void accept_all(struct mem *m)
{
	struct rdma_conn_param p;
	struct rdma_cm_id *id;
	unsigned begun = 0, up = 0;

	cm_param(&p, false);
	while (up < m->s->o->idle) {
		enum rdma_cm_event_type t = cm_next(m->ch, &id);

		if (t == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(m, id);
			if (rdma_accept(id, &p))
				die("rdma_accept");
			m->id[begun++] = id;
		} else if (t == RDMA_CM_EVENT_ESTABLISHED) {
			up++;
		} else {
			errno = EPROTO;
			die(rdma_event_str(t));
		}
	}
}

static void connect_all(struct mem *m, uint16_t port)
{
	struct rdma_conn_param p;

	cm_param(&p, true);
	for (unsigned i = 0; i < m->s->o->idle; i++) {
		m->id[i] = cm_start(m->ch, m->s->o->addr, port);
		cm_expect(m->ch, RDMA_CM_EVENT_ADDR_RESOLVED);
		if (rdma_resolve_route(m->id[i], 2000))
			die("rdma_resolve_route");
		cm_expect(m->ch, RDMA_CM_EVENT_ROUTE_RESOLVED);
		make_qp(m, m->id[i]);
		if (rdma_connect(m->id[i], &p))
			die("rdma_connect");
		cm_expect(m->ch, RDMA_CM_EVENT_ESTABLISHED);
	}
}

/* One message on each connection: n completions, whatever their kind. */
static void message_each(struct mem *m, bool sends)
{
	struct ibv_sge sge = { (uintptr_t)m->pool.buf, PING, m->pool.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	for (unsigned i = 0; sends && i < m->s->o->idle; i++) {
		errno = ibv_post_send(m->id[i]->qp, &wr, &bad);
		if (errno)
			die("ibv_post_send");
	}
	for (unsigned i = 0; i < m->s->o->idle; ) {
		int n = ibv_poll_cq(m->pool.cq, 1, &wc);

		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS))
			die("completion on an idle connection");
		i += (unsigned)n;
	}
}

static void close_all(struct mem *m)
{
	unsigned n = m->s->o->idle;
	struct rdma_cm_id *id;

	for (unsigned i = 0; !m->s->server && i < n; i++)
		if (rdma_disconnect(m->id[i]))
			die("rdma_disconnect");
	for (unsigned i = 0; i < n; i++) {
		id = cm_expect(m->ch, RDMA_CM_EVENT_DISCONNECTED);
		if (m->s->server)
			rdma_disconnect(id);
		rdma_destroy_qp(id);
		if (rdma_destroy_id(id))
			die("rdma_destroy_id");
	}
	if (ibv_dereg_mr(m->pool.mr) || ibv_destroy_cq(m->pool.cq) || ibv_dealloc_pd(m->pool.pd) ||
	    (m->listener && rdma_destroy_id(m->listener)))
		die("destroying MR, CQ, PD");
	rdma_destroy_event_channel(m->ch);
	free(m->pool.buf);
}

/* The baseline is a process whose library has started (a device is open, a
 * server listens): what a connection adds is counted, its share of the CQ too. */
static void rc_base(struct mem *m, uint16_t *port)
{
	struct ibv_context **list;
	int n;

	m->ch = cm_channel();
	list = rdma_get_devices(&n);
	if (!list)
		die("rdma_get_devices");
	if (m->s->server) {
		m->listener = cm_listen(m->ch, m->s->o->addr, port);
		ctl_put(m->s, port, sizeof(*port));
	} else {
		ctl_get(m->s, port, sizeof(*port));
	}
	rdma_free_devices(list);
	m->base = resident();
}

void mem_rc_run(struct side *s)
{
	struct mem m = { .s = s };
	struct kernel_mem before;
	uint16_t port;

	m.id = calloc(s->o->idle, sizeof(*m.id));
	if (!m.id)
		die("memory");
	rc_base(&m, &port);
	before = kernel_mem();
	ctl_meet(s);
	if (s->server) {
		accept_all(&m);
		tell(&m);
	} else {
		connect_all(&m, port);
		emit(&m, "rc", 0, &before);
	}
	idle_second(&m, "rc", 0);
	message_each(&m, !s->server);
	ctl_meet(s);
	message_each(&m, s->server);
	if (s->server)
		tell(&m);
	else
		emit(&m, "rc used", 0, &before);
	ctl_meet(s);
	close_all(&m);
	free(m.id);
}

void mem_tcp_run(struct side *s)
{
	struct mem m = { .s = s };
	struct kernel_mem before;
	struct rlimit lim;
	uint16_t port;
	int lfd = -1;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0) {
		lim.rlim_cur = lim.rlim_max;
		setrlimit(RLIMIT_NOFILE, &lim);
	}
	m.fd = calloc(s->o->idle, sizeof(*m.fd));
	if (!m.fd)
		die("memory");
	if (s->server) {
		lfd = tcp_listen(s->o->addr, &port);
		ctl_put(s, &port, sizeof(port));
	} else {
		ctl_get(s, &port, sizeof(port));
	}
	m.base = resident();
	before = kernel_mem();
	ctl_meet(s);
	for (unsigned i = 0; i < s->o->idle; i++)
		m.fd[i] = s->server ? tcp_accept(lfd) : tcp_connect(s->o->addr, port);
	ctl_meet(s);
	if (s->server)
		tell(&m);
	else
		emit(&m, "tcp", 0, &before);
	idle_second(&m, "tcp", 0);
	for (unsigned i = 0; i < s->o->idle; i++)
		close(m.fd[i]);
	free(m.fd);
}
