/* SPDX-License-Identifier: BSD-2-Clause */
/* Marks a function of the exported surface; ibverbs.map says at which node. */
#ifndef ANYRDMA_VERBS_EXPORT_H
#define ANYRDMA_VERBS_EXPORT_H

#define EXPORT __attribute__((visibility("default")))

#endif
