#!/bin/sh
# The main job on a library that the kernel drives: backup to a twin over two drives, spanning, restore, verify, rebuild.
#
# In a guest (guest/README.md) with our own library as hardware; the checks are in tape_job_checks.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/guest.sh
needs_guest 'the main job on a real library'

log=$(mktemp "${TMPDIR:-/var/tmp}/capstan-test.XXXXXX")
trap 'rm -f "$log" "$log.pipe"' EXIT
number=0
result=0
for driver in ${*:-sg st}; do
    # A pipe would hide the guest's exit code.
    mkfifo "$log.pipe"
    tee "$log" <"$log.pipe" &
    guest/run -d capstan -m 3500 -t 300 -e FIRST="$number" -e DRIVER="$driver" -e TAPE_MB=160 \
        -- sh "$PWD/tests/tape_job_checks.sh" >"$log.pipe" || result=1
    wait
    rm "$log.pipe"
    number=$((number + $(grep -c '^\(not \)\{0,1\}ok ' "$log")))
done
echo "1..$number"
exit $result
