//! Files that change under the reader: each change is made at a known moment, when the stream asks for space.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::{EntryFlags, EntryKind, crc32c};
use capstan_mover::{ProblemKind, Progress, Severity, SourceReport, TreeOptions, TreeSource};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::collect::{Collect, archive, below, check_entries, entry, extract};

/// Reads a tree on one connection and does something once the stream has reached a position.
fn read_while(root: &Path, at: u64, act: impl Fn() + Send + 'static) -> (Vec<Collect>, SourceReport) {
    let done = AtomicBool::new(false);
    let hook = move |position| {
        if position >= at && !done.swap(true, Ordering::Relaxed) {
            act();
        }
        Ok(())
    };
    let tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks = vec![Collect::with_hook(0, 65_536, hook)];
    let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
    check_entries(&sinks);
    (sinks, report)
}

fn kinds(report: &SourceReport) -> Vec<ProblemKind> {
    report.problems.iter().map(|problem| problem.kind).collect()
}

fn tree_with(len: usize) -> (tempfile::TempDir, PathBuf) {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("file");
    fs::write(&path, vec![b'x'; len]).unwrap();
    (source, path)
}

#[test]
fn a_small_file_that_grows_is_stored_at_its_first_length() {
    let (source, path) = tree_with(1_000);
    let appended = path.clone();
    let (sinks, report) = read_while(source.path(), 0, move || {
        OpenOptions::new().append(true).open(&appended).unwrap().write_all(b"more").unwrap();
    });
    let entry = entry(&sinks, "/file");
    assert_eq!((entry.size, entry.flags, entry.crc), (1_000, EntryFlags::GREW, crc32c(&[b'x'; 1_000])));
    assert_eq!(kinds(&report), [ProblemKind::Grew]);
}

#[test]
fn a_large_file_that_grows_is_stored_at_its_first_length() {
    let (source, path) = tree_with(1_000_000);
    let appended = path.clone();
    let (sinks, report) = read_while(source.path(), 500_000, move || {
        OpenOptions::new().append(true).open(&appended).unwrap().write_all(&[b'y'; 100_000]).unwrap();
    });
    let entry = entry(&sinks, "/file");
    assert_eq!((entry.size, entry.crc), (1_000_000, crc32c(&vec![b'x'; 1_000_000])));
    assert!(entry.flags.contains(EntryFlags::GREW));
    assert_eq!(kinds(&report), [ProblemKind::Grew]);
}

#[test]
fn zeros_stand_for_what_a_file_lost() {
    for (len, at, left) in [(1_000, 0, 300), (1_000, 0, 0), (1_000_000, 500_000, 400_000), (1_000_000, 1, 999_999)] {
        let (source, path) = tree_with(len);
        let cut = path.clone();
        let (sinks, report) = read_while(source.path(), at, move || {
            OpenOptions::new().write(true).open(&cut).unwrap().set_len(left).unwrap();
        });
        let entry = entry(&sinks, "/file");
        assert!(entry.flags.contains(EntryFlags::SHRANK), "{len} cut to {left} at {at}");
        assert_eq!(entry.size, len as u64);
        assert_eq!(kinds(&report), [ProblemKind::Shrank]);
        let target = tempfile::tempdir().unwrap();
        extract(&archive(&sinks), target.path());
        let restored = fs::read(below(target.path(), &path)).unwrap();
        assert_eq!((restored.len(), crc32c(&restored)), (len, entry.crc));
        assert!(restored.iter().all(|byte| matches!(byte, b'x' | 0)));
        assert!(restored.iter().take(left as usize).all(|&byte| byte == b'x'));
    }
}

#[test]
fn a_file_written_to_in_place_is_marked() {
    let (source, path) = tree_with(1_000_000);
    let (sinks, report) = read_while(source.path(), 500_000, move || {
        OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"yyyy", 10).unwrap();
    });
    assert_eq!(entry(&sinks, "/file").flags, EntryFlags::CHANGED);
    assert_eq!(kinds(&report), [ProblemKind::Changed]);
    assert_eq!(report.problem_counts, [0, 1, 0]);
}

/// Writes files, and returns the paths of the two that are opened last: files are read in the order of their inodes.
fn many_files(directory: &Path) -> [PathBuf; 2] {
    let mut files: Vec<_> = (0..500)
        .map(|number| {
            let path = directory.join(format!("file-{number}"));
            fs::write(&path, "content").unwrap();
            (fs::metadata(&path).unwrap().ino(), path)
        })
        .collect();
    files.sort();
    [files.remove(499).1, files.remove(498).1]
}

fn name(path: &Path) -> String {
    format!("/{}", path.file_name().unwrap().display())
}

