#!/bin/sh
# A clock that is ahead or behind, and right again: the latest stays the latest, nothing is forgotten by it, and it is said.
# And what `expire` may take: never the last of a source, never more than was shown; and it can be taken back.
set -u
# The files keep their own times.
export TZ=UTC NO_FAKE_STAT=1
. "$(dirname "$0")/checks.sh"
command -v faketime >/dev/null 2>&1 || {
    echo 'SKIP clocks.sh: no faketime (package faketime), which gives programs another clock'
    exit 0
}

tree=$scratch/tree
mkdir -p "$tree"

# on TIME COMMAND...: a command at a time, which stands for any number of days of waiting.
on() {
    time=$1
    shift
    faketime -f "@$time" "$CAPSTAN_BIN" "$@"
}

# holds WORDS TIME: what is restored at that time holds the words; `ls`, `cat` and `restore` agree.
holds() {
    rm -rf "$scratch/restored"
    on "$2" --quiet restore "$tree" --to "$scratch/restored" || return 1
    [ "$(cat "$scratch/restored$tree/file")" = "$1" ] || {
        echo "restored: $(cat "$scratch/restored$tree/file")"
        return 1
    }
    [ "$(on "$2" cat "$tree:$tree/file")" = "$1" ] || return 1
    on "$2" ls "$tree:$tree" | grep -q "$(printf %s "$1" | cut -d ' ' -f 1)"
}

