#!/bin/sh
# A file library: virtual cartridges in folders on two disks, with room that stays free, marks above which what has expired gives its room
# back, a disk that is not mounted, and cartridges that somebody deleted.
#
# The disks are file systems in memory, mounted in a namespace of our own; where that is not allowed nothing is tested.
set -u
if [ "${1:-}" != inside ]; then
    unshare --mount --map-root-user true 2>/dev/null || {
        echo 'ok 1 - a file library # SKIP namespaces are forbidden here'
        echo 1..1
        exit 0
    }
    exec unshare --mount --map-root-user "$0" inside
fi
. "$(dirname "$0")/checks.sh"

one=$scratch/one
two=$scratch/two
kept=$scratch/kept
source=$scratch/source
mkdir "$one" "$two" "$kept" "$source"
# The second disk can be away, and come back with what is on it.
mount -t tmpfs -o size=48m tmpfs "$one" && mount -t tmpfs -o size=80m tmpfs "$kept" && mount --bind "$kept" "$two" || exit 1
trap 'umount "$one" "$two" "$kept" 2>/dev/null; chmod -R u+rwx "$scratch"; rm -rf "$scratch"' EXIT
for name in a b c d; do
    mkdir "$source/$name"
    head -c 45000000 /dev/urandom >"$source/$name/noise"
done

set_library() { sed -i "/^\[library\]/,/^\[data\]/s|^$1 = .*|$1 = $2|" "$CAPSTAN_STATE/capstan.toml"; }
back_up() { capstan --quiet backup "$source/$1"; }
# comes_back NAME: it is restored as it is.
comes_back() {
    rm -rf "$scratch/restored"
    capstan --quiet restore "$source/$1" --to "$scratch/restored" && cmp "$source/$1/noise" "$scratch/restored$source/$1/noise"
}
# free_mib DISK: what is free there.
free_mib() { df --output=avail --block-size=1M "$1" | tail -n 1 | tr -d ' '; }
at_least() { [ "$1" -ge "$2" ] || { echo "$1 is less than $2" && return 1; }; }
at_most() { [ "$1" -le "$2" ] || { echo "$1 is more than $2" && return 1; }; }
# let_go NAME: its backup expires.
let_go() { capstan expire "$(id_of "$1")" --gone "$source/$1" --yes; }
id_of() { capstan --json objects | sed -n "s|.*\"object\":\"\([0-9a-f]*\)\".*$source/$1\".*|\1|p" | head -n 1; }

begin --library "$one/library" --volume-size 8M --drives 2
set_library folders "[\"$two/depots\"]"
check 'folders need to know how much stays free' prints 'free_mib' exits 2 capstan volumes
set_library free_mib 8
set_library low_percent 40
check 'a low mark needs a high one' prints 'high_percent' exits 2 capstan volumes
set_library low_percent 0
check 'a folder that nobody marked is told' prints 'run `capstan library initialize`' exits 3 capstan library inventory
check 'and not used' eval '[ -z "$(ls -A "$two")" ]'
check 'it is marked' capstan --quiet library initialize
check 'a first backup' back_up a
check 'and a second one' back_up b
check 'lie in both folders' eval '[ -n "$(find "$one" -name "*.tape" -type f)" ] && [ -n "$(find "$two" -name "*.tape" -type f)" ]'
check 'of which the inventory tells' prints "folder $two/depots: " capstan library inventory
check 'both come back' eval 'comes_back a && comes_back b'
# 128 MiB of disks, of which 16 stay free.
check 'a third one does not fit, and ends with 5' exits 5 back_up c
check 'which says why' prints 'all folders of the library have less room than is to stay free' exits 5 capstan --quiet backup "$source/c"
check 'and what to do' prints 'give the library another folder' capstan --quiet backup "$source/c"
check 'the first disk has its room' at_least "$(free_mib "$one")" 6
check 'and so has the second' at_least "$(free_mib "$two")" 6
check 'what was protected before comes back' eval 'comes_back a && comes_back b'

# What has expired gives its room back, and no more than has to.
check 'what has expired and is below the mark can be taken back' eval 'let_go a && [ -z "$(id_of a)" ] && capstan --quiet expire --undo && comes_back a'
set_library high_percent 50
set_library low_percent 40
taken_before=$(free_mib "$two")
check 'above the high mark it is made blank' prints 'was made blank' let_go a
check 'so the disk has room' at_least "$(($(free_mib "$one") + $(free_mib "$two")))" "$((taken_before + 20))"
check 'the other backup is whole' comes_back b
check 'and the third one fits' back_up c
check 'and comes back' comes_back c
check 'volumes that are kept were left alone' capstan --quiet verify "$source/b" "$source/c"

# A disk that is not mounted.
umount "$two"
check 'a folder whose disk is away is told' prints "folder $two/depots cannot be used" exits 3 capstan library inventory
check 'what lies there does not come back' exits 3 comes_back c
check 'and the volume is named' prints 'not in the library' capstan --quiet restore "$source/c" --to "$scratch/none"
check 'and not marked' prints "cartridges of the library lay in $two/depots" exits 1 capstan library initialize
check 'status says so' prints "folder $two/depots cannot be used" capstan status
check 'nothing is written below the mount point' eval '[ -z "$(ls -A "$two")" ]'
mount --bind "$kept" "$two"
check 'with its disk again it comes back' comes_back c

