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
            assert_eq!(piece.from, end);
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
    assert!(matches!(stopped, Err(SourceRateError::Stopped)));
}
