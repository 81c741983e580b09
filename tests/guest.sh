# Sourced by the scripts here that need the guest: whether there can be one, and the guest itself.
# shellcheck shell=sh

PATH="$PATH:/usr/sbin:/sbin"
: "${CAPSTAN_BIN:=${CARGO_TARGET_DIR:-$PWD/target}/debug/capstan}"
export CAPSTAN_BIN PATH
number=0
result=0

# skip WHAT WHY
skip() {
    echo "ok 1 - $1 # SKIP $2"
    echo 1..1
    exit 0
}

# needs_guest WHAT PROGRAM...: builds the guest's kernel if it is not there; ends the script where it cannot be had, or a program is missing.
needs_guest() {
    what=$1
    shift
    [ "$(uname -sm)" = 'Linux x86_64' ] || skip "$what" 'User Mode Linux needs Linux on x86_64'
    builds=''
    guest/packaged || {
        [ -e /usr/src/linux-source-6.1.tar.xz ] ||
            skip "$what" 'there is neither a linux.uml that runs here nor /usr/src/linux-source-6.1.tar.xz (Debian 12: ./x test installs one)'
        builds='flex bison bc'
    }
    for program in $builds busybox iscsid "$@"; do
        command -v "$program" >/dev/null || skip "$what" "$program is missing: ./x test installs it"
    done
    if ! guest/build; then
        echo 'not ok 1 - the guest kernel is built'
        exit 1
    fi
}

# counted ARGUMENT...: guest/run, whose checks begin behind those of the guest before (FIRST). Sets number and result.
counted() {
    log=$(mktemp "${TMPDIR:-/var/tmp}/capstan-test.XXXXXX")
    trap 'rm -f "$log" "$log.pipe"' EXIT
    trap 'exit 1' INT TERM
    # A pipe would hide the guest's exit code.
    mkfifo "$log.pipe"
    tee "$log" <"$log.pipe" &
    guest/run -e FIRST="$number" "$@" >"$log.pipe" || result=1
    wait
    number=$((number + $(grep -c '^\(not \)\{0,1\}ok ' "$log")))
    rm -f "$log" "$log.pipe"
}
