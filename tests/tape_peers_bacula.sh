# Runs in the guest (tape_peers.sh starts it): Bacula on a library whose drives encrypt without its knowing.
# shellcheck shell=sh disable=SC1091,SC2016
. "$(dirname "$0")/tape_peers_library.sh"

shows() {
    shown=$1
    shift
    check "bacula: $shown" "$@"
}

# Director, file daemon and storage daemon, for this guest alone.
bacula=$scratch/bacula
configure() {
    mkdir -p "$bacula"
    me='Name = peer-dir; Password = peer'
    daemon="WorkingDirectory = \"$bacula\"; PidDirectory = \"$bacula\""
    messages='Messages { Name = Log; Director = peer-dir = all }'
    changer='Changer Device = /dev/vtl/changer; Changer Command = "/etc/bacula/scripts/mtx-changer %c %o %S %a %d"'
    tape='Auto Changer = yes; Removable Media = yes; Random Access = no; Always Open = yes; Automatic Mount = yes; Label Media = no'
    cat >"$bacula/dir.conf" <<TEXT
Director { $me; DirPort = 9101; DirAddress = 127.0.0.1; QueryFile = /dev/null; $daemon; Messages = Log; Maximum Concurrent Jobs = 4 }
Messages { Name = Log; catalog = all }
Catalog { Name = Catalog; dbname = bacula; dbuser = ""; dbpassword = "" }
Client { Name = peer-fd; Address = 127.0.0.1; FDPort = 9102; Catalog = Catalog; Password = peer; Maximum Concurrent Jobs = 4 }
Storage { Name = Library; Address = 127.0.0.1; SDPort = 9103; Password = peer; Device = Library; Media Type = Encrypted
  Autochanger = yes; Maximum Concurrent Jobs = 4 }
Storage { Name = Plain; Address = 127.0.0.1; SDPort = 9103; Password = peer; Device = Plain; Media Type = Plain; Autochanger = yes }
Pool { Name = Large; Pool Type = Backup }
Pool { Name = Small; Pool Type = Backup }
Pool { Name = Plain; Pool Type = Backup }
FileSet { Name = All; Include { Options { signature = SHA1; aclsupport = yes; xattrsupport = yes }; File = "$source" } }
FileSet { Name = Some; Include { Options { signature = SHA1 }; File = "$source/small" } }
JobDefs { Name = Any; Client = peer-fd; Messages = Log; FileSet = All; Storage = Library; Pool = Large; Level = Full }
Job { Name = Large; Type = Backup; JobDefs = Any }
Job { Name = Small; Type = Backup; JobDefs = Any; FileSet = Some; Pool = Small }
Job { Name = Plain; Type = Backup; JobDefs = Any; Storage = Plain; Pool = Plain }
Job { Name = Verify; Type = Verify; Level = VolumeToCatalog; JobDefs = Any; Verify Job = Large }
Job { Name = Restore; Type = Restore; JobDefs = Any; Where = "$scratch/restored" }
TEXT
    cat >"$bacula/sd.conf" <<TEXT
Storage { Name = peer-sd; SDPort = 9103; SDAddress = 127.0.0.1; $daemon }
Director { $me }
Autochanger { Name = Library; Device = Drive-0; Device = Drive-1; $changer }
Autochanger { Name = Plain; Device = Drive-2; $changer }
Device { Name = Drive-0; Drive Index = 0; Archive Device = /dev/vtl/drive0; Media Type = Encrypted; $tape }
Device { Name = Drive-1; Drive Index = 1; Archive Device = /dev/vtl/drive1; Media Type = Encrypted; $tape }
Device { Name = Drive-2; Drive Index = 2; Archive Device = /dev/vtl/drive2; Media Type = Plain; $tape }
$messages
TEXT
    cat >"$bacula/fd.conf" <<TEXT
FileDaemon { Name = peer-fd; FDPort = 9102; FDAddress = 127.0.0.1; $daemon }
Director { $me }
$messages
TEXT
    echo "Director { $me; DirPort = 9101; Address = 127.0.0.1 }" >"$bacula/console.conf"
    sqlite3 "$bacula/bacula.db" </usr/share/dbconfig-common/data/bacula-director-sqlite3/install/sqlite3
}

