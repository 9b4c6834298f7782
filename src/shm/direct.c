/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes.
 *
 * The initiator has opened the target's /proc/PID/mem (grant.c). The descriptor names the
 * memory, not the process: after an exec or the end of the target it copies 0 bytes.
 * process_vm_writev() is faster for much data, but names the process by its pid. So
 * before each such call the page of memid.h is read through the descriptor: while the
 * memory exists, so does its process, and the pid is that process's. If the process ends
 * between the two calls, the second one copies nothing (memid.h).
 *
 * The target publishes what it allows in a table (dev/share.h). The initiator reads the
 * table while a word of its own names key and QP; the target waits for the word before it
 * withdraws either. A request that the table does not allow, or that fails in any way, is
 * sent to the target as a frame, and the target finds the right status: nothing is
 * refused here.
 *
 * Nobody can check what an initiator does with its access. The kernel lets it access the
 * target's memory anyway (doc/security.md). */
#include "shm/direct.h"

#include "base/conf.h"
#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "base/sys.h"
#include "rc/execute.h"
#include "dev/sge.h"
#include "shm/keys.h"
#include "shm/link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
	PID_MIN = 24 * 1024, /* bytes from which a call by pid with its check is faster */
	LINE = 64,
	SPINS = 200,	     /* reads of another process's word before the first pause, */
	WAIT_NS = 50 * 1000, /* and the pause between two reads after that */
};
#define BROKEN_NS SEC /* see direct_break() */

struct direct {
	atomic_int refs;
	uint64_t serial; /* targets.list is in this order */
	struct link *l;
	/* this process as initiator */
	struct direct_shared *ours;
	const struct share_table *t; /* the peer's table: keys.t; if self, our own */
	struct keys keys;	     /* unused if self */
	int mem;		     /* the peer's memory; -1: none */
	bool self;		     /* both ends of the link are in this process */
	pid_t pid;		     /* the peer's; 0: of another pid namespace */
	_Atomic bool by_pid;	     /* calls by pid work */
	/* There is no access yet, or any more. Storing false is a release of the fields
	 * above. */
	_Atomic bool off;
	struct memid memid;
	/* this process as target */
	_Atomic enum direct_keys peer_keys; /* not NONE: the peer's words count */
	struct direct_shared *theirs;
	int sock; /* the link's, readable when the peer ends; -1 within a process */
	/* Not 0: the link is broken and sock is closed; the peer's words are waited for
	 * until this time (targets.lock). */
	uint64_t wait_until;
	_Atomic bool dead; /* the peer's words do not count any more */
	struct list node;  /* targets.list */
};

/* All struct direct. */
static struct {
	struct lock lock; /* innermost */
	struct list list;
	uint64_t serial; /* of the last one */
} targets PROCESS_STATE = { .lock = LOCK_INIT, .list = LIST_INIT(targets.list) };

/* ---- target ------------------------------------------------------------------------ */

/* The memory of a process exists as long as one of its threads. */
static bool peer_alive(const struct direct *d)
{
	if (d->mem >= 0)
		return memid_in(&d->memid, d->mem);
	return !d->pid || !kill(d->pid, 0) || errno != ESRCH;
}

/* The words of this peer need not be waited for any more. */
static bool peer_ended(struct direct *d)
{
	struct pollfd p = { .fd = d->sock, .events = POLLRDHUP };
	const struct timespec now = { 0 };
	bool ended = false;
	uint64_t wait_until;

	if (atomic_load(&d->dead))
		return true;
	lock_get(&targets.lock);
	wait_until = d->wait_until;
	if (!wait_until)
		ended = d->sock >= 0 && sys_ppoll(&p, 1, &now, NULL) > 0;
	lock_put(&targets.lock);
	if (wait_until && !peer_alive(d)) {
		ended = true;
	} else if (wait_until && loop_now() > wait_until) {
		log_warn("process %d, whose link is broken, still says that it accesses "
			 "our "
			 "memory: it is not waited for any longer",
			 (int)d->pid);
		ended = true;
	}
	if (ended)
		atomic_store(&d->dead, true);
	return ended;
}

/* Waits until the word does not match any more, or the peer has ended. A peer that is
 * stopped is waited for. */
