#!/bin/sh
# Coming to a key cluster and leaving it with one's keys: a backup is written under a sealed store and read through the cluster; the keys
# leave the cluster again, and a script without Capstan and a fresh sealed store both have them.
#
# Everything is on loopback, and everything is ended by its pid.
set -u
. "$(dirname "$0")/checks.sh"
. "$(dirname "$0")/key_checks.sh"

for holder in ann bob; do echo "the passphrase of $holder" >"$scratch/$holder.pass"; done
echo 'the passphrase of the export' >"$scratch/export.pass"

found() {
    keyd init --state "$scratch/kma1" --name kma1 --address "$node1" --listen "$node1" --enrol-listen "$enrol1" \
        --etcd "$etcd_url" --pool 4 --holder ann --holder bob --needed 2 \
        --passphrase-file "ann=$scratch/ann.pass" --passphrase-file "bob=$scratch/bob.pass" \
        --user sam:security-officer,operator --user kim:compliance-officer --user lou:quorum-member --user max:quorum-member \
        >"$scratch/founded" && cat "$scratch/founded"
}

start() {
    started kma1 && until_so keyd unlock --state "$scratch/kma1" --holder ann --passphrase-file "$scratch/ann.pass" &&
        keyd unlock --state "$scratch/kma1" --holder bob --passphrase-file "$scratch/bob.pass"
}

# approved COMMAND...: asks for it, and the quorum approves; the request's id is in $request.
approved() {
    "$@" --json >"$scratch/requested" || return
    said() { "$PYTHON" -c 'import json,sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$scratch/requested" "$1"; }
    request=$(said id)
    digest=$(said digest)
    for user in lou max; do as "$user" pending approve "$request" --digest "$digest" || return; done
}

mkdir -p "$scratch/source"
seq 1 100000 >"$scratch/source/numbers"
export CAPSTAN_PASSPHRASE='the passphrase of the store'
unset CAPSTAN_KEY_FILE
export CAPSTAN_EXPORT_PASSPHRASE='the passphrase of the export'
check 'a site with a sealed store' capstan init --volume-size 64M
check 'a backup under it' capstan --quiet backup "$scratch/source"
check 'its keys are exported' capstan keys export "$scratch/store.export"

check 'a cluster is founded' until_so found
check 'a node runs and is unlocked' start
for user in sam kim lou max; do check "$user enrols" enrol_user "$user"; done
check 'a group for the keys that come' as kim groups add moved
check 'their import is approved' approved as kim keys import "$scratch/store.export" --group moved
check 'they come' prints added as kim keys import "$scratch/store.export" --last --passphrase-file "$scratch/export.pass"

agent() {
    as sam agents add mover1 >"$scratch/mover1.said" && once mover1 "$scratch/mover1.said" &&
        keyd enrol --at "$enrol1" --kind agent --name mover1 --passphrase-file "$scratch/mover1.once" --identity "$scratch/mover1.pem" &&
        as kim agents groups mover1 --group moved
}
check 'the mover enrols and may use them' agent

# What a person does in an editor.
switch() {
    sed -i "s|^nodes = .*|nodes = [\"$node1\"]|; s|^identity = .*|identity = \"$scratch/mover1.pem\"|" "$CAPSTAN_STATE/capstan.toml" &&
        mv "$CAPSTAN_STATE/keys.db" "$scratch/old.db"
}
comes_back() {
    rm -rf "$scratch/restored"
    capstan --quiet restore "$scratch/source" --to "$scratch/restored" && diff -r "$scratch/source" "$scratch/restored$scratch/source"
}
check 'the site is switched to the cluster' switch
unset CAPSTAN_PASSPHRASE
check 'the backup comes back, with keys of the cluster' comes_back
check 'its keys are listed as before' prints moved capstan keys list
check 'and by volume' prints A00001 capstan keys volumes A00001
check 'what takes a person names the command' prints 'keyd keys export --all' capstan keys export "$scratch/none"

asks() { capstan keys --identity "$scratch/kim.pem" "$@"; }
check 'an export is approved' approved asks export "$scratch/leaving.export"
check 'the keys leave' asks export "$scratch/leaving.export" --last
check 'the destruction of those of a volume is asked for' asks destroy A00001 --yes
check 'and waits for the quorum' prints 'destroy' asks pending
recovered() { CAPSTAN_PASSPHRASE='the passphrase of the export' "$PYTHON" "$here/../crates/keys/tests/recover.py" "$1"; }
same_keys() {
    recovered "$scratch/store.export" | awk '{ print $1, $2, $4 }' | sort >"$scratch/before" &&
        recovered "$scratch/leaving.export" | awk '{ print $1, $2, $4 }' | sort >"$scratch/after" &&
        test -s "$scratch/before" && diff "$scratch/before" "$scratch/after"
}
check 'a script without Capstan finds the same keys in it' same_keys

back() {
    sed -i 's|^nodes = .*|nodes = []|; s|^identity = .*|identity = ""|' "$CAPSTAN_STATE/capstan.toml" &&
        CAPSTAN_PASSPHRASE=another capstan --state "$scratch/fresh" init &&
        CAPSTAN_PASSPHRASE=another capstan --state "$scratch/fresh" keys import "$scratch/leaving.export" &&
        cp "$scratch/fresh/keys.db" "$CAPSTAN_STATE/keys.db"
}
check 'a fresh sealed store takes them' back
stop kma1
export CAPSTAN_PASSPHRASE=another
check 'and the backup comes back without the cluster' comes_back
finish
