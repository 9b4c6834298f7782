/* SPDX-License-Identifier: BSD-2-Clause */
#include "shm/memid.h"
#include "tests/t.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_CALLS "process_vm_readv() is not allowed here"

enum { LEN = 3 * 4096, PIECES = 3 };

static uint8_t here[LEN], there[LEN];

/* here in pieces */
static int pieces(struct iovec *iov)
{
	iov[0] = (struct iovec){ here, 100 };
	iov[1] = (struct iovec){ here + 100, 4096 };
	iov[2] = (struct iovec){ here + 4196, LEN - 4196 };
	return PIECES;
}

static ssize_t copy(const struct memid *id, bool read, const void *at)
{
	struct iovec iov[PIECES];
	struct memid_io io = {
		.read = read, .iov = iov, .at = (uintptr_t)at, .len = LEN
	};

	io.n = pieces(iov);
	return memid_copy(id, getpid(), &io);
}

static void fill(uint8_t ours, uint8_t theirs)
{
	memset(here, ours, LEN);
	memset(there, theirs, LEN);
}

static bool is_all(const uint8_t *p, uint8_t v)
{
	return p[0] == v && !memcmp(p, p + 1, LEN - 1);
}

enum { NONCE = 77 };

static struct memid own(void)
{
	static struct memid_page *page;

	if (!page)
		page = memid_page_new(NONCE);
	CHECK(page);
	return (struct memid){ (uintptr_t)page, NONCE };
}

static void not_two_at_a_place(void)
{
	struct memid_page *a = memid_page_new(1), *b = memid_page_new(2);

	CHECK(a && b && a != b && a->nonce == 1 && b->nonce == 2);
	memid_page_free(a);
	memid_page_free(b);
	memid_page_free(NULL);
}

static void moves_data(void)
{
	struct memid id = own();

	SKIP_IF(!memid_of(&id, getpid()), NO_CALLS);
	fill(1, 2);
	CHECK_EQ(copy(&id, false, there), LEN);
	CHECK(is_all(there, 1));
	fill(3, 4);
	CHECK_EQ(copy(&id, true, there), LEN);
	CHECK(is_all(here, 4));
	CHECK(memid_of(&id, getpid())); /* writers have not written to the nonce */
}

/* Another nonce, or nothing at that place. */
static void closed(void)
{
	struct memid id = own(), wrong = id, none = id;
	void *p = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	SKIP_IF(!memid_of(&id, getpid()), NO_CALLS);
	wrong.nonce++;
	none.at = (uintptr_t)p;
	CHECK(!memid_of(&wrong, getpid()) && !memid_of(&none, getpid()));
	fill(1, 2);
	CHECK_EQ(copy(&none, false, there), -ESTALE);
	CHECK(is_all(there, 2));
	CHECK_EQ(copy(&none, true, there), -ESTALE);
	CHECK(is_all(here, 1));
	CHECK_EQ(copy(&wrong, true, there), -ESTALE);
	munmap(p, 4096);
}

/* The page is right, the rest is not mapped: that is not -ESTALE. */
static void bad_addresses(void)
{
	struct memid id = own();
	uint8_t *p = mmap(NULL, LEN + 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec many[MEMID_PIECES + 1] = { { here, 1 } };
	struct memid_io too_many = { .read = true, .iov = many, .n = MEMID_PIECES + 1,
				    .at = (uintptr_t)there, .len = 1 };

	SKIP_IF(!memid_of(&id, getpid()), NO_CALLS);
	CHECK(p != MAP_FAILED);
	munmap(p + 4096, LEN);
	CHECK_EQ(copy(&id, false, p + 4096), -EFAULT);
	CHECK_EQ(copy(&id, true, p + 4096), -EFAULT);
	CHECK_EQ(copy(&id, true, p), 4096); /* as far as it goes */
	munmap(p, 4096);
	CHECK_EQ(memid_copy(&id, getpid(), &too_many), -EINVAL);
}

static void by_descriptor(void)
{
	int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	struct memid id = own(), wrong = id;

	wrong.nonce++;
	CHECK(memid_in(&id, mem));
	CHECK(!memid_in(&wrong, mem));
	close(mem);
	CHECK(!memid_in(&id, mem));
}

static void not_for_children(void)
{
	struct memid id = own();
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(memid_of(&id, getpid()));
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
}

int main(int argc, char **argv)
{
	t_init(argc, argv);
	T_RUN(not_two_at_a_place);
	T_RUN(moves_data);
	T_RUN(closed);
	T_RUN(bad_addresses);
	T_RUN(by_descriptor);
	T_RUN(not_for_children);
	return t_done();
}
