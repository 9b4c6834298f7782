/* SPDX-License-Identifier: BSD-2-Clause */
/* How two processes of a host get their link: an abstract unix socket named after a
 * rendezvous port, the number that every QP number carries, or after the RDMA port of a
 * listener. Abstract names are the network namespace's, as the addresses are that led
 * here, and leave nothing behind.
 *
 *	connector: greeting, with the segment and the eventfd that wakes it
 *	listener:  greeting, with its eventfd; or "exists": there is a link already
 *
 * Both then keep the socket, over which each may be given access to the other's memory
 * (grant.h): its end is the end of the
 * peer. Equal user ids are demanded of each other (SO_PEERCRED); the overflow id
 * stands for any number of users and proves nothing. */
#include "shm/setup.h"

#include "base/fdset.h"
#include "base/log.h"
#include "shm/fdpass.h"
#include "shm/greeting.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GREETING_MS = 5000 };

/* A connection whose greetings are not exchanged yet: of ours (caller) or to us. */
struct link_setup {
	struct list node;
	bool outgoing, over;
	bool lasting; /* the name is a process's for good */
	struct link_name name;
	pid_t pid; /* the other process; 0: not known here */
	struct loop_fd lf;
	struct loop_timer timer;
	int refs; /* the descriptor's, the timer's */
	struct grant_hello grant; /* ours */
	struct link *link; /* has a duplicate of the descriptor, and is counted; or NULL */
	/* caller: what the link will be made of, and who waits */
	struct link_segment *seg;
	int wake;
	struct list setups;
};

/* Which process is behind a rendezvous port: for good, as they are held until the end. */
struct known {
	struct list node;
	struct link_name name;
	struct link *l;
};

struct setups setups = { .lock = LOCK_INIT, .links_max = LINKS_ALL };

void setups_lock(void) NO_TSA
{
	lock_get(&setups.lock);
	if (setups.ready)
		return;
	list_init(&setups.listeners);
	list_init(&setups.pending);
	list_init(&setups.links);
	list_init(&setups.known);
	if (getrandom(&setups.id, sizeof(setups.id), GRND_NONBLOCK) != sizeof(setups.id)) {
		setups.id.word[0] = loop_now();
		setups.id.word[1] = (uint64_t)getpid() << 32 ^ (uintptr_t)&setups;
	}
	setups.ready = true;
}

void setups_unlock(void) NO_TSA
{
	lock_put(&setups.lock);
}

void link_name_of_port(uint16_t port, struct link_name *name)
{
	snprintf(name->text, sizeof(name->text), "anyrdma/1/qp/%u", port);
}

