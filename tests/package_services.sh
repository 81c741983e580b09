#!/bin/sh
# The services of the packages under a systemd that runs: started, upgraded in the middle of a backup, and removed.
#
# systemd is the first process of a root that is thrown away (package_root.sh), in namespaces of its own. It starts nothing of this
# machine's: its generators and all that units want are gone there. It can set nothing of this machine's kernel: /proc/sys and /sys cannot
# be written, and it lacks the rights to load modules, to set clocks and to reboot. A kill may leave empty control groups behind.
set -u
. "$(dirname "$0")/package_root.sh"
# later NAME: the same package with a later version, packed again. (package.sh builds one.)
later() {
    dpkg-deb --raw-extract "$scratch/$(file_of "$1" 1.0.0)" "$scratch/later" && sed -i 's/^Version: .*/Version: 1.0.1/' "$scratch/later/DEBIAN/control" &&
        dpkg-deb --root-owner-group -Zzstd -z1 --build "$scratch/later" "$scratch/$(file_of "$1" 1.0.1)" && rm -r "$scratch/later"
}
check 'capstan of a later version' later capstan
check 'and keyd' later capstan-keyd
new_root a || skip 'an overlay file system cannot be mounted here'

# systemd wants a control group, which is below ours.
groups=$scratch/groups
mkdir "$groups"
mount -t cgroup2 cgroup2 "$groups" 2>/dev/null || skip 'control groups of version 2 cannot be mounted here'
group=$(mktemp -d "$groups$(sed -n 's/^0:://p' /proc/self/cgroup)/capstan-services.XXXXXX" 2>/dev/null) || skip 'no control group can be made here'
clean() {
    # With the first process of a namespace all others in it have ended.
    [ -z "${first:-}" ] || kill -9 "$first"
    wait
    find "$group" -depth -type d -exec rmdir {} +
    umount --lazy --recursive "$scratch"
    rmdir "$scratch"
}
trap clean EXIT
in_root sh -c 'rm -rf /etc/fstab /etc/crypttab /usr/lib/systemd/system-generators /etc/systemd/system/* /usr/lib/systemd/system/*.wants
    mkdir /run/sys && printf "[Unit]\nDefaultDependencies=no\n" >/etc/systemd/system/nothing.target'
# The first process of a root, and what it sees of the kernel.
cat >"$scratch/first" <<'FIRST'
set -e
echo 0 >"$2/cgroup.procs"
exec unshare --pid --mount --cgroup --uts --ipc --fork --kill-child sh -ec '
    mount -t proc proc "$1/proc"
    mount --bind "$1/proc/sys" "$1/proc/sys"
    mount -o remount,ro,bind "$1/proc/sys"
    mount -t sysfs -o ro sysfs "$1/sys"
    mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
    exec setpriv --bounding-set -sys_module,-sys_time,-sys_boot,-sys_rawio,-syslog,-mknod chroot "$1" \
        env -i container=test /lib/systemd/systemd --system --unit=nothing.target --log-target=console' sh "$1"
FIRST
sh "$scratch/first" "$root" "$group" >"$scratch/systemd.log" 2>&1 &
systemd=$!
until_so test -S "$root/run/systemd/private" || { cat "$scratch/systemd.log" && skip 'systemd does not start here'; }
first=$(pgrep -P "$systemd")
inside() { nsenter --target "$first" --mount --pid --ipc --uts --cgroup --root --wdns=/ env -i PATH=$path LC_ALL=C.UTF-8 \
    CAPSTAN_STATE=/var/lib/capstan CAPSTAN_KEY_FILE=/etc/capstan/capstan.key "$@"; }
is() { [ "$(inside systemctl is-active "$2")" = "$1" ] || { inside systemctl status --no-pager "$2" && return 1; }; }
pid_of() { inside systemctl show --property MainPID --value "$1"; }
installed() { inside dpkg --force-unsafe-io --install "$(deb "$1" "$2")"; }
check 'capstan is installed' installed capstan 1.0.0
check 'and keyd' installed capstan-keyd 1.0.0
check 'services are enabled and started' inside systemctl enable --now capstan-server capstan-client capstan-mover keyd
for unit in capstan-server capstan-client capstan-mover keyd; do
    check "$unit without its state is not started, and has not failed" is inactive $unit
done
inside sh -c 'mkdir -p /srv/letters /srv/maps && head -c 80000000 /dev/urandom >/srv/letters/ada && date >/srv/maps/ada'
check 'a state directory is made' inside capstan init --quiet --volume-size 256M
inside sed -i -e 's/^listen = .*/listen = "127.0.0.1:5701"/' -e 's/^checkpoint_mib = .*/checkpoint_mib = 8/' \
    -e 's/^compression_level = .*/compression_level = 19/' /var/lib/capstan/capstan.toml
