# Runs in the guest (tape_guest.sh starts it): what st, sg, mt, mtx, tar, sg3-utils, stenc and open-iscsi say of a tape library.
#
# LIBRARY names the library. Checks are the same for all; those that tgt's cannot pass are named where they stand.
#
# Several steps are one check by `eval 'this && that'`: check takes one command, and the steps are read where they are run.
# shellcheck shell=sh disable=SC2016,SC1091
. "$(dirname "$0")/checks.sh"
. "$here/../guest/attach"
. "$here/../guest/provider/$LIBRARY"
number=${FIRST:-0}
changer=/dev/vtl/changer
drive=/dev/vtl/drive0
drive_sg=/dev/vtl/drive0-sg

# tgt_lacks WHAT NAME COMMAND...: a check that is skipped for tgt.
tgt_lacks() {
    lacking=$1
    shift
    if [ "$LIBRARY" = tgt ]; then
        skips "$1" "tgt has no $lacking"
    else
        shows "$@"
    fi
}

skips() {
    number=$((number + 1))
    echo "ok $number - $LIBRARY: $1 # SKIP $2"
}

shows() {
    shown=$1
    shift
    check "$LIBRARY: $shown" "$@"
}

mt() { mt-st -f "$drive" "$@"; }
mtx() { command mtx -f $changer "$@"; }
refused() { ! "$@"; }

# The changer.

# "SLOT VOLSER" of every cartridge in a storage slot.
cartridges() { mtx status | sed -n 's/^ *Storage Element \([0-9]*\):Full :VolumeTag=\([^ ]*\) *$/\1 \2/p'; }
empty_slot() { mtx status | sed -n 's/^ *Storage Element \([0-9]*\):Empty.*/\1/p' | head -n 1; }
door() { mtx status | sed -n 's/^ *Storage Element \([0-9]*\) IMPORT\/EXPORT:Empty.*/\1/p' | head -n 1; }
slot_of() { cartridges | sed -n "${1}s/ .*//p"; }
volser_of() { cartridges | sed -n "${1}s/.* //p"; }
lists_cartridges() { [ "$(cartridges | wc -l)" -ge 4 ] || { mtx status && return 1; }; }
moved() { mtx transfer "$1" "$2" && cartridges | grep -qx "$2 $3"; }

shows 'the changer says what it is' prints 'Medium Changer' mtx inquiry
shows 'the inventory lists cartridges by barcode' lists_cartridges
one=$(slot_of 1) one_volser=$(volser_of 1)
two=$(slot_of 2) two_volser=$(volser_of 2)
free=$(empty_slot)
shows 'a cartridge is loaded' mtx load "$one" 0
shows 'and its barcode is seen in the drive' prints "Data Transfer Element 0:Full (Storage Element $one Loaded):VolumeTag = $one_volser" mtx status
shows 'a drive that is full takes no other' refused mtx load "$two" 0
shows 'an empty slot gives none' refused mtx load "$free" 1
shows 'the other drive takes one' mtx load "$two" 1
shows 'and shows it to the kernel' prints ONLINE mt-st -f /dev/vtl/drive1 status
shows 'both are unloaded' eval "mtx unload $two 1 && mtx unload $one 0"
shows 'and back in their slots' eval 'cartridges | grep -qx "$one $one_volser" && cartridges | grep -qx "$two $two_volser"'
shows 'a cartridge moves to another slot' moved "$one" "$free" "$one_volser"
shows 'and back' moved "$free" "$one" "$one_volser"
exit_door=$(door)
shows 'to the import and export slot' mtx transfer "$one" "$exit_door"
shows 'and back' moved "$exit_door" "$one" "$one_volser"

# The drive, by the kernel's tape driver.

# stands_at FILE BLOCK: where the kernel says the drive stands.
stands_at() {
    mt status >"$scratch/status" && grep -q "^File number=$1, block number=$2," "$scratch/status" || {
        cat "$scratch/status"
        return 1
    }
}

