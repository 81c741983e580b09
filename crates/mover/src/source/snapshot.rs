//! Snapshots: a tree is read as it was at one moment, while programs go on writing to it.
//!
//! What a file system or a logical volume can do is done by its own programs (`btrfs`, `zfs`, `lvcreate` and `mount`):
//! they are on each machine that has these, and need no code of ours that is not safe. A snapshot is removed when the
//! source was read; one that a killed process has left is removed before the next is made.
//!
//! A snapshot is of one file system, or of one subvolume. What is mounted below the source, and subvolumes in it, are
//! read as they are: [`Snapshot::open_live`].
//!
//! All of this is done as root, where others may write too. So a snapshot is made only where nobody else can put
//! anything in its place: in a subvolume whose root, and all that is above it, belongs to root; and mounted in a
//! directory of root's own.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2, statfs};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::SourceError;

/// Names of snapshots begin so; directories of such names are left out of backups.
const PREFIX: &str = "capstan-snapshot-";
/// What the file systems call themselves.
const BTRFS: u64 = 0x9123_683e;
const ZFS: u64 = 0x2fc1_2fc1;
/// The inode of the root of a subvolume of btrfs, and that of the empty directory that stands for one in a snapshot.
const SUBVOLUME_ROOT: u64 = 256;
const SUBVOLUME_ELSEWHERE: u64 = 2;
/// Where snapshots of logical volumes and of ZFS are mounted. (ZFS shows its own below `.zfs`, but mounts them there in
/// the first namespace of the machine alone, which a service need not see.)
const MOUNTED_BELOW: &str = "/run/capstan-snapshots";
/// How they are mounted.
const MOUNT_OPTIONS: &str = "ro,nosuid,nodev,noexec";
/// How much of a logical volume may change while its snapshot is read.
const CHANGES_MAX: &str = "10%ORIGIN";

/// Whether a tree is read from a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SnapshotUse {
    /// It is read as it is.
    #[default]
    None,
    /// From a snapshot where one can be made; otherwise as it is, and that is said.
    Prefer,
    /// From a snapshot, or not at all.
    Require,
}

/// What a tree was read from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReadFrom {
    /// The files as they are.
    #[default]
    Live,
    /// The files as they are, since no snapshot could be made.
    LiveForWant {
        /// Why.
        reason: String,
    },
    /// A snapshot.
    Snapshot {
        /// What made it: `btrfs`, `zfs` or `lvm`.
        by: String,
        /// Why it is there still, if it could not be removed.
        left: Option<String>,
    },
}

/// A snapshot, until this is dropped.
#[derive(Debug)]
pub(crate) struct Snapshot {
    name: String,
    made: Made,
    /// Where the source is in it.
    pub(crate) at: PathBuf,
    /// Where the source is.
    live: PathBuf,
    /// Where something is mounted below the source, by what is behind it.
    mounts: HashSet<Vec<u8>>,
    is_removed: bool,
}

/// Snapshots of this process that are being read.
static IN_USE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What was made, and is to be removed.
#[derive(Debug)]
enum Made {
    Subvolume(PathBuf),
    Zfs { name: String, mounted: PathBuf },
    Volume { device: String, mounted: PathBuf },
}

/// Something that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// Which directory of the file system.
    root: PathBuf,
    at: PathBuf,
    kind: String,
    device: String,
}

impl SnapshotUse {
    /// A snapshot of a source, if it is to have one and can; with what it is read from.
    pub(crate) fn of(self, path: &Path) -> Result<(Option<Snapshot>, ReadFrom), SourceError> {
        if self == Self::None {
            return Ok((None, ReadFrom::Live));
        }
        match (Snapshot::of(path), self) {
            (Ok(snapshot), _) => {
                let by = snapshot.made.by().to_owned();
                Ok((Some(snapshot), ReadFrom::Snapshot { by, left: None }))
            }
            (Err(reason), Self::Require) => Err(SourceError::Snapshot { path: path.to_owned(), reason }),
            (Err(reason), _) => Ok((None, ReadFrom::LiveForWant { reason })),
        }
    }
}

