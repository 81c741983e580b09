//! Streams that no honest writer makes. A fixture's name states its verdict:
//!
//! - `refused_...`: the member is listed as a problem and nothing of it is written;
//! - `harmless_...`: it may be written, but where it says and nowhere else;
//! - `stops_...`: the stream is abandoned with an error.
//!
//! Every fixture is extracted with every way of overwriting, into an empty target and into one that holds links leading
//! out, and beside it stands a directory in which nothing may change.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use capstan_format::EntryKind;
use capstan_format::pax::{BLOCK_LEN, DataExtent, Member, encode, padding, put_record};
use capstan_mover::extract::{
    DeviceNodes, ExtractError, ExtractOptions, ExtractProblemKind, ExtractReport, MemberChoice, Overwrite,
    RestoreTarget,
};

use crate::torture::snapshot;

/// A stream under construction.
#[derive(Default)]
struct Stream(Vec<u8>);

impl Stream {
    fn member(self, path: &[u8], kind: EntryKind, link: &[u8], content: &[u8]) -> Self {
        self.with_records(path, kind, link, content, &[])
    }

    fn with_records(mut self, path: &[u8], kind: EntryKind, link: &[u8], content: &[u8], records: &[u8]) -> Self {
        let (user, group, extents, device) = (&b""[..], &b""[..], None, (1, 3));
        let (uid, gid, mode, mtime_ns, size) = (0, 0, 0o4755, 1, content.len() as u64);
        encode(
            &Member { path, kind, mode, uid, gid, user, group, size, mtime_ns, link, device, records, extents },
            &mut self.0,
        );
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len() + padding(content.len() as u64), 0);
        self
    }

    fn file(self, path: &[u8]) -> Self {
        self.member(path, EntryKind::File, b"", b"hostile")
    }

    fn directory(self, path: &[u8]) -> Self {
        self.member(path, EntryKind::Directory, b"", b"")
    }

    fn symlink(self, path: &[u8], to: &[u8]) -> Self {
        self.member(path, EntryKind::Symlink, to, b"")
    }

    fn hard_link(self, path: &[u8], to: &[u8]) -> Self {
        self.member(path, EntryKind::HardLink, to, b"")
    }

    /// Bytes as they are, with the checksum of the last header made right.
    fn raw(mut self, edit: impl FnOnce(&mut Vec<u8>)) -> Self {
        edit(&mut self.0);
        self
    }
}

/// Makes the checksum of the header block at `at` right.
fn seal(bytes: &mut [u8], at: usize) {
    let block = &mut bytes[at..at + BLOCK_LEN];
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

/// A target with links that lead out of it, and the directory that they lead to.
struct Place {
    _directory: tempfile::TempDir,
    target: std::path::PathBuf,
    canary: std::path::PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Before {
    Empty,
    LinksOut,
}

impl Place {
    fn new(before: Before) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (target, canary) = (directory.path().join("target"), directory.path().join("canary"));
        fs::create_dir(&target).unwrap();
        fs::create_dir(&canary).unwrap();
        fs::create_dir(canary.join("directory")).unwrap();
        fs::write(canary.join("file"), b"precious").unwrap();
        fs::write(canary.join("directory/file"), b"precious").unwrap();
        if before == Before::LinksOut {
            symlink("../canary", target.join("out")).unwrap();
            symlink(canary.join("file"), target.join("file")).unwrap();
            symlink("../canary/new", target.join("dangling")).unwrap();
            fs::hard_link(canary.join("file"), target.join("shared")).unwrap();
        }
        Self { _directory: directory, target, canary }
    }
}

fn extract(stream: &[u8], to: &Path, options: ExtractOptions) -> Result<ExtractReport, ExtractError> {
    let target = RestoreTarget::new(to, options)?;
    let result = target.extractor().extract(&mut &stream[..], &mut |_| MemberChoice::Take, &mut |_| ());
    let report = target.finish()?;
    result.map(|()| report)
}

/// Extracts in every way and checks the canary; calls `check` with what came of it.
fn in_every_way(stream: &Stream, mut check: impl FnMut(Result<ExtractReport, ExtractError>, &Path, Before, Overwrite)) {
    for before in [Before::Empty, Before::LinksOut] {
        for overwrite in [Overwrite::Never, Overwrite::Changed, Overwrite::Always] {
            let place = Place::new(before);
            let expected = snapshot(&place.canary);
            let options = ExtractOptions { overwrite, devices: DeviceNodes::Create, ..ExtractOptions::default() };
            let result = extract(&stream.0, &place.target, options);
            assert_eq!(snapshot(&place.canary), expected, "{before:?} {overwrite:?}: the canary changed");
            let beside: Vec<_> = fs::read_dir(place.target.parent().unwrap()).unwrap().collect();
            assert_eq!(beside.len(), 2, "{before:?} {overwrite:?}: something was written beside the target");
            let left = fs::read_dir(&place.target).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with(".capstan")).collect();
            assert!(left.is_empty(), "{before:?} {overwrite:?}: {left:?} was left");
            check(result, &place.target, before, overwrite);
        }
    }
}

