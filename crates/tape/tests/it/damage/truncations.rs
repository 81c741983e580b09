//! Files that end too early, as after a crash or on a full disk.

use std::fs;
use std::process::Command;

use capstan_tape::{CartridgeDrive, Drive, DriveError, Flush, KeySlotKind};

use super::survey::{CODINGS, LAYOUT, Sample, content, patch, whole, written};

/// Whole records before a length of the data file.
fn records_in(offsets: &[u64], len: u64) -> usize {
    offsets.iter().skip(1).take_while(|end| **end <= len).count()
}

#[test]
fn a_data_file_cut_at_any_length_ends_behind_its_last_whole_record() {
    for coding in CODINGS {
        let sample = Sample::new(coding);
        let offsets = sample.offsets();
        let (data, index) = (fs::read(sample.data()).unwrap(), fs::read(sample.index()).unwrap());
        for len in (4096..data.len()).rev() {
            for keep_index in [true, false] {
                fs::write(sample.data(), &data[..len]).unwrap();
                if keep_index {
                    fs::write(sample.index(), &index).unwrap();
                } else {
                    let _ = fs::remove_file(sample.index());
                }
                let records = records_in(&offsets, len as u64);
                assert_eq!(sample.survey(), whole()[..records], "{len} bytes, index kept: {keep_index}");
                assert_eq!(fs::metadata(sample.data()).unwrap().len(), len as u64, "a load changes nothing");
            }
        }
    }
}

#[test]
fn what_is_appended_behind_a_torn_record_is_read_back() {
    for coding in CODINGS {
        let sample = Sample::new(coding);
        let offsets = sample.offsets();
        let data = fs::read(sample.data()).unwrap();
        for len in (4096..data.len()).step_by(7) {
            fs::write(sample.data(), &data[..len]).unwrap();
            let records = records_in(&offsets, len as u64);
            sample.write_from(records as u64, 2, &[5, 0]);
            let mut expected = whole()[..records].to_vec();
            expected.extend(written(records as u64, 2, &[5, 0]));
            assert_eq!(sample.survey(), expected, "{len} bytes");
            let envelope = if coding == CODINGS[0] { 0 } else { 36 };
            let end = offsets[records] + (36 + 5 + envelope) + 36;
            assert_eq!(fs::metadata(sample.data()).unwrap().len(), end, "the torn record is gone");
        }
    }
}

#[test]
fn a_data_file_cut_within_its_memory_is_empty_or_refused() {
    let sample = Sample::new(CODINGS[0]);
    let data = fs::read(sample.data()).unwrap();
    for len in (0..4096).step_by(64).rev() {
        fs::write(sample.data(), &data[..len]).unwrap();
        match sample.load() {
            Ok(_) => assert!(len >= 512, "{len} bytes hold no memory"),
            Err(DriveError::Incompatible { .. }) => assert!(len < 512, "{len} bytes hold a memory"),
            Err(other) => panic!("{len} bytes: {other:?}"),
        }
    }
}

#[test]
fn an_index_cut_at_any_length_costs_nothing() {
    let sample = Sample::new(CODINGS[0]);
    let index = fs::read(sample.index()).unwrap();
    for len in 0..index.len() {
        patch(&sample.index(), |bytes| bytes.truncate(len));
        assert_eq!(sample.survey(), whole(), "{len} bytes");
        assert_eq!(fs::read(sample.index()).unwrap(), index, "the index is made again");
    }
}

/// A process that is killed leaves what was flushed, without the last entries of the index.
#[test]
fn a_drive_that_vanishes_loses_nothing_it_flushed() {
    let sample = Sample::new(CODINGS[1]);
    let mut drive = sample.load().unwrap();
    drive.space_to_end_of_data().unwrap();
    for number in 0..600u32 {
        drive.write_block(&number.to_le_bytes()).unwrap();
        if number % 100 == 99 {
            drive.write_filemarks(0, Flush::Synchronous).unwrap();
            let copy = Sample::blank(CODINGS[1]);
            fs::copy(sample.data(), copy.data()).unwrap();
            fs::copy(sample.index(), copy.index()).unwrap();
            let found = copy.survey();
            assert_eq!(found.len(), LAYOUT.len() + number as usize + 1);
            assert_eq!(found[..LAYOUT.len()], whole());
        }
    }
}

/// A full disk: the file system takes part of a block and refuses the rest. A limit on the size of files does the same;
/// it holds for a whole process, so the writing is done by this test again, in a process of its own.
#[test]
fn a_full_disk_leaves_the_last_whole_record() {
    let sample = Sample::blank(CODINGS[0]);
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact damage::truncations::fill_the_disk --ignored"])
        .arg(std::env::current_exe().unwrap())
        .env("CAPSTAN_TEST_CARTRIDGE", sample.data())
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    let found = sample.survey();
    assert_eq!(found, written(0, 1, &[1000, 1000, 1000, 10]));
    sample.write_from(4, 1, &[2000]);
    assert_eq!(sample.survey().len(), 5, "there is room again");
}

#[test]
#[ignore = "run by a_full_disk_leaves_the_last_whole_record under a limit on the size of files"]
fn fill_the_disk() {
    let path = std::env::var_os("CAPSTAN_TEST_CARTRIDGE").unwrap();
    let mut drive = CartridgeDrive::new("virtual-0", &path, KeySlotKind::Missing);
    drive.load().unwrap();
    for lbn in 0..3 {
        drive.write_block(&content(lbn, 1, 1000)).unwrap();
    }
    drive.write_filemarks(0, Flush::Synchronous).unwrap();
    // 8 KiB are allowed, 7204 used. The drive takes the block, and says later that it could not be written.
    drive.write_block(&content(3, 1, 2000)).unwrap();
    let refused = drive.write_filemarks(0, Flush::Synchronous);
    assert!(matches!(refused, Err(DriveError::Deferred { .. })), "{refused:?}");
    assert_eq!(fs::metadata(&path).unwrap().len(), 7204, "the torn record is cut off");
    assert_eq!(drive.position().unwrap().lbn, 3);
    drive.write_block(&content(3, 1, 10)).unwrap();
    drive.unload().unwrap();
}
