/* SPDX-License-Identifier: BSD-2-Clause */
#include "rc/pages.h"

#include "base/pages.h"
#include "rc/tx.h"

#include <stdlib.h>
#include <string.h>

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

/* False: it cannot be posted. */
static bool post(struct stream *s, struct paging *of, const struct sge_mem *mem, int k)
{
	struct page_job *p = k <= DEV_MAX_SGE ? malloc(sizeof(*p)) : NULL;

	if (!p)
		return false;
	job_init(&p->job, page_run);
	p->s = s;
	p->of = of;
	p->write = !of;
	p->n = k;
	memcpy(p->iov, mem->iov, (size_t)k * sizeof(p->iov[0]));
	memcpy(p->refs, mem->refs, (size_t)k * sizeof(p->refs[0]));
	stream_get(s);
	job_post(&p->job, NULL); /* who polls has other completions to wait for */
	return true;
}

/* What the pages were asked for once is done with them, whether they have come or not: so
 * there is an end. */
bool rx_lacks_pages(struct stream *s, uint32_t len, const struct sge_mem *mem, int k)
{
	struct rc_rx *rx = &s->rx;

	lock_assert_held(&s->lock);
	if (rx->off + len <= rx->paged || !s->carrier->go_on || all_present(mem, k))
		return false;
	rx->paged = rx->off + len;
	rx->paging = post(s, NULL, mem, k);
	return rx->paging;
}

bool tx_lacks_pages(struct stream *s, const struct rc_payload *p, uint32_t len,
		    const struct sge_mem *mem, int k)
{
	struct paging *of = p->kind == PAYLOAD_WQE ? &s->tx.paging_request :
						     &s->tx.paging_response;

	lock_assert_held(&s->lock);
	if (!s->carrier->go_on || (p->idx == of->idx && p->off + len <= of->end) ||
	    all_present(mem, k))
		return false;
	of->idx = p->idx;
	of->end = p->off + len;
	of->waits = post(s, of, mem, k);
	return of->waits;
}
