/* SPDX-License-Identifier: BSD-2-Clause */
/* The runner (one child process per case) and the waits. conn.c has the steps
 * to a connection. */
#include "conf.h"

#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#ifdef CONF_TSAN
/* With both ends in one process the wire orders the two sides' accesses to
 * registered memory, which the thread sanitizer cannot see: what the peer's side
 * sent from or placed, the application touches after a completion. watch.h is for what
 * not even that orders. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race_top:conf_pattern\n"
	       "race_top:conf_pattern_ok\n"
	       "race_top:conf_is_fill\n";
}
#endif

/* Written by the child, read by the parent when the child is gone. */
static struct shared {
	/* The last place; pointers into the program, the same in both. */
	const char *_Atomic file;
	const char *_Atomic what;
	atomic_int line;
	char message[1024];
	atomic_int told;
	bool skipped;
} *shared;

static bool in_child;

static void tell(const char *fmt, va_list ap)
{
	if (!atomic_exchange(&shared->told, 1))
		vsnprintf(shared->message, sizeof(shared->message), fmt, ap);
}

static const char *base(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? slash + 1 : file;
}

/* In every check, so it must cost nothing. what lives as long as the program. */
void conf_at(const char *file, int line, const char *what)
{
	atomic_store_explicit(&shared->file, file, memory_order_relaxed);
	atomic_store_explicit(&shared->line, line, memory_order_relaxed);
	atomic_store_explicit(&shared->what, what, memory_order_relaxed);
}

void conf_fail(const char *file, int line, const char *fmt, ...)
{
	char text[800];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!atomic_exchange(&shared->told, 1))
		snprintf(shared->message, sizeof(shared->message), "%s:%d: %s",
			 base(file), line, text);
	if (!in_child)
		fprintf(stderr, "%s\n", shared->message);
	_exit(1);
}

void conf_skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	tell(fmt, ap);
	va_end(ap);
	shared->skipped = true;
	if (!in_child)
		fprintf(stderr, "skipped: %s\n", shared->message);
	_exit(77);
}

uint64_t conf_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

unsigned conf_env(const char *name, unsigned def)
{
	const char *s = getenv(name);

	return s && *s ? strtoul(s, NULL, 0) : def;
}

unsigned conf_rounds(unsigned few, unsigned many)
{
	return getenv("T_LONG") ? many : few;
}

int conf_ms(int ms)
{
#ifdef CONF_SANITIZER
	unsigned slow = conf_env("CONF_SLOW", conf_env("T_SCALE", 4));
#else
	unsigned slow = conf_env("CONF_SLOW", conf_env("T_SCALE", 1));
#endif

	return ms * (int)(slow ? slow : 1);
}

static void bail(const char *what)
{
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(99);
}

/* Runs in the parent: waits for the child until the deadline, then ends it and
 * whatever it started (its process group). */
static int reap(pid_t pid, unsigned seconds, bool *late)
{
	struct pollfd p = { .events = POLLIN };
	int status, n;

	p.fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (p.fd < 0)
		bail("pidfd_open");
	do
		n = poll(&p, 1, conf_ms((int)seconds * 1000));
	while (n < 0 && errno == EINTR);
	close(p.fd);
	*late = n == 0;
	if (*late)
		kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		bail("waitpid");
	kill(-pid, SIGKILL);
	return status;
}

/* One line of TAP. The reason must stay on its line. */
static unsigned results, failures;

static void result(bool good, const char *name, const char *mark, const char *why)
{
	char text[sizeof(shared->message) + 64];

	snprintf(text, sizeof(text), "%s", why);
	for (char *c = text; *c; c++)
		if (*c == '\n' || *c == '#')
			*c = ' ';
	failures += !good;
	printf("%sok %u - %s%s%s\n", good ? "" : "not ", ++results, name, mark, text);
	fflush(stdout);
}

static void report(const char *name, int status, bool late)
{
	char why[sizeof(shared->message) + 64] = "", where[512];

	snprintf(where, sizeof(where), "%s:%d: %s", shared->file ? base(shared->file) : "",
		 shared->line, shared->what ? shared->what : "the start");
	if (late)
		snprintf(why, sizeof(why), "deadline passed at %s", where);
	else if (WIFSIGNALED(status))
		snprintf(why, sizeof(why), "signal %d (%s) after %s", WTERMSIG(status),
			 strsignal(WTERMSIG(status)), where);
	else if (!shared->skipped && WEXITSTATUS(status))
		snprintf(why, sizeof(why), "%s (exit status %d)",
			 shared->message[0] ? shared->message : where, WEXITSTATUS(status));
	if (why[0])
		result(false, name, " # ", why);
	else if (shared->skipped)
		result(true, name, " # SKIP ", shared->message);
	else
		result(true, name, "", "");
}

