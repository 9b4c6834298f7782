# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash
# Sourced inside the virtual machine, below ./rxe, by scripts whose cases are programs that talk to
# each other. The script fills `libs` (name -> LD_LIBRARY_PATH), starts groups of cases with
# `group`, and ends with `finish`. Cases go to standard output as TAP without numbers.
# VM_JOBS groups run at once: most of their time is waiting. ONLY (a regular expression for names)
# chooses pairs.
logs=/run/vm/logs
declare -A libs
groups=0
port=${FIRST_PORT:-7200}

# group COMMAND...: cases that may run at the same time as others, with ten ports of their own.
group() {
	while [ "$(jobs -rp | wc -l)" -ge "${VM_JOBS:-4}" ]; do
		wait -n
	done
	groups=$((groups + 1))
	port=$((port + 10))
	log=$logs/$(printf %03d $groups)
	"$@" > "$log.tap" &
}

# Prints all that the groups found, with numbers, and ends the script.
finish() {
	wait
	cat "$logs"/[0-9]*.tap | awk '
	/^ok / { sub(/^ok /, "ok " ++n " - ") }
	/^not ok / { sub(/^not ok /, "not ok " ++n " - "); failed++ }
	{ print }
	END { print "1.." n; exit failed > 0 }'
	exit
}

wanted() { # NAME
	[ -z "${ONLY:-}" ] || [[ $1 =~ $ONLY ]]
}

verdict() { # STATUS NAME [REASON]: REASON is lines for a failed case
	if [ "$1" = 0 ]; then
		echo "ok $2"
	else
		echo "not ok $2"
		[ -z "${3:-}" ] || sed 's/^/# /' <<< "$3"
	fi
}

# Whether somebody listens: in the kernel's CM or with TCP.
listening() { # [ADDRESS]:PORT
	rdma resource show cm_id | grep -q "state LISTEN.* src-addr .*$1 " ||
		grep -qi ":$(printf %04x "${1##*:}") [0-9A-F:]* 0a " /proc/net/tcp /proc/net/tcp6
}

# Whether the server is ready: it says SAYS, or listens to WAIT.
ready_to_serve() { # OUTPUT
	local wait=${WAIT-:@}
	if [ -n "${SAYS:-}" ]; then
		grep -q "$SAYS" "$1"
	else
		listening "${wait//@/$port}"
	fi
}

# attempt SERVER CLIENT SERVER-COMMAND CLIENT-COMMAND: runs both with the libraries of these names;
# @ in the commands is the port. The server is ready when it listens to WAIT (":@" by default), or
# says SAYS. STOP: the server is ended when the client has. Prints what went wrong.
attempt() {
	local tries=0 server status=0 server_status=0 name
	port=$((port + 1))
	name=$log.$port.$1-$2
	LD_LIBRARY_PATH=${libs[$1]} "$here/limit" 150 bash -c "${3//@/$port}" \
		> "$name.server" 2>&1 < /dev/null &
	server=$!
	while ! ready_to_serve "$name.server" && [ $tries -lt 400 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	LD_LIBRARY_PATH=${libs[$2]} "$here/limit" 150 bash -c "${4//@/$port}" \
		> "$name.client" 2>&1 < /dev/null || status=$?
	if [ -n "${STOP:-}" ]; then
		kill -- "-$server" 2>/dev/null
		wait $server
	else
		wait $server || server_status=$?
	fi
	[ $status = 0 ] && [ $server_status = 0 ] && return
	echo "server $server_status, client $status"
	tail -n 4 "$name.server" "$name.client" | cut -c 1-200
	return 1
}

# pair BASE NAME SERVER-COMMAND CLIENT-COMMAND WHO...: the case with BASE's libraries at both ends and
# then with each WHO ("server client"). One that fails with BASE asks for what is not there: skipped.
# AGAIN: a failure counts only when it comes twice.
pair() {
	local base=$1 name=$2 server=$3 client=$4 who why
	shift 4
	if ! why=$(attempt "$base" "$base" "$server" "$client"); then
		echo "ok $name: $base at both ends # SKIP it fails"
		sed 's/^/# /' <<< "$why"
		return
	fi
	echo "ok $name: $base at both ends"
	for who; do
		port=$((port + 1))
		# shellcheck disable=SC2086 # two words
		if why=$(attempt $who "$server" "$client") ||
		    { [ -n "${AGAIN:-}" ] && port=$((port + 1)) &&
		      why=$(attempt $who "$server" "$client"); }; then
			verdict 0 "$name: server and client $who"
		else
			verdict 1 "$name: server and client $who" "$why"
		fi
	done
}
