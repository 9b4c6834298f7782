/* SPDX-License-Identifier: BSD-2-Clause */
/* Placement and scatter lists, with a key table of the test's own. */
#include "rc/stream.h"
#include "tests/t.h"

static int held;

int mr_get(struct dev_pd *pd, uint32_t key, uint64_t addr, uint64_t len, unsigned access,
	   struct mr_slot **ref, void **ptr)
{
	(void)pd, (void)len, (void)access;
	if (key != 7)
		return -ENOENT;
	*ref = (struct mr_slot *)&held;
	*ptr = (void *)(uintptr_t)addr;
	held++;
	return 0;
}

void mr_put(struct mr_slot *ref)
{
	(void)ref;
	held--;
}

static void maps_any_range(void)
{
	struct ibv_sge sge[3] = { { 1000, 10, 7 }, { 2000, 0, 7 }, { 3000, 20, 7 } };
	struct mr_slot *refs[3];
	struct iovec iov[3];

	for (uint32_t off = 0; off <= 30; off++) {
		for (uint32_t len = 0; off + len <= 30; len++) {
			int n = sge_map(NULL, sge, 3, off, len, 0, iov, refs, 3);
			size_t sum = 0;

			REQUIRE(n >= 0);
			for (int i = 0; i < n; i++)
				sum += iov[i].iov_len;
			CHECK_EQ(sum, len);
			if (len)
				CHECK_EQ((uintptr_t)iov[0].iov_base,
					 off < 10 ? 1000 + off : 3000 + off - 10);
			sge_unmap(refs, n);
		}
	}
	CHECK_EQ(held, 0);
}

static void a_bad_key_holds_nothing(void)
{
	struct ibv_sge sge[2] = { { 1000, 10, 7 }, { 2000, 10, 8 } };
	struct mr_slot *refs[2];
	struct iovec iov[2];

	CHECK_EQ(sge_map(NULL, sge, 2, 0, 20, 0, iov, refs, 2), -ENOENT);
	CHECK_EQ(held, 0);
	CHECK_EQ(sge_map(NULL, sge, 2, 0, 10, 0, iov, refs, 2), 1);
	sge_unmap(refs, 1);
}

static void places_every_length_and_alignment(void)
{
	uint8_t src[64], dst[96];

	for (int i = 0; i < 64; i++)
		src[i] = (uint8_t)(i + 1);
	for (size_t at = 0; at < 16; at++) {
		for (size_t len = 0; len <= 64; len++) {
			memset(dst, 0, sizeof(dst));
			place_bytes(dst + at, src, len);
			CHECK(!memcmp(dst + at, src, len));
			CHECK(dst[at + len] == 0 && (!at || dst[at - 1] == 0));
		}
	}
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(maps_any_range);
	T_RUN(a_bad_key_holds_nothing);
	T_RUN(places_every_length_and_alignment);
	return t_done();
}
