#!/bin/sh
# A cluster whose root key is in a PKCS#11 token: SoftHSM, looked at with pkcs11-tool.
set -u
. "$(dirname "$0")/checks.sh"
. "$(dirname "$0")/key_checks.sh"

for module in /usr/lib/softhsm/libsofthsm2.so /usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so; do [ -e "$module" ] && break; done
mkdir "$scratch/tokens"
echo "directories.tokendir = $scratch/tokens" >"$scratch/softhsm.conf"
export SOFTHSM2_CONF="$scratch/softhsm.conf"
echo 246802 >"$scratch/pin"
echo 135791 >"$scratch/wrong"

found() {
    keyd init --state "$scratch/kma1" --name kma1 --address "$node1" --listen "$node1" --enrol-listen "$enrol1" --etcd "$etcd_url" \
        --pool 20 --token capstan --token-module "$module" --token-pin-file "$1" \
        --user sam:security-officer,operator --user kim:compliance-officer,quorum-member --user lou:quorum-member
}
unlock() { keyd unlock --state "$scratch/kma1" --token --passphrase-file "$1"; }
is_locked() { ! keyd enrol --at "$enrol1" --name sam --passphrase-file "$scratch/sam.once" --identity "$scratch/no.pem"; }
enrol_sam() { keyd enrol --at "$enrol1" --name sam --passphrase-file "$scratch/sam.once" --identity "$scratch/sam.pem"; }
root_key() { pkcs11-tool --module "$module" --login --pin 246802 --list-objects --type secrkey; }

check 'a token is made' softhsm2-util --init-token --free --label capstan --pin 246802 --so-pin 864208
check 'a wrong PIN founds nothing' exits 1 found "$scratch/wrong"
check 'and leaves nothing' test ! -e "$scratch/kma1"
founded() { found "$scratch/pin" >"$scratch/founded"; }
until_so founded
grep '^  sam ' "$scratch/founded" >"$scratch/sam.said"
check 'a cluster is founded' once sam "$scratch/sam.said"
check 'its root key is in the token' prints 'AES' root_key
check 'and never leaves it' prints 'never extractable' root_key
sed -i '/pin_file/d' "$scratch/kma1/keyd.toml"
check 'a node runs' started kma1
check 'it is locked' is_locked
check 'a wrong PIN does not unlock it' exits 1 unlock "$scratch/wrong"
check 'the PIN does' unlock "$scratch/pin"
check 'a user enrols' until_so enrol_sam
check 'and asks how it is' prints unlocked env KEYD_IDENTITY="$scratch/sam.pem" KEYD_NODE="$node1" "$KEYD_BIN" status
stop kma1
echo "pin_file = \"$scratch/pin\"" >"$scratch/line"
sed -i "/^module/r $scratch/line" "$scratch/kma1/keyd.toml"
check 'with its PIN left with it' started kma1
check 'it unlocks itself' until_so prints unlocked env KEYD_IDENTITY="$scratch/sam.pem" KEYD_NODE="$node1" "$KEYD_BIN" status
# What systemd does not know it leaves out, and says so.
if command -v systemd-analyze >/dev/null 2>&1; then
    mkdir -p "$scratch/units/keyd.service.d"
    sed "s|/usr/bin/keyd|$KEYD_BIN|" "$here/../packaging/keyd.service" >"$scratch/units/keyd.service"
    cp "$here/../packaging/keyd-token.conf" "$scratch/units/keyd.service.d/token.conf"
    verified() { systemd-analyze verify "$scratch/units/keyd.service" >"$scratch/verified" 2>&1 && ! grep . "$scratch/verified"; }
    check 'systemd takes the unit, and what a token needs' verified
fi
finish
