/* SPDX-License-Identifier: BSD-2-Clause */
/* A library in front of libc (LD_PRELOAD): calls that name /sys/class/infiniband, the PCI
 * folder of our device or /dev/infiniband get what is in a folder that `anyrdma run` has made,
 * the tree (files/tree.h), and results that lie in the tree are given the names that they
 * stand for. Only what libc is asked for by name is answered: programs that are linked
 * statically, or make system calls themselves, see nothing of it. All other calls go on
 * unchanged. */
#ifndef ANYRDMA_SHIM_SHIM_H
#define ANYRDMA_SHIM_SHIM_H

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* What a path is wanted for. */
enum shim_use {
	SHIM_FILE, /* the thing itself */
	SHIM_LIST, /* perhaps what is in it: /sys/class lists our classes, too */
};

struct shim_path {
	char text[PATH_MAX];
};

/* The path to use for `path`: itself, or another in buf. errno stays. */
const char *shim_path(const char *path, enum shim_use use, struct shim_path *buf);
/* The same for a path that is relative to a folder. */
const char *shim_path_at(int dir, const char *path, enum shim_use use,
			 struct shim_path *buf);
/* The working folder is another. */
void shim_cwd_changed(void);
/* A path of the tree gets the name that it stands for, in place: shorter. Others stay.
 * Returns the length. */
size_t shim_name(char *path);
/* Is this a node of ours in /dev/infiniband? */
bool shim_is_node(const char *path);

/* The function of this name behind ours; `type` is its type, where no header has it. */
#define SHIM_NEXT_AS(type, name) \
	({ \
		static __typeof__(type) *shim_f_; \
		__typeof__(type) *f_ = __atomic_load_n(&shim_f_, __ATOMIC_RELAXED); \
		if (!f_) { \
			f_ = (__typeof__(type) *)dlsym(RTLD_NEXT, name); \
			__atomic_store_n(&shim_f_, f_, __ATOMIC_RELAXED); \
		} \
		f_; \
	})
#define SHIM_NEXT(name) SHIM_NEXT_AS(name, #name)

#endif
