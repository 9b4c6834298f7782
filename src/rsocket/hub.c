/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sockets of a device share: a PD, a completion channel, and CQs. A socket that
 * idles costs neither a descriptor nor a poll. A CQ is made as large as its sockets may
 * fill it; where that would be too much, there is another one. */
#include "rsocket/rs.h"

#include <errno.h>

enum {
	CQ_FIRST = 4096,	/* entries */
	CQ_MOST = 65536,
	BATCH = 32,
	SLOT_BITS = 20,		/* of wr_id; the generation has the rest of 32 */
};

static struct {
	pthread_mutex_t lock;
	struct hub *_Atomic first;
} hubs PROCESS_STATE = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct hub *hub_first(void)
{
	return atomic_load(&hubs.first);
}

static int hub_make(struct ibv_context *verbs, struct hub **out)
{
	struct hub *h = calloc(1, sizeof(*h));
	int flags;

	if (!h)
		return -ENOMEM;
	h->verbs = verbs;
	h->iwarp = verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	pthread_mutex_init(&h->lock, NULL);
	if (ibv_query_device(verbs, &h->attr))
		goto fail;
	h->pd = ibv_alloc_pd(verbs);
	if (!h->pd)
		goto fail;
	h->channel = ibv_create_comp_channel(verbs);
	if (!h->channel)
		goto free_pd;
	flags = fcntl(h->channel->fd, F_GETFL);
	fcntl(h->channel->fd, F_SETFL, flags | O_NONBLOCK);
	*out = h;
	return 0;

free_pd:
	ibv_dealloc_pd(h->pd);
fail:
	free(h);
	return errno ? -errno : -ENODEV;
}

int hub_get(struct ibv_context *verbs, struct hub **out)
{
	struct hub *h;
	int ret = 0;

	for (h = hub_first(); h; h = h->next)
		if (h->verbs == verbs)
			break;
	if (h) {
		*out = h;
		return 0;
	}
	pthread_mutex_lock(&hubs.lock);
	for (h = hub_first(); h; h = h->next)
		if (h->verbs == verbs)
			break;
	if (!h)
		ret = hub_make(verbs, &h);
	if (!ret && !h->next && h != hub_first()) {
		h->next = hub_first();
		atomic_store(&hubs.first, h);
	}
	pthread_mutex_unlock(&hubs.lock);
	if (!ret)
		*out = h;
	return ret;
}

/* ---- CQs ------------------------------------------------------------------------- */

static int shard_make(struct hub *h, uint32_t cqes, struct shard **out)
{
	struct shard *sh = calloc(1, sizeof(*sh));
	uint32_t n = cqes > CQ_FIRST ? cqes : CQ_FIRST;

	if (!sh)
		return -ENOMEM;
	if (n > (uint32_t)h->attr.max_cqe)
		n = (uint32_t)h->attr.max_cqe;
	sh->hub = h;
	pthread_mutex_init(&sh->lock, NULL);
	sh->cq = ibv_create_cq(h->verbs, (int)n, sh, h->channel, 0);
	if (!sh->cq) {
		free(sh);
		return errno ? -errno : -ENOMEM;
	}
	sh->entries = (uint32_t)sh->cq->cqe;
	sh->next = atomic_load(&h->shards);
	atomic_store(&h->shards, sh);
	*out = sh;
	return 0;
}

/* Room for cqes more? */
static bool shard_room(struct shard *sh, uint32_t cqes)
{
	uint32_t n = sh->entries, most = (uint32_t)sh->hub->attr.max_cqe;

	if (sh->used + cqes <= n)
		return true;
	while (n < sh->used + cqes)
		n *= 2;
	if (n > CQ_MOST || n > most || ibv_resize_cq(sh->cq, (int)n))
		return false;
	sh->entries = n;
	return true;
}

static int slots_grow(struct shard *sh)
{
	uint32_t n = sh->nslots ? sh->nslots * 2 : 64;
	struct shard_slot *s;

	if (n > 1u << SLOT_BITS)
		return -ENOMEM;
	s = realloc(sh->slot, n * sizeof(*s));
	if (!s)
		return -ENOMEM;
	memset(s + sh->nslots, 0, (n - sh->nslots) * sizeof(*s));
	sh->slot = s;
	sh->nslots = n;
	return 0;
}

