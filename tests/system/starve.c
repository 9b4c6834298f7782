/* SPDX-License-Identifier: BSD-2-Clause */
#include "starve.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* The sanitizer has replaced them, too: its own are the next ones. */
#define REAL_MALLOC __interceptor_malloc
#define REAL_CALLOC __interceptor_calloc
#define REAL_REALLOC __interceptor_realloc
#define REAL_MEMALIGN __interceptor_memalign
/* The dynamic linker's, which the sanitizer knows by their caller. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:_dl_\nleak:dl_open_worker\n";
}

/* A sanitizer does not survive failures of its own; so only those of our libraries. Not
 * inline: malloc() is called before the sanitizer is ready for its variable. */
static __attribute__((noinline)) bool counts(const void *caller)
{
	Dl_info info;

	return dladdr(caller, &info) && (strstr(info.dli_fname, "libibverbs") ||
					 strstr(info.dli_fname, "librdmacm"));
}
#else
/* The C library's own, under the names that it keeps for those who replace them. */
#define REAL_MALLOC __libc_malloc
#define REAL_CALLOC __libc_calloc
#define REAL_REALLOC __libc_realloc
#define REAL_MEMALIGN __libc_memalign

static bool counts(const void *caller)
{
	(void)caller;
	return true;
}
#endif
extern void *REAL_MALLOC(size_t size);
extern void *REAL_CALLOC(size_t n, size_t size);
extern void *REAL_REALLOC(void *p, size_t size);
extern void *REAL_MEMALIGN(size_t align, size_t size);

static atomic_uint nth, seen;
static atomic_bool go_on;

void starve(unsigned n, bool on)
{
	atomic_store(&nth, 0);
	atomic_store(&go_on, on);
	atomic_store(&seen, 0);
	atomic_store(&nth, n);
}

bool starve_met(void)
{
	return atomic_load(&seen) >= atomic_load(&nth);
}

static bool fails(const void *caller)
{
	unsigned n = atomic_load(&nth), i;

	if (!n || !counts(caller))
		return false;
	i = atomic_fetch_add(&seen, 1) + 1;
	if (i != n && (i < n || !atomic_load(&go_on)))
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : REAL_MALLOC(size);
}

void *calloc(size_t n, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : REAL_CALLOC(n, size);
}

void *realloc(void *p, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : REAL_REALLOC(p, size);
}

void *memalign(size_t align, size_t size);
void *memalign(size_t align, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : REAL_MEMALIGN(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : REAL_MEMALIGN(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
	void *p = fails(__builtin_return_address(0)) ? NULL : REAL_MEMALIGN(align, size);

	if (!p)
		return ENOMEM;
	*out = p;
	return 0;
}
