/* SPDX-License-Identifier: BSD-2-Clause */
#include "tool.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool have(const char *dir, const char *rest)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof(path), "%s/%s", dir, rest);
	return access(path, F_OK) == 0;
}

bool libs_find(char *out, size_t size)
{
	static const char *const rest[] = { "lib/anyrdma", "lib" };
	char root[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", root, sizeof(root) - 1);
	char *slash;

	if (n <= 0)
		return false;
	root[n] = 0;
	for (int i = 0; i < 2; i++) {
		slash = strrchr(root, '/');
		if (!slash)
			return false;
		*slash = 0;
	}
	for (int i = 0; i < 2; i++) {
		snprintf(out, size, "%s/%s", root, rest[i]);
		if (have(out, "libibverbs.so.1") && have(out, "librdmacm.so.1") &&
		    (i == 0 || have(root, "build.ninja")))
			return true;
	}
	return false;
}
