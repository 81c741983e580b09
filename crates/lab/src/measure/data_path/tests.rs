//! Runs of the data path.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use capstan_format::Algorithm;
use capstan_mover::Bottleneck;
use capstan_tape::model::built_in;

use super::*;
use crate::data_set::{DataSet, DataSetWatch, FileLengths, Shape};
use crate::measure::source::Cache;

fn tree(bytes: u64) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let set = DataSet::plan(&Shape::of_bytes(FileLengths::Typical, bytes, 3)).unwrap();
    set.make(&folder.path().join("set"), &DataSetWatch::default()).unwrap();
    folder
}

fn run(folder: &Path) -> DataPath {
    DataPath { cache: Cache::Warm, seconds: 60.0, ..null_run(&folder.join("set")) }
}

#[test]
fn all_of_a_tree_goes_through_and_nothing_stays() {
    let folder = tree(20_000_000);
    let stop = AtomicBool::new(false);
    for (target, level) in [
        (DataPathTarget::Null, 0),
        (
            DataPathTarget::Virtual {
                folder: folder.path().join("out"),
                encryption: Some(Algorithm::Aes256Gcm),
                pace: None,
            },
            1,
        ),
    ] {
        let what = DataPath { target, compression_level: level, copies: 2, ..run(folder.path()) };
        let done = run_data_path(&what, &stop).unwrap();
        // Content is what a person has, and what bare readers count: no headers, no padding.
        assert!(done.whole && (done.mb - 20.0).abs() < 1e-9, "{done:?}");
        // The tree was read to its end, and packed to its end.
        assert!((done.packed_mb - done.mb).abs() < 1e-6, "{done:?}");
        let ratio = done.ratio();
        let wanted = if level == 0 { 1.0 } else { 2.0 };
        assert!((ratio / wanted - 1.0).abs() < 0.1, "{ratio} of {wanted}");
        assert!(done.cpu_s > 0.0);
    }
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 0);
}

#[test]
fn a_slow_source_is_as_slow_as_it_is_told_and_more_connections_help_only_where_each_is_slow() {
    let folder = tempfile::tempdir().unwrap();
    let set = DataSet::plan(&Shape::of_bytes(FileLengths::Small, 12_000_000, 3)).unwrap();
    set.make(&folder.path().join("set"), &DataSetWatch::default()).unwrap();
    let rate = |connections, slow| {
        let what = DataPath { connections, slow, ..run(folder.path()) };
        // What is held to a rate is the stream, with its headers; without compression that is what is stored.
        let done = run_data_path(&what, &AtomicBool::new(false)).unwrap();
        done.stored_mb / done.seconds
    };
    let together = SlowSource { mb_per_s: Some(20.0), connection_mb_per_s: None };
    let each = SlowSource { mb_per_s: None, connection_mb_per_s: Some(10.0) };
    for (connections, slow, wanted) in [(1, together, 20.0), (1, each, 10.0)] {
        // A machine that does something else meanwhile makes one run slower, not all of them.
        let found: Vec<f64> = (0..3).map(|_| rate(connections, slow)).collect();
        let near = found.iter().any(|found| (found / wanted - 1.0).abs() < 0.15);
        assert!(
            near && found.iter().all(|found| *found < wanted * 1.15),
            "{connections} connections, {slow:?}: {found:?} MB/s"
        );
    }
    assert!(rate(4, each) > 15.0, "four at 10 MB/s are faster than one");
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let folder = tree(20_000_000);
    let slow = SlowSource { mb_per_s: Some(5.0), connection_mb_per_s: None };
    let done = run_data_path(&DataPath { seconds: 0.5, slow, ..run(folder.path()) }, &AtomicBool::new(false)).unwrap();
    assert!(!done.whole && done.mb < 10.0 && done.seconds < 5.0, "{done:?}");
}

/// Blocks that are not full when a round ends were not counted: of 12 MB that 4 connections had read in 0.2 s as little
/// as 4. Now bytes are counted as they are read, and a round goes on until it shows a rate.
#[test]
fn what_connections_have_in_hand_at_the_end_of_a_round_counts() {
    let folder = tree(120_000_000);
    let slow = SlowSource { mb_per_s: Some(60.0), connection_mb_per_s: None };
    let what = DataPath { block_len: 2000 << 10, seconds: 0.2, seconds_max: 4.0, ..run(folder.path()) };
    let done = run_data_path(&DataPath { connections: 4, slow, ..what }, &AtomicBool::new(false)).unwrap();
    // A busy machine may hold the source up, and never makes it faster.
    let found = done.steady_mb_per_s.median;
    assert!((45.0..66.0).contains(&found), "{found} of 60 MB/s: {done:?}");
}