/// Whether a directory of this name and owner is a snapshot that lies, or is mounted, there: only root makes these.
pub(crate) fn is_snapshot(name: &[u8], owner: u32) -> bool {
    let name = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix('.'));
    owner == 0 && name.and_then(numbers_of).is_some()
}

impl Snapshot {
    /// Makes a snapshot of what a path is in.
    fn of(path: &Path) -> Result<Self, String> {
        let metadata = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
        if metadata.is_symlink() {
            return Err("it is a symbolic link".to_owned());
        }
        let live = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
        let kind = statfs(&live).map_err(|error| error.to_string())?.f_type as u64;
        let mounts = mounts()?;
        let in_mount =
            mounts.iter().filter(|mount| live.starts_with(&mount.at)).max_by_key(|mount| mount.at.as_os_str().len());
        let Some(mount) = in_mount else { return Err("no file system is mounted there".to_owned()) };
        // A file that is mounted by itself is in no snapshot, and the file below it is another one.
        let is_file = |mount: &&Mount| mount.at != live && mount.at.starts_with(&live) && !mount.at.is_dir();
        if let Some(file) = mounts.iter().find(is_file) {
            return Err(format!("the file {} is mounted by itself", file.at.display()));
        }
        let name = new_name();
        in_use().insert(name.clone());
        let made = match kind {
            BTRFS => of_subvolume(&live, metadata.dev(), mount, &name),
            ZFS => of_dataset(&live, mount, &name),
            _ => of_volume(&live, mount, &name),
        };
        let (made, at) = made.inspect_err(|_| _ = in_use().remove(&name))?;
        // It may be mounted there from elsewhere, or over something else. The root of a snapshot of ZFS has an inode of
        // its own.
        let is_root = matches!(&made, Made::Zfs { mounted, .. } if *mounted == at);
        let is_same = std::fs::symlink_metadata(&at)
            .is_ok_and(|found| (is_root || found.ino() == metadata.ino()) && found.file_type() == metadata.file_type());
        if !is_same {
            let removed = made.remove();
            in_use().remove(&name);
            removed?;
            return Err("it is not in the snapshot of the file system that seems to hold it".to_owned());
        }
        let below = |mount: &Mount| Some(mount.at.strip_prefix(&live).ok()?.as_os_str().as_bytes().to_vec());
        let mounts = mounts.iter().filter_map(below).filter(|below| !below.is_empty()).collect();
        Ok(Self { name, made, at, live, mounts, is_removed: false })
    }

    /// Opens a directory that is not in the snapshot, by its path below the source and its inode there: something else
    /// is mounted there, or it is another subvolume. Whoever has put a link into the way since leads nowhere.
    pub(crate) fn open_live(&self, below: &[u8], inode: u64, flags: OFlags) -> Option<Result<OwnedFd, Errno>> {
        let is_subvolume = inode == SUBVOLUME_ELSEWHERE && matches!(self.made, Made::Subvolume(_));
        let is_live = is_subvolume || self.mounts.contains(below);
        let live = is_live.then(|| self.live.join(OsStr::from_bytes(below)))?;
        Some(openat2(CWD, &live, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS))
    }

    /// Removes it. What cannot be removed is tried again by whoever makes the next one.
    pub(crate) fn remove(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        self.is_removed = true;
        let removed = self.made.remove();
        in_use().remove(&self.name);
        removed
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if !self.is_removed {
            let _ = self.end();
        }
    }
}

