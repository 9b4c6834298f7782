/* SPDX-License-Identifier: BSD-2-Clause */
#include "preload/real.h"
#include "base/log.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct real real;
struct rs rs;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER; /* loaded below */
static enum { NOT_TRIED, USABLE, ABSENT } loaded;

static void *next(const char *name, bool needed)
{
	void *sym = dlsym(RTLD_NEXT, name);

	if (!sym && needed) {
		fprintf(stderr, "librspreload: the C library has no %s\n", name);
		abort();
	}
	return sym;
}

void real_load(void)
{
#define X(name) real.name = (__typeof__(real.name))next(#name, true);
	REAL_NAMES(X)
#undef X
#define X(name) real.name = (__typeof__(real.name))next(#name, false);
	REAL_NEWER(X)
#undef X
	__atomic_store_n(&real.ready, true, __ATOMIC_RELEASE);
}

/* By name, as programs find it; else the folder above our own, where both are installed. */
static void *rdmacm_open(void)
{
	void *lib = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
	char path[PATH_MAX + 32];
	Dl_info info;
	char *slash;

	if (lib || !dladdr((void *)rdmacm_open, &info))
		return lib;
	snprintf(path, PATH_MAX, "%s", info.dli_fname);
	slash = strrchr(path, '/');
	strcpy(slash ? slash + 1 : path, "../librdmacm.so.1");
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static bool rs_find(void)
{
	void *lib = rdmacm_open();

	if (!lib) {
		log_info("connections stay on TCP: %s", dlerror());
		return false;
	}
#define X(name) \
	rs.name = (__typeof__(rs.name))dlsym(lib, #name); \
	if (!rs.name) { \
		log_info("connections stay on TCP: this librdmacm has no " #name); \
		return false; \
	}
	RS_NAMES(X)
#undef X
	return true;
}

bool rs_load(void)
{
	bool usable;

	pthread_mutex_lock(&load_lock);
	if (loaded == NOT_TRIED)
		loaded = rs_find() ? USABLE : ABSENT;
	usable = loaded == USABLE;
	pthread_mutex_unlock(&load_lock);
	return usable;
}

static bool is_ours(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	return !strncmp(base, "librdmacm.so", 12) || !strncmp(base, "libibverbs.so", 13);
}

/* Call sites are few: what was found about them is kept. */
bool rs_calls(const void *caller)
{
	static _Atomic(uintptr_t)
		known[64]; /* the site, and whether it is theirs in bit 63 */
	uintptr_t site = (uintptr_t)caller, theirs = (uintptr_t)1 << 63;
	_Atomic(uintptr_t) *slot = &known[(site ^ site >> 6 ^ site >> 12) % 64];
	uintptr_t old = atomic_load_explicit(slot, memory_order_relaxed);
	Dl_info info;
	bool is;

	if ((old & ~theirs) == site)
		return old & theirs;
	is = dladdr(caller, &info) && info.dli_fname && is_ours(info.dli_fname);
	atomic_store_explicit(slot, site | (is ? theirs : 0), memory_order_relaxed);
	return is;
}
