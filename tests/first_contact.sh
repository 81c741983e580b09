#!/bin/sh
# The commands of a demanding first trial, each with what it says now: what was lost or misreported with exit code 0, what misled in an
# emergency, and the hostile cases that no other test has. Each part begins with a state directory of its own.
set -u
export TZ=UTC NO_FAKE_STAT=1
. "$(dirname "$0")/checks.sh"
tree=$scratch/tree
slots=$CAPSTAN_STATE/library/slots

# A small source that fills a few extents.
mkdir -p "$tree/one" "$tree/two" "$scratch/other"
for n in 1 2 3 4 5 6; do head -c 2000000 /dev/urandom >"$tree/one/$n"; done
echo old >"$tree/two/b"
echo other >"$scratch/other/file"

# says WORDS CODE COMMAND...: the command ends with the code, and its output or its errors hold the words.
says() {
    wanted=$1
    expected=$2
    shift 2
    code=0
    "$@" >"$scratch/printed" 2>&1 || code=$?
    grep -qF -- "$wanted" "$scratch/printed" && [ "$code" -eq "$expected" ] || {
        cat "$scratch/printed"
        echo "exit code $code, not $expected, or nothing says: $wanted"
        return 1
    }
}

# silent_of WORDS COMMAND...: nothing it prints holds the words.
silent_of() {
    words=$1
    shift
    "$@" >"$scratch/printed" 2>&1 || true
    ! grep -F -- "$words" "$scratch/printed"
}

# comes_back SOURCE [FLAG...]: the source is restored as it is on the disk.
comes_back() {
    from=$1
    shift
    rm -rf "$scratch/back"
    capstan --quiet restore "$from" --to "$scratch/back" "$@" && diff -r "$from" "$scratch/back$from"
}

# The byte at which a block of the first volume is flipped lies in the content of a file.
spoil() { printf ZZZZZZZZ | dd of="$slots/$1.tape" bs=1 seek="$2" conv=notrunc 2>/dev/null; }

# comes_to COUNT: so many objects are listed.
comes_to() { [ "$(capstan --json objects | grep -c .)" -eq "$1" ]; }

newest() { capstan --json objects | sed -n '1s/.*"object":"\([0-9a-f-]*\)".*/\1/p'; }
with_faketime() { command -v faketime >/dev/null 2>&1; }
on() {
    when=$1
    shift
    faketime -f "@$when" "$CAPSTAN_BIN" "$@"
}

# Everything in a mount namespace of our own, where one is to be had.
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
    apart='unshare --mount'
elif unshare --mount --map-root-user true 2>/dev/null; then
    apart='unshare --mount --map-root-user'
else
    apart=
    echo '# SKIP disks that are not mounted, and states that cannot be written: namespaces are forbidden here'
fi

# --- Damage is remembered (S1-1)
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree"
spoil A00001 9000000
check 'S1-1 verify finds the damage' says DAMAGED 3 capstan verify A00001
check 'S1-1 status says so' says 'volume A00001 is suspect: 1 block' 3 capstan status
check 'S1-1 volumes shows it' prints suspect capstan volumes
check 'S1-1 repair without another copy names what it cannot mend' exits 3 capstan repair
check 'S1-1 no incremental stands on it' prints full capstan backup "$tree" --incremental
check 'S1-1 nor is anything appended to it' prints A00002 capstan show "$(newest)"
check 'S1-1 what is lost is flagged, file by file' prints lost capstan ls -R "$(capstan --json objects | sed -n '2s/.*"object":"\([0-9a-f-]*\)".*/\1/p')"
check 'S1-1 and the newer backup comes back' comes_back "$tree"
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree" --copies 2
read=$(capstan restore "$tree" --dry-run --to "$scratch/back" 2>&1 | sed -n 's/.*mount 1: volume \([^,]*\),.*/\1/p')
spoil "$read" 9000000
check 'S1-1 a restore with a damaged copy is whole by the other' comes_back "$tree"
check 'S1-1 and the damage is on record' says "$read is suspect" 3 capstan status
check 'S1-1 repair copies what it held' exits 0 capstan repair
check 'S1-1 all is whole elsewhere' says 'other volumes have everything' 3 capstan status