/// The last member is refused, whatever the target holds.
fn refused(stream: &Stream) {
    in_every_way(stream, |result, _, before, overwrite| {
        let report = result.unwrap();
        let kinds: Vec<_> = report.problems.iter().map(|problem| problem.kind).collect();
        assert!(kinds.contains(&ExtractProblemKind::Refused), "{before:?} {overwrite:?}: {:?}", report.problems);
    });
}

fn harmless(stream: &Stream) {
    in_every_way(stream, |result, _, _, _| {
        result.unwrap();
    });
}

fn stops(stream: &Stream) {
    in_every_way(stream, |result, target, before, _| {
        assert!(matches!(result, Err(ExtractError::Stream(_))), "{result:?}");
        if before == Before::Empty {
            assert_eq!(fs::read_dir(target).unwrap().count(), 0, "something half-made was left");
        }
    });
}

#[test]
fn refused_paths() {
    for path in [
        &b"../escape"[..],
        b"..",
        b"a/../../escape",
        b"a/..",
        b"/tmp/capstan-absolute-escape",
        b"//tmp/capstan-absolute-escape",
        b"a//b",
        b"a/./b",
        b"./../escape",
        b"",
    ] {
        refused(&Stream::default().file(path));
        refused(&Stream::default().symlink(path, b"x"));
        refused(&Stream::default().hard_link(path, b"file"));
        if !path.is_empty() {
            refused(&Stream::default().directory(path));
        }
    }
    assert!(!Path::new("/tmp/capstan-absolute-escape").exists());
}

#[test]
fn refused_path_with_nul() {
    let mut records = Vec::new();
    put_record(&mut records, b"path", b"name\0/../../escape");
    refused(&Stream::default().with_records(b"x", EntryKind::File, b"", b"hostile", &records));
    let mut records = Vec::new();
    put_record(&mut records, b"linkpath", b"to\0where");
    refused(&Stream::default().with_records(b"x", EntryKind::Symlink, b"x", b"", &records));
}

#[test]
fn refused_write_through_a_link_of_the_same_stream() {
    refused(&Stream::default().symlink(b"door", b"../canary").file(b"door/file"));
    refused(&Stream::default().symlink(b"door", b"../canary").file(b"door/directory/file"));
    refused(&Stream::default().symlink(b"door", b"../canary").directory(b"door/directory"));
    refused(&Stream::default().symlink(b"door", b"../canary").symlink(b"door/link", b"x"));
    refused(&Stream::default().symlink(b"door", b"../canary").member(b"door/fifo", EntryKind::Fifo, b"", b""));
    refused(&Stream::default().symlink(b"door", b"/proc/self/cwd").file(b"door/capstan-magic-escape"));
    refused(&Stream::default().symlink(b"a", b".").symlink(b"a/b", b"..").file(b"a/b/escape"));
}

