/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that block the thread that uses or closes them, until the process that made
 * them ends that. A peer may pass such a descriptor to the library. */
#ifndef ANYRDMA_TESTS_BLOCKING_H
#define ANYRDMA_TESTS_BLOCKING_H

enum blocking_kind {
	BLOCKING_FILE,	 /* of a file system in user space: close, fstat, fstatfs wait */
	BLOCKING_LINGER, /* a TCP connection with unsent data: who closes it last waits */
	BLOCKING_FIFO,	 /* on disk and full: who writes waits */
	BLOCKING_PIPE,	 /* full */
};

/* Makes one; -1: the kernel has no such thing, or does not allow it. Files belong to a
 * daemon that ends when this process or its parent does. */
int blocking_new(enum blocking_kind kind);
/* Wakes all who are blocked by one of them. */
void blocking_end(void);

#endif
