# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# Sourced by the scripts of this folder that start a virtual machine: sets `here` and BUILD.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
BUILD=$(cd "${BUILD:-$here/../../build}" && pwd)
PATH=$PATH:/usr/sbin:/sbin

vm_skip() { echo "1..0 # SKIP $*"; exit 77; }

# vm_prepare NAME [DRIVER]: all that a machine needs, in $BUILD/vm/NAME, which becomes $out; there
# libs/ has our librdmacm alone and distribution/ the original. Ends the script where that cannot be.
vm_prepare() {
	local tool why status=0
	out=$BUILD/vm/$1
	driver=${2:-rxe}
	for tool in qemu-system-x86_64 rdma rping ip setsid; do
		command -v $tool > /dev/null || vm_skip "$tool is not installed"
	done
	mkdir -p "$out/libs" "$out/distribution" "$out/logs"
	rm -rf "$out/logs"/*
	why=$("$here/initrd" "$out") || status=$?
	if [ $status = 0 ] && [ "$driver" = siw ] && [ -z "${VM_SIW:-}" ]; then
		why=$(flock "$BUILD/vm" "$here/siw" "$out" "$BUILD/vm/siw") || status=$?
		VM_SIW=$why
	fi
	[ $status != 77 ] || vm_skip "$why"
	[ $status = 0 ] || { echo "Bail out! $why"; exit 1; }
	cp "$BUILD/lib/librdmacm.so.1" "$out/libs/"
	cp -L "/usr/lib/$(uname -m)-linux-gnu/librdmacm.so.1" "$out/distribution/"
}

# vm_boot SECONDS COMMAND...: as ./boot, for the device of vm_prepare; VM_SECONDS is another deadline.
# Inside, OUT is $out of outside.
vm_boot() {
	local seconds=$1
	shift
	"$here/boot" "$out" "${VM_SECONDS:-$seconds}" env VM_DRIVER="$driver" VM_SIW="${VM_SIW:-}" \
		BUILD="$BUILD" OUT="$out" VM_INSIDE=1 ONLY="${ONLY:-}" "$@"
}

# vm_run SECONDS COMMAND...: the same; what COMMAND prints is the script's TAP, and its end the script's.
vm_run() {
	local status=0
	vm_boot "$@" || status=$?
	cat "$out/job.log"
	case $status in
	124) echo "Bail out! the virtual machine did not end in time (VM_SECONDS gives it more)" ;;
	125) sed 's/^/# /' "$out/console.log"; echo "Bail out! the virtual machine did not start" ;;
	esac
	exit $status
}
