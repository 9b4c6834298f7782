/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/file.h"
#include "preload/conn.h"
#include "preload/ep.h"

#include <stdlib.h>
#include <string.h>

#define PAGE 1024
#define PAGES 1024 /* descriptors beyond a million are the kernel's alone */

typedef _Atomic(struct file *) slot_t;

static _Atomic(slot_t *) pages[PAGES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* free lists and lists of all */
static struct file *free_list[FILE_KINDS], *all_list[FILE_KINDS];
static atomic_int highest = -1; /* largest descriptor that was ever set; set with lock */

static slot_t *slot_of(int fd, bool make)
{
	slot_t *page, *none = NULL;

	if (fd < 0 || fd >= PAGE * PAGES)
		return NULL;
	page = atomic_load_explicit(&pages[fd / PAGE], memory_order_acquire);
	if (!page && make) {
		page = calloc(PAGE, sizeof(*page));
		if (page &&
		    !atomic_compare_exchange_strong(&pages[fd / PAGE], &none, page)) {
			free(page);
			page = none;
		}
	}
	return page ? &page[fd % PAGE] : NULL;
}

static struct file *file_new(enum file_kind kind)
{
	switch (kind) {
	case FILE_CONN:
		return conn_file_new();
	case FILE_EPOLL:
		return ep_file_new();
	default:
		return calloc(1, sizeof(struct file));
	}
}

static void file_reset(struct file *f)
{
	if (f->kind == FILE_CONN)
		conn_file_reset(f);
	else if (f->kind == FILE_EPOLL)
		ep_file_reset(f);
}

struct file *file_create(enum file_kind kind, int fd)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	f = free_list[kind];
	if (f) {
		free_list[kind] = f->next_free;
	} else {
		f = file_new(kind);
		if (f) {
			f->all = all_list[kind];
			all_list[kind] = f;
		}
	}
	pthread_mutex_unlock(&lock);
	if (!f)
		return NULL;
	f->kind = kind;
	f->fds = 0;
	file_reset(f);
	atomic_store(&f->live, true);
	file_hold(f);
	file_set(fd, f);
	file_put(f);
	return f;
}

void file_hold(struct file *f)
{
	atomic_fetch_add(&f->users, 1);
}

/* The last one frees it: no descriptors, no users. */
void file_put(struct file *f)
{
	bool live = true;

	if (atomic_fetch_sub(&f->users, 1) != 1 || atomic_load(&f->fds) != 0)
		return;
	if (!atomic_compare_exchange_strong(&f->live, &live, false))
		return;
	if (f->kind == FILE_CONN)
		conn_file_end(f);
	else if (f->kind == FILE_EPOLL)
		ep_file_end(f);
	pthread_mutex_lock(&lock);
	f->next_free = free_list[f->kind];
	free_list[f->kind] = f;
	pthread_mutex_unlock(&lock);
}

struct file *file_get(int fd)
{
	slot_t *slot = slot_of(fd, false);
	struct file *f;

	if (!slot)
		return NULL;
	while ((f = atomic_load_explicit(slot, memory_order_acquire))) {
		file_hold(f);
		if (atomic_load(slot) == f)
			break;
		file_put(f);
	}
	return f;
}

int file_peek_kind(int fd)
{
	slot_t *slot = slot_of(fd, false);
	struct file *f = slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;

	return f ? (int)atomic_load_explicit(&f->kind, memory_order_relaxed) : -1;
}

struct file *file_get_kind(int fd, enum file_kind kind)
{
	struct file *f;

	if (file_peek_kind(fd) != (int)kind)
		return NULL;
	f = file_get(fd);
	if (f && f->kind != kind) {
		file_put(f);
		f = NULL;
	}
	return f;
}

void file_set(int fd, struct file *f)
{
	slot_t *slot = slot_of(fd, true);
	struct file *old;

	if (!slot)
		return;
	pthread_mutex_lock(&lock);
	if (fd > highest)
		highest = fd;
	pthread_mutex_unlock(&lock);
	atomic_fetch_add(&f->fds, 1);
	old = atomic_exchange(slot, f);
	if (old) {
		file_hold(old);
		atomic_fetch_sub(&old->fds, 1);
		file_put(old);
	}
}

struct file *file_clear(int fd, bool *last)
{
	slot_t *slot = slot_of(fd, false);
	struct file *f = slot ? atomic_load(slot) : NULL;

	if (!f)
		return NULL;
	file_hold(f);
	if (!atomic_compare_exchange_strong(slot, &f, NULL)) {
		file_put(f);
		return NULL;
	}
	*last = atomic_fetch_sub(&f->fds, 1) == 1;
	return f;
}

int file_any_fd(const struct file *f)
{
	for (int fd = 0; fd <= highest; fd++) {
		slot_t *slot = slot_of(fd, false);

		if (!slot)
			fd |= PAGE - 1;
		else if (atomic_load_explicit(slot, memory_order_relaxed) == f)
			return fd;
	}
	return -1;
}

void file_each(enum file_kind kind, void (*fn)(struct file *f, void *arg), void *arg)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	f = all_list[kind];
	pthread_mutex_unlock(&lock);
	for (; f; f = f->all) {
		file_hold(f);
		if (f->live && f->fds > 0)
			fn(f, arg);
		file_put(f);
	}
}

void file_lock_all(void)
{
	pthread_mutex_lock(&lock);
}

void file_unlock_all(void)
{
	pthread_mutex_unlock(&lock);
}
