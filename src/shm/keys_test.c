/* SPDX-License-Identifier: BSD-2-Clause */
/* A table that the test owns: which rows become accessible as it grows. */
#include "shm/keys.h"
#include "tests/t.h"

#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define NAME "keys of a test"

enum { QPS_END = offsetof(struct share_table, key), ROW = sizeof(struct share_key) };

static off_t end_of(uint32_t rows)
{
	return QPS_END + (off_t)rows * ROW;
}

/* The key of a row, by key_xor 0, key_inv 1. */
static uint32_t key_of(uint32_t row)
{
	return row << 8 | 0x5a;
}

static int table_file(off_t size, int seals)
{
	const uint32_t head[] = { SHARE_VERSION, 0, 1 };
	int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || pwrite(fd, head, sizeof(head), 0) != sizeof(head) ||
	    ftruncate(fd, size) || fcntl(fd, F_ADD_SEALS, seals))
		abort();
	return fd;
}

static void row_write(int fd, uint32_t row)
{
	uint32_t key = key_of(row);

	if (pwrite(fd, &key, sizeof(key), end_of(row)) != sizeof(key))
		abort();
}

/* How far the file's mappings can be read; 0: there is none. *all: as far as they
 * reach. */
static off_t readable_end(off_t *all)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned long from, to, off;
	off_t end = 0;
	char line[512], perm[5];

	*all = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (!strstr(line, NAME) ||
		    sscanf(line, "%lx-%lx %4s %lx", &from, &to, perm, &off) != 4)
			continue;
		*all = (off_t)(off + (to - from));
		if (perm[0] == 'r')
			end = *all;
		CHECK(perm[1] == '-');
	}
	if (f)
		fclose(f);
	return end;
}

static void what_is_no_table(void)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_SEAL;
	int none[] = { table_file(end_of(1), F_SEAL_SEAL),
		       table_file(end_of(1), F_SEAL_SHRINK),
		       table_file(QPS_END - 1, seals),
		       open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
		       -1 };
	struct keys k;
	off_t all;

	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		CHECK(keys_open(&k, none[i]) < 0);
		CHECK(!k.t && k.fd < 0);
		keys_close(&k);
		if (none[i] >= 0)
			close(none[i]);
	}
	CHECK_EQ(readable_end(&all), 0);
	CHECK_EQ(all, 0);
}

/* Never a page that the file does not have. */
static void open_as_far_as_the_file(void)
{
	int fd = table_file(QPS_END, F_SEAL_SHRINK | F_SEAL_SEAL);
	static const uint32_t rows[] = {
		1, 63, 64, 65, 4000, SHARE_KEYS - 1, SHARE_KEYS
	};
	const struct share_key *r;
	struct keys k;
	off_t all;

	REQUIRE(keys_open(&k, fd) == 0);
	CHECK_EQ(atomic_load(&k.t->qp[SHARE_QPS - 1].word), 0);
	CHECK(!keys_row(&k, key_of(0)));
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t last = rows[i] - 1;

		REQUIRE(ftruncate(fd, end_of(rows[i]) - 1) == 0);
		CHECK(!keys_row(&k, key_of(last))); /* not as a whole */
		REQUIRE(ftruncate(fd, end_of(rows[i])) == 0);
		row_write(fd, last);
		r = keys_row(&k, key_of(last));
		REQUIRE(r);
		CHECK(r == &k.t->key[last] && r->key == key_of(last));
		CHECK(!keys_row(&k, key_of(rows[i])));
		CHECK(!keys_row(&k, key_of(SHARE_KEY_MASK)));
		CHECK_EQ(readable_end(&all), t_page_up(end_of(rows[i])));
		CHECK_EQ(all, t_page_up(sizeof(struct share_table)));
	}
	keys_close(&k);
	CHECK_EQ(readable_end(&all), 0);
	CHECK_EQ(all, 0);
	close(fd);
}

/* A file that is larger than any table: what is behind the table is not mapped. */
static void no_further_than_the_table(void)
{
	int fd = table_file(end_of(10), F_SEAL_SHRINK | F_SEAL_SEAL);
	struct keys k, late;
	off_t all;

	REQUIRE(keys_open(&k, fd) == 0);
	REQUIRE(ftruncate(fd, end_of(SHARE_KEYS) * 4) == 0);
	CHECK(!keys_row(&k, key_of(SHARE_KEYS)));
	CHECK(keys_row(&k, key_of(SHARE_KEYS - 1)));
	CHECK(!keys_row(&k, key_of(SHARE_KEYS)));
	CHECK_EQ(readable_end(&all), t_page_up(sizeof(struct share_table)));
	REQUIRE(keys_open(&late, fd) == 0);
	CHECK(keys_row(&late, key_of(SHARE_KEYS - 1)));
	CHECK(!keys_row(&late, key_of(SHARE_KEYS)));
	keys_close(&late);
	keys_close(&k);
	close(fd);
}

/* A page of the file that is never read gets no memory. */
static void costs_no_memory(void)
{
	int fd = table_file(end_of(SHARE_KEYS / 2), F_SEAL_SHRINK | F_SEAL_SEAL);
	struct stat before, after;
	struct keys k;

	REQUIRE(fstat(fd, &before) == 0);
	REQUIRE(keys_open(&k, fd) == 0);
	REQUIRE(ftruncate(fd, end_of(SHARE_KEYS)) == 0);
	CHECK(keys_row(&k, key_of(SHARE_KEYS - 1)));
	REQUIRE(fstat(fd, &after) == 0);
	CHECK_EQ(after.st_blocks, before.st_blocks);
	keys_close(&k);
	close(fd);
}

enum { READERS = 3, STEP = 4096, STEPS = SHARE_KEYS / STEP };

static struct {
	struct keys k;
	_Atomic uint32_t steps; /* so many rows are written: n * STEP */
	_Atomic uint32_t wrong;
} race;

/* Finds every row that is there, the newest first. */
static void *reads(void *arg)
{
	uint32_t n;

	(void)arg;
	do {
		n = atomic_load(&race.steps);
		for (uint32_t i = n; i-- && i + 8 > n;) {
			uint32_t key = key_of(i * STEP);
			const struct share_key *r = keys_row(&race.k, key);

			if (!r || atomic_load(&r->key) != key)
				atomic_fetch_add(&race.wrong, 1);
		}
	} while (n < STEPS);
	return NULL;
}

static void many_look_while_it_grows(void)
{
	int fd = table_file(QPS_END, F_SEAL_SHRINK | F_SEAL_SEAL);
	pthread_t th[READERS];

	REQUIRE(keys_open(&race.k, fd) == 0);
	for (unsigned i = 0; i < READERS; i++)
		REQUIRE(pthread_create(&th[i], NULL, reads, NULL) == 0);
	for (uint32_t i = 0; i < STEPS; i++) {
		REQUIRE(ftruncate(fd, end_of(i * STEP + 1)) == 0);
		row_write(fd, i * STEP);
		atomic_store(&race.steps, i + 1);
	}
	for (unsigned i = 0; i < READERS; i++)
		pthread_join(th[i], NULL);
	CHECK_EQ(race.wrong, 0);
	CHECK_EQ(race.k.rows, (STEPS - 1) * STEP + 1);
	keys_close(&race.k);
	close(fd);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(what_is_no_table);
	T_RUN(open_as_far_as_the_file);
	T_RUN(no_further_than_the_table);
	T_RUN(costs_no_memory);
	T_RUN(many_look_while_it_grows);
	return t_done();
}
