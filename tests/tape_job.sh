#!/bin/sh
# The main job on a library that the kernel drives: backup to a twin over two drives, spanning, restore, verify, rebuild.
#
# In a guest (guest/README.md) with our own library as hardware; the checks are in tape_job_checks.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH="$PATH:/usr/sbin:/sbin"
: "${CAPSTAN_BIN:=$PWD/target/debug/capstan}"
export CAPSTAN_BIN

skip() {
    echo "ok 1 - the main job on a real library # SKIP $1"
    echo 1..1
    exit 0
}

[ "$(uname -sm)" = 'Linux x86_64' ] || skip 'User Mode Linux needs Linux on x86_64'
[ -e /usr/src/linux-source-6.1.tar.xz ] || skip 'there is no /usr/src/linux-source-6.1.tar.xz (package linux-source-6.1, Debian 12)'
for program in flex bison bc busybox iscsid rsync; do
    command -v $program >/dev/null || skip "$program is missing: ./x test installs it"
done
if ! guest/build; then
    echo 'not ok 1 - the guest kernel is built'
    exit 1
fi

log=$(mktemp "${TMPDIR:-/var/tmp}/capstan-test.XXXXXX")
trap 'rm -f "$log" "$log.pipe"' EXIT
number=0
result=0
for driver in ${*:-sg st}; do
    # A pipe would hide the guest's exit code.
    mkfifo "$log.pipe"
    tee "$log" <"$log.pipe" &
    guest/run -d capstan -m 3500 -t 300 -e FIRST="$number" -e DRIVER="$driver" -e TAPE_MB=160 \
        -- sh "$PWD/tests/tape_job_checks.sh" >"$log.pipe" || result=1
    wait
    rm "$log.pipe"
    number=$((number + $(grep -c '^\(not \)\{0,1\}ok ' "$log")))
done
echo "1..$number"
exit $result
