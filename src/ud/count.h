/* SPDX-License-Identifier: BSD-2-Clause */
/* What became of datagrams, for the whole process. */
#ifndef ANYRDMA_UD_COUNT_H
#define ANYRDMA_UD_COUNT_H

#include <stdint.h>

enum ud_counter {
	UD_SENT,	 /* given to a carrier, or to a QP of this process */
	UD_RECEIVED,	 /* completed a receive */
	UD_LOST_SEND,	 /* could not be sent: no route, refused by the host */
	UD_DROP_FORMAT,	 /* not a datagram of ours */
	UD_DROP_CRC,	 /* its CRC is wrong */
	UD_DROP_SOURCE,	 /* its UDP port is not that of the QP number it claims */
	UD_DROP_ADDRESS, /* it was sent to no address of the GID table */
	UD_DROP_NO_QP,	 /* no UD QP has the number, or no member of the group is left */
	UD_DROP_STATE,	 /* the QP does not receive in its state */
	UD_DROP_QKEY,	 /* wrong Q_Key */
	UD_DROP_NO_RECV, /* no receive was posted */
	UD_DROP_LENGTH,	 /* longer than the receive, less the GRH's 40 bytes: the QP fails */
	UD_DROP_MEMORY,	 /* the receive's memory cannot be written: the QP fails */
	UD_COUNTERS,
};

void ud_count_n(enum ud_counter which, uint64_t n);

static inline void ud_count(enum ud_counter which)
{
	ud_count_n(which, 1);
}

uint64_t ud_counter_read(enum ud_counter which);
/* For files and logs: lower case, with underscores. */
const char *ud_counter_name(enum ud_counter which);

#endif