/* What makes the suite long. */
static void note_time(const char *name, uint64_t start)
{
	unsigned ms = (unsigned)((conf_now() - start) / 1000000);

	if (ms >= 5000)
		printf("# %s took %u.%u s\n", name, ms / 1000, ms % 1000 / 100);
}

static void run_case(const struct conf_case *c)
{
	uint64_t start = conf_now();
	bool late;
	int status;
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	if (conf_env("CONF_NOFORK", 0)) {
		c->run();
		result(true, c->name, "", "");
		return;
	}
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		bail("fork");
	if (!pid) {
		setpgid(0, 0);
		in_child = true;
		c->run();
		exit(0); /* not _exit: leak checkers run at exit */
	}
	setpgid(pid, pid);
	status = reap(pid, c->seconds, &late);
	report(c->name, status, late);
	note_time(c->name, start);
}

/* An exact name means that case alone, anything else every name it is part of. */
static bool selected(const char *name, const char *want, const struct conf_case *cases,
		     size_t n)
{
	if (!want)
		return true;
	for (size_t i = 0; i < n; i++)
		if (!strcmp(cases[i].name, want))
			return !strcmp(name, want);
	return strstr(name, want);
}

int conf_main(int argc, char **argv, const struct conf_case *cases, size_t n)
{
	const char *want = argc > 1 ? argv[1] : NULL;

	if (want && !strcmp(want, "-l")) {
		for (size_t i = 0; i < n; i++)
			puts(cases[i].name);
		return 0;
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		bail("mmap");
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; i < n; i++)
		if (selected(cases[i].name, want, cases, n))
			run_case(&cases[i]);
	printf("1..%u\n", results);
	return failures ? 1 : 0;
}

bool conf_original(void)
{
	return conf_env("CONF_ORIGINAL", 0) ||
	       !dlsym(RTLD_DEFAULT, "rdma_write_cm_event");
}

/* Asks no library for devices: that would read the settings, which the caller may still change. */
bool conf_user_device(void)
{
	return dlsym(RTLD_DEFAULT, "anyrdma_interface");
}

bool conf_iwarp(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool iwarp = list && list[0] && list[0]->transport_type == IBV_TRANSPORT_IWARP;

	if (list)
		ibv_free_device_list(list);
	return iwarp;
}

struct ibv_context *conf_open_device(void)
{
	struct ibv_device **list;
	struct ibv_context *ctx;

	MUST(list = ibv_get_device_list(NULL));
	MUST(list[0]);
	MUST(ctx = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	return ctx;
}

void *conf_new(const char *symbol)
{
	void *p = dlsym(RTLD_DEFAULT, symbol);

	if (!p)
		SKIP("this library has no %s", symbol);
	return p;
}

bool conf_is_fill(const void *p, int byte, size_t n)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < n; i++)
		if (b[i] != (uint8_t)byte)
			return false;
	return true;
}

int conf_gid(struct ibv_context *ctx, struct ibv_port_attr *port, union ibv_gid *gid)
{
	conf_sa addr = conf_addr(AF_INET, 0);
	struct sockaddr_in *in = (void *)&addr;

	OK(ibv_query_port(ctx, 1, port));
	for (int i = 0; i < port->gid_tbl_len; i++)
		if (!ibv_query_gid(ctx, 1, i, gid) && gid->raw[10] == 0xff &&
		    gid->raw[11] == 0xff && !memcmp(gid->raw + 12, &in->sin_addr, 4))
			return i; /* of RoCE v1 or v2, whichever is first */
	FAIL("no GID for the address");
}

/* Addresses. */

conf_sa conf_parse(const char *text, uint16_t port)
{
	conf_sa ss = { 0 };
	struct sockaddr_in *in = (void *)&ss;
	struct sockaddr_in6 *in6 = (void *)&ss;

	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
	} else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
	} else {
		FAIL("not an address: %s", text);
	}
	return ss;
}

/* IPv6 may be known, but switched off. */
static bool has_loopback6(void)
{
	conf_sa ss = conf_parse("::1", 0);
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&ss, sizeof(struct sockaddr_in6));

	if (fd >= 0)
		close(fd);
	return has;
}

conf_sa conf_addr(int family, uint16_t port)
{
	const char *text;

	if (family == AF_INET6) {
		text = getenv("CONF_ADDR6");
		if ((!text || !*text) && conf_user_device() && has_loopback6())
			text = "::1";
		if (!text || !*text)
			SKIP("no IPv6 address: CONF_ADDR6 is not set");
	} else {
		text = getenv("CONF_ADDR");
		if (!text || !*text)
			text = "127.0.0.1";
	}
	return conf_parse(text, port);
}

