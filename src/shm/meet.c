/* SPDX-License-Identifier: BSD-2-Clause */
/* How two processes of a host get their link: an abstract unix socket named after a
 * rendezvous port, the number that every QP number carries, or after the RDMA port of a
 * listener. Abstract names are the network namespace's, as the addresses are that led
 * here, and leave nothing behind.
 *
 *	connector: greeting, with the segment and its eventfd
 *	listener:  greeting, with its eventfd; or "exists": there is a link already
 *
 * and with what direct access needs, where they grant it to each other (direct.c).
 *
 * Both then keep the socket, on which nothing more is said: its end is the end of the
 * peer. Equal user ids are demanded of each other (SO_PEERCRED); the overflow id
 * stands for any number of users and proves nothing. */
#include "shm/shm.h"

#include "base/conf.h"
#include "base/fdset.h"
#include "base/lock.h"
#include "base/log.h"
#include "dev/qpn.h"
#include "shm/call.h"
#include "shm/greeting.h"
#include "shm/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
	GREETING_MS = 5000,
	VISITORS_MAX = 1024, /* of this user, without a whole greeting */
	BACKLOG = 1024,
	SHORTAGE_MS = 250,
	OVERFLOW_UID = 65534,
};
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

enum { FDS = 2 + DIRECT_FDS };

struct meet_name {
	char text[CALL_NAME_MAX + 1];
};

/* A name of ours. */
struct host {
	struct list node;
	struct meet_name name;
	int refs;  /* the descriptor's, the timer's */
	bool gone; /* the descriptor, not ours, may be closed */
	struct loop_fd lf;
	struct loop_timer timer; /* out of descriptors: listens again */
};

/* A connection whose greetings are not exchanged yet: of ours (caller) or to us. */
struct guest {
	struct list node;
	bool caller, over;
	bool lasting; /* the name is a process's for good */
	struct meet_name name;
	struct loop_fd lf;
	struct loop_timer timer;
	int refs; /* the descriptor's, the timer's */
	/* caller: what the link will be made of, and who waits */
	struct link_segment *seg;
	int wake;
	struct list meets;
};

/* Which process is behind a rendezvous port: for good, as they are held until the end. */
struct known {
	struct list node;
	struct meet_name name;
	struct link *l;
};

static struct {
	struct lock lock; /* guards all; outside of a link's locks */
	struct list hosts, guests, links, known;
	unsigned visitors;
	struct link_id id;
	struct link *self[2]; /* the end that asks, the end that answers */
	bool ready;
} meets = { .lock = LOCK_INIT };

static void meets_lock(void) ACQUIRE(meets.lock) NO_TSA
{
	lock_get(&meets.lock);
	if (meets.ready)
		return;
	list_init(&meets.hosts);
	list_init(&meets.guests);
	list_init(&meets.links);
	list_init(&meets.known);
	if (getrandom(&meets.id, sizeof(meets.id), GRND_NONBLOCK) != sizeof(meets.id)) {
		meets.id.word[0] = loop_now();
		meets.id.word[1] = (uint64_t)getpid() << 32 ^ (uintptr_t)&meets;
	}
	meets.ready = true;
}

static void meets_unlock(void) RELEASE(meets.lock) NO_TSA
{
	lock_put(&meets.lock);
}

static void name_of(uint16_t port, struct meet_name *name)
{
	snprintf(name->text, sizeof(name->text), "anyrdma/1/qp/%u", port);
}

static socklen_t address_of(const struct meet_name *name, struct sockaddr_un *un)
{
	size_t len = strlen(name->text);

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, name->text, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

static bool same_name(const struct meet_name *a, const struct meet_name *b)
{
	return !strcmp(a->text, b->text);
}

/* The user of who connected; or of who listens, when it began to. */
static bool same_user(int fd)
{
	struct ucred c;
	socklen_t len = sizeof(c);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len) && c.uid == geteuid() &&
	       c.uid != OVERFLOW_UID;
}

