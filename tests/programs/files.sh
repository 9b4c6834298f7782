#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The files that `anyrdma run` shows (/sys/class/infiniband, /dev/infiniband): as root, as an
# ordinary user, in a container, and where namespaces are refused; and that nothing else of a
# program's world is changed.
. "$(dirname "$0")/lib.sh"
own_host
need python3 setpriv
anyrdma=$BUILD/bin/anyrdma
helper=$BUILD/tests/files_helper
tmp=$(mktemp -d)
chmod 755 "$tmp"
trap 'rm -rf "$tmp"; cleanup' EXIT
root=
[ "$(id -u)" != 0 ] || root=1

# What stands before a command: who runs it, and in what.
declare -A who=()
who[self]=
[ -z "$root" ] || who[user]="setpriv --reuid 10001 --regid 10001 --clear-groups"
who[preload]="env ANYRDMA_FILES=preload"
who[forbidden]="$helper forbid"
if [ -n "$root" ]; then
	who[user-preload]="${who[user]} ${who[preload]}"
	who[user-forbidden]="${who[user]} ${who[forbidden]}"
	who[user-no-userns]="${who[user]} unshare -U --map-current-user --keep-caps $tmp/no-userns"
fi
bubble="bwrap --ro-bind / / --dev /dev --proc /proc --unshare-all --share-net"
# shellcheck disable=SC2086
if command -v bwrap > /dev/null && ${who[user]:-} $bubble true 2> /dev/null; then
	who[bubblewrap]="${who[user]:-} $bubble"
fi
cat > "$tmp/no-userns" <<'INSIDE'
#!/bin/sh
echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"
INSIDE
chmod 755 "$tmp/no-userns"
who[container]="unshare -Urpfmn --mount-proc $tmp/inside"
cat > "$tmp/inside" <<'INSIDE'
#!/bin/sh
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up && "$@"
INSIDE
chmod 755 "$tmp/inside"

# is NAME COMMAND...: a case that is good when the command is.
is() {
	local name=$1 out
	shift
	wanted "$name" || return 0
	if out=$("$@" 2>&1); then
		pass "$name"
	else
		fail "$name" "${out:-nothing printed}"
	fi
}
says() { # REGEX COMMAND...
	local want=$1 out
	shift
	out=$("$@" 2>&1)
	echo "$out"
	grep -qE "$want" <<< "$out"
}
status() { # STATUS COMMAND...
	local want=$1 got
	shift
	"$@"
	got=$?
	[ $got = "$want" ] || { echo "status $got, not $want"; return 1; }
}
# ---- the tree, as programs look at it -------------------------------------------------------

cat > "$tmp/tree" <<'TREE'
set -eu
no() { echo "$*"; exit 1; }
ib=/sys/class/infiniband/anyrdma0
[ "$(ls /sys/class/infiniband)" = anyrdma0 ] || no "ls: $(ls /sys/class/infiniband)"
ls /sys/class | grep -qx infiniband || no "/sys/class does not list infiniband"
ls /sys/class | grep -qx net || no "/sys/class does not list net"
pci=$(realpath $ib/device)
[[ $pci =~ ^/sys/devices/pci[0-9a-f]{4}:[0-9a-f]{2}/[0-9a-f]{4}:[0-9a-f]{2}:00\.0$ ]] || no "realpath: $pci"
[ "$(realpath $ib)" = "$pci/infiniband/anyrdma0" ] || no "realpath: $(realpath $ib)"
[ "$(readlink -f /sys/class/infiniband_verbs/uverbs0)" = "$pci/infiniband_verbs/uverbs0" ] ||
	no "uverbs0: $(readlink -f /sys/class/infiniband_verbs/uverbs0)"
for f in class vendor device subsystem_vendor subsystem_device numa_node local_cpus \
	max_link_speed max_link_width current_link_speed current_link_width; do
	[ -s "$pci/$f" ] || no "no $pci/$f"
