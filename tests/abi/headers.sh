#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Every public header compiles alone, in C and C++.
if out=$("$(dirname "$0")/../../scripts/check-headers" 2>&1); then
	echo "ok 1 - public headers compile alone"
else
	echo "$out" | sed 's/^/# /'
	echo "not ok 1 - public headers compile alone"
fi
echo 1..1