static bool is_loopback(const conf_sa *ss)
{
	const struct sockaddr_in *in = (const void *)ss;

	return (ntohl(in->sin_addr.s_addr) >> 24) == 127;
}

conf_sa conf_dev_addr(uint16_t port)
{
	conf_sa ss = conf_addr(AF_INET, port);
	struct sockaddr_in *in = (void *)&ss;
	struct ifaddrs *list, *i;
	bool found = false;

	if (!is_loopback(&ss))
		return ss;
	OK(getifaddrs(&list));
	for (i = list; i && !found; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		    (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK)) {
			in->sin_addr = ((struct sockaddr_in *)i->ifa_addr)->sin_addr;
			found = true;
		}
	freeifaddrs(list);
	if (!found)
		SKIP("this host has no IPv4 address but loopback");
	return ss;
}

conf_sa conf_any(int family, uint16_t port)
{
	return conf_parse(family == AF_INET6 ? "::" : "0.0.0.0", port);
}

uint16_t conf_port(unsigned i)
{
	/* Several runs on one host must not meet; 18000 and up stays clear of
	 * ephemeral ports and of what the mapping of ports makes of them. */
	unsigned base = conf_env("CONF_PORT_BASE", 8000 + getppid() % 50 * 200);

	return base + i;
}

uint16_t conf_sa_port(const void *sa)
{
	const struct sockaddr_in *in = sa;

	return ntohs(in->sin_port); /* same offset in sockaddr_in6 */
}

/* Events. */

const char *conf_event_name(int type)
{
	static const char *const late[] = { "ADDRINFO_RESOLVED", "ADDRINFO_ERROR", "USER" };

	if (type >= CONF_EVENT_ADDRINFO_RESOLVED && type <= CONF_EVENT_USER)
		return late[type - CONF_EVENT_ADDRINFO_RESOLVED];
	return rdma_event_str(type) + strlen("RDMA_CM_EVENT_");
}

int conf_rejected(void)
{
	return conf_iwarp() ? -ECONNRESET : 28;
}

void conf_private_(const char *file, int line, const struct rdma_conn_param *got,
		   const void *data, size_t len, size_t most)
{
	size_t want = conf_iwarp() ? len : most;

	conf_at(file, line, "private data");
	if (got->private_data_len != want)
		conf_fail(file, line, "%u bytes of private data, wanted %zu",
			  got->private_data_len, want);
	if ((len && memcmp(got->private_data, data, len)) ||
	    !conf_is_fill((const uint8_t *)got->private_data + len, 0, want - len))
		conf_fail(file, line, "other private data");
}

bool conf_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1 && (p.revents & POLLIN);
}

