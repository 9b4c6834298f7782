/* SPDX-License-Identifier: BSD-2-Clause */
/* The parts of a datagram rsocket (dgram.c: the calls; dest.c: its QP, whom it knows). */
#ifndef ANYRDMA_RSOCKET_DGRAM_H
#define ANYRDMA_RSOCKET_DGRAM_H

#include "rsocket/dproto.h"
#include "rsocket/rs.h"

enum {
	DGRAM_SENDS = 32,
	DGRAM_RECVS = 64,
	DGRAM_GRH = 40,
	DGRAM_SLOT = DGRAM_GRH + DPROTO_MAX,
	DGRAM_DESTS = 4096,
	DGRAM_QUEUE = 256,	/* datagrams that wait for rrecvfrom() */
};

/* Somebody datagrams go to. */
struct dest {
	struct dest *next;
	struct sockaddr_storage addr, local;
	uint32_t qpn;		/* 0: not known */
	struct ibv_ah *ah;
};

/* One that has come. */
struct datagram {
	struct datagram *next;
	struct sockaddr_storage src;
	size_t len;
	uint8_t data[];
};

/* lock guards all but what is said. */
struct dgram {
	pthread_mutex_t lock;
	struct ibv_qp *qp;
	uint8_t port_num;
	uint32_t mtu;
	uint8_t *mem;		/* DGRAM_RECVS + DGRAM_SENDS slots */
	struct ibv_mr *mr;
	uint32_t sent;
	_Atomic uint32_t done;	/* shard->lock */
	struct dest *dests;
	unsigned ndests;
	struct sockaddr_storage peer; /* rconnect(); family 0: none */
	pthread_mutex_t queue_lock; /* inside of the shard's */
	struct datagram *first, **end;
	_Atomic unsigned queued;
};

/* Whom addr is; made and resolved if need be. lock is held. 0 or -errno. */
int dest_get(struct rs *rs, const struct sockaddr_storage *addr, struct dest **out);
/* addr has this QP. lock is held. */
void dest_learn(struct rs *rs, const struct sockaddr_storage *addr, uint32_t qpn);
void dest_free_all(struct dgram *d);
int dgram_recv_post(struct rs *rs, uint32_t slot);

#endif
