/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors that have whoever uses or closes them wait, for as long as another process
 * likes. */
#ifndef ANYRDMA_TESTS_BLOCKING_H
#define ANYRDMA_TESTS_BLOCKING_H

enum blocking_kind {
	BLOCKING_FILE,	 /* of a file system in user space: close, fstat, fstatfs wait */
	BLOCKING_LINGER, /* a TCP connection with unsent data: who closes it last waits */
	BLOCKING_FIFO,	 /* on disk and full: who writes waits */
	BLOCKING_PIPE,	 /* full */
};

/* A new one. -1: there is no such thing here, or not for us. Files are those of a daemon that
 * ends when this process or its parent does. */
int blocking_new(enum blocking_kind kind);
/* All of them let go of those who wait. */
void blocking_end(void);

#endif
