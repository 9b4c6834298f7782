/* SPDX-License-Identifier: BSD-2-Clause */
/* limit WHAT [BYTES]: what the machine allows two processes of one host, each on a
 * core of its own, without any library: the limits that bench/host compares with.
 * Prints one number: microseconds one way (median of batches), MB/s, or millions of
 * datagrams that arrive in a second. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	PINGS = 100 * 1000, /* of one that polls */
	SLEEPS = 10 * 1000, /* of one that is woken */
	WARM = 1000,
	BATCH = 50, /* pings that a clock is read for */
	BUFFER = 1 << 20,
	SLOT_MS = 300, /* of a rate */
	ALARM_S = 60,  /* a peer is gone */
	RING = 256 * 1024, /* as large as a link's */
	CHUNK = 16 * 1024, /* and its records */
	DATAGRAMS = 16,	   /* of one system call */
};

/* Shared by the two, inherited over fork. */
struct shared {
	_Alignas(128) _Atomic uint64_t word[2][16]; /* a line each way, 128 apart */
	_Atomic pid_t pid[2];
	_Atomic int done;
	int event[2];
	int udp[2]; /* joined to each other, on the loopback interface */
	_Alignas(128) _Atomic uint64_t arrived;
	_Alignas(128) _Atomic uint64_t filled; /* bytes of ring, ever */
	_Alignas(128) _Atomic uint64_t emptied;
	_Alignas(4096) uint8_t ring[RING];
};

/* A process's own memory, at the same address in both (made before the fork). */
struct own {
	_Alignas(4096) uint8_t in[BUFFER];
	_Alignas(4096) uint8_t out[BUFFER];
};

static struct shared *sh;
static struct own *own;
static int mem_fd[2] = { -1, -1 }; /* of the peer's memory */
static size_t bytes = 64;

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

