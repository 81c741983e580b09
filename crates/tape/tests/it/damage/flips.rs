//! Each bit of both files, flipped one at a time.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::survey::{CODINGS, LAYOUT, Sample, Seen, assert_only_lost, whole};

fn flip(path: &Path, bit: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    byte[0] ^= 1 << (bit % 8);
    file.write_all_at(&byte, bit / 8).unwrap();
}

/// A flipped bit costs the block it is in and no other; the last block's header is where the end of data is found, so
/// there the volume may also end one block earlier, as a truncated one does.
#[test]
fn a_flipped_bit_of_the_records_costs_one_block() {
    for coding in CODINGS {
        let sample = Sample::new(coding);
        let offsets = sample.offsets();
        for lbn in 0..LAYOUT.len() {
            let (from, to) = (offsets[lbn], offsets[lbn + 1]);
            // Of the header every bit; of the stored bytes one each, since the checksum treats all alike.
            for bit in (from * 8..(from + 36) * 8).chain((from + 36..to).map(|byte| byte * 8 + byte % 8)) {
                let what = format!("{coding:?}, bit {} of byte {}", bit % 8, bit / 8);
                flip(&sample.data(), bit);
                let with_index = sample.survey();
                fs::remove_file(sample.index()).unwrap();
                let without_index = sample.survey();
                flip(&sample.data(), bit);
                for found in [&with_index, &without_index] {
                    assert_ne!(found, &whole(), "{what} was not seen");
                    assert_only_lost(found, &[lbn], &what);
                }
            }
        }
        assert_eq!(sample.survey(), whole(), "all bits are flipped back");
    }
}

#[test]
fn a_flipped_bit_of_the_memory_costs_nothing() {
    let sample = Sample::new(CODINGS[1]);
    for byte in 0..4096 {
        // The memory's copies in full, the zeros around them by one bit.
        let bits = if byte % 2048 < 512 { 8 } else { 1 };
        for bit in byte * 8..byte * 8 + bits {
            flip(&sample.data(), bit);
            assert_eq!(sample.survey(), whole(), "bit {} of byte {byte}", bit % 8);
            flip(&sample.data(), bit);
        }
    }
}

#[test]
fn a_flipped_bit_of_the_index_costs_nothing() {
    let sample = Sample::new(CODINGS[1]);
    let index = fs::read(sample.index()).unwrap();
    assert_eq!(index.len(), 32 + 16 * LAYOUT.len());
    for bit in 0..index.len() as u64 * 8 {
        flip(&sample.index(), bit);
        assert_eq!(sample.survey(), whole(), "bit {} of byte {}", bit % 8, bit / 8);
        assert_eq!(fs::read(sample.index()).unwrap(), index, "the index is made again");
    }
}

/// Two damaged headers in a row leave the blocks around them readable.
#[test]
fn damaged_neighbours_cost_themselves_only() {
    let sample = Sample::new(CODINGS[0]);
    let offsets = sample.offsets();
    for first in 0..LAYOUT.len() - 2 {
        for count in 2..LAYOUT.len() - first {
            let lost: Vec<usize> = (first..first + count).collect();
            lost.iter().for_each(|lbn| flip(&sample.data(), offsets[*lbn] * 8));
            let what = format!("blocks {lost:?}");
            for found in [sample.survey(), sample.survey()] {
                assert_only_lost(&found, &lost, &what);
                assert_eq!(found.iter().filter(|seen| **seen == Seen::Damaged).count(), count, "{what}");
            }
            lost.iter().for_each(|lbn| flip(&sample.data(), offsets[*lbn] * 8));
            fs::remove_file(sample.index()).unwrap();
        }
    }
}
