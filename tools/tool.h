/* SPDX-License-Identifier: BSD-2-Clause */
/* What the commands of anyrdma share. */
#ifndef ANYRDMA_TOOLS_TOOL_H
#define ANYRDMA_TOOLS_TOOL_H

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses of env(1). */
enum { EXIT_OWN = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

/* Prints the message on stderr; returns the status. */
int fail(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int usage(void);

/* The folder of our libraries, beside the program's real path: ../lib/anyrdma
 * where it is installed, ../lib in a build tree. A plain ../lib elsewhere is the
 * distribution's and never taken. */
bool libs_find(char *out, size_t size);

/* Into LD_PRELOAD, behind what is there. */
bool preload_put(const char *library);

int cmd_run(char **argv);
int cmd_info(void);

#endif
