/* SPDX-License-Identifier: BSD-2-Clause */
/* rpoll() and rselect(): any mix of rsockets and other descriptors. */
#include "rsocket/rs.h"

#include <errno.h>

short rs_events(struct rs *rs)
{
	unsigned ended = rs_ended(rs);
	short ev = 0;

	switch (rs_state(rs)) {
	case RS_NEW:
		return POLLOUT | POLLHUP;
	case RS_LISTENING:
		return accept_ready(rs) ? POLLIN | POLLRDNORM : 0;
	case RS_CONNECTING:
		return 0;
	case RS_FAILED:
		ev = POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM | POLLHUP | POLLRDHUP;
		return atomic_load(&rs->err) ? (short)(ev | POLLERR) : ev;
	default:
		break;
	}
	if (recv_ready(rs))
		ev |= POLLIN | POLLRDNORM;
	if (send_ready(rs))
		ev |= POLLOUT | POLLWRNORM;
	if (ended & (RS_PEER_SHUT | RS_RD_SHUT | RS_GONE))
		ev |= POLLRDHUP;
	/* Not while there is something to read: for TCP the end of the peer alone is none. */
	if (((ended & RS_GONE) && !recv_pending(rs)) ||
	    ((ended & (RS_PEER_SHUT | RS_RD_SHUT)) && (ended & RS_WR_SHUT)))
		ev |= POLLHUP;
	if (atomic_load(&rs->err))
		ev |= POLLERR;
	return ev;
}

/* ---- a set -------------------------------------------------------------------------- */

struct entry {
	struct watch w;
	struct obj *o;		/* NULL: not one of ours */
	struct set *set;
};

struct set {
	struct pollfd *fds;	/* the application's */
	nfds_t n;
	struct entry *e;
	struct pollfd *plain;	/* SLEEPER_FDS, then those that are not ours */
	unsigned nplain;
	bool sleeps;
	struct sleeper s;
};

enum { ON_STACK = 32 };

static void told(struct watch *w)
{
	struct entry *e = (struct entry *)((char *)w - offsetof(struct entry, w));

	sleeper_tell(&e->set->s);
}

/* A descriptor of ours in which the kernel, too, has news: UDP, members of a set. */
static bool is_plain_too(const struct obj *o)
{
	return o->kind != OBJ_STREAM && !obj_is_dead(o);
}

static void set_fill(struct set *s)
{
	s->nplain = 0;
	for (nfds_t i = 0; i < s->n; i++) {
		s->e[i].set = s;
		s->e[i].w.notify = told;
		s->e[i].o = s->fds[i].fd >= 0 ? table_get(s->fds[i].fd) : NULL;
		if (s->fds[i].fd < 0 || (s->e[i].o && !is_plain_too(s->e[i].o)))
			continue;
		s->plain[SLEEPER_FDS + s->nplain].fd = s->fds[i].fd;
		s->plain[SLEEPER_FDS + s->nplain++].events =
			s->e[i].o ? POLLIN : s->fds[i].events;
	}
}

static void set_empty(struct set *s)
{
	for (nfds_t i = 0; i < s->n; i++)
		if (s->e[i].o)
			table_put(s->e[i].o);
}

static short obj_revents(struct obj *o, short events)
{
	short ev;

	if (obj_is_dead(o))
		return POLLERR | POLLHUP;
	ev = obj_events(o);
	return ev & (events | POLLERR | POLLHUP | POLLNVAL);
}

/* Fills in revents. The number of descriptors with some. plain: those of the others, as
 * poll(2) has left them in s->plain, count. */
static int set_look(struct set *s, bool plain)
{
	unsigned k = 0;
	int n = 0;

	for (nfds_t i = 0; i < s->n; i++) {
		struct pollfd *f = &s->fds[i];

		f->revents = 0;
		if (f->fd < 0)
			continue;
		if (s->e[i].o)
			f->revents = obj_revents(s->e[i].o, f->events);
		else if (plain)
			f->revents = s->plain[SLEEPER_FDS + k].revents;
		k += !s->e[i].o || is_plain_too(s->e[i].o);
		n += f->revents != 0;
	}
	return n;
}

/* Delivers what came for the sockets of the set. */
static void set_progress(struct set *s)
{
	struct shard *last = NULL, *sh;

	for (nfds_t i = 0; i < s->n; i++) {
		sh = s->e[i].o ? obj_shard(s->e[i].o) : NULL;
		if (s->e[i].o && s->e[i].o->kind == OBJ_DGRAM && !obj_is_dead(s->e[i].o))
			dgram_progress((struct rs *)s->e[i].o);
		if (sh && sh != last)
			shard_run(sh, false);
		last = sh ? sh : last;
	}
}

