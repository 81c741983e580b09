# Sourced by the scripts here that need the guest: whether there can be one, and the guest itself.
# shellcheck shell=sh

PATH="$PATH:/usr/sbin:/sbin"
: "${CAPSTAN_BIN:=$PWD/target/debug/capstan}"
export CAPSTAN_BIN PATH

# skip WHAT WHY
skip() {
    echo "ok 1 - $1 # SKIP $2"
    echo 1..1
    exit 0
}

# needs_guest WHAT: builds the guest's kernel if it is not there; ends the script where it cannot be had.
needs_guest() {
    [ "$(uname -sm)" = 'Linux x86_64' ] || skip "$1" 'User Mode Linux needs Linux on x86_64'
    [ -e /usr/src/linux-source-6.1.tar.xz ] ||
        skip "$1" 'there is no /usr/src/linux-source-6.1.tar.xz (package linux-source-6.1, Debian 12)'
    for program in flex bison bc busybox tgtd iscsid mtx mt-st sg_raw stenc rsync; do
        command -v $program >/dev/null || skip "$1" "$program is missing: ./x test installs it"
    done
    if ! guest/build; then
        echo 'not ok 1 - the guest kernel is built'
        exit 1
    fi
}
