/* SPDX-License-Identifier: BSD-2-Clause */
/* Raw QPs between two processes.
 *
 * far_start() and far_open() connect the case to a target, a peer (lab.h) whose memory it
 * writes and reads, over shared memory. They tell each other all they need through a page
 * that both have mapped (board). far_tell() and far_hear() do without that page. */
#ifndef ANYRDMA_TESTS_FAR_H
#define ANYRDMA_TESTS_FAR_H

#include "lab.h"
#include "side.h"

enum { FAR_PAIRS = 32 };

struct far_board {
	_Atomic unsigned arrived;
	uint32_t qpn[2][FAR_PAIRS];
	uint64_t addr[FAR_PAIRS]; /* of the target: by pair, side.b */
	uint32_t rkey[FAR_PAIRS];
	_Atomic uint64_t word[16]; /* the case's own */
};
extern struct far_board *board;
extern struct side far_side[FAR_PAIRS];
extern struct side_opt far_opt; /* srq, channel, cqe: of this process's sides */
extern const char *far_transport; /* shm, or tcp: before anything is started */
extern bool far_rtr;  /* the target stays in RTR */
extern bool far_bare; /* the target has no memory yet */
extern bool far_refused; /* one of them may not access the other's memory */

/* Sets the environment variables that both processes need; far_start() does it. The
 * library reads them when it is first used. */
void far_env(void);
/* Skips the case where process_vm_readv() of the peer's memory is not allowed. */
void far_need_process_vm(const struct peer *p);
/* Forks the target, which runs fn. To be called before the library is used. */
struct peer far_start(void (*fn)(struct peer *me, void *arg), void *arg);
/* Connects n pairs of sides, far_side[0] to [n-1]. Both processes call it: the case with
 * who 0, the target with who 1. They have access to each other's memory then, unless
 * ANYRDMA_DIRECT is off. */
void far_open(int who, unsigned n);
/* Returns when both processes have called it. */
void far_meet(void);
/* Posts a write or read of len bytes between far_side[i].b + off and the same place
 * at the target. */
void far_post(unsigned i, int opcode, uint64_t wr_id, size_t off, size_t len);
/* ... and waits for its completion with this status. */
#define far_do(i, opcode, off, len, status)                                      \
	do {                                                                     \
		far_post(i, opcode, 77, off, len);                               \
		conf_wc_is(far_side[i].cq, 77, status);                          \
	} while (0)
/* What a side must know of a side in another process: told by one process, heard by the
 * other. */
struct far_other {
	uint32_t qpn, psn;
	struct remote mem;
};
void far_tell(struct peer *p, const struct side *s);
struct far_other far_hear(struct peer *p);
/* Writes len bytes to o->mem and reads them back. s is connected to o; both ends have
 * their stream after this. */
void far_works(struct side *s, const struct far_other *o, size_t len, uint32_t seed);

/* At the target: a window over the first 4096 bytes of far_side[0].b, for writes; its key
 * is board->rkey[0]. */
struct far_window {
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};
struct far_window far_window_bind(void);
void far_window_free(struct far_window *w);
/* A target that does nothing until far_end(); and its end. */
void far_idle(struct peer *me, void *arg);
void far_end(struct peer *t);

/* From now on process_vm_readv() and _writev() fail with this errno, in this process. */
void far_forbid_process_vm(int with);
/* The next process_vm_*() call of this process blocks until run() has returned, in the
 * thread that is returned here; calls after it fail with ENOSYS. */
pthread_t far_hold_process_vm(void (*run)(void));
/* Calls ibv_dereg_mr() in a thread. The second tells whether that has returned, or sleeps
 * because the peer is stopped in the middle of an access. Once in a case. */
pthread_t far_dereg(struct ibv_mr *mr);
bool far_dereg_stands(void);

#endif
