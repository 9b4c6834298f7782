/* SPDX-License-Identifier: BSD-2-Clause */
/* The edge between an application and the table of verbs (dev/ops.h). A function that an
 * application calls gets the table, refuses what must not reach it, calls one member and
 * turns its result into the verb's: these are the pieces of it.
 *
 * For an old object (base/state.h) there is no table: a verb fails with ENODEV, and one
 * that destroys succeeds and does nothing. */
#ifndef ANYRDMA_VERBS_EDGE_H
#define ANYRDMA_VERBS_EDGE_H

#include "base/cancel.h"
#include "base/log.h"
#include "base/state.h"
#include "dev/dev.h"
#include "dev/ops.h"
#include "verbs/export.h"

#include <errno.h>

/* Of an object that was made in an earlier generation of the process. */
static inline bool edge_is_old(const struct ibv_context *context)
{
	return state_is_old(container_of(context, struct dev_ctx, v.context)->generation);
}

/* The table for objects of a context, which may be NULL; NULL if it is old. */
static inline const struct dev_ops *edge_ops(const struct ibv_context *context)
{
	return context && edge_is_old(context) ? NULL : dev_ops();
}

/* The same for any public object, which may be NULL. */
#define EDGE_OPS(object) edge_ops((object) ? (object)->context : NULL)
/* An object among the arguments of a verb, which may be NULL, is old. */
#define EDGE_OLD(object) ((object) && edge_is_old((object)->context))

/* 0 if the table is there and arg, an object or a struct with its attributes, is not
 * NULL; else -errno, to be treated as the result of the verb. */
static inline int edge_check(const struct dev_ops *ops, const void *arg)
{
	if (!ops)
		return -ENODEV;
	return arg ? 0 : log_refuse(EINVAL, "a verb was called with a NULL object");
}

/* 0, or -ENODEV if an object that the attributes name is old. */
static inline int edge_check_old(bool old)
{
	return old ? log_refuse(ENODEV, "an object is the parent process's, or "
				"its device has failed") : 0;
}

/* For verbs that return a pointer: on failure sets errno; true: return NULL. */
static inline bool edge_failed(int ret)
{
	if (ret)
		errno = -ret;
	return ret != 0;
}

/* For verbs that return 0, or -1 and errno. */
static inline int edge_minus_one(int ret)
{
	return edge_failed(ret) ? -1 : 0;
}

/* Set the functions through which verbs.h calls: inline.c, qp_ex.c, cq_ex.c. The last two
 * copy from the table. */
void inline_fill(struct verbs_context *v);
void qp_ex_fill(struct ibv_qp_ex *qp, const struct dev_build_ops *build);
void cq_ex_fill(struct ibv_cq_ex *cq, uint64_t wc_flags, const struct dev_read_ops *read);

#endif
