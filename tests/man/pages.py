#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""pages.py PAGE...: the manual pages in build/man are whole and true in what a program can tell:
names, sections, cross references, errnos, warnings, width. TAP."""
import errno
import glob
import os
import re
import shutil
import subprocess
import sys

SOURCE, MAN = os.environ["SOURCE"], os.path.join(os.environ["BUILD"], "man")
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "STATES", "EVENTS", "BLOCKING", "THREADS AND SIGNALS",
            "RETURN VALUE", "ERRORS", "EXAMPLE", "DIFFERENCES", "SEE ALSO"]
cases = 0


def case(name, faults):
    global cases
    cases += 1
    print(f"{'not ok' if faults else 'ok'} {cases} - {name}")
    for f in faults:
        print(f"# {f}")


def skip(name, reason):
    global cases
    cases += 1
    print(f"ok {cases} - {name} # SKIP {reason}")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def run(*argv):
    env = dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8", MANROFFOPT="")
    p = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    return p.returncode, p.stdout, p.stderr


def our(page):
    return page.startswith("rdma_") and page.endswith(".3")


def names_of(source):
    line = re.search(r"^# NAME\n\n(.*?) - ", source, re.S | re.M).group(1)
    return {n.strip() for n in line.split(",")}


pages = sys.argv[1:]
sources = {p: read(SOURCE, "man", p + ".scd") for p in pages}
names = {p: names_of(s) for p, s in sources.items()}
known = {f"{n}({p[-1]})" for p in pages for n in names[p]}
verbs = read("/usr/include/infiniband/verbs.h")
calls = set(re.findall(r"__NR_(\w+)", "".join(
    read(h) for h in glob.glob("/usr/include/**/asm/unistd*.h", recursive=True))))


# ---- what is there ----

def listed():
    there = {f[:-4] for f in os.listdir(os.path.join(SOURCE, "man")) if f.endswith(".scd")}
    return [f"{p}.scd is not in man/meson.build" for p in sorted(there - set(pages))]


def functions():
    """Of the two headers, and what the library exports besides rsockets."""
    found = set()
    for h in ("rdma_cma.h", "rdma_verbs.h"):
        text = re.sub(r"/\*.*?\*/", "", read(SOURCE, "include/rdma", h), flags=re.S)
        found |= set(re.findall(r"^(?:static inline )?[a-z_][\w ]*[ *](rdma_\w+)\(", text, re.M))
    return found | set(re.findall(r"^\t\t(rdma_\w+);", read(SOURCE, "src/cm/rdmacm.map"), re.M))


def documented():
    have = {n for p in pages if our(p) for n in names[p]}
    want = functions()
    return ([f"{n} has no page" for n in sorted(want - have)] +
            [f"{n} is no function" for n in sorted(have - want)])


def aliases():
    faults = []
    for p in pages:
        for n in names[p]:
            code, out, err = run("man", "-M", MAN, "-w", p[-1], n)
            if code:
                faults.append(f"man does not find {n}({p[-1]}): {err.strip()}")
            base = os.path.join(MAN, f"{n}.{p[-1]}")
            if n != p[:-2] and (not os.path.exists(base) or read(base) != f".so man{p[-1]}/{p}\n"):
                faults.append(f"{n}.{p[-1]} does not lead to {p}")
    return faults


def whatis():
    """The lines of whatis(1) and apropos(1)."""
    faults = []
    _, out, _ = run("lexgrog", *[os.path.join(MAN, p) for p in pages])
    for p in pages:
        got = set(re.findall(re.escape(os.path.join(MAN, p)) + r': "(\S+) - ', out))
        if got != names[p]:
            faults.append(f"{p}: lexgrog sees {sorted(got)}, not {sorted(names[p])}")
    return faults


# ---- what is said ----

def sections():
    faults = []
    for p in filter(our, pages):
        got = re.findall(r"^# (.*)$", sources[p], re.M)
        if got != SECTIONS:
            faults.append(f"{p}: {', '.join(got)}")
    return faults


def shown():
    """Each function's prototype, and an example."""
    faults = []
    for p in filter(our, pages):
        protos = re.search(r"^%prototypes (.*)$", sources[p], re.M)
        if not protos or set(protos.group(1).split()) != names[p]:
            faults.append(f"{p}: %prototypes and NAME differ")
        if not re.search(r"^# EXAMPLE\n\n%example \w+$", sources[p], re.M):
            faults.append(f"{p}: no example")
    return faults


def errnos():
    faults = []
    for p in pages:
        for e in sorted(set(re.findall(r"\bE[A-Z0-9]{3,}\b", sources[p]))):
            if e not in errno.errorcode.values() and e not in ("EOPNOTSUPP", "ENOTSUP", "ECE") and \
                    not re.search(rf"\b{e}_", sources[p]) and e not in WORDS:
                faults.append(f"{p}: {e} is no errno")
    return faults


WORDS = {"ENVIRONMENT", "ESTABLISHED", "EVENTS", "EVENT", "ERRORS", "EXAMPLE", "EXAMPLES", "EXIT",
         "ENHANCED", "ESTABLISHMENT"}


def exists(name, sec):
    """Ours, a verb, a system call; pages of others in other sections are not looked for."""
    if name.startswith("ibv_"):
        return re.search(rf"\b{name}\b", verbs) is not None
    if name.startswith(("rdma_", "anyrdma")):
        return f"{name}({sec})" in known
    return sec != "2" or not calls or name in calls


def references():
    faults = []
    for p in pages:
        for name, sec in set(re.findall(r"\*?\b([\w-]+)\*?\((\d)\)", sources[p])):
            if not exists(name, sec):
                faults.append(f"{p}: {name}({sec}) does not exist")
            if name in names[p] and p.endswith(sec) and \
                    f"*{name}*({sec})" in sources[p].split("# SEE ALSO")[-1]:
                faults.append(f"{p}: refers to itself")
    return faults


# ---- how it looks ----

def lint():
    _, out, err = run("mandoc", "-Tlint", "-W", "warning", *[os.path.join(MAN, p) for p in pages])
    return (out + err).splitlines()


def rendered():
    faults = []
    for p in pages:
        _, out, err = run("man", "--warnings", "-E", "UTF-8", "-l", os.path.join(MAN, p))
        faults += [f"{p}: {line}" for line in err.splitlines()]
        faults += [f"{p}: {len(line)} columns: {line}" for line in out.splitlines() if len(line) > 80]
        if "‐\n" in out:
            faults.append(f"{p}: a word is hyphenated")
    return faults


case("every page is built", listed())
case("every function has a page, and every page a function", documented())
case("sections", sections())
case("prototypes and examples", shown())
case("errnos exist", errnos())
case("cross references", references())
if shutil.which("man"):
    case("man finds every name", aliases())
    case("whatis lines", whatis())
    case("no warnings of groff, 80 columns", rendered())
else:
    skip("man", "man-db is not installed")
if shutil.which("mandoc"):
    case("no warnings of mandoc", lint())
else:
    skip("no warnings of mandoc", "mandoc is not installed")
print(f"1..{cases}")
