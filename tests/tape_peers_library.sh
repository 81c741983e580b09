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
number=${FIRST:-0}
source=$scratch/source

# unpack: the peer's packages, over the guest's root.
unpack() {
    for package in "$PACKAGES"/*.deb; do
        # /lib is a link to /usr/lib, and stays one.
        dpkg-deb --fsys-tarfile "$package" | tar -x -C / --keep-directory-symlink || return
    done
}

# library LETTER: makes, serves and attaches it, with cartridges LETTER00001L9 to LETTER00007L9 of 64 MiB and P00001L9 to P00004L9,
# in slots 1 to 7 and 8 to 11.
library() {
    mkdir "$VTL_LIBRARY"
    {
        echo '[library]'
        echo 'slots = 12'
        for encryption in agent agent none; do
            printf '[[drive]]\nmodel = "LTO-9"\nencryption = "%s"\n' $encryption
        done
        for cartridge in "${1}00001" "${1}00002" "${1}00003" "${1}00004" "${1}00005" "${1}00006" "${1}00007" P00001 P00002 P00003 P00004; do
            printf '[[cartridge]]\nbarcode = "%sL9"\ncapacity_mib = 64\n' "$cartridge"
        done
    } >"$VTL_LIBRARY/vtl.toml"
    begin && start_target && attach_library && [ -e /dev/vtl/drive2 ]
}

# What is backed up: noise, since a drive's compression would hide text as well as a cipher does, and in it a phrase to look for; and
# files of all kinds. 150 MB need three cartridges.
phrase='the quick brown fox jumps over the lazy dog'
make_source() {
    mkdir -p "$source/small"
    for part in 1 2 3 4 5; do
        for piece in 1 2 3 4 5; do
            head -c 6000000 /dev/urandom
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
        LC_ALL=C grep -qaF -- "$sought" "$VTL_LIBRARY/cartridges/$barcode.tape" && return
    done
    false
}

# drive_with BARCODE: the number of the drive that holds the cartridge.
drive_with() { mtx -f /dev/vtl/changer status | sed -n "s/^Data Transfer Element \([0-9]*\):Full .*VolumeTag = $1 *$/\1/p"; }

# tells SENSE BARCODE: a program that is not the peer reads the first block of the cartridge, in whichever drive it is, and is told that.
tells() {
    drive=/dev/vtl/drive$(drive_with "$2")-sg
    sg_raw "$drive" 01 00 00 00 00 00 && prints "$1" sg_raw -r 65536 "$drive" 08 00 01 00 00 00
}

# Everything the kernel logged since the library was attached but what the checks brought about.
complaints() { dmesg | grep -E '^[^ ]* *[0-9.]*\] (st|ch|sg|scsi|sd) ' | grep -vE "Attached|Sequential-Access|Medium Changer|Power-on|Data Protect|$1"; }
