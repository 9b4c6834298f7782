/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cap.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

bool cap_effective(unsigned cap)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct d[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	if (syscall(SYS_capget, &h, d))
		return false;
	return d[0].effective >> cap & 1;
}
