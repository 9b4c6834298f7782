/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/port.h"

#include "base/cap.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/state.h"
#include "cm/user/dev.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- socket addresses ------------------------------------------------------------ */

static const struct sockaddr_in *in4(const struct sockaddr *sa)
{
	return (const struct sockaddr_in *)(const void *)sa;
}

static const struct sockaddr_in6 *in6(const struct sockaddr *sa)
{
	return (const struct sockaddr_in6 *)(const void *)sa;
}

socklen_t sa_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET	 ? sizeof(struct sockaddr_in) :
	       sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					   0;
}

bool sa_any(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return in4(sa)->sin_addr.s_addr == htonl(INADDR_ANY);
	return IN6_IS_ADDR_UNSPECIFIED(&in6(sa)->sin6_addr);
}

bool sa_loopback(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return ntohl(in4(sa)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&in6(sa)->sin6_addr);
}

bool sa_group(const struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		return IN_MULTICAST(ntohl(in4(sa)->sin_addr.s_addr));
	return IN6_IS_ADDR_MULTICAST(&in6(sa)->sin6_addr);
}

uint16_t sa_port(const struct sockaddr *sa)
{
	return ntohs(sa->sa_family == AF_INET ? in4(sa)->sin_port : in6(sa)->sin6_port);
}

void sa_set_port(struct sockaddr *sa, uint16_t port)
{
	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)(void *)sa)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)(void *)sa)->sin6_port = htons(port);
}

bool sa_same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return in4(a)->sin_addr.s_addr == in4(b)->sin_addr.s_addr;
	return IN6_ARE_ADDR_EQUAL(&in6(a)->sin6_addr, &in6(b)->sin6_addr) &&
	       (!IN6_IS_ADDR_LINKLOCAL(&in6(a)->sin6_addr) ||
		in6(a)->sin6_scope_id == in6(b)->sin6_scope_id);
}

void sa_unmap(struct sockaddr_storage *ss)
{
	struct sockaddr_in6 from;
	struct sockaddr_in to = { .sin_family = AF_INET };

	if (ss->ss_family != AF_INET6)
		return;
	memcpy(&from, ss, sizeof(from));
	if (!IN6_IS_ADDR_V4MAPPED(&from.sin6_addr))
		return;
	memcpy(&to.sin_addr, from.sin6_addr.s6_addr + 12, 4);
	to.sin_port = from.sin6_port;
	memset(ss, 0, sizeof(*ss));
	memcpy(ss, &to, sizeof(to));
}

const char *sa_str(const struct sockaddr *sa, char buf[PORT_ADDR_STR])
{
	char text[INET6_ADDRSTRLEN] = "?";

	if (sa->sa_family == AF_INET) {
		inet_ntop(AF_INET, &in4(sa)->sin_addr, text, sizeof(text));
		snprintf(buf, PORT_ADDR_STR, "%s:%u", text, sa_port(sa));
	} else if (sa->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &in6(sa)->sin6_addr, text, sizeof(text));
		snprintf(buf, PORT_ADDR_STR, "[%s]:%u", text, sa_port(sa));
	} else {
		snprintf(buf, PORT_ADDR_STR, "(family %d)", sa->sa_family);
	}
	return buf;
}

/* ---- rules ----------------------------------------------------------------------- */

int port_to_tcp(uint16_t port, bool identity)
{
	if (identity)
		return port;
	if (port >= PORT_LIMIT)
		return -EADDRNOTAVAIL;
	return PORT_BASE + (port + PORT_SHIFT) % PORT_LIMIT;
}

int port_to_udp(enum rdma_port_space ps, uint16_t port)
{
	unsigned shift = ps == RDMA_PS_IPOIB ? PORT_SHIFT_IPOIB : PORT_SHIFT;

	if (port >= PORT_LIMIT)
		return -EADDRNOTAVAIL;
	return PORT_BASE + (int)((port + shift) % PORT_LIMIT);
}

