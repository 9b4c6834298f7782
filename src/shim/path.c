/* SPDX-License-Identifier: BSD-2-Clause */
#include "shim/shim.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Must agree with files/tree.h. */
#define PCI "/sys/devices/pcia4da:"

static struct {
	pthread_once_t once;
	char root[PATH_MAX]; /* ANYRDMA_TREE; "": there is none */
	size_t len;
	bool class_is_ours; /* /sys/class does not list infiniband itself */
	bool cwd;	    /* the working folder is in /sys or /dev: atomic */
} tree = { .once = PTHREAD_ONCE_INIT };

static long raw_access(const char *path)
{
	return syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
}

/* Of the kernel: with the 0 at its end. */
static long raw_getcwd(char *out)
{
	return syscall(SYS_getcwd, out, PATH_MAX / 2);
}

static void cwd_look(void)
{
	char cwd[PATH_MAX];
	bool is = raw_getcwd(cwd) > 0 &&
		  (!strncmp(cwd, "/sys", 4) || !strncmp(cwd, "/dev", 4));

	__atomic_store_n(&tree.cwd, is, __ATOMIC_RELAXED);
}

static void tree_find(void)
{
	const char *root = secure_getenv("ANYRDMA_TREE");
	int err = errno;

	if (root && *root == '/' && strlen(root) < PATH_MAX / 2 && !raw_access(root)) {
		tree.len = strlen(root);
		memcpy(tree.root, root, tree.len);
		tree.class_is_ours = raw_access("/sys/class/infiniband") != 0;
		cwd_look();
	}
	errno = err;
}

/* path[0..len) or a path below it. */
static bool below(const char *path, const char *of)
{
	size_t len = strlen(of);

	return !strncmp(path, of, len) && (!path[len] || path[len] == '/');
}

/* Without double slashes and /./; a slash at the end goes, too. */
static bool normalize(const char *path, char *out)
{
	size_t n = 0;

	while (*path) {
		if (path[0] == '/' && (path[1] == '/' || !path[1])) {
			path++;
		} else if (path[0] == '/' && path[1] == '.' && (path[2] == '/' || !path[2])) {
			path += 2;
		} else {
			if (n + 1 >= PATH_MAX / 2)
				return false;
			out[n++] = *path++;
		}
	}
	out[n] = 0;
	return true;
}

static bool in_tree(const char *name, enum shim_use use)
{
	if (below(name, "/sys/class/infiniband") || below(name, "/sys/class/infiniband_verbs"))
		return true;
	if (!strncmp(name, PCI, strlen(PCI)))
		return true;
	return use == SHIM_LIST && tree.class_is_ours && !strcmp(name, "/sys/class");
}

static ssize_t raw_readlink(const char *path, char *out, size_t size)
{
	return syscall(SYS_readlinkat, AT_FDCWD, path, out, size);
}

/* The nodes are links: to /dev/null for ours, to where they are for real ones. */
static const char *node_path(const char *name, struct shim_path *buf)
{
	char target[PATH_MAX];
	ssize_t n;

	memcpy(buf->text, tree.root, tree.len);
	strcpy(buf->text + tree.len, name);
	n = raw_readlink(buf->text, target, sizeof(target) - 1);
	if (n > 0) {
		memcpy(buf->text, target, (size_t)n);
		buf->text[n] = 0;
	}
	return buf->text;
}

static const char *find(const char *path, enum shim_use use, struct shim_path *buf)
{
	char name[PATH_MAX];

	if (!normalize(path, name))
		return path;
	if (below(name, "/dev/infiniband"))
		return node_path(name, buf);
	if (!in_tree(name, use))
		return path;
	memcpy(buf->text, tree.root, tree.len);
	strcpy(buf->text + tree.len, name + 4); /* without /sys */
	return buf->text;
}

/* A relative path, from a working folder that is a real one. Only "../" at its beginning is
 * taken away: what is behind a name may be behind a link. */
static const char *find_from_cwd(const char *path, enum shim_use use, struct shim_path *buf)
{
	char full[PATH_MAX];
	const char *found, *rest = path;
	char *slash;
	size_t len;

	if (raw_getcwd(full) <= 0 || full[0] != '/')
		return path;
	while (!strncmp(rest, "../", 3) || !strcmp(rest, "..")) {
		slash = strrchr(full, '/');
		*slash = 0;
		rest += rest[2] ? 3 : 2;
	}
	len = strlen(full);
	if (len + 1 + strlen(rest) >= PATH_MAX / 2)
		return path;
	full[len] = '/';
	strcpy(full + len + 1, rest);
	found = find(full, use, buf);
	return found == full ? path : found;
}

const char *shim_path(const char *path, enum shim_use use, struct shim_path *buf)
{
	int err = errno;

	if (!path || !*path)
		return path;
	/* Most paths are none of ours: seen by their beginning. */
	if (path[0] == '/' && strncmp(path, "/sys", 4) && strncmp(path, "/dev", 4) &&
	    path[1] != '/' && path[1] != '.')
		return path;
	pthread_once(&tree.once, tree_find);
	if (!tree.len)
		return path;
	if (path[0] == '/')
		path = find(path, use, buf);
	else if (__atomic_load_n(&tree.cwd, __ATOMIC_RELAXED))
		path = find_from_cwd(path, use, buf);
	errno = err;
	return path;
}

const char *shim_path_at(int dir, const char *path, enum shim_use use,
			 struct shim_path *buf)
{
	/* From a folder of the tree it goes its own way. */
	if (dir != AT_FDCWD && path && path[0] != '/')
		return path;
	return shim_path(path, use, buf);
}

void shim_cwd_changed(void)
{
	int err = errno;

	if (tree.len)
		cwd_look();
	errno = err;
}

bool shim_is_node(const char *path)
{
	struct shim_path buf;

	return path && below(path, "/dev/infiniband") &&
	       !strcmp(shim_path(path, SHIM_FILE, &buf), "/dev/null");
}

size_t shim_name(char *path)
{
	size_t len = strlen(path), cut;
	const char *root;

	pthread_once(&tree.once, tree_find);
	if (!tree.len || !below(path, tree.root))
		return len;
	cut = tree.len;
	root = below(path + cut, "/dev") ? "" : "/sys";
	memmove(path + strlen(root), path + cut, len - cut + 1);
	memcpy(path, root, strlen(root));
	return len - cut + strlen(root);
}