#[test]
fn what_is_gone_before_it_is_opened_has_an_entry_and_no_member() {
    let source = tempfile::tempdir().unwrap();
    let [last, _] = many_files(source.path());
    for directory in ["d1", "d2", "d3"] {
        fs::create_dir(source.path().join(directory)).unwrap();
    }
    let (root, removed) = (source.path().to_owned(), last.clone());
    let (sinks, report) = read_while(source.path(), 0, move || {
        // Listed, but in a later batch than the one that is open now.
        fs::remove_file(&removed).unwrap();
        fs::remove_dir(root.join("d3")).unwrap();
    });
    for name in [&*name(&last), "/d3"] {
        let entry = entry(&sinks, name);
        assert_eq!((entry.flags, entry.member_len), (EntryFlags::VANISHED, 0));
    }
    assert_eq!(kinds(&report), [ProblemKind::Vanished; 2]);
    assert_eq!((report.files, report.directories), (499, 3));
}

#[test]
fn what_is_exchanged_before_it_is_opened_is_not_followed() {
    let source = tempfile::tempdir().unwrap();
    let [last, before] = many_files(source.path());
    let (first, second) = (name(&before), name(&last));
    fs::create_dir(source.path().join("directory")).unwrap();
    let root = source.path().to_owned();
    let (sinks, _) = read_while(source.path(), 0, move || {
        fs::remove_file(&before).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &before).unwrap();
        fs::remove_file(&last).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &last, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        fs::remove_dir(root.join("directory")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("directory")).unwrap();
    });
    assert_eq!(entry(&sinks, &first).kind, EntryKind::Symlink);
    assert_eq!(entry(&sinks, &second).kind, EntryKind::Fifo);
    assert_eq!(entry(&sinks, "/directory").kind, EntryKind::Symlink);
}

/// A writer that never stops: whatever is stored, the stream stays well formed and says what happened.
#[test]
fn a_tree_in_constant_change_still_gives_a_readable_stream() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("tree");
    fs::create_dir(&root).unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("f{number}")), vec![1; number * 100]).unwrap();
    }
    static STOP: AtomicBool = AtomicBool::new(false);
    let churned = root.clone();
    let writer = std::thread::spawn(move || {
        let mut number = 0usize;
        while !STOP.load(Ordering::Relaxed) {
            number = (number * 31 + 7) % 300;
            let path = churned.join(format!("f{number}"));
            match number % 4 {
                0 => drop(fs::remove_file(&path)),
                1 => drop(fs::write(&path, vec![2; number * 200])),
                2 => drop(fs::rename(&path, churned.join(format!("f{}", (number + 1) % 300)))),
                _ => drop(File::create(&path).and_then(|file| file.set_len(number as u64 * 50))),
            }
        }
    });
    for _ in 0..20 {
        let tree = TreeSource::new(std::slice::from_ref(&root), &TreeOptions::default()).unwrap();
        let mut sinks: Vec<_> = (0..2).map(|number| Collect::new(number, 16_384)).collect();
        let report = tree.run(&mut sinks, None, &Progress::new()).unwrap();
        check_entries(&sinks);
        assert_eq!(report.count(Severity::Loss), 0, "{:?}", report.problems);
    }
    STOP.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[test]
fn what_may_not_be_read_is_reported_and_the_rest_is_stored() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().to_owned();
    fs::write(root.join("secret"), "secret").unwrap();
    fs::create_dir(root.join("closed")).unwrap();
    fs::write(root.join("closed/inner"), "inner").unwrap();
    fs::write(root.join("open"), "open").unwrap();
    fs::create_dir_all(root.join("listed/below")).unwrap();
    fs::write(root.join("listed/file"), "what is in it can be listed and not opened").unwrap();
    fs::set_permissions(root.join("listed"), fs::Permissions::from_mode(0o400)).unwrap();
    for name in ["secret", "closed"] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o0)).unwrap();
    }
    // Root reads everything unless it lays that down; a thread may do so for itself and for those that it starts.
    let (sinks, report) = std::thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, sets).unwrap();
        read_while(&root, 0, || {})
    })
    .join()
    .unwrap();
    let mut kinds = kinds(&report);
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    let (unlisted, unreadable) = (ProblemKind::Unlisted(13), ProblemKind::Unreadable(13));
    assert_eq!(kinds, [unlisted, unlisted, unreadable, unreadable]);
    assert_eq!(report.count(Severity::Loss), 4);
    let secret = entry(&sinks, "/secret");
    assert_eq!((secret.flags, secret.member_len, secret.size), (EntryFlags::UNREADABLE, 0, 6));
    // A directory that could not be listed left no trace in the object, nor did what could not even be described.
    let closed = entry(&sinks, "/closed");
    assert_eq!((closed.kind, closed.flags), (EntryKind::Directory, EntryFlags::UNREADABLE));
    assert!(closed.member_len > 0, "what it is itself is stored");
    assert_eq!(entry(&sinks, "/listed").flags, EntryFlags::default());
    for (name, kind) in [("/listed/below", EntryKind::Directory), ("/listed/file", EntryKind::File)] {
        let entry = entry(&sinks, name);
        assert_eq!((entry.kind, entry.flags, entry.member_len), (kind, EntryFlags::UNREADABLE, 0), "{name}");
    }
    assert_eq!(entry(&sinks, "/open").crc, crc32c(b"open"));
    for name in ["closed", "listed"] {
        fs::set_permissions(source.path().join(name), fs::Permissions::from_mode(0o700)).unwrap();
    }
}
