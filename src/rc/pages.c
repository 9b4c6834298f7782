/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/pages.h"

#include "base/pages.h"
#include "rc/requester.h"
#include "rc/rx.h"
#include "rc/tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD_MAX = 1024 * 1024 };

struct page_job {
	struct job job;
	struct stream *s;
	struct paging *of; /* NULL: what is received */
	bool write;
	int n;
	struct iovec iov[DEV_MAX_SGE];
	struct mr_slot *refs[DEV_MAX_SGE];
};

static bool all_present(const struct sge_mem *mem, int k)
{
	for (int i = 0; i < k; i++)
		if (!pages_present(mem->iov[i].iov_base, mem->iov[i].iov_len))
			return false;
	return true;
}

/* The QP may have failed, or be gone: there is no place any more. */
static void rx_came(struct stream *s)
{
	struct rc_rx *rx = &s->rx;
	bool place = false;

	lock_assert_held(&s->lock);
	if (s->qp) {
		lock_get(&s->qp->lock);
		place = qp_may_receive_locked(s->qp) &&
			(rx->place != PLACE_RECV || s->qp->cur_valid);
		lock_put(&s->qp->lock);
	}
	if (!place)
		rx->place = PLACE_SCRATCH;
	rx->paging = false;
	cond_broadcast(&s->copied);
	s->carrier->go_on(s);
}

static void tx_came(struct stream *s, struct paging *of)
{
	lock_assert_held(&s->lock);
	of->waits = false;
	if (s->state != STREAM_CLOSED)
		tx_run(s);
}

static void page_run(struct job *j)
{
	struct page_job *p = container_of(j, struct page_job, job);
	struct stream *s = p->s;

	for (int i = 0; i < p->n; i++)
		pages_populate(p->iov[i].iov_base, p->iov[i].iov_len, p->write);
	sge_unmap(p->refs, p->n);
	stream_lock(s);
	if (p->of)
		tx_came(s, p->of);
	else
		rx_came(s);
	stream_unlock(s);
	free(p);
	stream_put(s);
}

/* NULL: no memory. The job has the keys of mem. */
static struct page_job *job_new(struct stream *s, struct paging *of, const struct sge_mem *mem,
				int k)
{
	struct page_job *p = k <= DEV_MAX_SGE ? malloc(sizeof(*p)) : NULL;

	if (!p)
		return NULL;
	job_init(&p->job, page_run);
	p->s = s;
	p->of = of;
	p->write = !of;
	p->n = k;
	memcpy(p->iov, mem->iov, (size_t)k * sizeof(p->iov[0]));
	memcpy(p->refs, mem->refs, (size_t)k * sizeof(p->refs[0]));
	return p;
}

/* More than the frame has: n iovecs in `more`, if n is positive. */
static void job_extend(struct page_job *p, const struct sge_mem *more, int n)
{
	if (n <= 0)
		return;
	sge_unmap(p->refs, p->n);
	p->n = n;
	memcpy(p->iov, more->iov, (size_t)n * sizeof(p->iov[0]));
	memcpy(p->refs, more->refs, (size_t)n * sizeof(p->refs[0]));
}

static void post(struct page_job *p)
{
	stream_get(p->s);
	job_post(&p->job, NULL); /* who polls has other completions to wait for */
}

/* ---- how much at once -------------------------------------------------------------- */

/* A job for each frame of a message that goes to fresh memory would be slow. The length of a
 * read is known. What else is received is perhaps as long again as it is by now. */
static uint32_t rx_ahead(struct stream *s, uint32_t len)
{
	struct rc_rx *rx = &s->rx;
	uint32_t n, idx;
	struct wqe *w;

	lock_assert_held(&s->lock);
	if (rx->place == PLACE_READ) {
		w = req_oldest_read(s, &idx);
		n = w->length - w->got - rx->off;
	} else {
		n = len + (rx->place == PLACE_RECV ? rx->msg_off : rx->write_len);
	}
	return n < AHEAD_MAX ? n : AHEAD_MAX;
}

static uint32_t tx_ahead(struct stream *s, const struct rc_payload *p)
{
	uint32_t len = p->kind == PAYLOAD_WQE ? sq_at(&s->qp->sq, p->idx)->length :
						s->rx.resp[p->idx % RESPONSES].len;

	return len - p->off < AHEAD_MAX ? len - p->off : AHEAD_MAX;
}

/* What the pages were asked for once is done with them, whether they have come or not: so
 * there is an end. */
bool rx_lacks_pages(struct stream *s, uint32_t len, const struct sge_mem *mem, int k)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem more = { iov, refs, DEV_MAX_SGE };
	struct rc_rx *rx = &s->rx;
	struct page_job *p;
	uint32_t ahead;

	lock_assert_held(&s->lock);
	if (rx->off + len <= rx->paged || !s->carrier->go_on || all_present(mem, k))
		return false;
	rx->paged = rx->off + len;
	p = job_new(s, NULL, mem, k);
	if (!p)
		return false;
	ahead = rx_ahead(s, len);
	if (ahead > len)
		job_extend(p, &more, rx_map(s, ahead, &more));
	rx->paging = true;
	post(p);
	return true;
}

bool tx_lacks_pages(struct stream *s, const struct rc_payload *p, uint32_t len,
		    const struct sge_mem *mem, int k)
{
	struct paging *of = p->kind == PAYLOAD_WQE ? &s->tx.paging_request :
						     &s->tx.paging_response;
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem more = { iov, refs, DEV_MAX_SGE };
	struct page_job *j;
	uint32_t ahead;

	lock_assert_held(&s->lock);
	if (!s->carrier->go_on || (p->idx == of->idx && p->off + len <= of->end) ||
	    all_present(mem, k))
		return false;
	of->idx = p->idx;
	of->end = p->off + len;
	j = job_new(s, of, mem, k);
	if (!j)
		return false;
	ahead = tx_ahead(s, p);
	if (ahead > len)
		job_extend(j, &more, payload_map(s->qp, p, 0, ahead, &more));
	of->waits = true;
	post(j);
	return true;
}

int tx_copy_much(struct stream *s, const struct rc_payload *p, uint8_t *to, uint32_t n)
{
	struct mr_slot *refs[DEV_MAX_SGE];
	struct iovec iov[DEV_MAX_SGE];
	struct sge_mem mem = { iov, refs, DEV_MAX_SGE };
	int k, ret;

	lock_assert_held(&s->lock);
	if (p->kind == PAYLOAD_WQE && sq_at(&s->qp->sq, p->idx)->is_inline)
		return payload_copy(s->qp, p, to, n);
	k = payload_map(s->qp, p, 0, n, &mem);
	if (k < 0)
		return k;
	if (tx_lacks_pages(s, p, n, &mem, k))
		return -EINPROGRESS;
	ret = take_iov(to, iov, k);
	sge_unmap(refs, k);
	return ret;
}
