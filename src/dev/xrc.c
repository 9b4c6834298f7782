/* SPDX-License-Identifier: BSD-2-Clause */
/* Design notes. On hardware a domain belongs to an inode, so that processes can share it.
 * Here it belongs to an inode within the process. Two processes that each create a domain
 * for the same file (O_CREAT) have two: this works as long as they do not use each
 * other's objects. A process that does *not* create it needs that of another process,
 * which it cannot have: EOPNOTSUPP.
 *
 * An SRQ may be destroyed while targets receive into it. They are on srq->targets. One
 * that is in the middle of a message is pinned, its transport fails the message
 * (recv_lost), and the destruction waits until the target does not use the SRQ any
 * more. */
#include "dev/xrc.h"

#include "base/fdset.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/poll.h"
#include "dev/transport.h"
#include "dev/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

enum { BUCKETS = 256, SRQN_MASK = 0xffffff };

struct xrc_domain {
	struct list link;
	int opens; /* ibv_open_xrcd()s */
	unsigned device;
	int fd;	   /* our own of the file, so that its inode stays; or -1 */
	dev_t dev;
	ino_t ino;
	struct list targets;
};

static struct {
	struct lock lock; /* guards all that is named here and in xrc.h */
	struct cond changed; /* a pin or a filling has ended */
	struct list domains;
	struct list srqs[BUCKETS]; /* dev_srq.number_link */
	uint32_t next;		   /* number to try next */
	struct dev_cq poll_cq;	   /* of which only the poll group is used */
	bool ready;
} xrc PROCESS_STATE = { .lock = LOCK_INIT,
	  .domains = LIST_INIT(xrc.domains) };

static void xrc_lock(void) ACQUIRE(xrc.lock) NO_TSA;
static void xrc_lock(void)
{
	lock_get(&xrc.lock);
	if (xrc.ready)
		return;
	for (int i = 0; i < BUCKETS; i++)
		list_init(&xrc.srqs[i]);
	/* Numbers, like keys, should not be easy to guess. */
	if (getrandom(&xrc.next, sizeof(xrc.next), GRND_NONBLOCK) != sizeof(xrc.next))
		xrc.next = (uint32_t)(uintptr_t)&xrc * 2654435761u;
	xrc.ready = true;
}

static void xrc_unlock(void) RELEASE(xrc.lock) NO_TSA;
static void xrc_unlock(void)
{
	lock_put(&xrc.lock);
}

/* ---- domains ------------------------------------------------------------------ */

static struct xrc_domain *domain_of_inode(unsigned device, const struct stat *st)
{
	struct xrc_domain *d;

	list_for_each(d, &xrc.domains, link)
		if (d->fd >= 0 && d->device == device && d->dev == st->st_dev &&
		    d->ino == st->st_ino)
			return d;
	return NULL;
}

static int domain_new(unsigned device, int fd, const struct stat *st,
		      struct xrc_domain **out)
{
	struct xrc_domain *d = calloc(1, sizeof(*d));
	int ret = 0;

	if (!d)
		return -ENOMEM;
	d->fd = -1;
	d->device = device;
	list_init(&d->targets);
	if (fd >= 0) {
		d->dev = st->st_dev;
		d->ino = st->st_ino;
		d->fd = fdset_take(fcntl(fd, F_DUPFD_CLOEXEC, 0));
		ret = d->fd < 0 ? -errno : 0;
	}
	if (ret) {
		free(d);
		return ret;
	}
	list_add_tail(&xrc.domains, &d->link);
	*out = d;
	return 0;
}

static int domain_get(unsigned device, int fd, int oflags, struct xrc_domain **out)
{
	struct xrc_domain *d = NULL;
	struct stat st;
	int ret = 0;

	if (fd != -1 && fstat(fd, &st))
		return log_refuse(errno, "ibv_open_xrcd: descriptor %d: %s", fd,
				  strerror(errno));
	xrc_lock();
	if (fd != -1)
		d = domain_of_inode(device, &st);
	if (d && (oflags & O_CREAT) && (oflags & O_EXCL))
		ret = log_refuse(EINVAL, "ibv_open_xrcd: O_EXCL, and the file has a "
					 "domain already");
	else if (!d && !(oflags & O_CREAT) && fd != -1)
		ret = log_refuse(EOPNOTSUPP,
				 "ibv_open_xrcd: no O_CREAT, and this process has no "
				 "domain for the file: domains of other processes cannot "
				 "be shared");
	else if (!d)
		ret = domain_new(device, fd, &st, &d);
	if (!ret)
		d->opens++;
	xrc_unlock();
	*out = d;
	return ret;
}

static void domain_put(struct xrc_domain *d)
{
	bool last;

	xrc_lock();
	last = !--d->opens;
	if (last)
		list_del(&d->link);
	xrc_unlock();
	if (!last)
		return;
	if (d->fd >= 0)
		fdset_close(d->fd);
	free(d);
}

int xrcd_open(struct dev_ctx *ctx, const struct ibv_xrcd_init_attr *attr,
	      struct dev_xrcd **out)
{
	const uint32_t need = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct dev_xrcd *x;
	int ret;

