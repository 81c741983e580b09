#!/bin/sh
# The main job with keys from a cluster: two nodes over etcd, a mover that is an agent of them, nodes that go away.
#
# Everything is on loopback, and everything is ended by its pid.
set -u
. "$(dirname "$0")/checks.sh"
. "$(dirname "$0")/key_checks.sh"

for holder in ann bob cy; do echo "the passphrase of $holder" >"$scratch/$holder.pass"; done

found() {
    keyd init --state "$scratch/kma1" --name kma1 --site north --address "$node1" --listen "$node1" --enrol-listen "$enrol1" \
        --etcd "$etcd_url" --pool 40 --holder ann --holder bob --holder cy --needed 2 \
        --passphrase-file "ann=$scratch/ann.pass" --passphrase-file "bob=$scratch/bob.pass" --passphrase-file "cy=$scratch/cy.pass" \
        --user sam:security-officer,operator --user kim:compliance-officer,quorum-member \
        --user lou:backup-operator,quorum-member --user max:quorum-member >"$scratch/founded" &&
        cat "$scratch/founded"
}

# start NODE: runs it and gives it two shares.
start() {
    started "$1" && until_so keyd unlock --state "$scratch/$1" --holder ann --passphrase-file "$scratch/ann.pass" &&
        keyd unlock --state "$scratch/$1" --holder cy --passphrase-file "$scratch/cy.pass"
}

until_so env ETCDCTL_API=3 "$PYTHON" -c "import socket,sys; socket.create_connection(('127.0.0.1', ${etcd_url##*:})).close()"
check 'a cluster is founded' until_so found
check 'a node runs and is unlocked by two of three' start kma1
for user in sam kim lou max; do check "$user enrols" enrol_user "$user"; done

add_kma2() {
    as sam sites add south && as sam kmas add kma2 --address "$node2" --site south >"$scratch/kma2.said" && once kma2 "$scratch/kma2.said" || return
    for user in kim lou; do
        as "$user" pending list --json >"$scratch/pending" || return
        request=$("$PYTHON" -c 'import json,sys
listed = json.load(open(sys.argv[1]))
listed = listed.get("items", listed) if isinstance(listed, dict) else listed
print(listed[0]["id"], listed[0]["digest"])' "$scratch/pending") || return
        as "$user" pending approve "${request% *}" --digest "${request#* }" || return
    done
}
check 'a second node is let in by a quorum' add_kma2
check 'it joins' keyd join --state "$scratch/kma2" --name kma2 --site south --address "$node2" --listen "$node2" \
    --etcd "$etcd_url" --pool 40 --enrol-at "$enrol1" --node "$node1" --passphrase-file "$scratch/kma2.once"
check 'it runs' start kma2

has_keys() {
    as sam status --json >"$scratch/status" && "$PYTHON" -c 'import json,sys
pool = json.load(open(sys.argv[1]))["pool"]
sys.exit(pool["ready"] == 0 or pool["reserve"] == 0)' "$scratch/status"
}
check 'its pool is stored twice' until_so has_keys

agent() {
    as sam agents add mover1 >"$scratch/mover1.said" && once mover1 "$scratch/mover1.said" &&
        keyd enrol --at "$enrol1" --kind agent --name mover1 --passphrase-file "$scratch/mover1.once" --identity "$scratch/mover1.pem"
}
check 'the mover enrols' agent
check 'a site gets its keys from the cluster' capstan init --volume-size 64M --key-cluster "$node1" --key-cluster "$node2" \
    --key-identity "$scratch/mover1.pem" --key-site north
check 'it makes no key store' test ! -e "$CAPSTAN_STATE/keys.db"

mkdir -p "$scratch/source/deep"
seq 1 100000 >"$scratch/source/deep/numbers"
echo 'seen by nobody' >"$scratch/source/words"

comes_back() {
    rm -rf "$scratch/restored"
    capstan --quiet restore "$scratch/source" --to "$scratch/restored" && diff -r "$scratch/source" "$scratch/restored$scratch/source"
}
ciphertext() { ! grep -rqa 'seen by nobody' "$CAPSTAN_STATE"; }

check 'a backup' capstan --quiet backup "$scratch/source"
check 'comes back' comes_back
check 'verifies' capstan --quiet verify "$scratch/source"
check 'and is ciphertext' ciphertext
check 'the cluster knows the volume' prints A00001 as kim units list
check 'what a lost mover would expose is told' prints A00001 as kim exposure --agent mover1

# What a machine may not ask a person asks from it, in the words of a key store.
check 'a machine does not list groups' exits 2 capstan keys groups
check 'and says who does' prints 'only a person with a role' capstan keys groups
asks() { capstan keys --identity "$scratch/kim.pem" "$@"; }
# Where there is no keyd: neither beside it nor in PATH.
alone() {
    mkdir -p "$scratch/alone" && cp "$CAPSTAN_BIN" "$scratch/alone/capstan" &&
        PATH=/nowhere "$scratch/alone/capstan" keys --identity "$scratch/kim.pem" "$@"
}
check 'a person asks where no keyd is installed' prints default alone groups
# shellcheck disable=SC2016 # words that are looked for
check 'and is told where the files of a node are read' prints 'run `keyd audit verify`' alone audit verify
check 'a person makes a policy' asks policies add brief --encrypt-for 1d --no-export
check 'and a group' asks groups add brief --policy brief
check 'which is listed' prints brief asks groups
check 'in JSON, too' prints '"policy"' asks --json groups
check 'units are listed' prints A00001 asks units
check 'what is not theirs is refused' exits 1 asks agents add drive9

stop kma1
check 'the first node is gone: sites are listed' prints south asks sites
check 'a backup' capstan --quiet backup "$scratch/source"
check 'comes back' comes_back
echo more >"$scratch/source/more"
stop kma2
check 'no node is left: a backup ends with 4' exits 4 capstan --quiet backup "$scratch/source"
check 'and names them' prints "$node2" capstan --quiet backup "$scratch/source"
volumes() { capstan volumes --json | grep -c suspect || true; }
check 'no volume is set aside' test "$(volumes)" -eq 0
check 'nothing of it was written' exits 0 capstan --quiet objects

check 'the second node is back' start kma2
check 'and a backup works' capstan --quiet backup "$scratch/source"
check 'and comes back' comes_back
check 'the first is back' start kma1
check 'both audit chains are whole' keyd audit verify --state "$scratch/kma1"
check 'the other, too' keyd audit verify --state "$scratch/kma2"
revoked() { as sam agents revoke mover1 && exits 4 capstan --quiet backup "$scratch/source"; }
check 'a mover that is revoked gets no key' revoked
finish
