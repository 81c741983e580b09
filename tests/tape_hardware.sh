#!/bin/sh
# Drives and a library as an operator meets them: scan, exercise over sg and st, inventory, moves, import and export.
#
# In a guest (guest/README.md) with our own library as hardware; the checks are in tape_hardware_checks.sh.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/guest.sh
needs_guest 'drives and library commands' mtx

exec guest/run -d capstan -m 2048 -t 240 -e TAPE_MB=256 -- sh "$PWD/tests/tape_hardware_checks.sh"
