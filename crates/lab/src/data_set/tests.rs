//! Sets that are made, checked and refused.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use super::*;

fn plan(shape: Shape) -> DataSet {
    DataSet::plan(&shape).unwrap()
}

#[test]
fn lengths_keep_to_their_kind() {
    let small = plan(Shape::of_files(FileLengths::Small, 10_000, 1));
    assert!(small.lengths.iter().all(|length| (4096..=16_384).contains(length)));
    let mean = small.bytes() / small.file_count();
    assert!((10_000..10_500).contains(&mean), "mean of {mean}");

    let typical = plan(Shape::of_bytes(FileLengths::Typical, 40 << 30, 1));
    assert_eq!(typical.bytes(), 40 << 30);
    let (last, others) = typical.lengths.split_last().unwrap();
    assert!(others.iter().all(|length| (64 << 10..=64 << 20).contains(length)));
    assert!(*last <= 64 << 20);
}

#[test]
fn a_set_is_found_as_it_was_made_and_damage_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let set = plan(Shape::of_files(FileLengths::Small, 1500, 7));
    let watch = DataSetWatch::default();
    set.make(folder.path(), &watch).unwrap();
    assert_eq!((watch.files.into_inner(), watch.bytes.into_inner()), (1500, set.bytes()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    let check = || set.check(folder.path(), &DataSetWatch::default()).unwrap();
    assert_eq!(check(), []);
    let (changed, longer, gone) = (set.file_path(3), set.file_path(700), set.file_path(1499));
    let mut bytes = fs::read(folder.path().join(&changed)).unwrap();
    bytes[4000] ^= 1;
    fs::write(folder.path().join(&changed), bytes).unwrap();
    let mut bytes = fs::read(folder.path().join(&longer)).unwrap();
    bytes.push(0);
    fs::write(folder.path().join(&longer), bytes).unwrap();
    fs::remove_file(folder.path().join(&gone)).unwrap();
    assert_eq!(check(), [(changed, Differs::Changed), (longer, Differs::Changed), (gone, Differs::Missing)]);
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "").unwrap();
    let set = plan(Shape::of_files(FileLengths::Small, 1, 1));
    let error = set.make(folder.path(), &DataSetWatch::default()).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    assert!(folder.path().join("mine").exists());
}

/// Ctrl-C was heard when the file was whole, which took minutes.
#[test]
fn a_large_file_is_stopped_in_its_middle() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("set");
    let (watch, bytes) = (DataSetWatch::default(), 2_000_000_000);
    let set = plan(Shape::of_files(FileLengths::Sizes { from: bytes, to: bytes }, 1, 1));
    let stopped = thread::scope(|scope| {
        let made = scope.spawn(|| set.make(&target, &watch));
        while !made.is_finished() && !target.join(set.file_path(0)).exists() {
            thread::yield_now();
        }
        watch.stop.store(true, Ordering::Relaxed);
        made.join().unwrap().unwrap_err()
    });
    assert!(matches!(stopped, DataSetError::Stopped), "{stopped}");
    assert!(!target.join(set.file_path(0)).exists());
    assert_eq!(watch.files.load(Ordering::Relaxed), 0, "the file was made whole first");
}

#[test]
fn what_is_stopped_or_has_no_room_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let watch = DataSetWatch::default();
    watch.stop.store(true, Ordering::Relaxed);
    let stopped = plan(Shape::of_files(FileLengths::Small, 2000, 1)).make(folder.path(), &watch).unwrap_err();
    assert!(matches!(stopped, DataSetError::Stopped), "{stopped}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let unread = plan(Shape::of_files(FileLengths::Small, 1, 1)).check(folder.path(), &watch).unwrap_err();
    assert!(matches!(unread, DataSetError::CheckStopped), "{unread}");
    let huge = plan(Shape::of_bytes(FileLengths::Typical, 1 << 44, 1));
    let new = folder.path().join("new");
    let refused = huge.make(&new, &DataSetWatch::default()).unwrap_err();
    assert!(matches!(refused, DataSetError::NoRoom { .. }), "{refused}");
    assert!(!new.exists());
}

