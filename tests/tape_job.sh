#!/bin/sh
# The main job on a library that the kernel drives: backup to a twin over two drives, spanning, restore, verify, rebuild.
#
# In a guest (guest/README.md) with our own library as hardware; the checks are in tape_job_checks.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/guest.sh
needs_guest 'the main job on a real library' rsync

for driver in ${*:-sg st}; do
    counted -d capstan -m 3500 -t 300 -e DRIVER="$driver" -e TAPE_MB=160 -- sh "$PWD/tests/tape_job_checks.sh"
done
echo "1..$number"
exit $result
