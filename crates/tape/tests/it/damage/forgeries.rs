//! Records that are genuine, but not here and now.

use std::fs;

use capstan_format::crc32c;
use capstan_tape::Drive;

use super::survey::{CODINGS, LAYOUT, Sample, Seen, assert_only_lost, patch, whole, written};

/// Copies `len` bytes of a record within or between files.
fn splice(bytes: &mut [u8], to: u64, from: &[u8], at: u64, len: u64) {
    bytes[to as usize..(to + len) as usize].copy_from_slice(&from[at as usize..(at + len) as usize]);
}

/// Makes the checksum of a header agree with what was changed in it: the forger knows the format, not the key.
fn seal_header(bytes: &mut [u8], offset: u64) {
    let at = offset as usize;
    let mut checked = bytes[at..at + 32].to_vec();
    checked.extend_from_slice(&offset.to_le_bytes());
    bytes[at + 32..at + 36].copy_from_slice(&crc32c(&checked).to_le_bytes());
}

#[test]
fn swapped_records_are_both_refused() {
    for coding in CODINGS {
        let sample = Sample::new(coding);
        let offsets = sample.offsets();
        let original = fs::read(sample.data()).unwrap();
        // Blocks 3, 4 and 5 have one length, filemarks 2 and 6 another.
        for (one, other) in [(3, 4), (4, 5), (3, 5), (2, 6)] {
            let len = offsets[one + 1] - offsets[one];
            patch(&sample.data(), |bytes| {
                splice(bytes, offsets[one], &original, offsets[other], len);
                splice(bytes, offsets[other], &original, offsets[one], len);
            });
            let found = sample.survey();
            assert_only_lost(&found, &[one, other], &format!("{coding:?}, {one} and {other} swapped"));
            assert_eq!((&found[one], &found[other]), (&Seen::Damaged, &Seen::Damaged));
            fs::write(sample.data(), &original).unwrap();
        }
    }
}

/// The contents alone are swapped, under headers whose checksums were made to agree.
#[test]
fn swapped_ciphertexts_do_not_open() {
    for coding in &CODINGS[1..] {
        let sample = Sample::new(*coding);
        let offsets = sample.offsets();
        let original = fs::read(sample.data()).unwrap();
        let len = offsets[4] - offsets[3];
        patch(&sample.data(), |bytes| {
            for (to, from) in [(3, 4), (4, 3)] {
                splice(bytes, offsets[to] + 36, &original, offsets[from] + 36, len - 36);
                splice(bytes, offsets[to] + 28, &original, offsets[from] + 28, 4);
                seal_header(bytes, offsets[to]);
            }
        });
        let found = sample.survey();
        assert_only_lost(&found, &[3, 4], "swapped ciphertexts");
        assert_eq!((&found[3], &found[4]), (&Seen::Damaged, &Seen::Damaged));
    }
}

/// A plain block among encrypted ones would pass for data that the key vouches for; the reverse has no key to be opened
/// by.
#[test]
fn a_block_of_the_other_kind_is_refused() {
    for (coding, kind) in [(CODINGS[0], 2), (CODINGS[1], 1), (CODINGS[2], 1)] {
        let sample = Sample::new(coding);
        let offset = sample.offsets()[1];
        patch(&sample.data(), |bytes| {
            bytes[offset as usize + 12] = kind;
            seal_header(bytes, offset);
        });
        let found = sample.survey();
        assert_only_lost(&found, &[1], &format!("{coding:?} told to be of kind {kind}"));
        assert_eq!(found[1], Seen::Damaged);
    }
}

/// Numbers that would make the drive go in circles, or count up to them.
#[test]
fn a_header_with_another_number_is_refused() {
    let sample = Sample::new(CODINGS[0]);
    let offset = sample.offsets()[3];
    for lbn in [0, 2, 4, 5, 1 << 50, u64::MAX] {
        patch(&sample.data(), |bytes| {
            bytes[offset as usize + 16..offset as usize + 24].copy_from_slice(&u64::to_le_bytes(lbn));
            seal_header(bytes, offset);
        });
        for _ in 0..2 {
            assert_only_lost(&sample.survey(), &[3], &format!("block 3 said to be {lbn}"));
            fs::remove_file(sample.index()).unwrap();
        }
    }
}

/// The same behind a damaged header, where any number that fits is believed.
#[test]
fn a_number_that_does_not_fit_is_not_believed() {
    let sample = Sample::new(CODINGS[0]);
    let offsets = sample.offsets();
    for lbn in [0, 3, 1 << 50, u64::MAX] {
        patch(&sample.data(), |bytes| {
            bytes[offsets[3] as usize] ^= 1;
            bytes[offsets[4] as usize + 16..offsets[4] as usize + 24].copy_from_slice(&u64::to_le_bytes(lbn));
            seal_header(bytes, offsets[4]);
        });
        for _ in 0..2 {
            assert_only_lost(&sample.survey(), &[3, 4], &format!("block 4 said to be {lbn}"));
            fs::remove_file(sample.index()).unwrap();
        }
        patch(&sample.data(), |bytes| bytes[offsets[3] as usize] ^= 1);
    }
}

