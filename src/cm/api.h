/* SPDX-License-Identifier: BSD-2-Clause */
/* The public headers, for those who define what they declare: everything else is
 * built hidden. */
#ifndef ANYRDMA_CM_API_H
#define ANYRDMA_CM_API_H

#pragma GCC visibility push(default)
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#pragma GCC visibility pop

#endif
