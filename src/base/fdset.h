/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors of our own. They are moved to 1024 and above, so that the
 * application's stay below FD_SETSIZE, and remembered, so that a forked child
 * can close them. Descriptors that the application sees (event channels,
 * completion channels, async fd) are not kept here. */
#ifndef ANYRDMA_BASE_FDSET_H
#define ANYRDMA_BASE_FDSET_H

#include <stdint.h>

/* Raises RLIMIT_NOFILE to the hard limit once (unless ANYRDMA_NOFILE=keep). */
void fdset_raise_limit(void);

/* Takes over fd: duplicates it to >= 1024 with FD_CLOEXEC, closes the low one,
 * remembers the result and returns it. When no high number is free the low one
 * is kept. fd < 0 is passed through (so that calls nest). */
int fdset_take(int fd);

/* ftruncate() that returns -EFBIG beyond RLIMIT_FSIZE, which counts for memfds, too: the
 * system call would kill the process by SIGXFSZ. 0 or -errno. */
int fdset_resize(int fd, uint64_t size);

/* Forgets fd without closing it: the caller has given it away. */
void fdset_forget(int fd);

/* Forgets and closes. */
void fdset_close(int fd);

/* In a forked child: closes everything remembered. */
void fdset_child(void);

/* Somebody has closed all of them: the numbers may be others' by now. */
void fdset_forget_all(void);

#endif
