# Runs in the guest (tape_hardware.sh starts it): what an operator sees and does with drives and a library that the kernel knows.
# shellcheck shell=sh
# shellcheck disable=SC1091
. "$(dirname "$0")/checks.sh"
vtl=$HOME/vtl # where the provider has put it
unset CAPSTAN_KEY_FILE
export CAPSTAN_STATE=/root/state CAPSTAN_PASSPHRASE='a passphrase of several words' HOME=/root
scratch=/root/scratch
mkdir -p $scratch

# prints PATTERN COMMAND...: it succeeds and says so. refused PATTERN COMMAND...: it fails and says so.
prints() {
    pattern=$1
    shift
    "$@" >$scratch/said 2>&1 || { cat $scratch/said && return 1; }
    cat $scratch/said
    grep -q -- "$pattern" $scratch/said
}
refused() {
    pattern=$1
    shift
    "$@" >$scratch/said 2>&1 && cat $scratch/said && return 1
    cat $scratch/said
    grep -q -- "$pattern" $scratch/said
}
number_of() { readlink -f "$1"; }

# Who is there, without a state directory.
capstan drives scan >$scratch/scan
sed 's/^/# /' $scratch/scan
check 'the library is found with its nodes' grep -q "^library 0 .*CAPSTAN.*$(number_of /dev/vtl/changer) .*2 drives .*yes" $scratch/scan
for drive in 0 1; do
    check "drive $drive is paired with its place by its serial number" \
        grep -q "$(number_of /dev/vtl/drive$drive-sg) .*$(number_of /dev/vtl/drive$drive) .*drive $drive of library 0" $scratch/scan
done
check 'all of it is JSON, too' prints '"drive":1' capstan drives scan --json
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$CAPSTAN_BIN" drives scan; }
check 'who has no right is told so' prints 'no right' nobody

# The library, by a state directory of its own.
check 'a state directory for the library' capstan init --changer /dev/vtl/changer --encrypt none
check 'its drives have models, serial numbers and paths' prints "CAPSTAN LTO-9 .*CPT0000001 .*$(number_of /dev/vtl/drive0-sg)" capstan drives
check 'the inventory has what the catalog does not know' prints 'slot 0 .*A00001L9 .*not in the catalog' capstan library inventory
check 'a volume is labelled' capstan label A00002L9
check 'and the catalog knows it' prints 'A00002L9 .*scratch .*scratch' capstan library inventory
check 'a volume is brought into a drive' capstan library load A00001L9 0
check 'where it is' prints '^drive 0 .*A00001L9' capstan library inventory
check 'a full drive is not loaded again' refused 'unload it first' capstan library load A00002L9 0
check 'it is exchanged for another' capstan library exchange A00002L9 0
check 'which is there now' prints '^drive 0 .*A00002L9' capstan library inventory
check 'and comes back' capstan library unload 0
check 'an empty drive has nothing to come back' refused 'holds no cartridge' capstan library unload 0
check 'a volume goes to the mail slot' capstan library export A00002L9
check 'where it is seen' prints '^mail slot 0 .*A00002L9' capstan library inventory
check 'a person takes it out' capstan vtl export $vtl A00002L9
check 'the catalog still knows it' prints '^outside .*A00002L9' capstan library inventory
check 'an empty mail slot is told' refused 'mail slot is empty' capstan library import
check 'a person puts it back' capstan vtl import $vtl A00002L9
check 'and it is taken in' prints '1 cartridge' capstan library import
check 'the robot looks at everything' capstan library initialize
mislabel() { capstan vtl inject $vtl robot mislabelled:A00003L9; }
check 'all cartridges get one barcode' mislabel
check 'and duplicates are named' refused 'take one out and give it another barcode' capstan library inventory
capstan vtl forgive $vtl >/dev/null

# A drive, tried out with a scratch tape: over sg, then over st.
check 'an empty drive is not tried' refused 'put in a cartridge' capstan drives exercise /dev/vtl/drive1-sg --yes
check 'a scratch tape' capstan library load A00003L9 1
for driver in sg st; do
    case $driver in sg) node=/dev/vtl/drive1-sg overwrite='' ;; st) node=/dev/vtl/drive1 overwrite=--overwrite ;; esac
    # shellcheck disable=SC2086
    check "$driver: a drive is tried and keeps all rules" \
        capstan drives exercise $node --yes $overwrite --bytes 48M --report $scratch/$driver.md
    for line in 'keeps all rules' "driver .*($driver)" 'nothing goes without a load | kept' '| kernel | 6.1' 'volume statistics' 'longest block, bytes' \
        'attribute 0001h' 'load, until ready' 'locate, anywhere'; do
        check "$driver: its report has: $line" grep -q -- "$line" $scratch/$driver.md
    done
    check "$driver: rates for blocks of 64 KiB to 2 MiB" eval '[ "$(grep -c "^| [0-9]* | [0-9.]* | [0-9.]* | [0-9.]* |$" $scratch/'$driver'.md)" -eq 6 ]'
    check "$driver: no serial number and no barcode is in it" eval '! grep -qi "CPT000\|43 50 54 30 30 30\|A00003L9\|41 30 30 30 30 33" $scratch/'$driver'.md'
    [ $driver = st ] || {
        check 'sg: encryption was tried' grep -q 'encrypted blocks need their key (AES-256-GCM) | kept' $scratch/sg.md
        # What was measured stays on it.
        check 'a tape with something on it is not overwritten unasked' refused 'is not blank' capstan drives exercise $node --yes
    }
