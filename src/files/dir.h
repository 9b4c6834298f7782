/* SPDX-License-Identifier: BSD-2-Clause */
/* Folders and small files, relative to a descriptor of a folder. Several processes may
 * write to one tree if each holds its lock (files/tree.h); readers hold none, and see the
 * old text or the new one. All return 0 or a descriptor, or -errno. */
#ifndef ANYRDMA_FILES_DIR_H
#define ANYRDMA_FILES_DIR_H

#include <stddef.h>

/* Makes the folders of the path that are missing; a descriptor of the last one. */
int dir_make(int at, const char *path);
/* Makes the file, or replaces it if it says something else. */
int file_put(int dir, const char *name, const char *text);
int file_printf(int dir, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Its text without what is behind `size`, and a 0. The length, or -errno. */
int file_get(int dir, const char *path, char *text, size_t size);
/* Makes the symbolic link, or replaces one that points elsewhere. */
int symlink_put(int dir, const char *name, const char *target);
/* Makes `name` another name of the file `old` in folder `from`. */
int file_share(int from, const char *old, int dir, const char *name);

#endif