#[test]
fn refused_hard_link_out_of_the_target() {
    refused(&Stream::default().hard_link(b"stolen", b"../canary/file"));
    refused(&Stream::default().hard_link(b"stolen", b"/etc/hostname"));
    refused(&Stream::default().symlink(b"door", b"../canary").hard_link(b"stolen", b"door/file"));
    refused(&Stream::default().symlink(b"door", b"../canary").hard_link(b"door/planted", b"door"));
    refused(&Stream::default().hard_link(b".", b"file"));
    refused(&Stream::default().hard_link(b"x", b"."));
}

#[test]
fn refused_file_in_place_of_the_target() {
    refused(&Stream::default().file(b"."));
    refused(&Stream::default().symlink(b"./", b"/"));
}

#[test]
fn harmless_file_over_a_link() {
    // What the links lead to is never touched; the name itself is replaced or kept.
    for name in [&b"file"[..], b"dangling", b"shared", b"out"] {
        let stream = Stream::default().file(name);
        in_every_way(&stream, |result, target, before, overwrite| {
            result.unwrap();
            let path = target.join(str::from_utf8(name).unwrap());
            let replaced = before == Before::Empty || overwrite != Overwrite::Never;
            assert_eq!(path.symlink_metadata().unwrap().is_file(), replaced || name == b"shared");
            if replaced {
                assert_eq!(fs::read(path).unwrap(), b"hostile");
            }
        });
    }
}

#[test]
fn harmless_directory_over_a_link() {
    let stream = Stream::default().directory(b"out").file(b"out/file");
    in_every_way(&stream, |result, target, before, overwrite| {
        let report = result.unwrap();
        if before == Before::Empty || overwrite == Overwrite::Always {
            assert!(target.join("out").symlink_metadata().unwrap().is_dir());
            assert_eq!(fs::read(target.join("out/file")).unwrap(), b"hostile");
        } else {
            assert_eq!(report.problems.len(), 2, "neither the directory nor what is in it");
        }
    });
}

#[test]
fn harmless_hard_link_to_a_symbolic_link_then_a_file() {
    harmless(
        &Stream::default()
            .symlink(b"link", b"../canary/file")
            .hard_link(b"second", b"link")
            .file(b"second")
            .file(b"link")
            .hard_link(b"link", b"second"),
    );
}

/// A link that followed would make one more name, inside, of a file outside.
#[test]
fn harmless_hard_link_is_to_the_link_and_not_to_what_it_points_to() {
    let stream = Stream::default().symlink(b"link", b"../canary/file").hard_link(b"second", b"link");
    in_every_way(&stream, |result, target, before, _| {
        result.unwrap();
        assert!(target.join("second").symlink_metadata().unwrap().is_symlink());
        if before == Before::Empty {
            let outside = fs::metadata(target.join("../canary/file")).unwrap();
            assert_eq!(std::os::unix::fs::MetadataExt::nlink(&outside), 1);
        }
    });
}

#[test]
fn harmless_duplicates() {
    let stream = Stream::default()
        .file(b"twice")
        .file(b"twice")
        .symlink(b"twice", b"../canary/file")
        .file(b"twice")
        .directory(b"d")
        .directory(b"d")
        .file(b"d")
        .symlink(b"d", b"../canary")
        .file(b"d/file")
        .member(b"twice", EntryKind::Fifo, b"", b"");
    in_every_way(&stream, |result, target, _, _| {
        result.unwrap();
        assert_eq!(fs::read(target.join("d/file")).unwrap(), b"hostile", "the directory stayed one");
    });
}

#[test]
fn harmless_directory_whose_mode_locks_it_before_its_files() {
    let stream = Stream::default().directory(b"a").directory(b"a/b").file(b"a/b/c");
    harmless(&stream.raw(|bytes| {
        for at in [0, 1536] {
            if bytes.len() > at + 2048 {
                bytes[at + 1024 + 100..at + 1024 + 107].copy_from_slice(b"0000000");
                seal(bytes, at + 1024);
            }
        }
    }));
}

