/* SPDX-License-Identifier: BSD-2-Clause */
/* Which process of a link gets access to the memory of the other (direct.c). A process
 * does not pass a descriptor of its memory: the peer opens /proc/PID/mem itself, and the
 * kernel decides. What a process, the *target*, passes is the table of its keys. The
 * peer, the *initiator*, gets the table if it has proved that it can read the target's
 * memory, is in the same pid and user namespace, and the target's application has
 * accepted something of it. Memory is accessed only if each side has got the other's
 * table. doc/security.md has the reasons.
 *
 * Messages on the link's socket, after the greeting. Each side is target and initiator.
 * It sends PROVE, and replies to PROVE, only after its application has accepted
 * something:
 *
 *	target		PROVE	at = a page (memid.h) with the initiator's challenge and a
 *				random word
 *	initiator	PROOF	word = the word that it has read there; 0: it cannot
 *	target		KEYS	at = the page; with the descriptor of the table
 *
 * The initiator draws the challenge for this link and sends it with its greeting. If it
 * finds the challenge in the memory of the process that it takes for the target, then the
 * memory is the target's, or that of a process which the target could write to.
 *
 * With ANYRDMA_DIRECT=on on both sides an initiator that cannot give the proof gets KEYS
 * all the same, with a descriptor of the target's memory.
 *
 * All functions but grant_accepted() run in the loop thread. */
#ifndef ANYRDMA_SHM_GRANT_H
#define ANYRDMA_SHM_GRANT_H

#include "base/loop.h"
#include "shm/memid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct link;

enum grant_type { GRANT_PROVE = 1, GRANT_PROOF, GRANT_KEYS };

struct grant_msg {
	uint32_t type;	/* enum grant_type */
	uint32_t table; /* KEYS: SHARE_VERSION */
	uint64_t at;	/* PROVE, KEYS: address of the target's struct memid_page */
	uint64_t word;	/* PROOF: memid_page.word as it was read */
};
_Static_assert(offsetof(struct grant_msg, type) == 0 &&
	       offsetof(struct grant_msg, table) == 4 &&
	       offsetof(struct grant_msg, at) == 8 &&
	       offsetof(struct grant_msg, word) == 16 && sizeof(struct grant_msg) == 24,
	       "doc/wire.md");

/* Part of the greeting. */
struct grant_hello {
	uint64_t challenge;	 /* 0: the sender does not access the memory of others */
	uint32_t accepts_memory; /* ANYRDMA_DIRECT=on: accepts a descriptor of memory */
	uint32_t pad;
};

/* This process as target. */
enum grant_target {
	GRANT_WAITS,	  /* the application has accepted nothing of the peer yet */
	GRANT_PROVE_SENT, /* PROVE was sent */
	GRANT_GIVEN,	  /* KEYS was sent */
	GRANT_REFUSED,	  /* the peer does not get the keys */
};

/* This process as initiator. */
enum grant_initiator {
	GRANT_NONE,	  /* no message has come */
	GRANT_PROVE_HELD, /* PROVE has come, and waits until something is accepted */
	GRANT_PROVED,	  /* PROOF was sent, and `memory` is open */
	GRANT_CANNOT,	  /* PROOF with word 0 was sent */
	GRANT_ENDED,	  /* KEYS has come, or will not come */
};

struct grant {
	struct grant_hello ours, theirs;
	enum grant_target target;
	enum grant_initiator initiator;
	struct memid_page *page; /* PROVE_SENT, GIVEN */
	uint64_t word;		 /* PROVE_SENT: the value of page->word */
	int memory;		 /* PROVED: the peer's memory; else -1 */
	uint64_t at;		 /* PROVE_HELD, PROVED: address of the peer's page */
	_Atomic bool accepted;	 /* grant_accepted() was called */
	struct loop_work work;
};

/* Draws the challenge of a new link. */
void grant_hello(struct grant_hello *h);
/* For a link that is not started yet. */
void grant_init(struct link *l, const struct grant_hello *ours,
		const struct grant_hello *theirs);
void grant_fini(struct link *l);

/* The application has accepted something of the peer: a connection, or a QP in RTR names
 * the peer. Any thread, with any lock but the loop's. */
void grant_accepted(struct link *l);

/* The socket is readable: receives one message. 0; -EAGAIN; -ECONNRESET: the peer has
 * ended; -EPROTO: the peer has broken the rules. */
int grant_receive(struct link *l);

#endif
