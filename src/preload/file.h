/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process's descriptors name, as far as it concerns us: an open file of the kernel is
 * one `file` here, however many descriptors it has. Descriptors that are not in the table are
 * the kernel's alone. */
#ifndef ANYRDMA_PRELOAD_FILE_H
#define ANYRDMA_PRELOAD_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum file_kind {
	FILE_SOCKET, /* a TCP socket that is not connected yet, or listens */
	FILE_CONN,   /* a TCP connection: struct conn */
	FILE_EPOLL,  /* struct ep */
	FILE_KINDS,
};

/* Memory of files is used again for files of the same kind and for nothing else, so that a
 * thread that lost a race with close() may still look at it. */
struct file {
	_Atomic(enum file_kind) kind;
	atomic_int fds;	  /* descriptors in the table */
	atomic_int users; /* calls under way, and others that hold it */
	atomic_bool live; /* false once nothing holds it: it may be used again */
	struct file *next_free;
	struct file *all; /* every file ever made of this kind */
};

/* Zeroed but for what init() of its kind does once; with one descriptor. NULL: no memory. */
struct file *file_create(enum file_kind kind, int fd);

/* Held until file_put; NULL when the descriptor is not in the table. */
struct file *file_get(int fd);
struct file *file_get_kind(int fd, enum file_kind kind);
void file_hold(struct file *f);
void file_put(struct file *f);

/* The descriptor names this file from now on; a file that it named loses it. */
void file_set(int fd, struct file *f);

/* Takes the descriptor out of the table, before the kernel may give it to another thread. The
 * file, still held, or NULL. *last: no descriptor of this process names it any more. */
struct file *file_clear(int fd, bool *last);

/* Any descriptor that names f, or -1. */
int file_any_fd(const struct file *f);

/* The kind without holding it: what the caller does with the answer must bear a change. */
int file_peek_kind(int fd);

/* All files of a kind that have descriptors; each is held during the call. */
void file_each(enum file_kind kind, void (*fn)(struct file *f, void *arg), void *arg);

/* Around fork(). */
void file_lock_all(void);
void file_unlock_all(void);

#endif