static void pin(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

/* ---- ways to tell the other side a number ------------------------------------- */

static void line_put(int me, uint64_t n)
{
	atomic_store_explicit(&sh->word[me][0], n, memory_order_release);
}

static void line_wait(int me, uint64_t n)
{
	while (atomic_load_explicit(&sh->word[!me][0], memory_order_acquire) != n)
		relax();
}

/* The message's last byte is its number: what a target that watches memory sees. */
static void own_wait(int me, uint64_t n)
{
	volatile const uint8_t *last = &own->in[bytes - 1];

	(void)me;
	while (*last != (uint8_t)n)
		relax();
}

static void vm_put(int me, uint64_t n)
{
	struct iovec from = { own->out, bytes }, to = { own->in, bytes };

	own->out[bytes - 1] = (uint8_t)n;
	if (process_vm_writev(atomic_load(&sh->pid[!me]), &from, 1, &to, 1, 0) !=
	    (ssize_t)bytes)
		die("process_vm_writev");
}

static void mem_put(int me, uint64_t n)
{
	own->out[bytes - 1] = (uint8_t)n;
	if (pwrite(mem_fd[!me], own->out, bytes, (off_t)(uintptr_t)own->in) !=
	    (ssize_t)bytes)
		die("pwrite");
}

static void event_put(int me, uint64_t n)
{
	(void)n;
	if (eventfd_write(sh->event[me], 1))
		die("eventfd");
}

static void event_wait(int me, uint64_t n)
{
	eventfd_t v;

	(void)n;
	if (eventfd_read(sh->event[!me], &v))
		die("eventfd");
}

static void udp_put(int me, uint64_t n)
{
	(void)n;
	if (send(sh->udp[me], own->out, bytes, 0) != (ssize_t)bytes)
		die("send");
}

static void udp_wait(int me, uint64_t n)
{
	(void)n;
	while (recv(sh->udp[me], own->in, bytes, MSG_DONTWAIT) != (ssize_t)bytes)
		if (errno != EAGAIN)
			die("recv");
}

/* ---- measures ------------------------------------------------------------------ */

static const struct ping {
	const char *name;
	void (*put)(int me, uint64_t n);
	void (*wait)(int me, uint64_t n);
	unsigned count;
} pings[] = {
	{ "line", line_put, line_wait, PINGS },
	{ "vm-lat", vm_put, own_wait, PINGS },
	{ "mem-lat", mem_put, own_wait, PINGS },
	{ "eventfd", event_put, event_wait, SLEEPS },
	{ "udp-lat", udp_put, udp_wait, SLEEPS },
};

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void answer(const struct ping *p)
{
	for (unsigned i = 1; i <= WARM + p->count; i++) {
		p->wait(1, i);
		p->put(1, i);
	}
}

/* Half of a round trip, in microseconds. */
static double ping(const struct ping *p)
{
	static double batch[PINGS / BATCH];
	unsigned n = 0;
	double begin = now();

	for (unsigned i = 1; i <= WARM + p->count; i++) {
		p->put(0, i);
		p->wait(0, i);
		if (i % BATCH)
			continue;
		if (i > WARM)
			batch[n++] = (now() - begin) * 1e6 / BATCH / 2;
		begin = now();
	}
	qsort(batch, n, sizeof(batch[0]), by_size);
	return batch[n / 2];
}

static void copy_vm(bool read)
{
	struct iovec mine = { own->out, bytes }, theirs = { own->in, bytes };
	pid_t peer = atomic_load(&sh->pid[1]);
	ssize_t n = read ? process_vm_readv(peer, &mine, 1, &theirs, 1, 0) :
			   process_vm_writev(peer, &mine, 1, &theirs, 1, 0);

	if (n != (ssize_t)bytes)
		die("process_vm");
}

static void vm_write(void)
{
	copy_vm(false);
}
static void vm_read(void)
{
	copy_vm(true);
}

static void copy_memory(void)
{
	memcpy(own->in, own->out, bytes);
	__asm__ volatile("" : : "r"(own->in) : "memory");
}

/* In at one end by this process, out at the other by its peer. */
static void ring_fill(void)
{
	uint64_t at = atomic_load_explicit(&sh->filled, memory_order_relaxed);

	for (size_t off = 0; off + CHUNK <= bytes; off += CHUNK, at += CHUNK) {
		while (at + CHUNK - atomic_load_explicit(&sh->emptied, memory_order_acquire) >
		       RING)
			relax();
		memcpy(sh->ring + at % RING, own->out + off, CHUNK);
		atomic_store_explicit(&sh->filled, at + CHUNK, memory_order_release);
	}
}

static void ring_empty(void)
{
	uint64_t at = 0;

	while (!atomic_load_explicit(&sh->done, memory_order_relaxed)) {
		if (atomic_load_explicit(&sh->filled, memory_order_acquire) == at) {
			relax();
			continue;
		}
		memcpy(own->in + at % bytes / CHUNK * CHUNK, sh->ring + at % RING, CHUNK);
		at += CHUNK;
		atomic_store_explicit(&sh->emptied, at, memory_order_release);
	}
}

static void messages(struct mmsghdr *m, struct iovec *iov, uint8_t *mem)
{
	memset(m, 0, DATAGRAMS * sizeof(*m));
	for (int i = 0; i < DATAGRAMS; i++) {
		iov[i] = (struct iovec){ mem + (size_t)i * 4096, bytes };
		m[i].msg_hdr.msg_iov = &iov[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
}

static void udp_send(void)
{
	struct mmsghdr m[DATAGRAMS];
	struct iovec iov[DATAGRAMS];

	messages(m, iov, own->out);
	if (sendmmsg(sh->udp[0], m, DATAGRAMS, 0) < 0)
		die("sendmmsg");
}

static void udp_receive(void)
{
	struct mmsghdr m[DATAGRAMS];
	struct iovec iov[DATAGRAMS];

	messages(m, iov, own->in);
	while (!atomic_load_explicit(&sh->done, memory_order_relaxed)) {
		int n = recvmmsg(sh->udp[1], m, DATAGRAMS, MSG_DONTWAIT, NULL);

		if (n > 0)
			atomic_fetch_add(&sh->arrived, (uint64_t)n);
	}
}

static const struct copy {
	const char *name;
	void (*once)(void);
	void (*peer)(void); /* what the other does, until it is done; else it sleeps */
} copies[] = {
	{ "vm-write", vm_write, NULL },
	{ "vm-read", vm_read, NULL },
	{ "memcpy", copy_memory, NULL },
	{ "ring", ring_fill, ring_empty },
	{ "udp-rate", udp_send, udp_receive },
};

/* MB/s; or datagrams, where any have arrived. */
static double copy(const struct copy *c)
{
	uint64_t arrived;
	unsigned n = 0;
	double begin, end;

	for (int i = 0; i < 20; i++)
		c->once();
	arrived = atomic_load(&sh->arrived);
	begin = now();
	do {
		for (int i = 0; i < 16; i++)
			c->once();
		n += 16;
		end = now();
	} while (end - begin < SLOT_MS * 1e-3);
	arrived = atomic_load(&sh->arrived) - arrived;
	if (arrived)
		return (double)arrived / (end - begin) / 1e6;
	return (double)n * (double)bytes / (end - begin) / 1e6;
}

/* ---- the two processes ---------------------------------------------------------- */

static void *map(size_t n, int how)
{
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

/* Both have touched their memory and can be reached. */
static void meet(int me)
{
	char path[64];

	pin(me);
	alarm(ALARM_S);
	/* Of the two only the child is a descendant; Yama lets the parent alone in. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
	memset(own, 0, sizeof(*own));
	atomic_store(&sh->pid[me], getpid());
	while (!atomic_load(&sh->pid[!me]))
		sched_yield();
	snprintf(path, sizeof(path), "/proc/%d/mem", atomic_load(&sh->pid[!me]));
	mem_fd[!me] = open(path, O_RDWR | O_CLOEXEC);
}

static void udp_pair(void)
{
	struct sockaddr_in a[2];

	for (int i = 0; i < 2; i++) {
		socklen_t len = sizeof(a[i]);

		a[i] = (struct sockaddr_in){ .sin_family = AF_INET,
					     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		sh->udp[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (sh->udp[i] < 0 || bind(sh->udp[i], (struct sockaddr *)&a[i], len) ||
		    getsockname(sh->udp[i], (struct sockaddr *)&a[i], &len))
			die("a UDP socket");
	}
	for (int i = 0; i < 2; i++)
		if (connect(sh->udp[i], (struct sockaddr *)&a[!i], sizeof(a[i])))
			die("connect");
}

static int child(const struct ping *p, const struct copy *c)
{
	meet(1);
	if (p)
		answer(p);
	else if (c->peer)
		c->peer();
	while (!atomic_load(&sh->done))
		usleep(1000);
	return 0;
}

int main(int argc, char **argv)
{
	const struct ping *p = NULL;
	const struct copy *c = NULL;
	double result;
	pid_t pid;

	for (unsigned i = 0; argc > 1 && i < sizeof(pings) / sizeof(pings[0]); i++)
		if (!strcmp(argv[1], pings[i].name))
			p = &pings[i];
	for (unsigned i = 0; argc > 1 && i < sizeof(copies) / sizeof(copies[0]); i++)
		if (!strcmp(argv[1], copies[i].name))
			c = &copies[i];
	if (argc > 2)
		bytes = strtoul(argv[2], NULL, 0);
	if ((!p && !c) || bytes < 1 || bytes > BUFFER) {
		fprintf(stderr,
			"usage: limit "
			"line|vm-lat|mem-lat|eventfd|udp-lat|vm-write|vm-read|memcpy|ring|"
			"udp-rate [BYTES]\n");
		return 2;
	}
	sh = map(sizeof(*sh), MAP_SHARED);
	own = map(sizeof(*own), MAP_PRIVATE);
	sh->event[0] = eventfd(0, EFD_CLOEXEC);
	sh->event[1] = eventfd(0, EFD_CLOEXEC);
	udp_pair();
	pid = fork();
	if (pid < 0)
		die("fork");
	if (!pid)
		_exit(child(p, c));
	meet(0);
	result = p ? ping(p) : copy(c);
	atomic_store(&sh->done, 1);
	waitpid(pid, NULL, 0);
	printf("%.4f\n", result);
	return 0;
}
