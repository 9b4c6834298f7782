/* SPDX-License-Identifier: BSD-2-Clause */
/* A stream rsocket: its parts, its states, its end. */
#include "rsocket/rs.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const state_names[RS_STATES] = {
	[RS_NEW] = "NEW",
	[RS_LISTENING] = "LISTENING",
	[RS_CONNECTING] = "CONNECTING",
	[RS_CONNECTED] = "CONNECTED",
	[RS_FAILED] = "FAILED",
};

/* From (row) to (bit). */
static const unsigned may[RS_STATES] = {
	[RS_NEW] = 1 << RS_LISTENING | 1 << RS_CONNECTING | 1 << RS_CONNECTED,
	[RS_CONNECTING] = 1 << RS_CONNECTED | 1 << RS_FAILED,
};

void rs_set_state(struct rs *rs, enum rs_state to)
{
	enum rs_state from = rs_state(rs);

	if (!(may[from] >> to & 1))
		log_error("rsocket %d: from %s to %s", rs->obj.fd, state_names[from],
			  state_names[to]);
	log_debug("rsocket %d: %s", rs->obj.fd, state_names[to]);
	atomic_store_explicit(&rs->state, to, memory_order_release);
	watch_changed(&rs->watch);
}

void rs_end(struct rs *rs, unsigned bits, int err)
{
	int none = 0;

	if (err)
		atomic_compare_exchange_strong(&rs->err, &none, err);
	if ((atomic_fetch_or(&rs->ended, bits) & bits) != bits)
		watch_changed(&rs->watch);
}

struct rs *rs_create(int domain)
{
	struct rs *rs;

	if (posix_memalign((void **)&rs, CACHE_LINE, sizeof(*rs)))
		return NULL;
	memset(rs, 0, sizeof(*rs));
	rs->obj.kind = OBJ_STREAM;
	rs->obj.generation = state_generation();
	rs->obj.fd = -1;
	rs->domain = domain;
	watch_list_init(&rs->watch);
	pthread_mutex_init(&rs->rd_lock, NULL);
	pthread_mutex_init(&rs->wr_lock, NULL);
	pthread_mutex_init(&rs->credit_lock, NULL);
	pthread_mutex_init(&rs->lock, NULL);
	rs->spin_ns = rs_conf()->polling_us * 1000;
	rs->ready_end = &rs->ready;
	opts_init(&rs->opts);
	return rs;
}

/* The descriptor is a socket of the kernel's that is never connected: so the number is the
 * socket's own, and fstat(2) and SO_TYPE tell what the application expects. */
static int descriptor(int domain, int flags)
{
	int family = domain == AF_INET6 ? AF_INET6 : AF_INET;
	int fd = socket(family, SOCK_STREAM | (flags & SOCK_CLOEXEC), 0);

	if (fd < 0 && errno == EAFNOSUPPORT)
		fd = socket(AF_UNIX, SOCK_STREAM | (flags & SOCK_CLOEXEC), 0);
	return fd < 0 ? -errno : fd;
}

int rs_open(struct rs *rs, int flags)
{
	int fd = descriptor(rs->domain, flags), ret;

	if (fd < 0)
		return fd;
	rs->obj.fd = fd;
	atomic_store(&rs->obj.flags, flags & SOCK_NONBLOCK ? O_RDWR | O_NONBLOCK : O_RDWR);
	ret = table_add(&rs->obj);
	if (ret) {
		rs->obj.fd = -1;
		close(fd);
	}
	return ret;
}

int rs_new(int domain, int flags, struct rs **out)
{
	struct rdma_event_channel *ch = service_channel();
	struct rs *rs;
	int ret;

	if (!ch)
		return -errno;
	rs = rs_create(domain);
	if (!rs)
		return -ENOMEM;
	if (rdma_create_id(ch, &rs->id, rs, RDMA_PS_TCP)) {
		ret = -errno;
		rs->id = NULL;
	} else {
		ret = rs_open(rs, flags);
	}
	if (ret) {
		rs_destroy(rs);
		return ret;
	}
	*out = rs;
	return 0;
}

/* ---- what a connection needs ------------------------------------------------------- */

static uint32_t clamp(uint32_t v, uint32_t least, uint32_t most)
{
	return v < least ? least : v > most ? most : v;
}

