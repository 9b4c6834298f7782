#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# examples.sh NAME...: the programs that the manual shows do what it says.
set -u
dir=$SOURCE/man/examples
out=$(mktemp)
trap 'rm -f "$out"' EXIT
n=0
for name; do
	n=$((n + 1))
	timeout 20 "$BUILD/tests/man/man-$name" > "$out" 2>&1
	rc=$?
	if [ $rc = 0 ] && [ "$(sort "$out")" = "$(sort "$dir/$name.out")" ]; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		echo "# exit status $rc; expected and seen:"
		diff "$dir/$name.out" "$out" | sed 's/^/# /'
	fi
done
for f in "$dir"/*.c "$dir"/*.out; do
	name=$(basename "${f%.*}")
	case " $* " in
	*" $name "*) continue ;;
	esac
	n=$((n + 1))
	echo "not ok $n - $f is in no list (man/meson.build)"
done
echo "1..$n"
