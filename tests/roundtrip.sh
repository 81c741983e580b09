#!/bin/sh
# Backs up trees, restores them, and lets programs that are not ours say whether anything differs.
#
# usage: tests/roundtrip.sh [TREE...]      default: the torture tree, and /usr/share/doc
#
# Acceptance runs it with /usr. A file of 64 GiB that is a hole takes programs that read all of it six minutes: with CAPSTAN_FULL they
# do, else it only comes back. Where the catalog's tables are in PostgreSQL (CAPSTAN_DATABASE), only what asks the catalog runs.
# Needs root for devices, owners, capabilities; as another user it tests what is left.
set -u
. "$(dirname "$0")/checks.sh"

same_attributes() {
    (cd "$1" && find . ! -path './deep/*' -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex 2>/dev/null) >"$scratch/one"
    (cd "$2" && find . ! -path './deep/*' -print0 | LC_ALL=C sort -z | xargs -0 getfattr -h -d -m - -e hex 2>/dev/null) >"$scratch/two"
    cmp "$scratch/one" "$scratch/two"
}

same_access_lists() {
    (cd "$1" && find . ! -path './deep/*' ! -type l ! -type s -print0 | LC_ALL=C sort -z | xargs -0 getfacl -n 2>/dev/null) >"$scratch/one"
    (cd "$2" && find . ! -path './deep/*' ! -type l ! -type s -print0 | LC_ALL=C sort -z | xargs -0 getfacl -n 2>/dev/null) >"$scratch/two"
    [ -s "$scratch/one" ] && cmp "$scratch/one" "$scratch/two"
}

# Paths above 4,096 bytes are more than rsync and GNU tar can open; compare.py walks them by descriptors. A socket is not
# backed up: it means something only to the program that made it.
rsync_sees_none() {
    nothing rsync -aHAXn --checksum --delete --itemize-changes --exclude=/deep --exclude=/special/socket "$1/" "$2/"
}

tar_compares() {
    capstan cat "$1" | tar --compare --absolute-names --directory=/ --xattrs --acls --exclude='*/deep/*' --warning=no-timestamp -f -
}

bsdtar_lists_all() {
    expected=$(find "$1" ! -type s -printf x | wc -c)
    listed=$(capstan cat "$1" | LC_ALL=C bsdtar -tf - | wc -l)
    newlines=$(find "$1" -name '*
*' -printf x | wc -c)
    # bsdtar writes a newline in a name as \n, so a line is a name.
    [ "$listed" -eq "$expected" ] || {
        echo "$listed names listed, $expected in the tree, $newlines of them with a newline"
        return 1
    }
}

# comes_back TREE WHAT...: it is backed up, verified so, restored and equal.
comes_back() {
    tree=$1
    shift
    copy=$scratch/restored$tree
    begin
    check "$tree: backed up to two volumes at once" capstan --quiet backup "$tree" --connections 4 --copies 2
    check "$tree: every block and every file verifies" capstan --quiet verify "$tree" "$@"
    rm -rf "$scratch/restored"
    check "$tree: restored" capstan --quiet restore "$tree" --to "$scratch/restored" --devices
    check "$tree: nothing differs, holes included" "$PYTHON" "$here/compare.py" "$tree" "$copy"
}

others_agree() {
    check "$tree: rsync sees no difference" rsync_sees_none "$tree" "$copy"
    check "$tree: getfattr prints the same" same_attributes "$tree" "$copy"
    check "$tree: getfacl prints the same" same_access_lists "$tree" "$copy"
    check "$tree: GNU tar compares the stream with the source" tar_compares "$tree"
    check "$tree: bsdtar lists every name" bsdtar_lists_all "$tree"
}

comes_back_after_rebuild() {
    capstan --json ls -R "$tree:$tree" >"$scratch/before"
    check "$tree: the catalog is rebuilt from the volumes alone" capstan --quiet rebuild
    capstan --json ls -R "$tree:$tree" >"$scratch/after"
    check "$tree: it is equal to the one lost" cmp "$scratch/before" "$scratch/after"
    rm -rf "$scratch/restored"
    check "$tree: restored by the rebuilt catalog" capstan --quiet restore "$tree" --to "$scratch/restored" --devices
    check "$tree: nothing differs then either" "$PYTHON" "$here/compare.py" "$tree" "$copy"
    rm -rf "$scratch/restored"
}

if [ $# -eq 0 ]; then
    mkdir "$scratch/source"
    "$PYTHON" "$here/torture.py" "$scratch/source/torture" || exit 1
    set -- "$scratch/source/torture" /usr/share/doc
    huge=$scratch/source/torture/sparse/above-64-gib
    if [ -z "${CAPSTAN_FULL:-}" ] && [ -e "$huge" ]; then
        mkdir "$scratch/source/huge" && mv "$huge" "$scratch/source/huge/" || exit 1
        comes_back "$scratch/source/huge"
    fi
fi
for tree in "$@"; do
    if [ -n "${CAPSTAN_DATABASE:-}" ]; then
        comes_back "$tree"
    else
        comes_back "$tree" --against-source
        others_agree
    fi
    comes_back_after_rebuild
done
finish
