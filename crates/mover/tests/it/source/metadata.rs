//! All kinds of metadata, through GNU tar and bsdtar and back.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use capstan_format::{EntryFlags, EntryKind};
use capstan_mover::{ProblemKind, Severity};
use rustix::fs::{CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, makedev, mknodat, setxattr, utimensat};

use super::collect::{
    archive, below, check_entries, differences, entry, extract, extract_bsdtar, extract_plain, feed, is_root,
    read_tree, run,
};

fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A program that extracts.
type Extract = fn(&[u8], &Path);

/// Extracts with both programs; each tree must be like the original.
fn check_round_trip(root: &Path) {
    check_with(root, &[("tar", extract_plain), ("bsdtar", extract_bsdtar)]);
}

fn check_with(root: &Path, programs: &[(&str, Extract)]) {
    let (sinks, report) = read_tree(root, 1, 262_088);
    assert_eq!(report.count(Severity::Loss), 0, "{:?}", report.problems);
    check_entries(&sinks);
    let archive = archive(&sinks);
    for (program, extract) in programs {
        let target = tempfile::tempdir().unwrap();
        extract(&archive, target.path());
        assert_eq!(differences(root, &below(target.path(), root)), "", "{program}");
    }
}

#[test]
fn names_of_every_kind() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let mut paths: Vec<Vec<u8>> = vec![
        b"plain".to_vec(),
        b"-dash".to_vec(),
        b"new\nline".to_vec(),
        b"back\\slash and space ".to_vec(),
        "umlaut-\u{fc}-\u{65e5}\u{672c}".as_bytes().to_vec(),
        b"latin1-\xfc".to_vec(),
        b"\xff\xfe".to_vec(),
        [b"long-latin1-\xfc-".to_vec(), vec![b'x'; 240]].concat(),
        "\u{fc}".repeat(127).into_bytes(),
    ];
    // Every length around the hundred bytes of a ustar name and the 155 of its prefix.
    let depth = root.as_os_str().len();
    for len in (80..110).chain(145..165).chain(245..256) {
        paths.push(vec![b'n'; len.min(255)]);
        let prefix = vec![b'p'; 255usize.min(len.saturating_sub(depth).max(1))];
        paths.push([prefix, b"/".to_vec(), vec![b'q'; 99]].concat());
    }
    for path in &paths {
        let path = root.join(OsStr::from_bytes(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, path.as_os_str().as_bytes()).unwrap();
    }
    for len in 90..110 {
        fs::create_dir_all(root.join("e".repeat(len)).join("f".repeat(len))).unwrap();
    }
    check_round_trip(root);
}

#[test]
fn links_with_short_and_long_targets() {
    let source = tempfile::tempdir().unwrap();
    for len in [1, 99, 100, 101, 255, 1_000, 4_095] {
        symlink("t".repeat(len), source.path().join(format!("symlink-{len}"))).unwrap();
        let name = "h".repeat(len.min(255));
        fs::write(source.path().join(&name), &name).unwrap();
        fs::hard_link(source.path().join(&name), source.path().join(format!("link-{len}"))).unwrap();
    }
    symlink(OsStr::from_bytes(&[b"\xff-\xfe/".to_vec(), vec![b'u'; 200]].concat()), source.path().join("s")).unwrap();
    fs::hard_link(source.path().join("s"), source.path().join("s2")).unwrap();
    check_round_trip(source.path());
}

#[test]
fn times_before_1970_after_2242_and_between_seconds() {
    let source = tempfile::tempdir().unwrap();
    let times: [(i64, i64); 12] = [
        (0, 0),
        (0, 1),
        (1, 999_999_999),
        (-1, 0),
        (-1, 500_000_000),
        (-1, 1),
        (-2_000_000_000, 123_456_789),
        (1_700_000_000, 100),
        (0o777_7777_7777, 0),
        (0o1000_0000_0000, 0),
        (0o1000_0000_0000, 7),
        (4_294_967_296, 0),
    ];
    for (seconds, nanoseconds) in times {
        let path = source.path().join(format!("{seconds}.{nanoseconds}"));
        fs::write(&path, "x").unwrap();
        set_time(&path, seconds, nanoseconds);
        // What the file system kept of it; ext4 ends in 2446.
        let metadata = fs::metadata(&path).unwrap();
        let (sinks, _) = read_tree(&path, 1, 65_536);
        let expected = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
        assert_eq!(sinks[0].entries[0].mtime_ns, expected);
    }
    check_with(source.path(), &[("tar", extract_plain)]);
    // bsdtar adds the fraction of a time before 1970 instead of subtracting it.
    for name in ["-1.500000000", "-1.1", "-2000000000.123456789"] {
        fs::remove_file(source.path().join(name)).unwrap();
    }
    check_round_trip(source.path());
}

