/* SPDX-License-Identifier: BSD-2-Clause */
/* How two processes of a host get their link. One listens on an abstract unix socket,
 * which is named after a rendezvous port (the upper bits of a QP number) or after the
 * RDMA port of a CM listener. Abstract names belong to the network namespace, as
 * addresses do, and vanish with the process. The other connects, and they exchange:
 *
 *	connector: HELLO, with the segment and the eventfd that wakes it
 *	listener:  OK, with its eventfd; or EXISTS: the two have a link already
 *
 * Both keep the socket: over it each side may grant the other access to its memory
 * (grant.h), and when it ends, the peer has ended. Each side requires that the other has
 * the same user id (SO_PEERCRED). The overflow id stands for any number of users and is
 * refused. */
#include "shm/setup.h"

#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
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

/* A connection over which the greetings are being exchanged. */
struct link_setup {
	struct list node; /* setups.pending */
	bool outgoing;	  /* this process has connected; else it has accepted */
	bool ended;
	bool by_port; /* the name is that of a rendezvous port */
	struct link_name name;
	pid_t pid; /* of the other process; 0: it has none here */
	struct loop_fd lf;
	struct loop_timer timer;
	int refs;		  /* one of lf, one of the timer */
	struct grant_hello grant; /* of this process */
	/* The link that was made, counted; it has a duplicate of the descriptor; or
	 * NULL */
	struct link *link;
	/* outgoing: parts of the link, and struct link_wait */
	struct link_segment *seg;
	int wake;
	struct list waits;
};

/* The link to the process that has a rendezvous port. A process keeps its ports until it
 * ends. */
struct known_port {
	struct list node;
	struct link_name name;
	struct link *l;
};

struct setups setups PROCESS_STATE = { .lock = LOCK_INIT, .links_max = LINKS_ALL };