#[test]
fn harmless_attributes_that_mean_nothing() {
    let mut records = Vec::new();
    put_record(&mut records, b"SCHILY.xattr.user.\0nul", b"x");
    put_record(&mut records, b"SCHILY.xattr.", b"x");
    put_record(&mut records, b"SCHILY.xattr.nonsense", &[0; 70_000]);
    put_record(&mut records, b"SCHILY.xattr.system.posix_acl_access", b"garbage");
    put_record(&mut records, b"SCHILY.acl.access", b"user::rwx,mask::x");
    put_record(&mut records, b"SCHILY.acl.default", b"user:bob:rwx");
    let stream = Stream::default().with_records(b"file-x", EntryKind::File, b"", b"content", &records);
    let stream = stream.with_records(b"directory-x", EntryKind::Directory, b"", b"", &records);
    let stream = stream.with_records(b"link-x", EntryKind::Symlink, b"nowhere", b"", &records);
    in_every_way(&stream, |result, target, _, _| {
        let report = result.unwrap();
        assert!(
            report.problems.iter().all(|problem| problem.kind == ExtractProblemKind::Metadata),
            "{:?}",
            report.problems
        );
        assert!(report.problems.len() > 8);
        assert_eq!(fs::read(target.join("file-x")).unwrap(), b"content");
    });
}

#[test]
fn harmless_depth() {
    // 12,000 bytes of path, three times what the kernel takes at once.
    let deep = [[b"d".repeat(119), b"/".to_vec()].concat().repeat(100), b"f".to_vec()].concat();
    harmless(&Stream::default().file(&deep).file(&deep).hard_link(b"short", &deep));
}

#[test]
fn refused_paths_too_long_for_anyone() {
    refused(&Stream::default().file(&[b"d/".repeat(200_000), b"f".to_vec()].concat()));
}

#[test]
fn stops_truncated_streams() {
    // A header with a long name, its records, the member's header, seven bytes of content.
    let whole = Stream::default().file(&b"n".repeat(200)).0;
    for len in [1, 511, 512, 513, 1024, 1535, 1536, 1537, 1542] {
        stops(&Stream(whole[..len].to_vec()));
    }
    for len in [1543, 1544, 2047] {
        in_every_way(&Stream(whole[..len].to_vec()), |result, target, _, _| {
            assert!(matches!(result, Err(ExtractError::Stream(_))));
            let content = fs::read(target.join("n".repeat(200))).unwrap();
            assert_eq!(content, b"hostile", "what is there is whole");
        });
    }
}

#[test]
fn stops_lengths_that_lie() {
    // A size of 2^63 - 1 and a header that promises megabytes that never come.
    let mut records = Vec::new();
    put_record(&mut records, b"size", b"9223372036854775807");
    stops(&Stream::default().with_records(b"f", EntryKind::File, b"", b"hostile", &records));
    let mut records = Vec::new();
    put_record(&mut records, b"size", b"18446744073709551615");
    stops(&Stream::default().with_records(b"f", EntryKind::File, b"", b"hostile", &records));
    stops(&Stream::default().file(b"f").raw(|bytes| {
        bytes[156] = b'x';
        bytes[124..136].copy_from_slice(b"77777777777\0");
        seal(bytes, 0);
    }));
    stops(&Stream::default().file(b"f").raw(|bytes| {
        bytes[156] = b'L';
        bytes[124..136].copy_from_slice(b"00077777777\0");
        seal(bytes, 0);
    }));
}

