#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The program `anyrdma` itself: from the build tree, installed, and its errors.
set -u
BUILD=${BUILD:-build}
anyrdma=$BUILD/bin/anyrdma
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
count=0
failed=0

check() { # name, command...
	local name=$1 out
	shift
	count=$((count + 1))
	if out=$("$@" 2>&1); then
		echo "ok $count - $name"
	else
		failed=$((failed + 1))
		echo "${out:-nothing printed}" | sed 's/^/# /'
		echo "not ok $count - $name"
	fi
}
status_is() { # status, command...
	local want=$1
	shift
	"$@"
	local got=$?
	[ $got = "$want" ] || { echo "exit status $got, not $want"; return 1; }
}
prints() { # regular expression, command...
	local want=$1 out
	shift
	out=$("$@" 2>&1)
	echo "$out"
	grep -qE "$want" <<< "$out"
}
# Which files a program would load.
loads() { "$1" run ldd "$(command -v "$2")"; }
env_of() { LD_LIBRARY_PATH=$1 "$anyrdma" run printenv LD_LIBRARY_PATH; }

check "version" prints '^anyrdma [0-9]+\.[0-9]+' "$anyrdma" version
check "help" prints '^usage: anyrdma run' "$anyrdma" --help
check "no command: usage, 125" status_is 125 "$anyrdma"
check "unknown command: 125" status_is 125 "$anyrdma" fly
check "run without a command: 125" status_is 125 "$anyrdma" run
check "run: not found is 127" status_is 127 "$anyrdma" run ./does-not-exist
check "run: not found says so" prints 'does-not-exist: No such file' "$anyrdma" run ./does-not-exist
check "run: a folder is 126" status_is 126 "$anyrdma" run /tmp
check "run: the command's own status" status_is 42 "$anyrdma" run sh -c 'exit 42'
check "run: arguments stay apart" prints '^<a b><><c>$' "$anyrdma" run printf '<%s>' 'a b' '' c
check "run: -- ends options" status_is 3 "$anyrdma" run -- sh -c 'exit 3'
check "run: LD_LIBRARY_PATH kept behind ours" prints "^$BUILD/lib:/some/where\$" env_of /some/where
check "run: ours not twice" prints "^$BUILD/lib\$" "$anyrdma" run "$anyrdma" run printenv LD_LIBRARY_PATH
check "run: other environment untouched" prints '^kept$' env KEEP=kept "$anyrdma" run printenv KEEP
check "info: the device" prints '^device: anyrdma0' "$anyrdma" info
check "info: loopback in the table" prints '127\.0\.0\.1 +lo' "$anyrdma" info
check "info: port mapping" prints '7471 is 18502' "$anyrdma" info
check "info: identity ports" prints '7471 is 7471' env ANYRDMA_PORTS=identity "$anyrdma" info
check "info: settings" prints 'ANYRDMA_CRC=on$' env ANYRDMA_CRC=on "$anyrdma" info

if command -v rping > /dev/null; then
	check "run: rping loads our librdmacm" prints "$BUILD/lib/librdmacm.so.1" loads "$anyrdma" rping
	check "run: rping loads our libibverbs" prints "$BUILD/lib/libibverbs.so.1" loads "$anyrdma" rping
else
	count=$((count + 1))
	echo "ok $count - run: rping loads our libraries # SKIP rping is not installed"
fi

# Set-user-ID of another user: only root can make one.
if [ "$(id -u)" = 0 ] && cp "$(type -P true)" "$tmp/other" && chown 65534 "$tmp/other" &&
	chmod 4755 "$tmp/other"; then
	check "run: refuses what gains privileges" status_is 126 "$anyrdma" run "$tmp/other"
else
	count=$((count + 1))
	echo "ok $count - run: refuses what gains privileges # SKIP needs root"
fi

# Installed elsewhere, reached through a link.
prefix=$(sed -n 's/^prefix: *//p' <<< "$(meson introspect --buildoptions "$BUILD" |
	python3 -c 'import json, sys
for o in json.load(sys.stdin):
    if o["name"] == "prefix":
        print("prefix:", o["value"])')")
check "install" env DESTDIR="$tmp/root" meson install -C "$BUILD" --no-rebuild --quiet
root=$tmp/root$prefix
ln -s "$root/bin/anyrdma" "$tmp/link"
for f in lib/anyrdma/libibverbs.so.1 lib/anyrdma/libibverbs.so lib/anyrdma/librdmacm.so.1 \
	lib/anyrdma/librdmacm.so bin/anyrdma include/anyrdma/rdma/rdma_cma.h; do
	check "installed: $f" test -e "$root/$f"
done
check "installed: nothing in the system's library folder" test ! -e "$root/lib/libibverbs.so.1"
check "installed: run finds its libraries" prints "^$root/lib/anyrdma\$" env -u LD_LIBRARY_PATH "$tmp/link" run printenv LD_LIBRARY_PATH
check "installed: info" prints '^device: anyrdma0' "$tmp/link" info
rm "$root/lib/anyrdma/librdmacm.so.1"
check "libraries missing: 125" status_is 125 "$tmp/link" run true
echo "1..$count"
[ $failed = 0 ]
