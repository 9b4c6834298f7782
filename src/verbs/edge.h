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
#include "dev/verbs.h"
#include "dev/xrc.h"
#include "verbs/export.h"

#include <errno.h>

/* The table for a context, which may be NULL; NULL if it is of an earlier generation of
 * the process. */
static inline const struct dev_ops *edge_ops(const struct ibv_context *context)
{
	if (context &&
	    state_is_old(container_of(context, struct dev_ctx, v.context)->generation))
		return NULL;
	return dev_ops();
}

/* What the device knows of a public object (dev/object.h), which may be overwritten. */
#define EDGE_OBJECT(o)                                                      \
	_Generic((o),                                                       \
		struct ibv_pd *: &to_pd((void *)(o))->object,               \
		struct ibv_td *: &to_td((void *)(o))->object,               \
		struct ibv_xrcd *: &to_xrcd((void *)(o))->object,           \
		struct ibv_mr *: &to_mr((void *)(o))->object,               \
		struct ibv_mw *: &to_mw((void *)(o))->object,               \
		struct ibv_comp_channel *: &to_channel((void *)(o))->object, \
		struct ibv_cq *: &to_cq((void *)(o))->object,               \
		struct ibv_srq *: &to_srq((void *)(o))->object,             \
		struct ibv_qp *: &to_qp((void *)(o))->object,               \
		struct ibv_ah *: &to_ah((void *)(o))->object)

/* The object, which may be NULL, is of an earlier generation. */
#define EDGE_OLD(o) ((o) && state_is_old(EDGE_OBJECT(o)->generation))
/* The table for an object, which may be NULL; NULL if it is old. */
#define EDGE_OPS(o) (EDGE_OLD(o) ? NULL : dev_ops())

/* 0 if the table is there and arg, an object or a struct with its attributes, is not
 * NULL; else -errno, to be treated as the result of the verb. */
static inline int edge_check(const struct dev_ops *ops, const void *arg)
{
	if (!ops)
		return -ENODEV;
	return arg ? 0 : log_refuse(EINVAL, "a verb was called with a NULL object");
}

/* An object's handle or context was overwritten: the kernel would not find it. */
static inline int edge_same(bool intact, int err)
{
	return intact ?
		       0 :
		       log_refuse(err, "a verb was called with an object whose handle or "
				       "context was overwritten");
}

/* The same as edge_check() for an object of a type (pd, mr, ...), and that it is as it was
 * made (dev/object.h). */
#define edge_object(ops, type, obj) \
	(!(ops) || !(obj) ? edge_check(ops, obj) : edge_same(type##_intact(obj), EINVAL))
/* The same for verbs that destroy or replace the object, where there is a table. */
#define edge_destroy(type, obj) (!(obj) ? -EINVAL : edge_same(type##_intact(obj), ENOENT))

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

/* For verbs that return 0 or an errno. It is in errno, too: the distribution's library has
 * it there from a system call, and programs print errno. */
static inline int edge_errno(int ret)
{
	if (__builtin_expect(ret != 0, 0))
		errno = -ret;
	return -ret;
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