int port_conflict(const struct port_claim *a, const struct port_claim *b)
{
	if (a->reuse && b->reuse)
		return 0;
	if (a->ipv6 != b->ipv6 && a->afonly && b->afonly)
		return 0;
	if (a->any || b->any)
		return -EADDRNOTAVAIL;
	return a->ipv6 == b->ipv6 && !memcmp(a->addr, b->addr, 16) ? -EADDRINUSE : 0;
}

static void claim_of(const struct sockaddr *sa, bool afonly, bool reuse,
		     struct port_claim *c)
{
	*c = (struct port_claim){
		.ipv6 = sa->sa_family == AF_INET6,
		.any = sa_any(sa) || sa_loopback(sa),
		.afonly = afonly || sa->sa_family == AF_INET || !sa_any(sa),
		.reuse = reuse,
	};
	if (c->ipv6) {
		memcpy(c->addr, &in6(sa)->sin6_addr, 16);
	} else {
		c->addr[10] = c->addr[11] = 0xff;
		memcpy(c->addr + 12, &in4(sa)->sin_addr, 4);
	}
}

/* "<addr>/<port>[/r…]" */
bool port_parse(const char *text, struct port_claim *c, unsigned *port)
{
	char addr[INET6_ADDRSTRLEN + 16];
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : 0;
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} a = { .in6 = { .sin6_family = AF_INET6 } };
	bool only;
	char *end, *scope;

	if (!len || len >= sizeof(addr))
		return false;
	memcpy(addr, text, len);
	addr[len] = 0;
	only = addr[len - 1] == '!';
	if (only)
		addr[len - 1] = 0;
	scope = strchr(addr, '%');
	if (scope)
		*scope = 0;
	if (inet_pton(AF_INET6, addr, &a.in6.sin6_addr) != 1) {
		a.in = (struct sockaddr_in){ .sin_family = AF_INET };
		if (inet_pton(AF_INET, addr, &a.in.sin_addr) != 1)
			return false;
	}
	*port = (unsigned)strtoul(slash + 1, &end, 10);
	if (end == slash + 1 || (*end && *end != '/'))
		return false;
	claim_of(&a.sa, only, !strncmp(end, "/r", 2), c);
	return true;
}

/* ---- names ----------------------------------------------------------------------- */

static unsigned name_ps(enum rdma_port_space ps)
{
	return ps == RDMA_PS_IB ? RDMA_PS_TCP : ps;
}

/* By hand, as each connection makes three names: printf() and inet_ntop() would be an eighth
 * of its instructions. As stpcpy(), each returns the end. */
static char *put_number(char *to, unsigned n, unsigned base)
{
	char digits[sizeof(n) * 8];
	size_t i = sizeof(digits);

	do
		digits[--i] = "0123456789abcdef"[n % base];
	while (n /= base);
	memcpy(to, digits + i, sizeof(digits) - i);
	to += sizeof(digits) - i;
	*to = 0;
	return to;
}

static char *put_address(char *to, const struct sockaddr *sa, bool afonly)
{
	const uint8_t *b = (const uint8_t *)&in4(sa)->sin_addr;

	if (sa->sa_family == AF_INET) {
		to = put_number(to, b[0], 10);
		for (int i = 1; i < 4; i++) {
			*to = '.';
			to = put_number(to + 1, b[i], 10);
		}
		return to;
	}
	if (sa_any(sa))
		return stpcpy(to, afonly ? "::!" : "::");
	inet_ntop(AF_INET6, &in6(sa)->sin6_addr, to, INET6_ADDRSTRLEN);
	to += strlen(to);
	if (!IN6_IS_ADDR_LINKLOCAL(&in6(sa)->sin6_addr))
		return to;
	return put_number(stpcpy(to, "%"), in6(sa)->sin6_scope_id, 10);
}

static char *name_prefix(enum rdma_port_space ps, char *to)
{
	return stpcpy(put_number(stpcpy(to, "anyrdma/1/"), name_ps(ps), 16), "/");
}

static void name_make(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
		      uint16_t port, char name[PORT_NAME_MAX + 1])
{
	char *to = put_address(name_prefix(ps, name), sa, afonly);

	put_number(stpcpy(to, "/"), port, 10);
}

