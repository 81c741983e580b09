//! Incrementals: what is new, changed, unchanged and gone.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use capstan_format::{EntryKind, FileEntry};
use capstan_mover::{Baseline, Metadata, Progress, SourceReport, TreeOptions, TreeSource, Verdict};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::collect::{Collect, check_entries, entries};

/// The state after some objects, as a catalog would keep it.
#[derive(Default)]
struct State {
    paths: Mutex<HashMap<Vec<u8>, (Metadata, bool)>>,
}

impl State {
    fn apply(&self, entries: &[FileEntry]) {
        let mut paths = self.paths.lock().unwrap();
        for entry in entries {
            let metadata = Metadata { size: entry.size, mtime_ns: entry.mtime_ns, change: entry.change };
            let is_link = entry.kind == EntryKind::HardLink;
            let metadata = if is_link { metadata.as_link_to(&entry.link) } else { metadata };
            match entry.kind {
                EntryKind::Deleted => assert!(paths.remove(&entry.path).is_some(), "only what was there is deleted"),
                _ => drop(paths.insert(entry.path.clone(), (metadata, false))),
            }
        }
        paths.values_mut().for_each(|(_, seen)| *seen = false);
    }
}

impl Baseline for State {
    fn compare(&self, path: &[u8], metadata: &Metadata) -> Verdict {
        match self.paths.lock().unwrap().get_mut(path) {
            None => Verdict::New,
            Some((known, seen)) => {
                *seen = true;
                if known == metadata { Verdict::Unchanged } else { Verdict::Changed }
            }
        }
    }

    fn for_each_missing(&self, found: &mut dyn FnMut(&[u8])) {
        let paths = self.paths.lock().unwrap();
        let mut missing: Vec<_> = paths.iter().filter(|(_, (_, seen))| !seen).map(|(path, _)| path).collect();
        missing.sort();
        missing.into_iter().for_each(|path| found(path));
    }
}

/// Runs an incremental and brings the state up to date; returns kinds and names below the root, in order.
fn step(root: &Path, state: &State) -> (Vec<(EntryKind, String)>, SourceReport) {
    step_over(2, root, state)
}

fn step_over(connections: u16, root: &Path, state: &State) -> (Vec<(EntryKind, String)>, SourceReport) {
    let tree = TreeSource::new(&[root.to_owned()], &TreeOptions::default()).unwrap();
    let mut sinks: Vec<_> = (0..connections).map(|number| Collect::new(number, 65_536)).collect();
    let report = tree.run(&mut sinks, Some(state), &Progress::new()).unwrap();
    check_entries(&sinks);
    let entries = entries(&sinks);
    state.apply(&entries);
    let prefix = root.as_os_str().len();
    let name = |entry: &FileEntry| String::from_utf8(entry.path[prefix.min(entry.path.len())..].to_vec()).unwrap();
    (entries.iter().map(|entry| (entry.kind, name(entry))).collect(), report)
}

fn pairs(expected: &[(EntryKind, &str)]) -> Vec<(EntryKind, String)> {
    expected.iter().map(|&(kind, name)| (kind, name.to_owned())).collect()
}

/// Of two change times within a second the fingerprint tells 255 of 256 apart (`change_fingerprint`), and of two within
/// a tick of the kernel's clock none; so each of these tests failed now and then.
fn let_a_second_pass() {
    std::thread::sleep(Duration::from_millis(1_010));
}

