/* SPDX-License-Identifier: BSD-2-Clause */
#include "files/text.h"
#include "t.h"

#include <arpa/inet.h>

static const char *mask(const char *list)
{
	static char text[512];

	text_cpu_mask(list, text, sizeof(text));
	return text;
}

static void masks_of_processors(void)
{
	CHECK(!strcmp(mask("0"), "1"));
	CHECK(!strcmp(mask("0-1"), "3"));
	CHECK(!strcmp(mask("0-3,8,10-11"), "d0f"));
	CHECK(!strcmp(mask("0-31"), "ffffffff"));
	CHECK(!strcmp(mask("0-32"), "00000001,ffffffff"));
	CHECK(!strcmp(mask("64-65"), "00000003,00000000,00000000"));
	CHECK(!strcmp(mask(""), "0"));
	CHECK(!strcmp(mask("7-3"), "0"));
	CHECK(strlen(mask("1023")) == 32 * 9 - 1);
	CHECK(!strcmp(mask("1024-4000000000"), "0"));
}

static void a_mask_without_room_ends(void)
{
	char text[12];

	text_cpu_mask("0-63", text, sizeof(text));
	CHECK(strlen(text) < sizeof(text));
}

static void rates(void)
{
	char text[64];

	CHECK(!strcmp(text_rate(text, 2, 4), "40 Gb/sec (4X QDR)"));
	CHECK(!strcmp(text_rate(text, 1, 1), "2.5 Gb/sec (1X)"));
	CHECK(!strcmp(text_rate(text, 2, 32), "100 Gb/sec (4X EDR)"));
	CHECK(!strcmp(text_rate(text, 8, 16), "168 Gb/sec (12X FDR)"));
	CHECK(!strcmp(text_rate(text, 16, 128), "200 Gb/sec (2X NDR)"));
}

static void states(void)
{
	CHECK(!strcmp(text_state(IBV_PORT_ACTIVE), "4: ACTIVE"));
	CHECK(!strcmp(text_state(IBV_PORT_DOWN), "1: DOWN"));
	CHECK(!strcmp(text_state((enum ibv_port_state)9), "UNKNOWN"));
	CHECK(!strcmp(text_phys_state(5), "5: LinkUp"));
	CHECK(!strcmp(text_phys_state(3), "3: Disabled"));
	CHECK(!strcmp(text_phys_state(0), "<unknown>"));
	CHECK(!strcmp(text_phys_state(8), "<unknown>"));
}

static void numbers(void)
{
	union ibv_gid gid = { .raw = { [0] = 0xfe, 0x80, [8] = 2, [15] = 1 } };
	uint8_t raw[8] = { 2, 0xa, 0xbc, 4, 5, 6, 7, 0xff };
	char text[40], guid_text[20];
	uint64_t guid;

	CHECK(!strcmp(text_gid(text, &gid), "fe80:0000:0000:0000:0200:0000:0000:0001"));
	memcpy(&guid, raw, sizeof(guid));
	text_guid(guid_text, guid);
	CHECK(!strcmp(guid_text, "020a:bc04:0506:07ff"));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(masks_of_processors);
	T_RUN(a_mask_without_room_ends);
	T_RUN(rates);
	T_RUN(states);
	T_RUN(numbers);
	return t_done();
}
