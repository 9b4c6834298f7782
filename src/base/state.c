/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/state.h"

#include <stdlib.h>
#include <string.h>

/* The linker's: where the section begins and ends in this library or program. */
extern char section_begin[] __asm__("__start_anyrdma_state")
	__attribute__((visibility("hidden")));
extern char section_end[] __asm__("__stop_anyrdma_state")
	__attribute__((visibility("hidden")));

_Atomic uint32_t state_generation_ = 1; /* 0: none, in memory that is zero */

static _Alignas(64) char image[128 << 10]; /* of the section, as it was loaded */

static size_t section_size(void)
{
	return (size_t)(section_end - section_begin);
}

/* Before anything of the library runs. Whether it fits is decided when the library is
 * linked. */
__attribute__((constructor(101))) static void image_take(void)
{
	if (section_size() > sizeof(image))
		abort();
	memcpy(image, section_begin, section_size());
}

#if defined(__SANITIZE_ADDRESS__)
#define STATE_KEEP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STATE_KEEP 1
#endif
#endif

#ifdef STATE_KEEP
/* Leak checkers look for pointers to what was allocated: that of earlier generations is
 * not freed, and not lost. */
static void **earlier;

static void state_keep(void)
{
	void **kept = malloc(sizeof(*kept) + section_size());

	if (!kept)
		return;
	kept[0] = earlier;
	memcpy(&kept[1], section_begin, section_size());
	earlier = kept;
}
#else
static inline void state_keep(void)
{
}
#endif

void state_end(void)
{
	atomic_fetch_add(&state_generation_, 1);
}

void state_renew(void)
{
	state_keep();
	memcpy(section_begin, image, section_size());
	atomic_fetch_add(&state_generation_, 1);
}
