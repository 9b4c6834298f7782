# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the scripts of tests/apps: the helpers of tests/programs, and the places where
# applications run: both ends on one host, or on two (network namespaces joined by veth).
#
# shellcheck shell=bash disable=SC2034
. "$(dirname "$0")/../programs/lib.sh"

# Goes on in two hosts of its own, which are gone when the script ends.
two_hosts() {
	local why
	if [ -z "${IN_LAB:-}" ]; then
		why=$("$lab" enter true) || skip_all "$why"
		IN_LAB=1 exec "$lab" enter "$0" "$@"
	fi
	lab_name=anyrdma$$
	why=$("$lab" up $lab_name) || skip_all "$why"
	trap 'cleanup; "$lab" down $lab_name' EXIT
	at_host
}

# Both ends on one host, over shared memory unless a transport is named.
at_host() { # [TRANSPORT]
	carrier=${1:-auto}
	where="host, $carrier" server_ns=$lab_name-a client_ns=$lab_name-a server_addr=10.77.0.1
}

between_hosts() {
	carrier=auto
	where="two hosts" server_ns=$lab_name-a client_ns=$lab_name-b server_addr=10.77.0.1
}

# FUNCTION in every place; where it is to be quick, on one host alone.
everywhere() { # FUNCTION
	at_host
	"$1"
	[ -n "${FULL:-}" ] || return
	at_host tcp
	"$1"
	between_hosts
	"$1"
	at_host
}

# Compiles a program of this folder, or says why its cases are skipped.
compile() { # OUTPUT COMMAND...
	local output=$1 said
	shift
	said=$("$@" -std=gnu11 -O1 -g -o "$output" 2>&1) && return
	why=${said%%$'\n'*}
	return 1
}
