/* SPDX-License-Identifier: BSD-2-Clause */
/* How the files of the device (files/tree.h) come before the eyes of a program. Each way
 * changes this process, which then becomes the program. */
#ifndef ANYRDMA_TOOLS_SHOW_H
#define ANYRDMA_TOOLS_SHOW_H

#include "files/model.h"

#include <stdbool.h>

enum show_way {
	SHOW_THERE,   /* an outer `anyrdma run` shows them, with the same settings */
	SHOW_MOUNT,   /* a mount namespace */
	SHOW_USER,    /* user and mount namespace */
	SHOW_PRELOAD, /* a library in front of libc */
	SHOW_WAYS,
	SHOW_NOT = SHOW_WAYS,
};

struct show {
	struct files_device *dev;
	unsigned n;
	char stamp[512]; /* files_model_stamp() */
	/* Why a way was not taken; "": it was not tried. */
	char why[SHOW_WAYS][200];
};

/* Shows the files in the first way that ANYRDMA_FILES and the machine permit. */
enum show_way show_files(struct show *s);
const char *show_name(enum show_way way);

/* The reason for a failure: kept in s->why[way]. Returns false. */
bool show_why(struct show *s, enum show_way way, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- mounts.c ---------------------------------------------------------------------- */

/* In a mount namespace of our own: mounts the tree. `own`: the namespace belongs to a user
 * namespace of ours, so nothing that is mounted leaves it. 0, or -errno with *what, the
 * step that failed; until the last steps nothing is to be seen of it. */
int mounts_make(const struct show *s, bool own, const char **what);
/* For a first try in a process that ends afterwards: are mounts permitted? */
int mounts_try(const char **what);

/* ---- userns.c ---------------------------------------------------------------------- */

/* Enters a user namespace in which nothing but the right to mount is new: one that another
 * `anyrdma run` of this user lives in, so that the kernel lets their processes access each
 * other; else a new one. *lock: a descriptor to be kept until the files are shown. */
bool userns_enter(struct show *s, int *lock);
/* Rights that only the user namespace gave are taken away, as far as exec does not. */
void userns_leave_rights(void);
/* Has this process a right that a user namespace would take away? */
bool userns_would_cost(const char **what);

/* ---- preload.c --------------------------------------------------------------------- */

bool preload_show(struct show *s);

/* ---- join.c ------------------------------------------------------------------------ */

/* Keeps others of this user, in this network namespace, from the search and what follows
 * it: a descriptor to be closed, or -1: they cannot be kept. */
int join_lock(void);
/* A descriptor of the user namespace that other runs of this user are in, or -1. */
int join_find(void);

#endif