static void word_wait(struct direct *d, _Atomic uint64_t *word, uint64_t value,
		      uint64_t mask)
{
	const struct timespec pause = { .tv_nsec = WAIT_NS };
	uint64_t from = 0;
	bool logged = false;

	for (unsigned i = 0; (atomic_load(word) & mask) == value; i++) {
		if (i < SPINS)
			continue;
		if (!from)
			from = loop_now();
		if (peer_ended(d))
			return;
		if (!logged && loop_now() - from > SEC) {
			logged = true;
			log_warn("memory cannot be withdrawn yet: process %d is in the "
				 "middle "
				 "of an access to it (stopped?)",
				 (int)d->pid);
		}
		sys_ppoll(NULL, 0, &pause, NULL);
	}
}

static void direct_put(struct direct *d)
{
	if (atomic_fetch_sub(&d->refs, 1) == 1)
		free(d);
}

/* One pass over all words. */
struct word_scan {
	uint64_t value, mask;
	/* the next one to be read: */
	uint64_t serial;
	uint32_t i;
	_Atomic uint64_t *word; /* that was found */
};

/* The next word of d that matches. */
static bool next_word(struct direct *d, struct word_scan *w)
{
	/* A peer that has not got the keys cannot be in the middle of an access. */
	uint32_t n = atomic_load(&d->peer_keys) != DIRECT_KEYS_NONE ?
			     atomic_load(&d->theirs->words_used) :
			     0;

	n = n < DIRECT_USERS ? n : DIRECT_USERS;
	if (d->serial > w->serial) {
		w->serial = d->serial;
		w->i = 0;
	}
	while (w->i < n) {
		w->word = &d->theirs->user[w->i++].word;
		if ((atomic_load(w->word) & w->mask) == w->value)
			return !atomic_load(&d->dead);
	}
	return false;
}

/* Finds the next word that matches, with a reference to its struct direct and to the
 * link; or NULL. */
static struct direct *find_word(struct word_scan *w)
{
	struct direct *d, *found = NULL;

	lock_get(&targets.lock);
	list_for_each(d, &targets.list, node)
		if (d->serial >= w->serial && next_word(d, w) &&
		    link_try_get(d->l)) { /* keeps the segment */
			found = d;
			break;
		}
	if (found)
		atomic_fetch_add(&found->refs, 1);
	lock_put(&targets.lock);
	return found;
}

/* Each word is waited for once: an access that begins later finds the entry withdrawn. So
 * a peer that keeps setting and clearing words is not waited for without end. */
static void wait_for_words(uint64_t value, uint64_t mask)
{
	struct word_scan w = { .value = value, .mask = mask };
	struct direct *d;

	while ((d = find_word(&w))) {
		struct link *l = d->l;

		word_wait(d, w.word, value, mask);
		direct_put(d);
		link_put(l);
	}
}

/* ---- initiator ------------------------------------------------------------------- */

/* There is no access any more, and the peer learns that payloads are not fetched. */
static void disable(struct direct *d)
{
	atomic_store(&d->off, true);
	atomic_store(&d->ours->works, 0);
}

static bool table_open(struct direct *d, int fd)
{
	int ret = keys_open(&d->keys, fd);

	d->t = d->keys.t;
	return !ret;
}

/* The descriptor is a /proc/PID/mem, and the page is there. */
static bool memory_is_right(const struct direct *d)
{
	struct statfs fs;

	return !fstatfs(d->mem, &fs) && fs.f_type == PROC_SUPER_MAGIC &&
	       memid_in(&d->memid, d->mem);
}

/* The pid names the same process here, and this process may access it by pid. */
static bool pid_works(const struct direct *d)
{
	return d->pid && conf_get()->direct != CONF_DIRECT_MEM &&
	       memid_of(&d->memid, d->pid);
}

static struct direct *direct_new(struct link *l, int side)
{
	struct direct *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	atomic_init(&d->refs, 1);
	d->l = l;
	d->ours = &l->seg->direct[side];
	d->theirs = &l->seg->direct[!side];
	d->keys.fd = d->mem = -1;
	d->sock = l->sock.fd;
	list_init(&d->node);
	share_set_wait(wait_for_words);
	lock_get(&targets.lock);
	d->serial = ++targets.serial;
	list_add_tail(&targets.list, &d->node);
	lock_put(&targets.lock);
	l->direct = d;
	return d;
}

void direct_create(struct link *l, int side)
{
	struct direct *d = direct_new(l, side);

	if (!d)
		return;
	d->pid = l->peer_pid;
	atomic_store(&d->off, true);
}

void direct_set_keys(struct direct *d, enum direct_keys keys)
{
	if (d)
		atomic_store(&d->peer_keys, keys);
}