#[test]
fn modes_owners_and_special_files() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    for mode in [0o000, 0o400, 0o644, 0o4755, 0o2755, 0o1777, 0o7777] {
        let path = root.join(format!("mode-{mode:o}"));
        fs::write(&path, "x").unwrap();
        if is_root() {
            chown(&path, Some(mode * 1_000), Some(mode * 2_000)).unwrap();
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o400)).unwrap();
    }
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    if is_root() {
        for (name, uid) in
            [("owner-largest", u32::MAX - 1), ("owner-octal", 0o7_777_777), ("owner-above", 0o10_000_000)]
        {
            fs::write(root.join(name), "x").unwrap();
            chown(root.join(name), Some(uid), Some(uid)).unwrap();
        }
        for (name, file_type) in [("char", FileType::CharacterDevice), ("block", FileType::BlockDevice)] {
            mknodat(CWD, root.join(name), file_type, Mode::from_raw_mode(0o660), makedev(4_000, 1_000_000)).unwrap();
        }
    } else {
        eprintln!("not root: owners and devices are not tested");
    }
    check_round_trip(root);
}

#[test]
fn sockets_are_noted_and_left_out() {
    let source = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(source.path().join("socket")).unwrap();
    let (sinks, report) = read_tree(source.path(), 1, 65_536);
    assert_eq!(sinks[0].entries.len(), 1);
    assert_eq!(report.problems[0].kind, ProblemKind::Socket);
    assert_eq!(report.problem_counts, [1, 0, 0]);
}

#[test]
fn attributes_access_control_lists_and_capabilities() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    for name in ["few", "many", "acl", "capable"] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::create_dir(root.join("directory")).unwrap();
    let set = |name: &str, key: &str, value: &[u8]| setxattr(root.join(name), key, value, XattrFlags::empty()).unwrap();
    set("few", "user.empty", b"");
    set("few", "user.binary", &(0..=255).collect::<Vec<u8>>());
    set("few", "user.newline\n", b"a\nb");
    for number in 0..12 {
        set("many", &format!("user.{number}.{}", "n".repeat(200)), b"value");
    }
    set("directory", "user.large", &vec![7; 2_000]);
    run("setfacl", ["-m".as_ref(), "u:12345:r-x,g:54321:rwx,u:0:---".as_ref(), root.join("acl").as_os_str()]);
    run("setfacl", ["-m".as_ref(), "d:u:4000000:rwx,d:g::r-x".as_ref(), root.join("directory").as_os_str()]);
    if is_root() {
        // cap_net_raw+ep, in the form of version 2 (linux/capability.h).
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        set("capable", "security.capability", &capability);
        set("few", "trusted.secret", b"secret");
        symlink("few", root.join("link")).unwrap();
        rustix::fs::lsetxattr(root.join("link"), "trusted.of-link", b"of the link", XattrFlags::empty()).unwrap();
        mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
        run("setfacl", ["-m".as_ref(), "u:12345:r--".as_ref(), root.join("fifo").as_os_str()]);
    }
    let (sinks, report) = read_tree(root, 2, 262_088);
    assert_eq!(report.problem_counts, [0, 0, 0], "{:?}", report.problems);
    check_entries(&sinks);
    let target = tempfile::tempdir().unwrap();
    extract(&archive(&sinks), target.path());
    assert_eq!(differences(root, &below(target.path(), root)), "");
    // rsync compares lists of entries; getfattr shows every byte.
    let dump = |directory: &Path| {
        let list = format!("cd '{}' && getfattr -hdR -m- -e hex . | sort; getfacl -nR .", directory.display());
        String::from_utf8(run("sh", ["-c", &list])).unwrap()
    };
    assert_eq!(dump(&below(target.path(), root)), dump(root));
}

#[test]
fn attribute_names_with_equals_and_percent_reach_gnu_tar() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("file");
    fs::write(&path, "x").unwrap();
    setxattr(&path, "user.a=b%c", b"=%", XattrFlags::empty()).unwrap();
    let (sinks, _) = read_tree(source.path(), 1, 65_536);
    let target = tempfile::tempdir().unwrap();
    extract(&archive(&sinks), target.path());
    let mut value = [0; 10];
    let len = rustix::fs::getxattr(below(target.path(), &path), "user.a=b%c", &mut value[..]).unwrap();
    assert_eq!(&value[..len], b"=%");
}

