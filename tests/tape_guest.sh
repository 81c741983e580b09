#!/bin/sh
# The kernel's own tape and changer drivers, and the programs that people use with them, against a tape library over iSCSI.
#
# They run in a guest (guest/README.md), since few machines have a tape library. The checks are in tape_guest_checks.sh; each library
# passes them in one boot: tgt's, a peer, which shows that the checks and the guest are right; and our own.
set -u
cd "$(dirname "$0")/.." || exit 1
PATH="$PATH:/usr/sbin:/sbin"
: "${CAPSTAN_BIN:=${CARGO_TARGET_DIR:-$PWD/target}/debug/capstan}"
export CAPSTAN_BIN

skip() {
    echo "ok 1 - the kernel's tape driver # SKIP $1"
    echo 1..1
    exit 0
}

[ "$(uname -sm)" = 'Linux x86_64' ] || skip 'User Mode Linux needs Linux on x86_64'
[ -e /usr/src/linux-source-6.1.tar.xz ] || skip 'there is no /usr/src/linux-source-6.1.tar.xz (package linux-source-6.1, Debian 12)'
for program in flex bison bc busybox tgtd iscsid mtx mt-st sg_raw stenc; do
    command -v $program >/dev/null || skip "$program is missing: ./x test installs it"
done

log=$(mktemp "${TMPDIR:-/var/tmp}/capstan-test.XXXXXX")
trap 'rm -f "$log" "$log.pipe"' EXIT
number=0
result=0
if ! guest/build; then
    echo 'not ok 1 - the guest kernel is built'
    exit 1
fi

libraries=tgt
"$CAPSTAN_BIN" vtl serve --help >/dev/null 2>&1 && libraries="$libraries capstan"
for library in ${*:-$libraries}; do
    echo "# library: $library"
    # A pipe would hide the guest's exit code.
    mkfifo "$log.pipe"
    tee "$log" <"$log.pipe" &
    guest/run -d "$library" -t 300 -e FIRST="$number" -e LIBRARY="$library" -e TAPE_MB=96 \
        -e REAL_DRIVE="$(dirname "$CAPSTAN_BIN")/examples/real_drive" \
        -- sh "$PWD/tests/tape_guest_checks.sh" >"$log.pipe" || result=1
    wait
    rm "$log.pipe"
    number=$((number + $(grep -c '^\(not \)\{0,1\}ok ' "$log")))
done
echo "1..$number"
exit $result
