/* SPDX-License-Identifier: BSD-2-Clause */
/* What goes on in a process while something in it stands: messages of other QPs, and
 * connections that are made, by GID and by the connection manager. Another process, the
 * servant, is the other side of all that. */
#ifndef ANYRDMA_TESTS_MEANWHILE_H
#define ANYRDMA_TESTS_MEANWHILE_H

#include "far.h"

/* The servant: answers until it is told something else, which is returned. s is the other
 * side of whom meanwhile_works() names; or NULL: no messages. */
char meanwhile_serve(struct peer *me, struct side *s);
/* A message each way on s, a write and a read (tables and rings), a raw QP, a connection
 * of the CM: all made, used and ended. Fails the case if one of them stands. */
void meanwhile_works(struct peer *servant, struct side *s);
/* Only the message each way. */
void meanwhile_message(struct peer *servant, struct side *s);

/* A servant that is a third process, with a QP that is connected to it. Started before the
 * library is used; joined when the device is open. */
struct third {
	struct peer peer;
	struct side s;
};
void third_start(struct third *t);
void third_join(struct third *t);
void third_works(struct third *t);
void third_end(struct third *t);

/* A thread that takes the completions of a side, `want` of them, and keeps them in order. It
 * polls, or sleeps on the side's channel between them. */
struct taker {
	struct side *s;
	bool sleeps;
	unsigned want;
	_Atomic unsigned n;
	struct ibv_wc wc[64];
	pthread_t thread;
};
void taker_start(struct taker *k, struct side *s, bool sleeps, unsigned want);
/* Waits until it has taken so many, or all. */
#define taker_has(k, count) WAIT_FOR(atomic_load(&(k)->n) >= (count))
#define taker_end(k)                                                             \
	do {                                                                     \
		conf_join((k)->thread);                                          \
		EQ(atomic_load(&(k)->n), (k)->want);                             \
	} while (0)
/* Its i-th is this one. */
#define taker_is(k, i, id, st)                                                   \
	do {                                                                     \
		EQ((k)->wc[i].wr_id, id);                                        \
		EQ((k)->wc[i].status, st);                                       \
	} while (0)

#endif