void direct_start(struct direct *d, int keys, int memory, const struct memid *memid)
{
	bool works;

	if (!d) {
		fdset_close(memory);
		return;
	}
	d->memid = *memid;
	d->mem = memory;
	works = memory_is_right(d);
	atomic_store(&d->by_pid, works && pid_works(d));
	works = works && table_open(d, keys);
	atomic_store(&d->ours->works, works);
	if (works) {
		atomic_store_explicit(&d->off, false, memory_order_release);
	} else {
		fdset_close(d->mem);
		d->mem = -1;
	}
	log_info("process %d is accessed %s", (int)d->pid,
		 !works			 ? "by messages alone: its offer does not work" :
		 atomic_load(&d->by_pid) ? "directly" :
					   "directly, by descriptor alone");
}

void direct_create_self(struct link *l, int side)
{
	struct direct *d = share_table() ? direct_new(l, side) : NULL;

	if (!d)
		return;
	d->self = true;
	atomic_store(&d->peer_keys, DIRECT_KEYS_PROVED);
	d->t = share_table();
	atomic_store(&d->ours->works, 1);
}

/* The peer may still run: one of the two has closed the link. It begins no access then
 * (check_target()), but may be in the middle of one, so words are waited for; for a
 * second at most, as a peer that has broken the rules may not clear its words either.
 * What it does after that, any process could do that may access our memory. */
void direct_break(struct direct *d)
{
	if (!d)
		return;
	disable(d);
	atomic_store(&d->theirs->closed, 1);
	lock_get(&targets.lock);
	d->wait_until = loop_now() + BROKEN_NS;
	lock_put(&targets.lock);
}

void direct_free(struct direct *d)
{
	if (!d)
		return;
	lock_get(&targets.lock);
	list_del(&d->node);
	lock_put(&targets.lock);
	keys_close(&d->keys);
	fdset_close(d->mem);
	direct_put(d);
}

/* ---- one access ------------------------------------------------------------------ */

/* Stores the value into a free word of this process, which it returns; NULL: all are in
 * use. */
static _Atomic uint64_t *word_claim(struct direct *d, uint64_t value)
{
	static _Thread_local unsigned hint __attribute__((tls_model("initial-exec")));
	struct direct_shared *sh = d->ours;

	for (unsigned n = 0; n < DIRECT_USERS; n++) {
		unsigned i = (hint + n) % DIRECT_USERS;
		uint64_t none = 0;

		for (uint32_t h =
			     atomic_load_explicit(&sh->words_used, memory_order_relaxed);
		     h <= i && !atomic_compare_exchange_weak(&sh->words_used, &h, i + 1);)
			;
		if (atomic_compare_exchange_strong(&sh->user[i].word, &none, value)) {
			hint = i;
			return &sh->user[i].word;
		}
	}
	return NULL;
}

static void word_release(_Atomic uint64_t *word)
{
	atomic_store_explicit(word, 0, memory_order_release);
}

/* The row of the key in the target's table, or NULL: the table has no such row. */
static const struct share_key *row_of(struct direct *d, uint32_t key)
{
	uint32_t i;

	if (!d->self)
		return keys_row(&d->keys, key);
	i = share_key_index(d->t, key);
	return share_has_key(i) ? &d->t->key[i] : NULL;
}

static bool qp_allows(struct stream *s, const struct direct *d, unsigned right)
{
	const struct share_qp *entry =
		&d->t->qp[share_qp_index(to_shm(s)->peer_share_id)];
	uint64_t is = atomic_load(&entry->word);

	return is >> 32 == to_shm(s)->peer_share_id >> 32 && (is & right);
}

/* More reads at once than the target allows are sent as frames, and refused there. */
static bool qp_open(struct stream *s, const struct direct *d, bool read)
{
	const struct share_qp *entry =
		&d->t->qp[share_qp_index(to_shm(s)->peer_share_id)];

	return qp_allows(s, d, read ? SHARE_READ : SHARE_WRITE) &&
	       (!read || s->qp->attr.max_rd_atomic <= atomic_load(&entry->reads));
}

/* A row of the table of another process, which may change it at any time: each field is
 * read once. The atomic `key` is read first, by the caller. */
struct row {
	uint32_t access;
	uint64_t iova, len, addr, pd;
};

static struct row row_read(const struct share_key *k)
{
	return (struct row){
		.access = __atomic_load_n(&k->access, __ATOMIC_RELAXED),
		.iova = __atomic_load_n(&k->iova, __ATOMIC_RELAXED),
		.len = __atomic_load_n(&k->len, __ATOMIC_RELAXED),
		.addr = __atomic_load_n(&k->addr, __ATOMIC_RELAXED),
		.pd = __atomic_load_n(&k->pd, __ATOMIC_RELAXED),
	};
}

