/* SPDX-License-Identifier: BSD-2-Clause */
/* What the user wants: our settings, and the file and the variables of the original. */
#ifndef ANYRDMA_PRELOAD_CONF_H
#define ANYRDMA_PRELOAD_CONF_H

#include <stdbool.h>

/* Whether sockets of this kind may move, by /etc/rdma/rsocket/preload_config. */
bool conf_wants(int domain, int type, int protocol);

/* Reads and writes on TCP before a move. */
unsigned conf_after(void);

/* RS_SQ_SIZE and so on, to a new rsocket. */
void conf_rsocket(int rsock);

#endif
