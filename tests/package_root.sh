# For the tests of packages: packages of version 1.0.0, and roots to install them in. Sourced in place of checks.sh.
#
# A root is an overlay over that of this machine, in memory, with dpkg's real database in it. Mounts, processes and network are in
# namespaces of our own: nothing here can reach this machine's services, and not even a kill leaves more behind than an empty folder.
# shellcheck shell=sh

skip() {
    echo "ok 1 - packages # SKIP $1"
    echo 1..1
    exit 0
}
PATH="$PATH:/usr/sbin:/sbin"
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" -eq 0 ] || skip 'only root can install packages'
    for tool in dpkg-deb dpkg-shlibdeps strip readelf ip systemd-analyze systemd-sysusers; do
        command -v $tool >/dev/null || skip "there is no $tool"
    done
    unshare --mount --pid --net --fork true 2>/dev/null || skip 'namespaces are forbidden here'
    exec unshare --mount --pid --net --fork --kill-child --mount-proc "$0" inside
fi
. "$(dirname "$0")/checks.sh"
unset CAPSTAN_STATE CAPSTAN_KEY_FILE
# First what is mounted goes, of which nothing is removed: an overlay shows this machine's files.
trap 'umount --lazy --recursive "$scratch"; rmdir "$scratch"' EXIT
mount -t tmpfs tmpfs "$scratch" && ip link set lo up || exit 1
programs=$(dirname "$CAPSTAN_BIN")
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# new_root NAME: a root as this machine's.
new_root() {
    root=$scratch/$1
    mkdir -p "$root" "$root.upper" "$root.work"
    mount -t overlay -o "lowerdir=/,upperdir=$root.upper,workdir=$root.work" overlay "$root" 2>/dev/null || return
    mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/run" && mount -t tmpfs tmpfs "$root/tmp" &&
        mount -t tmpfs tmpfs "$root/dev" || exit 1
    for device in null:3 zero:5 full:7 random:8 urandom:9; do
        mknod -m 666 "$root/dev/${device%:*}" c 1 "${device#*:}"
    done
    mkdir "$root/dev/pts" "$root/dev/shm" && ln -s pts/ptmx "$root/dev/ptmx"
    mkdir -p "$root/packages" "$root/run/lock" && cp "$scratch"/*.deb "$root/packages"
    # Images of Debian leave out manuals, and start no service; and whatever this machine has of ours is not ours to see.
    in_root sh -c 'rm -rf /etc/dpkg/dpkg.cfg.d/* /usr/sbin/policy-rc.d /var/lib/man-db/auto-update /etc/capstan /var/lib/capstan* /var/lib/keyd
        dpkg --purge --force-all capstan capstan-keyd' >/dev/null 2>&1
    in_root true
}
in_root() { chroot "$root" env -i PATH=$path LC_ALL=C.UTF-8 "$@"; }

made() { "$programs/xtask" package --profile debug --programs "$programs" --out "$scratch" "$@"; }
file_of() { echo "$1_$2_$(dpkg --print-architecture).deb"; }
deb() { echo "/packages/$(file_of "$1" "$2")"; }

# until_so COMMAND...: waits for it to succeed, half a minute at most.
until_so() {
    for _ in $(seq 150); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    "$@"
}
# silent COMMAND...: succeeds when the command succeeds and complains of nothing.
silent() {
    "$@" >"$scratch/printed" 2>&1 || { cat "$scratch/printed" && return 1; }
    ! grep . "$scratch/printed"
}

check 'packages are made' made --as 1.0.0
[ "$failed" -eq 0 ] || exit 1