/* A server may have listened as root and be somebody else by now, who must not get at
 * our memory. One in another pid namespace (pid 0) cannot be asked. */
static bool still_same_user(int fd)
{
	unsigned real, effective, saved, fs, me = geteuid();
	struct ucred c = { 0 };
	socklen_t len = sizeof(c);
	char path[64], line[256];
	bool same = false;
	FILE *f;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len))
		return false;
	if (!c.pid)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/status", c.pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Uid: %u %u %u %u", &real, &effective, &saved, &fs) == 4)
			same = real == me && effective == me && saved == me && fs == me;
	if (f)
		fclose(f);
	return same;
}

/* ---- answers to who asked --------------------------------------------------------- */

static void answer_run(struct loop_work *w)
{
	struct meet *m = container_of(w, struct meet, work);

	m->done(m, m->link, m->err);
}

static void answer(struct meet *m, struct link *l, int err)
{
	if (l)
		link_get(l);
	m->link = l;
	m->err = err;
	m->work = (struct loop_work){ .run = answer_run };
	loop_post(&m->work);
}

static void answer_all(struct guest *g, struct link *l, int err)
{
	struct list *n;

	while ((n = list_pop(&g->meets)))
		answer(list_entry(n, struct meet, node), l, err);
}

static struct link *link_of_id(const struct link_id *id)
{
	struct link *l;

	list_for_each(l, &meets.links, all)
		if (!memcmp(&l->peer, id, sizeof(*id)))
			return l;
	return NULL;
}

static struct link *link_of_name(const struct meet_name *name)
{
	struct known *k;

	list_for_each(k, &meets.known, node)
		if (same_name(&k->name, name))
			return k->l;
	return NULL;
}

static void know(const struct meet_name *name, struct link *l)
{
	struct known *k = link_of_name(name) ? NULL : malloc(sizeof(*k));

	if (!k)
		return; /* asked again next time */
	k->name = *name;
	k->l = l;
	list_add_head(&meets.known, &k->node);
}

void meet_forget(struct link *l)
{
	struct known *k, *tmp;
	bool listed;

	meets_lock();
	list_for_each_safe(k, tmp, &meets.known, node) {
		if (k->l == l) {
			list_del(&k->node);
			free(k);
		}
	}
	listed = list_linked(&l->all);
	list_del(&l->all);
	meets_unlock();
	if (listed)
		link_put(l);
}

/* ---- the segment -------------------------------------------------------------------- */

static struct link_segment *segment_map(int fd)
{
	struct link_segment *seg = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE,
					fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);

	if (seg == MAP_FAILED)
		return NULL;
	madvise(seg, sizeof(*seg), MADV_DONTFORK);
	return seg;
}

static int segment_new(struct link_segment **seg)
{
	int fd = memfd_create("anyrdma link", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, sizeof(**seg)) || fcntl(fd, F_ADD_SEALS, SEALS) ||
	    !(*seg = segment_map(fd))) {
		int ret = errno ? -errno : -ENOMEM;

		close(fd);
		return ret;
	}
	return fd;
}

/* Sealed in its size: a peer that shrank it would have us killed by SIGBUS. */
static struct link_segment *segment_take(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS); /* -1: a file that cannot be sealed */
	struct stat st;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) ||
	    st.st_size != sizeof(struct link_segment))
		return NULL;
	return segment_map(fd);
}

