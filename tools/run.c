/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/conf.h"
#include "base/log.h"
#include "show.h"
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The file that execvp would take; false when there is none. */
static bool find_command(const char *name, char *out, size_t size)
{
	const char *path = getenv("PATH"), *end;

	if (strchr(name, '/')) {
		snprintf(out, size, "%s", name);
		return access(out, F_OK) == 0;
	}
	for (; path; path = *end ? end + 1 : NULL) {
		end = strchrnul(path, ':');
		snprintf(out, size, "%.*s/%s", end == path ? 1 : (int)(end - path),
			 end == path ? "." : path, name);
		if (access(out, X_OK) == 0)
			return true;
	}
	return false;
}

/* The dynamic linker drops LD_LIBRARY_PATH for programs that gain privileges:
 * they would run on the distribution's libraries without a word. */
static bool gains_privileges(const char *file)
{
	struct stat st;

	if (stat(file, &st) || !S_ISREG(st.st_mode))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return true;
	if ((st.st_mode & S_ISGID) && st.st_gid != getgid())
		return true;
	return getuid() != 0 && getxattr(file, "security.capability", NULL, 0) > 0;
}

static bool put_in_front(const char *dir)
{
	const char *old = getenv("LD_LIBRARY_PATH");
	size_t len = strlen(dir);
	char *value;
	bool done;

	if (!old || !*old)
		return setenv("LD_LIBRARY_PATH", dir, 1) == 0;
	if (!strncmp(old, dir, len) && (!old[len] || old[len] == ':'))
		return true;
	if (asprintf(&value, "%s:%s", dir, old) < 0)
		return false;
	done = setenv("LD_LIBRARY_PATH", value, 1) == 0;
	free(value);
	return done;
}

/* A program that does not look for files runs as well without them. */
static void show(void)
{
	static struct show s;

	s.dev = files_model_read(&s.n);
	if (!s.dev)
		return;
	if (show_files(&s) == SHOW_NOT && conf_get()->files != CONF_FILES_OFF)
		log_warn("/sys/class/infiniband and /dev/infiniband are not shown: "
			 "`anyrdma info` says why");
	free(s.dev);
}

/* Connections of sockets programs move to rsockets. */
static int add_sockets(const char *dir)
{
	char path[PATH_MAX + 128];

	snprintf(path, sizeof(path), "%s/librspreload.so", dir);
	if (access(path, R_OK))
		return fail(EXIT_OWN, "%s: %s", path, strerror(errno));
	if (strchr(path, ' '))
		return fail(EXIT_OWN, "%s: LD_PRELOAD cannot name a file with a space", path);
	if (!preload_put(path))
		return fail(EXIT_OWN, "environment: %s", strerror(errno));
	return 0;
}

int cmd_run(char **argv)
{
	char dir[PATH_MAX + 64], file[PATH_MAX + 64];
	bool sockets = false;
	int status;

	if (*argv && !strcmp(*argv, "--sockets")) {
		sockets = true;
		argv++;
	}
	if (*argv && !strcmp(*argv, "--"))
		argv++;
	if (!*argv)
		return usage();
	if (!libs_find(dir, sizeof(dir)))
		return fail(EXIT_OWN, "librdmacm.so.1 and libibverbs.so.1 are in neither "
			    "../lib/anyrdma nor a build tree's ../lib of this program");
	if (strpbrk(dir, ":;"))
		return fail(EXIT_OWN, "%s: LD_LIBRARY_PATH cannot name a folder with a "
			    "colon or a semicolon", dir);
	if (find_command(*argv, file, sizeof(file)) && gains_privileges(file))
		return fail(EXIT_CANNOT_RUN, "%s gains privileges when run, so the dynamic "
			    "linker would ignore our libraries", file);
	if (!put_in_front(dir))
		return fail(EXIT_OWN, "environment: %s", strerror(errno));
	status = sockets ? add_sockets(dir) : 0;
	if (status)
		return status;
	show();
	execvp(*argv, argv);
	return fail(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN, "%s: %s", *argv,
		    strerror(errno));
}
