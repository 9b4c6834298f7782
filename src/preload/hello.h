/* SPDX-License-Identifier: BSD-2-Clause */
/* How the rsocket of a move is made: the passive end connects it to the active one's listener, and
 * sends the token that it was told over the unix socket. The service thread's. */
#ifndef ANYRDMA_PRELOAD_HELLO_H
#define ANYRDMA_PRELOAD_HELLO_H

#include "preload/move.h"

#include <poll.h>

/* Active: says where we listen. */
bool hello_ask(struct rail *r);

/* Passive: begins to connect. */
bool hello_connect(struct rail *r);

/* Passive: when it has been done, sends the token. False: it failed. */
bool hello_connected(struct rail *r);

/* What to wait for, and what to do then. expected: some rail has asked. A thread that sleeps in
 * rpoll() for long would be woken first by what comes for any rsocket of the process. */
nfds_t hello_gather(struct pollfd *pfd, nfds_t room, bool expected);
void hello_run(void);

void hello_child(void);

/* service.c: the rsocket with this token has come. */
void service_matched(const uint8_t token[16], int rsock);

#endif