socklen_t link_name_address(const struct link_name *name, struct sockaddr_un *un)
{
	size_t len = strlen(name->text);

	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(un->sun_path + 1, name->text, len);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

/* ---- answers to who asked --------------------------------------------------------- */

static void answer_run(struct loop_work *w)
{
	struct link_wait *m = container_of(w, struct link_wait, work);

	m->done(m, m->link, m->err);
}

static void answer(struct link_wait *m, struct link *l, int err)
{
	if (l)
		link_get(l);
	m->link = l;
	m->err = err;
	m->work = (struct loop_work){ .run = answer_run };
	loop_post(&m->work);
}

static void answer_all(struct link_setup *g, struct link *l, int err)
{
	struct list *n;

	while ((n = list_pop(&g->setups)))
		answer(list_entry(n, struct link_wait, node), l, err);
}

/* The id is no secret: a process that has learnt that of another must not take its place. */
static struct link *link_of_id(const struct link_id *id, pid_t pid)
{
	struct link *l;

	list_for_each(l, &setups.links, all)
		if (!memcmp(&l->peer, id, sizeof(*id)) && l->pid == pid)
			return l;
	return NULL;
}

static struct link *link_of_name(const struct link_name *name)
{
	struct known *k;

	list_for_each(k, &setups.known, node)
		if (link_name_equal(&k->name, name))
			return k->l;
	return NULL;
}

static void know(const struct link_name *name, struct link *l)
{
	struct known *k = link_of_name(name) ? NULL : malloc(sizeof(*k));

	if (!k)
		return; /* asked again next time */
	k->name = *name;
	k->l = l;
	list_add_head(&setups.known, &k->node);
}

void link_forget(struct link *l)
{
	struct known *k, *tmp;
	bool listed;

	setups_lock();
	list_for_each_safe(k, tmp, &setups.known, node) {
		if (k->l == l) {
			list_del(&k->node);
			free(k);
		}
	}
	listed = list_linked(&l->all);
	setups.nlinks -= listed;
	list_del(&l->all);
	setups_unlock();
	if (listed)
		link_put(l);
}

/* ---- guests -------------------------------------------------------------------------- */

static void setup_put(struct link_setup *g)
{
	if (!--g->refs)
		free(g);
}

static void setup_forgotten(struct loop_fd *lf)
{
	struct link_setup *g = container_of(lf, struct link_setup, lf);

	if (g->link && !g->link->dead)
		fdset_close(lf->fd);
	else
		fdpass_close(lf->fd);
	if (g->link)
		link_put(g->link);
	setups_lock();
	setup_put(g);
	setups_unlock();
}

static void setup_end(struct link_setup *g)
{
	lock_assert_held(&setups.lock);
	if (g->over)
		return;
	g->over = true;
	list_del(&g->node);
	if (!g->outgoing)
		setups.incoming--;
	if (g->seg)
		munmap(g->seg, sizeof(*g->seg));
	if (g->wake >= 0)
		fdset_close(g->wake);
	if (loop_timer_stop(&g->timer))
		setup_put(g);
	loop_fd_del(&g->lf, setup_forgotten);
}

static void setup_timeout(struct loop_timer *t)
{
	struct link_setup *g = container_of(t, struct link_setup, timer);

	setups_lock();
	if (!g->over) {
		answer_all(g, NULL, -ETIMEDOUT);
		setup_end(g);
	}
	setup_put(g);
	setups_unlock();
}

static void setup_ready(struct loop_fd *lf, uint32_t revents);

/* A process can have others wait, or drop its own; it cannot shut them out. */
static void incoming_bound(pid_t pid)
{
	struct link_setup *g, *oldest = NULL, *own = NULL;
	unsigned n = 0;

	lock_assert_held(&setups.lock);
	if (setups.incoming < SETUPS_PER_PROCESS)
		return;
	list_for_each(g, &setups.pending, node) {
		if (g->outgoing)
			continue;
		oldest = oldest ? oldest : g;
		if (g->pid != pid)
			continue;
		own = own ? own : g;
		n++;
	}
	if (n >= SETUPS_PER_PROCESS)
		setup_end(own);
	else if (setups.incoming >= SETUPS_ALL)
		setup_end(oldest);
}

struct link_setup *setup_new(int fd, bool outgoing, const struct link_name *name)
{
	struct link_setup *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = setup_ready };
	g->timer.fire = setup_timeout;
	g->outgoing = outgoing;
	g->name = *name;
	g->pid = greeting_pid(fd);
	grant_hello(&g->grant);
	g->wake = -1;
	g->refs = 1;
	list_init(&g->setups);
	list_init(&g->node);
	if (loop_fd_add(&g->lf)) {
		free(g);
		return NULL;
	}
	if (!outgoing) {
		incoming_bound(g->pid);
		setups.incoming++;
	}
	list_add_tail(&setups.pending, &g->node);
	if (loop_timer_set(&g->timer, loop_now() + GREETING_MS * MSEC))
		g->refs++;
	return g;
}

static bool too_many_links(pid_t pid)
{
	unsigned n = 0;
	struct link *l;

	lock_assert_held(&setups.lock);
	list_for_each(l, &setups.links, all)
		n += l->pid == pid;
	if (n < (pid ? LINKS_PER_PROCESS : LINKS_UNKNOWN_PID))
		return false;
	log_warn("process %d has %u links and wants another", (int)pid, n);
	return true;
}

/* The peer of a link that goes asks for another when it needs one. */
static bool make_room(void)
{
	struct link *l;

	lock_assert_held(&setups.lock);
	if (setups.nlinks < setups.links_max)
		return true;
	list_for_each(l, &setups.links, all)
		if (link_retire(l))
			return true;
	log_warn("%u links are in use, and another is wanted", setups.nlinks);
	return false;
}

