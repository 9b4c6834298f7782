/* SPDX-License-Identifier: BSD-2-Clause */
/* For fuzz targets that play a peer which sends descriptors over a unix socket. */
#ifndef ANYRDMA_FUZZ_PASSING_H
#define ANYRDMA_FUZZ_PASSING_H

#include "must.h"
#include "shm/greeting.h"
#include "tests/fdpassing.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PASS_MAX = 3 }; /* descriptors that an input may ask for in one message */

/* A socket that the library has closed is no fault. */
static void pass_message(int sock, const void *msg, size_t len, const int *fds, unsigned n)
{
	if (fdpassing_send(sock, msg, len, fds, n, MSG_DONTWAIT) < 0)
		MUST(errno == EPIPE || errno == ECONNRESET || errno == EAGAIN);
}

/* A descriptor, by its number in an input: 0 `good`, 1 the process's memory, 2 memory
 * without seals, 3 a pipe, 4 an eventfd, 5 a socket, 6 a device, 7 a directory. */
static int pass_fd_of_kind(uint8_t kind, int good)
{
	static int end[2] = { -1, -1 }, ends[2], fd[7];

	if (end[0] < 0) {
		MUST(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, end));
		fd[0] = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		fd[1] = memfd_create("fuzz", MFD_CLOEXEC);
		MUST(!pipe(ends));
		fd[2] = ends[1];
		fd[3] = eventfd(1, EFD_CLOEXEC);
		fd[4] = end[0];
		fd[5] = open("/dev/null", O_RDWR | O_CLOEXEC);
		fd[6] = open("/", O_PATH | O_CLOEXEC);
	}
	return kind % 8 ? fd[kind % 8 - 1] : good;
}

#endif
