/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/grant.h"

#include "base/conf.h"
#include "base/fdset.h"
#include "base/log.h"
#include "dev/share.h"
#include "shm/fdpass.h"
#include "shm/greeting.h"
#include "shm/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0: the kernel has no random numbers yet. What needs one is not done then. */
static uint64_t random_word(void)
{
	uint64_t v;

	return getrandom(&v, sizeof(v), GRND_NONBLOCK) == sizeof(v) ? v : 0;
}

void grant_hello(struct grant_hello *h)
{
	uint32_t direct = conf_get()->direct;

	*h = (struct grant_hello){
		.challenge = direct == CONF_DIRECT_OFF ? 0 : random_word(),
		.accepts_memory = direct == CONF_DIRECT_ON,
	};
}

/* ---- target ---------------------------------------------------------------------- */

static bool same_namespace(pid_t pid, const char *which)
{
	char path[64];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "/proc/self/ns/%s", which);
	if (stat(path, &ours))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, which);
	return !stat(path, &theirs) && ours.st_dev == theirs.st_dev &&
	       ours.st_ino == theirs.st_ino;
}

static void refuse(struct link *l, const char *why)
{
	log_info("process %d gets no keys of ours, and uses the ring: %s",
		 (int)l->peer_pid, why);
	l->grant.target = GRANT_REFUSED;
	memid_page_free(l->grant.page);
	l->grant.page = NULL;
}

static bool in_our_namespaces(const struct link *l)
{
	return l->peer_pid && same_namespace(l->peer_pid, "pid") &&
	       same_namespace(l->peer_pid, "user");
}

/* ANYRDMA_DIRECT is "on" on both sides. */
static bool memory_may_be_passed(const struct grant *g)
{
	return g->ours.accepts_memory && g->theirs.accepts_memory;
}

static bool page_new(struct link *l)
{
	struct grant *g = &l->grant;

	g->page = memid_page_new(g->theirs.challenge);
	if (!g->page)
		refuse(l, "no page by which it would know our memory");
	return g->page;
}

static void give(struct link *l, int memory)
{
	struct grant_msg m = { .type = GRANT_KEYS, .table = SHARE_VERSION,
			       .at = (uintptr_t)l->grant.page };
	int fds[FDPASS_MAX] = { share_fd(), memory };

	/* Before the peer can use them. */
	direct_set_keys(l->direct,
			memory < 0 ? DIRECT_KEYS_PROVED : DIRECT_KEYS_BY_SETTING);
	if (fdpass_send(l->sock.fd, &m, sizeof(m), fds, memory < 0 ? 1 : 2)) {
		direct_set_keys(l->direct, DIRECT_KEYS_NONE);
		refuse(l, "its socket has no room");
		return;
	}
	l->grant.target = GRANT_GIVEN;
	log_info("process %d has our table of keys%s", (int)l->peer_pid,
		 memory < 0 ?
			 ": it has shown that it can access our memory" :
			 " and a descriptor of our memory, as ANYRDMA_DIRECT=on says");
}

static void give_memory(struct link *l)
{
	int memory = fdset_take(open("/proc/self/mem", O_RDWR | O_CLOEXEC));

	if (memory < 0)
		refuse(l, "/proc/self/mem cannot be opened");
	else if (l->grant.page || page_new(l))
		give(l, memory);
	fdset_close(memory);
}

static void proof_request(struct link *l)
{
	struct grant *g = &l->grant;
	struct grant_msg m = { .type = GRANT_PROVE };

	g->word = random_word();
	if (!g->word) {
		refuse(l, "there is no random number for a proof");
		return;
	}
	if (!page_new(l))
		return;
	g->page->word = g->word;
	m.at = (uintptr_t)g->page;
	g->target = GRANT_PROVE_SENT;
	if (fdpass_send(l->sock.fd, &m, sizeof(m), NULL, 0))
		refuse(l, "its socket has no room");
}

static void offer(struct link *l)
{
	const struct grant *g = &l->grant;

	if (!l->direct || conf_get()->direct == CONF_DIRECT_OFF || share_fd() < 0)
		refuse(l, "direct access is off here");
	else if (!g->theirs.challenge)
		refuse(l, "direct access is off there");
	else if (!greeting_same_user(l->sock.fd))
		refuse(l, "our user id has changed");
	else if (in_our_namespaces(l))
		proof_request(l);
	else if (memory_may_be_passed(g))
		give_memory(l);
	else
		refuse(l, "it is not known to be in our pid and user namespaces");
}

static void prove(struct link *l);

static void accepted_run(struct loop_work *w)
{
	struct link *l = container_of(w, struct link, grant.work);

	if (!l->dead && l->grant.target == GRANT_WAITS)
		offer(l);
	if (!l->dead && l->grant.initiator == GRANT_PROVE_HELD)
		prove(l);
	link_put(l);
}

void grant_accepted(struct link *l)
{
	struct grant *g = &l->grant;

	if (l->sock.fd < 0 || atomic_load_explicit(&g->accepted, memory_order_relaxed) ||
	    atomic_exchange(&g->accepted, true))
		return;
	link_get(l);
	if (!loop_post(&g->work))
		link_put(l);
}

