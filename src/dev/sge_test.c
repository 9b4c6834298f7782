/* SPDX-License-Identifier: BSD-2-Clause */
/* Placement and scatter lists, with a key table of the test's own. */
#include "dev/sge.h"
#include "tests/t.h"

static int held;

int mr_get(struct dev_pd *pd, const struct mr_range *r, unsigned access,
	   struct mr_ref *ref)
{
	(void)pd, (void)access;
	if (r->key != 7)
		return -ENOENT;
	ref->slot = (struct mr_slot *)&held;
	ref->ptr = (void *)(uintptr_t)r->addr;
	held++;
	return 0;
}

int mr_get_remote(struct dev_pd *pd, const struct dev_qp *qp, const struct mr_range *r,
		  unsigned access, struct mr_ref *ref)
{
	(void)qp;
	return mr_get(pd, r, access, ref);
}

void mr_put(struct mr_slot *s)
{
	(void)s;
	held--;
}

static void maps_any_range(void)
{
	struct ibv_sge sge[3] = { { 1000, 10, 7 }, { 2000, 0, 7 }, { 3000, 20, 7 } };
	struct sge_list list = { .sge = sge, .n = 3 };
	struct mr_slot *refs[3];
	struct iovec iov[3];
	struct sge_mem mem = { iov, refs, 3 };

	for (uint32_t off = 0; off <= 30; off++) {
		for (uint32_t len = 0; off + len <= 30; len++) {
			int n = sge_map(&list, off, len, &mem);
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
	struct sge_list list = { .sge = sge, .n = 2 };
	struct mr_slot *refs[2];
	struct iovec iov[2];
	struct sge_mem mem = { iov, refs, 2 };
	struct mr_range bad = { 8, 2000, 10 };

	CHECK_EQ(sge_map(&list, 0, 20, &mem), -ENOENT);
	CHECK_EQ(sge_map_remote(NULL, NULL, &bad, 0, &mem), -ENOENT);
	CHECK_EQ(sge_check(&list), -ENOENT);
	CHECK_EQ(held, 0);
	CHECK_EQ(sge_map(&list, 0, 10, &mem), 1);
	CHECK_EQ(held, 1);
	sge_unmap(refs, 1);
}

static void too_few_entries_hold_nothing(void)
{
	struct ibv_sge sge[2] = { { 1000, 10, 7 }, { 2000, 10, 7 } };
	struct sge_list list = { .sge = sge, .n = 2 };
	struct mr_slot *refs[1];
	struct iovec iov[1];
	struct sge_mem mem = { iov, refs, 1 };

	CHECK_EQ(sge_map(&list, 0, 11, &mem), -E2BIG);
	CHECK_EQ(sge_map(&list, 10, 11, &mem), -ERANGE);
	CHECK_EQ(held, 0);
}

static void maps_remote_memory(void)
{
	struct mr_range r = { 7, 1000, 10 };
	struct mr_slot *refs[1];
	struct iovec iov[1];
	struct sge_mem mem = { iov, refs, 1 };

	CHECK_EQ(sge_map_remote(NULL, NULL, &r, 0, &mem), 1);
	CHECK_EQ((uintptr_t)iov[0].iov_base, 1000);
	CHECK_EQ(iov[0].iov_len, 10);
	CHECK_EQ(held, 1);
	sge_unmap(refs, 1);
	CHECK_EQ(held, 0);
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
	T_RUN(too_few_entries_hold_nothing);
	T_RUN(maps_remote_memory);
	T_RUN(places_every_length_and_alignment);
	return t_done();
}
