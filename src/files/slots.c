/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/slots.h"
#include "files/dir.h"
#include "files/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An entry of the file: GID, interface, and whether that is loopback. */
enum { ENTRY = 24 };

static void encode(uint8_t *p, const struct gid_slot *s)
{
	uint32_t loopback = s->loopback;

	memcpy(p, s->gid.raw, 16);
	memcpy(p + 16, &s->ifindex, 4);
	memcpy(p + 20, &loopback, 4);
}

static void decode(const uint8_t *p, struct gid_slot *s)
{
	uint32_t loopback;

	memcpy(s->gid.raw, p, 16);
	memcpy(&s->ifindex, p + 16, 4);
	memcpy(&loopback, p + 20, 4);
	s->loopback = loopback != 0;
}

static const char *file_name(char *name, size_t size, unsigned device)
{
	snprintf(name, size, FILES_STATE "/slots.%u", device);
	return name;
}

unsigned files_slots_read(int root, unsigned device, struct gid_slot slots[DEV_GIDS])
{
	uint8_t raw[DEV_GIDS * ENTRY];
	char name[64];
	ssize_t n;
	int fd = openat(root, file_name(name, sizeof(name), device),
			O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return 0;
	n = read(fd, raw, sizeof(raw));
	close(fd);
	if (n < 0)
		return 0;
	for (ssize_t i = 0; i < n / ENTRY; i++)
		decode(raw + i * ENTRY, &slots[i]);
	return (unsigned)(n / ENTRY);
}

int files_slots_write(int root, unsigned device, const struct gid_slot *slots, unsigned n)
{
	uint8_t raw[DEV_GIDS * ENTRY];
	struct stat st;
	char name[64];
	int ret = 0, fd = openat(root, file_name(name, sizeof(name), device),
				 O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	for (unsigned i = 0; i < n && i < DEV_GIDS; i++)
		encode(raw + i * ENTRY, &slots[i]);
	/* What another process has added stays. */
	if (!fstat(fd, &st) && st.st_size < (off_t)(n * ENTRY) &&
	    pwrite(fd, raw, n * ENTRY, 0) != (ssize_t)(n * ENTRY))
		ret = -ENOSPC;
	close(fd);
	return ret;
}

void files_slots_forget(int root, unsigned device)
{
	char name[64];

	unlinkat(root, file_name(name, sizeof(name), device), 0);
}
