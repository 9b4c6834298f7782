# SPDX-License-Identifier: BSD-2-Clause
# Sourced by the scripts of tests/: TAP, and servers with their clients, each under our libraries.
#
# Environment: BUILD, the build folder (default ../../build); ONLY, a regular expression: cases to
# run; T_SCALE, a factor for time limits (slow machines); ORIGINAL, set inside the virtual machine:
# run on the original libraries and the kernel's device instead (tests/vm/programs); FULL, set: the
# whole matrix instead of every option once (make test-programs); JOBS: cases at a time, where the
# script allows several. Output of every program is kept below BUILD/logs/SCRIPT (LOGS).
#
# shellcheck shell=bash
set -u
PATH=$PATH:/usr/sbin:/sbin
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
BUILD=$(cd "${BUILD:-$top/build}" && pwd) || exit 1
script=$(basename "$0" .sh)
logs=${LOGS:-$BUILD/logs}/$script
lab=$top/scripts/netns-lab
scale=${T_SCALE:-1}
count=0
failed=0
server_ns=
client_ns=
server_pid=
case_name=
jobs=1
queued=()
declare -A seen=()
started=0
ours=("$BUILD/bin/anyrdma" run)
[ -z "${ORIGINAL:-}" ] || ours=(env)
mkdir -p "$logs"

skip_all() {
	echo "1..0 # SKIP $*"
	exit 77
}

pass() {
	count=$((count + 1))
	echo "ok $count - $1"
}

fail() {
	count=$((count + 1))
	failed=$((failed + 1))
	echo "not ok $count - $1"
	shift
	[ $# = 0 ] || printf '# %s\n' "$@"
}

skip() { # CASE REASON
	wanted "$1" || return 0
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}

# together N: from here on N cases run at once, each in a subshell. What they print keeps its order.
together() {
	jobs=${JOBS:-$1}
}

# run_case FUNCTION NAME WORD...: now, or in the background when several may run. A case that two rows
# of a table ask for is run once.
run_case() {
	[ -z "${seen[$2]:-}" ] || return 0
	seen[$2]=1
	if [ "$jobs" = 1 ]; then
		"$@"
		return
	fi
	while [ ${#queued[@]} -ge "$jobs" ] && [ "$(jobs -pr | wc -l)" -ge "$jobs" ]; do
		wait -n
	done
	started=$((started + 1))
	(
		trap cleanup EXIT
		"$@"
	) > "$logs/.out.$started" &
	queued+=("$!:$started")
	report
}

# Numbers and prints what the cases at the head of the queue have said; "all": of every one.
report() {
	local entry out line
	while [ ${#queued[@]} -gt 0 ]; do
		entry=${queued[0]}
		out=$logs/.out.${entry#*:}
		if [ "${1:-}" = all ]; then
			wait "${entry%:*}"
		elif alive "${entry%:*}"; then
			return
		fi
		while IFS= read -r line; do
			case $line in
			"ok "*)	pass "${line#ok * - }" ;;
			"not ok "*)	fail "${line#not ok * - }" ;;
			*)	printf '%s\n' "$line" ;;
			esac
		done < "$out"
		rm -f "$out"
		queued=("${queued[@]:1}")
	done
}

finish() {
	report all
	echo "1..$count"
	[ $failed = 0 ]
	exit
}

need() {
	local tool
	for tool in "$@"; do
		command -v "$tool" >/dev/null || skip_all "$tool is not installed"
	done
	[ -n "${ORIGINAL:-}" ] || [ -x "$BUILD/bin/anyrdma" ] || skip_all "no $BUILD/bin/anyrdma: not built"
}

wanted() {
	[ -z "${ONLY:-}" ] || [[ $1 =~ $ONLY ]]
}

# TCP or UDP port of an RDMA port (doc/wire.md), and that of the port space IPOIB.
mapped() {
	echo $((1024 + ($1 + 10007) % 64512))
}
mapped_ipoib() {
	echo $((1024 + ($1 + 20011) % 64512))
}

# Ports: every case has its own, so that nothing left of one disturbs another.
first_port() {
	port=$1
}

# Both ends on one host: in a network namespace of our own where that is allowed, so that neither
# another run of these scripts nor a foreign program can hold, or answer on, one of our ports.
own_host() {
	[ -n "${OWN_HOST:-}" ] && return
	if "$lab" enter unshare --net true > /dev/null 2>&1; then
		OWN_HOST=1 exec "$lab" enter unshare --net bash -c \
			'ip link set lo up && exec "$@"' own_host "$0" "$@"
	fi
	echo "# no network namespace of our own: another run at the same time would disturb"
}
next_port() {
	port=$((port + 1))
}

in_ns() { # NAMESPACE COMMAND...
	local ns=$1
	shift
	if [ -n "$ns" ]; then
		ip netns exec "$ns" "$@"
	else
		"$@"
	fi
}

# udp, ipoib: an RDMA port of datagrams; says: what the server prints when it is ready.
listening() { # NAMESPACE rdma:PORT|tcp:PORT|udp:PORT|ipoib:PORT|plain:PORT|says:REGEX
	local files tcp udp
	case $2 in
	plain:*) # a UDP port as it is
		files=$(in_ns "$1" cat /proc/net/udp /proc/net/udp6 2>/dev/null)
		grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "${2#*:}") " <<< "$files"
		return ;;
	says:*)
		grep -aqE "${2#says:}" "$logs/$case_name.server"
		return ;;
	udp:* | ipoib:*)
		if [ -n "${ORIGINAL:-}" ]; then
			rdma resource show cm_id | grep -qE "ps (UDP|IPOIB).*:${2#*:} "
			return
		fi
		files=$(in_ns "$1" cat /proc/net/udp /proc/net/udp6 2>/dev/null)
		udp=$(mapped "${2#*:}")
		[ "${2%%:*}" = udp ] || udp=$(mapped_ipoib "${2#*:}")
		grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$udp") " <<< "$files"
		return ;;
	rdma:*)
		if [ -n "${ORIGINAL:-}" ]; then
			rdma resource show cm_id | grep -q "state LISTEN.*:${2#rdma:} "
			return
		fi
		tcp=$(mapped "${2#rdma:}") ;;
	tcp:*)	tcp=${2#tcp:} ;;
	esac
	files=$(in_ns "$1" cat /proc/net/tcp /proc/net/tcp6 2>/dev/null)
	grep -qE "^ *[0-9]+: [0-9A-F]+:$(printf %04X "$tcp") [0-9A-F]+:0000 0A " <<< "$files"
}

