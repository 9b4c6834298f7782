/* SPDX-License-Identifier: BSD-2-Clause */
/* rdma_getaddrinfo and its asynchronous sister, with numeric names only. */
#include "tests/t.h"

#include "cm/fake_test.h"
#include "cm/sockaddr_ib.h"

#include <endian.h>
#include <netdb.h>

static const struct sockaddr_in *sin_of(const struct sockaddr *sa)
{
	return (const struct sockaddr_in *)sa;
}

static void nothing_given(void)
{
	struct rdma_addrinfo *res = NULL;

	CHECK_ERRNO(rdma_getaddrinfo(NULL, NULL, NULL, &res), EINVAL);
	CHECK_ERRNO(rdma_getaddrinfo("127.0.0.1", NULL, NULL, NULL), EINVAL);
	CHECK(!res);
}

static void active(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST,
				       .ai_port_space = RDMA_PS_TCP }, *res = NULL;

	REQUIRE_EQ(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res), 0);
	CHECK_EQ(res->ai_flags, 0); /* hints are not echoed */
	CHECK_EQ(res->ai_family, AF_INET);
	CHECK_EQ(res->ai_qp_type, IBV_QPT_RC);
	CHECK_EQ(res->ai_port_space, RDMA_PS_TCP);
	CHECK_EQ(res->ai_dst_len, sizeof(struct sockaddr_in));
	CHECK_EQ(sin_of(res->ai_dst_addr)->sin_port, htons(7471));
	CHECK_EQ(sin_of(res->ai_dst_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
	CHECK(!res->ai_src_addr && !res->ai_src_len && !res->ai_route && !res->ai_next);
	rdma_freeaddrinfo(res);
	REQUIRE_EQ(rdma_getaddrinfo("::1", "1", NULL, &res), 0);
	CHECK_EQ(res->ai_family, AF_INET6);
	CHECK_EQ(res->ai_dst_len, sizeof(struct sockaddr_in6));
	rdma_freeaddrinfo(res);
}

static void passive(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_family = AF_INET,
				       .ai_port_space = RDMA_PS_TCP }, *res = NULL;

	REQUIRE_EQ(rdma_getaddrinfo(NULL, "7471", &hints, &res), 0);
	CHECK_EQ(res->ai_flags, RAI_PASSIVE);
	CHECK_EQ(res->ai_src_len, sizeof(struct sockaddr_in));
	CHECK_EQ(sin_of(res->ai_src_addr)->sin_addr.s_addr, 0);
	CHECK(!res->ai_dst_addr && !res->ai_dst_len);
	rdma_freeaddrinfo(res);
}

static void datagrams(void)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP }, *res = NULL;

	REQUIRE_EQ(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	CHECK_EQ(res->ai_qp_type, IBV_QPT_UD);
	CHECK_EQ(res->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(res);
	hints.ai_port_space = 0;
	hints.ai_qp_type = IBV_QPT_UD;
	REQUIRE_EQ(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	CHECK_EQ(res->ai_port_space, RDMA_PS_UDP);
	rdma_freeaddrinfo(res);
}

static void from_hints_alone(void)
{
	struct rdma_addrinfo hints = {
		.ai_family = AF_INET,
		.ai_qp_type = IBV_QPT_RC,
		.ai_port_space = RDMA_PS_TCP,
		.ai_dst_addr = fake_addr(),
		.ai_dst_len = sizeof(struct sockaddr_in),
		.ai_src_addr = fake_addr(),
		.ai_src_len = sizeof(struct sockaddr_in),
	}, *res = NULL;

	REQUIRE_EQ(rdma_getaddrinfo(NULL, NULL, &hints, &res), 0);
	CHECK(res->ai_dst_addr != hints.ai_dst_addr &&
	      !memcmp(res->ai_dst_addr, hints.ai_dst_addr, 16));
	CHECK(res->ai_src_addr && res->ai_src_len == 16);
	rdma_freeaddrinfo(res);
	/* A source in the hints also goes with a name. */
	REQUIRE_EQ(rdma_getaddrinfo("127.0.0.1", "1", &hints, &res), 0);
	CHECK(res->ai_src_addr && res->ai_src_len == 16);
	rdma_freeaddrinfo(res);
}

static void gids_as_text(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST | RAI_FAMILY,
				       .ai_family = AF_IB,
				       .ai_port_space = RDMA_PS_TCP }, *res = NULL;
	const struct cm_sockaddr_ib *sib;

	REQUIRE_EQ(rdma_getaddrinfo("fe80::1234", "7471", &hints, &res), 0);
	CHECK_EQ(res->ai_family, AF_IB);
	CHECK_EQ(res->ai_dst_len, 48);
	sib = (const struct cm_sockaddr_ib *)res->ai_dst_addr;
	CHECK_EQ(sib->sib_family, AF_IB);
	CHECK_EQ(sib->sib_pkey, 0xFFFF);
	CHECK_EQ(be64toh(sib->sib_sid), RDMA_IB_IP_PS_TCP + 7471);
	CHECK_EQ(be64toh(sib->sib_sid_mask), -1);
	CHECK(sib->sib_addr[0] == 0xfe && sib->sib_addr[15] == 0x34);
	rdma_freeaddrinfo(res);
	res = NULL;
	CHECK(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &res) < -1); /* EAI_* */
	CHECK(!res);
}