done
sed -n '/^## Rates/,/^## Host/p' $scratch/sg.md | sed 's/^/# sg: /'
told() { capstan --quiet drives exercise /dev/vtl/drive1-sg --yes --overwrite --bytes 1M --serials >$scratch/serials.md && grep -q '| serial number | CPT0000002 |' $scratch/serials.md; }
check 'serial numbers, where they are wanted' told
# Who is not root, and owns the nodes as the group tape does elsewhere.
chown -L 65534 /dev/vtl/drive1-sg /dev/vtl/drive1
tape_user() { setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all "$CAPSTAN_BIN" drives exercise "$1" --yes --overwrite --bytes 4M; }
check 'sg: no more than the right to the node is needed' tape_user /dev/vtl/drive1-sg
check 'st: no more than the right to the node is needed' tape_user /dev/vtl/drive1
# Another program at the same drive, by the other driver: who was first has it.
tape_node=$(number_of /dev/vtl/drive1)
within() { # within SECONDS COMMAND...
    tries=$(($1 * 10))
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return
        sleep 0.1
    done
}
has_node() { ls -l "/proc/$1/fd" 2>/dev/null | grep -q "$tape_node\$"; }
# The driver waits at the open for a cartridge that is let go.
mt -f "$tape_node" load
sleep 60 <"$tape_node" &
other=$!
check 'another program opens the node of the tape driver' within 20 has_node $other
check 'sg: a program that came by the tape driver is named' \
    refused "in use by sleep (process $other): wait until it is done, or end it" capstan drives exercise /dev/vtl/drive1-sg --yes --overwrite --bytes 1M
kill $other
wait $other 2>/dev/null
"$CAPSTAN_BIN" drives exercise /dev/vtl/drive1-sg --yes --overwrite --bytes 128M >$scratch/meanwhile 2>&1 &
exercise=$!
# Before it begins it looks at the drive and lets it go again, to ask what it is.
check 'sg: it has begun' within 20 grep -q 'checking rules' $scratch/meanwhile
check 'sg: a drive in use has the node of the tape driver, too' has_node $exercise
# On a busy machine it would be done before the other one comes.
kill -STOP $exercise
check 'so that nobody comes that way' refused 'busy' mt -f "$tape_node" rewind
kill -CONT $exercise
# Each stop meets whatever command is under way; SG_IO sent it again behind it, and the tape stood a block further than was counted.
# A fast machine is done before the tenth stop.
stopped() {
    stops=0
    while [ $stops -lt 10 ] && kill -STOP $exercise 2>/dev/null; do
        sleep 0.1
        kill -CONT $exercise
        stops=$((stops + 1))
        sleep 0.05
    done
    [ $stops -gt 0 ]
}
check 'it is stopped (Ctrl-Z) and goes on' stopped
check 'and the drive is tried to its end' eval "wait $exercise && grep -q 'keeps all rules' $scratch/meanwhile"
check 'st: afterwards it is free' mt -f "$tape_node" load
protect() {
    capstan library unload 1
    capstan library load A00004L9 1 && capstan vtl inject $vtl 1 slide-tab && mt -f /dev/vtl/drive1 load
}
check 'a tab is slid' protect
check 'a write-protected tape is not tried' refused 'slide its tab' capstan drives exercise /dev/vtl/drive1-sg --yes --overwrite --bytes 1M
check 'a changer is no drive' refused "give the drive's path" capstan drives exercise /dev/vtl/changer --yes
check 'nothing is no drive' refused 'capstan drives scan' capstan drives exercise /dev/nothing --yes
# A drive without a changer: a person is asked. Here mtx is the person's hand.
capstan library unload 1 >/dev/null
slot_of() { mtx -f /dev/vtl/changer status | sed -n "s/^ *Storage Element \([0-9]*\).*VolumeTag=$1 *$/\1/p"; }
put_in() { from=$(slot_of "$1") && mtx -f /dev/vtl/changer load "$from" 0; }
export CAPSTAN_STATE=/root/by-hand
check 'a state directory by hand' capstan init --standalone --drive /dev/vtl/drive0-sg --encrypt none
capstan label A00001L9 >$scratch/asked 2>&1 &
person=$!
asked() { within 20 grep "$1" $scratch/asked; }
check 'a person is asked' asked 'put volume A00001L9 into drive 0'
check 'and puts in another' put_in A00003L9
check 'which is told' asked 'drive 0 .* holds volume A00003L9: take it out, and put volume A00001L9 in'
from=$(mtx -f /dev/vtl/changer status | sed -n 's/^Data Transfer Element 0:Full (Storage Element \([0-9]*\).*/\1/p')
check 'it is taken out, as the drive has let it go' within 10 mtx -f /dev/vtl/changer unload "$from" 0
check 'the right one is put in' put_in A00001L9
check 'and the volume is labelled' wait $person
check 'the person may take it out' grep 'take volume A00001L9 out of drive 0' $scratch/asked
check 'the catalog has it' prints 'A00001L9 .*scratch' capstan volumes
check 'there is no robot to be asked' refused 'a person brings cartridges' capstan library export A00001L9

verified() { [ "$(capstan vtl status "$vtl" --json | grep -o '"unverified_writes":[0-9]*' | sort -u)" = '"unverified_writes":0' ]; }
check 'every write went to a position that was verified' verified
finish
