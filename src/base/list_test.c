/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/be.h"
#include "base/list.h"
#include "tests/t.h"

struct item {
	int n;
	struct list link;
};

static void keeps_order(void)
{
	struct list head = LIST_INIT(head);
	struct item it[4] = { { .n = 0 }, { .n = 1 }, { .n = 2 }, { .n = 3 } }, *p;
	int want = 0;

	for (int i = 1; i < 4; i++)
		list_add_tail(&head, &it[i].link);
	list_add_head(&head, &it[0].link);
	list_for_each(p, &head, link)
		CHECK_EQ(p->n, want++);
	CHECK_EQ(want, 4);
	CHECK(list_pop(&head) == &it[0].link);
	CHECK(!list_linked(&it[0].link));
	CHECK(list_linked(&it[1].link));
}

static void deletes_anywhere(void)
{
	struct list head = LIST_INIT(head);
	struct item it[5] = { 0 }, *p, *tmp;
	struct item loose = { 0 };
	int left = 0;

	list_del(&loose.link);
	CHECK(!list_linked(&loose.link));
	for (int i = 0; i < 5; i++) {
		it[i].n = i;
		list_add_tail(&head, &it[i].link);
	}
	list_for_each_safe(p, tmp, &head, link)
		if (p->n % 2 == 0)
			list_del(&p->link);
	list_for_each(p, &head, link)
		left = left * 10 + p->n;
	CHECK_EQ(left, 13);
	list_del(&it[1].link);
	list_del(&it[1].link);
	list_del(&it[3].link);
	CHECK(list_empty(&head));
	CHECK(list_pop(&head) == NULL);
}

static void big_endian(void)
{
	uint8_t b[8];

	be64_put(b, 0x0102030405060708);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(b[i], i + 1);
	CHECK_EQ(be16_get(b), 0x0102);
	CHECK_EQ(be32_get(b), 0x01020304);
	CHECK_EQ(be64_get(b), 0x0102030405060708);
	b[0] = b[1] = b[2] = b[3] = 0xff;
	CHECK_EQ(be16_get(b), 0xffff);
	CHECK_EQ(be32_get(b), 0xffffffffu);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(keeps_order);
	T_RUN(deletes_anywhere);
	T_RUN(big_endian);
	return t_done();
}
