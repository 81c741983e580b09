//! Devices by ranges, and streams by segments.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use capstan_format::{EntryFlags, crc32c};
use capstan_mover::{DeviceSource, Progress, Severity, SourceError, StreamSource};

use super::collect::{Collect, archive, below, extract, feed, is_root, run};

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn an_image_is_one_member_however_many_connections_read_it() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("image");
    for len in [0, 1, 5_000_000, 3 << 20, (7 << 20) + 511] {
        let content = noise(len);
        fs::write(&path, &content).unwrap();
        for connections in [1u16, 2, 5] {
            let mut sinks: Vec<_> = (0..connections).map(|number| Collect::new(number, 262_088)).collect();
            let device = DeviceSource::open(&path).unwrap();
            let progress = Progress::new();
            let report = device.run(&mut sinks, &progress).unwrap();
            assert_eq!((report.files, report.bytes, progress.bytes()), (1, len as u64, len as u64));
            let archive = archive(&sinks);
            let entries: Vec<_> = sinks.iter().flat_map(|sink| &sink.entries).collect();
            let [entry] = entries[..] else { panic!("one entry: {entries:?}") };
            assert_eq!((entry.connection, entry.offset, entry.member_len), (0, 0, archive.len() as u64 - 1024));
            assert_eq!((entry.size, entry.crc), (len as u64, crc32c(&content)));
            let target = tempfile::tempdir().unwrap();
            extract(&archive, target.path());
            assert!(
                fs::read(below(target.path(), &path)).unwrap() == content,
                "{len} bytes, {connections} connections"
            );
        }
    }
}

/// A large file that is a source by itself came back without its attributes, and nobody heard that it was in use.
#[test]
fn an_image_has_its_attributes_and_says_that_it_was_written_to() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("image");
    fs::write(&path, noise(3 << 20)).unwrap();
    if rustix::fs::setxattr(&path, c"user.of", b"ada", rustix::fs::XattrFlags::empty()).is_err() {
        return eprintln!("no attributes here: they are not tested");
    }
    let device = DeviceSource::open(&path).unwrap();
    let mut sinks = [Collect::new(0, 262_088)];
    let report = device.run(&mut sinks, &Progress::new()).unwrap();
    assert_eq!((report.problem_counts, sinks[0].entries[0].flags), ([0, 0, 0], EntryFlags::default()));
    let target = tempfile::tempdir().unwrap();
    extract(&archive(&sinks), target.path());
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(below(target.path(), &path), c"user.of", &mut value).unwrap();
    assert_eq!(&value[..len], b"ada");
    // Written to since it was opened.
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let mut sinks = [Collect::new(0, 262_088)];
    let report = device.run(&mut sinks, &Progress::new()).unwrap();
    assert_eq!(report.count(Severity::Unsteady), 1);
    assert!(sinks[0].entries[0].flags.contains(EntryFlags::GREW));
}

#[test]
fn what_was_exchanged_for_a_link_or_a_pipe_is_not_read_as_an_image() {
    let source = tempfile::tempdir().unwrap();
    let [file, link, pipe] = ["file", "link", "pipe"].map(|name| source.path().join(name));
    fs::write(&file, "of somebody else").unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    assert!(matches!(DeviceSource::open(&link), Err(SourceError::Open { .. })));
    assert!(matches!(DeviceSource::open(&pipe), Err(SourceError::NotADevice { .. })));
}

/// A loop device, let go of however the test ends.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path) -> Self {
        let shown = run("losetup", ["--find".as_ref(), "--show".as_ref(), image.as_os_str()]);
        Self(PathBuf::from(String::from_utf8(shown).unwrap().trim()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", ["--detach".as_ref(), self.0.as_os_str()]);
    }
}

