/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects of src/rsocket. It uses the public API of librdmacm and libibverbs alone,
 * so it runs on any device. Functions return 0 or -errno; api.c converts.
 *
 * Locks, outer first:
 *	rs->rd_lock, rs->wr_lock	one receiver, one sender at a time; held while bytes
 *					are copied and while the call waits
 *	shard->lock			the CQ: who polls it delivers what it finds
 *	rs->credit_lock			receive buffers and receives given to the peer
 *	rs->lock			state, queues of a listener
 *	rs->watch_lock			who waits for the socket
 *	epoll's, room's			innermost
 * Completions change atomics and rings with one producer, so that neither the sender nor
 * the receiver takes a lock that the other side of the socket needs. */
#ifndef ANYRDMA_RSOCKET_RS_H
#define ANYRDMA_RSOCKET_RS_H

#include "base/log.h"
#include "base/state.h"
#include "rsocket/proto.h"

#pragma GCC visibility push(default)
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct rs;
struct shard;

enum { CACHE_LINE = 64 };

/* ---- settings (conf.c) -------------------------------------------------------- */

struct rs_conf {
	uint32_t rmem, wmem;	/* bytes: SO_RCVBUF, SO_SNDBUF of a new socket */
	uint32_t sq, rq;	/* messages on the way, each direction */
	uint32_t inline_max;
	uint32_t iomaps;
	uint32_t polling_us;	/* how long a call polls before it sleeps */
};
const struct rs_conf *rs_conf(void);

/* ---- descriptors (table.c) ---------------------------------------------------- */

/* What a descriptor stands for. */
enum obj_kind { OBJ_STREAM, OBJ_DGRAM, OBJ_EPOLL };

struct obj {
	enum obj_kind kind;
	uint32_t generation;	/* base/state.h: of another one: dead after fork */
	int fd;
	_Atomic int flags;	/* O_NONBLOCK of the description */
};

/* Puts obj under obj->fd. 0 or -EMFILE. */
int table_add(struct obj *o);
/* The object, which stays until table_put(); NULL: not one of ours. An object that was
 * made before a fork is returned, too: see obj_is_dead(). */
struct obj *table_get(int fd);
void table_put(struct obj *o);
/* Takes o from the table: later gets give NULL. After the last put o's descriptor is
 * closed and `finish` is called. false: another thread has done it. The caller holds o. */
bool table_remove(struct obj *o, void (*finish)(struct obj *o));

static inline bool obj_is_dead(const struct obj *o)
{
	return state_is_old(o->generation);
}

static inline bool obj_nonblock(const struct obj *o, int msg_flags)
{
	return (msg_flags & MSG_DONTWAIT) ||
	       (atomic_load_explicit(&o->flags, memory_order_relaxed) & O_NONBLOCK);
}

/* ---- waiting (wait.c) --------------------------------------------------------- */

/* Somebody who wants to hear of a socket. notify is called with the socket's watch_lock
 * held, after something may have become ready. */
struct watch {
	struct watch *next, **at;
	void (*notify)(struct watch *w);
	/* The socket is closed, and w is not in its list any more. watch_lock is held. */
	void (*gone)(struct watch *w);
	struct watch_list *list;
};

struct watch_list {
	pthread_mutex_t lock;
	struct watch *first;
	_Atomic int n;
};

void watch_list_init(struct watch_list *l);
void watch_add(struct watch_list *l, struct watch *w);
void watch_del(struct watch *w);
/* The list's owner ends: takes all out and calls gone. */
void watch_drop(struct watch_list *l);
/* Tells all. The caller has changed what they look at, with a fence since. */
void watch_tell_(struct watch_list *l);

static inline void watch_tell(struct watch_list *l)
{
	if (atomic_load_explicit(&l->n, memory_order_relaxed))
		watch_tell_(l);
}

/* The same after a change that no fence follows. */
static inline void watch_changed(struct watch_list *l)
{
	atomic_thread_fence(memory_order_seq_cst);
	watch_tell(l);
}

/* A thread that sleeps. One of all that sleep also waits for the completion channels and
 * delivers for the rest. */
struct sleeper {
	struct sleeper *next, *prev;
	int fd;			/* eventfd of the thread */
	_Atomic bool told;
	_Atomic bool leads;
};

