/* SPDX-License-Identifier: BSD-2-Clause */
/* The backends of librdmacm. The kernel's is last: it serves every process. */
#include "cm/backend.h"

const struct cm_backend *const cm_backends[] = {
	&cm_backend_user,
	&cm_backend_kernel,
	NULL,
};
