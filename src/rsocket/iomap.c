/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that the peer writes into by offset. A mapping is an entry in the *peer's*
 * memory, at the number that the mapping has; it is written with the next data that is
 * sent. riowrite() looks into the entries that the peer has written here. */
#include "rsocket/rs.h"

#include <errno.h>
#include <limits.h>

struct map {
	struct map *next;
	uint8_t *buf;
	size_t len;
	uint64_t offset;
	struct ibv_mr *mr;	/* NULL: unmapped, the peer is to be told */
	int index;		/* the peer's entry; -1: not for the peer */
	bool news;		/* the peer has not been told */
};

struct iomap_table {
	struct map *first;	/* wr_lock */
	bool news;
};

static int free_index(struct rs *rs)
{
	uint32_t i;
	struct map *m;

	for (i = 0; i < rs->peer_iomaps; i++) {
		for (m = rs->iomap->first; m && m->index != (int)i; m = m->next)
			;
		if (!m)
			return (int)i;
	}
	return -1;
}

static bool overlaps(struct rs *rs, uint64_t offset, size_t len)
{
	for (struct map *m = rs->iomap->first; m; m = m->next)
		if (m->mr && m->index >= 0 && offset < m->offset + m->len &&
		    m->offset < offset + len)
			return true;
	return false;
}

static off_t map_add(struct rs *rs, struct map *m, int prot)
{
	int access = IBV_ACCESS_LOCAL_WRITE;

	m->index = -1;
	if (prot & PROT_WRITE) {
		access |= IBV_ACCESS_REMOTE_WRITE;
		if (overlaps(rs, m->offset, m->len))
			return -EINVAL;
		m->index = free_index(rs);
		if (m->index < 0)
			return -ENOMEM;
	}
	m->mr = ibv_reg_mr(rs->hub->pd, m->buf, m->len, access);
	if (!m->mr)
		return -errno;
	m->news = m->index >= 0;
	rs->iomap->news |= m->news;
	m->next = rs->iomap->first;
	rs->iomap->first = m;
	return (off_t)m->offset;
}

off_t rs_iomap(struct rs *rs, void *buf, size_t len, int prot, int flags, off_t offset)
{
	uint64_t at = offset == -1 ? (uintptr_t)buf : (uint64_t)offset;
	struct map *m;
	off_t ret;

	(void)flags;
	if ((prot & ~PROT_WRITE) || !buf || !len || len > UINT32_MAX ||
	    rs_state(rs) != RS_CONNECTED || at + len < at)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	*m = (struct map){ .buf = buf, .len = len, .offset = at };
	pthread_mutex_lock(&rs->wr_lock);
	if (!rs->iomap)
		rs->iomap = calloc(1, sizeof(*rs->iomap));
	ret = rs->iomap ? map_add(rs, m, prot) : -ENOMEM;
	pthread_mutex_unlock(&rs->wr_lock);
	if (ret < 0)
		free(m);
	return ret;
}

int rs_iounmap(struct rs *rs, void *buf, size_t len)
{
	struct map **at, *m;
	int ret = -EINVAL;

	pthread_mutex_lock(&rs->wr_lock);
	for (at = rs->iomap ? &rs->iomap->first : NULL; at && *at; at = &(*at)->next)
		if ((*at)->mr && (*at)->buf == buf && (*at)->len == len)
			break;
	if (at && *at) {
		m = *at;
		ibv_dereg_mr(m->mr);
		m->mr = NULL;
		ret = 0;
		if (m->index < 0 || m->news) { /* the peer has never heard of it */
			*at = m->next;
			free(m);
		} else {
			m->news = rs->iomap->news = true;
		}
	}
	pthread_mutex_unlock(&rs->wr_lock);
	return ret;
}

