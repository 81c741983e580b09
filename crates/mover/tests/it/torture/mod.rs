//! A tree that has one of everything that a restore can get wrong, and the comparison by programs that are not ours.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

/// Whether the test may make devices, foreign owners and capabilities.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says that a test was not made here, past the harness, which keeps to itself what passing tests print. `./x test`
/// counts it.
pub fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "\nSKIP {reason}");
}

/// Makes the tree below `root`, which exists and is empty.
pub fn plant(root: &Path) {
    let file = |name: &str, content: &[u8]| fs::write(root.join(name), content).unwrap();
    file("empty", b"");
    file("small", b"hello");
    file("block", &[b'b'; 512]);
    let large: Vec<u8> = (0..3_000_017u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    file("large", &large);
    file(&"n".repeat(255), b"a name of 255 bytes");
    file("a name with\nnewline, \"quotes\" and 'tick'", b"x");
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"not \xff\xfe UTF-8")), b"y").unwrap();
    fs::create_dir(root.join("empty directory")).unwrap();
    let deep: String = (0..12).map(|depth| format!("{depth}-{}/", "d".repeat(150))).collect();
    fs::create_dir_all(root.join(&deep)).unwrap();
    file(&format!("{deep}leaf"), b"deep");

    symlink("small", root.join("link")).unwrap();
    symlink("/nonexistent/absolute", root.join("dangling")).unwrap();
    symlink("t".repeat(3_000), root.join("link with a long target")).unwrap();
    fs::hard_link(root.join("small"), root.join("another name")).unwrap();
    fs::hard_link(root.join("small"), root.join("empty directory/third name")).unwrap();
    fs::hard_link(root.join("link"), root.join("another name of the link")).unwrap();

    let node = |name: &str, kind, major, minor| {
        let device = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
    };
    node("fifo", FileType::Fifo, 0, 0);

    sparse(&root.join("sparse"), 20 << 20, &[(1 << 20, 5_000), (7 << 20, 70_000)]);
    sparse(&root.join("all hole"), 3 << 20, &[]);
    sparse(&root.join("hole first"), (4 << 20) + 3, &[(4 << 20, 3)]);
    sparse(&root.join("hole last"), 300 << 20, &[(0, 10)]);

    let attribute = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(root.join(name), key, value, XattrFlags::empty()).unwrap();
    };
    file("attributes", b"with attributes");
    attribute("attributes", "user.plain", b"value");
    attribute("attributes", "user.empty", b"");
    attribute("attributes", "user.binary", &(0..=255).collect::<Vec<u8>>());
    attribute("attributes", "user.with=equals%25", b"=");
    attribute("attributes", "user.big", &[b'v'; 2_000]);
    attribute("empty directory", "user.on directory", b"d");

    file("acl", b"with a list");
    run("setfacl", &["-m", "u:1234:r-x,g:4321:rw-,m::rwx"], &root.join("acl"));
    fs::create_dir(root.join("acl directory")).unwrap();
    run("setfacl", &["-m", "u:99:rwx"], &root.join("acl directory"));
    run("setfacl", &["-d", "-m", "u:1234:rwx,g::r-x"], &root.join("acl directory"));
    file("acl directory/made after the default list", b"inherits");
    file("acl directory/made after, then stripped", b"inherits not");
    run("setfacl", &["-b"], &root.join("acl directory/made after, then stripped"));

    for (name, mode) in [("setuid", 0o4755), ("setgid", 0o2750), ("read-only", 0o444)] {
        file(name, name.as_bytes());
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    // What its owner may not read, only root can pack and compare.
    for (name, mode) in [("write-only", 0o200), ("mode zero", 0o000)].into_iter().filter(|_| is_root()) {
        file(name, name.as_bytes());
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    // Nor can anyone else replace or remove what is in a directory that is locked.
    let locked = if is_root() { 0o555 } else { 0o755 };
    for (name, mode) in [("sticky", 0o1777), ("setgid directory", 0o2775), ("locked", locked)] {
        fs::create_dir(root.join(name)).unwrap();
        file(&format!("{name}/inside"), b"inside");
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    if is_root() {
        node("null device", FileType::CharacterDevice, 1, 3);
        node("large numbers", FileType::BlockDevice, 4_000, 1_000_000);
        let own = |name: &str, uid, gid| {
            let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::chownat(CWD, root.join(name), uid, gid, flags).unwrap();
        };
        own("acl", 1_000, 1_001);
        own("link", 1_002, 1_003);
        own("fifo", 1_004, 0);
        own("empty directory", 3_000_000_000, 4_000_000_000);
        own("large", 3_000_000_001, 5);
        own("setuid", 1_000, 0);
        fs::set_permissions(root.join("setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
        attribute("attributes", "trusted.secret", b"t");
        file("capable", b"\x7fELF");
        own("capable", 1_000, 1_000);
        // VFS_CAP_REVISION_2 with cap_net_bind_service.
        attribute("capable", "security.capability", &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    set_times(root, Path::new("small"), 1_234_567_890, 123_456_789);
    set_times(root, Path::new("empty"), -1_000, 5);
    set_times(root, Path::new("block"), 0, 0);
    set_times(root, Path::new("link"), 1_111_111_111, 1);
    set_times(root, Path::new("fifo"), 5, 0);
    for directory in ["empty directory", "acl directory", "locked", "sticky", "setgid directory", "."] {
        set_times(root, Path::new(directory), 1_000_000_000, 999_999_999);
    }
}

fn set_times(root: &Path, name: &Path, tv_sec: i64, tv_nsec: i64) {
    let time = Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, root.join(name), &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn sparse(path: &Path, len: u64, data: &[(u64, usize)]) {
    let file = fs::File::create(path).unwrap();
    file.set_len(len).unwrap();
    for &(offset, len) in data {
        file.write_all_at(&vec![b's'; len], offset).unwrap();
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status();
    assert!(status.unwrap_or_else(|error| panic!("install {program}: {error}")).success(), "{program} failed");
}

/// What a program writes to its standard output; it must succeed.
pub fn output(program: &str, arguments: &[&str], directory: &Path) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("install {program}: {error}"));
    let mut bytes = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    assert!(child.wait().unwrap().success(), "{program} failed");
    bytes
}

/// Differences between two trees as rsync sees them: content, owners, modes, times, hard links, lists, attributes.
pub fn differences(expected: &Path, found: &Path) -> String {
    let slash = |path: &Path| format!("{}/", path.display());
    let (expected, found) = (slash(expected), slash(found));
    let arguments =
        ["-aHAXn", "--checksum", "--delete", "--numeric-ids", "--itemize-changes", "--sparse", &expected, &found];
    String::from_utf8_lossy(&output("rsync", &arguments, Path::new("/"))).into_owned()
}

/// Blocks that a tree's regular files take on disk.
pub fn blocks(root: &Path, names: &[&str]) -> u64 {
    names.iter().map(|name| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(root.join(name)).unwrap())).sum()
}

/// The sparse files of the tree.
pub const SPARSE: [&str; 4] = ["sparse", "all hole", "hole first", "hole last"];

/// A canary: a directory beside the target in which nothing may ever change.
pub fn snapshot(directory: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let content = if metadata.is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
        let name = entry.file_name().to_string_lossy().into_owned();
        if metadata.is_dir() {
            found.extend(snapshot(&entry.path()));
        }
        found.push((name, metadata.permissions().mode(), content));
    }
    found.sort();
    found
}