static bool is_eventfd(int fd)
{
	char path[64], what[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, what, sizeof(what) - 1);
	if (n < 0)
		return false;
	what[n] = 0;
	return !strcmp(what, "anon_inode:[eventfd]") && !fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* ---- greetings ---------------------------------------------------------------------- */

/* With n descriptors; an offer of direct access is made where any are. */
static int greeting_send(int fd, enum greeting_status status, const int *give, unsigned n)
{
	struct greeting g = {
		.magic = GREETING_MAGIC,
		.version = GREETING_VERSION,
		.status = status,
		.size = sizeof(struct link_segment),
		.id = meets.id,
	};
	struct iovec iov = { &g, sizeof(g) };
	union {
		struct cmsghdr h;
		char buf[CMSG_SPACE(FDS * sizeof(int))];
	} c;
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	int fds[FDS];

	if (n) {
		memcpy(fds, give, n * sizeof(int));
		n += direct_offer(&g.direct, fds + n);
		memset(&c, 0, sizeof(c));
		msg.msg_control = c.buf;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c.h.cmsg_level = SOL_SOCKET;
		c.h.cmsg_type = SCM_RIGHTS;
		c.h.cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(&c.h), fds, n * sizeof(int));
	}
	/* A fresh unix socket takes so little in one piece. */
	return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(g) ? 0 : -EIO;
}

/* Number of descriptors that came along, into fds; -EAGAIN, -errno. */
static int greeting_recv(int fd, struct greeting *g, int fds[FDS])
{
	struct iovec iov = { g, sizeof(*g) };
	union {
		struct cmsghdr h;
		char buf[CMSG_SPACE(FDS * sizeof(int))];
	} c;
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = c.buf,
			      .msg_controllen = sizeof(c.buf) };
	ssize_t got = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int n = 0;

	if (got < 0)
		return errno == EINTR ? -EAGAIN : -errno;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(h), (size_t)n * sizeof(int));
	}
	if (got == sizeof(*g) && g->magic == GREETING_MAGIC && g->version == GREETING_VERSION &&
	    g->size == sizeof(struct link_segment) && !(msg.msg_flags & MSG_CTRUNC))
		return n;
	for (int i = 0; i < n; i++)
		close(fds[i]);
	return got ? -EPROTO : -ECONNRESET;
}

/* ---- guests -------------------------------------------------------------------------- */

static void guest_put(struct guest *g)
{
	if (!--g->refs)
		free(g);
}

static void guest_forgotten(struct loop_fd *lf)
{
	struct guest *g = container_of(lf, struct guest, lf);

	if (lf->fd >= 0)
		fdset_close(lf->fd);
	meets_lock();
	guest_put(g);
	meets_unlock();
}

/* The descriptor stays open if the link has it now (keep): a duplicate goes. */
static void guest_end(struct guest *g)
{
	lock_assert_held(&meets.lock);
	if (g->over)
		return;
	g->over = true;
	list_del(&g->node);
	if (!g->caller)
		meets.visitors--;
	if (g->seg)
		munmap(g->seg, sizeof(*g->seg));
	if (g->wake >= 0)
		fdset_close(g->wake);
	if (loop_timer_stop(&g->timer))
		guest_put(g);
	loop_fd_del(&g->lf, guest_forgotten);
}

static void guest_timeout(struct loop_timer *t)
{
	struct guest *g = container_of(t, struct guest, timer);

	meets_lock();
	if (!g->over) {
		answer_all(g, NULL, -ETIMEDOUT);
		guest_end(g);
	}
	guest_put(g);
	meets_unlock();
}

static void guest_ready(struct loop_fd *lf, uint32_t revents);

static struct guest *guest_new(int fd, bool caller, const struct meet_name *name)
{
	struct guest *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = guest_ready };
	g->timer.fire = guest_timeout;
	g->caller = caller;
	g->name = *name;
	g->wake = -1;
	g->refs = 1;
	list_init(&g->meets);
	list_init(&g->node);
	if (loop_fd_add(&g->lf)) {
		free(g);
		return NULL;
	}
	list_add_tail(&meets.guests, &g->node);
	if (!caller)
		meets.visitors++;
	if (loop_timer_set(&g->timer, loop_now() + GREETING_MS * MSEC))
		g->refs++;
	return g;
}

