#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""errnos.py --shim HEADER...: C of a library to preload that notes which function failed with which
errno. errnos.py SHIM PROGRAM...: runs conformance programs with it; every errno that a function of the
connection manager gave there must be in its manual page. TAP."""
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

PROLOGUE = """#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static void note(const char *function)
{
	const char *out = getenv("ERRNOS_OUT");
	int err = errno, fd = out ? open(out, O_WRONLY | O_APPEND | O_CREAT, 0666) : -1;
	char line[100];
	int n = snprintf(line, sizeof(line), "%s %s\\n", function, strerrorname_np(err));

	if (fd >= 0 && write(fd, line, (size_t)n) != n)
		abort();
	if (fd >= 0)
		close(fd);
	errno = err;
}
"""
WRAPPER = """
{ret} {name}({args})
{{
	{ret} (*next)({args}) = ({ret} (*)({args}))dlsym(RTLD_NEXT, "{name}");
	{ret} r = next({names});

	if (r == {bad})
		note("{name}");
	return r;
}}
"""


def shim(headers):
    print(PROLOGUE, end="")
    for h in headers:
        with open(h, encoding="utf-8") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        for m in re.finditer(r"^((?:int|struct) [\w *]*?)(rdma_\w+)\(([^)]*)\);", text, re.M):
            args = " ".join(m.group(3).split())
            names = "" if args == "void" else ", ".join(
                re.search(r"\w+$", a).group(0) for a in args.split(","))
            ret = m.group(1).strip()
            print(WRAPPER.format(ret=ret, name=m.group(2), args=args, names=names,
                                 bad="NULL" if "*" in ret else "-1"), end="")


def documented():
    """Function -> errnos of the section ERRORS."""
    have = {}
    for page in glob.glob(os.path.join(os.environ["SOURCE"], "man", "rdma_*.3.scd")):
        with open(page, encoding="utf-8") as f:
            text = f.read()
        names = re.search(r"^# NAME\n\n(.*?) - ", text, re.S | re.M).group(1)
        errors = text[text.index("\n# ERRORS"):text.index("\n# EXAMPLE")]
        for n in names.split(","):
            have[n.strip()] = set(re.findall(r"\bE[A-Z0-9]+\b", errors))
    return have


def seen(library, programs):
    """Function -> errno -> in which programs."""
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    with tempfile.TemporaryDirectory() as d:
        for i, p in enumerate(programs):
            out = os.path.join(d, str(i))
            env = dict(os.environ, LD_PRELOAD=library, ERRNOS_OUT=out,
                       CONF_PORT_BASE=str(5000 + 200 * i))
            subprocess.run([p], env=env, stdout=subprocess.DEVNULL, check=False)
            if not os.path.exists(out):
                continue
            with open(out, encoding="utf-8") as f:
                for line in set(f):
                    function, err = line.split()
                    found[function][err].add(os.path.basename(p))
    return found


def main():
    if sys.argv[1] == "--shim":
        shim(sys.argv[2:])
        return
    have, found = documented(), seen(sys.argv[1], sys.argv[2:])
    for i, function in enumerate(sorted(found), 1):
        missing = sorted(set(found[function]) - have.get(function, set()))
        print(f"{'not ok' if missing else 'ok'} {i} - {function}: {', '.join(sorted(found[function]))}")
        for err in missing:
            print(f"# {err} is not in its page: {', '.join(sorted(found[function][err]))}")
    print(f"{'not ok' if len(found) < 20 else 'ok'} {len(found) + 1} - {len(found)} functions failed somewhere")
    print(f"1..{len(found) + 1}")


main()