static int slot_take(struct shard *sh, struct rs *rs)
{
	uint32_t i, n;
	int ret = 0;

	pthread_mutex_lock(&sh->lock);
	for (n = 0; n < sh->nslots; n++)
		if (!sh->slot[(sh->free_hint + n) % sh->nslots].rs)
			break;
	if (n == sh->nslots) {
		i = sh->nslots;
		ret = slots_grow(sh);
	} else {
		i = (sh->free_hint + n) % sh->nslots;
	}
	if (!ret) {
		sh->free_hint = i + 1;
		sh->slot[i].rs = rs;
		sh->slot[i].gen = (sh->slot[i].gen + 1) & ((1u << (32 - SLOT_BITS)) - 1);
		rs->shard = sh;
		rs->wr_id = i | sh->slot[i].gen << SLOT_BITS;
	}
	pthread_mutex_unlock(&sh->lock);
	return ret;
}

int shard_join(struct hub *h, struct rs *rs, uint32_t cqes)
{
	struct shard *sh;
	int ret = 0;

	pthread_mutex_lock(&h->lock);
	for (sh = atomic_load(&h->shards); sh; sh = sh->next)
		if (shard_room(sh, cqes))
			break;
	if (!sh)
		ret = shard_make(h, cqes, &sh);
	if (!ret)
		ret = slot_take(sh, rs);
	if (!ret)
		sh->used += cqes;
	pthread_mutex_unlock(&h->lock);
	return ret;
}

void shard_leave(struct rs *rs, uint32_t cqes)
{
	struct shard *sh = rs->shard;
	uint32_t i = (uint32_t)rs->wr_id & ((1u << SLOT_BITS) - 1);

	pthread_mutex_lock(&sh->lock);
	sh->slot[i].rs = NULL;
	pthread_mutex_unlock(&sh->lock);
	pthread_mutex_lock(&sh->hub->lock);
	sh->used -= cqes;
	pthread_mutex_unlock(&sh->hub->lock);
	rs->shard = NULL;
}

/* ---- delivering -------------------------------------------------------------------- */

/* Whose completion it is; NULL: of a socket that was destroyed. A device may keep
 * completions of a QP that is no more. */
static struct rs *shard_find(struct shard *sh, uint64_t wr_id)
{
	uint32_t i = (uint32_t)wr_id & ((1u << SLOT_BITS) - 1);
	uint32_t gen = (uint32_t)wr_id >> SLOT_BITS;

	return i < sh->nslots && sh->slot[i].gen == gen ? sh->slot[i].rs : NULL;
}

static void deliver(struct shard *sh, const struct ibv_wc *wc, int n)
{
	struct rs *rs, *last = NULL;

	for (int i = 0; i < n; i++) {
		rs = shard_find(sh, wc[i].wr_id);
		if (rs)
			rs_complete(rs, &wc[i]);
	}
	atomic_thread_fence(memory_order_seq_cst);
	for (int i = 0; i < n; i++) {
		rs = shard_find(sh, wc[i].wr_id);
		if (rs && rs != last)
			watch_tell(&rs->watch);
		last = rs;
	}
}

static bool run_locked(struct shard *sh)
{
	struct ibv_wc wc[BATCH];
	bool any = false;
	int n;

	do {
		n = ibv_poll_cq(sh->cq, BATCH, wc);
		if (n > 0) {
			deliver(sh, wc, n);
			any = true;
		}
	} while (n == BATCH);
	return any;
}

bool shard_run(struct shard *sh, bool wait)
{
	bool any;

	if (wait)
		pthread_mutex_lock(&sh->lock);
	else if (pthread_mutex_trylock(&sh->lock))
		return false;
	any = run_locked(sh);
	pthread_mutex_unlock(&sh->lock);
	return any;
}

void shard_arm(struct shard *sh)
{
	pthread_mutex_lock(&sh->lock);
	if (!atomic_load(&sh->armed) && !ibv_req_notify_cq(sh->cq, 0))
		atomic_store(&sh->armed, true);
	run_locked(sh);
	pthread_mutex_unlock(&sh->lock);
}

void hub_events(struct hub *h)
{
	struct ibv_cq *cq;
	struct shard *sh;
	void *arg;

	while (!ibv_get_cq_event(h->channel, &cq, &arg)) {
		ibv_ack_cq_events(cq, 1);
		sh = arg;
		pthread_mutex_lock(&sh->lock);
		atomic_store(&sh->armed, false);
		run_locked(sh);
		pthread_mutex_unlock(&sh->lock);
	}
}
