#!/bin/sh
# Reads what capstan writes with a reader that was written from docs/FORMAT.md alone and shares no code with it.
#
# usage: tests/reader.sh
#
# Three pools (AES-256-GCM, AES-256-CCM, plain) of volumes so small that every full object spans several, read over three
# connections, a full and an incremental object each. The keys come out of the key store as docs/KEYS.md says, also without our code.
set -u
. "$(dirname "$0")/checks.sh"

reader() { "$PYTHON" "$here/reader.py" "$@"; }
tree() { "$PYTHON" "$here/reader_tree.py" "$@"; }
manifest() { tree manifest "$1" >"$2"; }
same() { diff -u "$1" "$2" | cut -c 1-200; cmp -s "$1" "$2"; }

# The object of that level that has the tree as its source.
object_of() {
    awk -v tree=": $1 of " -v level=", $2" \
        '/^object / && index($0, tree) && index($0, level) { print substr($2, 1, 32) }' "$scratch/list"
}

# object_lines OBJECT: what the list says of it.
object_lines() { awk -v object="$1:" '/^[^ ]/ { found = $2 == object } found' "$scratch/list"; }

spans() {
    volumes=$(object_lines "$1" | sed -n 's/^  begun .*, on //p')
    streams=$(object_lines "$1" | grep -c '^  connection [0-9]*: [1-9]')
    echo "on $volumes, $streams connections with data"
    [ "$(echo "$volumes" | wc -w)" -gt 2 ] && [ "$streams" -gt 1 ]
}

# lists_all OBJECT MANIFEST: every path of the tree is in the list, and right.
lists_all() {
    expected=$(wc -l <"$2")
    listed=$(object_lines "$1" | grep -c '^  ok ')
    echo "$listed members are right, the tree has $expected"
    [ "$listed" -eq "$expected" ]
}

# extracts OBJECT TREE MANIFEST
extracts() {
    rm -rf "$scratch/extracted"
    # shellcheck disable=SC2086 # a list of words
    reader $keys "$slots"/*.tape --extract "$1" "$scratch/extracted" || return 1
    manifest "$scratch/extracted/$2" "$scratch/manifest"
    same "$3" "$scratch/manifest"
}

same_stream() {
    # shellcheck disable=SC2086 # a list of words
    reader $keys "$slots"/*.tape --cat "$1" >"$scratch/stream" && capstan cat "$1" | cmp - "$scratch/stream"
}

# damaged OBJECT TREE MANIFEST: with a byte changed in a block of noise, and in one of small files, the reader names both
# blocks, and exactly the paths that differ then. How a run cuts its extents is chance, so the block of small files is found by
# trying the extents, the shortest first.
damaged() {
    capstan --json show "$1" | "$PYTHON" -c 'import json, sys
extents = [extent for extent in json.load(sys.stdin)["extents"] if extent["plain_len"]]
extents.sort(key=lambda extent: extent["blocks"])
places = [(extent["volume"], extent["first_lbn"] + extent["blocks"] // 2) for extent in extents]
for place in places[:-1]:
    print(*place, *places[-1])' >"$scratch/pairs" || return 1
    while read -r volume lbn noise_volume noise_lbn; do
        printf '%s %s\n' "$volume" "$lbn" "$noise_volume" "$noise_lbn" >"$scratch/blocks"
        names_damage "$@" || return 1
        [ "$(wc -l <"$scratch/named")" -le 2 ] || return 0
    done <"$scratch/pairs"
    return 1
}

# names_damage OBJECT TREE MANIFEST: the same, with the blocks that are listed.
names_damage() {
    rm -rf "$scratch/damaged" "$scratch/extracted"
    cp -r "$slots" "$scratch/damaged"
    while read -r volume lbn; do
        tree flip "$scratch/damaged/$volume.tape" "$lbn" || return 1
    done <"$scratch/blocks"
    # shellcheck disable=SC2086 # a list of words
    exits 3 reader $keys "$scratch/damaged"/*.tape --extract "$1" "$scratch/extracted" 2>"$scratch/said" || return 1
    cat "$scratch/said"
    while read -r volume lbn; do
        grep -qxF "damage: $volume block $lbn: the checksum of the record is wrong" "$scratch/said" || return 1
    done <"$scratch/blocks"
    manifest "$scratch/extracted/$2" "$scratch/manifest"
    cut -f 1,2 "$3" >"$scratch/one"
    cut -f 1,2 "$scratch/manifest" >"$scratch/two"
    diff "$scratch/one" "$scratch/two" | sed -n 's/^[<>] \([^	]*\)	.*/\1/p' | sort -u >"$scratch/differ"
    sed -n "s|^damage: object $1: ${2#/}\([^:]*\): .*|.\1|p" "$scratch/said" | sort -u >"$scratch/named"
    diff "$scratch/differ" "$scratch/named"
}

