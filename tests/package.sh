#!/bin/sh
# The packages: made, installed, used, upgraded, removed and purged, in a root that is thrown away; and the recipe of the image.
#
# usage: [CAPSTAN_BEFORE=FILE] tests/package.sh
#
# No systemd runs here: package_services.sh has one.
# CAPSTAN_BEFORE names the capstan program of the version before, which is then a client and a mover of this version's server.
set -u
. "$(dirname "$0")/package_root.sh"

# root_with_notes NAME: a root with a systemd that only notes what it is asked.
root_with_notes() {
    new_root "$1" || return
    mkdir -p "$root/run/systemd/system"
    asked=$root/run/asked
    printf '#!/bin/sh\necho "$*" >>/run/asked\n' >"$root/usr/local/sbin/systemctl"
    chmod 755 "$root/usr/local/sbin/systemctl"
}
installed() { : >"$asked" && in_root dpkg --force-unsafe-io --install "$@"; }
is_asked() { grep -x -- "$1" "$asked"; }
is_not_asked() { ! grep -E -- "$1" "$asked"; }

check 'packages of a later version' made --as 1.0.1
bytes_of() { dpkg-deb --fsys-tarfile "$scratch/$(file_of "$1" "$2")" | sha256sum; }
same() { [ "$(bytes_of "$1" 1.0.0)" = "$(bytes_of "$1" 1.0.1)" ]; }
check 'the same programs give the same bytes' same capstan
check 'also for a key node' same capstan-keyd
field() { dpkg-deb --field "$scratch/$(file_of "$1" 1.0.0)" "$2"; }
check 'what capstan needs is what it was linked with' prints 'libc6 (>= 2.' field capstan Depends
check 'and what keyd needs' prints 'libc6 (>= 2.' field capstan-keyd Depends
root_with_notes a || skip 'an overlay file system cannot be mounted here'

# Installed.
check 'both are installed' installed "$(deb capstan 1.0.0)" "$(deb capstan-keyd 1.0.0)"
check 'no service is started, enabled or stopped' is_not_asked '(start|stop|enable)'
check 'dpkg finds every file as it was packed' nothing in_root dpkg --verify capstan capstan-keyd
for program in capstan keyd; do
    check "$program says its version" prints "$program $(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../Cargo.toml")" in_root $program --version
    without_lines() { ! readelf --sections --wide "$root/usr/bin/$program" | grep -E '\.(symtab|debug_(info|line))'; }
    check "$program is stripped" without_lines
    completes() { in_root bash -c ". /usr/share/bash-completion/completions/$program && complete -p $program"; }
    check "bash completes $program" completes
    check "zsh can" grep -q "^#compdef $program" "$root/usr/share/zsh/vendor-completions/_$program"
    check "fish can" grep -q "^complete -c $program" "$root/usr/share/fish/vendor_completions.d/$program.fish"
done
for page in capstan capstan-client-join keyd keyd-keys-list; do
    if command -v man >/dev/null; then
        check "the manual has $page" in_root man --where 1 "$page"
    else
        check "the manual has $page" in_root gzip --test "/usr/share/man/man1/$page.1.gz"
    fi
done
units=$root/usr/lib/systemd/system
in_root ln -s 'capstan-backup@.service' /usr/lib/systemd/system/capstan-backup@nightly.service
for unit in capstan-server capstan-client capstan-mover capstan-backup@nightly keyd; do
    check "systemd takes $unit" silent in_root systemd-analyze verify "/usr/lib/systemd/system/$unit.service"
    program_is_there() { in_root test -x "$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' "$units/$unit.service")"; }
    check "and its program is there" program_is_there
done
rm "$units/capstan-backup@nightly.service"
owned() { [ "$(in_root stat --format '%a %U:%G' "$2")" = "$1" ] || in_root stat "$2"; }
check 'only root reads keys' owned '700 root:root' /etc/capstan
check 'only root reads the catalog' owned '700 root:root' /var/lib/capstan
check "only keyd reads a node's state" owned '700 keyd:keyd' /var/lib/keyd
check 'a key node may write there' in_root runuser -u keyd -- sh -c '[ -w /var/lib/keyd ]'

