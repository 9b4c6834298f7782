/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPUS = 1024 };

const char *text_state(enum ibv_port_state state)
{
	static const char *const text[] = { "0: NOP",	"1: DOWN",   "2: INIT",
					    "3: ARMED", "4: ACTIVE", "5: ACTIVE_DEFER" };

	return (unsigned)state < sizeof(text) / sizeof(text[0]) ? text[state] : "UNKNOWN";
}

const char *text_phys_state(uint8_t state)
{
	static const char *const text[] = {
		NULL,		     "1: Sleep",
		"2: Polling",	     "3: Disabled",
		"4: PortConfigurationTraining", "5: LinkUp",
		"6: LinkErrorRecovery", "7: Phy Test",
	};

	return state && state < sizeof(text) / sizeof(text[0]) ? text[state] : "<unknown>";
}

const char *text_rate(char *text, uint8_t width, uint32_t speed)
{
	static const struct {
		uint32_t code;
		unsigned tenths; /* of Gb/s a lane */
		const char *name;
	} speeds[] = {
		{ 1, 25, "" },	      { 2, 50, " DDR" },    { 4, 100, " QDR" },
		{ 8, 100, " FDR10" }, { 16, 140, " FDR" },  { 32, 250, " EDR" },
		{ 64, 500, " HDR" },  { 128, 1000, " NDR" },
	};
	unsigned lanes = width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : 2;
	unsigned i = 0, rate;

	while (i + 1 < sizeof(speeds) / sizeof(speeds[0]) && speeds[i].code != speed)
		i++;
	rate = speeds[i].tenths * lanes;
	snprintf(text, 64, "%u%s Gb/sec (%uX%s)", rate / 10, rate % 10 ? ".5" : "", lanes,
		 speeds[i].name);
	return text;
}

const char *text_gid(char *text, const union ibv_gid *gid)
{
	for (unsigned i = 0; i < 8; i++)
		sprintf(text + 5 * i, "%02x%02x%s", gid->raw[2 * i], gid->raw[2 * i + 1],
			i < 7 ? ":" : "");
	return text;
}

void text_guid(char *text, uint64_t guid)
{
	uint8_t raw[8];

	memcpy(raw, &guid, sizeof(raw));
	for (unsigned i = 0; i < 4; i++)
		sprintf(text + 5 * i, "%02x%02x%s", raw[2 * i], raw[2 * i + 1],
			i < 3 ? ":" : "");
}

void text_cpu_mask(const char *list, char *mask, size_t size)
{
	uint32_t bits[CPUS / 32] = { 0 };
	unsigned words = 1;
	size_t len = 0;

	while (*list >= '0' && *list <= '9') {
		char *end;
		unsigned long from = strtoul(list, &end, 10), to = from;

		if (*end == '-')
			to = strtoul(end + 1, &end, 10);
		for (; from <= to && from < CPUS; from++) {
			bits[from / 32] |= 1u << from % 32;
			if (from / 32 >= words)
				words = (unsigned)from / 32 + 1;
		}
		list = *end == ',' ? end + 1 : end;
	}
	mask[0] = 0;
	for (unsigned i = words; i-- > 0 && len + 10 < size;)
		len += (size_t)snprintf(mask + len, size - len, words == 1 ? "%x" : "%08x%s",
					bits[i], i ? "," : "");
}

void text_cpus(char *mask, size_t size, char *list, size_t list_size)
{
	int fd = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, list, list_size - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		n = snprintf(list, list_size, "0");
	list[n] = 0;
	list[strcspn(list, "\n")] = 0;
	text_cpu_mask(list, mask, size);
}
