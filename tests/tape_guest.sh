#!/bin/sh
# The kernel's own tape and changer drivers, and the programs that people use with them, against a tape library over iSCSI.
#
# They run in a guest (guest/README.md), since few machines have a tape library. The checks are in tape_guest_checks.sh; each library
# passes them in one boot: tgt's, a peer, which shows that the checks and the guest are right; and our own.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/guest.sh
needs_guest "the kernel's tape driver" tgtd mtx mt-st sg_raw stenc

libraries=tgt
"$CAPSTAN_BIN" vtl serve --help >/dev/null 2>&1 && libraries="$libraries capstan"
for library in ${*:-$libraries}; do
    echo "# library: $library"
    counted -d "$library" -t 300 -e LIBRARY="$library" -e TAPE_MB=96 \
        -e REAL_DRIVE="$(dirname "$CAPSTAN_BIN")/examples/real_drive" -- sh "$PWD/tests/tape_guest_checks.sh"
done
echo "1..$number"
exit $result