#[test]
fn each_kind_of_change_is_seen_and_nothing_else() {
    use EntryKind::{Deleted, Directory, File as Regular, HardLink, Symlink};
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::create_dir_all(root.join("d/e")).unwrap();
    for name in ["a", "b", "c", "d/f", "d/e/g"] {
        fs::write(root.join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("a", root.join("s")).unwrap();
    let state = State::default();
    let (found, report) = step(root, &state);
    assert_eq!((found.len(), report.files + report.others, report.directories, report.unchanged), (9, 6, 3, 0));

    let (found, report) = step(root, &state);
    assert_eq!((found, report.files, report.directories, report.unchanged), (vec![], 0, 0, 9));

    // Same size, and the time put back: the change time tells.
    let_a_second_pass();
    let times = fs::FileTimes::new().set_modified(fs::metadata(root.join("a")).unwrap().modified().unwrap());
    fs::write(root.join("a"), "A").unwrap();
    File::options().write(true).open(root.join("a")).unwrap().set_times(times).unwrap();
    fs::set_permissions(root.join("b"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(step(root, &state).0, pairs(&[(Regular, "a"), (Regular, "b")]));

    // A directory that moves is deleted and new, with all that is in it.
    fs::rename(root.join("d/e"), root.join("h")).unwrap();
    let expected =
        [(Directory, ""), (Directory, "d"), (Deleted, "d/e"), (Deleted, "d/e/g"), (Directory, "h"), (Regular, "h/g")];
    let (found, report) = step(root, &state);
    let found: Vec<_> = found.into_iter().map(|(kind, name)| (kind, name.trim_start_matches('/').to_owned())).collect();
    assert_eq!((found, report.deleted), (pairs(&expected), 2));

    // A further name changes the file that it names. Over several connections, another name may be met first each time,
    // and is the one with the content then.
    let step = |root, state| step_over(1, root, state);
    let_a_second_pass();
    fs::hard_link(root.join("b"), root.join("d/b2")).unwrap();
    let (found, _): (Vec<(EntryKind, String)>, SourceReport) = step(root, &state);
    let kinds: Vec<_> = found.iter().map(|(kind, name)| (*kind, name.trim_start_matches('/'))).collect();
    assert!(
        kinds == [(Regular, "b"), (Directory, "d"), (HardLink, "d/b2")]
            || kinds == [(HardLink, "b"), (Directory, "d"), (Regular, "d/b2")],
        "{kinds:?}"
    );
    assert_eq!(step(root, &state).0, vec![], "whichever name was met first");

    // A path that becomes something else.
    fs::remove_file(root.join("c")).unwrap();
    std::os::unix::fs::symlink("a", root.join("c")).unwrap();
    let (found, _) = step(root, &state);
    assert!(found.contains(&(Symlink, "c".to_owned())) || found.contains(&(Symlink, "/c".to_owned())), "{found:?}");
    assert_eq!(step(root, &state).0, vec![]);
}

#[test]
fn what_cannot_be_looked_into_keeps_its_state() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().to_owned();
    fs::create_dir_all(root.join("closed/below")).unwrap();
    fs::write(root.join("closed/below/file"), "x").unwrap();
    fs::write(root.join("closed-not"), "x").unwrap();
    let state = State::default();
    step(&root, &state);
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o0)).unwrap();
    fs::remove_file(root.join("closed-not")).unwrap();
    let (found, state) = std::thread::spawn({
        let root = root.clone();
        move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            let found = step(&root, &state).0;
            // It stands as it did, and is flagged again.
            let again = step(&root, &state).0;
            assert!(matches!(&again[..], [(EntryKind::Directory, name)] if name.ends_with("closed")), "{again:?}");
            (found, state)
        }
    })
    .join()
    .unwrap();
    let deleted: Vec<_> = found.iter().filter(|(kind, _)| *kind == EntryKind::Deleted).collect();
    assert!(matches!(&deleted[..], [(_, name)] if name.ends_with("closed-not")), "{found:?}");
    // It can be read again: only its mode changed, and what is in it is as it was.
    let_a_second_pass();
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
    let (found, report) = step(&root, &state);
    assert!(matches!(&found[..], [(EntryKind::Directory, name)] if name.ends_with("closed")), "{found:?}");
    assert_eq!(report.deleted, 0);
}

#[test]
fn a_source_that_is_gone_keeps_its_state() {
    let source = tempfile::tempdir().unwrap();
    let (root, away) = (source.path().join("mounted"), source.path().join("away"));
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "x").unwrap();
    let state = State::default();
    assert_eq!(step(&root, &state).0.len(), 2);
    fs::rename(&root, &away).unwrap();
    // In the object it is flagged, not left out.
    assert_eq!(step(&root, &state).0, pairs(&[(EntryKind::Directory, "")]));
    fs::rename(&away, &root).unwrap();
    // Renaming changed the directory itself.
    assert_eq!(step(&root, &state).0.iter().filter(|(kind, _)| *kind != EntryKind::Directory).count(), 0);
}