/* The target's address of `len` bytes from `addr` of the region, or 0: out of bounds. */
static uint64_t address_of(const struct row *k, uint64_t addr, uint32_t len)
{
	if (addr < k->iova || addr - k->iova > k->len || len > k->len - (addr - k->iova))
		return 0;
	return k->addr + (addr - k->iova);
}

/* The checks of dev/mr.c and rc/responder.c, by the target's table, while a word of this
 * process names key and QP. Returns the target's address, or 0. */
static uint64_t check_target(struct stream *s, struct direct *d, const struct wqe *w)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;
	const struct share_qp *entry =
		&d->t->qp[share_qp_index(to_shm(s)->peer_share_id)];
	const struct share_key *k = row_of(d, w->rkey);
	unsigned access = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	struct row row;

	if (!qp_open(s, d, read) ||
	    __atomic_load_n(&entry->psn, __ATOMIC_RELAXED) != s->qp->attr.sq_psn)
		return 0;
	if (!k || !w->rkey || atomic_load(&k->key) != w->rkey)
		return 0;
	row = row_read(k);
	if (row.pd != __atomic_load_n(&entry->pd, __ATOMIC_RELAXED) ||
	    (row.access & access) != access || atomic_load(&d->ours->closed))
		return 0;
	return address_of(&row, w->raddr, w->length);
}

/* The same for the source of a send. Its owner has checked it before; these checks may
 * have another result by now. */
static uint64_t check_source(struct stream *s, struct direct *d, uint32_t key,
			     uint64_t addr, uint32_t len)
{
	const struct share_qp *entry =
		&d->t->qp[share_qp_index(to_shm(s)->peer_share_id)];
	const struct share_key *k = row_of(d, key);
	struct row row;

	if (!qp_allows(s, d, SHARE_SEND) || !k || !key || atomic_load(&k->key) != key)
		return 0;
	row = row_read(k);
	if (row.pd != __atomic_load_n(&entry->pd, __ATOMIC_RELAXED) ||
	    !(row.access & SHARE_REGION) || atomic_load(&d->ours->closed))
		return 0;
	return address_of(&row, addr, len);
}

struct copy {
	struct iovec iov[DEV_MAX_SGE + 3]; /* memory of this process */
	int n;
	uint64_t at; /* address in the target */
	uint32_t len;
	bool read;
};

/* Splits an iovec so that one ends after `pos` bytes. */
static void cut_at(struct copy *c, uint32_t pos)
{
	int i = 0;

	while (pos && i < c->n && pos >= c->iov[i].iov_len)
		pos -= (uint32_t)c->iov[i++].iov_len;
	if (!pos || i == c->n)
		return;
	memmove(&c->iov[i + 1], &c->iov[i], (size_t)(c->n - i) * sizeof(c->iov[0]));
	c->iov[i].iov_len = pos;
	c->iov[i + 1].iov_base = (uint8_t *)c->iov[i + 1].iov_base + pos;
	c->iov[i + 1].iov_len -= pos;
	c->n++;
}

/* Write order: the last 64 bytes become visible after all bytes before them, and of these
 * the last cache line after the rest. The kernel copies each iovec by itself, and the
 * stores of one string move do not pass those of the next. */
static void cut_tail(struct copy *c)
{
	const struct iovec *last = &c->iov[c->n - 1];
	uint64_t end = c->read ? (uintptr_t)last->iov_base + last->iov_len :
				 c->at + c->len;
	uint32_t in_line = (uint32_t)((end - 1) % LINE) + 1;

	if (in_line < c->len)
		cut_at(c, c->len - in_line);
	if (in_line < LINE && LINE < c->len)
		cut_at(c, c->len - LINE);
}

static void copy_advance(struct copy *c, size_t n)
{
	int i = 0;

	c->at += n;
	c->len -= (uint32_t)n;
	while (n && n >= c->iov[i].iov_len)
		n -= c->iov[i++].iov_len;
	c->n -= i;
	memmove(c->iov, c->iov + i, (size_t)c->n * sizeof(c->iov[0]));
	if (n) {
		c->iov[0].iov_base = (uint8_t *)c->iov[0].iov_base + n;
		c->iov[0].iov_len -= n;
	}
}

/* The pid may name another process by now, and a write does not check the nonce. A peer
 * that can access our memory gains nothing if it makes us write there. */
