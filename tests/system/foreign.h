/* SPDX-License-Identifier: BSD-2-Clause */
/* What a process can reach of another process's memory: by system calls that the kernel
 * allows, and by descriptors and mappings that it has already. This file does not need
 * conf.h: a program that was exec'ed uses it as well. It defines recvmsg() and syscall()
 * of the program, so that descriptors which the library receives and closes are kept: a
 * hostile peer would do that. */
#ifndef ANYRDMA_TESTS_FOREIGN_H
#define ANYRDMA_TESTS_FOREIGN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Words of a process's memory that it has not registered. Each way of writing has its
 * own, so that the process knows what was done to it. */
enum { TARGET_READ, TARGET_BY_KERNEL, TARGET_BY_HELD, TARGET_WORDS };

struct target {
	_Atomic pid_t pid; /* in the namespace of who started it; 0: not known yet */
	uint64_t at;	   /* of the words */
	uint64_t secret;   /* what they all are */
};

struct foreign {
	/* descriptors of another process's memory, and whether the target was reached by
	 * one */
	unsigned mem;
	bool read, written;
	/* tables of keys that are not our own: descriptors and mappings */
	unsigned keys;
	/* descriptors of both kinds that came by any socket so far */
	unsigned mem_sent, keys_sent;
	unsigned links; /* mapped */
	bool blind;	/* /proc does not tell */
};

/* Tries with what this process holds now. */
struct foreign foreign_look(const struct target *t);
/* Tries process_vm_readv(), process_vm_writev() and /proc/PID/mem: one of them works. */
bool foreign_by_kernel(const struct target *t);

#endif
