//! Damage that is on record, and what follows from it: which blocks are taken to be sound, and what no copy has any
//! more.

use std::collections::HashMap;
use std::ops::Range;

use capstan_catalog::{Catalog, DamagedBlocks, Extent, Object};
use capstan_format::{ExtentRecord, FileEntry, ObjectId, ObjectKind, Volser};

use crate::DirectorError;
use crate::chains::Chains;
use crate::ranges::{MissingRange, missing_ranges, stream_lengths};
use crate::site::{Site, locked};

/// Blocks on record as damaged, by volume, in order.
#[derive(Debug, Default)]
pub(crate) struct BadPlaces(HashMap<Volser, Vec<Range<u64>>>);

impl BadPlaces {
    pub(crate) fn of(catalog: &Catalog) -> Result<Self, DirectorError> {
        let mut places: HashMap<Volser, Vec<Range<u64>>> = HashMap::new();
        for damage in catalog.damage()? {
            let DamagedBlocks { first_lbn, blocks, .. } = damage.blocks;
            if blocks == 0 {
                continue;
            }
            places.entry(damage.volser).or_default().push(first_lbn..first_lbn.saturating_add(blocks));
        }
        Ok(Self(places))
    }

    /// Extents without their damaged blocks: what is left of each, in pieces.
    pub(crate) fn sound(&self, extents: Vec<Extent>, chunk_len: u32) -> Vec<Extent> {
        self.split(extents, chunk_len).0
    }

    /// What is sound of extents of several objects.
    pub(crate) fn sound_of_each(&self, catalog: &Catalog, extents: Vec<Extent>) -> Result<Vec<Extent>, DirectorError> {
        if self.0.is_empty() {
            return Ok(extents);
        }
        let mut lens: HashMap<ObjectId, u32> = HashMap::new();
        let mut sound = Vec::new();
        for extent in extents {
            let object = extent.record.object;
            let chunk_len = match lens.get(&object) {
                Some(len) => *len,
                None => catalog.object(object)?.map_or(0, |object| object.chunk_len),
            };
            lens.insert(object, chunk_len);
            sound.extend(self.sound(vec![extent], chunk_len));
        }
        Ok(sound)
    }

    /// What is sound of extents, and what is damaged.
    pub(crate) fn split(&self, extents: Vec<Extent>, chunk_len: u32) -> (Vec<Extent>, Vec<Extent>) {
        if self.0.is_empty() {
            return (extents, Vec::new());
        }
        let mut damaged = Vec::new();
        let sound = extents.into_iter().flat_map(|extent| self.pieces(extent, chunk_len, &mut damaged)).collect();
        (sound, damaged)
    }

    fn pieces(&self, extent: Extent, chunk_len: u32, damaged: &mut Vec<Extent>) -> Vec<Extent> {
        let record = &extent.record;
        let blocks = record.first_lbn..record.first_lbn.saturating_add(u64::from(record.blocks));
        let bad = self.0.get(&extent.volser).map(Vec::as_slice).unwrap_or_default();
        // They do not overlap, and are in order.
        let first = bad.partition_point(|range| range.end <= blocks.start);
        let mut at = blocks.start;
        let mut pieces = Vec::new();
        for range in bad[first..].iter().take_while(|range| range.start < blocks.end) {
            pieces.extend(piece(&extent, chunk_len, at..range.start));
            damaged.extend(piece(&extent, chunk_len, at.max(range.start)..range.end.min(blocks.end)));
            at = at.max(range.end);
        }
        if at == blocks.start {
            return vec![extent];
        }
        pieces.extend(piece(&extent, chunk_len, at..blocks.end));
        pieces
    }
}

/// The blocks of an extent that are in a range, as an extent of their own.
fn piece(extent: &Extent, chunk_len: u32, lbns: Range<u64>) -> Option<Extent> {
    let record = &extent.record;
    if lbns.is_empty() {
        return None;
    }
    let first = lbns.start - record.first_lbn;
    let last = lbns.end - record.first_lbn;
    let begin = first * u64::from(chunk_len);
    // The extent's last block may be short.
    let end = if last == u64::from(record.blocks) { record.plain_len } else { last * u64::from(chunk_len) };
    let record = ExtentRecord {
        first_sequence: record.first_sequence.saturating_add(first as u32),
        first_lbn: lbns.start,
        blocks: (last - first) as u32,
        offset: record.offset.saturating_add(begin),
        plain_len: end.saturating_sub(begin),
        ..*record
    };
    Some(Extent { record, ..extent.clone() })
}