done
[ ! -e "$pci/subsystem" ] || no "a link to the PCI bus"
[ "$(cat $ib/ports/1/state)" = "4: ACTIVE" ] || no "state: $(cat $ib/ports/1/state)"
[ "$(cat $ib/ports/1/phys_state)" = "5: LinkUp" ] || no "phys_state"
[ "$(cat $ib/ports/1/link_layer)" = Ethernet ] || no "link_layer"
[ "$(cat $ib/ports/1/rate)" = "40 Gb/sec (4X QDR)" ] || no "rate"
[ "$(cat $ib/ports/1/lid)" = 0x0 ] || no "lid"
[ "$(cat $ib/ports/1/pkeys/0)" = 0xffff ] || no "pkeys/0"
[ "$(cat $ib/node_type)" = "1: CA" ] || no "node_type"
[[ $(cat $ib/node_guid) =~ ^([0-9a-f]{4}:){3}[0-9a-f]{4}$ ]] || no "node_guid"
for f in fw_ver board_id hca_type sys_image_guid; do
	[ -s $ib/$f ] || no "no $f"
done
[ "$(ls $ib/ports/1/gids | wc -l)" = 256 ] || no "$(ls $ib/ports/1/gids | wc -l) GIDs"
index=$(grep -l '^0000:0000:0000:0000:0000:ffff:7f00:0001$' $ib/ports/1/gids/* | head -n 1)
[ -n "$index" ] || no "127.0.0.1 has no GID"
index=${index##*/}
[ "$(cat $ib/ports/1/gid_attrs/types/$index)" = "RoCE v2" ] || no "types/$index"
[ "$(cat $ib/ports/1/gid_attrs/ndevs/$index)" = lo ] || no "ndevs/$index"
[ "$(cat $ib/ports/1/gids/255)" = 0000:0000:0000:0000:0000:0000:0000:0000 ] || no "gids/255"
[ ! -e $ib/ports/1/gid_attrs/types/255 ] || no "types/255"
[ -r $ib/ports/1/counters/port_xmit_data ] || no "no counters"
[ "$(cat /sys/class/infiniband_verbs/abi_version)" = 6 ] || no "abi_version"
[ "$(cat /sys/class/infiniband_verbs/uverbs0/ibdev)" = anyrdma0 ] || no "ibdev"
[ -n "$(ls $pci/net)" ] || no "no interface"
[ "$(cat "$pci/net/$(ls $pci/net | head -n 1)/ifindex")" -gt 0 ] || no "net/"
for f in uverbs0 rdma_cm; do
	[ "$(stat -c %F /dev/infiniband/$f)" = "character special file" ] || no "/dev/infiniband/$f: $(stat -c %F /dev/infiniband/$f)"
	[ -c /dev/infiniband/$f ] && [ -r /dev/infiniband/$f ] && [ -w /dev/infiniband/$f ] || no "/dev/infiniband/$f"
done
[ "$(cat /sys/class/net/lo/ifindex)" = 1 ] || no "/sys/class/net/lo"
[ -d /sys/devices/virtual/net/lo ] || no "/sys/devices/virtual"
python3 - <<'PY'
import glob, os, stat
ib = '/sys/class/infiniband'
assert os.listdir(ib) == ['anyrdma0'], os.listdir(ib)
assert os.path.realpath(ib + '/anyrdma0/device').startswith('/sys/devices/pci')
assert glob.glob(ib + '/*/ports/*/state') == [ib + '/anyrdma0/ports/1/state'], glob.glob(ib + '/*')
assert open(ib + '/anyrdma0/ports/1/state').read() == '4: ACTIVE\n'
assert stat.S_ISCHR(os.stat('/dev/infiniband/uverbs0').st_mode)
assert os.access('/dev/infiniband/uverbs0', os.R_OK | os.W_OK)
assert [e.name for e in os.scandir('/dev/infiniband') if e.name[0] == 'u'] == ['uverbs0']
PY
TREE

# ---- the world of a program: what must be as it is without -----------------------------------