fn in_use() -> MutexGuard<'static, BTreeSet<String>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Made {
    fn by(&self) -> &'static str {
        match self {
            Self::Subvolume(_) => "btrfs",
            Self::Zfs { .. } => "zfs",
            Self::Volume { .. } => "lvm",
        }
    }

    fn remove(&self) -> Result<(), String> {
        match self {
            Self::Subvolume(path) => {
                program("btrfs", &["subvolume".as_ref(), "delete".as_ref(), path.as_ref()]).map(drop)
            }
            Self::Zfs { name, mounted } => {
                unmount(mounted)?;
                program("zfs", &["destroy".as_ref(), name.as_ref()]).map(drop)
            }
            Self::Volume { device, mounted } => {
                unmount(mounted)?;
                program("lvremove", &["--yes".as_ref(), "--quiet".as_ref(), device.as_ref()]).map(drop)
            }
        }
    }

    /// Mounts what was made, so that it can be read; if it cannot be mounted, it is removed.
    fn mount(self, kind: &str, options: &str, device: &str) -> Result<Self, String> {
        let (Self::Zfs { mounted, .. } | Self::Volume { mounted, .. }) = &self else { return Ok(self) };
        let arguments: [&OsStr; 6] =
            ["-t".as_ref(), kind.as_ref(), "-o".as_ref(), options.as_ref(), device.as_ref(), mounted.as_ref()];
        if let Err(reason) = program("mount", &arguments) {
            let _ = self.remove();
            return Err(reason);
        }
        Ok(self)
    }
}

/// Ends a mount, and removes its directory. What has been unmounted, or was never there, is no fault.
fn unmount(mounted: &Path) -> Result<(), String> {
    // Where nothing is mounted, the directory is empty.
    let is_mounted = std::fs::remove_dir(mounted).is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound);
    if is_mounted {
        program("umount", &["--no-canonicalize".as_ref(), mounted.as_ref()])?;
        let _ = std::fs::remove_dir(mounted);
    }
    Ok(())
}

/// Where a snapshot of a name is mounted.
fn mount_point(name: &str) -> PathBuf {
    Path::new(MOUNTED_BELOW).join(format!(".{name}"))
}

/// Makes the directory that a snapshot of a name is to be mounted in.
fn new_mount_point(name: &str) -> Result<PathBuf, String> {
    let folder = Path::new(MOUNTED_BELOW);
    let mut own = DirBuilder::new();
    if let Err(error) = own.mode(0o700).create(folder)
        && error.kind() != std::io::ErrorKind::AlreadyExists
    {
        return Err(format!("{MOUNTED_BELOW}: {error}"));
    }
    check_ours(folder)?;
    let at = mount_point(name);
    own.create(&at).map_err(|error| format!("{}: {error}", at.display()))?;
    Ok(at)
}

fn of_subvolume(live: &Path, device: u64, mount: &Mount, own: &str) -> Result<(Made, PathBuf), String> {
    let is_root = |path: &&Path| {
        std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == SUBVOLUME_ROOT && found.dev() == device)
    };
    let mut in_mount = live.ancestors().take_while(|path| path.starts_with(&mount.at));
    let root = in_mount.find(is_root).ok_or("the root of its subvolume is not mounted")?;
    check_ours(root)?;
    if let Ok(entries) = std::fs::read_dir(root) {
        for entry in entries.flatten() {
            let (name, found) = (entry.file_name(), std::fs::symlink_metadata(entry.path()));
            let is_ours = found.is_ok_and(|found| found.is_dir() && found.uid() == 0 && found.ino() == SUBVOLUME_ROOT);
            if is_ours && name.to_str().and_then(|name| name.strip_prefix('.')).is_some_and(is_left_over) {
                let _ = Made::Subvolume(entry.path()).remove();
            }
        }
    }
    let snapshot = root.join(format!(".{own}"));
    let arguments: [&OsStr; 5] =
        ["subvolume".as_ref(), "snapshot".as_ref(), "-r".as_ref(), root.as_ref(), snapshot.as_ref()];
    program("btrfs", &arguments)?;
    let below = live.strip_prefix(root).unwrap_or(Path::new(""));
    let at = joined(&snapshot, below);
    Ok((Made::Subvolume(snapshot), at))
}

fn of_dataset(live: &Path, mount: &Mount, own: &str) -> Result<(Made, PathBuf), String> {
    let dataset = &mount.device;
    let list: [&OsStr; 8] = ["list", "-H", "-t", "snapshot", "-o", "name", "-d1", dataset].map(AsRef::as_ref);
    for name in program("zfs", &list)?.lines() {
        if let Some((_, left)) = name.split_once('@').filter(|(_, left)| is_left_over(left)) {
            let _ = Made::Zfs { name: name.to_owned(), mounted: mount_point(left) }.remove();
        }
    }
    let (name, at) = (format!("{dataset}@{own}"), new_mount_point(own)?);
    program("zfs", &["snapshot".as_ref(), name.as_ref()]).inspect_err(|_| drop(std::fs::remove_dir(&at)))?;
    let made = Made::Zfs { name: name.clone(), mounted: at.clone() }.mount("zfs", MOUNT_OPTIONS, &name)?;
    Ok((made, mount.in_snapshot(&at, live)))
}