/* The guest becomes a link; what it held is the link's. */
static struct link *setup_to_link(struct link_setup *g, const struct greeting *gr,
				  struct link_segment *seg, int wake, int peer_wake)
{
	struct link_fds fds = { .wake = wake, .peer_wake = peer_wake };
	struct link *l;

	lock_assert_held(&setups.lock);
	if (too_many_links(g->pid) || !make_room())
		return NULL;
	fds.sock = fdset_take(fcntl(g->lf.fd, F_DUPFD_CLOEXEC, 0));
	if (fds.sock < 0)
		return NULL;
	if (link_new(seg, g->outgoing ? 0 : 1, &gr->id, &fds, &l)) {
		fdset_close(fds.sock);
		return NULL;
	}
	l->pid = g->pid;
	grant_init(l, &g->grant, &gr->grant);
	direct_join(l, g->outgoing ? 0 : 1);
	list_add_tail(&setups.links, &l->all); /* with the first reference */
	setups.nlinks++;
	link_get(l);
	g->link = l;
	return l;
}

/* The listener's answer has come. */
static int outgoing_step(struct link_setup *g, const struct greeting *gr, int *fds, int n,
		       struct link **start)
{
	struct link *l;
	int wake;

	lock_assert_held(&setups.lock);
	if (gr->status == GREETING_EXISTS) {
		l = link_of_id(&gr->id, g->pid);
		if (!l)
			return -EAGAIN;
	} else {
		if (gr->status != GREETING_OK || n != 1)
			return -EPROTO;
		wake = fdset_take(greeting_wake_take(fds[0]));
		if (wake < 0)
			return wake;
		l = setup_to_link(g, gr, g->seg, g->wake, wake);
		if (!l) {
			fdset_close(wake);
			return -ENOMEM;
		}
		g->seg = NULL;
		g->wake = -1;
		*start = l;
	}
	if (g->lasting)
		know(&g->name, l);
	answer_all(g, l, 0);
	return 0;
}

/* Another process asks for a link. */
static int incoming_step(struct link_setup *g, const struct greeting *gr, int *fds, int n,
			struct link **start)
{
	struct link_segment *seg;
	int wake, peer_wake, give = -1, ret;
	struct link *l;

	lock_assert_held(&setups.lock);
	if (gr->status != GREETING_HELLO || n != 2 || !greeting_same_user(g->lf.fd))
		return -EPROTO;
	if (link_of_id(&gr->id, g->pid))
		return greeting_send(g->lf.fd, &setups.id, GREETING_EXISTS, &g->grant, NULL, 0);
	seg = link_segment_take(fds[0]);
	wake = fdset_take(greeting_wake_new(&give));
	peer_wake = fdset_take(greeting_wake_take(fds[1]));
	if (!seg || wake < 0 || peer_wake < 0)
		goto fail;
	l = setup_to_link(g, gr, seg, wake, peer_wake);
	if (!l)
		goto fail;
	*start = l;
	/* The peer may send as soon as it reads this; its records wait in the ring. */
	ret = greeting_send(g->lf.fd, &setups.id, GREETING_OK, &g->grant, &give, 1);
	close(give);
	return ret;
fail:
	if (seg)
		munmap(seg, sizeof(*seg));
	if (wake >= 0) {
		fdset_close(wake);
		close(give);
	}
	if (peer_wake >= 0)
		fdset_close(peer_wake);
	return peer_wake == -EPROTO ? -EPROTO : -ENOMEM;
}

static void setup_ready(struct loop_fd *lf, uint32_t revents)
{
	struct link_setup *g = container_of(lf, struct link_setup, lf);
	struct link *start = NULL;
	struct greeting gr;
	int fds[GREETING_FDS] = { -1, -1 }, n, ret;

	(void)revents;
	setups_lock();
	n = g->over ? -EAGAIN : greeting_recv(lf->fd, &gr, fds);
	if (n == -EAGAIN) {
		setups_unlock();
		return;
	}
	ret = n < 0	  ? n :
	      g->outgoing ? outgoing_step(g, &gr, fds, n, &start) :
			  incoming_step(g, &gr, fds, n, &start);
	for (int i = 0; i < n; i++)
		fdpass_discard(fds[i]);
	if (ret) {
		log_info("link over %s: %s", g->name.text, strerror(-ret));
		answer_all(g, NULL, ret);
	}
	setup_end(g);
	if (start)
		link_get(start);
	setups_unlock();
	if (!start)
		return;
	if (ret || link_start(start))
		link_break(start, "it could not be started");
	link_put(start);
}

