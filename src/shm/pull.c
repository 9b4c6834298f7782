/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/pull.h"

#include "base/log.h"
#include "dev/share.h"
#include "rc/responder.h"
#include "rc/rx.h"
#include "shm/direct.h"
#include "shm/link.h"

#include <errno.h>
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

static int fetch(const void *arg, struct stream *s, const struct iovec *iov, int n)
{
	const struct rec_piece *p = arg;

	return direct_fetch(s, p->key, p->addr, p->len, iov, n);
}

/* If the fetch fails, it is not decided here which side is at fault: when the sender
 * repeats the request with its payload, each side checks its own memory. */
int pull_receive(struct stream *s, const void *rec, const struct rec_stream *r)
{
	struct rec_piece p[REC_PIECES];
	int n = rec_get_pieces(rec, r, p, &s->rx.h), ret;

	lock_assert_held(&s->lock);
	if (n < 0 || s->p.unreliable)
		return -EPROTO;
	ret = rx_frame_begin(s);
	if (ret)
		return ret;
	for (int i = 0; i < n && !ret && s->rx.place == PLACE_RECV; i++)
		ret = rx_fetch(s, p[i].len, fetch, &p[i]);
	if (ret) {
		log_debug("stream in slot %u: a payload cannot be fetched: %s",
			  to_shm(s)->slot, strerror(-ret));
		resp_nak(s, NAK_COPY);
	}
	to_shm(s)->l->pulled += s->rx.off;
	return rx_frame_end(s, RC_BY_REFERENCE);
}
