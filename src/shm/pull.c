/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/pull.h"

#include "base/job.h"
#include "base/log.h"
#include "dev/share.h"
#include "rc/responder.h"
#include "rc/rx.h"
#include "shm/direct.h"
#include "shm/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)REC_PIECES >= (int)DEV_MAX_SGE,
	       "a record names all SGEs of a work request");
_Static_assert((int)REC_PULL_MAX >= (int)RC_REFERENCE_MAX,
	       "a record names all of a frame");

bool pull_offers(struct stream *s, const struct wqe *w)
{
	if (s->qp->qp.qp_type != IBV_QPT_RC || w->is_inline ||
	    w->length / w->num_sge < PULL_PIECE_MIN || !direct_peer_fetches(s))
		return false;
	for (unsigned i = 0; i < w->num_sge; i++)
		if (w->sge[i].length && !share_has_region(w->sge[i].lkey))
			return false;
	return true;
}

uint32_t pull_put(void *rec, const struct wqe *w, uint32_t off, uint32_t len)
{
	struct rec_piece *p = (struct rec_piece *)((struct rec_stream *)rec + 1);
	unsigned n = 0;

	for (unsigned i = 0; i < w->num_sge && len; i++) {
		const struct ibv_sge *g = &w->sge[i];
		uint32_t part;

		if (off >= g->length) {
			off -= g->length;
			continue;
		}
		part = g->length - off < len ? g->length - off : len;
		p[n++] = (struct rec_piece){ g->addr + off, g->lkey, part };
		len -= part;
		off = 0;
	}
	rec_put_pull(rec, n);
	return n * (uint32_t)sizeof(*p);
}

/* ---- the receiver ------------------------------------------------------------------ */

/* A record whose payload is being fetched, in a job. */
struct shm_fetch {
	struct job job;
	struct shm_stream *t;
	struct rec_piece piece[REC_PIECES];
	int n;
};

static int fetch(const void *arg, struct stream *s, const struct iovec *iov, int n)
{
	const struct rec_piece *p = arg;

	return direct_fetch(s, p->key, p->addr, p->len, iov, n);
}

/* If the fetch fails, it is not decided here which side is at fault: when the sender
 * repeats the request with its payload, each side checks its own memory. */
static int fetched(struct stream *s, uint32_t bytes, int err)
{
	lock_assert_held(&s->lock);
	rx_fetch_end(s, bytes);
	if (err) {
		log_debug("stream in slot %u: a payload cannot be fetched: %s",
			  to_shm(s)->slot, strerror(-err));
		resp_nak(s, NAK_COPY);
	}
	s->rx.ack_asked |= s->rx.h.last; /* the sender's memory waits for it */
	return rx_frame_end(s, RC_BY_REFERENCE);
}

static void fetch_run(struct job *j)
{
	struct shm_fetch *f = container_of(j, struct shm_fetch, job);
	struct stream *s = &f->t->s;
	uint32_t off = 0;
	int ret = 0;

	for (int i = 0; i < f->n && !ret; off += f->piece[i++].len)
		ret = rx_fetch(s, off, f->piece[i].len, fetch, &f->piece[i]);
	stream_lock(s);
	ret = fetched(s, off, ret);
	shm_fetched(s, ret);
	stream_unlock(s);
	stream_put(s);
}

static struct shm_fetch *fetch_of(struct shm_stream *t)
{
	if (!t->fetch && (t->fetch = calloc(1, sizeof(*t->fetch)))) {
		t->fetch->t = t;
		job_init(&t->fetch->job, fetch_run);
	}
	return t->fetch;
}

int pull_receive(struct stream *s, const volatile void *rec, const struct rec_stream *r)
{
	struct shm_fetch *f = fetch_of(to_shm(s));
	struct rec_piece none[REC_PIECES];
	int n = rec_get_pieces(rec, r, f ? f->piece : none, &s->rx.h), ret;

	lock_assert_held(&s->lock);
	if (n < 0 || s->p.unreliable)
		return -EPROTO;
	ret = rx_frame_begin(s);
	if (ret)
		return ret;
	if (s->rx.place == PLACE_RECV && (!f || !direct_fetches(s)))
		resp_nak(s, NAK_COPY);
	if (!f || !rx_fetch_begin(s))
		return rx_frame_end(s, RC_BY_REFERENCE);
	f->n = n;
	stream_get(s);
	job_post(&f->job, s->qp->poll_cq);
	return 0;
}