/* ---- asking --------------------------------------------------------------------------- */

static int outgoing_start(const struct link_name *name, struct link_setup **out)
{
	struct sockaddr_un un;
	socklen_t len = link_name_address(name, &un);
	int fd = fdset_take(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int fds[2], ret = -ENOMEM;
	struct link_setup *g;

	lock_assert_held(&setups.lock);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&un, len)) {
		ret = -errno;
		fdset_close(fd);
		return ret;
	}
	if (!greeting_same_user(fd) || !greeting_still_same_user(fd)) {
		fdpass_close(fd);
		return -EPERM;
	}
	g = setup_new(fd, true, name);
	if (!g) {
		fdpass_close(fd);
		return -ENOMEM;
	}
	fds[0] = link_segment_new(&g->seg);
	g->wake = fdset_take(greeting_wake_new(&fds[1]));
	if (fds[0] >= 0 && g->wake >= 0)
		ret = greeting_send(fd, &setups.id, GREETING_HELLO, &g->grant, fds, 2);
	if (fds[0] >= 0)
		close(fds[0]);
	if (g->wake >= 0)
		close(fds[1]);
	if (ret)
		setup_end(g);
	else
		*out = g;
	return ret;
}

static struct link_setup *outgoing_find(const struct link_name *name)
{
	struct link_setup *g;

	list_for_each(g, &setups.pending, node)
		if (g->outgoing && link_name_equal(&g->name, name))
			return g;
	return NULL;
}

/* Two ends in one process: one asks, the other answers. */
static int self_new(struct link *both[2])
{
	struct link_segment *seg = link_segment_map(-1);
	int wake[2], peer[2], ret = -EMFILE;
	struct link_fds fds[2];

	if (!seg)
		return -ENOMEM;
	for (int i = 0; i < 2; i++)
		wake[i] = fdset_take(greeting_wake_new(&peer[!i]));
	for (int i = 0; i < 2; i++)
		peer[i] = wake[!i] < 0 ? -1 : fdset_take(peer[i]);
	both[0] = both[1] = NULL;
	if (wake[0] >= 0 && wake[1] >= 0 && peer[0] >= 0 && peer[1] >= 0) {
		for (int i = 0; i < 2; i++)
			fds[i] = (struct link_fds){ wake[i], peer[i], -1 };
		ret = link_new(seg, 0, &setups.id, &fds[0], &both[0]);
		if (!ret)
			ret = link_new(seg, 1, &setups.id, &fds[1], &both[1]);
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
		both[i] = NULL;
	}
	munmap(seg, sizeof(*seg));
	return ret;
}

static int self_get(struct link **out)
{
	int ret = 0;

	lock_assert_held(&setups.lock);
	if (!setups.self[0])
		ret = self_new(setups.self);
	/* What could not be started is, the next time. */
	for (int i = 0; i < 2 && !ret; i++)
		if (!setups.self[i]->wake_in)
			ret = link_start(setups.self[i]);
	*out = ret ? NULL : setups.self[0];
	return ret;
}

static void ask(const struct link_name *name, bool lasting, struct link_wait *m)
{
	struct link *l;
	struct link_setup *g;
	int ret = 0;

	setups_lock();
	l = lasting ? link_of_name(name) : NULL;
	if (!l && link_listener_find(name))
		ret = self_get(&l);
	if (l || ret) {
		answer(m, l, ret);
		setups_unlock();
		return;
	}
	g = outgoing_find(name);
	if (!g)
		ret = outgoing_start(name, &g);
	if (ret) {
		answer(m, NULL, ret);
	} else {
		g->lasting = lasting;
		list_add_tail(&g->setups, &m->node);
	}
	setups_unlock();
}

void link_find_port(uint16_t port, struct link_wait *m)
{
	struct link_name name;

	link_name_of_port(port, &name);
	ask(&name, true, m);
}

void link_find_name(const char *text, struct link_wait *m)
{
	struct link_name name;

	snprintf(name.text, sizeof(name.text), "%s", text);
	ask(&name, false, m);
}
