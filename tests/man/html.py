#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""html.py PAGE...: the manual as HTML (make doc): every page is there and in the index, no link
leads nowhere. TAP."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

if not shutil.which("mandoc"):
    print("1..0 # SKIP mandoc is not installed")
    sys.exit(77)
faults = []
with tempfile.TemporaryDirectory() as out:
    script = os.path.join(os.environ["SOURCE"], "scripts/man-html")
    subprocess.run([script, os.path.join(os.environ["BUILD"], "man"), out], check=True,
                   stdout=subprocess.DEVNULL)
    files = set(os.listdir(out))
    links = {}
    for f in sorted(files):
        with open(os.path.join(out, f), encoding="utf-8") as page:
            text = page.read()
        links[f] = set(re.findall(r'(?:href|src)="([^"#]+)', text))
        ids = set(re.findall(r'id="([^"]+)"', text))
        for a in set(re.findall(r'href="#([^"]+)"', text)) - ids:
            faults.append(f"{f}: there is no #{a}")
        for to in sorted(links[f] - files):
            faults.append(f"{f}: {to} does not exist")
for p in sys.argv[1:]:
    if p + ".html" not in links.get("index.html", ()):
        faults.append(f"{p} is not in the index")
print(f"{'not ok' if faults else 'ok'} 1 - pages, index and links")
for f in faults:
    print(f"# {f}")
print("1..1")
