#!/bin/sh
# The service and the timer of a job, as systemd reads them, and the job that they start.
set -u
. "$(dirname "$0")/checks.sh"

units=$scratch/units
service='capstan-backup@.service'
timer='capstan-backup@.timer'
mkdir -p "$units"
capstan init --quiet --volume-size 64M >/dev/null
check 'the program writes both units' capstan jobs --units "$units"
for kind in service timer; do ln -s "capstan-backup@.$kind" "$units/capstan-backup@nightly.$kind"; done

# What systemd does not know it leaves out, and says so.
verified() { (cd "$units" && SYSTEMD_UNIT_PATH="$units:" systemd-analyze verify "./$1" >"$scratch/verified" 2>&1) && ! grep . "$scratch/verified"; }
check 'systemd takes the service' verified 'capstan-backup@nightly.service'
check 'and the timer' verified 'capstan-backup@nightly.timer'
when=$(sed -n 's/^OnCalendar=//p' "$units/$timer")
check 'the timer has a time' systemd-analyze calendar "$when"
check 'of every night' prints '02:30:00' systemd-analyze calendar --iterations=1 "$when"
check 'times of the documents are times' systemd-analyze calendar 'Sat 02:30' 'Sun *-*-1..7 04:00'
# In tenths; a service without any of it has 96.
check 'it is held to what it needs' systemd-analyze security --offline=true --threshold=65 "$units/capstan-backup@nightly.service"
# What would hide files from it, or take the drives away.
hidden() { grep -E '^(PrivateTmp|PrivateDevices|DevicePolicy|DeviceAllow|ProtectClock|ProtectKernelModules|InaccessiblePaths|TemporaryFileSystem|ProtectHome=(yes|tmpfs)|PrivateUsers|ProtectProc|User|DynamicUser)' "$units/$service"; }
unseen() { ! hidden; }
check 'and sees all files and all drives' unseen

# The services of the package, with the program to test in place of the one that it installs.
for role in server client; do
    unit=capstan-$role.service
    sed "s|/usr/bin/capstan|$CAPSTAN_BIN|" "$here/../packaging/$unit" >"$units/$unit"
    check "the service of a $role starts one" grep -q "^ExecStart=.* $role run$" "$units/$unit"
    check "systemd takes the service of a $role" verified "$unit"
    check "and the page of the cell names it" grep -qF "](../packaging/$unit)" "$here/../docs/CELL.md"
done

# What ExecStart says, said by hand.
command=$(sed -n 's/^ExecStart=//p' "$units/$service" | sed 's/%i/nightly/')
mkdir -p "$scratch/home"
echo 'dear Ada' >"$scratch/home/letter"
printf '\n[jobs.nightly]\nsources = ["%s"]\nafter = ["sh", "-c", "echo $CAPSTAN_JOB $CAPSTAN_OUTCOME $CAPSTAN_EXIT_CODE >%s/told"]\n' \
    "$scratch/home" "$scratch" >>"$CAPSTAN_STATE/capstan.toml"
# shellcheck disable=SC2086 # a list of words
check 'the job is what the service starts' $command
check 'and it tells how it went' grep -qx 'nightly done 0' "$scratch/told"
check 'the job is listed' prints done capstan jobs
finish
