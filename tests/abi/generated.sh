#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# layout.c is what layout-gen makes of the original's headers (Debian 12), and a
# header that differs does not pass it.
dir=$(dirname "$0")
version=$(dpkg-query -W -f '${Version}' librdmacm-dev 2>/dev/null)
case $version in
44.0*) ;;
*)
	echo "1..0 # SKIP librdmacm-dev 44.0 of Debian 12 is not installed (found: ${version:-none})"
	exit 77
	;;
esac
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
result() { # status, number, name
	[ "$1" = 0 ] && echo "ok $2 - $3" && return
	echo "not ok $2 - $3"
	failed=1
}

"$dir/layout-gen" > "$tmp/layout.c" && diff -u "$dir/layout.c" "$tmp/layout.c" > "$tmp/diff"
status=$?
sed 's/^/# /' "$tmp/diff"
result $status 1 "layout.c is up to date"

mkdir -p "$tmp/include/rdma"
cp "$dir"/../../include/rdma/*.h "$tmp/include/rdma/"
sed -i 's/uint8_t initiator_depth;/uint16_t initiator_depth;/' "$tmp/include/rdma/rdma_cma.h"
${CC:-cc} -D_GNU_SOURCE -I"$tmp/include" -fsyntax-only "$dir/layout.c" 2> /dev/null
result $((! $?)) 2 "a member of another size is noticed"

cp "$dir"/../../include/rdma/rdma_cma.h "$tmp/include/rdma/"
sed -i 's/RDMA_CM_EVENT_ROUTE_ERROR,/&\n\tRDMA_CM_EVENT_INSERTED,/' "$tmp/include/rdma/rdma_cma.h"
${CC:-cc} -D_GNU_SOURCE -I"$tmp/include" -fsyntax-only "$dir/layout.c" 2> /dev/null
result $((! $?)) 3 "an enumerator of another value is noticed"

cp "$dir"/../../include/rdma/rdma_cma.h "$tmp/include/rdma/"
sed -i 's/int rdma_listen(struct rdma_cm_id \*id, int backlog);/int rdma_listen(struct rdma_cm_id *id, long backlog);/' "$tmp/include/rdma/rdma_cma.h"
${CC:-cc} -D_GNU_SOURCE -I"$tmp/include" -fsyntax-only "$dir/layout.c" 2> /dev/null
result $((! $?)) 4 "a prototype that differs is noticed"

${CC:-cc} -D_GNU_SOURCE -I"$dir/../../include" -fsyntax-only "$dir/layout.c"
result $? 5 "our headers pass"
echo "1..5"
exit $failed
