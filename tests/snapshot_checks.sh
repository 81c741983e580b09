# For the tests of snapshots: a tree that is changed while it is backed up from one. Sourced after checks.sh.
# shellcheck shell=sh

# Ten files of a megabyte; their reading takes some seconds.
fill() {
    for part in 0 1 2 3 4 5 6 7 8 9; do
        head -c 1000000 /dev/urandom >"$1/file-$part" || return 1
    done
}
is_mounted() { grep -q capstan-snapshot /proc/self/mounts; }

# Waits until a command succeeds.
soon() {
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "not within a minute: $*"
    return 1
}

# changed_meanwhile TREE JOB COMMAND: changes all of a tree while a job reads it from a snapshot, which is there once the
# command succeeds.
changed_meanwhile() {
    rm -rf "$scratch/before" && cp -a "$1" "$scratch/before" || return 1
    "$CAPSTAN_BIN" backup "$2" --full >"$scratch/said" 2>&1 &
    backup=$!
    soon "$3" && fill "$1" && rm "$1/file-0" && echo new >"$1/new" || return 1
    wait "$backup" || {
        cat "$scratch/said"
        return 1
    }
}

# What was restored of a tree is what there was before it was changed.
as_before() {
    rm -rf "$scratch/back"
    capstan --quiet restore "$1" --to "$scratch/back" && diff -r "$scratch/before" "$scratch/back$1"
}
