# Runs in the guest (tape_peers.sh starts it): Amanda on a library whose drives encrypt without its knowing.
# shellcheck shell=sh disable=SC1091,SC2016
. "$(dirname "$0")/tape_peers_library.sh"

shows() {
    shown=$1
    shift
    check "amanda: $shown" "$@"
}

# What its packages do when they are installed, and two configurations: encrypted on drives 0 and 1, plain on drive 2.
configure() {
    # A host without any address but that of its loopback resolves no name for Amanda (getaddrinfo with AI_ADDRCONFIG).
    busybox ip address add 192.0.2.1/32 dev lo
    configuration encrypted 1-7 '"0=tape:/dev/vtl/drive0" "1=tape:/dev/vtl/drive1"' || return
    configuration plain 8-11 '"2=tape:/dev/vtl/drive2"' || return
    touch /var/lib/amanda/amandates
    chown -R backup:backup /etc/amanda /var/lib/amanda /var/log/amanda /var/backups
    chown backup /dev/vtl/*
}
# configuration NAME SLOTS DRIVES
configuration() {
    mkdir -p "/etc/amanda/$1" "/var/lib/amanda/$1/log" "/var/lib/amanda/$1/index" "/var/lib/amanda/$1/info"
    touch "/etc/amanda/$1/tapelist"
    printf 'localhost %s tree\n' "$source" "$source/small" >"/etc/amanda/$1/disklist"
    cat >"/etc/amanda/$1/amanda.conf" <<TEXT
org "$1"
mailto ""
dumpuser "backup"
infofile "/var/lib/amanda/$1/info"
logdir "/var/lib/amanda/$1/log"
indexdir "/var/lib/amanda/$1/index"
tapelist "/etc/amanda/$1/tapelist"
inparallel 1
dumpcycle 0
runspercycle 1
runtapes 4
tapecycle 7
labelstr "^PEER-[0-9]*\$"
autolabel "PEER-%" empty
tapetype SMALL
tpchanger "robot"
define changer robot {
    tpchanger "chg-robot:/dev/vtl/changer"
    property "tape-device" $3
    property "use-slots" "$2"
    property "load-poll" "0s poll 1s until 20s"
    changerfile "/var/lib/amanda/$1/robot"
}
define tapetype SMALL {
    length 32 mbytes
    part-size 5 mbytes
    part-cache-type memory
}
define dumptype tree {
    auth "local"
    program "GNUTAR"
    compress none
    index yes
    holdingdisk never
}
TEXT
}
# It does nothing as another user than its own.
amanda() { (cd /var/backups && HOME=/var/backups setpriv --reuid=backup --regid=backup --init-groups "$@"); }

# run CONFIGURATION NUMBER: the name that Amanda gave its run, counted from 1. A volume that is labelled and not written has 0.
run() { cut -d' ' -f1 "/etc/amanda/$1/tapelist" | grep -v '^0$' | sort -u | sed -n "${2}p"; }
# barcodes CONFIGURATION NUMBER: of the volumes of a run, in the order in which they were written.
barcodes() { sort -t- -k2n "/etc/amanda/$1/tapelist" | sed -n "s/^$(run "$1" "$2") .*BARCODE:\([^ ]*\).*/\1/p"; }
volumes() { [ "$(barcodes "$1" "$2" | wc -l)" -eq "$3" ] || { cat "/etc/amanda/$1/tapelist" && return 1; }; }
# newest FOLDER PATTERN: of the logs of one of Amanda's programs, whose names end with the time, the last.
newest() { find "$1" -name "$2" | sort | tail -n 1; }
# dumps CONFIGURATION FOLDER: where it fails Amanda's own logs say more than its report. A check shows forty lines.
dumps() {
    amanda amdump "$1" localhost "^$2\$" && return
    echo "amdump gave $?"
    for log in "/var/lib/amanda/$1/log/log" "$(newest "/var/lib/amanda/$1/log" 'amdump.2*')" \
        "$(newest "/var/log/amanda/server/$1" 'amdump.*')" "$(newest "/var/log/amanda/server/$1" 'planner.*')" \
        "$(newest "/var/log/amanda/server/$1" 'driver.*')" "$(newest "/var/log/amanda/server/$1" 'taper.*')"; do
        echo "the end of $log:"
        tail -n 5 "$log"
    done
    return 1
}
# fetches FOLDER: to a file, and what the file holds to a folder. Nobody is there to be asked for another volume.
fetches() {
    rm -rf "$scratch/restored"
    mkdir "$scratch/restored"
    amanda amfetchdump -a -p encrypted localhost "^$1\$" </dev/null >"$scratch/image" && tar -C "$scratch/restored" -xpf "$scratch/image"
}
validates() { prints 'successfully validated' amanda amcheckdump --timestamp "$(run "$1" "$2")" "$1" </dev/null; }

shows 'its packages are unpacked' unpack /etc/amanda /var/lib/amanda /var/log/amanda /var/backups
shows 'a library with drives that encrypt unasked' library A
make_source
shows 'it is configured' configure
shows 'the robot lists barcodes for Amanda' prints 'slot 7: unknown state barcode A00007L9' amanda amtape encrypted inventory
shows 'a volume is labelled by hand' amanda amlabel encrypted PEER-1 slot 1
shows 'server and client are ready' prints '0 problems found' amanda amcheck encrypted
shows 'a dump, which labels the volumes it goes on to' dumps encrypted "$source"
shows 'it spans three volumes' volumes encrypted 1 3
shows 'another, to the next volume' eval 'dumps encrypted "$source/small" && volumes encrypted 2 1'
shows 'each volume has a key, which no program asked for' have_keys A 4
shows 'the first is validated' validates encrypted 1
shows 'the other too' validates encrypted 2
shows 'the first is fetched' fetches "$source"
shows 'nothing differs' same "$scratch/restored"

# What lies on the disk.
encrypted=$(barcodes encrypted 1)
shows 'the same dump on a plain drive' eval 'dumps plain "$source" && volumes plain 1 3'
for sought in "$phrase" 'AMANDA: SPLIT_FILE' "./noise3"; do
    shows "on its cartridges stands: $sought" eval 'found "$sought" $(barcodes plain 1)'
    shows 'and nowhere on the encrypted ones' eval '! found "$sought" $encrypted'
done

# The key of the second volume goes. The first and the third still have theirs.
gone=$(echo "$encrypted" | sed -n 2p)
shows 'while the volume is still in a drive' eval '[ -n "$(drive_with "$gone")" ]'
shows 'its key is destroyed' capstan keys destroy "$gone" --yes
shows 'the dump cannot be fetched' refused fetches "$source"
shows 'the kernel says why: data protect' prints 'Sense Key : Data Protect' kernel_log
shows 'there is no key' prints 'Add. Sense: External data encryption key not found' kernel_log
shows 'and so says the drive to others' eval 'load "$gone" 0 && tells 0 "External data encryption key not found"'
shows 'other volumes are fetched' fetches "$source/small"
shows 'and nothing differs' diff -r "$source/small" "$scratch/restored"
shows 'the cartridge is of use again, with a new key' amanda amlabel -f encrypted PEER-99 slot "$(slot_of "$gone")"

shows 'the kernel complains of nothing else' nothing complaints 'Data Protect|External data encryption key not found'
shows 'and no write went to a position that was not verified' verified
[ "$failed" -eq 0 ]