inside sh -c 'printf "[policies.letters]\nclients = [\"tern\"]\nsources = [\"/srv/letters\"]\nretry_after = \"1s\"\n" >/run/cell.toml
    printf "\n[policies.maps]\nclients = [\"tern\"]\nsources = [\"/srv/maps\"]\nunit = \"west\"\n" >>/run/cell.toml
    printf "\n[libraries.west]\nmover = \"heron\"\n\n[jobs.hosts]\nsources = [\"/etc/hosts\"]\n" >>/var/lib/capstan/capstan.toml'
check 'policies are applied' inside capstan policies apply /run/cell.toml
check 'the server is started' inside systemctl start capstan-server
once() { inside capstan "$1" enrol "$2" | grep -Eo '([0-9A-Z]{4}-){4}[0-9A-Z]{4}' >"$root/run/once" && chmod 600 "$root/run/once"; }
# joins KIND NAME: a client or a mover.
joins() {
    until_so once "$1" "$2" &&
        inside capstan --state "/var/lib/capstan-$1" "$1" join 127.0.0.1:5702 --name "$2" --passphrase-file /run/once
}
# Who is enrolled needs no server that listens yet; whoever joins does.
listens() { inside bash -c ': </dev/tcp/127.0.0.1/5702' 2>/dev/null; }
until_so listens
check 'a mover joins' joins mover heron
# On this machine the server has the port for data.
inside sed -i 's/^listen = .*/listen = "127.0.0.1:0"/' /var/lib/capstan-mover/mover.toml
check 'and is started' inside systemctl start capstan-mover
check 'a client joins' joins client tern
check 'and is started' inside systemctl start capstan-client
check 'a job runs as a service' inside systemctl start capstan-backup@hosts
check 'and has a timer' inside systemctl enable --now capstan-backup@hosts.timer
# ended POLICY TIMES: so many runs of it are done.
ended() { [ "$(inside capstan queue 'done' | grep -cE "$1 +tern .*done")" -eq "$2" ]; }
inside capstan queue add maps
check 'a backup goes to the mover' until_so ended maps 1
# One processor and the highest level: the backup takes some seconds, and the upgrade usually stops it before its end.
processor=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
inside sh -c "mkdir /etc/systemd/system/capstan-server.service.d &&
    printf '[Service]\nCPUAffinity=$processor\n' >/etc/systemd/system/capstan-server.service.d/slow.conf"
inside systemctl daemon-reload
check 'a drop-in counts' inside systemctl restart capstan-server
# A node as far as systemd sees it: one that works needs etcd.
inside sh -c 'touch /var/lib/keyd/keyd.toml && mkdir /etc/systemd/system/keyd.service.d &&
    printf "[Service]\nExecStart=\nExecStart=/bin/sleep infinity\n" >/etc/systemd/system/keyd.service.d/sleeps.conf && systemctl daemon-reload'
check 'a key node is started, as its user' inside systemctl start keyd

# Upgraded while a backup runs.
server=$(pid_of capstan-server) client=$(pid_of capstan-client) mover=$(pid_of capstan-mover) node=$(pid_of keyd)
inside capstan queue add letters
at_work() { inside capstan queue | grep -E 'letters.* (running|at work)'; }
check 'a backup is at work' until_so at_work
check 'capstan is upgraded' installed capstan 1.0.1
check 'and keyd' installed capstan-keyd 1.0.1
cp "$scratch/output" "$scratch/upgraded"
for unit in capstan-server capstan-client capstan-mover keyd; do check "$unit runs" is active $unit; done
other() { [ "$(pid_of "$1")" != "$2" ] && inside sh -c "readlink /proc/$(pid_of "$1")/exe" | grep -x "/usr/bin/capstan"; }
check 'the server is that of the new package' other capstan-server "$server"
check 'and the client' other capstan-client "$client"
check 'and the mover' other capstan-mover "$mover"
check 'the key node is the one before' test "$(pid_of keyd)" = "$node"
check 'and its operator is told' grep -qF 'restart one node after the other' "$scratch/upgraded"
check 'the backup goes on to its end' until_so ended letters 1
comes_back() {
    inside rm -rf /srv/back && inside capstan restore --quiet "$1" --to /srv/back && inside cmp "$1/ada" "/srv/back$1/ada"
}
check 'and comes back' comes_back /srv/letters
# A run that meets a mover that is being started is tried again ten minutes later.
check 'the mover is reached again' until_so inside capstan library inventory --library west
inside capstan queue add maps
check 'another one goes to the mover' until_so ended maps 2
check 'and comes back' comes_back /srv/maps
check 'the timer still waits' is active capstan-backup@hosts.timer

# Removed.
check 'both are removed' inside dpkg --remove capstan capstan-keyd
for unit in capstan-server capstan-client capstan-mover keyd capstan-backup@hosts.timer; do check "$unit has ended" is inactive $unit; done
gone() { ! inside ps -C capstan,sleep -o args=; }
check 'nothing of them runs' gone
check 'nothing has failed' nothing inside systemctl list-units --failed --plain --no-legend
finish