# Each writes or reads one tape file in blocks of so many bytes; closing the drive behind a write adds the filemark.
writes() { dd if="$1" of=$drive bs="$2" iflag=fullblock; }
reads() { dd if=$drive of="$scratch/read" bs="$2" && cmp "$1" "$scratch/read"; }
reads_no_data() { reads /dev/null "$1"; }

# next_block_has BYTES BUFFER: one read of a buffer gives so many.
next_block_has() {
    dd if=$drive of="$scratch/read" bs="$2" count=1 2>"$scratch/printed" && [ "$(wc -c <"$scratch/read")" -eq "$1" ] || {
        cat "$scratch/printed"
        return 1
    }
}

head -c 8000000 /dev/urandom >"$scratch/noise"
head -c 1000000 "$scratch/noise" >"$scratch/million"
mtx load "$one" 0 >/dev/null
shows 'a loaded tape is online, at its beginning' eval 'prints "BOT ONLINE" mt status && stands_at 0 0'
shows 'variable block mode' mt setblk 0
shows 'a tape file in blocks of 64 KiB' writes "$scratch/noise" 64k
shows 'its end is a filemark' stands_at 1 0
shows 'another in blocks of 10,000 bytes' writes "$scratch/million" 10000
shows 'rewind' eval 'mt rewind && stands_at 0 0'
shows 'the first comes back' reads "$scratch/noise" 64k
shows 'the second too, in blocks as written, from a larger buffer' reads "$scratch/million" 256k
tgt_lacks 'residuals at the end of data' 'then there is no more' eval 'reads_no_data 64k; refused reads_no_data 64k'
shows 'back over a filemark' eval 'mt bsf 1 && stands_at 1 -1'
shows 'to the front of the second file' eval 'mt bsfm 1 && mt fsf 0 && stands_at 1 0'
shows 'on by three blocks' eval 'mt fsr 3 && stands_at 1 3'
shows 'back by two' eval 'mt bsr 2 && stands_at 1 1'
shows 'a block that is longer than the buffer is refused' prints 'Cannot allocate memory' dd if=$drive bs=512 count=1
shows 'and passed' stands_at 1 2
shows 'a shorter one gives its length' next_block_has 10000 1M
shows 'to a file by its number' eval 'mt asf 1 && stands_at 1 0'
tgt_lacks 'residuals at the end of data' 'to the end of data' eval 'mt eod && stands_at 2 -1'
shows 'blocks of fixed length: four blocks are one read' eval \
    'mt setblk 512 && writes "$scratch/million" 64000 && mt bsf 2 && mt fsf 1 && next_block_has 2048 2048 && stands_at 2 4; mt setblk 0'
tgt_lacks 'residuals at the end of data' 'writing in the middle drops what lay behind' eval 'mt asf 1 && writes "$scratch/million" 100k && mt rewind && mt eod && stands_at 2 -1'
shows 'the node that rewinds does' eval 'mt asf 1 && dd if=/dev/vtl/drive0-r of=/dev/null bs=1M count=1 && stands_at 0 0'
shows '10,000 filemarks' eval 'mt asf 1 && mt weof 10000 && stands_at 10001 0'
shows 'five thousand forward' eval 'mt rewind && mt fsf 5000 && stands_at 5000 0'
tgt_lacks 'residuals at the end of data' 'all to the end' eval 'mt rewind && mt eod && stands_at 10001 -1'
shows 'a thousand back' eval 'mt bsf 1000 && mt status'
shows 'a second program is told that the drive is busy' eval 'exec 7<$drive; prints busy mt status; code=$?; exec 7<&-; (exit $code)'
shows 'data stay when the tape goes to another drive' eval \
    'mt rewind && mt offline && mtx unload "$one" 0 && mtx load "$one" 1 && drive=/dev/vtl/drive1 && reads "$scratch/noise" 64k'
drive=/dev/vtl/drive0
mt-st -f /dev/vtl/drive1 offline
mtx unload "$one" 1 >/dev/null
# Without nonblock the open itself waits two minutes for a tape.
shows 'a drive without a tape says so' prints 'No medium found' dd if=$drive iflag=nonblock of=/dev/null bs=1M count=1