# cut_off VOLUMES: kills a run of the job `cut` when it has begun so many volumes more.
cut_off() {
    until_begun=$(($(begun) + $1))
    "$CAPSTAN_BIN" --quiet backup cut &
    pid=$!
    until [ "$(begun)" -ge "$until_begun" ]; do kill -0 "$pid" || return 1; done
    kill -9 "$pid" || return 1
    wait "$pid" 2>/dev/null
    true
}
begun() { find "$slots" -name '*.tape' -size +1M | wc -l; }

begin --volume-size 8M || exit 1
capstan --quiet pools add plain --plain
capstan --quiet pools add ccm --encrypt ccm
slots=$CAPSTAN_STATE/library/slots
for pool in default ccm plain; do
    tree make "$scratch/$pool" || exit 1
    manifest "$scratch/$pool" "$scratch/$pool.full"
    check "$pool: full backup" capstan --quiet backup "$scratch/$pool" --pool "$pool" --connections 3
    tree change "$scratch/$pool" || exit 1
    manifest "$scratch/$pool" "$scratch/$pool.incremental"
    check "$pool: incremental backup" \
        capstan --quiet backup "$scratch/$pool" --pool "$pool" --connections 3 --incremental
done

# A file whose reading was cut off twice lies in three streams.
mkdir "$scratch/cut"
dd if=/dev/urandom of="$scratch/cut/large" bs=1M count=80 status=none
date >"$scratch/cut/small"
manifest "$scratch/cut" "$scratch/cut.full"
printf '[jobs.cut]\nsources = ["%s"]\nbandwidth = ["16M"]\n' "$scratch/cut" >>"$CAPSTAN_STATE/capstan.toml"
check "a backup is killed in the middle of a file" cut_off 3
check "and once more, where it went on" cut_off 3
check "then it is done" capstan --quiet backup cut

check "without keys the plain volumes are read, and the others refused" exits 3 reader "$slots"/*.tape --list
check "the keys come out of the store" "$PYTHON" "$here/../crates/keys/tests/recover.py" "$CAPSTAN_STATE/keys.db"
keys=$(awk '{ print "--key", $1 "=" $NF }' "$scratch/output")
encrypted=$(capstan --json volumes | grep -o AES-256 | wc -l)
check "they are as many as encrypted volumes" [ "$encrypted" -eq "$(wc -l <"$scratch/output")" ]
# shellcheck disable=SC2086 # a list of words
check "every volume and every member is right" reader $keys "$slots"/*.tape --list
mv "$scratch/output" "$scratch/list"
for pool in default ccm plain; do
    source=$scratch/$pool
    full=$(object_of "$source" full)
    incremental=$(object_of "$source" incremental)
    check "$pool: three volumes or more, and several connections" spans "$full"
    check "$pool: every path is listed" lists_all "$full" "$source.full"
    check "$pool: extracted, nothing differs" extracts "$full" "$source" "$source.full"
    check "$pool: extracted over its base, nothing differs" extracts "$incremental" "$source" "$source.incremental"
    check "$pool: the pax stream is the one that capstan cat prints" same_stream "$full"
    check "$pool: damaged blocks and the files they hit are named, the rest is read" \
        damaged "$full" "$source" "$source.full"
done
cut=$(object_of "$scratch/cut" full)
streams=$(object_lines "$cut" | grep -c '^  connection [0-9]*: [1-9]')
check "the file that was cut off twice is in three streams" [ "$streams" -ge 3 ]
check "cut: every path is listed" lists_all "$cut" "$scratch/cut.full"
check "cut: extracted, nothing differs" extracts "$cut" "$scratch/cut" "$scratch/cut.full"
check "cut: the pax stream is the one that capstan cat prints" same_stream "$cut"
finish