static void set_watch(struct set *s, bool on)
{
	for (nfds_t i = 0; i < s->n; i++) {
		if (!s->e[i].o || obj_is_dead(s->e[i].o))
			continue;
		if (on)
			watch_add(obj_watches(s->e[i].o), &s->e[i].w);
		else
			watch_del(&s->e[i].w);
	}
}

/* 0: nothing is ready yet. */
static int set_now(struct set *s)
{
	int ret;

	set_progress(s);
	if (s->nplain) {
		ret = poll(s->plain + SLEEPER_FDS, s->nplain, 0);
		if (ret < 0)
			return -errno;
	}
	return set_look(s, true);
}

/* As long as it is worth: an answer of the peer that comes at once costs no sleep. */
static int set_spin(struct set *s, uint64_t until)
{
	uint64_t now = now_ns(), end = now + rs_conf()->polling_us * 1000ull;
	bool any = false;
	int n;

	for (nfds_t i = 0; i < s->n; i++)
		any |= s->e[i].o && obj_shard(s->e[i].o);
	end = until < end ? until : end;
	for (; any && now < end; now = now_ns()) {
		set_progress(s);
		n = set_look(s, false);
		if (n)
			return s->nplain ? set_now(s) : n;
	}
	return 0;
}

static int set_sleep(struct set *s, uint64_t until)
{
	int ret = sleeper_enter(&s->s);

	if (ret)
		return ret;
	set_watch(s, true);
	for (;;) {
		sleeper_arm(&s->s);
		ret = set_now(s);
		if (ret || (until != UINT64_MAX && now_ns() >= until))
			break;
		ret = sleeper_sleep(&s->s, s->plain, s->nplain, until);
		if (ret < 0)
			break;
	}
	set_watch(s, false);
	sleeper_leave(&s->s);
	return ret;
}

int rs_poll(struct pollfd *fds, nfds_t n, uint64_t until)
{
	struct entry entries[ON_STACK];
	struct pollfd plain[ON_STACK + SLEEPER_FDS];
	struct set s = { .fds = fds, .n = n, .e = entries, .plain = plain };
	int ret = -ENOMEM;

	if (n > ON_STACK) {
		s.e = malloc(n * sizeof(*s.e));
		s.plain = malloc((n + SLEEPER_FDS) * sizeof(*s.plain));
		if (!s.e || !s.plain)
			goto out;
	}
	set_fill(&s);
	ret = set_now(&s);
	if (!ret && until)
		ret = set_spin(&s, until);
	if (!ret && until)
		ret = set_sleep(&s, until);
	set_empty(&s);
out:
	if (n > ON_STACK) {
		free(s.e);
		free(s.plain);
	}
	return ret;
}

/* ---- select --------------------------------------------------------------------------- */

static nfds_t select_read(int nfds, fd_set *const set[3], struct pollfd *fds)
{
	static const short ask[3] = { POLLIN, POLLOUT, POLLPRI };
	nfds_t n = 0;

	for (int fd = 0; fd < nfds; fd++) {
		short events = 0;

		for (int k = 0; k < 3; k++)
			if (set[k] && FD_ISSET(fd, set[k]))
				events |= ask[k];
		if (events)
			fds[n++] = (struct pollfd){ .fd = fd, .events = events };
	}
	return n;
}

static int select_write(fd_set *const set[3], const struct pollfd *fds, nfds_t n)
{
	static const short got[3] = { POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR,
				      POLLPRI };
	int count = 0;

	for (int k = 0; k < 3; k++)
		if (set[k])
			FD_ZERO(set[k]);
	for (nfds_t i = 0; i < n; i++) {
		static const short ask[3] = { POLLIN, POLLOUT, POLLPRI };

		for (int k = 0; k < 3; k++) {
			if (!(fds[i].events & ask[k]) || !(fds[i].revents & got[k]))
				continue;
			FD_SET(fds[i].fd, set[k]);
			count++;
		}
	}
	return count;
}

int rs_select(int nfds, fd_set *const set[3], uint64_t until)
{
	struct pollfd *fds;
	nfds_t n;
	int ret;

	if (nfds < 0 || nfds > FD_SETSIZE)
		return -EINVAL;
	fds = calloc((size_t)nfds + 1, sizeof(*fds));
	if (!fds)
		return -ENOMEM;
	n = select_read(nfds, set, fds);
	ret = rs_poll(fds, n, until);
	for (nfds_t i = 0; ret > 0 && i < n; i++)
		if (fds[i].revents & POLLNVAL)
			ret = -EBADF;
	if (ret >= 0)
		ret = select_write(set, fds, n);
	free(fds);
	return ret;
}