# Used: a server, a client and a mover, started as their units start them.
setting() { sed -n "s/^$2=//p" "$units/$1.service"; }
can_start() { in_root test -e "$(setting "$1" ConditionPathExists)"; }
cannot_start() { ! can_start "$1"; }
# shellcheck disable=SC2046 # a list of words
as_unit() { unit=$1 && shift && in_root env $(setting "$unit" Environment) "$@"; }
server() { as_unit capstan-server capstan "$@"; }
client() { as_unit capstan-client "${client_program:-capstan}" "$@"; }
mover() { as_unit capstan-mover capstan "$@"; }
# runs UNIT WORDS COMMAND...: starts what runs until it is stopped, and waits for words of it.
runs() {
    # shellcheck disable=SC2046 # a list of words
    { unit=$1 && shift 2 && exec chroot "$root" env -i PATH=$path $(setting "$unit" Environment) "$@"; } >"$scratch/$1.log" 2>&1 &
    pids="$! ${pids:-}"
    until_so grep -q "$2" "$scratch/$1.log" || { cat "$scratch/$1.log" && return 1; }
}
stopped() {
    # shellcheck disable=SC2086 # a list of numbers
    kill $pids && wait $pids
    pids=''
}
# joined KIND NAME: a client or a mover.
joined() {
    server "$1" enrol "$2" >"$scratch/enrolled" &&
        grep -Eo '([0-9A-Z]{4}-){4}[0-9A-Z]{4}' "$scratch/enrolled" >"$root/run/once" && chmod 600 "$root/run/once" &&
        "$1" "$1" join 127.0.0.1:5702 --name "$2" --passphrase-file /run/once
}
# listens_beside STATE: a mover on this machine leaves the server its port for data.
listens_beside() { in_root sed -i 's/^listen = .*/listen = "127.0.0.1:0"/' "$1/mover.toml"; }
# is_done POLICY CLIENT, and backed_up POLICY CLIENT: the run that is asked for.
is_done() { server queue 'done' | grep -E "$1 +$2 .*done"; }
backed_up() { server queue add "$1" --client "$2" && until_so is_done "$1" "$2"; }
# comes_back FOLDER COMMAND...: the command restores what the folder has.
comes_back() {
    folder=$1 && shift && in_root rm -rf /srv/back && "$@" "$folder" --to /srv/back && in_root diff -r "$folder" "/srv/back$folder"
}
for unit in capstan-server capstan-client capstan-mover keyd; do
    check "$unit does not start without its state" cannot_start $unit
done
in_root sh -c 'for folder in letters maps charts; do mkdir -p /srv/$folder && echo "dear Ada, $folder" >/srv/$folder/ada; done'
check 'a state directory is made' server init --quiet --volume-size 64M --drives 2
check 'now a server can start' can_start capstan-server
check 'nobody else reads the key' owned '600 root:root' /etc/capstan/capstan.key
sed -i 's/^listen = .*/listen = "127.0.0.1:5701"/' "$root/var/lib/capstan/capstan.toml"
printf '\n[libraries.west]\nmover = "heron"\n' >>"$root/var/lib/capstan/capstan.toml"
# policy NAME SETTINGS: of a folder of that name.
policy() { printf '[policies.%s]\nclients = ["tern", "plover"]\nsources = ["/srv/%s"]\n%s\n' "$1" "$1" "$2"; }
policy letters '' >"$root/run/cell.toml"
policy maps 'unit = "west"' >>"$root/run/cell.toml"
if [ -n "${CAPSTAN_BEFORE:-}" ]; then
    printf '\n[libraries.east]\nmover = "egret"\n' >>"$root/var/lib/capstan/capstan.toml"
    policy charts 'unit = "east"' >>"$root/run/cell.toml"
