/* SPDX-License-Identifier: BSD-2-Clause */
/* A TCP connection whose bytes may move to an rsocket.
 *
 * The socket stays the kernel's and is what the application's descriptor names. When both ends
 * run this library they make an rsocket beside it (move.h), and each direction of the stream goes
 * from TCP to the rsocket at a position of the stream that its sender names: the rsocket's first
 * eight bytes. Both directions come back to TCP (giveback) when the process forks, executes a
 * program, passes the descriptor on, or does what only the kernel can; the connection is then
 * what it was before, and no memory of this process knows of any byte of it.
 *
 * Locks, outer first: tx_lock and rx_lock (each alone, or in this order), lock, and the one of
 * ep.h. None is held while waiting for the peer. */
#ifndef ANYRDMA_PRELOAD_CONN_H
#define ANYRDMA_PRELOAD_CONN_H

#include "preload/file.h"

#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct kept;
struct rail;
struct reg;
struct share;

enum conn_rx {
	RX_TCP,	 /* the stream's next byte is TCP's */
	RX_BOTH, /* the peer may go to the rsocket; where, its first bytes say */
	RX_RS,	 /* all of TCP has been read, the next byte is the rsocket's */
	RX_HELD, /* coming back to TCP */
	RX_KEPT, /* has come back: TCP to its end, then c->kept; for good */
};

enum conn_tx {
	TX_TCP,
	TX_RS,
	TX_HELD, /* coming back: what the peer has not read goes to TCP first */
};

struct conn {
	struct file file;
	pthread_mutex_t tx_lock; /* one write at a time; tx; out, out_used */
	pthread_mutex_t rx_lock; /* one read at a time; rx; head, head_got, rx_count */
	pthread_mutex_t lock;	 /* rail, regs, offer, and who may begin a move */
	_Atomic(enum conn_rx) rx;
	_Atomic(enum conn_tx) tx;
	atomic_int plain_rx,
		plain_tx;   /* threads in calls of the kernel that know TCP alone */
	atomic_bool offer;  /* the rsocket is there; a reader has not agreed yet */
	atomic_bool tx_may; /* the peer's reader has agreed */
	atomic_bool pinned; /* stays on TCP for good */
	atomic_bool lost; /* of a forked child whose parent kept it: answers ECONNRESET */
	atomic_bool nonblock;
	bool passive; /* from accept() */
	atomic_bool shut_rd, shut_wr;
	atomic_int rcvtimeo, sndtimeo; /* milliseconds, 0: none */
	atomic_uint calls;	       /* reads and writes on TCP since the last move */
	atomic_ulong bytes;
	atomic_uint ask_at;    /* calls after which the next attempt to move is due */
	atomic_int error;      /* errno that the next read gives, once */
	pthread_cond_t turned; /* with lock: rx or tx was held and is not any more */
	struct rail *rail;     /* of a move that has begun */
	struct reg *regs;      /* epoll instances that watch it */
	struct share *share;   /* processes that have the socket, or NULL: this one */
	struct kept *kept;     /* with RX_KEPT */
	uint8_t head[8];       /* the rsocket's first bytes: TCP's length */
	unsigned head_got;
	uint64_t rx_count, tx_count; /* bytes of the stream through this rsocket */
};

#define conn_of(f) ((struct conn *)(f))

struct file *conn_file_new(void);
void conn_file_reset(struct file *f);
void conn_file_end(struct file *f);

/* A connected socket of the kernel becomes one of ours, where that is wanted. */
void conn_adopt(int fd, bool passive, bool nonblock);

static inline struct conn *conn_get(int fd)
{
	return conn_of(file_get_kind(fd, FILE_CONN));
}

static inline void conn_put(struct conn *c)
{
	file_put(&c->file);
}

/* The application's read or write of a connection that has moved, of `count` pieces. Bytes,
 * or -errno. `fd` is the descriptor that was used; flags are MSG_*. */
ssize_t conn_recv(struct conn *c, int fd, const struct iovec *iov, int count, int flags);
ssize_t conn_send(struct conn *c, int fd, const struct iovec *iov, int count, int flags);

/* Whether reads and writes are, or may be, other than TCP's. */
static inline bool conn_reads_rs(struct conn *c)
{
	return atomic_load(&c->rx) != RX_TCP;
}

static inline bool conn_writes_rs(struct conn *c)
{
	return atomic_load(&c->tx) != TX_TCP || atomic_load(&c->tx_may);
}

/* Around a call that knows TCP alone. False: the connection has moved, do not make it. */
bool conn_plain_rx_begin(struct conn *c);
void conn_plain_rx_end(struct conn *c);
bool conn_plain_tx_begin(struct conn *c);
void conn_plain_tx_end(struct conn *c);

/* After a read or write on TCP: may begin a move. */
void conn_count(struct conn *c, int fd, ssize_t bytes);

/* A reader or one who waits agrees to the move, unless a thread waits for TCP alone. */
void conn_agree(struct conn *c);

/* POLLIN and so on that hold for the rsocket's half, given what it reports. Finds out whether
 * an end is TCP's: the caller asks the kernel again when *changed. */
short conn_rs_ready(struct conn *c, short revents, bool *changed);
short conn_tcp_wants(struct conn *c, short events);
short conn_rs_wants(struct conn *c, short events);

/* Waits for POLLIN or POLLOUT, ms as poll(). 0 or -errno (-EAGAIN: time is over). */
int conn_wait(struct conn *c, int fd, short events, int ms);

/* Bytes that can be read now, as FIONREAD has them. */
int conn_readable(struct conn *c, int fd);

/* rx or tx change, with their own lock held. */
void conn_set_rx(struct conn *c, enum conn_rx rx);
void conn_set_tx(struct conn *c, enum conn_tx tx);

int conn_shutdown(struct conn *c, int fd, int how);

/* The last descriptor is about to be closed. */
void conn_close(struct conn *c, int fd);

/* Reads what has come over the rsocket, sets rx to RX_TCP and gives 0 at its end. rx_lock is
 * held. */
ssize_t conn_read_rs_locked(struct conn *c, void *buf, size_t len, int flags);

/* Whether both position and first bytes say that the rsocket is next. rx_lock is held. */
bool conn_turn_locked(struct conn *c, int fd);

#endif