static int qp_make(struct rs *rs)
{
	uint32_t each = rs->hub->iwarp ? 2 : 1;
	struct ibv_qp_init_attr a = {
		.qp_context = rs,
		.send_cq = rs->shard->cq,
		.recv_cq = rs->shard->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = (rs->sq + SEND_EXTRA) * each,
			 .max_recv_wr = rs->rq + RECV_EXTRA,
			 .max_send_sge = 2,
			 .max_recv_sge = 1,
			 .max_inline_data = rs->opts.inline_max },
	};

	if (a.cap.max_inline_data < PROTO_SGE_LEN)
		a.cap.max_inline_data = PROTO_SGE_LEN;
	if (rdma_create_qp(rs->id, rs->hub->pd, &a)) {
		a.cap.max_inline_data = PROTO_IOMAP_LEN;
		if (rdma_create_qp(rs->id, rs->hub->pd, &a))
			return -errno;
	}
	rs->qp = rs->id->qp;
	rs->inline_max = a.cap.max_inline_data < rs->opts.inline_max ?
				 a.cap.max_inline_data : rs->opts.inline_max;
	return 0;
}

/* The entries for the peer, the regions, receive buffers: one registration. Fresh pages,
 * so what the peer has never written to takes no memory. */
static int memory_make(struct rs *rs)
{
	uint32_t half = clamp(rs->opts.rcvbuf / 2, REGION_MIN, PROTO_VALUE_MAX);
	size_t ctl = sizeof(struct rs_ctl) + (size_t)rs->opts.iomaps * PROTO_IOMAP_LEN;
	size_t imm = rs->hub->iwarp ? (rs->rq + RECV_EXTRA) * sizeof(uint32_t) : 0;
	uint8_t *base;
	void *m;

	ctl = (ctl + imm + CACHE_LINE - 1) & ~(size_t)(CACHE_LINE - 1);
	rs->ctl_len = ctl + PROTO_SGES * (size_t)half;
	m = mmap(NULL, rs->ctl_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	if (m == MAP_FAILED)
		return -errno;
	rs->ctl = m;
	base = (uint8_t *)m + ctl;
	rs->imm = (uint32_t *)(base - imm);
	rs->mr = ibv_reg_mr(rs->hub->pd, m, rs->ctl_len,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!rs->mr)
		return -errno;
	for (int i = 0; i < PROTO_SGES; i++)
		rs->rx.reg[i] = (struct region){ base + (size_t)i * half, half };
	rs->rx.announced = 1; /* by the private data */
	rs->rx.sge = 1;
	return 0;
}

static uint32_t pow2_from(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

static int rings_make(struct rs *rs)
{
	rs->rx.mask = pow2_from(rs->rq + 1) - 1;
	rs->rx.rec = calloc(rs->rx.mask + 1, sizeof(*rs->rx.rec));
	rs->tx.mask = pow2_from(rs->sq) - 1;
	rs->tx.pos = calloc(rs->tx.mask + 1, sizeof(*rs->tx.pos));
	return rs->rx.rec && rs->tx.pos ? 0 : -ENOMEM;
}

int rs_prepare(struct rs *rs)
{
	uint32_t most;
	int ret = hub_get(rs->id->verbs, &rs->hub);

	if (ret)
		return ret;
	most = (uint32_t)rs->hub->attr.max_qp_wr;
	most = most > 65534 ? 65534 : most;
	most = rs->hub->iwarp ? most / 2 : most;
	rs->sq = clamp(rs->opts.sq, 16, most) - SEND_EXTRA;
	rs->rq = clamp(rs->opts.rq, 16, most) - RECV_EXTRA;
	rs->cqes = rs->sq + rs->rq + SEND_EXTRA + RECV_EXTRA;
	rs->cqes = rs->hub->iwarp ? 2 * rs->cqes : rs->cqes;
	ret = rings_make(rs);
	if (!ret)
		ret = shard_join(rs->hub, rs, rs->cqes);
	if (!ret)
		ret = qp_make(rs);
	if (!ret)
		ret = memory_make(rs);
	if (!ret)
		ret = opts_apply(rs);
	if (!ret)
		ret = post_receives(rs, rs->rq + RECV_EXTRA);
	return ret;
}

void rs_describe(struct rs *rs, uint8_t out[PROTO_CONN_LEN])
{
	const struct proto_conn c = {
		.big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__,
		.credits = (uint16_t)rs->rq,
		.iomaps = rs->opts.iomaps,
		.sgl = { (uintptr_t)rs->ctl, rs->mr->rkey, PROTO_SGES },
		.data = { (uintptr_t)rs->rx.reg[0].buf, rs->mr->rkey, rs->rx.reg[0].len },
	};

	proto_conn_put(out, &c);
}

void rs_take_peer(struct rs *rs, const struct proto_conn *c)
{
	rs->swap = c->big_endian != (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
	rs->peer_sgl = c->sgl;
	rs->peer_iomaps = c->iomaps;
	rs->rx.sge = 1 % c->sgl.length;
	rs->tx.addr = c->data.addr;
	rs->tx.key = c->data.key;
	atomic_store(&rs->tx.len, c->data.length);
	atomic_store(&rs->tx.limit, c->credits);
}

/* ---- completions ------------------------------------------------------------------- */

/* The peer has written an entry: it is copied, and may be written again once the bytes
 * that it asks for have been sent. */
static void entry_take(struct rs *rs)
{
	uint32_t n = atomic_load_explicit(&rs->tx.announced, memory_order_relaxed);
	/* The first entry stands for the buffer of the private data. */
	uint8_t *at = rs->ctl->sgl[(n + 1) % PROTO_SGES];
	_Atomic uint32_t *len = (_Atomic uint32_t *)(at + 12);

	if (!atomic_load_explicit(len, memory_order_acquire))
		return;
	rs->tx.sge[n % PROTO_SGES] = proto_sge_get(at);
	atomic_store_explicit(len, 0, memory_order_relaxed);
	atomic_store_explicit(&rs->tx.announced, n + 1, memory_order_release);
}

static void data_come(struct rs *rs, uint32_t bytes)
{
	struct rs_rx *rx = &rs->rx;
	uint32_t tail = atomic_load_explicit(&rx->tail, memory_order_relaxed);

	if (tail - atomic_load_explicit(&rx->head_seen, memory_order_acquire) > rx->mask) {
		log_info("rsocket %d: the peer sends more than it may", rs->obj.fd);
		rs_end(rs, RS_GONE | RS_BROKEN, ECONNRESET);
		return;
	}
	rx->rec[tail & rx->mask] = bytes;
	atomic_store_explicit(&rx->tail, tail + 1, memory_order_release);
}

static void ctrl_come(struct rs *rs, uint32_t what)
{
	if (what == PROTO_SHUTDOWN)
		rs_end(rs, RS_PEER_SHUT, 0);
	else if (what == PROTO_DISCONNECT)
		rs_end(rs, RS_PEER_SHUT | RS_GONE, 0);
}

static void message_come(struct rs *rs, uint32_t imm)
{
	uint32_t v = proto_imm_value(imm);

	switch (proto_imm_op(imm)) {
	case PROTO_DATA:
		data_come(rs, v);
		return;
	case PROTO_CREDIT:
		atomic_store_explicit(&rs->tx.limit, v & 0xffff, memory_order_release);
		entry_take(rs);
		break;
	case PROTO_CTRL:
		ctrl_come(rs, v);
		break;
	default:
		break;
	}
	/* The receives of data are posted with the credits for them. */
	pthread_mutex_lock(&rs->credit_lock);
	if (++rs->rx.unposted >= RECV_EXTRA / 2 && !(rs_ended(rs) & RS_GONE)) {
		post_receives(rs, rs->rx.unposted);
		rs->rx.unposted = 0;
	}
	pthread_mutex_unlock(&rs->credit_lock);
}

static void data_sent(struct rs *rs, uint32_t seq)
{
	uint32_t done = atomic_load_explicit(&rs->tx.done, memory_order_relaxed);

	done += (seq - done) & 0x3fffffff;
	atomic_store_explicit(&rs->tx.rd, rs->tx.pos[(done - 1) & rs->tx.mask],
			      memory_order_relaxed);
	atomic_store_explicit(&rs->tx.done, done, memory_order_release);
}

static void failed(struct rs *rs, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_WR_FLUSH_ERR) {
		rs_end(rs, RS_GONE, 0);
		return;
	}
	log_info("rsocket %d: %s", rs->obj.fd, ibv_wc_status_str(wc->status));
	rs_end(rs, RS_GONE | RS_BROKEN,
	       wc->status == IBV_WC_RETRY_EXC_ERR && rs->opts.keepalive ? ETIMEDOUT :
									  ECONNRESET);
}

void rs_complete(struct rs *rs, const struct ibv_wc *wc)
{
	uint32_t seq = (uint32_t)(wc->wr_id >> 34);
	enum wr_kind kind = (enum wr_kind)(wc->wr_id >> 32 & 3);

	if (rs->dg) {
		dgram_complete(rs, wc);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS)
		failed(rs, wc);
	switch (kind) {
	case WR_RECV:
		if (wc->status == IBV_WC_SUCCESS)
			message_come(rs, rs->hub->iwarp ? rs->imm[seq] :
							  be32toh(wc->imm_data));
		break;
	case WR_DATA:
		data_sent(rs, seq);
		break;
	case WR_CTRL:
		atomic_fetch_sub(&rs->tx.ctrl, 1);
		if (rs->rx.due)
			credit_give(rs);
		break;
	case WR_LOCAL:
		break;
	}
}

/* ---- the end ------------------------------------------------------------------------- */

bool rs_drained(struct rs *rs)
{
	return !atomic_load(&rs->tx.ctrl) || (rs_ended(rs) & RS_GONE);
}

/* Nothing more can be sent now, or nothing was to be. */
static bool drained_or_dead(struct rs *rs)
{
	return !atomic_load(&rs->tx.ctrl) || (rs_ended(rs) & RS_BROKEN);
}

/* How long a call waits for a peer that does not take what was sent. */
enum { SHUT_NS = 1000000000 };

static int say(struct rs *rs, enum proto_ctrl what, uint64_t until)
{
	int ret;

	do {
		ret = post_ctrl(rs, proto_imm(PROTO_CTRL, what));
		if (ret != -EAGAIN)
			return ret;
		ret = rs_wait(rs, rs_drained, until);
	} while (!ret);
	return ret;
}

int rs_shutdown(struct rs *rs, int how)
{
	unsigned ended = rs_ended(rs);

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	if (rs->dg || (rs_state(rs) == RS_LISTENING && how != SHUT_WR)) {
		rs_end(rs, RS_RD_SHUT, 0);
		return 0;
	}
	if (rs_state(rs) != RS_CONNECTED)
		return -ENOTCONN;
	if (how != SHUT_RD && !(ended & (RS_WR_SHUT | RS_GONE))) {
		rs_end(rs, RS_WR_SHUT, 0);
		pthread_mutex_lock(&rs->wr_lock);
		say(rs, PROTO_SHUTDOWN, now_ns() + SHUT_NS);
		pthread_mutex_unlock(&rs->wr_lock);
		rs_wait(rs, drained_or_dead, now_ns() + SHUT_NS);
	}
	if (how != SHUT_WR)
		rs_end(rs, RS_RD_SHUT, 0);
	return 0;
}

/* The peer hears of the end; how long that may take is SO_LINGER's. */
static void say_goodbye(struct rs *rs)
{
	const struct linger *l = &rs->opts.linger;
	uint64_t until = now_ns() + SHUT_NS;

	if (l->l_onoff && l->l_linger > 0)
		until = now_ns() + (uint64_t)l->l_linger * 1000000000;
	if (l->l_onoff && !l->l_linger)
		return;
	if (!say(rs, PROTO_DISCONNECT, until))
		rs_wait(rs, drained_or_dead, until);
}

void rs_finish(struct obj *o)
{
	struct rs *rs = (struct rs *)o;
	bool wait;

	if (obj_is_dead(o)) /* what it was made of belongs to the parent */
		return;
	watch_drop(&rs->watch); /* epoll's: all other watchers were users */
	if (rs_state(rs) == RS_LISTENING)
		listen_end(rs);
	/* The port is free when rclose() returns. */
	wait = rs_state(rs) != RS_CONNECTED;
	service_destroy(rs, wait);
}

int rs_close(struct rs *rs)
{
	if (obj_is_dead(&rs->obj))
		return table_remove(&rs->obj, rs_finish) ? 0 : -EBADF;
	if (atomic_fetch_or(&rs->ended, RS_CLOSED) & RS_CLOSED)
		return -EBADF;
	watch_changed(&rs->watch);
	if (!rs->dg && rs_state(rs) == RS_CONNECTED && !(rs_ended(rs) & RS_GONE)) {
		pthread_mutex_lock(&rs->wr_lock);
		say_goodbye(rs);
		pthread_mutex_unlock(&rs->wr_lock);
	}
	table_remove(&rs->obj, rs_finish);
	return 0;
}

void rs_destroy(struct rs *rs)
{
	if (rs->dg)
		dgram_destroy(rs);
	if (rs->qp) {
		rdma_disconnect(rs->id);
		rdma_destroy_qp(rs->id);
	}
	if (rs->shard)
		shard_leave(rs, rs->cqes);
	send_free(rs);
	iomap_free(rs);
	if (rs->mr)
		ibv_dereg_mr(rs->mr);
	if (rs->id)
		rdma_destroy_id(rs->id);
	if (rs->ctl)
		munmap(rs->ctl, rs->ctl_len);
	free(rs->rx.rec);
	free(rs->tx.pos);
	free(rs->opts.route);
	pthread_mutex_destroy(&rs->rd_lock);
	pthread_mutex_destroy(&rs->wr_lock);
	pthread_mutex_destroy(&rs->credit_lock);
	pthread_mutex_destroy(&rs->lock);
	pthread_mutex_destroy(&rs->watch.lock);
	free(rs);
}
