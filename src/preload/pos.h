/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a TCP stream is, counted by the kernel from its first byte: so bytes that were read
 * or written by another process, or past this library, are counted, too. */
#ifndef ANYRDMA_PRELOAD_POS_H
#define ANYRDMA_PRELOAD_POS_H

#include <stdint.h>
#include <sys/ioctl.h>

/* Bytes written to the socket. 0 or -errno. */
int pos_written(int fd, uint64_t *pos);

/* Bytes read from the socket: at least, while more come; one more after the peer's FIN. */
int pos_read(int fd, uint64_t *pos);

#endif