# Large blocks: two pages to a segment, since st's buffer has 256 segments.
mtx load "$one" 0 >/dev/null
head -c 16777216 /dev/urandom >"$scratch/large"
shows 'blocks of 1 MiB' eval 'writes "$scratch/large" 1M && mt rewind && reads "$scratch/large" 1M'
tgt_lacks 'blocks above 1 MiB' 'blocks of 2 MiB' eval 'mt rewind && writes "$scratch/large" 2M && mt rewind && reads "$scratch/large" 2M'
tgt_lacks 'blocks above 1 MiB' 'are blocks of 2 MiB' eval 'mt rewind && mt fsr 8 && stands_at 0 8'
# sg_raw goes no further than 1 MiB.
shows 'a block of 1 MiB by the generic driver' eval 'mt rewind && sg_raw -s 1048576 -i "$scratch/large" $drive_sg 0a 00 10 00 00 00 &&
    sg_raw $drive_sg 01 00 00 00 00 00 && sg_raw -r 1048576 -o "$scratch/read" $drive_sg 08 00 10 00 00 00 &&
    cmp -n 1048576 "$scratch/large" "$scratch/read"'

# GNU tar.

mkdir "$scratch/tree" && cp -r "$here/../crates" "$here/../docs" "$scratch/noise" "$scratch/tree"
mkdir "$scratch/other" && cp -r "$here" "$scratch/other"
compares() { tar -b 512 -C "$1" -df $drive; }
archives() { tar -b 512 -C "$1" -cf $drive .; }
lists() { [ "$(tar -b 512 -tf $drive | wc -l)" -eq "$(find "$1" | wc -l)" ]; }
extracts() {
    rm -rf "$scratch/extracted" && mkdir "$scratch/extracted" && tar -b 512 -C "$scratch/extracted" -xf $drive && diff -r "$1" "$scratch/extracted"
}
mt rewind
shows 'tar writes in blocks of 256 KiB' archives "$scratch/tree"
shows 'and lists' eval 'mt rewind && lists "$scratch/tree"'
shows 'and compares' eval 'mt rewind && compares "$scratch/tree"'
shows 'a second archive behind the first' eval 'mt eod && archives "$scratch/other"'
shows 'is read by its file number' eval 'mt rewind && mt fsf 1 && compares "$scratch/other"'
shows 'the first is extracted' eval 'mt rewind && extracts "$scratch/tree"'

# changing FIRST: a script for tar that unloads the drive and loads the cartridge of the next volume.
cat >"$scratch/change" <<TEXT
#!/bin/sh
mt-st -f $drive offline
mtx -f $changer unload \$(mtx -f $changer status | sed -n 's/.*Element 0:Full (Storage Element \([0-9]*\) .*/\1/p') 0 &&
    mtx -f $changer load \$(cut -d' ' -f\$TAR_VOLUME $scratch/slots) 0
TEXT
chmod +x "$scratch/change"
mtx unload "$one" 0 >/dev/null
echo "$one $two $(slot_of 3)" >"$scratch/slots"
TAR_VOLUME=1
export TAR_VOLUME
spanning() { tar -b 512 -M -F "$scratch/change" -C "$scratch/span" "$@"; }
mkdir "$scratch/span"
for part in 1 2 3 4 5; do head -c $((${TAPE_MB:-256} * 250000)) /dev/urandom >"$scratch/span/$part"; done
mtx load "$one" 0 >/dev/null
shows 'tar goes on to a second cartridge' spanning -cf $drive .
shows 'which is now in the drive' prints "Storage Element $two Loaded" mtx status
mt offline
mtx unload "$two" 0 >/dev/null
mtx load "$one" 0 >/dev/null
shows 'and comes back over both' spanning -df $drive
rm -rf "$scratch/span"
mt offline
mtx unload "$two" 0 >/dev/null
mtx load "$one" 0 >/dev/null
mt rewind

# What needs a drive that is more than tgt's.