void port_names(enum rdma_port_space ps, const struct sockaddr *sa, struct stream_names *out)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;
	struct sockaddr_in any4 = { .sin_family = AF_INET }, in4 = any4;
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6 };
	uint16_t port = sa_port(sa);

	_Static_assert((int)PORT_NAME_MAX <= (int)STREAM_NAME_MAX, "every name fits");
	if (sa->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(&in4.sin_addr, in6->sin6_addr.s6_addr + 12, 4);
		sa = (const struct sockaddr *)&in4;
	}
	name_make(ps, sa, false, port, out->name[0]);
	if (sa->sa_family == AF_INET)
		name_make(ps, (struct sockaddr *)&any4, false, port, out->name[1]);
	else
		name_make(ps, (struct sockaddr *)&any6, true, port, out->name[1]);
	name_make(ps, (struct sockaddr *)&any6, false, port, out->name[2]);
}

static socklen_t name_address(const char *name, struct sockaddr_un *un)
{
	size_t len = strlen(name);

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, name, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

/* A socket that holds the name, or -errno. */
static int name_bind(const char *name)
{
	struct sockaddr_un un;
	socklen_t len = name_address(name, &un);
	int fd, err;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&un, len)) {
		err = -errno;
		close(fd);
		return err;
	}
	return cm_dev->fd_take(fd);
}

/* Who listens under the name; false: nobody, or it cannot be found out. */
static bool name_holder(const char *name, struct ucred *who)
{
	struct sockaddr_un un;
	socklen_t len = name_address(name, &un), cred_len = sizeof(*who);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool found;

	if (fd < 0)
		return false;
	found = !connect(fd, (struct sockaddr *)&un, len) &&
		!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &cred_len);
	close(fd);
	return found;
}

/* Another user may take any name before us, as any TCP port: that no errno can say. */
static void log_held(unsigned num, const char *name)
{
	struct ucred who;

	if (!name_holder(name, &who))
		log_info("RDMA port %u is refused: %s has it", num, name);
	else if (who.uid == geteuid())
		log_info("RDMA port %u is refused: %s has it, of process %d", num, name,
			 (int)who.pid);
	else
		log_warn("RDMA port %u is refused: %s has it, of user %u, process %d", num,
			 name, (unsigned)who.uid, (int)who.pid);
}

/* Calls see(text after the prefix, full name) for each name of this ps in the
 * namespace until it answers non-zero; that answer, or 0. Without /proc nothing
 * is seen and only equal names exclude each other. */
static int names_scan(enum rdma_port_space ps,
		      int (*see)(const char *rest, const char *name, void *arg), void *arg)
{
	char prefix[32], *line = NULL, *at;
	FILE *f = fopen("/proc/self/net/unix", "re");
	size_t cap = 0, n;
	int ret = 0;

	if (!f)
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? -errno : 0;
	prefix[0] = '@';
	n = (size_t)(name_prefix(ps, prefix + 1) - prefix);
	while (!ret && getline(&line, &cap, f) > 0) {
		at = strstr(line, prefix);
		if (!at)
			continue;
		at[strcspn(at, "\n")] = 0;
		ret = see(at + n, at + 1, arg);
	}
	free(line);
	fclose(f);
	return ret;
}

struct conflict_arg {
	const struct port_claim *mine;
	unsigned port;
	const char *own;  /* name to pass over */
	char other[PORT_NAME_MAX + 1];
};

static int see_conflict(const char *rest, const char *name, void *arg)
{
	struct conflict_arg *a = arg;
	struct port_claim c;
	unsigned port;
	int ret;

	if (!port_parse(rest, &c, &port) || port != a->port || !strcmp(name, a->own))
		return 0;
	ret = port_conflict(a->mine, &c);
	if (ret)
		snprintf(a->other, sizeof(a->other), "%s", name);
	return ret;
}

static int see_owner(const char *rest, const char *name, void *arg)
{
	struct conflict_arg *a = arg;
	struct port_claim c;
	unsigned port;

	(void)name;
	return port_parse(rest, &c, &port) && port == a->port &&
	       port_conflict(a->mine, &c);
}

