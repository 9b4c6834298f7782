/* SPDX-License-Identifier: BSD-2-Clause */
/* Who may access the memory of whom (direct.c) over a link. Nobody is given a descriptor of
 * our memory: the peer opens /proc/PID/mem itself, and the kernel decides. What we give is the
 * table of our keys, to a peer that has proved that it can read our memory, is in the same pid
 * and user namespace, and of which the application has accepted something. And memory is
 * accessed only where both sides have given theirs. doc/security.md has the reasons.
 *
 * Messages on the link's socket, after the greeting. Each side offers for itself, when its
 * application has accepted something of the other, and answers then:
 *
 *	target		PROVE	at = a page (gate.h) with the peer's challenge and a fresh word
 *	initiator	PROOF	word = what it has read there; 0: it cannot
 *	target		KEYS	at = the page; with the table's descriptor
 *
 * The challenge is the initiator's, drawn for this link and sent with its greeting. Found in
 * the memory of the process that it takes for the target, it shows that the memory is the
 * target's, or that of a process which the target had a hand in.
 *
 * ANYRDMA_DIRECT=on on both sides: a peer that cannot give the proof gets KEYS all the same, with
 * a descriptor of the memory.
 *
 * All runs in the loop thread, but grant_accepted(). */
#ifndef ANYRDMA_SHM_GRANT_H
#define ANYRDMA_SHM_GRANT_H

#include "base/loop.h"
#include "shm/memid.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct link;

enum grant_type { GRANT_PROVE = 1, GRANT_PROOF, GRANT_KEYS };

struct grant_msg {
	uint32_t type;	 /* enum grant_type */
	uint32_t table;	 /* KEYS: SHARE_VERSION */
	uint64_t at;	 /* PROVE, KEYS: address of the struct memid_page */
	uint64_t word;	 /* PROOF: what was read */
};

/* What a side says of itself in its greeting. */
struct grant_hello {
	uint64_t challenge; /* 0: it does not access the memory of others */
	uint32_t takes_memory, pad; /* it takes a descriptor of memory: ANYRDMA_DIRECT=on */
};

/* Our memory for the peer. */
enum grant_target {
	GRANT_WAITS,   /* the application has accepted nothing of it yet */
	GRANT_ASKED,   /* PROVE was sent */
	GRANT_GIVEN,   /* KEYS was sent */
	GRANT_REFUSED, /* it is not to have them */
};

/* The peer's memory for us. */
enum grant_initiator {
	GRANT_NONE,   /* nothing has come */
	GRANT_HELD,   /* PROVE has come, and is answered when something is accepted */
	GRANT_PROVED, /* PROOF was sent, and memory is open */
	GRANT_CANNOT, /* PROOF was sent: there is none */
	GRANT_ENDED,  /* KEYS has come, or will not */
};

struct grant {
	struct grant_hello ours, theirs;
	enum grant_target target;
	enum grant_initiator initiator;
	struct memid_page *page; /* while ASKED or GIVEN */
	uint64_t word;		/* ASKED: what page->word is */
	int memory;  /* PROVED: the peer's; else -1 */
	uint64_t at; /* HELD, PROVED: where its page is */
	_Atomic bool accepted;
	struct loop_work work;
};

/* Draws the challenge of a new link. */
void grant_hello(struct grant_hello *h);
/* Of a link that is not started yet. */
void grant_init(struct link *l, const struct grant_hello *ours,
		const struct grant_hello *theirs);
void grant_fini(struct link *l);

/* The application has accepted something of the peer: a connection, or a QP in RTR names it.
 * Any thread, any lock but the loop's. */
void grant_accepted(struct link *l);

/* The socket is readable. 0, -EAGAIN; -ECONNRESET: the peer has ended; -EPROTO: it breaks the
 * rules. */
int grant_receive(struct link *l);

#endif
