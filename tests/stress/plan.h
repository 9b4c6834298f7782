/* SPDX-License-Identifier: BSD-2-Clause */
/* What is going to happen, as a function of the seed alone: both sides of a link
 * know every request of the other one before it is sent. A *link* is a pair of
 * QPs; it lives through *generations*, each with QPs of its own (or reset ones),
 * a configuration and an ending. A *direction* is named by the side that sends. */
#ifndef ANYRDMA_STRESS_PLAN_H
#define ANYRDMA_STRESS_PLAN_H

#include "pattern.h"

#include <infiniband/verbs.h>

enum {
	MAX_LINKS = 512,
	MAX_PIECES = 8, /* SGEs of a work request */
	MAX_WR = 128,
	MAX_TOKENS = 4,
	MAX_CQS = 8,
	MAX_SRQS = 4,
	CELL = 4096,
	MTU_MAX = 4096,
	UD_TELLS = 8, /* bytes by which a datagram without immediate data is known */
	FAA_WORDS = 4,
	CAS_WORDS = 2,
	WORDS = FAA_WORDS + CAS_WORDS,
};

/* Fixed for a run; the same in every process. */
struct opts {
	uint64_t seed;
	unsigned seconds, links, threads, procs, stall;
	unsigned cqs, srqs, tokens;
	uint32_t max_size;  /* of a message */
	uint32_t arena;	    /* bytes of each buffer of an endpoint */
	uint32_t small;	    /* longer messages need a token */
	uint32_t srq_buf;   /* bytes of a receive of an SRQ */
	uint32_t budget;    /* bytes a direction may send for each request */
	uint32_t datagram;  /* the longest one, bytes: the port's MTU is not smaller */
	uint32_t skip_kinds, skip_faults, skip_kills; /* bits of the enums below */
	bool cm, raw, rc, uc, ud, xrc, clean_only, ex, pauses;
	unsigned mw;
	unsigned kill_ms;   /* mean time between kills of a process; 0: none */
	char addr[64];
};

enum kind {
	OP_SEND,
	OP_SEND_IMM,
	OP_WRITE,
	OP_WRITE_IMM,
	OP_ATOMIC_WRITE,
	OP_SEND_INV,  /* takes the window from itself, if there is one */
	OP_BIND,      /* opens a window for the peer, if none is open */
	OP_UNBIND,    /* closes it, if the peer does not use it any more */
	OP_READ,      /* of memory that never changes */
	OP_READ_BACK, /* of what an earlier write of the QP has written */
	OP_FAA,	      /* a counter that all links share */
	OP_CAS,	      /* a word of this direction alone */
	OP_CAS_SHARED,
	OP_CELL_READ, /* ... and the write behind it may not overtake it: fences */
	OP_CELL_WRITE,
	OP_RANDOM,    /* those above are drawn */
	OP_FINAL = OP_RANDOM, /* the last of a generation that ends in peace */
	OP_MARKER,    /* posted in the error state: comes back last */
	OP_KINDS,
};

struct kind_info {
	const char *name;
	unsigned weight;
	enum ibv_wr_opcode wr;
	enum ibv_wc_opcode wc;
	bool consumes; /* takes a receive */
	bool ring;     /* writes to the peer's ring, or to a slot if large */
	bool local;    /* the peer does not hear of it */
	bool uc;       /* unreliable QPs have it, too */
	bool remote;   /* names memory of the peer */
	bool reads;    /* brings data back */
	bool atomic;
};
extern const struct kind_info kind_info[OP_KINDS];

/* A request that must fail, and how. */
enum fault {
	F_NONE,
	F_RKEY,	   /* a key that does not exist */
	F_STALE,   /* the key of the generation before */
	F_BEYOND,  /* one byte too far */
	F_BEFORE,  /* one byte too early */
	F_PD,	   /* memory of another protection domain */
	F_RIGHTS,  /* memory without remote rights */
	F_ALIGN,   /* an atomic across words */
	F_LKEY,	   /* local: no such key, out of bounds, other PD */
	F_LBEYOND,
	F_LPD,
	F_SMALL,   /* the receive is one byte too small */
	F_RLKEY,   /* the receive has a bad key */
	F_RNR,	   /* there is no receive, and no patience */
	F_LONG,	   /* UD: longer than the MTU of the port */
	FAULTS,
};