#[test]
fn a_block_device_is_read_to_its_end_and_bad_sectors_do_not_end_it() {
    const LEN: usize = 8 << 20;
    if !is_root() {
        return eprintln!("not root: block devices are not tested");
    }
    let source = tempfile::tempdir().unwrap();
    let image = source.path().join("image");
    let content = noise(LEN);
    fs::write(&image, &content).unwrap();
    let device = Loop::new(&image);
    let read = || {
        let mut sinks: Vec<_> = (0..2).map(|number| Collect::new(number, 262_088)).collect();
        let report = DeviceSource::open(&device.0).unwrap().run(&mut sinks, &Progress::new()).unwrap();
        let archive = archive(&sinks);
        let entry = sinks.pop().unwrap().entries.remove(0);
        // The member ends with the content, which is a multiple of the block, and the end of the archive.
        let stored = archive[archive.len() - 1024 - LEN..archive.len() - 1024].to_vec();
        assert_eq!((entry.size, entry.crc), (LEN as u64, crc32c(&stored)));
        (stored, entry, report)
    };
    let (stored, entry, report) = read();
    assert!(stored == content);
    assert_eq!((entry.flags, report.problem_counts), (EntryFlags::default(), [0, 0, 0]));
    // The medium loses a quarter: each read there fails.
    fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(6 << 20).unwrap();
    run("blockdev", ["--flushbufs".as_ref(), device.0.as_os_str()]);
    let (stored, entry, report) = read();
    assert!(stored[..6 << 20] == content[..6 << 20]);
    assert!(stored[6 << 20..].iter().all(|&byte| byte == 0));
    assert_eq!((entry.flags, report.count(Severity::Loss)), (EntryFlags::UNREADABLE, 1));
}

#[test]
fn only_devices_and_images_are_read_as_such() {
    let source = tempfile::tempdir().unwrap();
    assert!(matches!(DeviceSource::open(source.path()), Err(SourceError::NotADevice { .. })));
    assert!(matches!(DeviceSource::open(&source.path().join("missing")), Err(SourceError::Open { .. })));
}

/// Reads in short and uneven pieces, as a pipe does.
struct Pieces<'a> {
    left: &'a [u8],
    turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(5) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = (self.turn * 7_919 % 65_536 + 1).min(buffer.len());
        self.left.read(&mut buffer[..len])
    }
}

#[test]
fn a_stream_is_one_entry_and_its_segments_give_it_back() {
    const SEGMENT_LEN: usize = 32 << 20;
    for (len, segments) in [(0, 1), (1, 1), (SEGMENT_LEN, 1), (SEGMENT_LEN + 1, 2), (2 * SEGMENT_LEN + 12_345, 3)] {
        let content = noise(len);
        let mut sink = Collect::new(0, 262_088);
        let reader = Pieces { left: &content, turn: 0 };
        let report = StreamSource::new("dumps/nightly.sql", reader, 5_000_000_000)
            .unwrap()
            .run(&mut sink, &Progress::new())
            .unwrap();
        assert_eq!((report.files, report.bytes), (1, len as u64));
        let [entry] = &sink.entries[..] else { panic!("one entry") };
        assert_eq!(entry.path, b"dumps/nightly.sql");
        assert_eq!((entry.size, entry.crc, entry.mtime_ns), (len as u64, crc32c(&content), 5_000_000_000));
        assert_eq!((entry.offset, entry.member_len), (0, sink.bytes.len() as u64));
        let archive = archive(&[sink]);
        let listed = String::from_utf8(feed("tar", ["-tf", "-"], &archive)).unwrap();
        assert_eq!(listed.lines().count(), segments);
        assert!(segments > 1 || listed == "dumps/nightly.sql\n", "a stream of one segment has its own name");
        let target = tempfile::tempdir().unwrap();
        extract(&archive, target.path());
        let mut joined = Vec::new();
        for name in listed.lines() {
            joined.extend_from_slice(&fs::read(target.path().join(name)).unwrap());
        }
        assert!(joined == content, "{len} bytes");
    }
}

#[test]
fn a_stream_that_breaks_off_is_an_error_and_leaves_no_entry() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let _ = buffer;
            Err(io::Error::other("the writer died"))
        }
    }
    let mut sink = Collect::new(0, 65_536);
    let content = noise(100_000);
    let error =
        StreamSource::new("dump", content.chain(Broken), 0).unwrap().run(&mut sink, &Progress::new()).unwrap_err();
    assert!(error.to_string().contains("dump"), "{error}");
    assert!(sink.entries.is_empty());
    let named = StreamSource::new("../dump", io::empty(), 0);
    assert!(matches!(named, Err(SourceError::Path { .. })));
}