daemons=''
start() {
    for daemon in fd sd dir; do
        "bacula-$daemon" -f -c "$bacula/$daemon.conf" >"$bacula/$daemon.out" 2>&1 &
        daemons="$daemons $!"
    done
    # 9101, where the director listens: the console would go on asking for half an hour.
    wait_for 60 grep -q '^ *[0-9]*: [0-9A-F]*:238D .* 0A ' /proc/net/tcp || { cat "$bacula"/*.out && return 1; }
}
# console LINE...: what an operator types.
console() { printf '%s\n' "$@" | timeout 200 bconsole -c "$bacula/console.conf"; }
catalog() { sqlite3 -readonly "$bacula/bacula.db" "$1"; }
# said JOB: the log of a job, or of all.
said() { catalog "select LogText from Log ${1:+where JobId = $1} order by LogId"; }
volumes() { catalog "select group_concat(VolumeName, ' ') from (select VolumeName from Media join Pool using (PoolId)
    where Pool.Name = '$1' and VolStatus in ('Append', 'Full') and VolBytes > 100000 order by MediaId)"; }

# ends LINE...: after these and all jobs they start, no job is left that did not end well, without an error.
ends() {
    before=$(catalog 'select coalesce(max(JobId), 0) from Job')
    console "$@" 'wait' >"$scratch/console"
    new="from Job where JobId > $before"
    [ "$(catalog "select count(*) > 0 and min(JobStatus = 'T' and JobErrors = 0) $new")" = 1 ] || {
        catalog "select Name, JobStatus, JobErrors $new"
        tail -n 20 "$scratch/console"
        said | tail -n 30
        return 1
    }
}

shows 'its packages are unpacked' unpack /etc/bacula /var/lib/bacula /var/log/bacula
shows 'a library with drives that encrypt unasked' library B
make_source
shows 'director, file daemon and storage daemon start' eval 'configure && start'
[ "$failed" -eq 0 ] || exit 1
shows 'the robot lists barcodes for Bacula' prints '1:B00001L9' /etc/bacula/scripts/mtx-changer /dev/vtl/changer list
labels() { console "label barcodes storage=$1 pool=$2 drive=$4 slots=$3" yes; }
labelled() { catalog "select count(*) from Media join Pool using (PoolId) where Pool.Name = '$1' and VolStatus = 'Append'"; }
shows 'five volumes are labelled by barcode' eval 'prints B00005L9 labels Library Large 1-5 0; [ "$(labelled Large)" -eq 5 ]'
shows 'two more for another pool' eval 'prints B00007L9 labels Library Small 6-7 0; [ "$(labelled Small)" -eq 2 ]'
# Without volumes a job waits for an operator.
[ "$failed" -eq 0 ] || exit 1
shows 'each has a key, which no program asked for' have_keys B 7
shows 'two jobs at once, on two drives' ends 'run job=Large yes' 'run job=Small yes'
shows 'the large one spans three volumes' eval 'volumes Large; [ "$(volumes Large | wc -w)" -eq 3 ]'
shows 'it is verified, volumes against catalog' ends 'run job=Verify yes'
restore='restore client=peer-fd'
shows 'it is restored' ends "$restore jobid=1 all done yes"
shows 'nothing differs' same "$scratch/restored$source"

# What lies on the disk.
encrypted=$(volumes Large)
shows 'three volumes are labelled for the plain drive' eval 'prints P00003L9 labels Plain Plain 8-10 2; [ "$(labelled Plain)" -eq 3 ]'
shows 'the same job there' eval 'ends "run job=Plain yes" && [ "$(volumes Plain | wc -w)" -eq 3 ]'
for sought in "$phrase" 'Bacula 1.0 immortal' "$source/noise3"; do
    shows "on its cartridges stands: ${sought##*/}" eval 'found "$sought" $(volumes Plain)'
    shows 'and nowhere on the encrypted ones' eval '! found "$sought" $encrypted'
done

# The key of the second volume goes. The first and the third still have theirs.
rm -rf "$scratch/restored"
gone=$(echo "$encrypted" | cut -d' ' -f2)
job=$(catalog 'select max(JobId) + 1 from Job')
asks_for() { wait_for 100 eval "said $job | grep -q 'Please mount read Volume .$1.'" || { said "$job" | tail -n 30 && return 1; }; }
ended() { [ "$(catalog "select JobStatus from Job where JobId = $job")" = "$1" ]; }
shows 'a key is destroyed' capstan keys destroy "$gone" --yes
shows 'a restore does not get past its volume' eval 'console "$restore jobid=1 all done yes" && asks_for "$gone"'
shows 'the kernel says why: data protect' prints 'Sense Key : Data Protect' kernel_log
shows 'there is no key' prints 'Add. Sense: External data encryption key not found' kernel_log
shows 'and so says the drive to others' eval 'tells "$(drive_with "$gone")" "External data encryption key not found"'
shows 'the restore is given up' eval 'console "cancel jobid=$job" && wait_for 100 ended A'
# A file whose first and last block stand on the first volume.
first=$(catalog "select Path.Path || Filename.Name from File join Path using (PathId) join Filename using (FilenameId) where JobId = 1
    and Filename.Name like 'noise%' and FileIndex < (select max(LastIndex) from JobMedia join Media using (MediaId) where JobMedia.JobId = 1
    and VolumeName = '${encrypted%% *}') limit 1")
rm -rf "$scratch/restored"
shows 'a file of the volume before is restored' eval 'ends "$restore jobid=1 file=$first done yes"'
shows 'and is the same' cmp "$first" "$scratch/restored$first"
rm -rf "$scratch/restored"
shows 'other volumes are restored' ends "$restore jobid=2 all done yes"
shows 'and nothing differs' diff -r "$source/small" "$scratch/restored$source/small"
shows 'the cartridge is of use again, with a new key' eval \
    'console "delete volume=$gone yes" && labels Library Small 2 0 && [ "$(labelled Small)" -eq 3 ]'

shows 'the drives are emptied' eval '
    console "unmount storage=Library drive=0" "unmount storage=Library drive=1" "unmount storage=Plain drive=2"
    ! mtx -f /dev/vtl/changer status | grep "Transfer Element .:Full"'
# shellcheck disable=SC2086 # a list of processes
kill $daemons
shows 'the kernel complains of nothing else' nothing complaints 'Data Protect|External data'
shows 'and no write went to a position that was not verified' verified
mixed_rules "${encrypted%% *}" "$(volumes Plain | cut -d' ' -f1)" 'Bacula 1.0 immortal'
[ "$failed" -eq 0 ]
