//! The replica against a model, and against damage.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::ledger::RECORD_LEN_MAX;
use crate::seeded::Seeded;

const EPOCH: u64 = 3;

struct Home {
    _folder: TempDir,
    path: PathBuf,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    Home { path: folder.path().join("replica.db"), _folder: folder }
}

impl Home {
    fn open(&self) -> (Replica, BTreeMap<String, Entry>) {
        let mut records = BTreeMap::new();
        let replica = self.try_open(EPOCH, |entry| assert!(records.insert(entry.path.clone(), entry).is_none()));
        (replica.unwrap(), records)
    }

    fn try_open(&self, epoch: u64, record: impl FnMut(Entry)) -> Result<Replica, ReplicaError> {
        Replica::open(&self.path, "alpha", epoch, record)
    }

    /// One with some records.
    fn filled(&self, count: i64) -> Snapshot {
        let entries = (0..count).map(|n| entry(&format!("key/{n:05}"), &[7; 120], n + 1)).collect();
        let snapshot = Snapshot { revision: count + 1, entries };
        self.open().0.reset(&snapshot).unwrap();
        snapshot
    }
}

fn entry(path: &str, sealed: &[u8], revision: i64) -> Entry {
    Entry { path: path.to_owned(), sealed: sealed.to_vec(), revision }
}

fn put(path: &str, revision: i64) -> Changes {
    Changes { revision, changes: vec![Change::Put(entry(path, b"sealed", revision))] }
}

fn removed(path: &str, revision: i64) -> Changes {
    Changes { revision, changes: vec![Change::Removed { path: path.to_owned(), revision }] }
}

#[test]
fn a_new_replica_needs_a_snapshot_and_is_its_owners_alone() {
    let home = home();
    let (mut replica, records) = home.open();
    assert_eq!((replica.applied(), records.len()), (None, 0));
    assert!(matches!(replica.apply(&put("a", 5)), Err(ReplicaError::WentBack { .. })), "changes of what?");
    replica.reset(&Snapshot { revision: 4, entries: vec![entry("b", b"", 2)] }).unwrap();
    replica.apply(&put("a", 5)).unwrap();
    for file in std::fs::read_dir(home.path.parent().unwrap()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.path());
    }
    drop(replica);
    let (replica, records) = home.open();
    assert_eq!(replica.applied(), Some(5));
    assert_eq!(records.into_values().collect::<Vec<_>>(), [entry("a", b"sealed", 5), entry("b", b"", 2)]);
}

#[test]
fn it_never_goes_back() {
    let home = home();
    let snapshot = home.filled(10);
    let (mut replica, _) = home.open();
    let applied = snapshot.revision;
    replica.apply(&put("a", applied + 5)).unwrap();
    let mut older_inside = put("a", applied + 6);
    older_inside.changes.push(Change::Put(entry("b", b"", applied + 5)));
    let mut newer_inside = put("a", applied + 7);
    newer_inside.revision -= 1;
    for stale in [put("a", applied + 5), put("a", applied), older_inside, newer_inside] {
        assert!(matches!(replica.apply(&stale), Err(ReplicaError::WentBack { .. })), "{stale:?}");
    }
    assert!(matches!(replica.reset(&snapshot), Err(ReplicaError::WentBack { .. })));
    assert!(matches!(replica.apply(&removed("never/there", applied + 6)), Err(ReplicaError::Damaged { .. })));
    drop(replica);
    let (replica, records) = home.open();
    assert_eq!((replica.applied(), records.len()), (Some(applied + 5), 11), "what was refused left nothing behind");
}

#[test]
fn a_later_epoch_counts_anew_and_an_earlier_one_is_refused() {
    let home = home();
    home.filled(10);
    let mut kept = 0;
    let mut replica = home.try_open(EPOCH + 1, |_| kept += 1).unwrap();
    assert_eq!((replica.applied(), kept), (None, 10), "the records are there until the new snapshot is");
    replica.reset(&Snapshot { revision: 2, entries: Vec::new() }).unwrap();
    drop(replica);
    let error = home.try_open(EPOCH, |_| {}).unwrap_err();
    assert!(matches!(error, ReplicaError::EpochPassed { known: 4, given: 3, .. }), "{error}");
    assert_eq!(home.try_open(EPOCH + 1, |_| panic!("it is empty")).unwrap().applied(), Some(2));
}

