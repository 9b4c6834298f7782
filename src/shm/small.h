/* SPDX-License-Identifier: BSD-2-Clause */
/* The common case: a small send of a reliable QP, with nothing beside it that would have
 * to be looked after. It does what rc/build.c and rc/responder.c do, in a fifth of the
 * instructions; whatever it does not know it leaves to them, untouched. */
#ifndef ANYRDMA_SHM_FAST_H
#define ANYRDMA_SHM_FAST_H

#include <stdbool.h>
#include <stdint.h>

struct stream;

/* Sends requests from sq.next on. True: all are sent. With the locks of the stream,
 * its QP and its link's sending; the QP is in RTS. */
bool small_send(struct stream *s);

/* Takes a record of `bytes`. False: nothing has happened. With the stream's lock; it is
 * open. */
bool small_receive(struct stream *s, const void *rec, uint32_t bytes);

/* rc_carrier.send_ack */
bool small_ack(struct stream *s);

#endif