tells() { mt tell | tee "$scratch/printed" | grep -qx "At block $1." || { cat "$scratch/printed" && return 1; }; }
tgt_lacks 'READ POSITION' 'the position counts blocks and filemarks' eval 'writes "$scratch/million" 100000 && mt weof 2 && tells 13'
tgt_lacks LOCATE 'seek' eval 'mt seek 5 && tells 5'
tgt_lacks LOCATE 'what is read there is the sixth block' eval \
    'next_block_has 100000 1M && tail -c +500001 "$scratch/million" | head -c 100000 | cmp - "$scratch/read"'
tgt_lacks LOCATE 'the position is kept by reading' tells 6
tgt_lacks LOCATE 'beyond the end of data it fails' refused mt seek 100
tgt_lacks ERASE 'a short erase ends the data' eval 'mt rewind && mt erase 1; mt rewind && refused next_block_has 100000 1M'
tgt_lacks 'LOG SENSE' 'log pages are listed' prints 'Tape alert' sg_logs $drive_sg
tgt_lacks 'LOG SENSE' 'each can be read' eval 'sg_logs --all $drive_sg && prints "ata bytes received" sg_logs --page=0xc $drive_sg'
tgt_lacks 'LOG SENSE' 'no alert is raised' refused eval 'sg_logs --page=0x2e $drive_sg | grep ": 1"'
tgt_lacks 'logical block protection' 'checksums behind blocks are offered' prints 'method: 2, info_len: 4, LBP_W_C=1, LBP_R_C=1' sg_vpd --page=0xb5 $drive_sg
tgt_lacks 'READ ATTRIBUTE' 'the medium knows its barcode' prints "$one_volser" sg_read_attr $drive_sg
tgt_lacks 'READ ATTRIBUTE' 'and its capacity' prints 'Maximum capacity in partition' sg_read_attr $drive_sg
tgt_lacks 'SECURITY PROTOCOL' 'the drive says that it does not encrypt' prints 'Drive Input:             Not encrypting' stenc -f $drive_sg --detail
printf '%064d\nweekly\n' 7 >"$scratch/key.tape"
printf '%064d\n' 8 >"$scratch/key.other"
tgt_lacks 'SECURITY PROTOCOL' 'a key is set' stenc -f $drive_sg -e on -a 1 -k "$scratch/key.tape"
tgt_lacks 'SECURITY PROTOCOL' 'blocks come back under it' eval 'mt rewind && writes "$scratch/million" 64k && mt rewind && reads "$scratch/million" 64k'
tgt_lacks 'SECURITY PROTOCOL' 'the volume is seen to be encrypted, with the name of the key' eval \
    'mt rewind && prints weekly stenc -f $drive_sg --detail'
tgt_lacks 'SECURITY PROTOCOL' 'without a key nothing is read' eval 'stenc -f $drive_sg -e off -a 1 && mt rewind && refused next_block_has 65536 1M'
tgt_lacks 'SECURITY PROTOCOL' 'nor with another' eval \
    'stenc -f $drive_sg -e on -a 1 -k "$scratch/key.other" && mt rewind && refused next_block_has 65536 1M'
tgt_lacks 'SECURITY PROTOCOL' 'with the key it is' eval \
    'stenc -f $drive_sg -e on -a 1 -k "$scratch/key.tape" && mt rewind && reads "$scratch/million" 64k && stenc -f $drive_sg -e off -a 1'
tgt_lacks 'PERSISTENT RESERVE for tapes' 'a reservation is taken and released' eval 'sg_persist --out --register --param-sark=5 $drive_sg &&
    sg_persist --out --reserve --param-rk=5 --prout-type=3 $drive_sg && prints "Exclusive Access" sg_persist --in --read-reservation $drive_sg &&
    sg_persist --out --release --param-rk=5 --prout-type=3 $drive_sg && sg_persist --out --register --param-rk=5 $drive_sg'

# Our own drives, by the tape driver and by the generic one. They set options of the tape driver, which stay until the next login.

