/* SPDX-License-Identifier: BSD-2-Clause */
/* What this process has in use, counted in /proc. -1: that file or folder cannot be
 * read. */
#ifndef ANYRDMA_TESTS_INUSE_H
#define ANYRDMA_TESTS_INUSE_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Entries of a folder. */
static inline int inuse_entries(const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	int n = 0;

	if (!dir)
		return -1;
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n;
}

/* Open descriptors; the one by which they are counted is not among them. */
static inline int inuse_fds(void)
{
	return inuse_entries("/proc/self/fd") - 1;
}

/* Lines of a file that contain this text. */
static inline int inuse_lines(const char *file, const char *text)
{
	FILE *f = fopen(file, "re");
	char line[512];
	int n = 0;

	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		n += strstr(line, text) != NULL;
	fclose(f);
	return n;
}

/* Links of shared memory that are mapped. */
static inline int inuse_links(void)
{
	return inuse_lines("/proc/self/maps", "memfd:anyrdma link");
}

#endif
