#!/bin/sh
# A tree is read from a snapshot: as it was at one moment, while it is written to. On btrfs, and on a logical volume whose
# programs are stood in for (a copy of the disk is its snapshot): many kernels have no device mapper. The rest of it, the
# mount of the snapshot too, is real. Only root can do all that; elsewhere nothing is tested. Real logical volumes and ZFS:
# snapshots_volumes.sh.
set -u
unable() {
    echo "ok 1 - snapshots # SKIP $1"
    echo 1..1
    exit 0
}
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] || unable 'only root can mount'
    grep -qw btrfs /proc/filesystems || unable 'this kernel has no btrfs'
    command -v mkfs.btrfs >/dev/null || unable 'mkfs.btrfs is not installed (btrfs-progs)'
    losetup --find >/dev/null 2>&1 || unable 'there are no loop devices'
    unshare --mount true 2>/dev/null || unable 'namespaces are forbidden here'
    exec unshare --mount "$0" inside
fi
. "$(dirname "$0")/checks.sh"
. "$here/snapshot_checks.sh"

disk=$scratch/disk
other=$scratch/other
group=capstan-test-$$
mkdir "$disk" "$other" "$scratch/image"
clean() {
    umount "$disk/home/of/ada/mounted" "$disk" "$other" 2>/dev/null
    for loop in $(losetup --noheadings --output NAME,BACK-FILE | awk -v at="$scratch/" 'index($0, at) { print $1 }'); do
        losetup --detach "$loop"
    done
    rm -rf "/dev/$group"
    chmod -R u+rwx "$scratch" 2>/dev/null
    rm -rf "$scratch"
}
trap clean EXIT
truncate -s 300M "$scratch/image/btrfs"
mkfs.btrfs --quiet "$scratch/image/btrfs" >/dev/null && mount -o loop "$scratch/image/btrfs" "$disk" || exit 1
source=$disk/home/of/ada
btrfs subvolume create "$disk/home" >/dev/null && mkdir -p "$source/mounted" &&
    btrfs subvolume create "$source/nested" >/dev/null && mount -t tmpfs tmpfs "$source/mounted" || exit 1
mkdir "$source/nested/deep"
echo nested >"$source/nested/file"
echo deep >"$source/nested/deep/file"
echo mounted >"$source/mounted/file"

begin
cat >>"$CAPSTAN_STATE/capstan.toml" <<EOF
[jobs.slow]
sources = ["$source"]
snapshot = "require"
bandwidth = ["4M"]
[jobs.volume]
sources = ["$other/data"]
snapshot = "require"
bandwidth = ["4M"]
EOF

snapshots() { find "$disk/home" -maxdepth 1 -name '.capstan-snapshot-*'; }
has_snapshot() { [ -n "$(snapshots)" ]; }

listed() { capstan ls -R "$source" | grep -F "$1"; }

check 'a tree' fill "$source"
check 'it is changed while it is backed up from a snapshot' changed_meanwhile "$source" slow has_snapshot
check 'what comes back is of one moment, with what is mounted in it, and subvolumes' as_before "$source"
check 'the snapshot is gone' nothing snapshots
check 'nobody says that files changed' exits 1 grep -q 'changed while' "$scratch/said"
check 'a backup' capstan --quiet backup slow --full
check 'an incremental from another snapshot' prints '"files":0' \
    capstan --json backup "$source" --incremental --policy slow --snapshot require
check 'a backup of one file system' \
    capstan --quiet backup "$source" --one-file-system --snapshot require --policy one
check 'has the mount point' listed 'ada/mounted'
check 'and nothing of what is mounted' exits 1 listed 'mounted/file'
check 'nor of the subvolume' exits 1 listed 'nested/file'

"$CAPSTAN_BIN" backup slow --full >/dev/null 2>&1 &
backup=$!
check 'a backup reads a snapshot' soon has_snapshot
kill -9 "$backup"
wait "$backup" 2>/dev/null
check 'and leaves it when it is killed' has_snapshot
check 'the next backup does without it' capstan --quiet backup "$source" --full --policy other --snapshot prefer
check 'and removes it' nothing snapshots

check 'a subvolume of somebody else' chown 1000 "$disk/home"
check 'is not read from a snapshot' prints 'others than root can write to' \
    capstan backup "$source" --policy other --snapshot require
check 'nor is it read otherwise' exits 1 capstan backup "$source" --policy other --snapshot require
chown 0 "$disk/home"
mkdir "$disk/home/of/bind" && mount --bind "$source" "$disk/home/of/bind" || exit 1
check 'what is mounted from elsewhere' exits 0 capstan backup "$disk/home/of/bind" --snapshot prefer
check 'is there as a whole' prints 'nested/deep/file' capstan ls -R "$disk/home/of/bind"
umount "$disk/home/of/bind"
mkdir "$source/.capstan-snapshot-1-2-3-4" && chown 1000 "$source/.capstan-snapshot-1-2-3-4" || exit 1
check "a directory of anybody's" capstan --quiet backup "$source" --policy other --snapshot require
check 'is backed up, whatever its name is' listed '.capstan-snapshot-1-2-3-4'

check 'a file system without snapshots is not read' exits 1 capstan backup "$source/mounted" --snapshot require
check 'and it is said why' prints 'no snapshot of' capstan backup "$source/mounted" --snapshot require
check 'or it is read as it is' prints 'without a snapshot' capstan backup "$source/mounted" --snapshot prefer

# A logical volume: the programs are ours, and make the snapshot a copy of the disk.
bin=$scratch/bin
mkdir "$bin" "/dev/$group"
truncate -s 64M "$scratch/image/volume"
mkfs.ext4 -q "$scratch/image/volume" && mount -o loop "$scratch/image/volume" "$other" && mkdir "$other/data" || exit 1
cat >"$bin/lvs" <<EOF
#!/bin/sh
case "\$*" in
*vg_name*) echo "  $group/home/linear" ;;
*) ls /dev/$group ;;
esac
EOF
cat >"$bin/lvcreate" <<EOF
#!/bin/sh
echo "lvcreate \$*" >>"$scratch/lvm"
fsfreeze --freeze "$other" && cp "$scratch/image/volume" "$scratch/image/snapshot"
fsfreeze --unfreeze "$other"
ln -s "\$(losetup --find --show "$scratch/image/snapshot")" "/dev/$group/\$4"
EOF
cat >"$bin/lvremove" <<EOF
#!/bin/sh
echo "lvremove \$*" >>"$scratch/lvm"
device=\$(readlink "/dev/\$3") && losetup --detach "\$device" && rm "/dev/\$3"
EOF
chmod +x "$bin"/*
PATH=$bin:$PATH
check 'a tree on a logical volume' fill "$other/data"
check 'it is changed while it is backed up from a snapshot' changed_meanwhile "$other/data" volume is_mounted
check 'what comes back is of one moment' as_before "$other/data"
check 'the snapshot was of the volume' grep -q "^lvcreate .*--snapshot .*$group/home" "$scratch/lvm"
check 'and was removed' grep -q "^lvremove .*$group/capstan-snapshot" "$scratch/lvm"
check 'nothing is mounted any more' exits 1 is_mounted
finish