# backup TIME WORD [FLAG...]: the tree holds the word, also as a name, and is backed up.
backup() {
    rm -f "$tree"/*
    echo "$2 file" >"$tree/file"
    : >"$tree/$2"
    when=$1
    shift 2
    on "$when" --quiet backup "$tree" "$@"
}

# at TIME WORDS NOW: `--at` that time gives that state, asked for at another.
at() {
    rm -rf "$scratch/restored"
    on "$3" --quiet restore "$tree" --to "$scratch/restored" --at "$1" && [ "$(cat "$scratch/restored$tree/file")" = "$2" ]
}

silent_of_clock() { ! on "$@" 2>&1 | grep -i 'clock'; }

begin >/dev/null
check 'a first backup says nothing of the clock' silent_of_clock '2026-11-01 03:00:00' --quiet backup "$tree"
check 'and the next' backup '2026-11-02 03:00:00' second --incremental

# Ahead.
ahead='2030-01-01 03:00:00'
check 'a clock that is ahead by years is said at once' prints 'after the newest record' backup "$ahead" ahead --incremental
check 'what was made under it is the latest' holds 'ahead file' "$ahead"
check 'and is listed with a mark' prints '2030-01-01 03:00:00 ?' on "$ahead" objects
check 'and status says so, without an age' prints 'how long ago is in doubt' on "$ahead" status
check 'a full backup with the clock right again' backup '2026-11-03 03:00:00' third --full
check 'is the latest, whatever was made in 2030' holds 'third file' '2026-11-03 04:00:00'
check 'and nothing is in doubt any more' silent_of_clock '2026-11-03 04:00:00' status
check 'an incremental stands on it' backup '2026-11-04 03:00:00' fourth --incremental
check 'and is the latest' holds 'fourth file' '2026-11-04 04:00:00'

# Behind.
behind='2020-01-01 03:00:00'
check 'a clock that is behind is said at once' prints 'before the newest record' backup "$behind" behind --incremental
check 'what was made under it is the latest' holds 'behind file' "$behind"
check 'a full one with the clock behind' backup "$behind" behind-full --full
check 'is the latest' holds 'behind-full file' "$behind"
# The last time that is believed is that of the fourth backup.
check 'with the clock right again it may be older than is wanted' exits 3 on '2026-11-08 03:00:00' status --max-age 26h
overdue() { on "$1" status --max-age 26h --metrics | grep -q '^capstan_source_overdue{.*} 1$'; }
check 'of which a monitor is told' overdue '2026-11-08 03:00:00'
check 'while it cannot be, nothing is wanted' exits 0 on '2026-11-04 05:00:00' status --max-age 26h
check 'a backup with the clock right again' backup '2026-11-05 03:00:00' fifth --incremental
check 'is the latest' holds 'fifth file' '2026-11-05 04:00:00'
ages() { ! on '2020-01-01 03:00:00' status | grep -e '-[0-9.]* s ago'; }
check 'no age is negative' ages

# At a time.
check 'at a day before, the state of that day' at 2026-11-03 'third file' '2026-11-05 04:00:00'
check 'nothing of 2030 at the day before it was made' at 2026-11-02 'second file' '2026-11-05 04:00:00'
check 'what may have been made by then is named' prints 'while the clock was in doubt: name it by its id' \
    on '2026-11-05 04:00:00' restore "$tree" --dry-run --at '2026-11-02T12:00'
check 'a year in which nothing was made has nothing' exits 1 on '2026-11-05 04:00:00' restore "$tree" --dry-run --at 2021-01-01

# A catalog that is made anew from the volumes draws the same conclusions.
listed() { on '2026-11-05 04:00:00' --json objects | "$PYTHON" -c '
import json, sys
for row in map(json.loads, sys.stdin):
    print(row["object"], row["base"], row["clock_doubt"], row["begun_from_ns"], row["begun_by_ns"])'; }
listed >"$scratch/before"
same() { listed >"$scratch/after" && [ -s "$scratch/after" ] && diff "$scratch/before" "$scratch/after"; }
check 'the catalog is rebuilt' on '2026-11-05 04:00:00' --quiet rebuild
check 'and ranks and doubts as before' same
check 'and gives the latest' holds 'fifth file' '2026-11-05 04:00:00'

# A machine that was off for half a year, and a word for it.
check 'after half a year the clock is in doubt' prints '182 days after' backup '2027-05-06 03:30:00' late --incremental
check 'a word settles that' on '2027-05-06 04:00:00' clock --confirm
check 'and it is believed' silent_of_clock '2027-05-07 03:00:00' status
check 'a rebuild keeps the word' on '2027-05-07 03:00:00' --quiet rebuild
check 'and believes it' silent_of_clock '2027-05-07 03:00:00' status
check 'so are days after that' silent_of_clock '2027-05-08 03:00:00' --quiet backup "$tree" --incremental

# Expiry: a full one and incrementals in a pool that keeps for thirty days.
begin >/dev/null
on '2026-10-01 03:00:00' --quiet pools add default --retention 30d
backup '2026-10-01 03:00:00' one
forgets_nothing() { prints '0 objects' on "$1" expire --dry-run && prints '0 objects' on "$1" expire; }
check 'a clock of 2035 forgets nothing, and says why' prints 'capstan clock --confirm' on '2035-01-01 03:00:00' expire --yes
check 'and ends with 1, dry or not' exits 1 on '2035-01-01 03:00:00' expire --dry-run
check 'nor is the last one forgotten when backups stopped' forgets_nothing '2026-11-03 03:00:00'
check 'and it is there' holds 'one file' '2026-11-03 03:00:00'
for day in 02 12 22 30; do backup "2026-10-$day 03:00:00" "day-$day" --incremental; done
now='2026-11-15 03:00:00'
check 'a chain is kept by its youngest' forgets_nothing "$now"
check 'status says how many, and what to do' prints '3 objects' on "$now" status
check 'and names the way out' prints '--full-every' on "$now" expire --dry-run
for_the_base() { on "$1" --json objects | "$PYTHON" -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
print([row["object"] for row in rows if row["base"] is None][-1])'; }
base=$(for_the_base "$now")
check 'a base is kept in a dry run' exits 1 on "$now" expire "$base" --dry-run
check 'and in the run, with the same words' prints 'is based on it' on "$now" expire "$base"
full_again() {
    on "$now" --json --quiet backup "$tree" --full-every "$1" | tail -n 1 |
        "$PYTHON" -c 'import json, sys; sys.exit(json.load(sys.stdin)["sources"][0]["base"] is not None)'
}
check 'a last full one of 45 days is young enough for 60d' exits 1 full_again 60d
check 'and too old for 30d' full_again 30d
then='2026-12-16 03:00:00'
backup '2026-12-14 03:00:00' last --incremental
on "$then" expire --dry-run 2>&1 | sed -n 's/^would forget //p' >"$scratch/would"
check 'more than half is asked for, and nobody is there' exits 2 on "$then" expire
check 'nothing is gone by that' prints 'day-02' on "$then" find 'day-02'
on "$then" expire --yes >"$scratch/done" 2>&1
sed -n 's/^to forget: //p' "$scratch/done" >"$scratch/did"
# The first chain of five, and one more incremental of the full one that was too young.
check 'the dry run and the run agree' diff "$scratch/would" "$scratch/did"
check 'a chain that has ended goes as a whole' [ "$(wc -l <"$scratch/did")" -eq 6 ]
check 'and how long it can be taken back is said' grep -q 'until one of their volumes is relabelled' "$scratch/done"
check 'nothing of it is found' nothing on "$then" find 'day-02'
check 'it is taken back' prints '6 objects taken back' on "$then" expire --undo
check 'and found' prints 'day-02' on "$then" find 'day-02'
check 'and restored' at 2026-10-12 'day-12 file' "$then"
check 'of a source that is gone the last one goes as well' on '2027-01-16 03:00:00' expire --gone "$tree" --yes
check 'its volume is scratch' prints scratch on "$then" volumes
check 'and is in use again when it is taken back' on "$then" --quiet expire --undo
check 'as it was' holds 'last file' "$then"
on '2027-01-16 03:00:00' --quiet expire --yes >"$scratch/done"
mkdir "$scratch/other"
check 'the volume is labelled anew for another backup' prints ', its label number 2' on "$then" backup "$scratch/other"
check 'then it is too late' exits 3 on "$then" expire --undo
finish