/* The guest becomes a link; what it held is the link's. */
static struct link *guest_to_link(struct guest *g, const struct greeting *gr,
				  struct link_segment *seg, int wake, int peer_wake)
{
	int sock = fdset_take(fcntl(g->lf.fd, F_DUPFD_CLOEXEC, 0));
	struct link *l;

	lock_assert_held(&meets.lock);
	if (sock < 0)
		return NULL;
	if (link_new(seg, g->caller ? 0 : 1, &gr->id, wake, peer_wake, sock, &l)) {
		fdset_close(sock);
		return NULL;
	}
	list_add_tail(&meets.links, &l->all); /* with the first reference */
	return l;
}

/* The listener's answer has come. */
static int caller_step(struct guest *g, const struct greeting *gr, int *fds, int n,
		       struct link **start)
{
	struct link *l;
	int wake;

	lock_assert_held(&meets.lock);
	if (gr->status == GREETING_EXISTS) {
		l = link_of_id(&gr->id);
		if (!l)
			return -EAGAIN;
	} else {
		if (gr->status != GREETING_OK || n < 1 || !is_eventfd(fds[0]))
			return -EPROTO;
		wake = fdset_take(fds[0]);
		fds[0] = -1;
		l = guest_to_link(g, gr, g->seg, g->wake, wake);
		if (!l) {
			fdset_close(wake);
			return -ENOMEM;
		}
		g->seg = NULL;
		g->wake = -1;
		direct_join(l, 0, &gr->direct, fds + 1, n - 1);
		*start = l;
	}
	if (g->lasting)
		know(&g->name, l);
	answer_all(g, l, 0);
	return 0;
}

/* Another process asks for a link. */
static int visitor_step(struct guest *g, const struct greeting *gr, int *fds, int n,
			struct link **start)
{
	struct link_segment *seg;
	int wake, peer_wake;
	struct link *l;

	lock_assert_held(&meets.lock);
	if (gr->status != GREETING_HELLO || n < 2 || !is_eventfd(fds[1]) ||
	    !same_user(g->lf.fd))
		return -EPROTO;
	if (link_of_id(&gr->id))
		return greeting_send(g->lf.fd, GREETING_EXISTS, NULL, 0);
	seg = segment_take(fds[0]);
	wake = fdset_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!seg || wake < 0)
		goto fail;
	peer_wake = fdset_take(fds[1]);
	fds[1] = -1;
	l = guest_to_link(g, gr, seg, wake, peer_wake);
	if (!l) {
		fdset_close(peer_wake);
		goto fail;
	}
	direct_join(l, 1, &gr->direct, fds + 2, n - 2);
	*start = l;
	/* The peer may send as soon as it reads this; its records wait in the ring. */
	return greeting_send(g->lf.fd, GREETING_OK, &wake, 1);
fail:
	if (seg)
		munmap(seg, sizeof(*seg));
	if (wake >= 0)
		fdset_close(wake);
	return -ENOMEM;
}

static void guest_ready(struct loop_fd *lf, uint32_t revents)
{
	struct guest *g = container_of(lf, struct guest, lf);
	struct link *start = NULL;
	struct greeting gr;
	int fds[FDS] = { -1, -1 }, n, ret;

	(void)revents;
	meets_lock();
	n = g->over ? -EAGAIN : greeting_recv(lf->fd, &gr, fds);
	if (n == -EAGAIN) {
		meets_unlock();
		return;
	}
	ret = n < 0	  ? n :
	      g->caller ? caller_step(g, &gr, fds, n, &start) :
			  visitor_step(g, &gr, fds, n, &start);
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	if (ret) {
		log_info("link over %s: %s", g->name.text, strerror(-ret));
		answer_all(g, NULL, ret);
	}
	guest_end(g);
	if (start)
		link_get(start);
	meets_unlock();
	if (!start)
		return;
	if (ret || link_start(start))
		link_break(start, "it could not be started");
	link_put(start);
}

/* ---- asking --------------------------------------------------------------------------- */