cat > "$tmp/world" <<'WORLD'
id -u
id -g
pwd -P
umask
ulimit -a
# "Cap", of an ordinary user: exec has taken what the user namespace gave.
grep -E '^(Uid|Gid|Sig|Shd|Cap|NoNewPrivs|Seccomp)' /proc/self/status | grep -v SigQ
(cd /proc/self/fd && echo *)
ls /dev /dev/pts | grep -v infiniband
ls /sys/class /sys/devices | grep -v -e infiniband -e pcia4da
ls -l /sys/class/net | sed 's/.*-> //'
readlink -f /sys/class/net/*
env | grep -v -e ^LD_LIBRARY_PATH -e ^LD_PRELOAD -e ^ANYRDMA_TREE -e ^_= -e ^SHLVL | sort
stat -c '%n %t:%T %a' /dev/null /dev/zero /dev/tty /dev/full
hostname
readlink /proc/self/ns/net /proc/self/ns/pid /proc/self/ns/ipc
WORLD

cat > "$tmp/compare" <<'COMPARE'
want=$(bash "$1" 2>&1)
got=$("$2" run bash "$1" 2>&1)
[ -n "$want" ] && [ "$want" = "$got" ] || { diff <(echo "$want") <(echo "$got"); exit 1; }
COMPARE

declare -A way=([self]="in a mount namespace" [user]="in a user and mount namespace"
	[container]="in a mount namespace")
way[bubblewrap]="in a user and mount namespace"
for w in preload forbidden user-preload user-forbidden user-no-userns; do
	way[$w]="by a preloaded library"
done
[ -n "$root" ] || way[self]="in a user and mount namespace"

ours_of() { # WHO COMMAND...
	local w=${who[$1]}
	shift
	# shellcheck disable=SC2086
	$w "$@"
}

# Why cases of WHO cannot run here; nothing: they can.
unable() {
	# shellcheck disable=SC2086
	${who[$1]} "$anyrdma" version > /dev/null 2>&1 || echo "no such processes here, or the build cannot be read by them"
}

# Server and client in an `anyrdma run` each: each accesses the other's memory.
first_port 7700
direct() { # WHO VARIABLE=VALUE...
	local w=${who[$1]} server tries=0
	shift
	next_port
	# shellcheck disable=SC2086
	env ANYRDMA_LOG=info "$@" $w timeout 20 "$anyrdma" run \
		rping -s -a 127.0.0.1 -p "$port" -C 3 -S 50000 > "$logs/direct.server" 2>&1 &
	server=$!
	while ! listening "" "rdma:$port"; do
		tries=$((tries + 1))
		[ $tries -lt 500 ] && alive $server || { cat "$logs/direct.server"; return 1; }
		sleep 0.02
	done
	# shellcheck disable=SC2086
	env ANYRDMA_LOG=info "$@" $w timeout 20 "$anyrdma" run \
		rping -c -a 127.0.0.1 -p "$port" -C 3 -S 50000 > "$logs/direct.client" 2>&1 ||
		echo "client: $?"
	wait $server || echo "server: $?"
	grep -q 'is accessed directly' "$logs/direct.server" &&
		grep -q 'is accessed directly' "$logs/direct.client" && return
	cat "$logs/direct.server" "$logs/direct.client"
	return 1
}

# Programs of an ordinary user share a user namespace, also if they begin at once.
one_namespace() {
	local i
	for i in 1 2 3 4 5 6; do
		# Each ends when all have begun.
		# shellcheck disable=SC2016
		ours_of user "$anyrdma" run sh -c 'readlink /proc/self/ns/user; read -r _' \
			< "$tmp/hold" > "$tmp/ns.$i" &
	done
	exec 8> "$tmp/hold"
	for i in 1 2 3 4 5 6; do
		until [ -s "$tmp/ns.$i" ]; do sleep 0.02; done
	done
	exec 8>&-
	wait
	[ "$(sort -u "$tmp"/ns.? | wc -l)" = 1 ] && ! grep -qx "$(readlink /proc/self/ns/user)" "$tmp/ns.1" && return
	cat "$tmp"/ns.?
	return 1
}
mkfifo "$tmp/hold"

# What the port counts is what the two ends have moved, in words and packets; and the files
# follow the host's addresses. In a run of their own, whose counters begin at zero.
cat > "$tmp/counts" <<'COUNTS'
port=/sys/class/infiniband/anyrdma0/ports/1
before=$(cat $port/counters/port_xmit_data)
rping -s -a 127.0.0.1 -p "$1" -C 20 -S 50000 > /dev/null 2>&1 &
for _ in {1..300}; do
	rping -c -a 127.0.0.1 -p "$1" -C 20 -S 50000 > /dev/null 2>&1 && break
	sleep 0.02
done
wait
# 20 times 50000 bytes each way, and 20 small messages; a word is 4 bytes.
words=$(($(cat $port/counters/port_xmit_data) - before))
rcv=$(cat $port/counters/port_rcv_data) packets=$(cat $port/counters/port_xmit_packets)
[ "$words" -ge 500000 ] && [ "$words" -lt 600000 ] || { echo "xmit_data: $words"; exit 1; }
[ "$rcv" -ge 500000 ] || { echo "rcv_data: $rcv"; exit 1; }
[ "$packets" -gt 400 ] || { echo "packets: $packets"; exit 1; }
COUNTS
counts() { # VARIABLE=VALUE...
	next_port
	env "$@" "$anyrdma" run bash "$tmp/counts" "$port"
}

cat > "$tmp/perftest" <<'PERFTEST'
words=counters/port_xmit_data,counters/port_rcv_data
ib_write_bw -F -s 65536 -n 2000 -p 18790 -W $words > /dev/null 2>&1 &
for _ in {1..300}; do
	ib_write_bw -F -s 65536 -n 2000 -p 18790 -W $words 127.0.0.1 2> /dev/null && break
	sleep 0.02
done
wait
PERFTEST

# A program that has the device open brings the files up to date.
cat > "$tmp/follows" <<'FOLLOWS'
gids=/sys/class/infiniband/anyrdma0/ports/1/gids
ibv_asyncwatch > /dev/null &
watch=$!
there() { grep -q '^0000:0000:0000:0000:0000:ffff:0a57:0101$' $gids/*; }
ends() { kill $watch; wait; ip addr del 10.87.1.1/32 dev lo; ip addr del 10.87.1.2/32 dev lo; exit "$1"; }
until grep -q SigBlk /proc/$watch/task/*/status && [ "$(ls /proc/$watch/task | wc -l)" -gt 1 ]; do
	sleep 0.02