# The library's own folder is lost, or knows less than the other one.
find "$one/library/slots" -name '*.tape' -type l -delete
check 'cartridges of a folder are taken in again' comes_back c
check 'a folder of another library is refused' eval 'echo other >"$two/depots/library.id" && prints "that of another library" capstan library inventory'
cp "$one/library/library.id" "$two/depots/library.id"
mv "$one/library" "$one/lost"
check 'a library without its own folder says so' prints 'run `capstan library initialize`' capstan --quiet restore "$source/c" --to "$scratch/none"
check 'a new one is marked' capstan --quiet library initialize
check 'and has the mark of the others' cmp "$one/library/library.id" "$two/depots/library.id"
check 'and their cartridges' prints 'A000' capstan library inventory
mv -n "$one/lost/slots/"* "$one/library/slots/" && rm -rf "$one/lost"
check 'and with the rest all comes back' comes_back c

# A cartridge that somebody deleted.
gone=$(basename "$(find "$two" -name '*.tape' -size +1M | sort | head -n 1)" .tape)
rm "$two/depots/$gone.tape"
check 'a cartridge that was deleted is named' prints "$gone" capstan library inventory
check 'as one that is outside' eval 'capstan library inventory | grep "^outside .*$gone"'

# An older catalog takes volumes for expired that were written since.
rm -rf "$one/library" "$two/depots"
begin --library "$one/library" --volume-size 8M --encrypt none
mkdir "$source/s"
head -c 10000000 /dev/urandom >"$source/s/noise"
back_up s
let_go s >/dev/null 2>&1
cp -a "$CAPSTAN_STATE" "$scratch/older"
head -c 10000000 /dev/urandom >"$source/s/noise"
back_up s
rm -r "$CAPSTAN_STATE"
cp -a "$scratch/older" "$CAPSTAN_STATE"
set_library high_percent 10
set_library low_percent 5
check 'what the catalog does not know of keeps its room' prints 'keeps the room that it takes' capstan expire
capstan --quiet rebuild --discard-old
check 'and comes back' comes_back s

# Disk in front of tape: what is copied stays on disk for as long as there is room.
rm -rf "$one/library" "$two/depots"
begin --library "$scratch/tape" --volume-size 64M --drives 2
capstan --quiet pools add vault
cat >>"$CAPSTAN_STATE/capstan.toml" <<END

[libraries.stage]
path = "$one/library"
folders = ["$two/depots"]
drives = 2
volume_mib = 8
free_mib = 8
high_percent = 70
low_percent = 50
END
capstan --quiet library initialize --library stage
cat >"$scratch/stage.toml" <<END
[policies.home]
sources = ["$source/a"]
level = "full"
unit = "stage"
retention = "10y"

[policies.offsite]
copies_of = ["home"]
pool = "vault"
unit = "main"
retention = "10y"
migrate_after = "0s"
migrate_when_full = true
END
# run POLICY: a server runs it, and ends.
run() {
    capstan --quiet queue add "$1" 2>/dev/null || return
    capstan --json server run >"$scratch/served" 2>&1 &
    server=$!
    tries=600
    until capstan queue 2>&1 | grep -q 'the queue is empty'; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return
        sleep 0.1
    done
    kill $server
    wait $server
    cat "$scratch/served"
}
# on POOL: how many objects have a copy there.
on() { capstan --json objects | grep -o "\"pool\":\"$1\"" | wc -l; }
# the_copies_are DISK TAPE: so many objects have a copy on disk, and on tape.
the_copies_are() { [ "$(on default) $(on vault)" = "$1 $2" ] || { echo "$(on default) $(on vault)" && return 1; }; }
check 'policies of a stage' capstan --quiet policies apply "$scratch/stage.toml"
check 'a backup goes to disk' run home
check 'and is copied to tape' run offsite
check 'and stays on disk, where there is room' the_copies_are 1 1
check 'which its copies say' prints 'once offsite has it and its disk is full' capstan show "$(capstan --json objects | sed 's/.*"object":"\([0-9a-f]*\)".*/\1/')"
cp -r "$source/a" "$scratch/first"
head -c 45000000 /dev/urandom >"$source/a/noise"
check 'the next one fills the disk' run home
check 'and is copied, too, before the first one leaves the disk' run offsite
check 'the last one stays there' the_copies_are 1 2
below() { at_least "$(free_mib "$one")" 15 && at_least "$(free_mib "$two")" 25; }
check 'so that both disks have room' below
check 'it comes back from disk' eval 'rm -rf "$scratch/tape.away" && mv "$scratch/tape" "$scratch/tape.away" && comes_back a && mv "$scratch/tape.away" "$scratch/tape"'
first() { capstan --json objects | sed 's/.*"object":"\([0-9a-f]*\)".*"source":.*/\1/' | tail -n 1; }
rm -rf "$scratch/restored"
check 'the first one comes back from tape' capstan --quiet restore "$(first)" --to "$scratch/restored"
check 'whole' cmp "$scratch/first/noise" "$scratch/restored$source/a/noise"
check 'and all that is left verifies' capstan --quiet verify "$source/a"
finish