static int caller_start(const struct meet_name *name, struct guest **out)
{
	struct sockaddr_un un;
	socklen_t len = address_of(name, &un);
	int fd = fdset_take(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int fds[2], ret = -ENOMEM;
	struct guest *g;

	lock_assert_held(&meets.lock);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&un, len)) {
		ret = -errno;
		fdset_close(fd);
		return ret;
	}
	if (!same_user(fd) || !still_same_user(fd)) {
		fdset_close(fd);
		return -EPERM;
	}
	g = guest_new(fd, true, name);
	if (!g) {
		fdset_close(fd);
		return -ENOMEM;
	}
	fds[0] = segment_new(&g->seg);
	g->wake = fdset_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	fds[1] = g->wake;
	if (fds[0] >= 0 && g->wake >= 0)
		ret = greeting_send(fd, GREETING_HELLO, fds, 2);
	if (fds[0] >= 0)
		close(fds[0]);
	if (ret)
		guest_end(g);
	else
		*out = g;
	return ret;
}

static struct guest *caller_find(const struct meet_name *name)
{
	struct guest *g;

	list_for_each(g, &meets.guests, node)
		if (g->caller && same_name(&g->name, name))
			return g;
	return NULL;
}

static struct host *host_find(const struct meet_name *name)
{
	struct host *h;

	list_for_each(h, &meets.hosts, node)
		if (same_name(&h->name, name))
			return h;
	return NULL;
}

/* Two ends in one process: one asks, the other answers. */
static int self_new(struct link *both[2])
{
	struct link_segment *seg = segment_map(-1);
	int wake[2], peer[2], ret = -EMFILE;

	if (!seg)
		return -ENOMEM;
	for (int i = 0; i < 2; i++)
		wake[i] = fdset_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	for (int i = 0; i < 2; i++)
		peer[i] = fdset_take(fcntl(wake[!i], F_DUPFD_CLOEXEC, 0));
	both[0] = both[1] = NULL;
	if (wake[0] >= 0 && wake[1] >= 0 && peer[0] >= 0 && peer[1] >= 0) {
		ret = link_new(seg, 0, &meets.id, wake[0], peer[0], -1, &both[0]);
		if (!ret)
			ret = link_new(seg, 1, &meets.id, wake[1], peer[1], -1, &both[1]);
	}
	if (!ret) {
		direct_join_self(both[0], 0);
		direct_join_self(both[1], 1);
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		if (both[i])
			link_put(both[i]); /* closes its peer[i] */
		else
			fdset_close(peer[i]);
		fdset_close(wake[i]);
	}
	munmap(seg, sizeof(*seg));
	return ret;
}

static int self_get(struct link **out)
{
	struct link *both[2];
	int ret;

	lock_assert_held(&meets.lock);
	*out = meets.self[0];
	if (*out)
		return 0;
	ret = self_new(both);
	if (ret)
		return ret;
	ret = link_start(both[0]);
	if (!ret)
		ret = link_start(both[1]);
	if (!ret) {
		memcpy(meets.self, both, sizeof(both));
		*out = both[0];
	}
	return ret;
}

static void ask(const struct meet_name *name, bool lasting, struct meet *m)
{
	struct link *l;
	struct guest *g;
	int ret = 0;

	meets_lock();
	l = lasting ? link_of_name(name) : NULL;
	if (!l && host_find(name))
		ret = self_get(&l);
	if (l || ret) {
		answer(m, l, ret);
		meets_unlock();
		return;
	}
	g = caller_find(name);
	if (!g)
		ret = caller_start(name, &g);
	if (ret) {
		answer(m, NULL, ret);
	} else {
		g->lasting = lasting;
		list_add_tail(&g->meets, &m->node);
	}
	meets_unlock();
}

void meet_ask(uint16_t port, struct meet *m)
{
	struct meet_name name;

	name_of(port, &name);
	ask(&name, true, m);
}