void conf_nonblock(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);

	CHECK(flags >= 0);
	OK(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

struct rdma_cm_event *conf_next(struct rdma_event_channel *ch, int ms)
{
	uint64_t end = conf_now() + (uint64_t)ms * 1000000;
	struct pollfd p = { .fd = ch->fd, .events = POLLIN };
	struct rdma_cm_event *ev;
	int64_t left;
	int flags;

	for (;;) {
		left = (int64_t)(end - conf_now()) / 1000000;
		if (left < 0)
			left = 0;
		if (poll(&p, 1, left) == 0)
			return NULL;
		/* The readable event may be one that the library keeps for itself. */
		flags = fcntl(ch->fd, F_GETFL);
		fcntl(ch->fd, F_SETFL, flags | O_NONBLOCK);
		ev = NULL;
		errno = 0;
		if (rdma_get_cm_event(ch, &ev) && errno != EAGAIN && errno != EINTR)
			FAIL("rdma_get_cm_event: %s", strerror(errno));
		fcntl(ch->fd, F_SETFL, flags);
		if (ev)
			return ev;
	}
}

struct rdma_cm_event *conf_get_(const char *file, int line,
				struct rdma_event_channel *ch, struct rdma_cm_id *id,
				int type, int status)
{
	struct rdma_cm_event *ev;

	conf_at(file, line, conf_event_name(type));
	ev = conf_next(ch, conf_ms(CONF_WAIT));
	if (!ev)
		conf_fail(file, line, "no %s within %d ms", conf_event_name(type),
			  conf_ms(CONF_WAIT));
	if ((int)ev->event != type || ev->status != status)
		conf_fail(file, line, "got %s status %d, wanted %s status %d",
			  conf_event_name(ev->event), ev->status,
			  conf_event_name(type), status);
	if (id && ev->id != id)
		conf_fail(file, line, "%s came for another id", conf_event_name(type));
	if ((ev->listen_id != NULL) != (type == RDMA_CM_EVENT_CONNECT_REQUEST))
		conf_fail(file, line, "%s: listen_id %p", conf_event_name(type),
			  (void *)ev->listen_id);
	return ev;
}

void conf_quiet_(const char *file, int line, struct rdma_event_channel *ch, int ms)
{
	struct rdma_cm_event *ev;

	conf_at(file, line, "nothing must come");
	ev = conf_next(ch, ms);
	if (ev)
		conf_fail(file, line, "unexpected %s, status %d",
			  conf_event_name(ev->event), ev->status);
}

void conf_async_(const char *file, int line, struct ibv_context *ctx,
		 enum ibv_event_type type, const void *object)
{
	struct pollfd fd = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	do {
		conf_at(file, line, ibv_event_type_str(type));
		if (poll(&fd, 1, conf_ms(CONF_WAIT)) != 1)
			conf_fail(file, line, "no event \"%s\"",
				  ibv_event_type_str(type));
		OK(ibv_get_async_event(ctx, &ev));
		ibv_ack_async_event(&ev);
	} while (ev.event_type != type);
	if (object && (const void *)ev.element.qp != object)
		conf_fail(file, line, "event \"%s\" is for another object",
			  ibv_event_type_str(type));
}

/* Completions. */

static bool poll_one(struct ibv_cq *cq, struct ibv_wc *wc, uint64_t end)
{
	for (unsigned i = 0;; i++) {
		bool last = conf_now() > end; /* a look comes after it in any case */
		int n = ibv_poll_cq(cq, 1, wc);

		if (n < 0)
			FAIL("ibv_poll_cq: %d", n);
		if (n == 1)
			return true;
		if (last)
			return false;
		if (i > 200)
			usleep(i > 4000 ? 2000 : 50);
	}
}

void conf_wc_(const char *file, int line, struct ibv_cq *cq, struct ibv_wc *wc)
{
	int ms = conf_ms(CONF_WAIT);

	conf_at(file, line, "waiting for a completion");
	if (!poll_one(cq, wc, conf_now() + ms * 1000000ull))
		conf_fail(file, line, "no completion within %d ms", ms);
}

void conf_wc_is_(const char *file, int line, struct ibv_cq *cq, uint64_t wr_id,
		 int status, struct ibv_wc *out)
{
	struct ibv_wc wc;

	conf_wc_(file, line, cq, &wc);
	if (wc.wr_id != wr_id || (int)wc.status != status)
		conf_fail(file, line,
			  "completion of wr %#llx: %s; wanted wr %#llx: %s",
			  (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
			  (unsigned long long)wr_id, ibv_wc_status_str(status));
	if (out)
		*out = wc;
}

void conf_wc_none_(const char *file, int line, struct ibv_cq *cq, int ms)
{
	struct ibv_wc wc;

	conf_at(file, line, "no completion must come");
	if (poll_one(cq, &wc, conf_now() + ms * 1000000ull))
		conf_fail(file, line, "unexpected completion of wr %#llx: %s",
			  (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

/* Threads. */

/* Threads that were started, the last one first; they are as many as a case starts. */
struct started {
	struct started *next;
	void *(*fn)(void *arg);
	void *arg;
	pthread_t thread;
	_Atomic pid_t tid; /* 0: does not run yet */
};

static struct started *_Atomic started;

static void *start(void *arg)
{
	struct started *s = arg;

	atomic_store(&s->tid, gettid());
	return s->fn(s->arg);
}

pthread_t conf_thread(void *(*fn)(void *), void *arg)
{
	struct started *s = calloc(1, sizeof(*s));
	int ret;

	MUST(s);
	s->fn = fn;
	s->arg = arg;
	ret = pthread_create(&s->thread, NULL, start, s);
	if (ret)
		FAIL("pthread_create: %s", strerror(ret));
	s->next = atomic_load(&started);
	while (!atomic_compare_exchange_weak(&started, &s->next, s))
		;
	return s->thread;
}

void conf_blocked_(const char *file, int line, pthread_t t)
{
	uint64_t end = conf_now() + conf_ms(CONF_WAIT) * 1000000ull;
	struct started *s = atomic_load(&started);

	while (s && !pthread_equal(s->thread, t))
		s = s->next;
	MUST(s);
	conf_at(file, line, "waiting for a thread to block");
	while (!atomic_load(&s->tid) || !asleep(getpid(), s->tid))
		if (conf_now() > end)
			conf_fail(file, line, "a thread does not block");
}

void conf_join_(const char *file, int line, pthread_t t, int ms)
{
	struct timespec ts;

	conf_at(file, line, "waiting for a thread");
	clock_gettime(CLOCK_REALTIME, &ts); /* TSan knows no other join */
	ts.tv_sec += conf_ms(ms) / 1000 + 1;
	if (pthread_timedjoin_np(t, NULL, &ts))
		conf_fail(file, line, "a thread is still blocked after %d ms", conf_ms(ms));
}