ours() { timeout 60 "$REAL_DRIVE" "$@"; }
as_user() { timeout 60 setpriv --reuid=1000 --regid=1000 --clear-groups "$REAL_DRIVE" "$@"; }
keeps() {
    if [ -x "$REAL_DRIVE" ]; then
        tgt_lacks 'READ POSITION' "$@"
    else
        skips "$1" "$REAL_DRIVE is not built"
    fi
}
cat >"$scratch/reset" <<TEXT
"$CAPSTAN_BIN" vtl inject $HOME/vtl 0 reset
[ -z "\$1" ] || "\$@" || true
TEXT
chmod 666 /dev/st* /dev/nst*
keeps 'st: without rights and options it says who sets them' prints stinit as_user $drive conformance
keeps 'st: the conformance suite' ours $drive conformance
keeps 'st: by a user, now that the options are set' as_user $drive conformance
keeps 'sg: the conformance suite' ours $drive_sg conformance
for kind in st sg; do
    [ $kind = st ] && node=$drive || node=$drive_sg
    keeps "$kind: early warning, and the end of the medium" ours $node full
    keeps "$kind: no filemark that was not written" ours $node filemarks
    keeps "$kind: nobody else gets the drive" ours $node claim
    keeps "$kind: a reset is told, and nothing written where it does not belong" ours $node reset sh "$scratch/reset"
done
keeps 'st: nor when the generic driver has taken the news of it' ours $drive reset sh "$scratch/reset" sg_turs $drive_sg
keeps 'sg: nor when the tape driver has' ours $drive_sg reset sh "$scratch/reset" mt-st -f $drive status
# Cartridges of their own, since the tab stays slid.
protected() { # protected SLOT NODE
    mtx load "$1" 1 && ours "$2" protected "$CAPSTAN_BIN" vtl inject $HOME/vtl 1 slide-tab && mtx unload "$1" 1
}
keeps 'st: a cartridge whose tab is slid is read and not written' protected "$(slot_of 2)" /dev/vtl/drive1
keeps 'sg: nor there' protected "$(slot_of 3)" /dev/vtl/drive1-sg
# The last lines say what was broken.
withstands() { timeout 100 "$REAL_DRIVE" "$1" faults "$seed" 25 "$CAPSTAN_BIN" $HOME/vtl >"$scratch/log" 2>&1 || { tail -n 12 "$scratch/log" && return 1; }; }
seed=${CAPSTAN_SEED:-$(date +%N | sed 's/^0*//')}
for kind in st sg; do
    [ $kind = st ] && node=$drive || node=$drive_sg
    keeps "$kind: what a flush has confirmed is there, whatever goes wrong (CAPSTAN_SEED=$seed)" withstands $node
done

# The iSCSI initiator's own terms.

node() { iscsiadm --mode node "$@"; }
agreed() { [ "$(cat /sys/class/iscsi_connection/*/"$1")" = "$2" ]; }

# again SETTING=VALUE...: logs out, changes the settings and logs in.
again() {
    node --logout
    for setting; do node --op update --name "${setting%%=*}" --value "${setting#*=}" || return; done
    node --login && iscsiadm --mode session --rescan && name_devices
}
shows 'headers and data with digests' again 'node.conn[0].iscsi.HeaderDigest=CRC32C' 'node.conn[0].iscsi.DataDigest=CRC32C'
shows 'are agreed upon' eval 'agreed header_digest 1 && agreed data_digest 1'
shows 'and carry data' eval 'mt rewind && writes "$scratch/large" 256k && mt rewind && reads "$scratch/large" 256k'
shows 'data that waits to be asked for' again node.session.iscsi.InitialR2T=Yes node.session.iscsi.ImmediateData=No
shows 'comes and goes' eval 'mt rewind && writes "$scratch/large" 1M && mt rewind && reads "$scratch/large" 1M'
# Two hosts: the kernel logs in once more, under another name, and has every unit twice.