static bool by_pid_allowed(const struct direct *d)
{
	return atomic_load_explicit(&d->by_pid, memory_order_relaxed) &&
	       atomic_load_explicit(&d->peer_keys, memory_order_relaxed) ==
		       DIRECT_KEYS_PROVED;
}

static ssize_t copy_by_pid(struct direct *d, const struct copy *c, int n, size_t len)
{
	struct memid_io io = {
		.read = c->read, .iov = c->iov, .n = n, .at = c->at, .len = len
	};
	ssize_t ret = -ESTALE;

	if (memid_in(&d->memid, d->mem))
		ret = memid_copy(&d->memid, d->pid, &io);
	switch (ret) {
	case -ESTALE:
		log_info("process %d is not what it was", (int)d->pid);
		disable(d);
		return -EPIPE;
	case -EPERM:
	case -ENOSYS:
	case -EACCES:
	case -ESRCH:
		log_info("process %d: no access by pid any more: %s", (int)d->pid,
			 strerror((int)-ret));
		atomic_store(&d->by_pid, false);
		return 0;
	default:
		return ret;
	}
}

static ssize_t copy_by_mem(struct direct *d, const struct copy *c, int n)
{
	off_t at = (off_t)c->at;
	ssize_t ret;

	if (n == 1)
		ret = c->read ? sys_pread(d->mem, c->iov->iov_base, c->iov->iov_len, at) :
				sys_pwrite(d->mem, c->iov->iov_base, c->iov->iov_len, at);
	else
		ret = c->read ? sys_preadv(d->mem, c->iov, n, at) :
				sys_pwritev(d->mem, c->iov, n, at);
	if (ret > 0 || (ret < 0 && errno == EINTR))
		return ret > 0 ? ret : 0;
	/* 0: the memory does not exist any more: the process has ended or called exec. */
	if (!ret || errno == EPERM || errno == EACCES || errno == ENOSYS ||
	    errno == EBADF)
		disable(d);
	return ret ? -errno : -EPIPE;
}

/* Number of iovecs that one call may copy. On x86 all: the order of cut_tail() is kept.
 * On other CPUs those before the cuts, then each one behind a fence. */
static int iovs_at_once(const struct copy *c)
{
#if defined(__x86_64__) || defined(__i386__)
	return c->n;
#else
	int cuts = c->n < 3 ? c->n - 1 : 2;

	atomic_thread_fence(memory_order_seq_cst);
	return c->n > cuts + 1 ? c->n - cuts : 1;
#endif
}

static int copy_between(struct direct *d, struct copy *c)
{
	while (c->len) {
		int n = iovs_at_once(c);
		size_t len = 0;
		ssize_t ret = 0;

		for (int i = 0; i < n; i++)
			len += c->iov[i].iov_len;
		if (len >= PID_MIN && by_pid_allowed(d))
			ret = copy_by_pid(d, c, n, len);
		if (!ret)
			ret = copy_by_mem(d, c, n);
		if (ret < 0)
			return (int)ret;
		copy_advance(c, (size_t)ret);
	}
	return 0;
}

/* Within this process. The last word of the last piece is stored last. */
static int copy_within(struct copy *c)
{
	uint8_t *there = (uint8_t *)(uintptr_t)c->at;
	int ret = 0;

	for (int i = 0; i < c->n && !ret; i++) {
		size_t n = c->iov[i].iov_len;

		ret = c->read ? place_bytes_from(c->iov[i].iov_base, there, n) :
				place_bytes_from(there, c->iov[i].iov_base, n);
		there += n;
	}
	return ret;
}

/* If the target's QP is in RTR, it has to learn of the first request. */
static void announce(struct stream *s, const struct direct *d)
{
	const struct share_qp *entry =
		&d->t->qp[share_qp_index(to_shm(s)->peer_share_id)];
	struct rec_link m = { .type = LINK_ANNOUNCE, .slot = to_shm(s)->peer_slot };

	if (to_shm(s)->announced || !(atomic_load(&entry->word) & SHARE_ANNOUNCE))
		return;
	to_shm(s)->announced = true;
	link_send(to_shm(s)->l, &m);
}