uint64_t now_ns(void);
/* 0 or -errno */
int sleeper_enter(struct sleeper *s);
void sleeper_leave(struct sleeper *s);
void sleeper_tell(struct sleeper *s);
/* Sleeps until told, a descriptor is ready, or `until` (ns of now_ns(), UINT64_MAX: no
 * end) has come. fds: entries of the caller from fds[SLEEPER_FDS] on, n of them. Returns
 * how many of these are ready; -EINTR. Arms all CQs before: look at the condition between
 * sleeper_arm() and this. */
enum { SLEEPER_FDS = 1 + 8 };
int sleeper_sleep(struct sleeper *s, struct pollfd *fds, unsigned n, uint64_t until);
void sleeper_arm(struct sleeper *s);

/* Waits until ready(rs, arg), or the time is up (-ETIMEDOUT; 0 ns: -EAGAIN at once). */
int rs_wait(struct rs *rs, bool (*ready)(struct rs *rs), uint64_t until);

/* ---- devices (hub.c) ------------------------------------------------------------ */

/* What completions are for: bits 32 and 33 of wr_id. */
enum wr_kind { WR_RECV, WR_DATA, WR_CTRL, WR_LOCAL };

/* A CQ that sockets share. lock guards poll and the table of sockets. */
struct shard {
	struct shard *next;
	struct hub *hub;
	struct ibv_cq *cq;
	pthread_mutex_t lock;
	_Atomic bool armed;
	uint32_t entries, used;	/* CQEs: there are, sockets may need. hub->lock */
	struct shard_slot {
		struct rs *rs;
		uint32_t gen;
	} *slot;
	uint32_t nslots, free_hint;
};

/* A device that sockets use. Never freed. */
struct hub {
	struct hub *next;
	struct ibv_context *verbs;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	pthread_mutex_t lock;
	struct shard *_Atomic shards;
	struct ibv_device_attr attr;
	bool iwarp;
};

/* Makes it if needed. 0 or -errno. */
int hub_get(struct ibv_context *verbs, struct hub **out);
struct hub *hub_first(void);
/* A place for a socket that needs so many CQEs: sets rs->shard and rs->wr_id. */
int shard_join(struct hub *h, struct rs *rs, uint32_t cqes);
void shard_leave(struct rs *rs, uint32_t cqes);
/* Polls and delivers. wait: also while another thread does. True: there was something. */
bool shard_run(struct shard *sh, bool wait);
/* Arms it, unless it is, and delivers what came before. */
void shard_arm(struct shard *sh);
/* Reads the hub's channel, delivers what it announces. */
void hub_events(struct hub *h);

/* ---- sockets -------------------------------------------------------------------- */

enum rs_state {
	RS_NEW,		/* no address; or bound: nothing was asked of the network */
	RS_LISTENING,
	RS_CONNECTING,	/* rconnect() has begun */
	RS_CONNECTED,
	RS_FAILED,	/* rconnect() has failed; there is no way back */
	RS_STATES,
};

/* What has ended. Bits are set and never cleared. */
enum {
	RS_PEER_SHUT = 1,   /* the peer will write nothing more */
	RS_RD_SHUT = 2,	    /* rshutdown(SHUT_RD) */
	RS_WR_SHUT = 4,	    /* rshutdown(SHUT_WR) */
	RS_GONE = 8,	    /* the connection: nothing can be sent */
	RS_CLOSED = 16,	    /* rclose() */
	RS_BROKEN = 32,	    /* RS_GONE, and not by the peer's will */
	RS_EOF = RS_PEER_SHUT | RS_RD_SHUT | RS_GONE | RS_CLOSED,
};

/* Memory that the peer writes into. */
struct region {
	uint8_t *buf;
	uint32_t len;
};

/* Receiving. Records of data that came: the shard's poller produces, the receiver
 * consumes. */