# --- A library that is not there (S1-2), a state that cannot be written (S2-12)
unmounted() {
    # shellcheck disable=SC2086 # a list of words
    $apart sh -c '
        mkdir -p "$1/lib" && mount -t tmpfs -o size=64m tmpfs "$1/lib" || exit 1
        rm -rf "$CAPSTAN_STATE" && "$0" --quiet init --library "$1/lib" --volume-size 32M || exit 1
        "$0" --quiet backup "$2" || exit 1
        umount "$1/lib"
        "$0" backup "$2" --incremental; code=$?
        ls -A "$1/lib" | grep . && exit 1
        exit $code' "$CAPSTAN_BIN" "$scratch" "$tree/two"
}
read_only() {
    # shellcheck disable=SC2086 # a list of words
    $apart sh -c '
        mkdir -p "$1/ro" && mount -t tmpfs -o size=64m tmpfs "$1/ro" || exit 1
        export CAPSTAN_STATE="$1/ro/state"
        "$0" --quiet init --volume-size 32M && "$0" --quiet backup "$2" || exit 1
        mount -o remount,ro "$1/ro" || exit 1
        "$0" objects | grep -q two && "$0" --quiet restore "$2" --to "$1/from-ro" && diff -r "$2" "$1/from-ro$2" || exit 1
        "$0" backup "$2"' "$CAPSTAN_BIN" "$scratch" "$tree/two"
}
if [ -n "$apart" ]; then
    check 'S1-2 a library whose disk is not mounted is refused, and nothing is written there' says 'mount' 1 unmounted
    check 'S2-12 a state that cannot be written lists and restores, and refuses a backup by name' says 'cannot be written' 1 read_only
fi

# --- The clock (S1-3, S1-4); tests/clocks.sh has the rest
if with_faketime; then
    begin --volume-size 64M >/dev/null
    capstan --quiet pools add default --retention 30d >/dev/null 2>&1
    capstan --quiet backup "$tree/two"
    check 'S1-3 a clock that is ahead by years is said at once' prints 'after the newest record' on '2031-01-01 03:00:00' --quiet backup "$tree/two" --incremental
    echo NEW >"$tree/two/b"
    capstan --quiet backup "$tree/two" --full 2>/dev/null
    check 'S1-3 the later backup is the latest all the same' comes_back "$tree/two"
    check 'S1-3 cat gives the new content' prints NEW capstan cat "$tree/two:b"
    check 'S1-4 expire does nothing by a clock in doubt' exits 1 on '2035-01-01 03:00:00' expire
    check 'S1-4 and never takes the last of a source' prints 'the last that can be restored' on '2035-01-01 03:00:00' expire --dry-run --trust-clock
    check 'S2-9 a backup that is too old asks for attention' exits 3 on '2028-01-01 03:00:00' status --max-age 26h
fi

# --- What could not be read (S1-5, S2-11, S2-15)
closed() {
    if [ "$(id -u)" = 0 ]; then setpriv --bounding-set=-dac_override,-dac_read_search "$CAPSTAN_BIN" "$@"; else capstan "$@"; fi
}
begin --volume-size 64M >/dev/null
mkdir -p "$scratch/shut/dir" && echo in >"$scratch/shut/dir/file" && echo out >"$scratch/shut/file"
chmod 000 "$scratch/shut/dir"
check 'S1-5 a directory that cannot be listed ends with 3' exits 3 closed --quiet backup "$scratch/shut" --full
check 'S1-5 ls flags it' prints unreadable capstan ls "$scratch/shut"
check 'S1-5 status counts it' prints 'flags what was not read' capstan status
check 'S1-5 a restore says that it is incomplete' says 'incomplete' 3 capstan restore "$scratch/shut" --to "$scratch/shut-back"
check 'S2-15 --json names it' prints '"path":"' closed --json backup "$scratch/shut" --full
chmod 755 "$scratch/shut/dir"
check 'S1-5 --against-source names what the object lacks' says 'dir/file' 3 capstan verify "$scratch/shut" --against-source
check 'S2-11 a source that is missing does not stop the others' says 'nowhere is not backed up' 3 capstan backup "$tree/two" "$scratch/nowhere" "$scratch/other"
check 'S2-11 both are there' comes_back "$scratch/other"

# --- A copy that is given up (S1-6), chains (S2-17), mounts (S2-18), the mail slot (S2-16)
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two" --copies 2
check 'S1-6 erase says that the copy will be made again' prints 'capstan repair' capstan erase A00002 --yes
check 'S1-6 status asks for it' says 'lacks a copy' 3 capstan status
check 'S1-6 repair makes it' exits 0 capstan --quiet repair
check 'S1-6 and all is well' exits 0 capstan status
for n in 1 2 3 4 5; do
    echo "$n" >"$tree/two/$n"
    capstan --quiet backup "$tree/two" --incremental
