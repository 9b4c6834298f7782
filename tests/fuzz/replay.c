/* SPDX-License-Identifier: BSD-2-Clause */
/* main() for fuzz targets in builds without libFuzzer: runs the target once for
 * every file of the folder given, and on an empty input. */
#include "tests/t.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In a buffer of exactly its size, so that a sanitizer sees a byte too many. */
static bool replay(int folder, const char *name)
{
	struct stat st;
	uint8_t *data;
	int fd = openat(folder, name, O_RDONLY);
	bool good = fd >= 0 && !fstat(fd, &st);

	if (!good)
		return false;
	data = malloc(st.st_size ? (size_t)st.st_size : 1);
	good = data && read(fd, data, (size_t)st.st_size) == st.st_size;
	snprintf(t_.name, sizeof(t_.name), "%.190s", name);
	if (good)
		LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
	free(data);
	close(fd);
	return good;
}

int main(int argc, char **argv)
{
	struct dirent *e;
	int count = 0, bad = 0;
	DIR *dir;

	t_init(1, argv);
	LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
	dir = argc > 1 ? opendir(argv[1]) : NULL;
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		count++;
		if (!replay(dirfd(dir), e->d_name)) {
			bad++;
			diag("%s: cannot be read", e->d_name);
		}
	}
	ok(dir && count > 0 && !bad, "%d inputs", count);
	if (dir)
		closedir(dir);
	return t_done();
}