#[test]
fn stops_sparse_maps_that_lie() {
    for map in [
        "99999999999\n",
        "2\n0\n5\n3\n5\n",
        "1\n0\n99999\n",
        "1\n18446744073709551615\n10\n",
        "-1\n",
        "1\n0\n",
        "\n\n\n",
    ] {
        let mut records = Vec::new();
        put_record(&mut records, b"GNU.sparse.major", b"1");
        put_record(&mut records, b"GNU.sparse.minor", b"0");
        put_record(&mut records, b"GNU.sparse.name", b"sparse");
        put_record(&mut records, b"GNU.sparse.realsize", b"1000");
        let mut content = map.as_bytes().to_vec();
        content.resize(BLOCK_LEN + 10, 0);
        stops(&Stream::default().with_records(b"GNUSparseFile.0/x", EntryKind::File, b"", &content, &records));
    }
}

#[test]
fn harmless_sparse_file_larger_than_any_disk() {
    // 7 EiB is more than the file system takes: a problem of this file, or a file with a hole; never bytes written.
    let (user, group, records, link) = (&b""[..], &b""[..], &b""[..], &b""[..]);
    let extents = [DataExtent { offset: 0, len: 3 }];
    let mut bytes = Vec::new();
    let member = Member {
        path: b"huge",
        kind: EntryKind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        user,
        group,
        size: 7 << 60,
        mtime_ns: 0,
        link,
        device: (0, 0),
        records,
        extents: Some(&extents),
    };
    encode(&member, &mut bytes);
    bytes.extend_from_slice(b"abc");
    bytes.resize(bytes.len() + padding(3), 0);
    in_every_way(&Stream(bytes), |result, target, _, _| {
        let report = result.unwrap();
        if let Ok(metadata) = fs::metadata(target.join("huge")) {
            assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 100);
        } else {
            assert_eq!(report.problems[0].kind, ExtractProblemKind::NotWritten);
        }
    });
}

#[test]
fn harmless_thousands_of_attributes_and_directories_in_little_memory() {
    let mut records = Vec::new();
    for number in 0..16_000 {
        put_record(&mut records, format!("SCHILY.xattr.user.{number}").as_bytes(), b"");
    }
    let mut stream = Stream::default().with_records(b"attributes", EntryKind::Directory, b"", b"", &records);
    for number in 0..3_000 {
        stream = stream.directory(format!("d{number}").as_bytes());
    }
    let place = Place::new(Before::Empty);
    let options = ExtractOptions { deferred_bytes_max: 4_096, ..ExtractOptions::default() };
    let report = extract(&stream.0, &place.target, options).unwrap();
    assert_eq!(report.directories, 3_001);
    let kept: usize = report.problems.iter().map(|problem| problem.path.len() + problem.reason.len()).sum();
    assert!(kept < 8 << 20 && report.problems_count >= report.problems.len() as u64);
}

/// Each problem quotes what it is about; ten thousand quotations of a megabyte would be what a stream can make us keep.
#[test]
fn harmless_problems_that_quote_long_names() {
    let mut records = Vec::new();
    put_record(&mut records, &[b"SCHILY.xattr.user.", &b"\xff".repeat(100_000)[..]].concat(), b"");
    let mut stream = Stream::default();
    for number in 0..50 {
        let long = format!("{}/{number}", "d/".repeat(50_000));
        stream = stream.with_records(format!("f{number}").as_bytes(), EntryKind::File, b"", b"", &records);
        stream = stream.hard_link(format!("h{number}").as_bytes(), long.as_bytes());
        stream = stream.file(format!("../{long}").as_bytes());
    }
    let place = Place::new(Before::Empty);
    let report = extract(&stream.0, &place.target, ExtractOptions::default()).unwrap();
    assert_eq!(report.problems_count, 150);
    let kept: usize = report.problems.iter().map(|problem| problem.path.len() + problem.reason.len()).sum();
    assert!(kept < 150 * 5_200, "{kept} bytes");
}

#[test]
fn stops_too_many_attributes() {
    let mut records = Vec::new();
    for number in 0..17_000 {
        put_record(&mut records, format!("SCHILY.xattr.user.{number}").as_bytes(), b"");
    }
    stops(&Stream::default().with_records(b"attributes", EntryKind::File, b"", b"", &records));
}
