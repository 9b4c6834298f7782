#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Unmodified sockets programs, both ends under `anyrdma run --sockets`; what each moved is compared.
# FULL=1: with the sizes and numbers of the long run (make test-sockets).
. "$(dirname "$0")/../programs/lib.sh"
ours=("$BUILD/bin/anyrdma" run --sockets)
own_host
need curl python3
first_port 7600
dir=$(mktemp -d)
chmod 755 "$dir"
trap 'cleanup; rm -rf "$dir"' EXIT
many() { # FEW MANY
	if [ -n "${FULL:-}" ]; then echo "$2"; else echo "$1"; fi
}
has() { # CASE PROGRAM...
	local p case=$1
	shift
	for p; do
		command -v "$p" > /dev/null || { skip "$case" "$p is not installed"; return 1; }
	done
}

size=$(many 20 100)
head -c ${size}M /dev/urandom > "$dir/file"

pair "curl from python's http.server" 60 tcp:$port \
	"exec python3 -m http.server -b 127.0.0.1 -d $dir $port" \
	"curl -sf -o $dir/got http://127.0.0.1:$port/file && cmp $dir/file $dir/got && echo same" \
	'^same' stop
next_port

cat > "$dir/echo.py" << 'EOF'
import asyncio, sys, hashlib
port, conns, rounds = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
async def serve(r, w):
    while data := await r.read(65536):
        w.write(data)
        await w.drain()
    w.close()
async def client(i):
    r, w = await asyncio.open_connection('127.0.0.1', port)
    for k in range(rounds):
        data = hashlib.sha256(b'%d %d' % (i, k)).digest() * (1 + k * 37 % 900)
        w.write(data)
        await w.drain()
        assert await r.readexactly(len(data)) == data
    w.write_eof()
    assert await r.read() == b''
    w.close()
async def main():
    if sys.argv[1] == 'server':
        s = await asyncio.start_server(serve, '127.0.0.1', port)
        await s.serve_forever()
    await asyncio.gather(*(client(i) for i in range(conns)))
    print('all the same')
asyncio.run(main())
EOF
pair "python asyncio" 60 tcp:$port "exec python3 $dir/echo.py server $port 0 0" \
	"python3 $dir/echo.py client $port $(many 10 100) $(many 40 200)" 'all the same' stop
next_port

if has "iperf3, 8 streams" iperf3; then
	seconds=$(many 1 5)
	for way in "" -R; do
		pair "iperf3, 8 streams${way:+, reverse}" 60 tcp:$port "iperf3 -s -1 -p $port" \
			"iperf3 -c 127.0.0.1 -p $port -P 8 -t $seconds $way" 'iperf Done'
		next_port
	done
fi