#[test]
fn it_belongs_to_one_cluster_and_one_process() {
    let home = home();
    home.filled(1);
    let error = Replica::open(&home.path, "beta", EPOCH, |_| {}).unwrap_err();
    assert!(matches!(error, ReplicaError::OtherCluster { .. }), "{error}");
    let _open = home.open();
    let error = home.try_open(EPOCH, |_| {}).unwrap_err();
    assert!(matches!(error, ReplicaError::InUse { .. }), "{error}");
}

/// What a random series of changes makes of a replica is what it makes of a map, also when it is opened anew in
/// between.
#[test]
fn it_is_what_a_map_would_be() {
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    let seed = std::env::var("CAPSTAN_SEED").ok().map_or_else(clock, |seed| seed.parse().unwrap());
    println!("CAPSTAN_SEED={seed} replays this");
    let mut seeded = Seeded::new(seed);
    let home = home();
    let mut model = BTreeMap::new();
    let (mut replica, _) = home.open();
    let mut revision = 1;
    replica.reset(&Snapshot { revision, entries: Vec::new() }).unwrap();
    for _ in 0..150 {
        match seeded.below(10) {
            0 => {
                drop(replica);
                let (opened, records) = home.open();
                assert_eq!((opened.applied(), &records), (Some(revision), &model));
                replica = opened;
            }
            1 => {
                revision += seeded.below(3).cast_signed();
                model = (0..seeded.below(30))
                    .map(|_| random_entry(&mut seeded, revision))
                    .map(|entry| (entry.path.clone(), entry))
                    .collect();
                replica.reset(&Snapshot { revision, entries: model.values().cloned().collect() }).unwrap();
            }
            _ => {
                let changes = random_changes(&mut seeded, &mut revision, &mut model);
                replica.apply(&changes).unwrap();
            }
        }
        assert_eq!(replica.applied(), Some(revision));
    }
    drop(replica);
    assert_eq!(home.open().1, model);
}

fn random_entry(seeded: &mut Seeded, revision: i64) -> Entry {
    let path = format!("{}/{}", ["key", "unit", "pool/a"][seeded.below(3) as usize], seeded.below(20));
    let len = if seeded.percent(5) { RECORD_LEN_MAX as u64 } else { seeded.below(300) };
    let sealed = (0..len).map(|_| seeded.next() as u8).collect();
    Entry { path, sealed, revision }
}

fn random_changes(seeded: &mut Seeded, revision: &mut i64, model: &mut BTreeMap<String, Entry>) -> Changes {
    let mut changes = Vec::new();
    for _ in 0..=seeded.below(3) {
        *revision += 1 + seeded.below(2).cast_signed();
        for _ in 0..seeded.below(6) {
            let entry = random_entry(seeded, *revision);
            if seeded.percent(30) {
                if model.remove(&entry.path).is_some() {
                    changes.push(Change::Removed { path: entry.path, revision: *revision });
                }
            } else {
                model.insert(entry.path.clone(), entry.clone());
                changes.push(Change::Put(entry));
            }
        }
    }
    Changes { revision: *revision, changes }
}

