//! Ranges of streams that extents hold, and those that they lack.

use std::ops::Range;

use capstan_catalog::{Catalog, Extent};
use capstan_format::ObjectId;

use crate::DirectorError;

/// What a copy of one connection's stream lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingRange {
    /// The connection.
    pub(crate) connection: u16,
    /// Sequence of the first block that is missing.
    pub(crate) sequence: u32,
    /// Bytes of the stream.
    pub(crate) range: Range<u64>,
    /// Whether the stream ends with it.
    pub(crate) last: bool,
}

/// What a copy lacks of streams that are whole up to the given lengths: a pure function of its extents. Those of other
/// copies do not count.
pub(crate) fn missing_ranges(copy: u8, parts: &[(u16, u64)], extents: &[Extent], chunk_len: u32) -> Vec<MissingRange> {
    let mut missing = Vec::new();
    for &(connection, valid_len) in parts {
        let own = extents.iter().filter(|extent| extent.copy == copy && extent.record.connection == connection);
        let mut own: Vec<_> = own.map(|extent| (extent.record.offset, extent.record.plain_len)).collect();
        own.sort_unstable();
        let mut at = 0;
        let mut lack = |range: Range<u64>| {
            if range.start < range.end {
                let sequence = (range.start / u64::from(chunk_len.max(1))) as u32;
                let last = range.end == valid_len;
                missing.push(MissingRange { connection, sequence, range, last });
            }
        };
        for (offset, len) in own {
            lack(at..offset.min(valid_len));
            at = at.max(offset.saturating_add(len));
        }
        lack(at..valid_len);
    }
    missing
}

/// How much of each connection's stream is whole.
pub(crate) fn stream_lengths(catalog: &Catalog, object: ObjectId) -> Result<Vec<(u16, u64)>, DirectorError> {
    Ok(catalog.parts(object)?.iter().map(|part| (part.connection, part.valid_len)).collect())
}

#[cfg(test)]
mod tests {
    use capstan_format::{ExtentRecord, ObjectId, SessionId, Volser};

    use super::*;

    fn extent(copy: u8, offset: u64, plain_len: u64) -> Extent {
        let record = ExtentRecord {
            object: ObjectId([1; 16]),
            connection: 0,
            first_sequence: (offset / 100) as u32,
            first_lbn: 3,
            blocks: plain_len.div_ceil(100) as u32,
            offset,
            plain_len,
            stored_len: plain_len,
        };
        Extent { copy, volser: Volser::new("A").expect("a volser"), session: SessionId(1), record }
    }

    #[test]
    fn a_copy_that_ended_early_lacks_the_rest() {
        let extents = [extent(1, 0, 1000), extent(2, 0, 400)];
        let missing = missing_ranges(2, &[(0, 950)], &extents, 100);
        assert_eq!(missing, [MissingRange { connection: 0, sequence: 4, range: 400..950, last: true }]);
    }

    #[test]
    fn a_hole_in_the_middle_is_found() {
        let extents = [extent(1, 0, 1000), extent(2, 0, 300), extent(2, 600, 400)];
        let missing = missing_ranges(2, &[(0, 1000)], &extents, 100);
        assert_eq!(missing, [MissingRange { connection: 0, sequence: 3, range: 300..600, last: false }]);
    }

    #[test]
    fn whole_copies_lack_nothing() {
        let extents = [extent(1, 0, 1000), extent(2, 0, 1000)];
        assert_eq!([1, 2].map(|copy| missing_ranges(copy, &[(0, 1000)], &extents, 100)), [[], []]);
    }

    #[test]
    fn a_copy_that_was_never_begun_lacks_every_stream() {
        let missing = missing_ranges(2, &[(0, 1000), (1, 0), (2, 50)], &[extent(1, 0, 1000)], 100);
        let all = |connection, len| MissingRange { connection, sequence: 0, range: 0..len, last: true };
        assert_eq!(missing, [all(0, 1000), all(2, 50)]);
    }
}