void setups_lock(void) NO_TSA
{
	lock_get(&setups.lock);
	if (setups.ready)
		return;
	list_init(&setups.listeners);
	list_init(&setups.pending);
	list_init(&setups.links);
	list_init(&setups.known_ports);
	if (getrandom(&setups.id, sizeof(setups.id), GRND_NONBLOCK) !=
	    sizeof(setups.id)) {
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

/* ---- results ---------------------------------------------------------------------- */

static void wait_done_run(struct loop_work *work)
{
	struct link_wait *w = container_of(work, struct link_wait, work);

	w->done(w, w->link, w->err);
}

static void wait_done(struct link_wait *w, struct link *l, int err)
{
	if (l)
		link_get(l);
	w->link = l;
	w->err = err;
	w->work = (struct loop_work){ .run = wait_done_run };
	loop_post(&w->work);
}

static void waits_done(struct link_setup *su, struct link *l, int err)
{
	struct list *n;

	while ((n = list_pop(&su->waits)))
		wait_done(list_entry(n, struct link_wait, node), l, err);
}

/* The pid is compared, too: ids are not secret, and a process must not get the link of
 * another by sending that one's id. */
static struct link *link_by_id(const struct link_id *id, pid_t pid)
{
	struct link *l;

	list_for_each(l, &setups.links, node)
		if (!memcmp(&l->peer_id, id, sizeof(*id)) && l->peer_pid == pid)
			return l;
	return NULL;
}

static struct link *link_by_port(const struct link_name *name)
{
	struct known_port *k;

	list_for_each(k, &setups.known_ports, node)
		if (link_name_equal(&k->name, name))
			return k->l;
	return NULL;
}

static void port_remember(const struct link_name *name, struct link *l)
{
	struct known_port *k = link_by_port(name) ? NULL : malloc(sizeof(*k));

	if (!k)
		return; /* the next wait connects again */
	k->name = *name;
	k->l = l;
	list_add_head(&setups.known_ports, &k->node);
}

void link_unlist(struct link *l)
{
	struct known_port *k, *tmp;
	bool listed;

	setups_lock();
	list_for_each_safe(k, tmp, &setups.known_ports, node) {
		if (k->l == l) {
			list_del(&k->node);
			free(k);
		}
	}
	listed = list_linked(&l->node);
	setups.nlinks -= listed;
	list_del(&l->node);
	setups_unlock();
	if (listed)
		link_put(l);
}

/* ---- setups ---------------------------------------------------------------------- */

static void setup_put(struct link_setup *su)
{
	if (!--su->refs)
		free(su);
}

static void setup_removed(struct loop_fd *lf)
{
	struct link_setup *su = container_of(lf, struct link_setup, lf);

	if (su->link && !su->link->dead)
		fdset_close(lf->fd);
	else
		fdpass_close(lf->fd);
	if (su->link)
		link_put(su->link);
	setups_lock();
	setup_put(su);
	setups_unlock();
}

static void setup_end(struct link_setup *su)
{
	lock_assert_held(&setups.lock);
	if (su->ended)
		return;
	su->ended = true;
	list_del(&su->node);
	if (!su->outgoing)
		setups.incoming--;
	if (su->seg)
		munmap(su->seg, sizeof(*su->seg));
	if (su->wake >= 0)
		fdset_close(su->wake);
	if (loop_timer_stop(&su->timer))
		setup_put(su);
	loop_fd_del(&su->lf, setup_removed);
}

static void setup_timeout(struct loop_timer *t)
{
	struct link_setup *su = container_of(t, struct link_setup, timer);

	setups_lock();
	if (!su->ended) {
		waits_done(su, NULL, -ETIMEDOUT);
		setup_end(su);
	}
	setup_put(su);
	setups_unlock();
}

static void setup_ready(struct loop_fd *lf, uint32_t revents);

/* Makes room for a setup of this process. A process with too many loses its own oldest
 * one, so it cannot keep others from being served. */
static void incoming_limit(pid_t pid)
{
	struct link_setup *su, *oldest = NULL, *own = NULL;
	unsigned n = 0;

	lock_assert_held(&setups.lock);
	if (setups.incoming < SETUPS_PER_PROCESS)
		return;
	list_for_each(su, &setups.pending, node) {
		if (su->outgoing)
			continue;
		oldest = oldest ? oldest : su;
		if (su->pid != pid)
			continue;
		own = own ? own : su;
		n++;
	}
	if (n >= SETUPS_PER_PROCESS)
		setup_end(own);
	else if (setups.incoming >= SETUPS_ALL)
		setup_end(oldest);
}

struct link_setup *setup_new(int fd, bool outgoing, const struct link_name *name)
{
	struct link_setup *su = calloc(1, sizeof(*su));

	if (!su)
		return NULL;
	su->lf = (struct loop_fd){ .fd = fd, .events = EPOLLIN, .ready = setup_ready };
	su->timer.fire = setup_timeout;
	su->outgoing = outgoing;
	su->name = *name;
	su->pid = greeting_pid(fd);
	grant_hello(&su->grant);
	su->wake = -1;
	su->refs = 1;
	list_init(&su->waits);
	list_init(&su->node);
	if (loop_fd_add(&su->lf)) {
		free(su);
		return NULL;
	}
	if (!outgoing) {
		incoming_limit(su->pid);
		setups.incoming++;
	}
	list_add_tail(&setups.pending, &su->node);
	if (loop_timer_set(&su->timer, loop_now() + GREETING_MS * MSEC))
		su->refs++;
	return su;
}

static bool too_many_links(pid_t pid)
{
	unsigned n = 0;
	struct link *l;

	lock_assert_held(&setups.lock);
	list_for_each(l, &setups.links, node)
		n += l->peer_pid == pid;
	if (n < (pid ? LINKS_PER_PROCESS : LINKS_UNKNOWN_PID))
		return false;
	log_warn("process %d has %u links and wants another", (int)pid, n);
	return true;
}

/* If there are too many links, ends one without streams. Its peer makes another when it
 * needs one. */
static bool room_for_link(void)
{
	struct link *l;

	lock_assert_held(&setups.lock);
	if (setups.nlinks < setups.links_max)
		return true;
	list_for_each(l, &setups.links, node)
		if (link_retire(l))
			return true;
	log_warn("%u links are in use, and another is wanted", setups.nlinks);
	return false;
}

/* Makes the link. On success it owns the segment and the eventfds. */
static struct link *setup_to_link(struct link_setup *su, const struct greeting *gr,
				  struct link_segment *seg, int wake, int peer_wake)
{
	struct link_fds fds = { .wake = wake, .peer_wake = peer_wake };
	struct link *l;

	lock_assert_held(&setups.lock);
	if (too_many_links(su->pid) || !room_for_link())
		return NULL;
	fds.sock = fdset_take(fcntl(su->lf.fd, F_DUPFD_CLOEXEC, 0));
	if (fds.sock < 0)
		return NULL;
	if (link_new(seg, su->outgoing ? 0 : 1, &gr->id, &fds, &l)) {
		fdset_close(fds.sock);
		return NULL;
	}
	l->peer_pid = su->pid;
	grant_init(l, &su->grant, &gr->grant);
	direct_create(l, su->outgoing ? 0 : 1);
	list_add_tail(&setups.links, &l->node); /* with the first reference */
	setups.nlinks++;
	link_get(l);
	su->link = l;
	return l;
}

/* The listener's greeting has come. */
static int outgoing_step(struct link_setup *su, const struct greeting *gr, int *fds,
			 int n, struct link **start)
{
	struct link *l;
	int wake;

	lock_assert_held(&setups.lock);
	if (gr->status == GREETING_EXISTS) {
		l = link_by_id(&gr->id, su->pid);
		if (!l)
			return -EAGAIN;
	} else {
		if (gr->status != GREETING_OK || n != 1)
			return -EPROTO;
		wake = fdset_take(greeting_wake_accept(fds[0]));
		if (wake < 0)
			return wake;
		l = setup_to_link(su, gr, su->seg, su->wake, wake);
		if (!l) {
			fdset_close(wake);
			return -ENOMEM;
		}
		su->seg = NULL;
		su->wake = -1;
		*start = l;
	}
	if (su->by_port)
		port_remember(&su->name, l);
	waits_done(su, l, 0);
	return 0;
}

/* The connector's greeting has come. */
static int incoming_step(struct link_setup *su, const struct greeting *gr, int *fds,
			 int n, struct link **start)
{
	struct link_segment *seg;
	int wake, peer_wake, give = -1, ret;
	struct link *l;

	lock_assert_held(&setups.lock);
	if (gr->status != GREETING_HELLO || n != 2 || !greeting_same_user(su->lf.fd))
		return -EPROTO;
	if (link_by_id(&gr->id, su->pid))
		return greeting_send(su->lf.fd, &setups.id, GREETING_EXISTS, &su->grant,
				     NULL, 0);
	seg = link_segment_accept(fds[0]);
	wake = fdset_take(greeting_wake_new(&give));
	peer_wake = fdset_take(greeting_wake_accept(fds[1]));
	if (!seg || wake < 0 || peer_wake < 0)
		goto fail;
	l = setup_to_link(su, gr, seg, wake, peer_wake);
	if (!l)
		goto fail;
	*start = l;
	/* The peer may send as soon as it has received this: its records wait in the
	 * ring. */
	ret = greeting_send(su->lf.fd, &setups.id, GREETING_OK, &su->grant, &give, 1);
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
	struct link_setup *su = container_of(lf, struct link_setup, lf);
	struct link *start = NULL;
	struct greeting gr;
	int fds[GREETING_FDS] = { -1, -1 }, n, ret;

	(void)revents;
	setups_lock();
	n = su->ended ? -EAGAIN : greeting_recv(lf->fd, &gr, fds);
	if (n == -EAGAIN) {
		setups_unlock();
		return;
	}
	ret = n < 0	   ? n :
	      su->outgoing ? outgoing_step(su, &gr, fds, n, &start) :
			     incoming_step(su, &gr, fds, n, &start);
	for (int i = 0; i < n; i++)
		fdpass_discard(fds[i]);
	if (ret) {
		log_info("link over %s: %s", su->name.text, strerror(-ret));
		waits_done(su, NULL, ret);
	}
	setup_end(su);
	if (start)
		link_get(start);
	setups_unlock();
	if (!start)
		return;
	if (ret || link_start(start))
		link_break(start, "it could not be started");
	link_put(start);
}

/* ---- getting a link -------------------------------------------------------------- */

static int outgoing_start(const struct link_name *name, struct link_setup **out)
{
	struct sockaddr_un un;
	socklen_t len = link_name_address(name, &un);
	int fd = fdset_take(
		socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	int fds[2], ret = -ENOMEM;
	struct link_setup *su;

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
	su = setup_new(fd, true, name);
	if (!su) {
		fdpass_close(fd);
		return -ENOMEM;
	}
	fds[0] = link_segment_new(&su->seg);
	su->wake = fdset_take(greeting_wake_new(&fds[1]));
	if (fds[0] >= 0 && su->wake >= 0)
		ret = greeting_send(fd, &setups.id, GREETING_HELLO, &su->grant, fds, 2);
	if (fds[0] >= 0)
		close(fds[0]);
	if (su->wake >= 0)
		close(fds[1]);
	if (ret)
		setup_end(su);
	else
		*out = su;
	return ret;
}

static struct link_setup *outgoing_find(const struct link_name *name)
{
	struct link_setup *su;

	list_for_each(su, &setups.pending, node)
		if (su->outgoing && link_name_equal(&su->name, name))
			return su;
	return NULL;
}

/* Makes both ends of the link within this process: [0] sends LINK_OPEN and CM_REQ, [1]
 * gets them. */
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
		direct_create_self(both[0], 0);
		direct_create_self(both[1], 1);
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
	/* An end that could not be started is tried again at the next call. */
	for (int i = 0; i < 2 && !ret; i++)
		if (!setups.self[i]->wake_added)
			ret = link_start(setups.self[i]);
	*out = ret ? NULL : setups.self[0];
	return ret;
}

static void find_link(const struct link_name *name, bool by_port, struct link_wait *w)
{
	struct link *l;
	struct link_setup *su;
	int ret = 0;

	setups_lock();
	l = by_port ? link_by_port(name) : NULL;
	if (!l && link_listener_find(name))
		ret = self_get(&l);
	if (l || ret) {
		wait_done(w, l, ret);
		setups_unlock();
		return;
	}
	su = outgoing_find(name);
	if (!su)
		ret = outgoing_start(name, &su);
	if (ret) {
		wait_done(w, NULL, ret);
	} else {
		su->by_port = by_port;
		list_add_tail(&su->waits, &w->node);
	}
	setups_unlock();
}

void link_find_port(uint16_t port, struct link_wait *w)
{
	struct link_name name;

	link_name_of_port(port, &name);
	find_link(&name, true, w);
}

void link_find_name(const char *text, struct link_wait *w)
{
	struct link_name name;

	snprintf(name.text, sizeof(name.text), "%s", text);
	find_link(&name, false, w);
}