struct rs_rx {
	uint32_t *rec;		/* lengths; mask + 1 of them */
	uint32_t mask;
	uint32_t head, rec_off;	/* rd_lock */
	_Atomic uint32_t head_seen;
	_Alignas(CACHE_LINE) _Atomic uint32_t tail; /* shard->lock */
	_Alignas(CACHE_LINE)
	/* Regions that were announced, the one that is read first. Written with rd_lock
	 * and credit_lock held. */
	struct region reg[PROTO_SGES];
	uint32_t first, off;	/* rd_lock */
	_Atomic uint32_t announced;
	uint32_t sge;		/* the peer's entry that is next; credit_lock, as the rest */
	_Atomic uint32_t granted_at; /* head when credits were last given */
	uint32_t unposted;	/* receives of messages without data */
	uint32_t posted;	/* receives, ever: which buffer is next (iWARP) */
	_Atomic bool due;	/* credits could not be sent */
};

struct rs_tx {
	_Atomic uint32_t posted; /* work requests but control; wr_lock */
	_Atomic uint32_t direct; /* ... of which are no messages: riowrite()'s */
	uint32_t signalled;	/* ... up to the last one with a completion */
	uint32_t mark;		/* wr at that one */
	/* Where the peer wants the next bytes. wr_lock; len is looked at without. */
	uint64_t addr;
	uint32_t key;
	_Atomic uint32_t len;
	_Atomic uint32_t taken;	/* entries of sge, ever */
	/* Bytes to be sent, of which the peer's device has not got all. */
	uint8_t *buf;
	struct ibv_mr *mr;
	_Atomic uint32_t size;	/* a power of 2; 0: there is no buffer */
	_Atomic uint32_t wr;	/* position */
	uint32_t *pos;		/* position after message n, by n modulo a power of 2 */
	uint32_t mask;
	struct rs_tx_old {
		uint8_t *buf;
		_Atomic(struct ibv_mr *) mr; /* who waits looks, too */
		uint32_t until;
	} old;			/* the buffer before this one */
	/* Written by the shard's poller. */
	_Alignas(CACHE_LINE) _Atomic uint32_t done; /* messages that are complete */
	_Atomic uint32_t rd;	/* position that is free */
	_Atomic uint32_t limit;	/* low 16 bits: the message that must not be sent */
	struct proto_sge sge[PROTO_SGES]; /* announced by the peer, by number modulo 2 */
	_Atomic uint32_t announced;	  /* entries, ever */
	_Atomic int ctrl;	/* messages without data under way */
};

/* Entries that the peer writes. Part of the first registered memory. */
struct rs_ctl {
	uint8_t sgl[PROTO_SGES][PROTO_SGE_LEN];
	uint8_t iomap[][PROTO_IOMAP_LEN];
};

enum {
	CTRL_MAX = 4,	  /* messages without data at once */
	SEND_EXTRA = CTRL_MAX + 2, /* work requests of the send queue for them */
	RECV_EXTRA = 8,	  /* receives for those of the peer */
	REGION_MIN = 64,
	CHUNK_MAX = 64 * 1024,
};

struct rs_opts {
	uint32_t rcvbuf, sndbuf, sq, rq, inline_max, iomaps;
	int reuseaddr, oobinline, nodelay, v6only, tos, broadcast, keepcnt, keepintvl;
	_Atomic int keepalive, keepidle; /* read by the service thread, too */
	struct linger linger;
	uint64_t rcvtimeo, sndtimeo; /* ns; 0: none */
	void *route;
	size_t nroute;
};

struct rs {
	struct obj obj;
	int domain;
	_Atomic uint32_t state;	/* enum rs_state; set by rs_set_state() */
	_Atomic uint32_t ended;	/* RS_PEER_SHUT, ... */
	_Atomic int err;	/* SO_ERROR */
	struct hub *hub;
	struct shard *shard;
	uint64_t wr_id;		/* slot and generation */
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct watch_list watch;
	pthread_mutex_t rd_lock, wr_lock, credit_lock, lock;
	uint32_t sq, rq;	/* data messages under way, each direction */
	uint32_t inline_max, cqes;
	_Atomic uint32_t spin_ns;
	struct rs_opts opts;

	/* connection */
	struct rs_ctl *ctl;	/* followed by the regions */
	size_t ctl_len;
	struct ibv_mr *mr;
	uint32_t *imm;		/* iWARP: receive buffers, in ctl's memory */
	bool swap, passive;
	struct proto_sge peer_sgl;
	uint32_t peer_iomaps;
	struct rs_rx rx;
	struct rs_tx tx;
	struct iomap_table *iomap;
	struct dgram *dg;	/* OBJ_DGRAM */

