//! Trees packed by other programs, restored by ours, compared by yet another.

use std::fs;
use std::io::BufReader;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use capstan_format::EntryKind;
use capstan_format::pax::{DataExtent, Member, encode, padding};

use capstan_mover::extract::{
    DeviceNodes, ExtractOptions, ExtractProblemKind, ExtractReport, MemberChoice, MemberOutcome, MemberReader,
    Overwrite, Owners, Piece, RestoreTarget,
};

use crate::torture::{SPARSE, blocks, differences, is_root, output, plant, skipped, snapshot};

const GNU_TAR: [&str; 9] =
    ["--format=pax", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--sparse", "-cf", "-", "."];

fn options() -> ExtractOptions {
    ExtractOptions { devices: DeviceNodes::Create, owners: Owners::Restore, ..ExtractOptions::default() }
}

fn extract(stream: &[u8], buffer_len: usize, to: &Path, options: ExtractOptions) -> ExtractReport {
    let target = RestoreTarget::new(to, options).unwrap();
    let mut stream = BufReader::with_capacity(buffer_len, stream);
    target.extractor().extract(&mut stream, &mut |_| MemberChoice::Take, &mut |_| ()).unwrap();
    target.finish().unwrap()
}

#[test]
fn gnu_tar_with_everything() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    plant(&from);
    let stream = output("tar", &GNU_TAR, &from);
    // Odd buffers make headers, maps and content straddle them.
    for buffer_len in [1 << 20, 4_099] {
        let report = extract(&stream, buffer_len, &to, options());
        assert!(report.problems.is_empty(), "{:#?}", report.problems);
        assert_eq!(differences(&from, &to), "");
        assert!(blocks(&to, &SPARSE) <= blocks(&from, &SPARSE) + 64, "holes were filled");
        assert_eq!((report.hard_links, report.symlinks), (3, 3));
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn bsdtar_with_everything() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    plant(&from);
    // libarchive writes -999.5 s as -1000.5, which every reader takes for what it says.
    fs::File::open(from.join("empty")).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let stream = output("bsdtar", &["--format=pax", "--xattrs", "--acls", "--numeric-owner", "-cf", "-", "."], &from);
    let report = extract(&stream, 1 << 16, &to, options());
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!(differences(&from, &to), "");
}

#[test]
fn the_tar_crate_with_long_names() {
    let mut builder = tar::Builder::new(Vec::new());
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(200));
    for (path, content) in [(long.as_str(), "long"), ("short", "short")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o640);
        builder.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    builder.append_link(&mut header, "link", "t".repeat(150)).unwrap();
    let to = tempfile::tempdir().unwrap();
    let report = extract(&builder.into_inner().unwrap(), 1 << 16, to.path(), ExtractOptions::default());
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!(fs::read(to.path().join(&long)).unwrap(), b"long");
    assert_eq!(fs::read_link(to.path().join("link")).unwrap(), Path::new(&"t".repeat(150)));
}

#[test]
fn members_split_over_streams_in_any_order() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    plant(&from);
    let stream = output("tar", &GNU_TAR, &from);
    let mut members = Vec::new();
    let mut reader = MemberReader::new(&stream[..]);
    while let Some((head, _)) = reader.next().unwrap() {
        members.push(head.offset as usize..(head.offset + head.member_len()) as usize);
    }
    // Children before their directories, links before their files, round robin over four threads.
    members.reverse();
    let target = RestoreTarget::new(&to, ExtractOptions { deferred_bytes_max: 500, ..options() }).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let members = members.iter().skip(thread).step_by(4);
            let mut part: Vec<u8> = members.flat_map(|range| &stream[range.clone()]).copied().collect();
            if thread % 2 == 0 {
                part.extend_from_slice(&[0; 1024]);
            }
            let target = &target;
            scope.spawn(move || {
                target.extractor().extract(&mut &part[..], &mut |_| MemberChoice::Take, &mut |_| ()).unwrap();
            });
        }
    });
    let report = target.finish().unwrap();
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!(differences(&from, &to), "");
}