# second_tape UNIT: the node of a drive, by its logical unit number, as the second initiator has it.
second_tape() {
    for session in /sys/class/iscsi_session/*; do
        grep -q ':second$' "$session/initiatorname" && echo "/dev/$(ls "$session"/device/target*/*:*:*:"$1"/scsi_tape | grep -x 'nst[0-9]*')"
    done
}
second_logs_in() {
    iscsiadm --mode iface --interface second --op new &&
        iscsiadm --mode iface --interface second --op update --name iface.initiatorname --value iqn.2026-01.test.capstan:second &&
        iscsiadm --mode discovery --type sendtargets --portal "$portal" --interface second &&
        node --interface second --login && iscsiadm --mode session --rescan && [ -c "$(second_tape 1)" ] && [ -c "$(second_tape 2)" ]
}
# at_once COMMAND COMMAND: both succeed.
at_once() {
    eval "$1" &
    first=$!
    eval "$2" && wait $first
}
# over NODE FILE: what is written to a tape comes back.
over() { mt-st -f "$1" rewind && dd if="$2" of="$1" bs=256k && mt-st -f "$1" rewind && dd if="$1" bs=256k | cmp - "$2"; }
target_kb() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$(cat /run/target.pid)/status"; }
# Logins that begin, some with a header and some with less, and never end; the connections stay for as long as the process does.
cat >"$scratch/crowd" <<'TEXT'
import socket, sys, time
crowd = []
for number in range(1000):
    crowd.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
    try:
        crowd[-1].send((b"C\x87\0\0\0\0\x20\0" + bytes(40))[:(0, 17, 48)[number % 3]])
    except OSError:
        pass  # dropped already
print("all are here", flush=True)
time.sleep(300)
TEXT
if [ "$LIBRARY" = capstan ]; then
    shows 'a second initiator logs in' second_logs_in
    mtx load "$two" 1 >/dev/null
    shows 'both use drives of their own at once' at_once 'over $drive "$scratch/large"' 'over "$(second_tape 2)" "$scratch/noise"'
    shows 'one reserves its drive' eval 'sg_persist --out --register --param-sark=7 $drive_sg && sg_persist --out --reserve --param-rk=7 --prout-type=3 $drive_sg'
    shows 'and the other is refused' refused over "$(second_tape 1)" "$scratch/noise"
    shows 'by a reservation conflict' eval 'dmesg | grep -q "reservation conflict"'
    shows 'while the one goes on' eval 'mt rewind && reads "$scratch/large" 256k'
    shows 'once it is released the other reads what is there' eval 'sg_persist --out --release --param-rk=7 --prout-type=3 $drive_sg &&
        sg_persist --out --register --param-rk=7 $drive_sg && mt-st -f "$(second_tape 1)" rewind && dd if="$(second_tape 1)" bs=256k | cmp - "$scratch/large"'
    kb_before=$(target_kb)
    python3 "$scratch/crowd" "${portal##*:}" >"$scratch/crowd.log" 2>&1 &
    crowd=$!
    shows 'a thousand logins that never end' wait_for 60 grep -qx 'all are here' "$scratch/crowd.log"
    shows 'hold nobody up' at_once 'over $drive "$scratch/large"' 'over "$(second_tape 2)" "$scratch/noise"'
    kb_now=$(target_kb)
    echo "# the library took $kb_before kB of memory before, and takes $kb_now kB"
    shows 'and cost no more than 32 MB' [ "$kb_now" -lt $((kb_before + 32768)) ]
    kill $crowd
    node --interface second --logout >/dev/null && node --interface second --op delete
    mt-st -f /dev/vtl/drive1 offline
    mtx unload "$two" 1 >/dev/null
fi
if command -v require_password >/dev/null; then
    password=node.session.auth.password
    # Without a target every command of the initiator waits.
    require_password guest 'twelve bytes or more' || exit
    shows 'a password is asked for' refused again
    shows 'a wrong one is refused' refused again node.session.auth.authmethod=CHAP node.session.auth.username=guest $password='another, also long'
    shows 'the right one is taken' again $password='twelve bytes or more'
    shows 'and the library is there' mtx status
else
    skips 'a password is asked for' "guest/provider/$LIBRARY does not say how"
fi
[ "$failed" -eq 0 ]