fn of_volume(live: &Path, mount: &Mount, own: &str) -> Result<(Made, PathBuf), String> {
    let fields = ["--noheadings", "--separator", "/", "-o", "vg_name,lv_name,segtype", &mount.device];
    let is_device = mount.device.starts_with("/dev/");
    let found = if is_device { program("lvs", &fields.map(AsRef::as_ref)) } else { Ok(String::new()) };
    let found = found.unwrap_or_default();
    let mut parts = found.trim().split('/');
    let (Some(group), Some(volume), Some(kind)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(format!("{} is neither btrfs nor ZFS, nor on a logical volume", mount.at.display()));
    };
    let names = program("lvs", &["--noheadings", "-o", "lv_name", group].map(AsRef::as_ref))?;
    for name in names.lines().map(str::trim).filter(|name| is_left_over(name)) {
        let _ = Made::Volume { device: format!("{group}/{name}"), mounted: mount_point(name) }.remove();
    }
    let (origin, at) = (format!("{group}/{volume}"), new_mount_point(own)?);
    // One of a thin volume has what room its pool has, and is not active by itself.
    let room: &[&str] = if kind == "thin" { &["--setactivationskip", "n"] } else { &["--extents", CHANGES_MAX] };
    let mut create = vec!["--quiet", "--snapshot", "--name", own];
    create.extend(room);
    create.push(&origin);
    let create: Vec<&OsStr> = create.into_iter().map(OsStr::new).collect();
    program("lvcreate", &create).inspect_err(|_| drop(std::fs::remove_dir(&at)))?;
    let made = Made::Volume { device: format!("{group}/{own}"), mounted: at.clone() };
    // A second file system with the identity of the first is mounted only where that is asked for.
    let identity = if mount.kind == "xfs" { ",nouuid" } else { "" };
    let made = made.mount(&mount.kind, &format!("{MOUNT_OPTIONS}{identity}"), &format!("/dev/{group}/{own}"))?;
    Ok((made, mount.in_snapshot(&at, live)))
}

impl Mount {
    /// Where a path in it is in a snapshot of its file system that is mounted elsewhere.
    fn in_snapshot(&self, snapshot: &Path, path: &Path) -> PathBuf {
        let top = joined(snapshot, self.root.strip_prefix("/").unwrap_or(&self.root));
        joined(&top, path.strip_prefix(&self.at).unwrap_or(Path::new("")))
    }
}

/// Whether nobody but root can put anything into a directory, or in its place.
fn check_ours(directory: &Path) -> Result<(), String> {
    for path in directory.ancestors() {
        let found = std::fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        // In a directory with a sticky bit nobody touches what is root's.
        let may_others = found.mode() & 0o022 != 0 && (found.mode() & 0o1000 == 0 || path == directory);
        if found.uid() != 0 || may_others || !found.is_dir() {
            return Err(format!("others than root can write to {}", path.display()));
        }
    }
    Ok(())
}

/// A path below another, without a slash at its end where it is the same.
fn joined(above: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { above.to_owned() } else { above.join(below) }
}

/// Runs a program; gives what it printed.
fn program(name: &str, arguments: &[&OsStr]) -> Result<String, String> {
    let run = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    let output = match run {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!("the program {name} is not installed"));
        }
        Err(error) => return Err(format!("{name}: {error}")),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it did not say why");
    Err(format!("{name} ended with {}: {said}", output.status))
}

/// What is mounted in this process's view.
fn mounts() -> Result<Vec<Mount>, String> {
    let text = std::fs::read("/proc/self/mountinfo").map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(mount_of).collect())
}

