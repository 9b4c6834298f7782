/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/count.h"
#include "files/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *name;
	enum traffic_kind kind;
	unsigned unit; /* bytes: the data counters count words, as the specification does */
} moving[] = {
	{ "counters/port_xmit_data", TRAFFIC_XMIT_BYTES, 4 },
	{ "counters/port_xmit_packets", TRAFFIC_XMIT_PACKETS, 1 },
	{ "counters/port_rcv_data", TRAFFIC_RCV_BYTES, 4 },
	{ "counters/port_rcv_packets", TRAFFIC_RCV_PACKETS, 1 },
};

/* Those that stay as they are: what they count does not happen here. */
static const char *const still[] = {
	"VL15_dropped",
	"excessive_buffer_overrun_errors",
	"link_downed",
	"link_error_recovery",
	"local_link_integrity_errors",
	"port_rcv_constraint_errors",
	"port_rcv_errors",
	"port_rcv_remote_physical_errors",
	"port_rcv_switch_relay_errors",
	"port_xmit_constraint_errors",
	"port_xmit_discards",
	"port_xmit_wait",
	"symbol_error",
};

static int make(int dir, const char *name, const char *text, mode_t mode)
{
	int ret, fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	if (fd < 0)
		return errno == EEXIST ? 0 : -errno;
	ret = fchmod(fd, mode) || write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

int files_count_make(int port)
{
	int ret = 0, dir = dir_make(port, "counters");

	if (dir < 0)
		return dir;
	for (unsigned i = 0; i < sizeof(still) / sizeof(still[0]) && !ret; i++)
		ret = make(dir, still[i], "0\n", 0444);
	close(dir);
	/* Written in place, by their owner: a reader may keep its descriptor. */
	for (unsigned i = 0; i < sizeof(moving) / sizeof(moving[0]) && !ret; i++)
		ret = make(port, moving[i].name, "0\n", 0644);
	if (ret)
		return ret;
	dir = dir_make(port, "hw_counters");
	if (dir < 0)
		return dir;
	for (unsigned i = 0; i < UD_COUNTERS && !ret; i++)
		ret = make(dir, ud_counter_name(i), "0\n", 0644);
	close(dir);
	return ret;
}

/* The text never gets shorter: a reader sees a number, and no end of an older one. */
static void add(int port, const char *path, uint64_t n)
{
	int len, fd = openat(port, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	char text[32] = "";

	if (fd < 0)
		return;
	if (pread(fd, text, sizeof(text) - 1, 0) >= 0) {
		len = snprintf(text, sizeof(text), "%" PRIu64 "\n",
			       (uint64_t)strtoull(text, NULL, 10) + n);
		(void)!pwrite(fd, text, (size_t)len, 0);
	}
	close(fd);
}

static bool sum(unsigned device, uint64_t n[TRAFFIC_KINDS], bool leaving)
{
	if (leaving)
		return traffic_try_sum(device, n);
	traffic_sum(device, n);
	return true;
}

bool files_count_add(struct files_counted *c, unsigned device, int port, bool leaving)
{
	uint64_t now[TRAFFIC_KINDS];
	bool any = false;

	if (!sum(device, now, leaving))
		return false;
	for (unsigned i = 0; i < sizeof(moving) / sizeof(moving[0]); i++) {
		uint64_t *had = &c->traffic[device][moving[i].kind];
		uint64_t n = (now[moving[i].kind] - *had) / moving[i].unit;

		if (!n)
			continue;
		add(port, moving[i].name, n);
		*had += n * moving[i].unit;
		any = true;
	}
	for (unsigned i = 0; i < UD_COUNTERS && !device; i++) {
		uint64_t n = ud_counter_read(i) - c->ud[i];
		char path[64];

		if (!n)
			continue;
		snprintf(path, sizeof(path), "hw_counters/%s", ud_counter_name(i));
		add(port, path, n);
		c->ud[i] += n;
		any = true;
	}
	return any;
}

bool files_count_news(const struct files_counted *c, unsigned devices)
{
	for (unsigned d = 0; d < devices; d++) {
		uint64_t now[TRAFFIC_KINDS];

		traffic_sum(d, now);
		for (unsigned i = 0; i < sizeof(moving) / sizeof(moving[0]); i++)
			if (now[moving[i].kind] - c->traffic[d][moving[i].kind] >=
			    moving[i].unit)
				return true;
	}
	return false;
}