struct fault_info {
	const char *name;
	enum ibv_wc_status requester;
	int responder; /* status of the receive it hits, or -1 */
};
extern const struct fault_info fault_info[FAULTS];

/* What a side may do to its own end in the middle of everything. */
enum kill {
	K_ERR,	      /* ibv_modify_qp to ERR */
	K_RESET,
	K_DESTROY,
	K_DISCONNECT, /* rdma_disconnect */
	K_DEREG,      /* the memory the peer writes to */
	KILLS,
};
extern const char *const kill_name[KILLS];

enum ending { END_CLEAN, END_FAULT, END_KILL };

struct side_cfg {
	unsigned send_cq, recv_cq;
	int srq; /* index, or -1 */
	unsigned max_send_wr, max_recv_wr, send_sge, recv_sge, max_inline;
	bool sig_all;
	bool ex;       /* ibv_create_qp_ex and builders */
	unsigned mw;   /* type of its window, or 0 */
	unsigned rd_atomic;
	uint32_t psn;
	uint32_t ops;  /* requests to be sent */
	bool credit;   /* sends only what the peer has a receive for */
};

struct cfg {
	unsigned link;
	uint32_t gen;
	bool uc;	   /* unreliable: UC, or */
	bool ud;	   /* ... UD */
	bool xrc;	   /* two QPs on each side, and the SRQ behind all others */
	bool cm;
	bool pauses;	   /* through SQD and back, now and then */
	int active;	   /* side that connects */
	struct side_cfg s[2];
	unsigned rnr_timer, rnr_retry, timeout, retry;
	enum ending ending;
	int end_side;	   /* END_FAULT: who sends it; END_KILL: who does it */
	uint32_t end_at;   /* number of the request */
	enum fault fault;
	enum kill kill;
	bool keep_qp;	   /* RESET at the end, and used again (raw) */
	bool kept;	   /* the generation before did */
	bool quick;	   /* destroyed without going through ERR */
};

/* SRQs of a side: those of its PD, and one of its XRC domain. */
static inline unsigned srq_count(const struct opts *o)
{
	return o->srqs + o->xrc;
}

void cfg_draw(struct cfg *c, const struct opts *o, unsigned link, uint32_t gen);
void cfg_print(char *to, size_t len, const struct cfg *c, int side);

/* All requests of a generation, for people. */
void plan_show(const struct opts *o, unsigned link, uint32_t gen);

struct op {
	uint32_t seq;
	enum kind kind;
	enum fault fault;
	unsigned flags;	/* IBV_SEND_* */
	uint32_t len;
	unsigned pieces;
	uint64_t key;	/* of its contents, and of everything random about it */
	bool big;	/* needs a token */
	uint32_t recv;	/* number of receives taken before it */
	uint64_t at;	/* OP_WRITE*: place in the endless ring; OP_READ: offset;
			 * OP_READ_BACK: place of the write */
	uint64_t ref;	/* OP_READ_BACK, OP_CELL_READ: key of what is read */
	uint32_t imm;
	unsigned word;
	uint64_t compare, swap, old; /* OP_CAS */
};

enum { RECENT = 4 };

/* Walks the requests of one direction. */
struct plan {
	const struct opts *o;
	const struct cfg *c;
	int dir;
	struct rng r;
	uint32_t seq, recv;
	uint32_t since_signal, since_recv, ring_since_recv;
	uint64_t ring;	/* next place */
	struct {
		uint64_t at, key;
		uint32_t len;
	} recent[RECENT]; /* writes */
	unsigned nrecent;
	uint64_t cell_key;
	uint32_t cell_len;
	uint64_t cas;
	uint64_t credit;
	bool big_write; /* one that no receive has told the peer of */
};

void plan_init(struct plan *p, const struct opts *o, const struct cfg *c, int dir);
void plan_next(struct plan *p, struct op *op);
/* The request that ends the direction, instead of number seq. */
void plan_final(const struct plan *p, uint32_t seq, uint32_t recv, struct op *op);
/* Lengths of the pieces: their sum is len. */
void plan_split(uint64_t key, uint32_t len, unsigned n, uint32_t *out);
/* Bytes of the ring that a write at op->at takes. */
static inline uint64_t plan_ring_end(const struct op *op)
{
	return op->at + ((op->len + 15u) & ~7ull);
}

#endif
