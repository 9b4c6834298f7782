/* SPDX-License-Identifier: BSD-2-Clause */
#include "dev/lid.h"
#include "tests/t.h"

#include <arpa/inet.h>

static union ibv_gid gid(const char *text)
{
	union ibv_gid g;

	CHECK_EQ(inet_pton(AF_INET6, text, g.raw), 1);
	return g;
}

static uint16_t lid(const char *text)
{
	union ibv_gid g = gid(text);

	return lid_of_gid(&g);
}

static void of_addresses(void)
{
	CHECK_EQ(lid("::ffff:127.0.0.1"), 1);
	CHECK_EQ(lid("::ffff:10.77.1.2"), 0x102);
	CHECK_EQ(lid("::ffff:10.0.191.255"), 0xbfff);
	CHECK_EQ(lid("::ffff:10.0.192.0"), 0);
	CHECK_EQ(lid("::ffff:10.77.0.0"), 0);
	CHECK_EQ(lid("::ffff:192.168.200.5"), 0);
	CHECK_EQ(lid("fd00::2"), 0);
	CHECK_EQ(lid("fe80::1"), 0);
}

static void of_groups(void)
{
	CHECK(lid_is_group(lid("ff12:401b:ffff::e00:1")));
	CHECK(lid_is_group(lid("::ffff:239.1.2.3")));
	CHECK(lid("ff12:401b:ffff::1") != lid("ff12:401b:ffff::2"));
	for (unsigned i = 0; i < 65536; i++) {
		union ibv_gid g = gid("ff12::");

		g.raw[14] = (uint8_t)(i >> 8);
		g.raw[15] = (uint8_t)i;
		if (!lid_is_group(lid_of_gid(&g)))
			CHECK_EQ(lid_of_gid(&g), LID_GROUP);
	}
}

static bool leads(const char *here, uint16_t to, const char *where)
{
	union ibv_gid h = gid(here), want = gid(where), got;

	lid_to_gid(&h, to, &got);
	return !memcmp(&got, &want, sizeof(got));
}

static void back_to_addresses(void)
{
	CHECK(leads("::ffff:10.77.1.2", 0x103, "::ffff:10.77.1.3"));
	CHECK(leads("::ffff:10.77.1.2", 5, "::ffff:10.77.0.5"));
	/* Nobody else is on a host of its own. */
	CHECK(leads("::ffff:127.0.0.1", 5, "::ffff:240.0.0.5"));
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(of_addresses);
	T_RUN(of_groups);
	T_RUN(back_to_addresses);
	return t_done();
}