	if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED)
		return log_refuse(EOPNOTSUPP, "ibv_open_xrcd: unknown mask 0x%x",
				  attr->comp_mask);
	if ((attr->comp_mask & need) != need)
		return log_refuse(EINVAL, "ibv_open_xrcd: descriptor and flags are both "
					  "needed, the mask is 0x%x",
				  attr->comp_mask);
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	ret = domain_get(ctx->device, attr->fd, attr->oflags, &x->domain);
	if (ret) {
		free(x);
		return ret;
	}
	object_init(&x->object, &ctx->v.context);
	x->xrcd.context = x->object.context;
	ctx_get(ctx);
	*out = x;
	return 0;
}

int xrcd_close(struct dev_xrcd *x)
{
	int refs = atomic_load(&x->refs);

	if (refs)
		return log_refuse(EBUSY, "ibv_close_xrcd: %d SRQs and QPs still use it",
				  refs);
	domain_put(x->domain);
	ctx_put(to_ctx(x->object.context));
	free(x);
	return 0;
}

int xrc_poll_cq(struct dev_cq **out)
{
	int ret = 0;

	xrc_lock();
	if (!xrc.poll_cq.group)
		ret = poll_cq_init(&xrc.poll_cq);
	xrc_unlock();
	*out = &xrc.poll_cq;
	return ret;
}

/* ---- SRQ numbers ---------------------------------------------------------------- */

static struct dev_srq *srq_find(uint32_t n)
{
	struct dev_srq *srq;

	list_for_each(srq, &xrc.srqs[n % BUCKETS], number_link)
		if (srq->number == n)
			return srq;
	return NULL;
}

/* NULL: none of this number in the domain. */
static struct dev_srq *srq_in(const struct xrc_domain *d, uint32_t n)
{
	struct dev_srq *srq = srq_find(n);

	return srq && srq->xrcd->domain == d ? srq : NULL;
}

void xrc_srq_add(struct dev_srq *srq)
{
	uint32_t n = 0;

	list_init(&srq->targets);
	xrc_lock();
	/* Numbers come round after 2^24; far fewer SRQs may exist. */
	while (!n || srq_find(n))
		n = xrc.next++ & SRQN_MASK;
	srq->number = n;
	list_add_tail(&xrc.srqs[n % BUCKETS], &srq->number_link);
	xrc_unlock();
}

/* ---- a target and its SRQ ---------------------------------------------------------- */

static void wait_end(struct xrc_target *t)
{
	lock_get(&t->srq->lock);
	list_del(&t->qp->srq_wait);
	lock_put(&t->srq->lock);
}

static void unuse(struct xrc_target *t)
{
	if (!t->srq)
		return;
	wait_end(t);
	list_del(&t->srq_link);
	t->srq = NULL;
}

static void use(struct xrc_target *t, struct dev_srq *srq)
{
	if (t->srq == srq)
		return;
	unuse(t);
	t->srq = srq;
	list_add_tail(&srq->targets, &t->srq_link);
}

int xrc_take_locked(struct dev_qp *qp, uint32_t srqn)
{
	struct xrc_target *t = qp->xrc;
	struct dev_srq *srq;
	int ret = -EINVAL;

	lock_assert_held(&qp->lock);
	xrc_lock();
	srq = srq_in(t->domain, srqn);
	if (srq) {
		use(t, srq);
		ret = srq_take_locked(srq, qp);
		t->filling = !ret;
	}
	xrc_unlock();
	return ret;
}

void xrc_recv_done_locked(struct dev_qp *qp)
{
	lock_assert_held(&qp->lock);
	xrc_lock();
	qp->xrc->filling = false;
	cond_broadcast(&xrc.changed);
	xrc_unlock();
}

void xrc_stop_waiting_locked(struct dev_qp *qp)
{
	struct xrc_target *t = qp->xrc;

	lock_assert_held(&qp->lock);
	xrc_lock();
	if (t->srq && t->filling)
		wait_end(t);
	else
		unuse(t);
	xrc_unlock();
}

struct dev_pd *xrc_pd(struct dev_qp *qp, uint32_t srqn)
{
	struct dev_srq *srq;
	struct dev_pd *pd;

	xrc_lock();
	srq = srq_in(qp->xrc->domain, srqn);
	pd = srq ? srq->pd : NULL;
	xrc_unlock();
	return pd;
}

/* Calls the transport of a target, without the lock; the target is pinned meanwhile. */
static void target_tell(struct xrc_target *t, bool lost) REQUIRES(xrc.lock) NO_TSA;
static void target_tell(struct xrc_target *t, bool lost)
{
	struct dev_qp *qp = t->qp;
	const struct dev_transport *tr;

	t->pins++;
	xrc_unlock();
	lock_get(&qp->lock);
	tr = qp->tr;
	lock_put(&qp->lock);
	if (tr && lost)
		tr->recv_lost(qp);
	else if (tr)
		tr->recv_posted(qp);
	xrc_lock();
	if (!--t->pins)
		cond_broadcast(&xrc.changed);
}

