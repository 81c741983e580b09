#!/bin/sh
# The main job on a library behind a wire that is cut in each phase of a command, with the kernel's own iSCSI initiator in between.
#
# In a guest (guest/README.md); the checks are in tape_wire_checks.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/guest.sh
needs_guest 'the main job behind a wire that is cut'
guest/run -d capstan -m 3000 -t 400 -e TAPE_MB=256 -- sh "$PWD/tests/tape_wire_checks.sh"
