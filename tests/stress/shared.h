/* SPDX-License-Identifier: BSD-2-Clause */
/* What the sides tell each other beside the links: one piece of memory, mapped by
 * every process before it makes a verbs call. Atomics only, so that a side may be
 * killed at any instruction.
 *
 * Each field has one writer. A side's struct sh_end of a link is valid for the other
 * one while its phase names the generation that the other one is in; it is cleared
 * before the phase is set, and a side enters generation g+1 only when both are
 * DOWN in g, side 0 first. */
#ifndef ANYRDMA_STRESS_SHARED_H
#define ANYRDMA_STRESS_SHARED_H

#include "plan.h"

#include <stdatomic.h>

enum phase {
	PH_NEW,	  /* its memory is there */
	PH_READY, /* its QP, if raw; else it waits for a request */
	PH_RUN,
	PH_DONE,  /* everything sent and received, as planned */
	PH_QUIET, /* its QP is gone: nothing of it moves any more */
	PH_DOWN,
};

enum trouble {
	TR_NONE,
	TR_SOON, /* errors may come from now on */
	TR_SEEN, /* ... have come: the other side may give up, too */
};

#define NOT_YET UINT32_MAX

struct sh_end {
	_Atomic uint64_t phase; /* generation << 8 | enum phase */

	/* written before PH_NEW, qpn and psn before PH_READY */
	uint64_t win;
	uint32_t win_key, stale_key;
	uint32_t qpn, psn;
	uint32_t rqpn; /* the QP that receives: another one with XRC */
	uint32_t with; /* life of the other side that the generation was begun with */

	/* as a sender: number of requests */
	_Atomic uint32_t posted, acked;
	_Atomic uint32_t last; /* NOT_YET, or the number of the final one */
	_Atomic uint64_t big;  /* number << 8 | (token + 1) */
	/* as a receiver */
	_Atomic uint32_t recvs;	   /* receives posted */
	_Atomic uint32_t received; /* messages taken */
	_Atomic uint32_t verified; /* requests of the peer that are checked */
	_Atomic uint32_t trouble;

	/* Its window: version << 32 | key, 0: closed; the key of the last one closed. */
	_Atomic uint64_t window;
	_Atomic uint32_t window_dead;
	_Atomic uint32_t window_left; /* as a sender: version that it will not use again */
};

enum { BITMAP = 1 << 23 }; /* values of a counter that are told apart */

/* A word that both sides change, as it is at one of them. */
struct sh_word {
	_Atomic uint64_t posted; /* fetch-adds, or swaps that may succeed */
	_Atomic uint64_t acked;
	_Atomic uint64_t seen[BITMAP / 64]; /* values that somebody got as the old one */
};

struct sh_side {
	_Atomic uint32_t life;	/* counts the processes */
	_Atomic uint32_t down;	/* about to be killed, or not yet up again */
	_Atomic uint32_t quiet; /* at the end: all links are down */
	/* written before down is cleared */
	uint8_t gid[16];
	uint16_t port;
	uint64_t fixed, words, slot[MAX_TOKENS], closed, alien;
	uint32_t xrc_srqn;
	uint32_t fixed_key, words_key, slot_key, closed_key, alien_key;
	struct sh_end end[MAX_LINKS];
	struct sh_word word[WORDS];
};

struct shared {
	struct opts o;
	_Atomic uint32_t stop;	 /* begin no new generation, end the running ones */
	_Atomic uint32_t over;	 /* side 0 will begin none */
	_Atomic uint32_t failed; /* a link + 1, or MAX_LINKS + 1 */
	_Atomic uint32_t token[MAX_TOKENS]; /* link << 1 | direction, + 1; 0: free */
	struct sh_side side[2];
	/* for the report */
	_Atomic uint64_t ops, bytes, gens, faults, kills, deaths, uncounted, lost;
};

extern struct shared *sh;

/* An anonymous file, mapped; *fd for the other processes. */
struct shared *shared_make(int *fd);
struct shared *shared_map(int fd);

static inline uint64_t phase_of(uint32_t gen, enum phase p)
{
	return (uint64_t)gen << 8 | p;
}

/* A token for (link, dir), or -1. */
int token_take(unsigned link, int dir);
/* All that (link, dir) holds. */
void token_drop(unsigned link, int dir);

/* Value v was returned for the word. False: for the second time. */
bool word_seen(struct sh_word *w, uint64_t v);
void word_clear(struct sh_word *w);

#endif