fi
check 'policies are applied' server policies apply /run/cell.toml
# shellcheck disable=SC2046 # a list of words
check 'a server starts as its unit says' runs capstan-server serving $(setting capstan-server ExecStart)
check 'a machine with drives joins' joined mover heron
check 'and nobody else reads its state' owned '700 root:root' /var/lib/capstan-mover
check 'now a mover can start' can_start capstan-mover
check 'and it is told where to listen' listens_beside /var/lib/capstan-mover
# shellcheck disable=SC2046 # a list of words
check 'a mover starts as its unit says' runs capstan-mover 'connected to' $(setting capstan-mover ExecStart)
check 'a machine joins' joined client tern
check 'now a client can start' can_start capstan-client
# shellcheck disable=SC2046 # a list of words
check 'a client starts as its unit says' runs capstan-client 'connected to' $(setting capstan-client ExecStart)
check 'it is backed up' backed_up letters tern
check 'and restored at the client' comes_back /srv/letters client client restore
check 'and at the server' comes_back /srv/letters server restore
# written_at STATE: the library of a mover has cartridges.
written_at() { in_root find "$1/library/slots" -name '*.tape' | grep .; }
check 'nothing of it went to the mover' exits 1 written_at /var/lib/capstan-mover
check 'it is backed up to the mover' backed_up maps tern
check 'to a cartridge there' written_at /var/lib/capstan-mover
check 'and restored from there at the client' comes_back /srv/maps client client restore
if [ -n "${CAPSTAN_BEFORE:-}" ]; then
    cp "$CAPSTAN_BEFORE" "$root/usr/local/bin/capstan-before"
    before=/var/lib/capstan-mover-before
    mover() { as_unit capstan-mover capstan-before --state $before "$@"; }
    check 'a mover of the version before joins' joined mover egret
    check 'and is told where to listen' listens_beside $before
    check 'and runs' runs capstan-mover 'connected to' capstan-before --state $before mover run
    check 'and a client of this version is backed up to it' backed_up charts tern
    check 'to a cartridge there' written_at $before
    check 'and restored from there' comes_back /srv/charts client client restore
    in_root mv /var/lib/capstan-client /var/lib/capstan-client-tern
    client_program=capstan-before
    check 'a client of the version before joins' joined client plover
    check 'and runs' runs capstan-client 'connected to' capstan-before client run
    check 'and is backed up' backed_up letters plover
    check 'and restored' comes_back /srv/letters client client restore
    check 'and is backed up to a mover of this version' backed_up maps plover
    check 'and restored from there' comes_back /srv/maps client client restore
fi
check 'they stop when they are told to' stopped
in_root runuser -u keyd -- sh -c 'echo "# of a node" >/var/lib/keyd/keyd.toml'
check 'a key node can start once it has its state' can_start keyd

# Upgraded.
needrestart=/etc/needrestart/conf.d/capstan-keyd.conf
drop_in=/etc/systemd/system/capstan-server.service.d/override.conf
in_root sh -c "echo '# mine' >>$needrestart && mkdir -p ${drop_in%/*} && echo '# mine' >$drop_in
    ln -s /usr/lib/systemd/system/capstan-server.service /usr/lib/systemd/system/keyd.service \$(mkdir -p /etc/systemd/system/multi-user.target.wants &&
    echo /etc/systemd/system/multi-user.target.wants)"
# What operators have: data, settings and keys.
pictured() { in_root sh -c 'find /var/lib/capstan* /etc/capstan /var/lib/keyd -type f -exec sha256sum {} + | sort; stat --format "%n %a %U" /var/lib/capstan* /etc/capstan'; }
pictured >"$scratch/before"
unchanged() { pictured >"$scratch/after" && cmp "$scratch/before" "$scratch/after"; }
kept_edits() { in_root grep -qx '# mine' $needrestart && in_root grep -qx '# mine' $drop_in; }
check 'both are upgraded' installed "$(deb capstan 1.0.1)" "$(deb capstan-keyd 1.0.1)"
cp "$scratch/output" "$scratch/upgraded"
check 'the new version is there' prints 1.0.1 in_root dpkg-query --show capstan
check 'systemd reads the units again' is_asked '--system daemon-reload'
check 'a server, a client and a mover that run are restarted' is_asked 'try-restart capstan-server.service capstan-client.service capstan-mover.service'
check 'a key node is not, which would be locked' is_not_asked 'start.* keyd'
check 'and its operator is told' grep -qF 'restart one node after the other' "$scratch/upgraded"
check 'what was edited stays' kept_edits
check 'state and keys stay as they were' unchanged
check 'and are of use' comes_back /srv/letters server restore
check 'the version before can be installed again' installed "$(deb capstan 1.0.0)"
pictured >"$scratch/before"

