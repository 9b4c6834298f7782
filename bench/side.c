/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const char *who = "bench";

void die(const char *what)
{
	fprintf(stderr, "bench %s: %s: %s\n", who, what,
		errno ? strerror(errno) : "failed");
	exit(1);
}

static void enter_ns(const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
		die(path);
	close(fd);
}

/* Pins before the library starts a thread: what it starts shares the core, so
 * a side never uses more than one. */
void side_enter(struct side *s)
{
	int cpu = s->o->cpu[s->server ? 0 : 1];
	const char *ns = s->o->ns[s->server ? 0 : 1];
	cpu_set_t set;

	who = s->server ? "server" : "client";
	if (cpu >= 0) {
		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set) < 0)
			die("sched_setaffinity");
	}
	if (ns)
		enter_ns(ns);
}

void ctl_put(const struct side *s, const void *p, size_t n)
{
	ssize_t r = send(s->ctl, p, n, MSG_NOSIGNAL);

	if (r < 0 || (size_t)r != n)
		die("the other side is gone (send)");
}

void ctl_get(const struct side *s, void *p, size_t n)
{
	ssize_t r;

	do {
		r = recv(s->ctl, p, n, MSG_WAITALL);
	} while (r < 0 && errno == EINTR);
	if (r >= 0 && (size_t)r != n)
		errno = 0;
	if (r < 0 || (size_t)r != n)
		die("the other side is gone (recv)");
}

void ctl_meet(const struct side *s)
{
	char c = 'm';

	ctl_put(s, &c, 1);
	ctl_get(s, &c, 1);
}

void side_emit(const struct side *s, const char *metric, const char *kind,
	       uint32_t size, uint32_t round, double value)
{
	struct sample m = { .size = size, .round = round, .value = value };

	snprintf(m.metric, sizeof(m.metric), "%s", metric);
	snprintf(m.kind, sizeof(m.kind), "%s", kind);
	if (write(s->out, &m, sizeof(m)) != sizeof(m))
		die("the driver is gone");
}

bool kind_wanted(const struct side *s, const char *kind)
{
	size_t n = strlen(kind);
	const char *p = s->o->kinds;

	if (!p)
		return true;
	for (;; p++) {
		size_t len = strcspn(p, ",");

		if (len == n && !strncmp(p, kind, n))
			return true;
		p += len;
		if (!*p)
			return false;
	}
}

void device_check(const struct side *s, struct ibv_context *verbs)
{
	const char *name = ibv_get_device_name(verbs->device);

	if (s->o->device && strncmp(name, s->o->device, strlen(s->o->device))) {
		errno = ENODEV;
		die(name);
	}
}

double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

long switches(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return ru.ru_nvcsw;
}

socklen_t addr_make(struct sockaddr_storage *ss, const char *addr, uint16_t port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *ai;
	char serv[8];
	socklen_t len;

	snprintf(serv, sizeof(serv), "%u", port);
	if (getaddrinfo(addr, serv, &hints, &ai)) {
		errno = EINVAL;
		die(addr);
	}
	len = ai->ai_addrlen;
	memcpy(ss, ai->ai_addr, len);
	freeaddrinfo(ai);
	return len;
}

/* Differs from word to word and from seed to seed, and has no zero word in
 * practice, so memory cleared before a round cannot pass for received data. */
static uint64_t pattern_word(size_t i, uint64_t seed)
{
	return (i + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xc2b2ae3d27d4eb4full;
}

void pattern_fill(uint8_t *p, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n / 8; i++) {
		uint64_t w = pattern_word(i, seed);

		memcpy(p + i * 8, &w, 8);
	}
}

bool pattern_ok(const uint8_t *p, size_t n, uint64_t seed)
{
	uint64_t bad = 0;

	for (size_t i = 0; i < n / 8; i++) {
		uint64_t w;

		memcpy(&w, p + i * 8, 8);
		bad |= w ^ pattern_word(i, seed);
	}
	return bad == 0;
}