/// A flipped bit anywhere is either an error or concerns nothing: it never changes, hides or invents a record.
#[test]
fn a_flipped_bit_is_seen_wherever_it_matters() {
    let home = home();
    let snapshot = home.filled(300);
    let whole = std::fs::read(&home.path).unwrap();
    let mut seeded = Seeded::new(5);
    let mut seen = 0;
    for round in 0..600 {
        // The file's own header, where a bit means most, and then anywhere.
        let bit = if round < 100 { seeded.below(8 * 110) } else { seeded.below(8 * whole.len() as u64) } as usize;
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&home.path, damaged).unwrap();
        let _ = std::fs::remove_file(home.path.with_extension("db-journal"));
        let mut records = Vec::new();
        match home.try_open(EPOCH, |entry| records.push(entry)) {
            Ok(replica) => {
                assert_eq!(
                    (replica.applied(), records),
                    (Some(snapshot.revision), snapshot.entries.clone()),
                    "bit {bit}"
                );
            }
            Err(ReplicaError::Damaged { .. } | ReplicaError::Host { .. }) => seen += 1,
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
    assert!(seen > 300, "most of the file is records: {seen} of 600 seen");
}

#[test]
fn a_truncated_file_is_damaged_and_says_what_to_do() {
    let home = home();
    home.filled(300);
    let whole = std::fs::read(&home.path).unwrap();
    for len in [0, 1, 99, 100, 4096, 8192, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        std::fs::write(&home.path, &whole[..len]).unwrap();
        let error = home.try_open(EPOCH, |_| {}).expect_err(&format!("{len} of {} bytes", whole.len()));
        assert!(matches!(error, ReplicaError::Damaged { .. }), "{len}: {error}");
        assert!(error.to_string().contains("move the file away"), "{error}");
    }
}

#[test]
fn a_full_disk_is_named_and_loses_nothing() {
    let home = home();
    let snapshot = home.filled(100);
    let (mut replica, before) = home.open();
    let pages: i64 = replica.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    // What SQLite does at this limit is what it does when the file system has no more room.
    replica.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    let revision = snapshot.revision + 1;
    let mut large = Changes { revision, changes: vec![Change::Removed { path: "key/00000".to_owned(), revision }] };
    large.changes.extend((0..20).map(|n| Change::Put(entry(&format!("large/{n}"), &[1; RECORD_LEN_MAX], revision))));
    let error = replica.apply(&large).unwrap_err();
    assert!(matches!(error, ReplicaError::DiskFull { .. }), "{error}");
    let whole =
        Snapshot { revision, entries: (0..20).map(|n| entry(&format!("l/{n:02}"), &[1; RECORD_LEN_MAX], 1)).collect() };
    assert!(matches!(replica.reset(&whole), Err(ReplicaError::DiskFull { .. })));
    assert_eq!(replica.applied(), Some(snapshot.revision));
    // There is room again.
    replica.connection.pragma_update_and_check(None, "max_page_count", i64::from(i32::MAX), |_| Ok(())).unwrap();
    drop(replica);
    let (mut replica, records) = home.open();
    assert_eq!(records, before);
    replica.apply(&large).unwrap();
}

/// What is removed is not in the file any more: whoever takes the disk and learns the keys finds nothing of it.
#[test]
fn what_was_removed_or_replaced_leaves_no_bytes() {
    let home = home();
    let (mut replica, _) = home.open();
    let marks = [*b"first that must go", *b"other that must go"];
    let entries = vec![entry("a", &marks[0], 1), entry("b", &marks[1], 1), entry("c", b"stays", 1)];
    replica.reset(&Snapshot { revision: 1, entries }).unwrap();
    replica.apply(&removed("a", 2)).unwrap();
    replica.apply(&put("b", 3)).unwrap();
    let mut files = 0;
    for file in std::fs::read_dir(home.path.parent().unwrap()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for mark in marks {
            assert!(!bytes.windows(mark.len()).any(|window| window == mark));
        }
        files += 1;
    }
    assert_eq!(files, 2, "the file and its journal");
}

/// `cargo test --release -p capstan-keyd -- --ignored --nocapture a_million`
#[test]
#[ignore = "a measurement"]
fn a_million_records_are_loaded_fast() {
    let home = home();
    let entries = (0..1_000_000i64).map(|n| entry(&format!("key/{:032x}", n * 7919), &[n as u8; 200], n + 1)).collect();
    let snapshot = Snapshot { revision: 1_000_001, entries };
    let (mut replica, _) = home.open();
    let began = std::time::Instant::now();
    replica.reset(&snapshot).unwrap();
    println!("reset: {:?}", began.elapsed());
    let began = std::time::Instant::now();
    for n in 0..1000 {
        replica.apply(&put(&format!("key/{n}"), 1_000_002 + n)).unwrap();
    }
    println!("1000 commits applied one by one: {:?}", began.elapsed());
    drop(replica);
    let began = std::time::Instant::now();
    let mut records = Vec::new();
    let _replica = home.try_open(EPOCH, |entry| records.push(entry)).unwrap();
    println!("load of {}: {:?}", records.len(), began.elapsed());
    assert_eq!(records.len(), 1_001_000);
}