static void failures(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *res = NULL;

	CHECK_EQ(rdma_getaddrinfo("no.numbers", NULL, &hints, &res), EAI_NONAME);
	hints.ai_flags = RAI_SA;
	CHECK_ERRNO(rdma_getaddrinfo("127.0.0.1", "x", &hints, &res), EOPNOTSUPP);
	CHECK_ERRNO(rdma_getaddrinfo(NULL, NULL, &hints, &res), EINVAL);
	CHECK_ERRNO(rdma_getaddrinfo(NULL, "x", &hints, &res), ENOENT);
	hints.ai_flags = RAI_SA | RAI_DNS;
	CHECK_ERRNO(rdma_getaddrinfo(NULL, "x", &hints, &res), EOPNOTSUPP);
	CHECK(!res);
}

static void resolve_without_waiting(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *res = NULL;
	struct rdma_addrinfo sa = { .ai_flags = RAI_SA };
	struct rdma_cm_event *ev;
	struct rdma_cm_id *id;
	int i;

	REQUIRE_EQ(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_ERRNO(rdma_query_addrinfo(id, &res), ENOENT);
	CHECK_ERRNO(rdma_resolve_addrinfo(id, NULL, NULL, NULL), EINVAL);
	CHECK_ERRNO(rdma_resolve_addrinfo(id, "a", "b", &sa), ENOTSUP);
	CHECK_ERRNO(rdma_resolve_addrinfo(id, NULL, NULL, &sa), EINVAL);
	CHECK_ERRNO(rdma_resolve_addrinfo(id, NULL, "name", &sa), EOPNOTSUPP);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0);
		CHECK_ERRNO(rdma_resolve_addrinfo(id, "127.0.0.1", "1", &hints), EBUSY);
		REQUIRE_EQ(rdma_get_cm_event(ch, &ev), 0);
		CHECK_EQ(ev->event, RDMA_CM_EVENT_ADDRINFO_RESOLVED);
		rdma_ack_cm_event(ev);
		CHECK_ERRNO(rdma_resolve_addrinfo(id, "127.0.0.1", "1", &hints), EBUSY);
		REQUIRE_EQ(rdma_query_addrinfo(id, &res), 0);
		CHECK_EQ(sin_of(res->ai_dst_addr)->sin_port, htons(7471));
		rdma_freeaddrinfo(res);
		CHECK_ERRNO(rdma_query_addrinfo(id, &res), ENOENT);
	}
	CHECK_EQ(rdma_resolve_addrinfo(id, "no.numbers", NULL, &hints), 0);
	REQUIRE_EQ(rdma_get_cm_event(ch, &ev), 0);
	CHECK_EQ(ev->event, RDMA_CM_EVENT_ADDRINFO_ERROR);
	CHECK_EQ(ev->status, -ENOENT);
	rdma_ack_cm_event(ev);
	/* Destroyed while it is under way, or with an answer nobody asked for. */
	CHECK_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0);
	CHECK_EQ(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

static void resolve_synchronously(void)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_NUMERICHOST }, *res = NULL;
	struct rdma_cm_id *id;

	REQUIRE_EQ(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
	CHECK_ERRNO(rdma_resolve_addrinfo(id, "no.numbers", NULL, &hints), ENOENT);
	CHECK_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0);
	CHECK_EQ(id->event->event, RDMA_CM_EVENT_ADDRINFO_RESOLVED);
	REQUIRE_EQ(rdma_query_addrinfo(id, &res), 0);
	rdma_freeaddrinfo(res);
	CHECK_EQ(rdma_destroy_id(id), 0);
}

int main(int argc, char **argv)
{
	fake_init(argc, argv);
	T_RUN(nothing_given);
	T_RUN(active);
	T_RUN(passive);
	T_RUN(datagrams);
	T_RUN(from_hints_alone);
	T_RUN(gids_as_text);
	T_RUN(failures);
	T_RUN(resolve_without_waiting);
	T_RUN(resolve_synchronously);
	return fake_done();
}