/// Blocks that were not full when a run ended were read and not packed: their bytes counted as shrunk to nothing.
#[test]
fn what_was_read_and_not_packed_is_no_compression() {
    let folder = tree(60_000_000);
    let slow = SlowSource { mb_per_s: Some(20.0), connection_mb_per_s: None };
    let what = DataPath { block_len: 1 << 20, seconds: 0.6, slow, connections: 8, ..run(folder.path()) };
    // A machine that does something else meanwhile may end a run when all blocks are full, which shows nothing.
    let shows_it = (0..10).any(|_| {
        let done = run_data_path(&what, &AtomicBool::new(false)).unwrap();
        assert!((done.ratio() - 1.0).abs() < 0.03, "{} of what is stored as it is: {done:?}", done.ratio());
        !done.whole && done.packed_mb < done.mb * 0.95
    });
    assert!(shows_it, "all blocks were full in each run");
}

/// No block was full in such a run: the ratio was infinite, and what was kept of it could never be read again.
#[test]
fn a_run_that_stored_nothing_gives_no_rate() {
    let folder = tree(60_000_000);
    let slow = SlowSource { mb_per_s: Some(1.0), connection_mb_per_s: None };
    let what = DataPath { block_len: 2000 << 10, connections: 4, seconds: 0.1, slow, ..run(folder.path()) };
    let empty = run_data_path(&what, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(empty, DataPathError::Empty { .. }), "{empty}");
}

/// A way that cannot be was found out when the others had been measured, and all was lost.
#[test]
fn ways_are_checked_before_the_first_is_measured_and_what_is_done_stays() {
    let folder = tree(2_000_000);
    let (what, stop) = (run(folder.path()), AtomicBool::new(false));
    let mut told = 0;
    let ways = [(1, 64 << 10, 0), (0, 64 << 10, 0)];
    let refused = measure_path(&what, &ways, 1, &stop, &mut |_| told += 1).unwrap_err();
    assert!(refused.to_string().contains("1 to 256 connections"), "{refused}");
    assert_eq!((told, refused.found), (0, None));
    let ways = [(1, 64 << 10, 0), (2, 64 << 10, 0)];
    let stopped = measure_path(&what, &ways, 1, &stop, &mut |_| stop.store(true, Ordering::Relaxed)).unwrap_err();
    assert!(matches!(stopped.error, DataPathError::Stopped), "{stopped}");
    assert_eq!(stopped.found.unwrap().rates.iter().map(|rate| rate.connections).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_paced_drive_is_the_bottleneck_and_says_how_often_it_went_back() {
    let folder = tree(60_000_000);
    let model = built_in("SDLT-220").unwrap();
    let native = model.native_mb_per_s.value;
    let target =
        DataPathTarget::Virtual { folder: folder.path().join("out"), encryption: None, pace: Some(Box::new(model)) };
    let what = DataPath { target, block_len: 128 << 10, pool_bytes: 4 << 20, ..run(folder.path()) };
    let done = run_data_path(&what, &AtomicBool::new(false)).unwrap();
    assert_eq!(done.bottleneck, Bottleneck::Drive);
    assert!(done.mb_per_s() < native * 1.1 && done.mb_per_s() > native * 0.6, "{done:?} of {native}");
    assert!(done.backhitches.is_some());
}

#[test]
fn what_cannot_be_is_refused_and_a_stop_leaves_nothing() {
    let folder = tree(2_000_000);
    let stop = AtomicBool::new(false);
    let told = |what: &DataPath| run_data_path(what, &stop).unwrap_err().to_string();
    assert!(told(&DataPath { connections: 0, ..run(folder.path()) }).contains("1 to 256 connections"));
    assert!(told(&DataPath { block_len: 1, ..run(folder.path()) }).contains("4 to 2048 KiB"));
    assert!(told(&run(&folder.path().join("gone"))).contains("cannot read"));
    let out = folder.path().join("out");
    let target = DataPathTarget::Virtual { folder: out.clone(), encryption: None, pace: None };
    let slow = SlowSource { mb_per_s: Some(1.0), connection_mb_per_s: None };
    let stopped = run_data_path(&DataPath { target, slow, ..run(folder.path()) }, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(stopped, DataPathError::Stopped), "{stopped}");
    assert_eq!(fs::read_dir(out).unwrap().count(), 0);
}