/// A line of `mountinfo`: id, parent, device number, root, mount point, options, more of them, `-`, kind, device.
fn mount_of(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let path = |at: usize| Some(PathBuf::from(OsString::from_vec(unescaped(fields.get(at)?))));
    let text = |at: usize| Some(String::from_utf8_lossy(&unescaped(fields.get(at)?)).into_owned());
    Some(Mount { root: path(3)?, at: path(4)?, kind: text(dash + 1)?, device: text(dash + 2)? })
}

/// Blanks and backslashes stand in `mountinfo` as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| byte == b'\\') {
            Some(escaped) => {
                bytes.push(escaped);
                rest = &behind[3..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    bytes
}

/// A name that says which process has made it: the namespace of its number, that, when it began, and a count.
fn new_name() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    let (space, began) = (process_space(), began(process).unwrap_or_default());
    format!("{PREFIX}{space}-{process}-{began}-{}", MADE.fetch_add(1, Ordering::Relaxed))
}

/// Whether a name is that of a snapshot that nobody reads: its process has ended, or could not remove it. A process of
/// another namespace cannot be seen from here.
fn is_left_over(name: &str) -> bool {
    let Some(numbers) = numbers_of(name) else { return false };
    let [space, process, began_at, _] = numbers;
    let Some(process) = u32::try_from(process).ok().filter(|_| space == process_space()) else { return false };
    match began(process) == Some(began_at) {
        true => process == std::process::id() && !in_use().contains(name),
        false => true,
    }
}

/// The four numbers of a snapshot's name.
fn numbers_of(name: &str) -> Option<[u64; 4]> {
    let numbers: Result<Vec<u64>, _> = name.strip_prefix(PREFIX)?.split('-').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// The namespace in which processes have their numbers.
fn process_space() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map(|space| space.ino()).unwrap_or_default()
}

/// When a process began, in the system's ticks since it was started; none if there is no such process.
fn began(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn mounts_are_read_as_the_kernel_writes_them() {
        let line = br"36 35 98:0 /@home /mnt/with\040blank rw,noatime master:1 - btrfs /dev/mapper/vg-home rw,errors=x";
        let mount = Mount {
            root: "/@home".into(),
            at: "/mnt/with blank".into(),
            kind: "btrfs".to_owned(),
            device: "/dev/mapper/vg-home".to_owned(),
        };
        assert_eq!(mount_of(line), Some(mount));
        assert_eq!(mount_of(b""), None);
        assert!(mounts().unwrap().iter().any(|mount| mount.at == Path::new("/")));
    }

    #[test]
    fn what_a_process_that_has_ended_left_is_known_by_its_name() {
        let own = new_name();
        assert!(is_left_over(&own), "it is of this process, which does not read it");
        in_use().insert(own.clone());
        let name = format!(".{own}");
        assert!(!is_left_over(&own) && is_snapshot(name.as_bytes(), 0));
        assert!(!is_snapshot(name.as_bytes(), 1000) && !is_snapshot(own.as_bytes(), 0), "anybody's directory");
        let fields: Vec<&str> = own.strip_prefix(PREFIX).unwrap().split('-').collect();
        let [space, process, began, _] = fields[..] else { panic!("{own}") };
        let of_another = format!("{PREFIX}{space}-{process}-{}-0", began.parse::<u64>().unwrap() + 1);
        assert!(is_left_over(&of_another), "the number was used again");
        assert!(!is_left_over(&format!("{PREFIX}1-{process}-0-0")), "nobody sees into another namespace");
        assert!(!is_left_over("home") && !is_snapshot(b".capstan-snapshot-home", 0));
    }

    #[test]
    fn a_source_that_can_have_no_snapshot_is_read_as_it_is_or_not_at_all() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (none, from) = SnapshotUse::Prefer.of(dir.path()).unwrap();
        let ReadFrom::LiveForWant { reason } = from else { panic!("{from:?}") };
        assert!(none.is_none() && reason.contains("neither btrfs nor ZFS"), "{reason}");
        assert!(matches!(SnapshotUse::Require.of(dir.path()), Err(SourceError::Snapshot { .. })));
        assert!(matches!(SnapshotUse::None.of(dir.path()), Ok((None, ReadFrom::Live))));
    }
}
