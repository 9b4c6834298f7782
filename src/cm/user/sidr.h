/* SPDX-License-Identifier: BSD-2-Clause */
/* The exchange of datagram port spaces, after the service ID resolution of InfiniBand
 * (SIDR): a request that names a port, and a reply with a QP's number and Q_Key, or a
 * refusal. Each is one UDP datagram. doc/wire.md draws every byte. Pure functions;
 * nothing here blocks, allocates or logs. Fields are big-endian.
 *
 * A packet of a kind always has the same length: a request is longer than its answers,
 * so that a forged source address gains nothing. The first 16 bytes are the same in every
 * version, so that another version can be refused. */
#ifndef ANYRDMA_CM_USER_SIDR_H
#define ANYRDMA_CM_USER_SIDR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SIDR_VERSION = 1,
	SIDR_PRIV_REQ = 180, /* what an IP id may use of SIDR_REQ */
	SIDR_PRIV_REP = 136,
	SIDR_HEAD_LEN = 16,
	SIDR_WAIT_LEN = SIDR_HEAD_LEN,
	SIDR_REP_LEN = SIDR_HEAD_LEN + 8 + SIDR_PRIV_REP,
	SIDR_REQ_LEN = SIDR_HEAD_LEN + 40 + SIDR_PRIV_REQ,
	SIDR_MAX = SIDR_REQ_LEN,
};

enum sidr_kind {
	SIDR_REQ = 1,
	SIDR_WAIT = 2, /* the request is there, its answer takes time */
	SIDR_REP = 3,
};

/* Of a reply; the numbers of the InfiniBand CM, which the application sees. */
enum sidr_status {
	SIDR_OK = 0,
	SIDR_NO_SERVICE = 1, /* nobody listens on that port */
	SIDR_REJECTED = 2,
	SIDR_NO_QP = 3,
	SIDR_REDIRECT = 4,
	SIDR_BAD_VERSION = 5,
};

struct sidr_req {
	uint64_t id; /* random; the same in each repeat and in every answer */
	uint16_t ps;
	bool ipv6; /* else the addresses are IPv4, mapped */
	uint8_t src_addr[16], dst_addr[16];
	uint16_t src_port, dst_port; /* RDMA ports */
	uint8_t priv[SIDR_PRIV_REQ]; /* zero behind the application's */
};

struct sidr_rep {
	uint64_t id;
	uint16_t ps;
	uint8_t status;		/* enum sidr_status; others are possible */
	uint32_t qpn, qkey;	/* 0 unless SIDR_OK */
	uint8_t priv[SIDR_PRIV_REP];
};

/* The kind of a packet of this version, and its request id; or
 *	-EPROTO			it is none of ours, or has a wrong length
 *	-EPROTONOSUPPORT	a request of another version, which may be refused; *id is set */
int sidr_kind(const uint8_t *buf, size_t len, uint64_t *id);

/* 0, or -EPROTO: another kind, or a field is out of range. */
int sidr_req_decode(const uint8_t *buf, size_t len, struct sidr_req *r);
int sidr_rep_decode(const uint8_t *buf, size_t len, struct sidr_rep *r);

/* The id of a request of which only the beginning is there, as ICMP quotes it. */
bool sidr_quoted_id(const uint8_t *buf, size_t len, uint64_t *id);

void sidr_req_encode(uint8_t buf[SIDR_REQ_LEN], const struct sidr_req *r);
void sidr_wait_encode(uint8_t buf[SIDR_WAIT_LEN], uint16_t ps, uint64_t id);
void sidr_rep_encode(uint8_t buf[SIDR_REP_LEN], const struct sidr_rep *r);

#endif