done
ip addr add 10.87.1.1/32 dev lo || ends 77
for _ in {1..300}; do there && break; sleep 0.02; done
there || { echo "the new address has no GID"; ends 1; }
file=$(grep -l '^0000:0000:0000:0000:0000:ffff:0a57:0101$' $gids/*)
[ "$(cat "$gids/../gid_attrs/ndevs/${file##*/}")" = lo ] || { echo "ndevs"; ends 1; }
# One that comes later keeps its index when that one has gone, also in a process that begins then.
ip addr add 10.87.1.2/32 dev lo
for _ in {1..300}; do
	later=$(grep -l '^0000:0000:0000:0000:0000:ffff:0a57:0102$' $gids/*) && break
	sleep 0.02
done
ip addr del 10.87.1.1/32 dev lo
for _ in {1..300}; do there || break; sleep 0.02; done
! there || { echo "its GID stays"; ends 1; }
[ ! -e "$gids/../gid_attrs/types/${file##*/}" ] || { echo "types"; ends 1; }
ibv_devinfo -v | grep -qE "GID\[ *${later##*/}\]:.*10\.87\.1\.2" || {
	echo "a new process has no 10.87.1.2 at $later"
	ibv_devinfo -v | grep GID
	ends 1
}
ends 0
FOLLOWS
follows() { # VARIABLE=VALUE...
	env "$@" "$anyrdma" run bash "$tmp/follows"
}

# A folder of the right name, open to others: the next place is taken.
preload_foreign() {
	mkdir -p "$tmp/run/anyrdma-$(id -u)" && chmod 777 "$tmp/run/anyrdma-$(id -u)" &&
		says '^/[^:]+$' env ANYRDMA_FILES=preload XDG_RUNTIME_DIR="$tmp/run" "$anyrdma" run \
			sh -c 'case $ANYRDMA_TREE in "$XDG_RUNTIME_DIR"/*) ;; *) echo "$ANYRDMA_TREE" ;; esac' &&
		[ -z "$(ls -A "$tmp/run/anyrdma-$(id -u)")" ] || return 1
	chmod 700 "$tmp/run/anyrdma-$(id -u)"
	says "^$tmp/run/anyrdma-" env ANYRDMA_FILES=preload XDG_RUNTIME_DIR="$tmp/run" "$anyrdma" run \
		printenv ANYRDMA_TREE
}

