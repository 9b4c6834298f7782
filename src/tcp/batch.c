/* SPDX-License-Identifier: BSD-2-Clause */
#include "tcp/batch.h"

#include "base/crc32c.h"
#include "base/scratch.h"
#include "dev/verbs.h"
#include "rc/pages.h"
#include "rc/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

SCRATCH(batches, struct batch);

struct batch *batch_get(void)
{
	return scratch_get(&batches);
}

void batch_put(struct batch *b)
{
	scratch_put(&batches, b);
}

/* Appends n bytes of buf (already written at buf + used) to the iovecs. */
static void batch_append(struct batch *b, uint32_t n)
{
	uint8_t *p = b->buf + b->used;
	struct iovec *last = b->niov ? &b->iov[b->niov - 1] : NULL;

	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += n;
	else
		b->iov[b->niov++] = (struct iovec){ p, n };
	b->used += n;
	b->bytes += n;
}

/* Pad and CRC of the FPDU at `head`. With CRC all of it is in the buffer. */
static void batch_trailer(struct batch *b, const struct stream *s, uint32_t head, uint32_t n)
{
	uint8_t *p = b->buf + b->used;

	memset(p, 0, n);
	if (s->p.crc)
		crc32c_put(p + n - 4, crc32c(CRC32C_INIT, b->buf + head, b->used + n - 4 - head));
	batch_append(b, n);
}

/* After an EFAULT, whose memory is it? */
static int find_unmapped(struct stream *s, const struct iovec *iov, int n)
{
	int ret = 0;

	for (int i = 0; to_tcp(s)->suspect && !ret && i < n; i++)
		ret = maps_check((uintptr_t)iov[i].iov_base, iov[i].iov_len, false);
	return ret;
}

/* Maps a payload too large to copy into iovecs; -errno of payload_map(), or -EFAULT, or
 * -EINPROGRESS: tx_lacks_pages(). */
static int batch_map(struct batch *b, struct stream *s, const struct rc_payload *p,
		     uint32_t len) REQUIRES(s->lock)
{
	struct sge_mem mem = { b->iov + b->niov, b->refs + b->nrefs,
			       BATCH_IOV - b->niov - 1 };
	int n = payload_map(s->qp, p, 0, len, &mem);

	if (n < 0)
		return n;
	if (tx_wants_pages(p, len) && tx_lacks_pages(s, p, len, &mem, n))
		return -EINPROGRESS;
	b->niov += (unsigned)n;
	b->nrefs += (unsigned)n;
	b->bytes += len;
	return find_unmapped(s, mem.iov, n);
}

/* Copies a small payload behind its header. */
static int batch_copy(struct batch *b, struct stream *s, const struct rc_payload *p,
		      uint32_t len) REQUIRES(s->lock)
{
	int ret = tx_copy(s, p, b->buf + b->used, len);

	if (!ret)
		batch_append(b, len);
	return ret;
}

static struct batch *to_batch(struct rc_build *b)
{
	return container_of(b, struct batch, b);
}

static bool batch_full(struct rc_build *build, struct stream *s)
{
	const struct batch *b = to_batch(build);
	const uint32_t need = s->p.crc ? FRAME_BUF_CRC : FRAME_BUF;

	return b->b.nframes == BATCH_FRAMES || b->niov + DEV_MAX_SGE + 3 > BATCH_IOV ||
	       b->used + need > BATCH_BUF || b->bytes >= RC_TURN;
}

/* Where the batch ended before a frame. */
struct batch_mark {
	unsigned niov, nrefs, used;
	struct iovec last;
	size_t bytes;
};

static struct batch_mark batch_mark(const struct batch *b)
{
	struct batch_mark m = { .niov = b->niov, .nrefs = b->nrefs, .used = b->used,
				.bytes = b->bytes };

	if (b->niov)
		m.last = b->iov[b->niov - 1];
	return m;
}

