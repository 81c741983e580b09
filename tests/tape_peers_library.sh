# Sourced in the guest by the checks of each peer: a library whose drives encrypt unasked, and what lies on its cartridges.
#
# Drives 0 and 1 are encryption agents. Drive 2 is plain: on its cartridges the same data must be found by the same search, or the
# search proves nothing.
#
# Several steps are one check by `eval 'this && that'`: check takes one command, and the steps are read where they are run.
# shellcheck shell=sh disable=SC1091,SC2016
. "$(dirname "$0")/checks.sh"
export VTL_LIBRARY="$scratch/vtl"
. "$here/../guest/attach"
. "$here/../guest/provider/capstan"
# What the checks leave goes with the guest.
trap - EXIT
chmod 755 "$scratch"
source=$scratch/source

refused() { ! "$@"; }

# unpack FOLDER...: the peer's packages, over the guest's root. Its own folders begin empty: what a machine that has the peer keeps in
# them is none of ours, and may not be readable.
unpack() {
    for folder; do mkdir -p "$folder" && mount -t tmpfs memory "$folder" || return; done
    for package in "$PACKAGES"/*.deb; do
        # /lib is a link to /usr/lib, and stays one.
        dpkg-deb --fsys-tarfile "$package" | tar -x -C / --keep-directory-symlink || return
    done
}

# library LETTER: makes, serves and attaches it, with cartridges LETTER00001L9 to LETTER00007L9 of 32 MiB and P00001L9 to P00004L9,
# in slots 1 to 7 and 8 to 11.
library() {
    mkdir "$VTL_LIBRARY"
    {
        echo '[library]'
        echo 'slots = 12'
        for encryption in agent agent none; do
            printf '[[drive]]\nmodel = "LTO-9"\nencryption = "%s"\n' $encryption
        done
        for barcode in "${1}00001" "${1}00002" "${1}00003" "${1}00004" "${1}00005" "${1}00006" "${1}00007" P00001 P00002 P00003 P00004; do
            printf '[[cartridge]]\nbarcode = "%sL9"\ncapacity_mib = 32\n' "$barcode"
        done
    } >"$VTL_LIBRARY/vtl.toml"
    begin && start_target && attach_library && [ -e /dev/vtl/drive2 ] && dmesg --clear
}

# What is backed up: noise, since a drive's compression would hide text as well as a cipher does, and in it a phrase to look for; and
# files of all kinds. 75 MB need three cartridges. On a file system of its own: on the guest's overlay files are of another device than
# their folders, and programs that stay on one file system pass them by.
phrase='the quick brown fox jumps over the lazy dog'
make_source() {
    mkdir "$source" && mount -t tmpfs memory "$source" && mkdir "$source/small"
    for part in 1 2 3 4 5 6 7 8 9 10; do
        for piece in 1 2 3 4 5; do
            head -c 1500000 /dev/urandom
            echo "$phrase"
        done >"$source/noise$part"
    done
    cp -a "$here/../docs" "$source/small/"
    ln "$source/noise1" "$source/link"
    ln -s nowhere "$source/dangling"
    mkfifo "$source/fifo"
    chown 1234:4321 "$source/noise2"
    chmod 600 "$source/noise2"
    touch -d '2001-02-03 04:05:06' "$source/noise3"
}

# same FOLDER: it is as the source is.
same() { nothing rsync -aniH --delete "$source/" "$1/"; }

# found WORDS BARCODE...: whether the words stand in the files of the cartridges.
found() {
    sought=$1
    shift
    for barcode; do
        LC_ALL=C grep -qaF -- "$sought" "$VTL_LIBRARY/cartridges/$barcode"* && return
    done
    false
}

# have_keys LETTER COUNT: so many cartridges have keys, though nobody asked for any.
have_keys() { [ "$(capstan keys list | grep -o "$1[0-9]*L9" | sort -u | wc -l)" -eq "$2" ] || { capstan keys list && return 1; }; }

# drive_with BARCODE: the number of the drive that holds the cartridge.
drive_with() { mtx -f /dev/vtl/changer status | sed -n "s/^Data Transfer Element \([0-9]*\):Full .*VolumeTag = $1 *$/\1/p"; }

# put_away BARCODE: into its slot, if it is in a drive.
put_away() {
    drive=$(drive_with "$1")
    [ -z "$drive" ] || mtx -f /dev/vtl/changer unload "$(slot_of "$1")" "$drive"
}

# load BARCODE DRIVE: whatever was in the drive.
load() {
    inside=$(mtx -f /dev/vtl/changer status | sed -n "s/^Data Transfer Element $2:Full .*VolumeTag = \([^ ]*\) *$/\1/p")
    { [ -z "$inside" ] || put_away "$inside"; } && put_away "$1" && mtx -f /dev/vtl/changer load "$(slot_of "$1")" "$2"
}

# slot_of BARCODE: cartridges stand in the order of vtl.toml, seven that are encrypted and then those of the plain drive.
slot_of() {
    case $1 in
    P*) n=7 ;;
    *) n=0 ;;
    esac
    echo $((n + $(echo "$1" | tr -dc 0-9 | cut -c 5)))
}

# tells DRIVE SENSE: a program that is not the peer reads the first block of the cartridge in the drive, and is told that.
tells() {
    drive=/dev/vtl/drive$1-sg
    # The first answers are that there is a new cartridge.
    wait_for 5 sg_raw "$drive" 01 00 00 00 00 00 && prints "$2" sg_raw -r 65536 "$drive" 08 00 01 00 00 00
}

# kernel_log: what the kernel has logged, with the words of SCSI for sense codes: a packaged guest kernel logs numbers.
kernel_log() {
    dmesg | sed 's/Sense Key : 0x7 /Sense Key : Data Protect /
        s/ASC=0x74 ASCQ=0x63/Add. Sense: External data encryption key not found/
        s/ASC=0x30 ASCQ=0x5 /Add. Sense: Cannot write medium - incompatible format/'
}

# complaints WORDS: what the kernel has logged of drives, changer and initiator, or of faults of its own, since the library was attached, but
# what it says on first use and lines with those words. That a busy machine kept it waiting is no complaint of ours.
complaints() {
    kernel_log | grep -E '(^|\] ) *(st|sg|ch|scsi|iscsi|connection|session)[ 0-9:]|BUG:|WARNING:|Oops|panic|segfault|Killed process|[Ee]rror|[Ff]ail|timed out' |
        grep -vE "Power-on or device reset occurred|Block limits|soft lockup|$1" || true
}

# verified: no drive counted a write by a host that could not know where the tape stood.
verified() { ! capstan vtl status "$VTL_LIBRARY" --json | grep 'unverified_writes":[1-9]'; }

# mixed_rules ENCRYPTED PLAIN WORDS: what the drives of either kind make of the volumes of the other. WORDS are in the first block of both.
mixed_rules() {
    shows 'a volume of an encrypting drive is loaded into the plain one' load "$1" 2
    shows 'which cannot read it' tells 2 'Unable to decrypt data'
    shows 'a volume of the plain drive is loaded into an encrypting one' load "$2" 0
    shows 'which reads it' prints "$3" dd if=/dev/vtl/drive0 bs=1M count=1
    shows 'and appends nothing to it' eval 'mt-st -f /dev/vtl/drive0 eod && refused dd if=/dev/zero of=/dev/vtl/drive0 bs=64k count=1'
    shows 'for encrypted blocks behind plain ones it does not write' prints 'Cannot write medium - incompatible format' kernel_log
}