for w in self user container bubblewrap preload forbidden user-preload user-forbidden user-no-userns; do
	[ -n "${who[$w]+set}" ] || { skip "$w" "needs root, or bubblewrap"; continue; }
	why=$(unable $w)
	[ -z "$why" ] || { skip "$w" "$why"; continue; }
	is "$w: info says which way" says "^files of the device.*: ${way[$w]}$" ours_of $w "$anyrdma" info
	is "$w: the tree" ours_of $w "$anyrdma" run bash "$tmp/tree"
	is "$w: the tree, by all calls" ours_of $w "$anyrdma" run "$helper" look
	is "$w: exit code" status 42 ours_of $w "$anyrdma" run sh -c 'exit 42'
	# shellcheck disable=SC2016
	is "$w: becomes the program" says '^(\S+) \1$' ours_of $w sh -c \
		'me=$$; export me; exec "$0" run sh -c "echo \$me \$\$"' "$anyrdma"
	# shellcheck disable=SC2016
	is "$w: an inner run finds the files" says '^files of the device.*: by the anyrdma run around it$' \
		ours_of $w "$anyrdma" run "$anyrdma" info
	is "$w: an inner run with other settings" ours_of $w "$anyrdma" run \
		env ANYRDMA_ADDR=127.0.0.1 "$anyrdma" run sh -c \
		'[ "$(cat /sys/class/infiniband/anyrdma0/ports/1/gids/0)" = 0000:0000:0000:0000:0000:ffff:7f00:0001 ] &&
		[ "$(ls /sys/class/infiniband)" = anyrdma0 ] && ls /dev/infiniband/uverbs0'
	is "$w: ANYRDMA_FILES=off" ours_of $w env ANYRDMA_FILES=off "$anyrdma" run \
		sh -c '[ ! -e /sys/class/infiniband/anyrdma0 ]'
	is "$w: working folder in /sys" says '^/sys/class/net anyrdma0$' ours_of $w sh -c \
		'cd /sys/class/net && exec "$0" run sh -c "echo \$(pwd -P) \$(ls ../infiniband)"' "$anyrdma"
	is "$w: working folder in /dev" says '^/dev yes$' ours_of $w sh -c \
		'cd /dev && exec "$0" run sh -c "echo \$(pwd -P) \$([ -c infiniband/rdma_cm ] && echo yes)"' "$anyrdma"
	case $w in
	container) ;;
	*)
		is "$w: nothing else is changed" ours_of $w bash "$tmp/compare" "$tmp/world" "$anyrdma"
		is "$w: nor signals, umask, descriptors" ours_of $w bash -c \
			"trap '' INT USR1 CHLD; umask 027; exec 9< /dev/null; cd /tmp; exec bash \"\$@\"" \
			sh "$tmp/compare" "$tmp/world" "$anyrdma"
		is "$w: dies of its own signal" status 143 ours_of $w bash -c '"$0" run sh -c "kill -TERM \$\$"' "$anyrdma" ;;
	esac
	if command -v ibv_devices > /dev/null; then
		is "$w: ibv_devinfo shows the board id" says 'board_id:.*anyrdma' ours_of $w "$anyrdma" run ibv_devinfo
	fi
	if command -v rping > /dev/null && [ $w != container ] && [ $w != bubblewrap ] && [ $w != user-no-userns ]; then
		is "$w: two runs access each other's memory" direct $w
	fi
	if command -v strace > /dev/null && strace -o /dev/null true 2> /dev/null; then
		is "$w: strace" ours_of $w "$anyrdma" run strace -o /dev/null -f sh -c 'cat /sys/class/infiniband/anyrdma0/fw_ver'
	fi
	if command -v gdb > /dev/null; then
		is "$w: gdb" says 'exited normally' ours_of $w "$anyrdma" run gdb -nx -batch -ex run --args cat /sys/class/infiniband/anyrdma0/fw_ver
	fi
done

[ -z "$root" ] || is "user: one user namespace for all runs" one_namespace
if command -v rping > /dev/null; then
	is "counters, shared memory" counts
	is "counters, TCP" counts ANYRDMA_TRANSPORT=tcp
	is "counters, no direct access" counts ANYRDMA_DIRECT=off
	is "counters, preload" counts ANYRDMA_FILES=preload
fi
if command -v ib_write_bw > /dev/null; then
	# 2000 writes of 64 KiB, in words.
	is "counters, perftest -W" says 'port_xmit_data=32768000$' "$anyrdma" run bash "$tmp/perftest"