static int receive_proof(struct link *l, const struct grant_msg *m)
{
	struct grant *g = &l->grant;
	bool right;

	if (g->target != GRANT_PROVE_SENT)
		return -EPROTO;
	right = m->word == g->word;
	if (right)
		give(l, -1);
	else if (!m->word && memory_may_be_passed(g))
		give_memory(l);
	else
		refuse(l, m->word ? "its proof is wrong" : "it cannot read our memory");
	return m->word && !right ? -EPROTO : 0;
}

/* ---- initiator ------------------------------------------------------------------- */

/* A descriptor of the peer's memory; or -1: the kernel does not let us open it, or the
 * page is not there. */
static int open_memory(struct link *l, uint64_t at, struct memid_page *p)
{
	char path[64];
	int fd;

	if (!l->direct || !in_our_namespaces(l) || fdpass_busy())
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)l->peer_pid);
	fd = fdset_take(open(path, O_RDWR | O_CLOEXEC));
	if (fd < 0) {
		log_info(
			"the memory of process %d cannot be opened, its ring is used: %s",
			(int)l->peer_pid, strerror(errno));
		return -1;
	}
	if (pread(fd, p, sizeof(*p), (off_t)at) == (ssize_t)sizeof(*p) &&
	    p->nonce == l->grant.ours.challenge)
		return fd;
	log_info("process %d is not the one at the other end of its link",
		 (int)l->peer_pid);
	fdset_close(fd);
	return -1;
}

static void prove(struct link *l)
{
	struct grant_msg proof = { .type = GRANT_PROOF };
	struct grant *g = &l->grant;
	struct memid_page p;

	g->memory = open_memory(l, g->at, &p);
	g->initiator = g->memory < 0 ? GRANT_CANNOT : GRANT_PROVED;
	if (g->memory >= 0)
		proof.word = p.word;
	if (fdpass_send(l->sock.fd, &proof, sizeof(proof), NULL, 0))
		log_info("process %d: its socket has no room for a proof",
			 (int)l->peer_pid);
}

static int receive_prove(struct link *l, const struct grant_msg *m)
{
	struct grant *g = &l->grant;

	if (g->initiator != GRANT_NONE || !g->ours.challenge)
		return -EPROTO;
	g->at = m->at;
	g->initiator = GRANT_PROVE_HELD;
	if (atomic_load(&g->accepted))
		prove(l);
	return 0;
}

/* fds: the table, and the memory unless it is open already. */
static int receive_keys(struct link *l, const struct grant_msg *m, int *fds, int n)
{
	struct grant *g = &l->grant;
	struct memid memid = { m->at, g->ours.challenge };
	bool proved = g->initiator == GRANT_PROVED;

	if (n != (proved ? 1 : 2) || (proved && m->at != g->at) ||
	    m->table != SHARE_VERSION)
		return -EPROTO;
	if (n == 2) {
		g->memory = fdset_take(fds[1]);
		fds[1] = -1;
	}
	direct_start(l->direct, fds[0], g->memory, &memid);
	g->memory = -1;
	g->initiator = GRANT_ENDED;
	return 0;
}

/* This process has no free number for a descriptor: the ring is used. */
static int keys_lost(struct link *l)
{
	struct grant *g = &l->grant;

	log_info("process %d: its table of keys could not be received", (int)l->peer_pid);
	fdset_close(g->memory);
	g->memory = -1;
	g->initiator = GRANT_ENDED;
	return 0;
}

/* ---- messages -------------------------------------------------------------------- */

/* Number of descriptors that the next message may have: only KEYS has some. */
static unsigned fds_expected(const struct grant *g)
{
	if (g->initiator == GRANT_PROVED)
		return 1;
	return g->initiator != GRANT_ENDED && memory_may_be_passed(g) ? 2 : 0;
}

int grant_receive(struct link *l)
{
	unsigned max = fds_expected(&l->grant);
	int fds[FDPASS_MAX], n, ret = -EPROTO;
	struct grant_msg m;

	n = fdpass_recv(l->sock.fd, &m, sizeof(m), fds, max);
	if (n == -ENOBUFS)
		return max && m.type == GRANT_KEYS ? keys_lost(l) : -EPROTO;
	if (n < 0)
		return n;
	if (m.type == GRANT_PROVE && !n)
		ret = receive_prove(l, &m);
	else if (m.type == GRANT_PROOF && !n)
		ret = receive_proof(l, &m);
	else if (m.type == GRANT_KEYS && n)
		ret = receive_keys(l, &m, fds, n);
	for (int i = 0; i < n; i++)
		fdpass_discard(fds[i]);
	return ret;
}

void grant_init(struct link *l, const struct grant_hello *ours,
		const struct grant_hello *theirs)
{
	struct grant *g = &l->grant;

	g->ours = *ours;
	g->theirs = *theirs;
	g->memory = -1;
	g->work.run = accepted_run;
}

void grant_fini(struct link *l)
{
	memid_page_free(l->grant.page);
	fdset_close(l->grant.memory);
}
