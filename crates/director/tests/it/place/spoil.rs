//! Blocks of virtual cartridges that cannot be read any more.

use std::fs;
use std::os::unix::fs::FileExt;

use capstan_catalog::{Extent, Object};
use capstan_format::{ExtentRecord, ObjectId, Volser};

use super::Bench;

/// Flips bytes in the middle of a data block of an object's copy, as a bad spot of a tape would, and gives its number.
pub(crate) fn spoil(bench: &Bench, object: &Object, copy: u8) -> (Volser, u64) {
    let extents = bench.site().catalog().extents(object.id, Some(copy)).unwrap();
    let extent = extents.iter().find(|extent| extent.record.blocks > 2).unwrap();
    let lbn = extent.record.first_lbn + 1;
    spoil_block(bench, extent, lbn);
    (extent.volser.clone(), lbn)
}

/// The same of this block of an extent.
pub(crate) fn spoil_block(bench: &Bench, extent: &Extent, lbn: u64) {
    let ExtentRecord { object, connection, first_sequence, first_lbn, .. } = extent.record;
    // Data is stored as it is: the place is found by its content.
    let path = bench.cartridge(extent.volser.as_str());
    let bytes = fs::read(&path).unwrap();
    let header = find_header(&bytes, connection, first_sequence + (lbn - first_lbn) as u32, object);
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"ZZZZZZZZ", header as u64 + 70).unwrap();
}

/// Where a data block begins in a cartridge: its header names object, connection and sequence (FORMAT.md).
fn find_header(bytes: &[u8], connection: u16, sequence: u32, object: ObjectId) -> usize {
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(4).position(|window| window == b"CPB1") {
        at += found;
        let header = &bytes[at..at + 64];
        if header[4] == 1
            && header[6..8] == connection.to_le_bytes()
            && header[24..40] == object.0
            && header[40..44] == sequence.to_le_bytes()
        {
            return at;
        }
        at += 4;
    }
    panic!("block {sequence} of connection {connection} is not on the cartridge");
}