#[test]
fn checksums_count_holes_as_zeros_and_copies_write_them() {
    let directory = tempfile::tempdir().unwrap();
    let from = directory.path().join("from");
    fs::create_dir(&from).unwrap();
    plant(&from);
    fs::remove_file(from.join("hole last")).unwrap();
    let stream = output("tar", &GNU_TAR, &from);
    let target = RestoreTarget::new(&directory.path().join("to"), options()).unwrap();
    let mut checked = 0;
    let mut done = |member: &capstan_mover::extract::MemberDone<'_>| {
        let Some(crc) = member.crc else { return };
        let path = std::str::from_utf8(member.path).unwrap_or_default();
        if let Ok(content) = fs::read(from.join(path)) {
            assert_eq!(crc, capstan_format::crc32c(&content), "{path}");
            checked += 1;
        }
    };
    target.extractor().extract(&mut &stream[..], &mut |_| MemberChoice::Take, &mut done).unwrap();
    assert!(checked > 15);

    let mut reader = MemberReader::new(&stream[..]);
    while let Some((head, mut content)) = reader.next().unwrap() {
        if head.header.path == b"./sparse" {
            assert_eq!(content.next_piece().unwrap(), Some(Piece::Hole { offset: 0, len: 1 << 20 }));
        }
        if head.header.path == b"./hole first" {
            let mut out = Vec::new();
            assert_eq!(content.copy_to(&mut out).unwrap(), (4 << 20) + 3);
            assert!(out == fs::read(from.join("hole first")).unwrap());
        }
    }
}

#[test]
fn what_exists_is_left_compared_or_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    plant(&from);
    let stream = output("tar", &GNU_TAR, &from);
    extract(&stream, 1 << 20, &to, options());

    let again = |overwrite| extract(&stream, 1 << 20, &to, ExtractOptions { overwrite, ..options() });
    fs::write(to.join("small"), b"other").unwrap();
    fs::write(to.join("empty directory/third name"), b"other").unwrap();
    let report = again(Overwrite::Never);
    assert_eq!((report.files, report.symlinks, report.nodes, report.directories), (0, 0, 0, 0));
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!(report.differing, 1, "further names of it are unchanged names of it");
    assert_eq!(fs::read(to.join("small")).unwrap(), b"other");

    let report = again(Overwrite::Changed);
    assert_eq!(report.files, 1, "only the file that was changed");
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_eq!(differences(&from, &to), "");

    let inode = |name| fs::metadata(to.join(name)).unwrap().ino();
    let before = inode("large");
    let report = again(Overwrite::Always);
    assert!(report.files > 15);
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    assert_ne!(inode("large"), before, "replaced, not written over");
    assert_eq!(differences(&from, &to), "");
}

#[test]
fn a_selection_under_other_names() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    plant(&from);
    let stream = output("tar", &GNU_TAR, &from);
    let target = RestoreTarget::new(&to, options()).unwrap();
    let mut choose = |path: &[u8]| match path {
        b"./small" => MemberChoice::TakeAs(b"new/place".to_vec()),
        b"./another name" => MemberChoice::Take,
        _ => MemberChoice::Skip,
    };
    let mut outcomes = Vec::new();
    let mut done = |member: &capstan_mover::extract::MemberDone<'_>| {
        if member.outcome != MemberOutcome::NotWanted {
            outcomes.push((member.path.to_vec(), member.outcome));
        }
    };
    target.extractor().extract(&mut &stream[..], &mut choose, &mut done).unwrap();
    let report = target.finish().unwrap();
    assert_eq!(outcomes.len(), 2);
    let names: Vec<_> = snapshot(&to).into_iter().map(|(name, mode, _)| (name, mode & 0o7777)).collect();
    // Whichever of the two tar met first is the file, the other one the link.
    if outcomes.iter().any(|(path, outcome)| path == b"./small" && *outcome == MemberOutcome::Written) {
        assert_eq!(report.problems, []);
        fs::create_dir(directory.path().join("made")).unwrap();
        let new = fs::metadata(directory.path().join("made")).unwrap().mode() & 0o7777;
        assert_eq!(names, [("another name".into(), 0o644), ("new".into(), new), ("place".into(), 0o644)]);
    } else {
        assert!(report.problems.iter().all(|problem| problem.kind == ExtractProblemKind::LinkTarget));
    }
}

