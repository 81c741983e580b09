//! The tree that the golden volumes hold, and the words in which a tree is compared.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, mkfifoat, utimensat};

/// Seconds of the earliest time in the tree; files are dated one after another from here.
const BEGIN: i64 = 1_700_000_000;

/// The path of a file whose content spans several blocks and no other file's.
pub(crate) const LARGE: &str = "data/large";

/// Bytes that no compressor makes shorter, the same each time (xorshift64*).
fn noise(mut seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        seed ^= seed >> 12;
        seed ^= seed << 25;
        seed ^= seed >> 27;
        bytes.extend_from_slice(&seed.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn odd_name() -> PathBuf {
    std::ffi::OsString::from_vec(b"not \xff\xfe UTF-8\n".to_vec()).into()
}

/// Makes the tree as the first backup sees it.
pub(crate) fn make(top: &Path) {
    let data = top.join("data");
    fs::create_dir_all(top.join("empty directory")).unwrap();
    fs::create_dir_all(data.join("deep").join("d".repeat(200)).join("e".repeat(200))).unwrap();
    fs::write(data.join("empty"), "").unwrap();
    fs::write(data.join("one byte"), "1").unwrap();
    fs::write(top.join(LARGE), noise(1, 20_000)).unwrap();
    fs::write(data.join("lines"), "the same line again\n".repeat(500)).unwrap();
    fs::write(data.join("will change"), noise(2, 700)).unwrap();
    fs::write(data.join("will go"), noise(3, 300)).unwrap();
    fs::write(data.join("deep").join("d".repeat(200)).join("e".repeat(200)).join("n".repeat(255)), "long").unwrap();
    fs::write(data.join(odd_name()), "bytes").unwrap();
    fs::hard_link(top.join(LARGE), data.join("second name")).unwrap();
    symlink("data/large", top.join("link")).unwrap();
    symlink("nowhere/at all", top.join("dangling")).unwrap();
    mkfifoat(CWD, top.join("pipe"), Mode::from_raw_mode(0o620)).unwrap();
    let holes = File::create(data.join("holes")).unwrap();
    holes.write_all_at(&noise(4, 4096), 1 << 20).unwrap();
    holes.set_len(3 << 20).unwrap();
    for (path, mode) in [("data/one byte", 0o444), ("data/empty", 0o600), ("empty directory", 0o711), ("data", 0o750)] {
        fs::set_permissions(top.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    date(top, BEGIN);
    // Before 1970, and to the nanosecond.
    set_time(&data.join("empty"), Timespec { tv_sec: -5, tv_nsec: 123_456_789 });
}

/// Changes it to what the second, incremental backup sees.
pub(crate) fn change(top: &Path) {
    fs::write(top.join("data/will change"), noise(5, 900)).unwrap();
    fs::remove_file(top.join("data/will go")).unwrap();
    fs::write(top.join("data/new"), noise(6, 500)).unwrap();
    for (path, seconds) in [("data/will change", 1_800_000_000), ("data/new", 1_800_000_001), ("data", 1_800_000_002)] {
        set_time(&top.join(path), Timespec { tv_sec: seconds, tv_nsec: 1 });
    }
}

fn set_time(path: &Path, time: Timespec) {
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Dates everything below a directory, what is in a directory before the directory.
fn date(top: &Path, begin: i64) {
    for (path, seconds) in walk(top).into_iter().rev().zip(begin..) {
        set_time(&path, Timespec { tv_sec: seconds, tv_nsec: seconds % 1000 });
    }
}

/// Every path below a directory and the directory itself, each behind its parent.
fn walk(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        if path.symlink_metadata().unwrap().is_dir() {
            let mut names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            names.sort();
            found.extend(names);
        }
        next += 1;
    }
    found
}

/// One line for each path below `top`, in order: what it is, its mode, modification time, names, length, and the
/// SHA-256 of its content or the target of its link.
pub(crate) fn describe(top: &Path) -> String {
    let mut lines: Vec<String> = walk(top).iter().map(|path| line(top, path).unwrap()).collect();
    lines.sort();
    lines.push(String::new());
    lines.join("\n")
}

fn line(top: &Path, path: &Path) -> io::Result<String> {
    let stat = path.symlink_metadata()?;
    let name = path.strip_prefix(top).unwrap_or(path).as_os_str().as_bytes().escape_ascii().to_string();
    let (kind, names, len, content) = match FileType::from_raw_mode(stat.mode()) {
        FileType::RegularFile => ("file", stat.nlink(), stat.len(), hex(digest(&SHA256, &fs::read(path)?).as_ref())),
        FileType::Directory => ("directory", 1, 0, String::new()),
        FileType::Symlink => {
            let target = fs::read_link(path)?;
            ("symlink", 1, 0, target.as_os_str().as_bytes().escape_ascii().to_string())
        }
        FileType::Fifo => ("fifo", 1, 0, String::new()),
        other => panic!("the golden tree has no {other:?}"),
    };
    // The mode of a link means nothing, and differs from system to system.
    let mode = if kind == "symlink" { 0o777 } else { stat.mode() & 0o7777 };
    Ok(format!("{name}\t{kind}\t{mode:04o}\t{}.{:09}\t{names}\t{len}\t{content}", stat.mtime(), stat.mtime_nsec()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
