/* SPDX-License-Identifier: BSD-2-Clause */
/* The headers of datagrams, against bytes written by hand. */
#include "rsocket/dproto.h"

#include <arpa/inet.h>

#include "../../tests/t.h"

static struct sockaddr_storage v4(void)
{
	struct sockaddr_storage s = { 0 };
	struct sockaddr_in *a = (void *)&s;

	a->sin_family = AF_INET;
	a->sin_port = htons(0x1234);
	a->sin_addr.s_addr = htonl(0x0a000001);
	return s;
}

static struct sockaddr_storage v6(void)
{
	struct sockaddr_storage s = { 0 };
	struct sockaddr_in6 *a = (void *)&s;

	a->sin6_family = AF_INET6;
	a->sin6_port = htons(0x1234);
	a->sin6_flowinfo = htonl(7);
	for (int i = 0; i < 16; i++)
		a->sin6_addr.s6_addr[i] = (uint8_t)(i + 1);
	return s;
}

static void udp(void)
{
	static const uint8_t golden[] = { 0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0,
					  0, 0xab, 0xcd, 0xef, 10, 0, 0, 1 };
	struct dproto_udp h = { DPROTO_CTRL, 0xabcdef, v4() }, got;
	uint8_t out[DPROTO_UDP_MAX];

	CHECK_EQ(dproto_udp_put(out, &h), 16);
	CHECK(!memcmp(out, golden, sizeof(golden)));
	for (size_t n = 0; n < 16; n++)
		CHECK_EQ(dproto_udp_get(out, n, &got), -EPROTO);
	CHECK_EQ(dproto_udp_get(out, 16, &got), 16);
	CHECK_EQ(got.qpn, 0xabcdef);
	CHECK_EQ(got.op, DPROTO_CTRL);
	out[0] = 1;
	CHECK_EQ(dproto_udp_get(out, 16, &got), -EPROTO);
	h.src = v6();
	CHECK_EQ(dproto_udp_put(out, &h), 28);
	CHECK(out[4] == 6 && out[6] == 28 && out[12] == 1 && out[27] == 16);
	CHECK_EQ(dproto_udp_get(out, 27, &got), -EPROTO);
	CHECK_EQ(dproto_udp_get(out, 28, &got), 28);
	out[5] = 3; /* no such operation */
	CHECK_EQ(dproto_udp_get(out, 28, &got), -EPROTO);
}

static void ud(void)
{
	static const uint8_t golden[] = { 4, 8, 0x12, 0x34, 10, 0, 0, 1 };
	struct sockaddr_storage a = v4(), got;
	uint8_t out[DPROTO_UD_MAX];

	CHECK_EQ(dproto_ud_put(out, &a), 8);
	CHECK(!memcmp(out, golden, sizeof(golden)));
	for (size_t n = 0; n < 8; n++)
		CHECK_EQ(dproto_ud_get(out, n, &got), -EPROTO);
	CHECK_EQ(dproto_ud_get(out, 8, &got), 8);
	CHECK(!memcmp(&a, &got, sizeof(struct sockaddr_in)));
	a = v6();
	CHECK_EQ(dproto_ud_put(out, &a), 24);
	CHECK(out[0] == 6 && out[1] == 24 && out[7] == 7 && out[8] == 1 && out[23] == 16);
	CHECK_EQ(dproto_ud_get(out, 23, &got), -EPROTO);
	CHECK_EQ(dproto_ud_get(out, 24, &got), 24);
	CHECK(!memcmp(&a, &got, sizeof(struct sockaddr_in6)));
	out[1] = 8;
	CHECK_EQ(dproto_ud_get(out, 24, &got), -EPROTO);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(udp);
	T_RUN(ud);
	return t_done();
}