static int tell(struct rs *rs, struct map *m)
{
	struct proto_sge s = { (uintptr_t)m->buf, m->mr ? m->mr->rkey : 0,
			       m->mr ? (uint32_t)m->len : 0 };
	uint8_t entry[PROTO_IOMAP_LEN];
	struct ibv_sge sge = { .addr = (uintptr_t)entry, .length = sizeof(entry) };
	struct ibv_send_wr w = {
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
		.wr.rdma = { .remote_addr = rs->peer_sgl.addr +
					    rs->peer_sgl.length * PROTO_SGE_LEN +
					    (uint64_t)m->index * PROTO_IOMAP_LEN,
			     .rkey = rs->peer_sgl.key },
	};
	int ret;

	proto_iomap_put(entry, m->offset, &s, rs->swap);
	if (atomic_fetch_add(&rs->tx.ctrl, 1) >= CTRL_MAX) {
		atomic_fetch_sub(&rs->tx.ctrl, 1);
		return -EAGAIN;
	}
	ret = post_message(rs, post_wr_id(rs, WR_CTRL, 0),
			   proto_imm(PROTO_IOMAP, (uint32_t)m->index), &w);
	if (ret)
		atomic_fetch_sub(&rs->tx.ctrl, 1);
	return ret;
}

static bool ctrl_ready(struct rs *rs)
{
	return atomic_load(&rs->tx.ctrl) < CTRL_MAX || (rs_ended(rs) & RS_GONE);
}

int iomap_announce(struct rs *rs)
{
	struct map **at, *m;
	int ret = 0;

	if (!rs->iomap->news)
		return 0;
	for (at = &rs->iomap->first; !ret && *at;) {
		m = *at;
		if (!m->news) {
			at = &m->next;
			continue;
		}
		ret = tell(rs, m);
		if (ret == -EAGAIN) {
			ret = rs_wait(rs, ctrl_ready, UINT64_MAX);
			if (!ret && (rs_ended(rs) & RS_GONE))
				ret = -ECONNRESET;
			continue;
		}
		m->news = false;
		if (m->mr)
			continue;
		*at = m->next;
		free(m);
	}
	rs->iomap->news = ret != 0;
	return ret;
}

void iomap_free(struct rs *rs)
{
	struct map *m;

	while (rs->iomap && (m = rs->iomap->first)) {
		rs->iomap->first = m->next;
		if (m->mr)
			ibv_dereg_mr(m->mr);
		free(m);
	}
	free(rs->iomap);
}

/* ---- writing ------------------------------------------------------------------------- */

/* The peer's memory at the offset; bytes from there on in one piece, 0: none. */
static uint32_t target(struct rs *rs, uint64_t offset, uint64_t *addr, uint32_t *key)
{
	struct proto_sge s;
	uint64_t first;

	for (uint32_t i = 0; i < rs->opts.iomaps; i++) {
		first = proto_iomap_get(rs->ctl->iomap[i], &s);
		if (!s.length || offset < first || offset - first >= s.length)
			continue;
		*addr = s.addr + (offset - first);
		*key = s.key;
		return (uint32_t)(s.length - (offset - first));
	}
	return 0;
}

ssize_t rs_iowrite(struct rs *rs, const void *buf, size_t n, off_t offset, int flags)
{
	const uint8_t *from = buf;
	uint64_t addr = 0;
	uint32_t key = 0, len;
	size_t left = n;
	ssize_t ret = 0;

	if (rs_state(rs) != RS_CONNECTED)
		return -ENOTCONN;
	if (n > SSIZE_MAX)
		return -EINVAL;
	pthread_mutex_lock(&rs->wr_lock);
	if (rs->iomap)
		ret = iomap_announce(rs);
	shard_run(rs->shard, false);
	while (left && !ret) {
		len = target(rs, (uint64_t)offset, &addr, &key);
		if (!len)
			break;
		len = left < len ? (uint32_t)left : len;
		ret = send_direct(rs, from, &len, addr, key, flags);
		from += len;
		offset += len;
		left -= len;
	}
	pthread_mutex_unlock(&rs->wr_lock);
	return left == n && ret ? ret : (ssize_t)(n - left);
}
