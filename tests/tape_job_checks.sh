# Runs in the guest (tape_job.sh starts it): the main job over the kernel's drivers, with changer, two drives, a twin and spanning.
#
# DRIVER: sg (drives encrypt, keys by SECURITY PROTOCOL OUT) or st (plain pools: the tape driver has no way for a key).
# shellcheck shell=sh
# shellcheck disable=SC1091
. "$(dirname "$0")/checks.sh"
number=${FIRST:-0}

shows() {
    name=$1
    shift
    check "$DRIVER: $name" "$@"
}

refused() { ! "$@"; }

# Noise that no compression makes shorter, and files of all kinds.
mkdir -p $scratch/source/small
for i in 1 2 3 4 5 6; do
    head -c 40000000 /dev/urandom >$scratch/source/noise$i
done
cp -a /usr/share/doc/bash /usr/share/doc/tar $scratch/source/small/
ln $scratch/source/noise1 $scratch/source/link
ln -s nowhere $scratch/source/dangling

case $DRIVER in
sg) devices='' cipher=gcm ;;
st) devices="--drive /dev/vtl/drive0 --drive /dev/vtl/drive1" cipher=none ;;
esac
# shellcheck disable=SC2086
shows 'a state directory for the library' capstan init --changer /dev/vtl/changer $devices --encrypt $cipher
# Over sg blocks have checksums on their way; the tape driver knows none.
[ "$DRIVER" = st ] || sed -i 's/^protect_blocks = .*/protect_blocks = true/' "$CAPSTAN_STATE/capstan.toml"
shows 'the library has two drives' eval '[ "$(capstan drives | wc -l)" -eq 3 ]'
shows 'a barcode that is not there is named' prints 'insert a cartridge' capstan label Z00001L9
shows 'volumes are labelled' capstan label A00001L9 A00002L9 A00003L9 A00004L9
# Two copies of 240 MB on cartridges of 160 MiB: both span.
shows 'two copies, over two drives and two cartridges each' capstan backup $scratch/source --copies 2
shows 'no drive keeps a cartridge' refused eval 'capstan drives | grep -q A0000'
objects() { "$CAPSTAN_BIN" objects --json | tr ',{' '\n\n' | sed -n 's/^ *"object": *"\([0-9a-f]*\)".*/\1/p'; }
object=$(objects | head -n 1)
shows 'four volumes are written' eval '[ "$("$CAPSTAN_BIN" volumes --json | grep -c "\"written_bytes\":[1-9]")" -eq 4 ]'
[ -n "$object" ] || exit 1
shows 'the object is verified' capstan verify "$object"
shows 'and restored' capstan restore "$object" --to $scratch/restored
same() { [ -n "$1" ] && rsync -aniHAX --delete "$scratch/source/" "$1/" | tee $scratch/difference && [ ! -s $scratch/difference ]; }
found() { find $scratch/restored -name noise1 -printf '%h\n'; }
shows 'nothing differs' eval 'same "$(found)"'
rm -rf $scratch/restored
shows 'one folder comes back' capstan restore "$object:$scratch/source/small/bash" --to $scratch/one
shows 'and is the same' eval 'diff -r $scratch/source/small/bash "$(find $scratch/one -name bash -type d)"'
echo changed >$scratch/source/small/new
shows 'an incremental behind it' capstan backup $scratch/source --incremental
case $DRIVER in sg)
    shows 'the bytes on the medium are not those of the files' eval \
        'cat $HOME/vtl/cartridges/*.tape >$scratch/medium && ! LC_ALL=C grep -q "POSIX TAR\|GNU Bash" $scratch/medium'
    ;;
esac
case $DRIVER in
sg)
    told() { "$CAPSTAN_BIN" drives report >$scratch/told 2>&1; }
    shows 'what the drives have said is kept, and asks for nobody' told
    shows 'for each volume' eval '[ "$(grep -c "^A0000" $scratch/told)" -ge 4 ]'
    shows 'an alert is ordered' capstan vtl inject $HOME/vtl 0 alert:20
    echo again >>$scratch/source/small/new
    shows 'a backup meets it, and goes on' capstan backup $scratch/source --incremental
    shows 'it is shown with what to do' prints 'TapeAlert 20: the drive must be cleaned now' refused capstan drives report
    objects_there=3
    ;;
st) objects_there=2 ;;
esac
keep() { mv $CAPSTAN_STATE/catalog $CAPSTAN_STATE/catalog.lost; }
shows 'the catalog is lost' keep
shows 'and made again from the tapes' capstan rebuild
shows 'with all objects' eval '[ "$(objects | wc -l)" -eq $objects_there ]'
shows 'from which all comes back' capstan restore "$(objects | head -n 1)" --to $scratch/restored
shows 'the same as it is now' eval 'same "$(found)"'
shows 'no write went to a position that was not verified' eval \
    '"$CAPSTAN_BIN" vtl status $HOME/vtl --json >$scratch/drives && ! grep -q "unverified_writes\":[1-9]" $scratch/drives'
[ "$failed" -eq 0 ]