#[test]
fn a_hard_link_without_its_file_says_so() {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Link);
    header.set_size(0);
    header.set_mode(0o644);
    builder.append_link(&mut header, "name", "elsewhere/file").unwrap();
    let to = tempfile::tempdir().unwrap();
    let report = extract(&builder.into_inner().unwrap(), 1 << 16, to.path(), options());
    assert_eq!(report.problems[0].kind, ExtractProblemKind::LinkTarget);
    assert!(report.problems[0].reason.contains("elsewhere/file"));
}

#[test]
fn devices_are_made_only_when_asked_for() {
    if !is_root() {
        skipped("only root makes devices");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    plant(&from);
    let stream = output("tar", &GNU_TAR, &from);
    let report = extract(&stream, 1 << 20, &to, ExtractOptions::default());
    let refused = report.problems.iter().filter(|problem| problem.kind == ExtractProblemKind::Device).count();
    assert_eq!((refused, report.problems.len()), (2, 2));
    assert!(!to.join("null device").exists() && !to.join("large numbers").exists());
}

/// What the programs above cannot pack: a path of 12,000 bytes, a hard link to a pipe, a sparse file of 10 TiB.
#[test]
fn what_only_our_own_streams_hold() {
    let mut stream = Vec::new();
    let mut put = |path: &[u8], kind, size, link: &[u8], extents, content: &[u8]| {
        let (user, group, records, device) = (&b""[..], &b""[..], &b""[..], (0, 0));
        let (mode, uid, gid, mtime_ns) = (0o640, 0, 0, 1_600_000_000_000_000_007);
        let member = Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents };
        encode(&member, &mut stream);
        stream.extend_from_slice(content);
        stream.resize(stream.len() + padding(content.len() as u64), 0);
    };
    let deep = ["d".repeat(255).as_bytes(), b"/"].concat().repeat(47);
    let long = [&deep[..], "f".repeat(255).as_bytes()].concat();
    put(&long, EntryKind::File, 5, b"", None, b"hello");
    put(b"short", EntryKind::HardLink, 0, &long, None, b"");
    put(b"fifo", EntryKind::Fifo, 0, b"", None, b"");
    put(b"fifo again", EntryKind::HardLink, 0, b"fifo", None, b"");
    let extents = [DataExtent { offset: 9 << 40, len: 4 }];
    put(b"huge", EntryKind::File, 10 << 40, b"", Some(&extents[..]), b"data");
    let to = tempfile::tempdir().unwrap();
    let report = extract(&stream, 999, to.path(), ExtractOptions::default());
    assert!(report.problems.is_empty(), "{:#?}", report.problems);
    let metadata = |name: &str| fs::metadata(to.path().join(name)).unwrap();
    assert_eq!((metadata("short").nlink(), metadata("short").size()), (2, 5));
    assert_eq!((metadata("short").mode() & 0o7777, metadata("short").mtime_nsec()), (0o640, 7));
    assert_eq!(metadata("fifo").ino(), metadata("fifo again").ino());
    assert!(metadata("huge").size() == 10 << 40 && metadata("huge").blocks() < 64);
    let mut data = [0; 6];
    fs::File::open(to.path().join("huge")).unwrap().read_exact_at(&mut data, (9 << 40) - 1).unwrap();
    assert_eq!(&data, b"\0data\0");
}
