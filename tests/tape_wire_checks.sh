# Runs in the guest (tape_wire.sh starts it): the main job over the kernel's initiator while connections are cut in each phase.
# shellcheck shell=sh
# shellcheck disable=SC1091
. "$(dirname "$0")/checks.sh"
mkdir -p "$scratch/source"

objects() { "$CAPSTAN_BIN" objects --json | tr ',{' '\n\n' | sed -n 's/^ *"object": *"\([0-9a-f]*\)".*/\1/p'; }
for i in 1 2 3; do
    head -c 4000000 /dev/urandom >$scratch/source/noise$i
done

check 'a state directory' capstan init --changer /dev/vtl/changer
check 'volumes' capstan label A00001L9 A00002L9 A00003L9 A00004L9
check 'a backup that nothing disturbs' capstan backup $scratch/source

# A backup whose connection is cut either goes on, since the initiator comes back, or says which drive it was; the next one works.
disturbed() { # disturbed POINT PASSAGES-BEFORE
    capstan vtl inject "$HOME/vtl" wire "$1" --passing "$2" || return
    if ! capstan backup $scratch/source --copies 2 >$scratch/said 2>&1; then
        cat $scratch/said
        grep -q 'drive\|library\|volume' $scratch/said || return
    fi
    capstan vtl forgive "$HOME/vtl" || return
    # The initiator logs in again by itself, in seconds.
    tries=0
    until capstan drives >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 20 ] || return
        sleep 1
    done
    capstan backup $scratch/source
}
for point in after-command before-r2t amid-data-out before-response amid-data-in after-response; do
    check "a connection cut: $point" disturbed $point 30
done
check 'a login that is cut' disturbed login-request 0

all_restore() {
    for object in $(objects); do
        rm -rf $scratch/restored
        capstan restore "$object" --to $scratch/restored || return
        diff -r $scratch/source "$scratch/restored$scratch/source" || return
    done
}
check 'every object that is complete comes back, the same' all_restore
check 'no write went to a position that was not verified' eval \
    '"$CAPSTAN_BIN" vtl status "$HOME/vtl" --json >$scratch/drives && ! grep -q "unverified_writes\":[1-9]" $scratch/drives'
finish