done
mounts() { capstan --json verify A00001 | grep -c '"event":"mounted"'; }
check 'S2-18 verify of a volume with six objects mounts it once' test "$(mounts)" = 1
check 'S2-17 verify of a source reads its whole chain' prints 'good' capstan verify "$tree/two"
capstan --quiet pools add vault >/dev/null 2>&1
chain() { capstan --json copy "$tree/two" --to-pool vault | grep -c '"event":"copied"'; }
check 'S2-17 copy of a source takes its whole chain' test "$(chain)" = 6
check 'S2-16 a volume in the mail slot is outside' exits 0 capstan --quiet library export A00001
unused() { capstan --json backup "$tree/two" | grep '"event":"mounted"' | grep -c A00001; }
check 'S2-16 and the next backup leaves it alone' test "$(unused)" = 0

# --- Ways out (S2-7, S2-14, S3): walked in crates/cli/tests/it/cli/ways_out.rs
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two" "$scratch/other"
mv "$CAPSTAN_STATE/keys.db" "$scratch/keys.db"
check 'S2-7 status says that the key store is gone' says 'capstan keys create' 3 capstan status
check 'S2-7 a restore says what to do' says 'capstan keys create' 4 capstan restore "$tree/two" --to "$scratch/nothing"
mv "$scratch/keys.db" "$CAPSTAN_STATE/keys.db"
mv "$CAPSTAN_STATE/catalog" "$scratch/catalog" 2>/dev/null || mv "$CAPSTAN_STATE/catalog.db" "$scratch/catalog.db"
check 'S2-14 a catalog that is gone is not made anew' says 'capstan rebuild' 1 capstan status
check 'S2-14 rebuild brings it back' exits 0 capstan --quiet rebuild
check 'S2-14 and the sources with it' comes_back "$tree/two"
if unshare --uts true 2>/dev/null; then
    renamed() { unshare --uts sh -c 'hostname another && exec "$@"' sh "$CAPSTAN_BIN" "$@"; }
    check 'S2-13 a renamed host is told how to go on' prints '--client' renamed backup "$tree/two" --incremental
fi

# --- What is expected of expire (S2-10)
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two"
first=$(newest)
capstan --quiet backup "$tree/two" --incremental
check 'S2-10 the dry run refuses what the run refuses' exits 1 capstan expire "$first" --dry-run
check 'S2-10 and the run does' exits 1 capstan expire "$first"

# --- S3
begin --volume-size 64M >/dev/null
head -c 3000000 /dev/urandom | capstan --quiet backup --stdin dump.sql
check 'S3 objects --source finds what was standard input' prints dump.sql capstan objects --source dump.sql
check 'S3 the plan of such an object has bytes' silent_of '0 B to read' capstan restore dump.sql --dry-run --to "$scratch/dump"
check 'S3 a source that cannot be is no interrupted backup' exits 1 sh -c 'echo x | "$0" backup --stdin a/../b' "$CAPSTAN_BIN"
check 'S3 and status is none the worse' exits 0 capstan status
check 'S3 an hour of retention is shown as one' sh -c '"$0" pools add brief --retention 1h >/dev/null && "$0" pools | grep -q " 1h"' "$CAPSTAN_BIN"
check 'S3 pools add says what it did' prints 'are kept for 30d' capstan pools add later --retention 30d
check 'S3 a pool that nothing needs is removed' exits 0 capstan pools remove later
check 'S3 and one with volumes is not' says 'default' 1 capstan pools remove default
sed -i 's/^drives = .*/drives = 1/' "$CAPSTAN_STATE/capstan.toml"
check 'S3 more copies than drives are refused before anything is read' says 'set drives in capstan.toml' 1 capstan backup "$tree/two" --copies 2
check 'S3 a passphrase that is guessed in no time is taken with a word' prints 'fewer than 8 characters' sh -c 'unset CAPSTAN_KEY_FILE; CAPSTAN_PASSPHRASE=x CAPSTAN_STATE="$1" "$0" init' "$CAPSTAN_BIN" "$scratch/short"
check 'friction: keys that are in no export are told' prints 'in no export yet' capstan status
check 'friction: until there is one' exits 0 env CAPSTAN_EXPORT_PASSPHRASE='four plain words more' "$CAPSTAN_BIN" keys export "$scratch/export"
check 'friction: and then no more' silent_of 'in no export' capstan status
mkdir "$scratch/bidi" && : >"$scratch/bidi/$(printf 'a\342\200\256b')"
capstan --quiet backup "$scratch/bidi"
check 'S3 an override of the direction of text is escaped' prints '\u{202e}' capstan ls "$scratch/bidi"
check 'S3 each command has its man page' sh -c '"$0" man backup | grep -q compression' "$CAPSTAN_BIN"
check 'a word of another program is answered' prints 'capstan objects' capstan snapshots

