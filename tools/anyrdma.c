/* SPDX-License-Identifier: BSD-2-Clause */
/* anyrdma run|info|version: see man/anyrdma.1.scd. */
#include "tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
	"usage: anyrdma run [--sockets] COMMAND [ARGUMENT...]\n"
	"       anyrdma info\n"
	"       anyrdma version\n"
	"\n"
	"run      runs COMMAND with anyrdma's librdmacm and libibverbs in front;\n"
	"         with --sockets its TCP connections to programs run alike become rsockets\n"
	"info     shows the device, its addresses, the port mapping and all settings\n"
	"version  shows the version\n"
	"\n"
	"Settings are environment variables: see anyrdma(7) or `anyrdma info`.\n";

int fail(int status, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "anyrdma: ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	return status;
}

int usage(void)
{
	fputs(text, stderr);
	return EXIT_OWN;
}

int main(int argc, char **argv)
{
	const char *cmd = argc > 1 ? argv[1] : "";

	if (!strcmp(cmd, "run"))
		return cmd_run(argv + 2);
	if (!strcmp(cmd, "info") && argc == 2)
		return cmd_info();
	if (!strcmp(cmd, "version") || !strcmp(cmd, "--version")) {
		printf("anyrdma %s\n", ANYRDMA_VERSION);
		return 0;
	}
	if (!strcmp(cmd, "help") || !strcmp(cmd, "--help") || !strcmp(cmd, "-h")) {
		fputs(text, stdout);
		return 0;
	}
	return usage();
}