static int access_memory(struct stream *s, struct direct *d, const struct wqe *w,
			 uint32_t off, struct copy *c)
{
	uint64_t names = (uint64_t)w->rkey << 32 | (uint32_t)to_shm(s)->peer_share_id;
	_Atomic uint64_t *word = word_claim(d, names);
	int ret = -EACCES;

	if (!word)
		return -EBUSY;
	c->at = check_target(s, d, w);
	if (c->at) {
		c->at += off;
		if (!d->self && off + c->len == w->length)
			cut_tail(c);
		ret = d->self ? copy_within(c) : copy_between(d, c);
	}
	if (!ret)
		announce(s, d);
	word_release(word);
	return ret;
}

/* Only if the peer has our keys, too. Else a peer with fewer rights than this process
 * could make it access a process that the peer has started with more rights than its own,
 * and whose memory holds our challenge. */
static bool usable(struct stream *s, const struct direct *d)
{
	return d && !atomic_load_explicit(&d->off, memory_order_acquire) &&
	       atomic_load_explicit(&d->peer_keys, memory_order_relaxed) !=
		       DIRECT_KEYS_NONE &&
	       share_qp_index(to_shm(s)->peer_share_id) < SHARE_QPS &&
	       !to_shm(s)->closed_in && s->state == STREAM_OPEN;
}

/* No word names the key, so only the atomic fields of the table may be read. */
static bool direct_likely(struct stream *s, const struct wqe *w)
{
	struct direct *d = to_shm(s)->l->direct;
	const struct share_key *k;

	if (!usable(s, d) || !qp_open(s, d, w->opcode == IBV_WR_RDMA_READ))
		return false;
	k = row_of(d, w->rkey);
	return k && atomic_load_explicit(&k->key, memory_order_relaxed) == w->rkey;
}

/* Large requests come without locks: direct_likely() has found the link usable. */
static int direct_run(struct stream *s, const struct wqe *w, uint32_t off, uint32_t len)
{
	struct direct *d = to_shm(s)->l->direct;
	struct mr_slot *refs[DEV_MAX_SGE];
	struct copy c;
	struct sge_mem mem = { c.iov, refs, DEV_MAX_SGE };
	struct sge_list list;
	int maps = 0, ret;

	if (!d || (w->length <= RC_EXECUTE_LOCKED && !usable(s, d)))
		return -ENOENT;
	c.read = w->opcode == IBV_WR_RDMA_READ;
	c.len = len;
	if (w->is_inline) {
		c.iov[0] = (struct iovec){ (uint8_t *)(uintptr_t)w->sge + off, len };
		c.n = 1;
	} else {
		list = wqe_sge_list(s->qp, w,
				    c.read ? IBV_ACCESS_LOCAL_WRITE : MR_LOCAL_READ);
		/* A request that is refused must have had no effect. */
		if (!off && len < w->length && sge_check(&list))
			return -EACCES;
		maps = sge_map(&list, off, len, &mem);
		if (maps <= 0)
			return maps ? maps : -EINVAL;
		c.n = maps;
	}
	ret = access_memory(s, d, w, off, &c);
	sge_unmap(refs, maps);
	return ret;
}

bool direct_fetches(struct stream *s)
{
	return usable(s, to_shm(s)->l->direct);
}

/* A QP that fails returns its memory to the application without waiting for the word, but
 * closes its QP entry before. So what was copied while the entry is open is what was
 * sent. */
int direct_fetch(struct stream *s, uint32_t key, uint64_t addr, uint32_t len,
		 const struct iovec *iov, int n)
{
	struct direct *d = to_shm(s)->l->direct;
	struct copy c = { .n = n, .len = len, .read = true };
	_Atomic uint64_t *word;
	int ret = -EACCES;

	word = word_claim(d, (uint64_t)key << 32 | (uint32_t)to_shm(s)->peer_share_id);
	if (!word)
		return -EBUSY;
	c.at = check_source(s, d, key, addr, len);
	if (c.at) {
		memcpy(c.iov, iov, (size_t)n * sizeof(*iov));
		ret = d->self ? copy_within(&c) : copy_between(d, &c);
		atomic_thread_fence(memory_order_seq_cst);
	}
	if (!ret && !qp_allows(s, d, SHARE_SEND))
		ret = -ECANCELED;
	word_release(word);
	return ret;
}

bool direct_peer_fetches(struct stream *s)
{
	const struct direct *d = to_shm(s)->l->direct;

	return d && s->share_id && s->qp->share_id == s->share_id &&
	       atomic_load_explicit(&d->peer_keys, memory_order_relaxed) !=
		       DIRECT_KEYS_NONE &&
	       atomic_load_explicit(&d->theirs->works, memory_order_relaxed);
}

const struct rc_executor direct_executor = { .likely = direct_likely, .run = direct_run };