# Removed, and purged.
: >"$asked"
check 'both are removed' in_root dpkg --remove capstan capstan-keyd
check 'services are stopped, and jobs' is_asked 'stop capstan-backup@\*.timer capstan-backup@\*.service capstan-server.service capstan-client.service capstan-mover.service'
check 'a key node is stopped' is_asked 'stop keyd.service'
gone() { ! in_root sh -c 'ls -d /usr/bin/capstan /usr/bin/keyd /usr/lib/systemd/system/capstan* /usr/share/doc/capstan* /usr/share/man/man1/keyd*' 2>/dev/null; }
check 'the programs are gone, and what belongs to them' gone
check 'what was edited is still there' kept_edits
check 'state and keys stay' unchanged
check 'both are purged' in_root dpkg --purge capstan capstan-keyd
cp "$scratch/output" "$scratch/purged"
check 'settings of packages are gone' exits 1 in_root test -e $needrestart
check 'state and keys stay even then' unchanged
check 'and the operator is told where' grep -qF 'volumes: /etc/capstan /var/lib/capstan /var/lib/capstan-client /var/lib/capstan-mover' "$scratch/purged"
dangling() { in_root find /etc/systemd/system -xtype l -name 'capstan*' -o -xtype l -name 'keyd*'; }
check 'no link to a service that is gone' nothing dangling
check 'and of the node' grep -qF 'cluster: /var/lib/keyd' "$scratch/purged"
check 'they are installed again' installed "$(deb capstan 1.0.1)" "$(deb capstan-keyd 1.0.1)"
check 'and find their state' comes_back /srv/letters server restore
in_root sh -c "rm -rf /var/lib/capstan /var/lib/capstan-client* /var/lib/capstan-mover* /etc/capstan /var/lib/keyd/* ${drop_in%/*}"
in_root dpkg-query --listfiles capstan capstan-keyd | sort -u >"$scratch/files"
check 'both are purged where nothing was ever kept' in_root dpkg --purge capstan capstan-keyd
quiet() { ! grep -F kept "$scratch/output"; }
check 'and say nothing' quiet
left() { while read -r file; do case $file in *capstan* | *keyd*) [ ! -e "$root$file" ] || echo "$file" ;; esac done <"$scratch/files"; }
check 'and leave nothing' nothing left

# The recipe of the images: each step in a root of its own, with an apt-get that has no network.
recipe=$here/../packaging/Containerfile
# of_stage STAGE: its instructions, one a line.
of_stage() {
    sed -e ':a' -e '/\\$/N; s/\\\n//; ta' "$recipe" | awk -v stage="$1" '/^FROM / { on = $NF == stage; next } on && /^[A-Z]/'
}
words() { printf '%s' "$1" | tr -d '[]",'; }
# step INSTRUCTION WORDS: does what one instruction says.
step() {
    case $1 in
    COPY) (cd "$scratch" && export VERSION=1.0.1 && eval "cp ${2% *} $root${2##* }") ;;
    RUN) in_root sh -ec "$2" ;;
    USER) user=$2 && in_root id "$2" ;;
    ENV) variables=$2 ;;
    VOLUME) for folder in $2; do in_root runuser -u "$user" -- test -w "$folder" || return; done ;;
    ENTRYPOINT) entry=$(words "$2") ;;
    CMD) arguments=$(words "$2") ;;
    ARG | EXPOSE) ;;
    *) return 1 ;;
    esac
}
# shellcheck disable=SC2086 # lists of words
as_image() { in_root env $variables runuser -u "$user" -- $entry "$@"; }
for stage in keyd capstan; do
    root_with_notes "image-$stage"
    cat >"$root/usr/local/sbin/apt-get" <<'APT'
#!/bin/sh
[ "$1" = install ] || exit 0
for word; do case $word in /*) dpkg --force-unsafe-io --install "$word" || exit ;; esac done
APT
    chmod 755 "$root/usr/local/sbin/apt-get"
    variables=''
    of_stage $stage >"$scratch/steps"
    while read -r instruction words; do
        check "image of $stage: $instruction $(printf '%s' "$words" | cut -c 1-60)" step "$instruction" "$words" </dev/null
    done <"$scratch/steps"
    # shellcheck disable=SC2086 # a list of words
    check "what the image of $stage starts takes its arguments" as_image $arguments --help
done
check 'in the image of capstan a state directory is made' as_image init --quiet --volume-size 64M
check 'and holds a backup' as_image backup --quiet /etc/hostname
finish