/// What no copy of an object has any more, as far as is known: ranges of its streams, by connection.
pub(crate) fn lost_ranges(
    catalog: &Catalog,
    object: &Object,
    bad: &BadPlaces,
) -> Result<Vec<(u16, Range<u64>)>, DirectorError> {
    let extents = bad.sound(catalog.extents(object.id, None)?, object.chunk_len);
    let one: Vec<_> = extents.into_iter().map(|extent| Extent { copy: 1, ..extent }).collect();
    let missing = missing_ranges(1, &stream_lengths(catalog, object.id)?, &one, object.chunk_len);
    Ok(missing.into_iter().map(|missing| (missing.connection, missing.range)).collect())
}

/// Objects of which damage took something that no copy has any more.
#[derive(Debug, Default)]
pub struct LostParts {
    ranges: HashMap<ObjectId, Vec<(u16, Range<u64>)>>,
    /// Objects whose one member runs through all streams.
    images: Vec<ObjectId>,
    /// How members of the others run through streams.
    chains: HashMap<ObjectId, Chains>,
}

impl LostParts {
    /// Bytes of an object's streams that are lost.
    pub fn bytes(&self, object: ObjectId) -> u64 {
        self.ranges.get(&object).into_iter().flatten().map(|(_, range)| range.end - range.start).sum()
    }

    /// Whether something of an entry of an object is lost.
    pub fn holds(&self, object: ObjectId, entry: &FileEntry) -> bool {
        let Some(lost) = self.ranges.get(&object).filter(|_| entry.member_len > 0) else { return false };
        let image = self.images.contains(&object);
        let own = self.chains.get(&object).map(|chains| chains.ranges(entry)).unwrap_or_default();
        let meets = |(connection, range): &(u16, Range<u64>)| {
            own.iter().any(|(other, own)| connection == other && range.start < own.end && range.end > own.start)
        };
        lost.iter().any(|lost| image || meets(lost))
    }

    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl Site {
    /// What damage on record took from objects for good. Asks the catalog only, and costs as much as there is damage.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn lost_parts(&self) -> Result<LostParts, DirectorError> {
        let catalog = locked(&self.catalog);
        let bad = BadPlaces::of(&catalog)?;
        let mut lost = LostParts::default();
        for id in catalog.damaged_objects()? {
            let Some(object) = catalog.object(id)? else { continue };
            let ranges = lost_ranges(&catalog, &object, &bad)?;
            if ranges.is_empty() {
                continue;
            }
            if object.kind != ObjectKind::Tree {
                lost.images.push(id);
            }
            lost.chains.insert(id, Chains::of(&catalog, id)?);
            lost.ranges.insert(id, ranges);
        }
        Ok(lost)
    }
}

/// What a copy lacks of an object: what it never held, and what is on record as damaged.
pub(crate) fn lacks(catalog: &Catalog, object: &Object, copy: u8) -> Result<Vec<MissingRange>, DirectorError> {
    let extents = BadPlaces::of(catalog)?.sound(catalog.extents(object.id, Some(copy))?, object.chunk_len);
    Ok(missing_ranges(copy, &stream_lengths(catalog, object.id)?, &extents, object.chunk_len))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]
    use capstan_format::SessionId;

    use super::*;

    fn extent(first_lbn: u64, blocks: u32, offset: u64, plain_len: u64) -> Extent {
        let record = ExtentRecord {
            object: ObjectId([1; 16]),
            connection: 0,
            first_sequence: (offset / 100) as u32,
            first_lbn,
            blocks,
            offset,
            plain_len,
            stored_len: plain_len,
        };
        Extent { copy: 1, volser: Volser::new("A").unwrap(), session: SessionId(1), record }
    }

    fn bad(ranges: &[Range<u64>]) -> BadPlaces {
        BadPlaces(HashMap::from([(Volser::new("A").unwrap(), ranges.to_vec())]))
    }

    /// `(first block, blocks, offset, bytes, sequence)` of each piece.
    fn left(extent: Extent, ranges: &[Range<u64>]) -> Vec<(u64, u32, u64, u64, u32)> {
        let sound = bad(ranges).sound(vec![extent], 100).into_iter();
        sound
            .map(|one| one.record)
            .map(|one| (one.first_lbn, one.blocks, one.offset, one.plain_len, one.first_sequence))
            .collect()
    }

    #[test]
    fn damaged_blocks_are_cut_out_of_extents() {
        let one = || extent(10, 5, 1000, 450);
        assert_eq!(left(one(), &[]), [(10, 5, 1000, 450, 10)]);
        assert_eq!(left(one(), &[3..10, 15..16]), [(10, 5, 1000, 450, 10)]);
        assert_eq!(left(one(), &[12..13]), [(10, 2, 1000, 200, 10), (13, 2, 1300, 150, 13)]);
        assert_eq!(left(one(), &[10..11, 14..20]), [(11, 3, 1100, 300, 11)]);
        assert_eq!(left(one(), &[0..99]), []);
    }
}
