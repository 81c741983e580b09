#!/bin/sh
# A tree is read from a snapshot, as snapshots.sh has it, with the real programs of logical volumes and ZFS: a volume with
# ext4, one with XFS, a thin one, and datasets of ZFS, one below another. On files behind loop devices, as root; where the
# kernel has no device mapper, or no ZFS, that part is skipped.
set -u
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] && losetup --find >/dev/null 2>&1 && unshare --mount true 2>/dev/null || {
        echo 'ok 1 - snapshots of volumes # SKIP only root can mount, with loop devices and namespaces'
        echo 1..1
        exit 0
    }
    exec unshare --mount "$0" inside
fi
. "$(dirname "$0")/checks.sh"
. "$here/snapshot_checks.sh"

group=capstan-test-$$
pool=capstan-test-pool-$$
disk=$scratch/disk
mkdir "$disk"
clean() {
    cd /
    umount "$disk" 2>/dev/null
    vgremove --yes --quiet "$group" >/dev/null 2>&1
    [ -z "${loop:-}" ] || losetup --detach "$loop"
    zpool destroy -f "$pool" 2>/dev/null
    rm -rf "$scratch"
}
trap clean EXIT

# skip WHAT WHY: a part that cannot be tested here.
skip() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

# job NAME SOURCE: slow enough to change the source meanwhile.
job() {
    printf '[jobs.%s]\nsources = ["%s"]\nsnapshot = "require"\nbandwidth = ["4M"]\n' "$1" "$2" >>"$CAPSTAN_STATE/capstan.toml"
}

# killed JOB COMMAND: a backup is killed while a command sees its snapshot.
killed() {
    "$CAPSTAN_BIN" backup "$1" --full >/dev/null 2>&1 &
    backup=$!
    soon "$2" || return 1
    kill -9 "$backup"
    wait "$backup" 2>/dev/null
    "$2"
}

# read_from_snapshots JOB TREE COMMAND: what must be true of each; the command succeeds while there is a snapshot.
read_from_snapshots() {
    check "$1: a tree" fill "$2"
    check "$1: it is changed while it is backed up from a snapshot" changed_meanwhile "$2" "$1" "$3"
    check "$1: what comes back is of one moment" as_before "$2"
    check "$1: the snapshot is gone" exits 1 "$3"
    check "$1: a full backup" capstan --quiet backup "$1" --full
    check "$1: an incremental from another snapshot" prints '"files":0' \
        capstan --json backup "$2" --incremental --policy "$1" --snapshot require
    check "$1: a backup that is killed leaves its snapshot" killed "$1" "$3"
    check "$1: the next one removes it" capstan --quiet backup "$2" --full --policy "$1" --snapshot require
    check "$1: nothing is left" exits 1 "$3"
}

# of_volume JOB MAKE OPTION...: a file system on a logical volume that lvcreate makes with the options.
of_volume() {
    name=$1
    make=$2
    shift 2
    lvcreate --yes --quiet --name "$name" "$@" >/dev/null && "$make" -q "/dev/$group/$name" &&
        mount "/dev/$group/$name" "$disk" && mkdir "$disk/data" || {
        check "$name: a volume" false
        return
    }
    job "$name" "$disk/data"
    read_from_snapshots "$name" "$disk/data" has_volume
    check "$name: nothing is mounted any more" exits 1 is_mounted
    umount "$disk"
}
has_volume() { lvs --noheadings -o lv_name "$group" | grep -q capstan-snapshot; }

begin
if ! command -v lvcreate >/dev/null || ! dmsetup version >/dev/null 2>&1; then
    skip 'logical volumes' 'lvm2 is not installed, or this kernel has no device mapper'
else
    truncate -s 3G "$scratch/volumes"
    loop=$(losetup --find --show "$scratch/volumes")
    vgcreate --quiet "$group" "$loop" >/dev/null || exit 1
    of_volume linear mkfs.ext4 --size 400M "$group"
    if command -v mkfs.xfs >/dev/null; then
        of_volume xfs mkfs.xfs --size 400M "$group"
    else
        skip 'a volume with XFS' 'mkfs.xfs is not installed (xfsprogs)'
    fi
    if command -v thin_check >/dev/null && modprobe dm-thin-pool 2>/dev/null; then
        lvcreate --yes --quiet --type thin-pool --size 500M --name thins "$group" >/dev/null || exit 1
        of_volume thin mkfs.ext4 --thin --virtualsize 400M --thinpool "$group/thins"
    else
        skip 'a thin volume' 'this kernel has none, or thin_check is not installed (thin-provisioning-tools)'
    fi
fi

if ! command -v zpool >/dev/null || ! zpool list >/dev/null 2>&1; then
    skip 'ZFS' 'its programs are not installed, or this kernel has none'
else
    truncate -s 1G "$scratch/zfs"
    zpool create -m "$disk" "$pool" "$scratch/zfs" && zfs create "$pool/home" && mkdir "$disk/home/ada" || exit 1
    has_snapshot() { zfs list -H -t snapshot -o name -r "$pool" | grep -q capstan-snapshot; }
    job dataset "$disk/home"
    job below "$disk/home/ada"
    read_from_snapshots dataset "$disk/home" has_snapshot
    read_from_snapshots below "$disk/home/ada" has_snapshot
    job whole "$disk"
    echo pool >"$disk/file"
    check 'whole: a backup of the pool' capstan --quiet backup whole --full
    check 'whole: has what is in the dataset below, as it is' prints 'home/ada/file-1' capstan ls -R "$disk"
    zfs set mountpoint=legacy "$pool/home"
    mkdir -p "$scratch/legacy" && mount -t zfs "$pool/home" "$scratch/legacy" || exit 1
    job legacy "$scratch/legacy/ada"
    read_from_snapshots legacy "$scratch/legacy/ada" has_snapshot
    umount "$scratch/legacy"
fi
finish
