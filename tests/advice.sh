#!/bin/sh
# Advice tried as a person would: each part in turn is made the slow one, `capstan lab advise` must name it, and what it advises
# must give what it promised.
#
# usage: tests/advice.sh
#
# The slow disk is a file behind a loop device, which the kernel holds to 20 MB/s for the programs of one control group. Needs root;
# where a loop device or such a group is not to be had it says so, and tests nothing. The mount is in a namespace of our own, so that
# not even a kill leaves it, or the loop device, behind. Takes a minute and a half; with CAPSTAN_FULL three minutes: the parts that need
# no slow disk are those of crates/lab/tests/advice.rs once more, from the command line.
set -u
skip() {
    echo "ok 1 - advice # SKIP $1"
    echo 1..1
    exit 0
}
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] || skip 'a loop device and a control group need root'
    unshare --mount true 2>/dev/null || skip 'namespaces are forbidden here'
    exec unshare --mount "$0" inside
fi
. "$(dirname "$0")/checks.sh"

rate=20000000
disk=$scratch/disk
tree=$scratch/tree
advice=$scratch/advice.json
group=''
enabled=''

clean() {
    umount "$disk" 2>/dev/null
    if [ -n "$group" ]; then
        # A group lets go of a program a moment after its end.
        rmdir "$group" 2>/dev/null || { sleep 1 && rmdir "$group"; }
    fi
    [ -z "$enabled" ] || echo -io >"$enabled"
    rm -rf "$scratch"
}
trap clean EXIT

# A control group that can hold a disk to a rate, by the first or the second version of control groups.
make_group() {
    name=capstan-advice-$$
    for top in $(awk '$3 == "cgroup" && $4 ~ /(^|,)blkio(,|$)/ { print $2 }' /proc/mounts); do
        [ -e "$top/blkio.throttle.read_bps_device" ] && mkdir "$top/$name" 2>/dev/null && group=$top/$name && return
    done
    for top in $(awk '$3 == "cgroup2" { print $2 }' /proc/mounts); do
        grep -qw io "$top/cgroup.controllers" 2>/dev/null || continue
        if ! grep -qw io "$top/cgroup.subtree_control"; then
            (echo +io >"$top/cgroup.subtree_control") 2>/dev/null || continue
            enabled=$top/cgroup.subtree_control
        fi
        mkdir "$top/$name" 2>/dev/null && group=$top/$name && return
    done
    return 1
}

# hold READ WRITE: the disk gives and takes no more than so many bytes a second; 0 is no limit.
hold() {
    if [ -e "$group/io.max" ]; then
        limits="rbps=$1 wbps=$2"
        echo "$device $(echo "$limits" | sed 's/=0\b/=max/g')" >"$group/io.max"
    else
        echo "$device $1" >"$group/blkio.throttle.read_bps_device" &&
            echo "$device $2" >"$group/blkio.throttle.write_bps_device"
    fi
}

# Runs the program where the disk is slow.
slowly() {
    # shellcheck disable=SC2016 # the inner shell expands it
    sh -c 'echo 0 >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$CAPSTAN_BIN" --quiet "$@"
}

usually() { capstan --quiet "$@"; }