# --- A second trial, by somebody new
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two"
capstan --quiet library export A00001
mkdir -p "$scratch/away" && mv "$CAPSTAN_STATE/library/mail/A00001.tape" "$scratch/away/"
capstan --quiet forget A00001 --force --yes
check 'a volume that is forgotten keeps its name' prints A00002 capstan backup "$tree/two"
cp "$slots/A00002.tape" "$CAPSTAN_STATE/library/mail/"
sum=$(cksum <"$slots/A00002.tape")
check 'a cartridge from the mail slot never takes the place of one in a slot' says 'nothing was moved' 1 capstan library import
check 'which is as it was' test "$(cksum <"$slots/A00002.tape")" = "$sum"
rm "$CAPSTAN_STATE/library/mail/A00002.tape"
capstan --quiet backup "$tree/two" --copies 2
check 'label of a volume in use asks' says 'use --yes' 2 capstan label A00003 --pool default
check 'and does nothing before' prints '2 of 2' capstan status
check 'a volume is labelled if that is meant' exits 0 capstan label A00003 --pool default-copy2 --yes
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two"
rm -f "$CAPSTAN_STATE"/keys.db*
check 'a new key store says what opens it' prints 'keys add' capstan keys create
check 'a volume that is labelled with a new key' exits 0 capstan --quiet label A00001 --pool default --force
capstan --quiet backup "$tree/two"
check 'is no volume without a key' silent_of 'not in the key store' capstan status
check 'and what was lost with the old key may go' prints 'capstan expire' capstan status
mkdir -p "$scratch/gone" && mv "$slots"/* "$scratch/gone/"
check 'status sees that all cartridges are gone' says 'mount that disk' 3 capstan status
mv "$scratch/gone"/* "$slots/"
printf '\n[jobs.monthly]\nsources = ["%s"]\nfull_every = "1m"\n' "$tree/two" >>"$CAPSTAN_STATE/capstan.toml"
check 'a month is not a minute' says 'm is for minutes' 1 capstan jobs
sed -i 's/"1m"/"30d"/; $a before = ["/nowhere/quiesce"]' "$CAPSTAN_STATE/capstan.toml"
check 'jobs names a hook that is not there' says 'before (/nowhere/quiesce) cannot be started' 3 capstan jobs
capstan --quiet pools add brief --retention 30d >/dev/null
capstan --quiet backup "$tree/two" --pool brief
capstan --quiet pools add attic --retention 10y >/dev/null
check 'a copy says how long it is kept' prints "as long as the backup's own copies" capstan copy "$tree/two" --to-pool attic

# --- Hostile cases that no other test has
kinds() {
    # shellcheck disable=SC2086 # a list of words
    $apart sh -c '
        top=$1/mounts && mkdir -p "$top/plain" "$top/bind" "$top/memory" "$top/over" "$1/lower" "$1/upper" "$1/work" && echo plain >"$top/plain/file"
        echo lower >"$1/lower/lower" && echo gone >"$1/lower/gone"
        mount --bind "$top/plain" "$top/bind" && mount -t tmpfs tmpfs "$top/memory" && echo memory >"$top/memory/file" || exit 1
        if mount -t tmpfs tmpfs "$1/upper" && mkdir "$1/upper/up" "$1/upper/work" &&
            mount -t overlay -o "lowerdir=$1/lower,upperdir=$1/upper/up,workdir=$1/upper/work" overlay "$top/over" 2>/dev/null; then
            rm "$top/over/gone" && echo upper >"$top/over/upper"
        fi
        rm -rf "$CAPSTAN_STATE" && "$0" --quiet init --volume-size 64M && "$0" --quiet backup "$top" || exit 1
        "$0" --quiet restore "$top" --to "$1/mounts-back" && diff -r "$top" "$1/mounts-back$top" || exit 1
        "$0" --quiet backup "$top" --full --one-file-system || exit 1
        "$0" ls -R "$top" | grep -E "memory/file|over/lower" && exit 1
        exit 0' "$CAPSTAN_BIN" "$scratch"
}
if [ -n "$apart" ]; then
    check 'bind mounts, tmpfs and overlays come back as they look, and -x stays on one file system' kinds
fi
begin --volume-size 64M >/dev/null
mkdir "$scratch/many" && echo linked >"$scratch/many/0"
$PYTHON -c 'import os, sys
for n in range(1, 10002): os.link(sys.argv[1] + "/0", f"{sys.argv[1]}/{n}")' "$scratch/many"
check '10,002 names of one file are one file' exits 0 capstan --quiet backup "$scratch/many"
links() { rm -rf "$scratch/links" && capstan --quiet restore "$scratch/many" --to "$scratch/links" && [ "$(stat -c %h "$scratch/links$scratch/many/7")" = 10002 ]; }
check 'and again when they are restored' links
check 'cat of any of them gives the content' prints linked capstan cat "$scratch/many:5555"
mkdir "$scratch/thin" && truncate -s 20G "$scratch/thin/file" 2>/dev/null && printf x | dd of="$scratch/thin/file" bs=1 seek=15000000000 conv=notrunc 2>/dev/null
check 'a file of 20 GiB with one byte is stored as that byte' exits 0 capstan --quiet backup "$scratch/thin"
thin() { capstan --quiet restore "$scratch/thin" --to "$scratch/thin-back" && [ "$(du -k "$scratch/thin-back$scratch/thin/file" | cut -f1)" -lt 1024 ] && [ "$(stat -c %s "$scratch/thin-back$scratch/thin/file")" = 21474836480 ]; }
check 'and restored so' thin
# A restore that is killed leaves nothing that looks whole, and is finished by the next.
killed() {
    rm -rf "$scratch/killed"
    capstan --quiet backup "$tree"
    "$CAPSTAN_BIN" --quiet restore "$tree" --to "$scratch/killed" &
    pid=$!
    until [ -e "$scratch/killed$tree" ] || ! kill -0 "$pid" 2>/dev/null; do :; done
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    capstan --quiet restore "$tree" --to "$scratch/killed" --overwrite changed && diff -r "$tree" "$scratch/killed$tree"
}
check 'a restore that is killed is finished by the next' killed
# Two at once: the second waits, or says who writes.
check 'a second writer that waits for the first is done' sh -c '"$0" --quiet backup "$1" & "$0" --quiet backup "$2" --wait; code=$?; wait; exit $code' "$CAPSTAN_BIN" "$tree" "$scratch/other"
# A volume that was cut short, as others see it.
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree"
truncate -s 3000000 "$slots/A00001.tape"
few() { [ "$(capstan verify A00001 2>&1 | grep -c 'lies beyond')" = 1 ]; }
check 'a volume that was cut short is told in a few lines, not in one for each block' few
if [ "$(id -u)" = 0 ]; then
    begin --volume-size 64M >/dev/null
    mkdir "$scratch/suid" && cp /bin/true "$scratch/suid/true" && chmod 4755 "$scratch/suid/true"
    capstan --quiet backup "$scratch/suid"
    mkdir -m 777 "$scratch/nobody" && chmod a+x "$scratch" && chmod -R a+rwX "$CAPSTAN_STATE"
    install -o 65534 -m 600 "$CAPSTAN_KEY_FILE" "$scratch/nobody/key"
    as_nobody() { CAPSTAN_KEY_FILE=$scratch/nobody/key setpriv --reuid 65534 --regid 65534 --clear-groups "$CAPSTAN_BIN" "$@"; }
    check 'who restores without privileges is told whose everything is' prints 'belongs to you' as_nobody restore "$scratch/suid" --to "$scratch/nobody/back"
fi
# Cartridges in each other's place.
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two" --copies 2
mv "$slots/A00001.tape" "$slots/x" && mv "$slots/A00002.tape" "$slots/A00001.tape" && mv "$slots/x" "$slots/A00002.tape"
check 'cartridges in each other'"'"'s place are told' says 'whether a barcode is on the wrong cartridge' 1 capstan verify A00001
rm "$slots/A00001.tape" "$slots/A00002.tape"
check 'cartridges that are all gone at once are a disk that is not mounted' says 'mount' 1 capstan backup "$tree/two"
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree/two"
sed -i 's/checkpoint_mib/checkpoint_mb/' "$CAPSTAN_STATE/capstan.toml"
check 'a setting that is mistyped is told with its line' prints 'checkpoint_mb' capstan backup "$tree/two"
# --- What a third trial found
# A job goes on with nothing that another job began: its objects would have that one's name and retention.
begin --volume-size 64M >/dev/null
cat >>"$CAPSTAN_STATE/capstan.toml" <<TOML
[jobs.short]
sources = ["$tree"]
retention = "1d"
[jobs.thaws]
sources = ["$tree/two"]
after = ["sh", "-c", "exit 5"]
[jobs.slow]
sources = ["$tree/two"]
before = ["sleep", "600"]
[jobs.wrong]
sources = ["$tree/two"]
exclude = ["[bad"]
[jobs.nowhere]
sources = ["$tree/two"]
pool = "nope"
TOML
check 'a hook after a job that fails is part of how the run ended' exits 3 capstan --quiet backup thaws
check 'and the history has it' says 'job thaws: after (sh) ended with exit status: 5' 0 capstan history 1
stopped_before() {
    "$CAPSTAN_BIN" --quiet backup slow &
    pid=$!
    until pgrep -P "$pid" sleep >/dev/null; do kill -0 "$pid" || return 1; done
    kill -TERM "$pid"
    wait "$pid"
}
check 'a job that is stopped while its hook runs is stopped' exits 130 stopped_before
check 'and so the history has it' says stopped 0 capstan history slow
check 'a pattern that is none is refused before anything is begun' says 'is not a pattern' 1 capstan backup "$tree/two" --exclude '[x'
check 'and nothing is left to go on with' silent_of interrupted capstan status
check 'jobs names such a pattern' says 'is not a pattern' 3 capstan jobs
check 'and a pool that is not there' says 'there is no pool nope' 3 capstan jobs
# A verification takes nothing off the record that it did not read.
begin --volume-size 64M >/dev/null
capstan --quiet backup "$tree" --copies 2
spoil A00001 9000000
exits 3 capstan --quiet verify A00001 >/dev/null 2>&1
capstan --quiet repair
check 'an object that was repaired is good' exits 0 capstan --quiet verify "$tree"
check 'its bad block stays on record' prints '1 block bad' capstan volumes
check 'and the volume stays damaged when it is verified again' says DAMAGED 3 capstan verify A00001
# A copy of what is damaged has all that can be read, and is never passed over in silence.
begin --volume-size 64M >/dev/null
capstan --quiet pools add vault >/dev/null
capstan --quiet backup "$tree"
capstan --quiet copy "$tree/" --to-pool vault >/dev/null 2>&1
check 'a copy that is there already is passed over' says 'already' 0 capstan copy "$tree" --to-pool vault
begin --volume-size 64M >/dev/null
capstan --quiet pools add vault >/dev/null
capstan --quiet backup "$tree"
spoil A00001 5000000
check 'a copy of a damaged object is not whole' says 'NOT WHOLE' 3 capstan copy "$tree" --to-pool vault
most() { [ "$(capstan --json ls -R "$(newest)" | grep -c . )" -gt 0 ] && mv "$slots/A00001.tape" "$scratch/away.tape" && { capstan --quiet restore "$tree" --to "$scratch/most" 2>/dev/null; [ "$(find "$scratch/most" -type f -size +1900k | wc -l)" -ge 4 ]; }; }
check 'it has the files behind the damage' most
mv "$scratch/away.tape" "$slots/A00001.tape"
check 'and says so again' says 'NOT WHOLE' 3 capstan copy "$tree" --to-pool vault
# The host is lost: what docs/INSTALL.md says brings all back from the volumes, a key export and capstan.toml.
export CAPSTAN_EXPORT_PASSPHRASE='three holders and a half'
begin --volume-size 64M --library "$scratch/library" >/dev/null
capstan --quiet backup "$tree"
capstan --quiet keys export "$scratch/lost.export"
cp "$CAPSTAN_STATE/capstan.toml" "$scratch/saved.toml"
begin --volume-size 64M --library "$scratch/library" >/dev/null
sed "s/^client = \"\"/client = \"$(uname -n)\"/" "$scratch/saved.toml" >"$CAPSTAN_STATE/capstan.toml"
check 'a lost host gets its keys back' exits 0 capstan --quiet keys import "$scratch/lost.export"
check 'and its catalog' says '1 complete object' 0 capstan rebuild
check 'and its files' comes_back "$tree"
check 'and goes on where it was' says incr 0 capstan backup "$tree" --incremental
# What is away is not forgotten unasked.
mv "$scratch/library/slots/A00001.tape" "$scratch/vault.tape"
check 'a rebuild names a volume that is away' says --forget-absent 1 capstan rebuild
check 'and its objects stay' comes_to 2
mv "$scratch/vault.tape" "$scratch/library/slots/A00001.tape"
finish
