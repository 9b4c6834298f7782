/* SPDX-License-Identifier: BSD-2-Clause */
#include "late.h"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int late_open(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Without this right a process sees faults in user space alone. */
void late_need(void)
{
	int fd = late_open();

	if (fd < 0)
		SKIP("no userfaultfd here: %s", strerror(errno));
	close(fd);
}

void late_take(struct late *l, uint8_t *p)
{
	struct uffdio_register r = { .range = { (uintptr_t)p, LATE_PAGE },
				     .mode = UFFDIO_REGISTER_MODE_MISSING };

	EQ(sysconf(_SC_PAGESIZE), LATE_PAGE);
	EQ((uintptr_t)p % LATE_PAGE, 0);
	l->page = p;
	memcpy(l->data, p, LATE_PAGE);
	CHECK((l->fd = late_open()) >= 0);
	OK(madvise(p, LATE_PAGE, MADV_NOHUGEPAGE));
	OK(ioctl(l->fd, UFFDIO_REGISTER, &r));
	OK(madvise(p, LATE_PAGE, MADV_DONTNEED));
}

void late_give(struct late *l)
{
	struct uffdio_copy c = { .dst = (uintptr_t)l->page,
				 .src = (uintptr_t)l->data,
				 .len = LATE_PAGE };

	OK(ioctl(l->fd, UFFDIO_COPY, &c));
	OK(close(l->fd));
	l->fd = -1;
}