bool port_owned(enum rdma_port_space ps, const struct sockaddr *sa, uint16_t port)
{
	struct port_claim c;
	struct conflict_arg a = { .mine = &c, .port = port };

	claim_of(sa, false, false, &c);
	return names_scan(ps, see_owner, &a);
}

/* ---- privileges ------------------------------------------------------------------ */

static unsigned unprivileged_start(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
	unsigned start = 1024;

	if (!f)
		return start;
	if (fscanf(f, "%u", &start) != 1)
		start = 1024;
	fclose(f);
	return start;
}

/* ---- taking ---------------------------------------------------------------------- */

/* A socket of this type, bound to sa's address and this port. */
static int sock_bound(int type, const struct sockaddr *sa, bool afonly, uint16_t port)
{
	struct sockaddr_storage ss = { 0 };
	int one = 1, only, fd, err;

	memcpy(&ss, sa, sa_len(sa));
	sa_set_port((struct sockaddr *)&ss, port);
	fd = socket(sa->sa_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Ownership is decided by the name; connections of an earlier owner in
	 * TIME_WAIT must not stand in the way. With UDP anybody could then take the port,
	 * too. */
	if (type == SOCK_STREAM)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	only = afonly || !sa_any(sa);
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	if (bind(fd, (struct sockaddr *)&ss, sa_len(sa))) {
		err = -errno;
		close(fd);
		return err;
	}
	return cm_dev->fd_take(fd);
}

int port_tcp_bound(const struct sockaddr *sa, bool afonly, uint16_t port)
{
	int tcp = port_to_tcp(port, conf_get()->ports_identity);

	return tcp < 0 ? tcp : sock_bound(SOCK_STREAM, sa, afonly, (uint16_t)tcp);
}

int port_udp_bound(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
		   uint16_t port)
{
	int udp = port_to_udp(ps, port);

	return udp < 0 ? udp : sock_bound(SOCK_DGRAM, sa, afonly, (uint16_t)udp);
}

/* Binds this very port: the name, then the rules. */
static int bind_exactly(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
			bool reuse, uint16_t num, struct user_port *p)
{
	static atomic_uint serial;
	struct port_claim mine;
	struct conflict_arg a = { .mine = &mine, .port = num, .own = p->name };
	bool requested = sa_port(sa); /* else one that we have drawn: others are free */
	size_t len;
	int fd, ret;

	claim_of(sa, afonly, reuse, &mine);
	name_make(ps, sa, afonly, num, p->name);
	len = strlen(p->name);
	if (reuse)
		snprintf(p->name + len, sizeof(p->name) - len, "/r%d.%u", getpid(),
			 atomic_fetch_add(&serial, 1));
	fd = name_bind(p->name);
	if (fd == -EADDRINUSE) {
		if (requested)
			log_held(num, p->name);
		return mine.any ? -EADDRNOTAVAIL : -EADDRINUSE;
	}
	if (fd < 0)
		return log_refuse(-fd, "RDMA port %u: no unix socket for its name: %s", num,
				  strerror(-fd));
	ret = names_scan(ps, see_conflict, &a);
	if (ret) {
		if (requested)
			log_held(num, a.other);
		cm_dev->fd_close(fd);
		return ret;
	}
	p->name_fd = fd;
	p->tcp_fd = -1;
	p->num = num;
	return 0;
}

static uint32_t random_u32(void)
{
	uint32_t v;

	if (getrandom(&v, sizeof(v), GRND_NONBLOCK) != sizeof(v))
		v = (uint32_t)(getpid() * 2654435761u) ^ (uint32_t)(uintptr_t)&v;
	return v;
}

/* Ports whose TCP port lies above the usual ephemeral range (61000..65535) are
 * tried first, then the whole range that a kernel would choose from. */
static uint16_t choose(unsigned attempt)
{
	if (attempt < 64 && !conf_get()->ports_identity)
		return (uint16_t)(49969 + random_u32() % (54505 - 49969));
	return (uint16_t)(32768 + random_u32() % (61000 - 32768));
}

uint16_t port_number(void)
{
	static _Atomic uint32_t last PROCESS_STATE;
	uint32_t none = 0;

	if (!atomic_load(&last))
		atomic_compare_exchange_strong(&last, &none, random_u32() | 1);
	return (uint16_t)(32768 + atomic_fetch_add(&last, 1) % (61000 - 32768));
}

/* Whether the TCP port, or UDP port, of a chosen port is free: 0 or -errno. *tcp_fd: bound
 * to it; -1 for UDP, where a socket that is only bound would take requests without an
 * answer. Others do not look for ports there. */
static int try_chosen(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
		      uint16_t num, int *tcp_fd)
{
	int fd;

	*tcp_fd = -1;
	if (ps != RDMA_PS_UDP && ps != RDMA_PS_IPOIB) {
		*tcp_fd = port_tcp_bound(sa, afonly, num);
		return *tcp_fd < 0 ? *tcp_fd : 0;
	}
	fd = port_udp_bound(ps, sa, afonly, num);
	if (fd < 0)
		return fd;
	cm_dev->fd_close(fd);
	return 0;
}

int port_bind(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
	      bool reuse, struct user_port *p)
{
	uint16_t num = sa_port(sa);
	unsigned attempt;
	int ret = -EADDRNOTAVAIL, fd;

	if (num) {
		if (num < unprivileged_start() && !cap_effective(CAP_NET_BIND_SERVICE))
			return log_refuse(EACCES, "RDMA port %u needs CAP_NET_BIND_SERVICE",
					  num);
		if (port_to_tcp(num, conf_get()->ports_identity) < 0)
			return log_refuse(EADDRNOTAVAIL,
					  "RDMA port %u: ports from %u up have no TCP or UDP port",
					  num, PORT_LIMIT);
		return bind_exactly(ps, sa, afonly, reuse, num, p);
	}
	for (attempt = 0; attempt < 512; attempt++) {
		num = choose(attempt);
		ret = bind_exactly(ps, sa, afonly, reuse, num, p);
		if (ret && ret != -EADDRINUSE && ret != -EADDRNOTAVAIL)
			return ret;
		if (ret)
			continue;
		ret = try_chosen(ps, sa, afonly, num, &fd);
		if (!ret) {
			p->tcp_fd = fd;
			return 0;
		}
		port_release(p);
		if (ret != -EADDRINUSE && ret != -EACCES)
			return log_refuse(-ret, "no socket for a chosen RDMA port: %s",
					  strerror(-ret));
	}
	return log_refuse(EADDRNOTAVAIL, "no RDMA port was free in %u attempts", attempt);
}

int port_unique(enum rdma_port_space ps, const struct sockaddr *sa, bool afonly,
		struct user_port *p)
{
	struct port_claim mine;
	struct conflict_arg a = { .mine = &mine, .port = p->num, .own = p->name };
	char plain[PORT_NAME_MAX + 1];
	int fd, ret;

	claim_of(sa, afonly, false, &mine);
	ret = names_scan(ps, see_conflict, &a);
	if (ret) {
		log_held(p->num, a.other);
		return ret;
	}
	/* The name without the mark of REUSEADDR: nobody may join a listener. */
	name_make(ps, sa, afonly, p->num, plain);
	if (!strcmp(plain, p->name))
		return 0;
	fd = name_bind(plain);
	if (fd < 0)
		return log_refuse(-fd, "listening on RDMA port %u: its name is not free: %s",
				  p->num, strerror(-fd));
	cm_dev->fd_close(p->name_fd);
	p->name_fd = fd;
	memcpy(p->name, plain, sizeof(plain));
	return 0;
}

void port_close_tcp(struct user_port *p)
{
	if (p->tcp_fd >= 0)
		cm_dev->fd_close(p->tcp_fd);
	p->tcp_fd = -1;
}

void port_release(struct user_port *p)
{
	port_close_tcp(p);
	if (p->name_fd >= 0)
		cm_dev->fd_close(p->name_fd);
	p->name_fd = -1;
}
