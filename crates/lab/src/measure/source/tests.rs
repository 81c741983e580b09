//! Sources as bare readers find them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use super::*;
use crate::data_set::{DataSet, DataSetWatch, FileLengths, Shape};

fn reading(cache: Cache) -> Reading {
    Reading { readers: vec![1, 2], block_len: 64 << 10, cache, rounds: 2, seconds: 20.0, seconds_max: 0.0 }
}

#[test]
fn all_of_a_tree_is_read_in_whatever_way() {
    let folder = tempfile::tempdir().unwrap();
    let set = DataSet::plan(&Shape::of_files(FileLengths::Small, 500, 7)).unwrap();
    let tree = folder.path().join("set");
    set.make(&tree, &DataSetWatch::default()).unwrap();
    for cache in [Cache::Warm, Cache::Cold, Cache::Direct] {
        let stop = AtomicBool::new(false);
        let mut told = Vec::new();
        let found = measure_source(&tree, &reading(cache), &stop, &mut |rate| told.push(rate.readers)).unwrap();
        assert_eq!((found.files, told), (500, vec![1, 2]), "{cache:?}");
        assert!((found.mb * 1e6 - set.bytes() as f64).abs() < 0.5);
        // Every round reads all of it: files and MB are in the ratio of the set.
        for rate in &found.rates {
            let mb_a_file = rate.mb_per_s.median / rate.files_per_s.median;
            assert!((mb_a_file * 1e6 / (set.bytes() as f64 / 500.0) - 1.0).abs() < 1e-6, "{rate:?}");
        }
        assert_eq!(found.classes.iter().map(|class| class.files).sum::<u64>(), 500);
        assert!(found.classes.iter().all(|class| class.up_to_bytes <= 64 << 10), "{:?}", found.classes);
    }
}

#[test]
fn a_large_file_is_read_in_ranges_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, vec![1; (5 << 20) + 123]).unwrap();
    let source = open_source(&path, &AtomicBool::new(false)).unwrap();
    for readers in [1, 2, 3, 7, 100] {
        let mut end = 0;
        for piece in source.pieces(readers) {
            assert_eq!((piece.from, piece.end), (end, end + piece.len));
            end += piece.len;
        }
        assert_eq!(end, (5 << 20) + 123);
    }
    let found = measure_source(&path, &reading(Cache::Direct), &AtomicBool::new(false), &mut |_| {}).unwrap();
    assert_eq!(found.files, 1);
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let told = |path: &Path, reading: &Reading| {
        measure_source(path, reading, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string()
    };
    assert!(told(folder.path(), &reading(Cache::Warm)).contains("holds no file with anything in it"));
    assert!(told(&folder.path().join("gone"), &reading(Cache::Warm)).contains("cannot read"));
    let odd = Reading { block_len: 1000, ..reading(Cache::Warm) };
    assert!(told(folder.path(), &odd).contains("multiples of 4 KiB"));
    let stopped = measure_source(folder.path(), &reading(Cache::Warm), &AtomicBool::new(true), &mut |_| {});
    assert!(matches!(stopped, Err(Unfinished { error: SourceRateError::Stopped, .. })));
}

/// Holes counted as data that came at the rate of memory, and content with two names was read twice.
#[test]
fn holes_and_further_names_are_neither_read_nor_counted() {
    const MB: u64 = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let sparse = folder.path().join("sparse");
    let file = File::create(&sparse).unwrap();
    file.set_len(64 * MB).unwrap();
    for at in [8 * MB, 40 * MB] {
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; MB as usize], at).unwrap();
    }
    file.sync_all().unwrap();
    File::create(folder.path().join("hole")).unwrap().set_len(MB).unwrap();
    fs::write(folder.path().join("solid"), vec![1; MB as usize]).unwrap();
    fs::hard_link(folder.path().join("solid"), folder.path().join("solid too")).unwrap();
    for (source, files, mb) in [(folder.path(), 2, 3 * MB), (&*sparse, 1, 2 * MB)] {
        for cache in [Cache::Warm, Cache::Cold, Cache::Direct] {
            let found = measure_source(source, &reading(cache), &AtomicBool::new(false), &mut |_| {}).unwrap();
            assert_eq!((found.files, found.mb), (files, mb as f64 / 1e6), "{source:?} {cache:?}");
        }
    }
    let (round, over) = (Round::default(), || false);
    let mut buffer = vec![0; 256 << 10];
    for piece in open_source(&sparse, &AtomicBool::new(false)).unwrap().pieces(3) {
        let read = read_piece(&piece, &file_of(&piece), &mut buffer, &round, &over).unwrap();
        assert_eq!(read, piece.len, "{piece:?}");
    }
    assert_eq!(round.bytes.load(Ordering::Relaxed), 2 * MB);
}

fn file_of(piece: &Piece) -> File {
    File::open(&piece.path).unwrap()
}

/// A read went on behind the end of its piece, into what belongs to the next reader.
#[test]
fn a_read_ends_with_its_piece() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    fs::write(&path, vec![1; 5 << 20]).unwrap();
    let piece = Piece { path, from: 1 << 20, end: 2 << 20, len: 1 << 20, is_sparse: false };
    let mut buffer = vec![0; 768 << 10];
    let round = Round::default();
    let read = read_piece(&piece, &file_of(&piece), &mut buffer, &round, &|| false).unwrap();
    assert_eq!((read, round.bytes.load(Ordering::Relaxed)), (1 << 20, 1 << 20));
}

/// Bare readers stopped where another file system is mounted; a backup goes on, but not into what the kernel makes up.
#[test]
fn a_walk_crosses_mount_points_but_into_no_file_system_that_the_kernel_makes_up() {
    let device = |path: &str| fs::metadata(path).unwrap().dev();
    let (proc, temporary) = (Path::new("/proc"), tempfile::tempdir().unwrap());
    assert!(list::is_pseudo_below(proc, device("/proc"), Some(device("/"))));
    assert!(!list::is_pseudo_below(proc, device("/proc"), None), "one that is named is read");
    assert!(!list::is_pseudo_below(temporary.path(), 1, Some(2)), "another disk is read");
    let mut found = 0;
    each_file(Path::new("/sys/kernel"), &AtomicBool::new(false), |_| {
        found += 1;
        ControlFlow::Break(())
    })
    .unwrap();
    assert_eq!(found, 1);
}

/// Dropping a million files from the cache went on for minutes after Ctrl-C.
#[test]
fn making_a_source_cold_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), b"content").unwrap();
    let stop = AtomicBool::new(true);
    let stopped = make_tree_cold(Cache::Cold, folder.path(), &stop);
    assert!(matches!(stopped, Err(SourceRateError::Stopped)), "{stopped:?}");
    let path = folder.path().join("file");
    let stopped = make_cold(Cache::Cold, [&*path].into_iter(), &stop);
    assert!(matches!(stopped, Err(SourceRateError::Stopped)), "{stopped:?}");
}
