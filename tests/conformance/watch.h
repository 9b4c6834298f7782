/* SPDX-License-Identifier: BSD-2-Clause */
/* Reads memory that the device may be writing at the same time, as programs do that spin
 * on a byte. */
#ifndef WATCH_H
#define WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One byte, unseen by the thread sanitizer: nothing that it knows orders these. */
uint8_t watch_byte(const void *p);
void watch_set(void *p, uint8_t v);

/* A thread that spins on the last byte of len at p. It expects watch_value(n) in round n,
 * of which there are at most `rounds`, and counts the rounds in which another byte was
 * late. */
void watch_start(void *p, size_t len, unsigned rounds);
uint8_t watch_value(unsigned n);
/* Returns when the thread has seen round n. */
void watch_wait(unsigned n);
/* The end of the thread; returns the rounds that were bad. */
unsigned watch_end(void);

#endif