# Runs the program on one processor: the first that we may use.
on_one_processor() { taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" "$CAPSTAN_BIN" --quiet "$@"; }

# measured HOW SOURCE OPTION...: measures the path from a source, and the virtual drive.
measured() {
    how=$1
    shift
    "$how" lab null "$@" --replace >/dev/null &&
        "$how" lab drive --replace --folder "$library" --block 128K,512K --amount 80M --rounds 1 >/dev/null
}

# advised HOW SOURCE OPTION...: asks for advice, for `says`.
advised() {
    how=$1
    shift
    "$how" lab advise "$@" --json >"$advice"
}

says() { "$PYTHON" "$here/advice_checks.py" "$advice" "$@"; }

# set_to NAME VALUE: a setting of capstan.toml.
set_to() {
    grep -q "^$1 = " "$CAPSTAN_STATE/capstan.toml" || { echo "capstan.toml has no $1" && exit 1; }
    sed -i "s/^$1 = .*/$1 = $2/" "$CAPSTAN_STATE/capstan.toml"
}

# part WORDS LIBRARY: a state directory for the next part, and nothing known of this machine.
part() {
    library=$2
    echo "# $1"
    begin --library "$library" >/dev/null || exit 1
}

# kept now|advised PERCENT: a machine that others share is now slow, now fast, and what was measured in a slow second is no promise for a
# fast one. So a promise that is missed is measured and tried anew, twice at most. A forecast that is wrong is wrong each time.
kept() {
    for _ in 1 2; do
        says keeps "$@" && return
        measure && ask || return
    done
    says keeps "$@"
}

# told WORDS...: what advice says, and for the same reason: a second in which the machine was away can hide the slow part once.
told() {
    for _ in 1 2; do
        says "$@" && return
        measure && ask || return
    done
    says "$@"
}

# promise now|advised PERCENT: what was predicted and measured is worth reading where it was right, too.
promise() {
    failed_before=$failed
    check "what is $1 gives what was promised, within $2 %, in one of three rounds" kept "$1" "$2"
    [ "$failed" -ne "$failed_before" ] || sed 's/^/# /' "$scratch/output"
}

command -v mkfs.ext4 >/dev/null || skip 'mkfs.ext4 is missing'
mkdir "$disk"
truncate -s 512M "$scratch/image"
mkfs.ext4 -q -F "$scratch/image" || skip 'no file system can be made'
loop=$(losetup --find --show "$scratch/image" 2>/dev/null) || skip 'there is no loop device'
mounted=no
mount "$loop" "$disk" 2>/dev/null && mounted=yes
# It is let go of when it is no longer mounted.
losetup --detach "$loop"
[ $mounted = yes ] || skip 'a loop device cannot be mounted'
device=$(cat "/sys/class/block/${loop##*/}/dev")
make_group || skip 'no control group here can hold a disk to a rate'
hold "$rate" 0 || skip 'a loop device cannot be held to a rate'
usually lab create-data --preset small --bytes 100M "$disk/tree" || exit 1
usually lab create-data --preset typical --bytes 300M "$tree" || exit 1
sync

part 'a slow disk below the source' "$scratch/library"
measure() {
    measured slowly "$disk/tree" -j 2,8 --compression 1 --rounds 2 --seconds 2 &&
        slowly lab read "$disk/tree" --readers 2,8 --rounds 1 --seconds 1
}
ask() { advised slowly "$disk/tree" -j 2 --measure --try-seconds 3; }
check 'it is measured and read' measure
check 'and the library for depots' slowly lab staging --folder "$library" --depot 50M --writers 1 --rounds 1
check 'advice measures what is missing' ask
check 'it names the source' told names source
check 'it promises nothing of settings' told promises-nothing

# Files of up to 64 MB, of which a round of 2 s ends before the first is read: a disk of 20 MB/s was forecast at 0.5 to 4.
part 'a slow disk below large files' "$scratch/library"
rm -rf "$disk/tree"
usually lab create-data --preset typical --bytes 200M "$disk/tree" || exit 1
sync
measure() {
    measured slowly "$disk/tree" -j 1,4 --compression 1 --rounds 1 --seconds 2 &&
        slowly lab read "$disk/tree" --readers 1,4 --rounds 1 --seconds 1
}
ask() { advised slowly "$disk/tree" -j 4; }
backed_up() {
    echo 3 >/proc/sys/vm/drop_caches
    began=$(date +%s%N)
    slowly backup "$disk/tree" --full -j 4 || return
    says reaches $(($(date +%s%N) - began)) 15
}
reached() { backed_up || { measure && ask && backed_up; } || { measure && ask && backed_up; }; }
check 'it is measured and read' measure
check 'advice is given' ask
check 'it names the source' told names source
check 'it promises nothing of settings' told promises-nothing
check 'a backup is as fast as was forecast, within 15 %, in one of three rounds' reached

hold 0 "$rate" || exit 1
part 'a slow disk below the library' "$disk/library"
set_to compression_level 0
set_to buffer_mib 16
measure() { measured slowly "$tree" -j 2 --compression 0,1 --rounds 2 --seconds 1 --cache warm; }
ask() { advised slowly "$tree" -j 2 --try --try-seconds 2; }
check 'it is measured' measure
check 'advice is tried' ask
check 'it names the drive' told names drive
check 'it advises compression' told changes compression more
promise now 25
promise advised 25

[ -n "${CAPSTAN_FULL:-}" ] || {
    finish
    exit
}

part 'one processor' "$scratch/library"
set_to compression_level 15
measure() { measured on_one_processor "$tree" -j 1 --compression 5,15 --rounds 2 --seconds 1 --cache warm; }
ask() { advised on_one_processor "$tree" --try --try-seconds 3; }
check 'it is measured' measure
check 'advice is tried' ask
check 'it names the processor' told names processor
check 'it advises less compression' told changes compression less
promise advised 30

part 'a slow drive' "$scratch/library"
set_to block_kib 128
set_to buffer_mib 16
measure() { measured usually "$tree" -j 2 --compression 1 --block 128K --rounds 2 --seconds 1 --cache warm; }
ask() { advised usually "$tree" -j 2 --drive SDLT-220 --try --try-seconds 3; }
check 'it is measured' measure
check 'advice is tried' ask
check 'it names the drive' told names drive
promise now 25

# 3.4 s end in the middle between two checkpoints: one more or less would be a fifth of so short a run.
part 'small buffers and frequent checkpoints' "$scratch/library"
set_to block_kib 128
set_to buffer_mib 1
set_to checkpoint_mib 64
set_to compression_level 0
measure() {
    measured usually "$tree" -j 2 --compression 0 --block 128K --rounds 2 --seconds 1 --cache warm --slow-source 60
}
ask() { advised usually "$tree" -j 2 --drive LTO-4 --try --try-seconds 3.4; }
check 'they are measured' measure
check 'advice is tried' ask
check 'it names the buffers' told names buffers
check 'it relieves them' told relieves buffers
promise now 25
promise advised 25
finish