	/* connecting */
	struct sockaddr_storage peer;
	unsigned tries;

	/* listening; lock */
	int backlog;
	_Atomic int nready;
	struct rs *ready, **ready_end, *next_ready;
	struct rs *listener;

	/* service.c */
	struct rs *svc_next;
	bool *svc_done;		/* set when it is destroyed */
	struct rs *keep_next;
	uint64_t keep_at;
};

static inline unsigned rs_ended(const struct rs *rs)
{
	return atomic_load_explicit(&rs->ended, memory_order_acquire);
}

static inline enum rs_state rs_state(const struct rs *rs)
{
	return atomic_load_explicit(&rs->state, memory_order_acquire);
}

/* ---- stream.c --------------------------------------------------------------------- */

/* Without an id and a descriptor. */
struct rs *rs_create(int domain);
/* Gives it a descriptor. flags: SOCK_NONBLOCK, SOCK_CLOEXEC. */
int rs_open(struct rs *rs, int flags);
/* rsocket() */
int rs_new(int domain, int flags, struct rs **out);
/* The one place that changes the state. */
void rs_set_state(struct rs *rs, enum rs_state to);
/* The connection is over: with `err`, unless that is 0; wakes all. */
void rs_end(struct rs *rs, unsigned bits, int err);
/* QP, memory, receives. rs->id has a device. 0 or -errno. */
int rs_prepare(struct rs *rs);
/* What the peer has said about itself. */
void rs_take_peer(struct rs *rs, const struct proto_conn *c);
void rs_describe(struct rs *rs, uint8_t out[PROTO_CONN_LEN]);
/* Everything that rs has; nobody knows it any more. Called by the service thread. */
void rs_destroy(struct rs *rs);
/* A completion. shard->lock is held. */
void rs_complete(struct rs *rs, const struct ibv_wc *wc);
/* Ends the descriptor's life: table_remove() with this. */
void rs_finish(struct obj *o);
int rs_shutdown(struct rs *rs, int how);
int rs_close(struct rs *rs);
/* All that was sent has arrived. */
bool rs_drained(struct rs *rs);

/* ---- post.c ------------------------------------------------------------------------ */

/* Writes the pieces to addr, if there are any, and tells the peer imm. 0 or -errno. */
int post_message(struct rs *rs, uint64_t wr_id, uint32_t imm, struct ibv_send_wr *write);
static inline uint64_t post_wr_id(const struct rs *rs, enum wr_kind kind, uint32_t seq)
{
	return rs->wr_id | (uint64_t)kind << 32 | (uint64_t)(seq & 0x3fffffff) << 34;
}
/* Posts n more receives. credit_lock is held, or the socket is not connected yet. */
int post_receives(struct rs *rs, uint32_t n);
/* A message without data; -EAGAIN: too many are under way. */
int post_ctrl(struct rs *rs, uint32_t imm);
/* A zero-length write, which the peer's application does not see. */
int post_probe(struct rs *rs);

/* ---- credit.c ---------------------------------------------------------------------- */

/* Gives the peer what it may have: receives, buffers. */
void credit_give(struct rs *rs);
/* The first region is read: it may be announced again. rd_lock is held. */
void credit_region_read(struct rs *rs);
static inline bool credit_wanted(struct rs *rs)
{
	return rs->rx.head - rs->rx.granted_at >= rs->rq / 2;
}

/* ---- send.c, recv.c ----------------------------------------------------------------- */

bool send_ready(struct rs *rs);
ssize_t rs_sendv(struct rs *rs, const struct iovec *iov, size_t n, int flags);
void send_free(struct rs *rs);
/* Writes up to *n bytes to the peer's memory, and sets *n to what it has taken. wr_lock is
 * held. */
int send_direct(struct rs *rs, const void *from, uint32_t *n, uint64_t addr, uint32_t key,
		int flags);
bool recv_ready(struct rs *rs);
/* Data has come and is not read. */
bool recv_pending(struct rs *rs);
ssize_t rs_recvv(struct rs *rs, const struct iovec *iov, size_t n, int flags);

/* ---- connect.c, listen.c -------------------------------------------------------------- */

int rs_bind(struct rs *rs, const struct sockaddr *addr, socklen_t len);
int rs_connect(struct rs *rs, const struct sockaddr *addr, socklen_t len);
void connect_event(struct rs *rs, enum rdma_cm_event_type type, int status,
		   const struct proto_conn *peer, int peer_err);