static void batch_rewind(struct batch *b, const struct batch_mark *m)
{
	sge_unmap(b->refs + m->nrefs, (int)(b->nrefs - m->nrefs));
	b->nrefs = m->nrefs;
	b->niov = m->niov;
	if (m->niov)
		b->iov[m->niov - 1] = m->last;
	b->used = m->used;
	b->bytes = m->bytes;
}

/* rc_build.add: one FPDU. */
static int batch_add(struct rc_build *build, struct stream *s, const struct rc_frame *h,
		     const struct rc_payload *p, const struct rc_cursor *after)
{
	struct batch *b = to_batch(build);
	struct batch_frame *f = &b->frame[b->b.nframes];
	const struct batch_mark mark = batch_mark(b);
	uint32_t trailer;
	bool copy;
	int ret = 0;

	lock_assert_held(&s->lock);
	f->head = b->used;
	f->head_len = (uint32_t)rdmap_encode(b->buf + b->used, h);
	batch_append(b, f->head_len);
	trailer = rdmap_trailer(f->head_len, h->payload);
	copy = h->payload <= TCP_COPY_MAX || s->p.crc ||
	       (p->kind == PAYLOAD_WQE && sq_at(&s->qp->sq, p->idx)->is_inline);
	if (h->payload)
		ret = copy ? batch_copy(b, s, p, h->payload) :
			     batch_map(b, s, p, h->payload);
	if (ret) {
		batch_rewind(b, &mark);
		return ret;
	}
	f->trailer = b->used;
	batch_trailer(b, s, f->head, trailer);
	f->head_len += copy ? h->payload + trailer : 0;
	f->trailer_len = copy ? 0 : trailer;
	f->payload_len = copy ? 0 : h->payload;
	f->bytes = h->payload;
	f->payload = *p;
	f->end = b->bytes;
	f->after = *after;
	b->b.nframes++;
	return 0;
}

void batch_build(struct stream *s, struct batch *b)
{
	b->b = (struct rc_build){ .add = batch_add, .full = batch_full };
	b->bytes = 0;
	b->niov = b->nrefs = b->used = 0;
	rc_build(s, &b->b);
}

/* These have left, or will before anything else. */
static void tell(struct stream *s, const struct batch *b, const struct batch_frame *last)
{
	struct rc_frame h;
	uint64_t bytes = 0;

	for (const struct batch_frame *f = b->frame; f <= last; f++)
		bytes += f->bytes;
	traffic_count(&s->traffic, TRAFFIC_XMIT, bytes, (uint64_t)(last - b->frame) + 1);
	if (!rc_tapped())
		return;
	for (const struct batch_frame *f = b->frame; f <= last; f++)
		if (rdmap_decode(b->buf + f->head, RDMAP_HDR_MAX, &h) > 0)
			rc_frame_out(s, &h, RC_BY_FRAME);
}

/* Keeps the rest of the frame, of which `in` bytes have left. */
static int keep_part(struct tcp_stream *t, const struct batch *b, const struct batch_frame *f,
		     size_t in)
{
	struct tcp_part *p = calloc(1, sizeof(*p) + f->head_len);

	if (!p)
		return -ENOMEM;
	memcpy(p->head, b->buf + f->head, f->head_len);
	p->head_len = f->head_len;
	memcpy(p->trailer, b->buf + f->trailer, f->trailer_len);
	p->trailer_len = f->trailer_len;
	p->payload = f->payload;
	p->payload_len = f->payload_len;
	p->head_pos = in < p->head_len ? (uint32_t)in : p->head_len;
	in -= p->head_pos;
	p->payload_pos = in < p->payload_len ? (uint32_t)in : p->payload_len;
	in -= p->payload_pos;
	p->trailer_pos = (uint32_t)in;
	t->part = p;
	t->s.tx.cut = true;
	return 0;
}

int batch_commit(struct stream *s, struct batch *b, size_t n)
{
	const struct batch_frame *f = b->frame;
	size_t start = 0;

	if (!n)
		return 0;
	while (f->end < n)
		start = f++->end;
	rc_cursor_store(s, &f->after);
	tell(s, b, f);
	return f->end == n ? 0 : keep_part(to_tcp(s), b, f, n - start);
}
