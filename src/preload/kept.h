/* SPDX-License-Identifier: BSD-2-Clause */
/* The last bytes of a stream whose writer can write to TCP no more, when the connection goes back:
 * they follow TCP's last byte. In memory that parent and children share, as the bytes in the
 * kernel's buffer would be: who reads first has them. */
#ifndef ANYRDMA_PRELOAD_KEPT_H
#define ANYRDMA_PRELOAD_KEPT_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct kept;

/* A copy, after which reading gives this error (0: the end) once. NULL: no memory. */
struct kept *kept_create(const uint8_t *data, size_t len, int error);

/* This process has it no more. */
void kept_leave(struct kept *k);

/* Bytes, 0 at the end, or -errno. flags: MSG_PEEK. */
ssize_t kept_read(struct kept *k, const struct iovec *iov, int count, int flags);

size_t kept_len(struct kept *k);

#endif
