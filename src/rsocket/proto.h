/* SPDX-License-Identifier: BSD-2-Clause */
/* What two stream rsockets tell each other: version 1 of the original's protocol. A
 * connection request and its reply carry struct proto_conn as private data; every
 * message after that is an RDMA write with immediate data, whose 32 bits are an
 * operation and a value. Pure functions of bytes. doc/wire.md has the layout. */
#ifndef ANYRDMA_RSOCKET_PROTO_H
#define ANYRDMA_RSOCKET_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PROTO_VERSION = 1,
	PROTO_CONN_LEN = 40,	/* bytes of private data */
	PROTO_IB_HEADER = 36,	/* ... which stand behind this in a request of AF_IB */
	PROTO_SGES = 2,		/* entries by which a peer announces receive buffers */
	PROTO_SGE_LEN = 16,
	PROTO_IOMAP_LEN = 24,
	PROTO_IOMAP_MAX = 0x7f << 8,
};

/* Operations: bits 31 to 29 of the immediate data. */
enum proto_op {
	PROTO_DATA = 0,	  /* value: bytes written */
	PROTO_CREDIT = 4, /* value: 16-bit number of the message that must not be sent */
	PROTO_IOMAP = 6,  /* value: index of the entry written */
	PROTO_CTRL = 7,	  /* value: enum proto_ctrl */
};

enum proto_ctrl { PROTO_DISCONNECT = 0, PROTO_KEEPALIVE = 1, PROTO_SHUTDOWN = 2 };

enum { PROTO_VALUE_MAX = (1 << 29) - 1 };

static inline uint32_t proto_imm(enum proto_op op, uint32_t value)
{
	return (uint32_t)op << 29 | value;
}

static inline unsigned proto_imm_op(uint32_t imm)
{
	return imm >> 29;
}

static inline uint32_t proto_imm_value(uint32_t imm)
{
	return imm & PROTO_VALUE_MAX;
}

/* Memory of the sender of the message. */
struct proto_sge {
	uint64_t addr;
	uint32_t key;
	uint32_t length;
};

struct proto_conn {
	bool big_endian;	 /* byte order of the entries in the sender's memory */
	uint16_t credits;	 /* messages that may be sent before the first credit */
	uint32_t iomaps;	 /* entries behind the SGEs */
	struct proto_sge sgl;	 /* where the receiver announces buffers; length: entries */
	struct proto_sge data;	 /* the first receive buffer */
};

void proto_conn_put(uint8_t out[PROTO_CONN_LEN], const struct proto_conn *c);
/* 0; -EPROTONOSUPPORT: another version; -EPROTO: too short, or out of range. */
int proto_conn_get(const uint8_t *in, size_t len, struct proto_conn *c);

/* The number of entries as the wire has it, which rounds above 128, and back. */
uint8_t proto_iomaps_scale(uint32_t n);
uint32_t proto_iomaps(uint8_t scaled);

/* An entry as its owner's memory has it. swap: the byte orders of the two differ. */
void proto_sge_put(uint8_t out[PROTO_SGE_LEN], const struct proto_sge *s, bool swap);
void proto_iomap_put(uint8_t out[PROTO_IOMAP_LEN], uint64_t offset,
		     const struct proto_sge *s, bool swap);
/* In the byte order of this machine. */
struct proto_sge proto_sge_get(const uint8_t in[PROTO_SGE_LEN]);
uint64_t proto_iomap_get(const uint8_t in[PROTO_IOMAP_LEN], struct proto_sge *s);

#endif