#[test]
fn records_of_an_earlier_life_are_refused() {
    for coding in CODINGS {
        let sample = Sample::blank(coding);
        sample.write_from(0, 2, &LAYOUT);
        let earlier = fs::read(sample.data()).unwrap();
        sample.write_from(0, 1, &LAYOUT);
        let offsets = sample.offsets();
        let now = fs::read(sample.data()).unwrap();
        for lbn in 0..LAYOUT.len() {
            let len = offsets[lbn + 1] - offsets[lbn];
            patch(&sample.data(), |bytes| splice(bytes, offsets[lbn], &earlier, offsets[lbn], len));
            for found in [sample.survey(), sample.survey()] {
                assert_only_lost(&found, &[lbn], &format!("{coding:?}, block {lbn} replayed"));
            }
            fs::write(sample.data(), &now).unwrap();
        }
    }
}

/// Killed between the new memory and the cut, a volume that is written anew still has its old records: they are void.
#[test]
fn a_new_life_voids_what_was_not_cut_yet() {
    let sample = Sample::new(CODINGS[0]);
    let earlier = fs::read(sample.data()).unwrap();
    sample.erase();
    patch(&sample.data(), |bytes| bytes.extend_from_slice(&earlier[4096..]));
    assert_eq!(sample.survey(), []);
    sample.write_from(0, 1, &LAYOUT);
    assert_eq!(sample.survey(), whole());
}

/// An index that was kept from another time of the same life points into the middle of records.
#[test]
fn a_stale_index_is_found_out() {
    let sample = Sample::new(CODINGS[0]);
    let stale = fs::read(sample.index()).unwrap();
    sample.write_from(1, 2, &[10, 20, 0, 30]);
    fs::write(sample.index(), &stale).unwrap();
    let mut expected = whole()[..1].to_vec();
    expected.extend(written(1, 2, &[10, 20, 0, 30]));
    assert_eq!(sample.survey(), expected);

    sample.write_from(5, 2, &[300; 10]);
    fs::write(sample.index(), &stale).unwrap();
    expected.extend(written(5, 2, &[300; 10]));
    assert_eq!(sample.survey(), expected);
}

/// An index with right checksums that calls whole records damaged, or puts them where a write would cut into others.
#[test]
fn a_forged_index_is_found_out() {
    let sample = Sample::new(CODINGS[0]);
    let index = fs::read(sample.index()).unwrap();
    let life = index[16..24].to_vec();
    for (lbn, kind, offset) in
        [(3, 3, 0), (3, 3, u64::MAX), (3, 3, 4100), (0, 3, 0), (4, 1, 0), (4, 1, u64::MAX), (4, 2, 4100), (8, 3, 4096)]
    {
        patch(&sample.index(), |bytes| {
            let at = 32 + 16 * lbn as usize;
            bytes[at..at + 8].copy_from_slice(&offset.to_le_bytes());
            bytes[at + 8] = kind;
            let mut checked = life.clone();
            checked.extend_from_slice(&u64::to_le_bytes(lbn));
            checked.extend_from_slice(&bytes[at..at + 12]);
            bytes[at + 12..at + 16].copy_from_slice(&crc32c(&checked).to_le_bytes());
        });
        assert_eq!(sample.survey(), whole(), "block {lbn} said to be at {offset}");
        assert_eq!(fs::read(sample.index()).unwrap(), index, "the index is made again");
    }
}

/// A cartridge can hold the image of itself: a backup of the directory that the cartridge lies in. A scan behind a
/// damaged header meets the headers of that image first.
#[test]
fn the_image_of_a_cartridge_inside_it_is_not_taken_for_records() {
    let sample = Sample::new(CODINGS[0]);
    let image = fs::read(sample.data()).unwrap();
    let header = sample.offsets()[3];
    let mut drive = sample.load().unwrap();
    drive.locate(3).unwrap();
    drive.write_block(&image[4096..4096 + 500]).unwrap();
    drive.write_block(b"behind").unwrap();
    drive.unload().unwrap();
    patch(&sample.data(), |bytes| bytes[header as usize] ^= 1);
    for _ in 0..2 {
        let mut expected = whole()[..3].to_vec();
        expected.extend([Seen::Damaged, Seen::Block(b"behind".to_vec())]);
        assert_eq!(sample.survey(), expected);
        fs::remove_file(sample.index()).unwrap();
    }
}