void xrc_srq_posted(struct dev_srq *srq, uint32_t n)
{
	struct list *l;

	xrc_lock();
	while (n--) {
		lock_get(&srq->lock);
		l = list_pop(&srq->waiting);
		lock_put(&srq->lock);
		if (!l)
			break;
		target_tell(list_entry(l, struct dev_qp, srq_wait)->xrc, false);
	}
	xrc_unlock();
}

void xrc_srq_del(struct dev_srq *srq)
{
	struct xrc_target *t;

	xrc_lock();
	list_del(&srq->number_link);
	while (!list_empty(&srq->targets)) {
		t = list_entry(srq->targets.next, struct xrc_target, srq_link);
		if (t->filling) {
			target_tell(t, true);
			/* Another thread may be about to end it (ERR, RESET). */
			if (t->srq == srq && t->filling)
				lock_wait(&xrc.lock, &xrc.changed);
			continue;
		}
		unuse(t);
	}
	xrc_unlock();
}

/* ---- targets and their handles ------------------------------------------------------- */

int xrc_target_add(struct dev_qp *qp, struct dev_xrcd *xrcd)
{
	struct xrc_target *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->qp = qp;
	t->domain = xrcd->domain;
	list_init(&t->handles);
	qp->xrc = t;
	xrc_lock();
	list_add_tail(&t->domain->targets, &t->link);
	xrc_unlock();
	return 0;
}

void xrc_target_del(struct dev_qp *qp)
{
	struct xrc_target *t = qp->xrc;

	xrc_lock();
	list_del(&t->link);
	unuse(t);
	while (t->pins)
		lock_wait(&xrc.lock, &xrc.changed);
	xrc_unlock();
	free(t);
	qp->xrc = NULL;
}

static struct xrc_target *target_find(const struct xrc_domain *d, uint32_t qpn)
{
	struct xrc_target *t;

	list_for_each(t, &d->targets, link)
		if (t->qp->qp.qp_num == qpn)
			return t;
	return NULL;
}

static int open_check(struct dev_ctx *ctx, const struct ibv_qp_open_attr *a)
{
	const uint32_t need = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			      IBV_QP_OPEN_ATTR_TYPE;

	if (a->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED)
		return log_refuse(EOPNOTSUPP, "ibv_open_qp: unknown mask 0x%x",
				  a->comp_mask);
	if ((a->comp_mask & need) != need || !a->xrcd)
		return log_refuse(EINVAL, "ibv_open_qp: number, domain and type are "
					  "needed, the mask is 0x%x",
				  a->comp_mask);
	if (a->qp_type != IBV_QPT_XRC_RECV)
		return log_refuse(EINVAL, "ibv_open_qp: type %d (enum ibv_qp_type), only "
					  "XRC receive QPs can be opened",
				  (int)a->qp_type);
	if (!xrcd_intact(a->xrcd) || a->xrcd->context != &ctx->v.context)
		return log_refuse(EINVAL, "ibv_open_qp: the domain is another context's");
	return 0;
}

int xrc_qp_open(struct dev_ctx *ctx, const struct ibv_qp_open_attr *a, struct dev_qp **out)
{
	struct dev_xrcd *xrcd;
	struct xrc_target *t;
	struct dev_qp *h;
	int ret = open_check(ctx, a);

	if (ret)
		return ret;
	xrcd = to_xrcd(a->xrcd);
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->qp.qp_num = a->qp_num;
	h->qp.qp_type = IBV_QPT_XRC_RECV;
	h->qp.qp_context = a->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT ? a->qp_context : NULL;
	qp_handle_init(h, ctx, xrcd);
	xrc_lock();
	t = target_find(xrcd->domain, a->qp_num);
	if (t) {
		h->real = t->qp;
		list_add_tail(&t->handles, &h->handle_link);
	}
	xrc_unlock();
	if (!t) {
		qp_handle_fini(h);
		free(h);
		return log_refuse(EINVAL, "ibv_open_qp: this process has no receive QP "
					  "0x%x in the domain",
				  a->qp_num);
	}
	lock_get(&h->real->lock);
	h->qp.state = h->real->qp.state;
	lock_put(&h->real->lock);
	*out = h;
	return 0;
}

struct dev_qp *xrc_qp_close(struct dev_qp *h)
{
	struct dev_qp *real = h->real ? h->real : h;
	struct xrc_target *t = real->xrc;
	bool last;

	xrc_lock();
	if (h == real)
		t->disowned = true;
	else
		list_del(&h->handle_link);
	last = t->disowned && list_empty(&t->handles);
	if (last)
		list_del(&t->link); /* ibv_open_qp() does not find it any more */
	xrc_unlock();
	return last ? real : NULL;
}

void xrc_qp_each(struct dev_qp *qp, void (*fn)(struct dev_qp *handle, int arg), int arg)
{
	struct dev_qp *h;

	xrc_lock();
	if (!qp->xrc->disowned)
		fn(qp, arg);
	list_for_each(h, &qp->xrc->handles, handle_link)
		fn(h, arg);
	xrc_unlock();
}