void meet_ask_name(const char *text, struct meet *m)
{
	struct meet_name name;

	snprintf(name.text, sizeof(name.text), "%s", text);
	ask(&name, false, m);
}

/* ---- listening -------------------------------------------------------------------------- */

/* The next visitor, or -errno. */
static int host_accept(struct host *h)
{
	int fd;

	lock_assert_held(&meets.lock);
	if (h->gone)
		return -EAGAIN;
	fd = accept4(h->lf.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return -errno;
	fd = fdset_take(fd);
	/* Nothing is taken from strangers: what they give might be hard to close. */
	if (meets.visitors >= VISITORS_MAX || !same_user(fd) || !guest_new(fd, false, &h->name))
		fdset_close(fd);
	return 0;
}

static void host_ready(struct loop_fd *lf, uint32_t revents)
{
	struct host *h = container_of(lf, struct host, lf);
	int ret;

	(void)revents;
	meets_lock();
	while (!(ret = host_accept(h)) || ret == -EINTR)
		;
	if (ret == -EMFILE || ret == -ENFILE) {
		log_warn("no descriptor for a link: %s", strerror(-ret));
		loop_fd_mod(&h->lf, 0);
		if (loop_timer_set(&h->timer, loop_now() + SHORTAGE_MS * MSEC))
			h->refs++;
	}
	meets_unlock();
}

static void host_put(struct host *h)
{
	lock_assert_held(&meets.lock);
	if (!--h->refs)
		free(h);
}

static void host_again(struct loop_timer *t)
{
	struct host *h = container_of(t, struct host, timer);

	meets_lock();
	if (!h->gone)
		loop_fd_mod(&h->lf, EPOLLIN);
	host_put(h);
	meets_unlock();
}

static void host_forgotten(struct loop_fd *lf)
{
	meets_lock();
	host_put(container_of(lf, struct host, lf));
	meets_unlock();
}

static int host_new(int fd, const struct meet_name *name)
{
	struct host *h = calloc(1, sizeof(*h));
	int ret;

	lock_assert_held(&meets.lock);
	if (!h)
		return -ENOMEM;
	h->refs = 1;
	h->name = *name;
	h->timer.fire = host_again;
	h->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = host_ready };
	ret = listen(fd, BACKLOG) ? -errno : loop_fd_add(&h->lf);
	if (ret)
		free(h);
	else
		list_add_tail(&meets.hosts, &h->node);
	return ret;
}

/* A rendezvous port of ours: for good. */
static int host_port(const struct meet_name *name)
{
	struct sockaddr_un un;
	socklen_t len = address_of(name, &un);
	int fd = fdset_take(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int ret = fd < 0 || bind(fd, (struct sockaddr *)&un, len) ? -errno : 0;

	if (!ret)
		ret = host_new(fd, name);
	if (ret) {
		log_info("no unix socket %s, TCP alone: %s", name->text, strerror(-ret));
		if (fd >= 0)
			fdset_close(fd);
	}
	return ret;
}

int meet_listen(uint16_t port)
{
	struct meet_name name;
	int ret = 0;

	name_of(port, &name);
	meets_lock();
	if (!host_find(&name))
		ret = host_port(&name);
	meets_unlock();
	return ret;
}

int meet_host(int fd, const char *text)
{
	struct meet_name name;
	int ret;

	snprintf(name.text, sizeof(name.text), "%s", text);
	meets_lock();
	ret = host_new(fd, &name);
	meets_unlock();
	return ret;
}

void meet_unhost(const char *text)
{
	struct meet_name name;
	struct host *h;

	snprintf(name.text, sizeof(name.text), "%s", text);
	meets_lock();
	h = host_find(&name);
	if (h) {
		h->gone = true;
		list_del(&h->node);
		if (loop_timer_stop(&h->timer))
			host_put(h);
		loop_fd_del(&h->lf, host_forgotten);
	}
	meets_unlock();
}