#[test]
fn what_has_no_end_is_no_set() {
    let refused = |shape: Shape| DataSet::plan(&shape).unwrap_err().to_string();
    let shape = Shape::of_files(FileLengths::Small, 1, 1);
    assert!(refused(Shape { files: None, ..shape }).contains("say which"));
    assert!(refused(Shape { files: Some(0), ..shape }).contains("nothing"));
    assert!(refused(Shape { ratio: Ratio::EachFile(11.0), ..shape }).contains("10:1"));
    assert!(refused(Shape { ratio: Ratio::EachFile(f64::NAN), ..shape }).contains("10:1"));
    assert!(refused(Shape { ratio: Ratio::EachMb { from: 5.0, to: 2.0 }, ..shape }).contains("smaller one first"));
    assert!(refused(Shape { ratio: Ratio::EachMb { from: 0.5, to: 2.0 }, ..shape }).contains("of 1 to 10"));
    for (from, to) in [(0, 5), (9, 8), (1, u64::MAX)] {
        assert!(refused(Shape { kind: FileLengths::Sizes { from, to }, ..shape }).contains("as in 4K-16K"));
    }
    assert!(refused(Shape { files_per_folder: Some(0), ..shape }).contains("one file at least"));
    assert!(refused(Shape { folders_per_folder: Some(1), ..shape }).contains("two folders"));
}

