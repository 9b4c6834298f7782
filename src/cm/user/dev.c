/* SPDX-License-Identifier: BSD-2-Clause */
#include "cm/user/dev.h"

#include "base/log.h"

#include <dlfcn.h>
#include <errno.h>

const struct anyrdma_interface *cm_dev;

/* The libibverbs that this library is linked to is loaded already; only that one
 * counts, hence RTLD_NOLOAD and not a search. dlopen() needs memory all the same: a
 * failure says nothing about which library it is. */
int user_dev_probe(void)
{
	const struct anyrdma_interface *dev, *(*get)(void) = NULL;
	void *lib = dlopen("libibverbs.so.1", RTLD_NOLOAD | RTLD_LAZY);

	if (!lib)
		return log_refuse(ENOMEM, "libibverbs cannot be looked at");
	*(void **)&get = dlvsym(lib, "anyrdma_interface", "ANYRDMA_1");
	if (!get) {
		log_debug("libibverbs is the distribution's: kernel backend");
		return 0;
	}
	dev = get();
	if (dev->number != ANYRDMA_INTERFACE || dev->size != sizeof(*dev)) {
		log_error("librdmacm and libibverbs are of different builds: "
			  "interface %u of %u bytes wanted, %u of %u found",
			  ANYRDMA_INTERFACE, (unsigned)sizeof(*dev), dev->number,
			  dev->size);
		return -ENODEV;
	}
	cm_dev = dev;
	return 1;
}
