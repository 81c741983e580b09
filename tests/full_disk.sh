#!/bin/sh
# A disk that is full below the whole state directory: what is protected restores, and backups go on once there is room.
#
# The disk is a file system in memory, mounted in a namespace of our own; where that is not allowed nothing is tested.
set -u
if [ "${1:-}" != inside ]; then
    unshare --mount --map-root-user true 2>/dev/null || {
        echo 'ok 1 - a full disk # SKIP namespaces are forbidden here'
        echo 1..1
        exit 0
    }
    exec unshare --mount --map-root-user "$0" inside
fi
. "$(dirname "$0")/checks.sh"

disk=$scratch/disk
source=$scratch/source
mkdir "$disk" "$source" "$source/small" "$source/large"
mount -t tmpfs -o size=24m tmpfs "$disk" || exit 1
trap 'umount "$disk"; chmod -R u+rwx "$scratch"; rm -rf "$scratch"' EXIT
export CAPSTAN_STATE="$disk/state"
head -c 3000000 /dev/urandom >"$source/small/noise"
head -c 40000000 /dev/urandom >"$source/large/noise"
begin --volume-size 256M

fill() { dd if=/dev/zero of="$disk/fill" bs=4k 2>/dev/null || true; }

comes_back() {
    rm -rf "$scratch/restored"
    capstan --quiet restore "$source/small" --to "$scratch/restored" &&
        cmp "$source/small/noise" "$scratch/restored$source/small/noise"
}

check 'a backup' capstan --quiet backup "$source/small"
check 'one that does not fit ends with 1' exits 1 capstan --quiet backup "$source/large"
check 'and says why' prints 'No space left on device' capstan --quiet backup "$source/large"
check 'what was protected comes back' comes_back
fill
check 'on a disk without a free byte objects are listed' prints "$source/small" capstan objects
check 'a restore works' comes_back
check 'the volume verifies' capstan --quiet verify "$source/small"
check 'a backup ends with 1' exits 1 capstan --quiet backup "$source/small"
check 'and says what to do' prints 'free space' capstan --quiet backup "$source/small"
rm "$disk/fill"
check 'with room again a backup works' capstan --quiet backup "$source/small"
check 'and comes back' comes_back
check 'the catalog is rebuilt' capstan --quiet rebuild --discard-old
check 'and it comes back then, too' comes_back
finish