#[test]
fn holes_stay_holes() {
    const MIB: u64 = 1 << 20;
    let source = tempfile::tempdir().unwrap();
    let sparse = |name: &str, size: u64, data: &[(u64, u64)]| {
        let file = File::create(source.path().join(name)).unwrap();
        file.set_len(size).unwrap();
        for &(offset, len) in data {
            let bytes: Vec<u8> = (0..len).map(|at| ((offset + at) % 251) as u8 | 1).collect();
            file.write_all_at(&bytes, offset).unwrap();
        }
    };
    sparse("all-hole", 10 * MIB + 7, &[]);
    sparse("data-first", 10 * MIB, &[(0, 5_000)]);
    sparse("data-last", 10 * MIB, &[(10 * MIB - 100, 100)]);
    sparse("data-between", 10 * MIB, &[(3 * MIB, 2 * MIB)]);
    sparse("beyond-8-gib", 9 << 30, &[(0, 4_096), (8 << 30, MIB)]);
    let many: Vec<(u64, u64)> = (0..500).map(|number| (number * 65_536, 4_096)).collect();
    sparse("many", 500 * 65_536, &many);
    let long = format!("{}/{}", "d".repeat(200), "n".repeat(200));
    fs::create_dir(source.path().join("d".repeat(200))).unwrap();
    sparse(&long, 3 * MIB, &[(MIB, 10)]);
    let (sinks, _) = read_tree(source.path(), 1, 262_088);
    check_entries(&sinks);
    for name in ["all-hole", "data-first", "data-last", "data-between", "many"] {
        let entry = entry(&sinks, name);
        let content = fs::read(source.path().join(name)).unwrap();
        assert!(entry.flags.contains(EntryFlags::SPARSE), "{name}");
        assert_eq!(
            entry.crc,
            capstan_format::crc32c(&content),
            "{name}: the checksum is that of the content with its holes"
        );
        assert!(entry.member_len < content.len() as u64, "{name}");
    }
    let archive = archive(&sinks);
    for extract in [extract as Extract, extract_bsdtar] {
        let target = tempfile::tempdir().unwrap();
        extract(&archive, target.path());
        let restored = below(target.path(), source.path());
        // Nine gigabytes of holes are compared by what is in them.
        let large = File::open(restored.join("beyond-8-gib")).unwrap();
        let mut bytes = vec![0; MIB as usize];
        large.read_exact_at(&mut bytes, 8 << 30).unwrap();
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == (((8 << 30) + at as u64) % 251) as u8 | 1));
        let metadata = large.metadata().unwrap();
        assert_eq!(metadata.len(), 9 << 30);
        assert!(metadata.blocks() * 512 < 64 * MIB, "it is sparse again");
        fs::remove_file(restored.join("beyond-8-gib")).unwrap();
        let held = source.path().join("beyond-8-gib");
        let aside =
            source.path().parent().unwrap().join(format!("{}-aside", source.path().file_name().unwrap().display()));
        fs::rename(&held, &aside).unwrap();
        set_time(source.path(), 1, 0);
        set_time(&restored, 1, 0);
        assert_eq!(differences(source.path(), &restored), "");
        fs::rename(&aside, &held).unwrap();
    }
}

/// A file that is full of data and longer than eleven octal digits can say; only the header is looked at.
#[test]
fn sizes_from_8_gib_on_are_in_a_record() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("large");
    let file = File::create(&path).unwrap();
    // Without holes in its map the file is read as it is; the end of the run after the header saves reading 8 GiB.
    file.set_len(8 << 30).unwrap();
    let mut out = Vec::new();
    let member = capstan_format::pax::Member {
        path: b"large",
        kind: EntryKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        user: b"",
        group: b"",
        size: 8 << 30,
        mtime_ns: 0,
        link: b"",
        device: (0, 0),
        records: b"",
        extents: None,
    };
    capstan_format::pax::encode(&member, &mut out);
    let listed = std::process::Command::new("tar")
        .args(["-tvf", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .and_then(|mut child| {
            use std::io::Write;
            child.stdin.take().unwrap().write_all(&out)?;
            child.wait_with_output()
        })
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains(" 8589934592 "), "{listed:?}");
}

#[test]
fn access_times_are_left_alone() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("file");
    fs::write(&path, "content").unwrap();
    let old = SystemTime::now() - Duration::from_secs(10 * 86_400);
    let times = fs::FileTimes::new().set_accessed(old).set_modified(old);
    File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let before = fs::metadata(&path).unwrap().atime();
    read_tree(source.path(), 1, 65_536);
    assert_eq!(fs::metadata(&path).unwrap().atime(), before);
}

#[test]
fn gnu_tar_lists_what_the_entries_say() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("file"), "12345").unwrap();
    fs::set_permissions(source.path().join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    set_time(&source.path().join("file"), 1_000_000_000, 0);
    let (sinks, _) = read_tree(&source.path().join("file"), 1, 65_536);
    let listed = feed("tar", ["--numeric-owner", "--full-time", "-tvf", "-"], &archive(&sinks));
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.starts_with("-rw-r-----"), "{listed}");
    assert!(listed.contains(" 5 2001-09-09 01:46:40 "), "{listed}");
}