fi
if [ -n "$root" ] && [ -n "${OWN_HOST:-}" ] && command -v ibv_asyncwatch > /dev/null; then
	is "addresses that come and go" follows
	is "addresses that come and go, preload" follows ANYRDMA_FILES=preload
fi
# A host with a real device, as its files are: it stays as it is, and ours is beside it.
cat > "$tmp/real" <<'REAL'
mount -t tmpfs none /sys/class && mkdir /sys/class/infiniband /sys/class/infiniband_verbs || exit 77
mkdir -p /sys/class/net && ln -s ../../devices/virtual/net/lo /sys/class/net/lo
ln -s ../../devices/virtual/net/lo /sys/class/infiniband/mlx5_0
ln -s ../../devices/virtual/mem/zero /sys/class/infiniband_verbs/uverbs0
mkdir -p /dev/infiniband && mount -t tmpfs none /dev/infiniband &&
	mknod -m 666 /dev/infiniband/uverbs0 c 1 5 || exit 77
shown() {
	[ "$(echo $(ls /sys/class/infiniband /sys/class/infiniband_verbs /dev/infiniband))" = \
		"/dev/infiniband: rdma_cm uverbs0 uverbs1 /sys/class/infiniband: anyrdma0 mlx5_0 /sys/class/infiniband_verbs: abi_version uverbs0 uverbs1" ] &&
	[ "$(cat /sys/class/infiniband/mlx5_0/ifindex)" = 1 ] &&
	[ "$(realpath /sys/class/infiniband/mlx5_0)" = /sys/devices/virtual/net/lo ] &&
	[ "$(cat /sys/class/infiniband_verbs/uverbs1/ibdev)" = anyrdma0 ] &&
	[ "$(stat -c %t:%T /dev/infiniband/uverbs0)" = 1:5 ] &&
	[ "$(stat -c %t:%T /dev/infiniband/uverbs1)" = 1:3 ] || {
		ls -l /sys/class/infiniband /sys/class/infiniband_verbs /dev/infiniband
		return 1
	}
}
export -f shown
"$1" run bash -c shown && "$1" run "$1" run bash -c shown &&
	ANYRDMA_ADDR=127.0.0.1 "$1" run env -u ANYRDMA_ADDR "$1" run bash -c shown
REAL
real() { # VARIABLE=VALUE...
	unshare -m env "$@" bash "$tmp/real" "$anyrdma"
}

if [ -n "$root" ]; then
	is "a real device beside ours" real
	is "a real device beside ours, preload" real ANYRDMA_FILES=preload
fi
is "two devices" says '^pci[0-9a-f:]+:00/[0-9a-f:]+:00:00.0 pci[0-9a-f:]+:01/[0-9a-f:]+:01:00.0$' env ANYRDMA_DEVICES=2 \
	"$anyrdma" run sh -c 'echo $(realpath /sys/class/infiniband_verbs/uverbs[01]/device | cut -d/ -f4-)'
is "two devices, preload" says '^anyrdma0 anyrdma1 uverbs0 uverbs1$' env ANYRDMA_DEVICES=2 \
	ANYRDMA_FILES=preload "$anyrdma" run sh -c 'echo $(ls /sys/class/infiniband; cd /dev/infiniband; ls uv*)'
is "refused: a warning, and the program runs" says '^anyrdma.*not shown.*info. says why' env ANYRDMA_LOG=warn \
	ANYRDMA_FILES=namespace "$helper" forbid "$anyrdma" run true
is "refused: info says why" says '^  not in a mount namespace: .*not permitted' env \
	ANYRDMA_FILES=namespace "$helper" forbid "$anyrdma" info
is "nothing is said" status 1 says . "$anyrdma" run true
is "preload: LD_PRELOAD kept in front of ours" says '^libc.so.6:/.*/libanyrdma-files.so$' env \
	ANYRDMA_FILES=preload LD_PRELOAD=libc.so.6 "$anyrdma" run printenv LD_PRELOAD
is "preload: ours not twice" says '^/[^:]*/libanyrdma-files.so$' env \
	ANYRDMA_FILES=preload "$anyrdma" run "$anyrdma" run printenv LD_PRELOAD
is "preload: a folder that others can write to is not taken" preload_foreign
is "the host has none of it" sh -c '! ls /sys/class/infiniband/anyrdma0 && ! ls /dev/infiniband/uverbs0'
finish
