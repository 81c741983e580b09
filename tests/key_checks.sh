# For the end-to-end tests of the key cluster: etcd and nodes on loopback, each ended by its pid. Sourced after checks.sh.
# shellcheck shell=sh

: "${KEYD_BIN:?names the keyd program to test}"
unset CAPSTAN_KEY_FILE

umask 077
pids=$scratch/pids
: >"$pids"
trap 'xargs -r kill -9 <"$pids" 2>/dev/null; chmod -R u+rwx "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT

keyd() { timeout 60 "$KEYD_BIN" "$@"; }

# Ports that nobody has, from below those of connections that go out: a server keeps its own while it is down.
ports=$("$PYTHON" -c '
import contextlib, random, socket
ports = set()
while len(ports) < 6:
    with socket.socket() as s, contextlib.suppress(OSError):
        s.bind(("127.0.0.1", random.randrange(12768, 32768)))
        ports.add(s.getsockname()[1])
print(*ports)')
# shellcheck disable=SC2086 # a list of numbers
set -- $ports
etcd_url=http://127.0.0.1:$1
etcd_peer=http://127.0.0.1:$2
node1=127.0.0.1:$3
enrol1=127.0.0.1:$4
node2=127.0.0.1:$5

etcd --name m1 --data-dir "$scratch/etcd" --listen-client-urls "$etcd_url" --advertise-client-urls "$etcd_url" \
    --listen-peer-urls "$etcd_peer" --initial-advertise-peer-urls "$etcd_peer" --initial-cluster "m1=$etcd_peer" \
    >"$scratch/etcd.log" 2>&1 &
echo $! >>"$pids"

# until_so COMMAND...: waits for it to succeed, half a minute at most.
until_so() {
    for _ in $(seq 150); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    "$@"
}

# started NODE: runs it, until its socket takes shares.
started() {
    "$KEYD_BIN" run --state "$scratch/$1" >"$scratch/$1.log" 2>&1 &
    echo $! >"$scratch/$1.pid"
    cat "$scratch/$1.pid" >>"$pids"
    until_so test -S "$scratch/$1/keyd.sock" || { tail -n 5 "$scratch/$1.log"; return 1; }
}

stop() { kill -9 "$(cat "$scratch/$1.pid")"; rm -f "$scratch/$1/keyd.sock"; }

# enrol_user NAME: with the passphrase that $scratch/founded has shown.
enrol_user() {
    grep "^  $1 " "$scratch/founded" >"$scratch/$1.said" && once "$1" "$scratch/$1.said" &&
        until_so keyd enrol --at "$enrol1" --name "$1" --passphrase-file "$scratch/$1.once" --identity "$scratch/$1.pem"
}

# as USER COMMAND...: asks the first node.
as() {
    user=$1
    shift
    KEYD_IDENTITY="$scratch/$user.pem" KEYD_NODE="$node1" keyd "$@"
}

# once NAME FILE: the passphrase that a command has shown for NAME.
once() { grep -Eo '([0-9A-Z]{4}-){4}[0-9A-Z]{4}' "$2" | head -n 1 >"$scratch/$1.once" && test -s "$scratch/$1.once"; }