int rs_listen(struct rs *rs, int backlog);
/* The socket that was accepted, with a descriptor. */
int rs_accept(struct rs *rs, int flags, struct rs **out);
bool accept_ready(struct rs *rs);
void listen_request(struct rs *listener, struct rdma_cm_id *id,
		    const struct rdma_conn_param *param, const struct proto_conn *peer,
		    int peer_err);
/* The sockets that wait to be accepted are closed. */
void listen_end(struct rs *rs);

/* ---- service.c ------------------------------------------------------------------------ */

/* The channel of all ids; starts the thread that reads it. NULL and errno. */
struct rdma_event_channel *service_channel(void);
/* Has the thread destroy rs. wait: until it is gone. */
void service_destroy(struct rs *rs, bool wait);
/* (Un)watches a connected socket with SO_KEEPALIVE. */
void service_keepalive(struct rs *rs);

/* ---- options.c, name.c ------------------------------------------------------------------ */

void opts_init(struct rs_opts *o);
int rs_setsockopt(struct rs *rs, int level, int name, const void *val, socklen_t len);
int rs_getsockopt(struct rs *rs, int level, int name, void *val, socklen_t *len);
/* What was set before there was an id with a device. */
int opts_apply(struct rs *rs);
void name_copy(const struct sockaddr *from, struct sockaddr *to, socklen_t *len);
int rs_name(struct rs *rs, bool peer, struct sockaddr *addr, socklen_t *len);

/* ---- poll.c ------------------------------------------------------------------------------ */

/* POLLIN, ... that hold now, without a look at the CQ. */
short rs_events(struct rs *rs);
/* until: of now_ns(), 0: do not wait, UINT64_MAX: no end. The count, or -errno. */
int rs_poll(struct pollfd *fds, nfds_t n, uint64_t until);
/* Reading, writing, exceptions. */
int rs_select(int nfds, fd_set *const set[3], uint64_t until);

/* ---- obj.c: what poll and epoll ask of any of our descriptors ------------------------------ */

short obj_events(struct obj *o);
struct watch_list *obj_watches(struct obj *o);
/* Where its completions come; NULL: nowhere. */
struct shard *obj_shard(struct obj *o);

/* ---- iomap.c ------------------------------------------------------------------------------ */

off_t rs_iomap(struct rs *rs, void *buf, size_t len, int prot, int flags, off_t offset);
int rs_iounmap(struct rs *rs, void *buf, size_t len);
ssize_t rs_iowrite(struct rs *rs, const void *buf, size_t n, off_t offset, int flags);
void iomap_free(struct rs *rs);
/* Announces what riomap() has queued. wr_lock is held. */
int iomap_announce(struct rs *rs);

/* ---- epoll.c -------------------------------------------------------------------------------- */

int ep_create(int flags);
int ep_ctl(struct obj *ep, int op, int fd, struct epoll_event *ev);
int ep_wait(struct obj *ep, struct epoll_event *ev, int most, uint64_t until);
int ep_close(struct obj *ep);
short ep_events(struct obj *ep);
struct watch_list *ep_watches(struct obj *ep);

/* ---- dgram.c -------------------------------------------------------------------------------- */

struct dgram_from {
	struct sockaddr_storage src;
	bool truncated;
};

int dgram_new(int domain, int flags, struct rs **out);
int dgram_connect(struct rs *rs, const struct sockaddr *addr, socklen_t len);
/* Without an address: to that of rconnect(). */
ssize_t dgram_sendv(struct rs *rs, struct iovec *v, size_t n, int flags,
		    const struct sockaddr *to, socklen_t tolen);
ssize_t dgram_recvv(struct rs *rs, const struct iovec *v, size_t n, int flags,
		    struct dgram_from *from);
int dgram_name(struct rs *rs, bool peer, struct sockaddr *addr, socklen_t *len);
/* Takes what has come over UDP and by the QP. */
void dgram_progress(struct rs *rs);
short dgram_events(struct rs *rs);
/* shard->lock is held. */
void dgram_complete(struct rs *rs, const struct ibv_wc *wc);
void dgram_destroy(struct rs *rs);

#endif
