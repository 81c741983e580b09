#!/bin/sh
# An incremental restores the tree as it was, and not the union of all it ever held.
set -u
. "$(dirname "$0")/checks.sh"

tree=$scratch/source/tree
mkdir -p "$tree/kept" "$tree/renamed-directory" "$tree/becomes-file"
for name in kept/same kept/touched kept/grown kept/deleted kept/renamed renamed-directory/inside becomes-file/inside becomes-link replaced; do
    echo "first $name" >"$tree/$name"
done
begin

snapshot() { cp -a "$tree" "$scratch/$1"; }

# at TIME SNAPSHOT: the restored tree is that snapshot.
at() {
    rm -rf "$scratch/restored"
    if [ "$1" = now ]; then
        capstan --quiet restore "$tree" --to "$scratch/restored" || return 1
    else
        capstan --quiet restore "$tree" --to "$scratch/restored" --at "$1" || return 1
    fi
    "$PYTHON" "$here/compare.py" "$scratch/$2" "$scratch/restored$tree"
}

now() { date +%Y-%m-%dT%H:%M:%S; }

snapshot first
check 'a full backup' capstan --quiet backup "$tree"
first=$(now)
sleep 2

echo more >>"$tree/kept/grown"
touch "$tree/kept/touched"
rm "$tree/kept/deleted"
mv "$tree/kept/renamed" "$tree/kept/new-name"
mv "$tree/renamed-directory" "$tree/moved-directory"
rm -r "$tree/becomes-file"
echo 'a file now' >"$tree/becomes-file"
rm "$tree/becomes-link"
ln -s kept/same "$tree/becomes-link"
# The same length and time, another inode: only the change time and the inode tell.
touch -r "$tree/replaced" "$scratch/time"
echo 'FIRST replaced' >"$tree/replaced.new"
touch -r "$scratch/time" "$tree/replaced.new"
mv "$tree/replaced.new" "$tree/replaced"
snapshot second
check 'an incremental backup' capstan --quiet backup "$tree" --incremental
second=$(now)
sleep 2

rm -r "$tree/moved-directory"
mkdir "$tree/kept/deleted"
snapshot third
check 'an incremental on an incremental' capstan --quiet backup "$tree" --incremental

check 'the latest state has no deleted and no old names' at now third
check 'the second state comes back' at "$second" second
check 'the first state comes back' at "$first" first
check 'the catalog is rebuilt' capstan --quiet rebuild
check 'and still knows the third state' at now third
check 'and the second' at "$second" second
check 'and the first' at "$first" first

unchanged() {
    capstan --json --quiet backup "$tree" --incremental | tail -n 1 >"$scratch/json"
    "$PYTHON" -c '
import json, sys
source = json.load(open(sys.argv[1]))["sources"][0]
sys.exit(f"{source}: files were written again" if source["files"] else 0)' "$scratch/json"
}
check 'an incremental of an unchanged tree writes no file again' unchanged

# The key of what an incremental would stand on is destroyed: it stands on nothing, is a full one, and says why.
volume=$(ls "$scratch/state/library/slots" | head -n 1 | cut -d . -f 1)
check 'a key is destroyed' capstan keys destroy "$volume" --yes
says_why() {
    capstan --json --quiet backup "$tree" --incremental >"$scratch/json" || return 1
    "$PYTHON" -c '
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
source = lines[-1]["sources"][0]
told = [line for line in lines if line["event"] == "base-gone"]
reason = f"the key of volume {sys.argv[2]} was destroyed"
good = source["base"] is None and reason in source["base_gone"]["reason"]
good = good and [(line["base"], line["object"]) for line in told] == [(None, source["base_gone"]["object"])]
sys.exit(0 if good else f"{source}, {told}")' "$scratch/json" "$volume"
}
check 'an incremental without a base is a full one, and says so' says_why
snapshot fourth
check 'it is restored whole' at now fourth
finish
