/* SPDX-License-Identifier: BSD-2-Clause */
/* CRC32C (RFC 3720 appendix B.4), for MPA (RFC 5044 section 4.4) and datagrams. */
#ifndef ANYRDMA_BASE_CRC32C_H
#define ANYRDMA_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#define CRC32C_INIT 0xffffffffu

/* Continues a CRC; begin with CRC32C_INIT. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/* The four bytes as they go on the wire. */
void crc32c_put(uint8_t out[4], uint32_t crc);

#endif