#[test]
fn the_presets_are_the_bytes_that_they_always_were() {
    // Measurements of ours stand on them. FNV-1a of each path and its file, as the first version made them.
    for (shape, bytes, expected) in [
        (Shape::of_files(FileLengths::Small, 1500, 7), 15_531_833, 0xea1b_7a41_7db7_87b5),
        (Shape::of_bytes(FileLengths::Typical, 20_000_000, 7), 20_000_000, 0x90e6_bbc2_d78f_e30f),
        (
            Shape { ratio: Ratio::EachFile(3.5), ..Shape::of_files(FileLengths::Small, 100, 9) },
            1_011_381,
            0xbbd7_8e45_9bce_5800,
        ),
    ] {
        let (folder, set) = made(shape);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for number in 0..set.file_count() {
            let path = set.file_path(number);
            let content = fs::read(folder.path().join(&path)).unwrap();
            for byte in path.as_os_str().as_encoded_bytes().iter().chain(&content) {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!((set.bytes(), hash), (bytes, expected), "{shape:?}");
    }
}

fn made(shape: Shape) -> (tempfile::TempDir, DataSet) {
    let folder = tempfile::tempdir().unwrap();
    let set = plan(shape);
    set.make(folder.path(), &DataSetWatch::default()).unwrap();
    (folder, set)
}

#[test]
fn sizes_of_ones_own_are_even_on_a_logarithmic_scale() {
    let set = plan(Shape::of_files(FileLengths::Sizes { from: 1000, to: 1_000_000 }, 30_000, 2));
    assert!(set.lengths.iter().all(|length| (1000..=1_000_000).contains(length)));
    for (from, to) in [(1000, 10_000), (10_000, 100_000), (100_000, 1_000_001)] {
        let share = set.lengths.iter().filter(|length| (from..to).contains(*length)).count() as f64 / 30_000.0;
        assert!((share * 3.0 - 1.0).abs() < 0.05, "{share} of the files have {from} to {to} bytes");
    }
    let one = plan(Shape::of_bytes(FileLengths::Sizes { from: 1 << 20, to: 1 << 20 }, 10 << 20, 2));
    assert_eq!(one.lengths, [1 << 20; 10]);
    let both = plan(Shape::of_files(FileLengths::Sizes { from: 1, to: 2 }, 1000, 2));
    assert!((300..700).contains(&both.lengths.iter().filter(|length| **length == 2).count()));
}

#[test]
fn sets_of_all_names_and_trees_are_found_as_they_were_made() {
    for names in [Names::Plain, Names::Long, Names::Unicode, Names::Hostile] {
        let shape = Shape::of_files(FileLengths::Sizes { from: 1, to: 3000 }, 300, 5);
        let ratio = Ratio::EachMb { from: 1.0, to: 10.0 };
        let (folder, set) =
            made(Shape { names, ratio, files_per_folder: Some(11), folders_per_folder: Some(3), ..shape });
        let check = || set.check(folder.path(), &DataSetWatch::default()).unwrap();
        assert_eq!(check(), [], "{names:?}");
        let changed = set.file_path(123);
        let as_made = fs::read(folder.path().join(&changed)).unwrap();
        fs::write(folder.path().join(&changed), "").unwrap();
        assert_eq!(check(), [(changed.clone(), Differs::Changed)], "{names:?}");
        fs::remove_file(folder.path().join(&changed)).unwrap();
        assert_eq!(check(), [(changed.clone(), Differs::Missing)], "{names:?}");
        fs::write(folder.path().join(&changed), as_made).unwrap();
        let extra = changed.with_file_name("too much");
        fs::write(folder.path().join(&extra), "").unwrap();
        assert_eq!(check(), [(extra.clone(), Differs::Extra)], "{names:?}");
        fs::remove_file(folder.path().join(&extra)).unwrap();
        let (mut files, mut folders) = (0, vec![folder.path().to_owned()]);
        while let Some(one) = folders.pop() {
            let inside: Vec<_> = fs::read_dir(one).unwrap().map(|entry| entry.unwrap()).collect();
            let below = inside.iter().filter(|entry| entry.file_type().unwrap().is_dir());
            let below: Vec<_> = below.map(fs::DirEntry::path).collect();
            assert!(below.len() <= 3 && inside.len() - below.len() <= 11);
            files += inside.len() - below.len();
            folders.extend(below);
        }
        assert_eq!(files, 300);
    }
}

#[test]
fn whole_sets_shrink_as_far_as_was_asked() {
    let small = FileLengths::Sizes { from: 500, to: 20_000 };
    let large = FileLengths::Sizes { from: 1 << 20, to: 6 << 20 };
    for kind in [FileLengths::Small, small, large] {
        for ratio in [
            Ratio::EachFile(1.0),
            Ratio::EachFile(1.5),
            Ratio::EachFile(3.0),
            Ratio::EachFile(10.0),
            Ratio::EachMb { from: 1.0, to: 10.0 },
            Ratio::EachMb { from: 2.0, to: 2.5 },
        ] {
            let (folder, set) = made(Shape { ratio, ..Shape::of_bytes(kind, 5 << 20, 4) });
            let shrunk = set.shrink(folder.path()).unwrap();
            println!("{kind:?} {ratio:?}: {shrunk:?}, {:+.1} %", shrunk.error() * 100.0);
            assert_eq!(shrunk.bytes, 5 << 20, "all of it");
            assert!(shrunk.error().abs() < 0.08, "{kind:?} {ratio:?}: {shrunk:?}");
            if let Ratio::EachFile(ratio) = ratio {
                assert!((shrunk.asked / ratio - 1.0).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn a_sample_tells_of_the_set_and_what_differs_is_found_out() {
    let shape = Shape { ratio: Ratio::EachFile(3.0), ..Shape::of_bytes(FileLengths::Small, 40 << 20, 4) };
    let (folder, set) = made(shape);
    let shrink = |set: &DataSet| set.shrink(folder.path()).unwrap();
    let shrunk = shrink(&set);
    assert_eq!(shrunk.bytes, 16 << 20);
    assert!(shrunk.error().abs() < 0.08, "{shrunk:?}");
    assert_eq!(shrink(&set), shrunk, "the same blocks");
    let other = shrink(&plan(Shape { ratio: Ratio::EachFile(2.0), ..shape }));
    assert!(other.error() > 0.3, "{other:?}");
}

#[test]
fn paths_that_no_system_takes_are_refused_before_work() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape::of_files(FileLengths::Sizes { from: 1, to: 1 }, 100_000, 1);
    let shape = Shape { names: Names::Long, files_per_folder: Some(1), folders_per_folder: Some(2), ..shape };
    let refused = plan(shape).make(folder.path(), &DataSetWatch::default()).unwrap_err();
    assert!(matches!(refused, DataSetError::LongPaths { .. }), "{refused}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
