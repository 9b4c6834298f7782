/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/pages.h"
#include "tests/t.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGES = 200 };

static size_t page;

static char *map(size_t pages, int prot)
{
	char *p = mmap(NULL, pages * page, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* Neighbours would come with it. */
	if (p == MAP_FAILED || madvise(p, pages * page, MADV_NOHUGEPAGE))
		abort();
	return p;
}

/* An answer may be as old as a tick of the clock. */
static bool gone_in_time(const char *p, size_t len)
{
	struct timespec t = { .tv_nsec = 1000000 };

	for (int i = 0; i < 1000; i++) {
		if (!pages_present(p, len))
			return true;
		nanosleep(&t, NULL);
	}
	return false;
}

static void what_was_touched_is_present(void)
{
	char *p = map(PAGES, PROT_READ | PROT_WRITE);

	CHECK(!pages_present(p, 1));
	memset(p, 1, PAGES * page);
	CHECK(pages_present(p, PAGES * page));
	CHECK(pages_present(p + 5, PAGES * page - 5));
	CHECK(pages_present(p + 1, 0));
	munmap(p, PAGES * page);
}

/* Each single page, by every range that touches it, at every place in a group. */
static void one_page_is_missed(void)
{
	char *p = map(PAGES, PROT_READ | PROT_WRITE);

	memset(p, 1, PAGES * page);
	for (size_t i = 0; i < PAGES; i += 7) {
		REQUIRE(!madvise(p + i * page, page, MADV_DONTNEED));
		CHECK(gone_in_time(p, PAGES * page));
		CHECK(!pages_present(p + i * page, page));
		CHECK(!pages_present(p + i * page + page - 1, 1));
		CHECK(!i || !pages_present(p + i * page - 1, 2));
		CHECK(!i || pages_present(p, i * page));
		CHECK(pages_present(p + (i + 1) * page, (PAGES - i - 1) * page));
		p[i * page] = 1;
		CHECK(pages_present(p, PAGES * page));
	}
	munmap(p, PAGES * page);
}

static void they_come(void)
{
	char *p = map(PAGES, PROT_READ | PROT_WRITE);

	p[3 * page] = 7;
	pages_populate(p + 1, PAGES * page - 2, true);
	CHECK(pages_present(p, PAGES * page));
	CHECK(p[3 * page] == 7 && !p[4 * page]);
	REQUIRE(!madvise(p, PAGES * page, MADV_DONTNEED));
	CHECK(gone_in_time(p, page));
	pages_populate(p, PAGES * page, false);
	CHECK(pages_present(p, PAGES * page));
	CHECK(!p[3 * page]);
	munmap(p, PAGES * page);
}

/* Whoever touches it learns what is wrong. errno is that of the application. */
static void what_is_not_mapped_counts_as_present(void)
{
	char *p = map(3, PROT_READ | PROT_WRITE);

	memset(p, 1, page);
	memset(p + 2 * page, 1, page);
	munmap(p + page, page);
	errno = 77;
	CHECK(pages_present(p, page));
	CHECK(pages_present(p + 2 * page, page));
	CHECK(pages_present(p + page, page));
	pages_populate(p, 3 * page, true);
	CHECK_EQ(errno, 77);
	munmap(p, page);
	munmap(p + 2 * page, page);
	p = map(1, PROT_READ);
	pages_populate(p, page, true);
	CHECK_EQ(errno, 77);
	munmap(p, page);
}

#define POPULATE_READ 22 /* headers may be older than the kernel */

static void presence(void)
{
	SKIP_IF(madvise(NULL, 0, POPULATE_READ), "pages cannot be asked for before Linux 5.14");
	what_was_touched_is_present();
	one_page_is_missed();
	they_come();
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	page = (size_t)sysconf(_SC_PAGESIZE);
	T_RUN(presence);
	T_RUN(what_is_not_mapped_counts_as_present);
	return t_done();
}