if has redis redis-server redis-benchmark; then
	pair "redis, 100 clients" 120 tcp:$port \
		"exec redis-server --port $port --save '' --dir $dir" \
		"redis-benchmark -p $port -c 100 -n $(many 5000 100000) -t set,get,lpush -q &&
		 redis-benchmark -p $port -c 50 -P 16 -n $(many 5000 100000) -t set,get -q &&
		 redis-benchmark -p $port -c 4 -d 1048576 -n $(many 50 500) -t set,get -q &&
		 head -c 1000000 $dir/file | base64 -w0 > $dir/value &&
		 redis-cli -p $port -x set key < $dir/value && redis-cli -p $port get key > $dir/value2 &&
		 [ \"\$(cat $dir/value)\" = \"\$(cat $dir/value2)\" ] && redis-cli -p $port bgsave &&
		 redis-cli -p $port ping && echo same" '^same' stop
	next_port
fi

cat > "$dir/mc.py" << 'EOF'
import socket, sys, threading, random
port, threads, rounds = map(int, sys.argv[1:])
def run(i):
    rnd = random.Random(i)
    s = socket.create_connection(('127.0.0.1', port))
    f = bytearray()
    def line():
        while b'\r\n' not in f:
            got = s.recv(65536)
            assert got
            f.extend(got)
        at = f.index(b'\r\n')
        out = bytes(f[:at])
        del f[:at + 2]
        return out
    def take(n):
        while len(f) < n:
            got = s.recv(65536)
            assert got
            f.extend(got)
        out = bytes(f[:n])
        del f[:n]
        return out
    for k in range(rounds):
        v = rnd.randbytes(rnd.choice([1, 64, 4000, 100000, 900000 if k % 50 == 0 else 300]))
        s.sendall(b'set k%d 0 0 %d\r\n' % (i, len(v)) + v + b'\r\n')
        assert line() == b'STORED'
        s.sendall(b'get k%d\r\n' % i)
        assert line() == b'VALUE k%d 0 %d' % (i, len(v))
        assert take(len(v) + 2) == v + b'\r\n'
        assert line() == b'END'
    good.append(i)
good = []
ts = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
[t.start() for t in ts]
[t.join() for t in ts]
assert len(good) == threads
print('all the same')
EOF
if has memcached memcached; then
	pair "memcached" 120 tcp:$port "exec memcached -u root -l 127.0.0.1 -p $port -U 0 -m 256" \
		"python3 $dir/mc.py $port 8 $(many 50 500)" 'all the same' stop
	next_port
fi

nginx_conf() { # PORT
	cat > "$dir/nginx.conf" << EOF
daemon off; user root; pid $dir/nginx.pid; error_log $dir/nginx.log;
worker_processes 2;
events { worker_connections 4096; }
http {
	access_log off; keepalive_requests 100000;
	client_body_temp_path $dir/b; proxy_temp_path $dir/p; fastcgi_temp_path $dir/f;
	uwsgi_temp_path $dir/u; scgi_temp_path $dir/s;
	server { listen 127.0.0.1:$1; root $dir; sendfile on; }
}
EOF
}
echo hello > "$dir/small"
if has nginx nginx wrk; then
	nginx_conf $port
	pair "nginx, keep-alive" 120 tcp:$port "exec nginx -c $dir/nginx.conf" \
		"wrk -c $(many 100 1000) -t 2 -d $(many 2 10)s http://127.0.0.1:$port/small > $dir/wrk &&
		 cat $dir/wrk && ! grep -E 'Socket errors|Non-2xx' $dir/wrk &&
		 curl -sf -o $dir/got http://127.0.0.1:$port/file && cmp $dir/file $dir/got && echo same" \
		'^same' stop
	next_port
fi
if has haproxy haproxy nginx; then
	front=$port
	next_port
	nginx_conf $port
	cat > "$dir/haproxy.cfg" << EOF
defaults
	mode http
	timeout connect 5s
	timeout client 30s
	timeout server 30s
frontend f
	bind 127.0.0.1:$front
	default_backend b
backend b
	server s 127.0.0.1:$port
EOF
	pair "haproxy before nginx" 120 tcp:$front \
		"nginx -c $dir/nginx.conf & exec haproxy -db -f $dir/haproxy.cfg" \
		"for i in 1 2 3; do curl -sf -o $dir/got --retry 5 --retry-connrefused \
			http://127.0.0.1:$front/file && cmp $dir/file $dir/got || exit 1; done; echo same" \
		'^same' stop
	next_port
fi

pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
if [ -z "$pg" ] || ! id postgres > /dev/null 2>&1; then
	skip "PostgreSQL" "postgresql is not installed"
else
	as="setpriv --reuid postgres --regid postgres --clear-groups"
	install -d -o postgres "$dir/pg"
	$as "$pg/initdb" -D "$dir/pg/data" -A trust > "$logs/initdb" 2>&1
	pair "PostgreSQL, pgbench" 120 tcp:$port \
		"exec $as $pg/postgres -D $dir/pg/data -p $port -h 127.0.0.1 -k $dir/pg -F" \
		"PGHOST=127.0.0.1 PGPORT=$port PGUSER=postgres; export PGHOST PGPORT PGUSER
		 $as createdb bench && $as $pg/pgbench -q -i -s 1 bench &&
		 $as $pg/pgbench -c 8 -j 2 -T $(many 2 10) bench &&
		 $as psql -At -c 'select (select sum(abalance) from pgbench_accounts) =
			(select sum(tbalance) from pgbench_tellers)' bench" '^t$' stop
	next_port
fi

if has "ssh and rsync" sshd rsync ssh ssh-keygen; then
	ssh-keygen -q -t ed25519 -N '' -f "$dir/key"
	ssh-keygen -q -t ed25519 -N '' -f "$dir/host"
	mkdir -p "$dir/tree" /run/sshd
	cp -r "$top/src" "$top/tests" "$dir/tree" 2>/dev/null
	printf '#!/bin/sh\nexec ssh -p %s -i %s -o StrictHostKeyChecking=no -o %s "$@"\n' \
		$port "$dir/key" UserKnownHostsFile=/dev/null > "$dir/ssh"
	chmod +x "$dir/ssh"
	cat > "$dir/sshd_config" << EOF
Port $port
ListenAddress 127.0.0.1
HostKey $dir/host
AuthorizedKeysFile $dir/key.pub
StrictModes no
PidFile none
UsePAM no
PermitRootLogin yes
EOF
	pair "ssh and rsync" 120 tcp:$port "exec $(command -v sshd) -D -e -f $dir/sshd_config" \
		"rsync -a -e $dir/ssh $dir/tree/ root@127.0.0.1:$dir/copy/ &&
		 diff -r $dir/tree $dir/copy && echo same" '^same' stop
	next_port
fi

if has "sockperf" sockperf; then
	pair "sockperf" 60 tcp:$port "exec sockperf server --tcp -p $port" \
		"sockperf ping-pong --tcp -p $port -i 127.0.0.1 -m 64 -t $(many 1 5) --data-integrity" \
		'percentile 50' stop
	next_port
fi

cat > "$dir/http.js" << 'EOF'
const http = require('http'), port = +process.argv[3];
if (process.argv[2] == 'server') {
	http.createServer((q, a) => q.pipe(a)).listen(port, '127.0.0.1');
} else {
	const agent = new http.Agent({ keepAlive: true, maxSockets: 10 });
	let left = +process.argv[4];
	for (let i = left; i > 0; i--) {
		const body = Buffer.alloc(1 + i * 997 % 200000, 'x' + i);
		const q = http.request({ port, host: '127.0.0.1', method: 'POST', agent }, a => {
			const got = [];
			a.on('data', d => got.push(d)).on('end', () => {
				if (!Buffer.concat(got).equals(body)) throw 'differs';
				if (!--left) { console.log('all the same'); agent.destroy(); }
			});
		});
		q.end(body);
	}
}
EOF
if has "node http" node; then
	pair "node http" 60 tcp:$port "exec node $dir/http.js server $port" \
		"node $dir/http.js client $port $(many 100 2000)" 'all the same' stop
	next_port
fi
finish