# Starts a command line under our libraries, in a session of its own, with a time limit: $!.
start() { # NAMESPACE SECONDS OUTPUT COMMAND-LINE
	local pre=()
	[ -z "$1" ] || pre=(ip netns exec "$1")
	setsid timeout -k 3 $(($2 * scale)) "${pre[@]}" "${ours[@]}" \
		bash -c "$4" > "$3" 2>&1 < /dev/null &
}

alive() {
	kill -0 "$1" 2>/dev/null
}

# Ends what start() started: its whole session, and nothing else.
end() { # PID
	local tries=0
	kill -TERM -- "-$1" 2>/dev/null
	while alive "$1" && [ $tries -lt 50 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -KILL -- "-$1" 2>/dev/null
	wait "$1" 2>/dev/null
}

cleanup() {
	local entry
	[ -z "$server_pid" ] || end "$server_pid"
	for entry in "${queued[@]}"; do
		[ "$BASHPID" != $$ ] || kill -TERM "${entry%:*}" 2>/dev/null
	done
}
trap cleanup EXIT
trap 'exit 143' TERM INT HUP

# start_server SECONDS PORT COMMAND-LINE: starts it and waits until it listens; PORT is as for
# listening. Sets server_pid.
start_server() {
	local tries=0
	start "$server_ns" "$1" "$logs/$case_name.server" "$3"
	server_pid=$!
	while ! listening "$server_ns" "$2"; do
		tries=$((tries + 1))
		if [ $tries -gt $((500 * scale)) ] || ! alive "$server_pid"; then
			return 1
		fi
		sleep 0.02
	done
}

# wait_server SECONDS: its exit status, or "hangs" when it does not come to an end.
wait_server() {
	local tries=0
	while alive "$server_pid" && [ $tries -lt $(($1 * 50 * scale)) ]; do
		sleep 0.02
		tries=$((tries + 1))
	done
	if alive "$server_pid"; then
		end "$server_pid"
		server_status=hangs
	else
		wait "$server_pid"
		server_status=$?
	fi
	server_pid=
}

tails() {
	local file
	for file in "$logs/$case_name".*; do
		echo "# --- ${file##*/}"
		tail -n 12 "$file" | tr -d '\000' | sed 's/^/# /'
	done
}

# pair NAME SECONDS PORT SERVER CLIENT [REGEX [stop]]: one case. Good when the client ends with 0 in
# time, says REGEX, the server ends with 0 (or, with "stop", still runs and is ended by us), and our
# libraries had nothing to complain about.
pair() {
	wanted "$1" || return 0
	run_case run_pair "$@"
}

# One attempt: sets why, empty when it was good.
try_pair() {
	local seconds=$2 regex=${6:-} stop=${7:-} status
	why=
	rm -f "$logs/$case_name".*
	if ! start_server $((seconds + 10)) "$3" "$4"; then
		end "$server_pid"
		server_pid=
		why="the server does not listen on $3"
		return
	fi
	start "$client_ns" "$seconds" "$logs/$case_name.client" "$5"
	wait $!
	status=$?
	[ $status = 0 ] || why="client ends with $status"
	if [ "$stop" = stop ]; then
		alive "$server_pid" || why="$why; the server is gone"
		end "$server_pid"
		server_pid=
	else
		wait_server 5
		[ "$server_status" = 0 ] || why="$why; server: $server_status"
	fi
	if [ -n "$regex" ] && ! grep -aqE "$regex" "$logs/$case_name.client"; then
		why="$why; the client does not say \"$regex\""
	fi
	if grep -aqE '^anyrdma\[[0-9]+\]: (error|warn)' "$logs/$case_name".*; then
		why="$why; our log complains"
	fi
}

# A program that fails by a race of its own gets several attempts, and a line that says so.
run_pair() {
	local name=$1 left=${attempts:-1} why
	case_name=${name//[^A-Za-z0-9._-]/_}
	while try_pair "$@"; [ -n "$why" ] && [ $left -gt 1 ]; do
		left=$((left - 1))
		echo "# $name: ${why#; }: once more"
	done
	if [ -z "$why" ]; then
		pass "$name"
	else
		fail "$name" "${why#; }"
		tails
	fi
}

# solo NAME SECONDS COMMAND-LINE REGEX [STATUS]: one program alone.
solo() {
	wanted "$1" || return 0
	run_case run_solo "$@"
}

run_solo() {
	local name=$1 want=${5:-0} status why=
	case_name=${name//[^A-Za-z0-9._-]/_}
	rm -f "$logs/$case_name".*
	start "$client_ns" "$2" "$logs/$case_name.client" "$3"
	wait $!
	status=$?
	[ $status = "$want" ] || why="ends with $status instead of $want"
	grep -aqE "$4" "$logs/$case_name.client" || why="$why; does not say \"$4\""
	if [ -z "$why" ]; then
		pass "$name"
	else
		fail "$name" "${why#; }"
		tails
	fi
}

# Index of an address in the device's GID table, as ibv_devinfo prints it.
gid_index() { # NAMESPACE ADDRESS
	local gid=$2
	case $gid in
	*:*) ;;
	*) gid=::ffff:$gid ;;
	esac
	in_ns "$1" "${ours[@]}" ibv_devinfo -v 2>/dev/null |
		awk -v gid="$gid" '/GID\[/ {
			n = $0; sub(/.*GID\[ */, "", n); sub(/\].*/, "", n)
			g = $0; sub(/.*\]:[ \t]*/, "", g); sub(/,.*/, "", g)
			if (g == gid) { print n; exit }
		}'
}
