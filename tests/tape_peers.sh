#!/bin/sh
# Backup programs that nobody here wrote, on drives that encrypt without their knowing: Bacula and Amanda with the library's robot.
#
# They run in a guest (guest/README.md), each in one of its own, on a library of ours whose drives fetch the key of each volume from a
# sealed store. The checks are in tape_peers_bacula.sh and tape_peers_amanda.sh.
#
# Their packages are fetched and not installed: installed they would start services here, bring a mail server, and ask for a database.
# The guest unpacks them over its root, where they find everything under the paths they were built with, and forgets them.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/guest.sh
what='other backup programs on our encrypting drives'
command -v apt-get >/dev/null || skip "$what" 'there is no apt-get to fetch them with'
needs_guest "$what" dpkg-deb mtx mt-st rsync sg_raw

packages=${CARGO_TARGET_DIR:-$PWD/target}/guest/packages
# fetch PEER PACKAGE...: them, and what they need that is not on this machine. Asks the network only for what is not there yet.
fetch() {
    folder=$packages/$1
    shift
    mkdir -p "$folder/partial" "$packages/lists/partial"
    apt="apt-get -qq -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Dir::Cache::archives=$folder"
    get="--yes --no-install-recommends --download-only --reinstall install"
    # shellcheck disable=SC2086 # lists of words
    if ! $apt $get "$@" >"$folder/log" 2>&1; then
        # This machine's list of packages is old or was never fetched, and is not ours to renew.
        apt="$apt -o Dir::State::lists=$packages/lists"
        $apt update >"$folder/log" 2>&1 && $apt $get "$@" >>"$folder/log" 2>&1 || return
    fi
    # Of a package that was renewed the old file goes.
    $apt autoclean >>"$folder/log" 2>&1
}

logs=$(mktemp -d "${TMPDIR:-/var/tmp}/capstan-test.XXXXXX")
trap 'rm -rf "$logs"' EXIT
trap 'exit 1' INT TERM
# One guest has one processor: both at once take as long as one.
for peer in bacula amanda; do
    case $peer in
    bacula) names='bacula-console bacula-director bacula-director-sqlite3 bacula-fd bacula-sd sqlite3' ;;
    amanda) names='amanda-client amanda-server' ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    if fetch "$peer" $names; then
        guest/run -m 2000 -t 600 -e PACKAGES="$packages/$peer" -- sh "$PWD/tests/tape_peers_$peer.sh" >"$logs/$peer" 2>&1 &
        echo "$peer $!" >>"$logs/guests"
    else
        echo "not ok 1 - $peer: its packages are fetched" >"$logs/$peer"
        sed 's/^/# /' "$packages/$peer/log" >>"$logs/$peer"
        echo "$peer" >>"$logs/guests"
    fi
done
while read -r peer guest; do
    { [ -n "$guest" ] && wait "$guest"; } || result=1
    # Each guest counts from 1.
    awk -v n="$number" '/^(not )?ok [0-9]+ - / { n++; sub(/ok [0-9]+/, "ok " n) } { print }' "$logs/$peer"
    number=$((number + $(grep -c '^\(not \)\{0,1\}ok ' "$logs/$peer")))
done <"$logs/guests"
echo "1..$number"
exit $result
