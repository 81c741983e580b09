//! An index file on disk: its checksums, its footer, its row groups.
//!
//! Nothing of the file is decoded before its checksum was compared: the Parquet library is not written for hostile
//! bytes. The checksums (one for each row group, one for the footer) stand in the database, 4 bytes for 128 Ki rows, so
//! that a lookup reads and checks the row groups it needs and not the whole file.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use capstan_format::crc32c;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;

use super::columns::{Column, LAYOUT, PARTS_KEY, schema};
use super::group::{Group, GroupSource};
use super::parts::{PathParts, is_bitmap};
use crate::CatalogError;
use crate::order::{Key, KeyRange};

/// Decoded row groups that an open index keeps, about 11 MiB each: a walk of a tree that looks up every path goes back
/// and forth between a few directories.
const GROUPS_KEPT: usize = 4;
/// Footer length and magic behind the footer.
const TAIL_LEN: u64 = 8;
/// Longest footer that is believed.
const FOOTER_LEN_MAX: u64 = 1 << 30;
/// Longest bitmap of a row group that is believed.
const PARTS_LEN_MAX: u64 = 1 << 20;
/// Longest row group that is believed.
const GROUP_LEN_MAX: u64 = 1 << 32;

/// What the database knows of a file, to tell whether it is what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Length of the file.
    pub(crate) len: u64,
    /// CRC32C of each row group, and of footer and tail.
    pub(crate) crcs: Vec<u32>,
}

/// An open index file.
pub(crate) struct IndexFile {
    what: Arc<str>,
    file: File,
    metadata: Arc<ParquetMetaData>,
    groups: Vec<Extent>,
    /// Where the bitmap of each row group lies; none in files of versions before.
    parts: Vec<PartsPlace>,
    kept: Mutex<VecDeque<(usize, Arc<Group>)>>,
}

/// Where a row group lies and bounds of its keys.
struct Extent {
    bytes: Range<u64>,
    crc: u32,
    rows: u64,
    first: Key,
    last: Key,
}

/// Where the bitmap of a row group lies.
struct PartsPlace {
    bytes: Range<u64>,
    crc: u32,
}

impl IndexFile {
    /// Computes the checksums of a file that was just written, from the file itself.
    pub(crate) fn fingerprint(file: &File, what: &str) -> Result<Fingerprint, CatalogError> {
        let (len, footer_start, tail) = read_footer(file, what)?;
        let metadata = parse_footer(what, &tail)?;
        let mut crcs = Vec::new();
        for bytes in group_ranges(what, &metadata, footer_start)? {
            crcs.push(crc32c(&read(file, what, bytes)?));
        }
        crcs.push(crc32c(&tail));
        Ok(Fingerprint { len, crcs })
    }

    /// Opens a file and checks that its length and footer are what was written.
    pub(crate) fn open(file: File, what: &str, expected: &Fingerprint) -> Result<Self, CatalogError> {
        let corrupt = |reason: String| CatalogError::corrupt(what, reason);
        let (len, footer_start, tail) = read_footer(&file, what)?;
        if len != expected.len {
            return Err(corrupt(format!("{len} bytes long instead of {}", expected.len)));
        }
        let Some((&footer_crc, group_crcs)) = expected.crcs.split_last() else {
            return Err(corrupt("no checksums are recorded for it".to_owned()));
        };
        if crc32c(&tail) != footer_crc {
            return Err(corrupt("the checksum of its footer is wrong".to_owned()));
        }
        let metadata = parse_footer(what, &tail)?;
        let ranges = group_ranges(what, &metadata, footer_start)?;
        if ranges.len() != group_crcs.len() {
            return Err(corrupt(format!("{} row groups instead of {}", ranges.len(), group_crcs.len())));
        }
        let mut groups = Vec::with_capacity(ranges.len());
        for ((number, bytes), &crc) in ranges.into_iter().enumerate().zip(group_crcs) {
            let group = metadata.row_group(number);
            let rows = u64::try_from(group.num_rows()).map_err(|_| corrupt("row counts are negative".to_owned()))?;
            let (first_dir, last_dir) = bounds(group.column(Column::Dir as usize).statistics())
                .ok_or_else(|| corrupt(format!("row group {number} has no bounds")))?;
            let (first_name, last_name) = bounds(group.column(Column::Name as usize).statistics())
                .ok_or_else(|| corrupt(format!("row group {number} has no bounds")))?;
            // The bounds of the names are those of the keys only within one directory.
            let one_dir = first_dir == last_dir;
            let first = (first_dir, if one_dir { first_name } else { Vec::new() });
            let last = if one_dir { (last_dir, last_name) } else { ([&last_dir[..], &[0]].concat(), Vec::new()) };
            groups.push(Extent { bytes, crc, rows, first, last });
        }
        let parts = parts_of(what, &metadata, footer_start)?;
        let kept = Mutex::new(VecDeque::new());
        Ok(Self { what: what.into(), file, metadata: Arc::new(metadata), groups, parts, kept })
    }

    /// Rows in all.
    pub(crate) fn rows(&self) -> u64 {
        self.groups.iter().map(|group| group.rows).sum()
    }

    /// Length on disk.
    pub(crate) fn len(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.bytes.end)
    }

    /// Row groups that may hold keys of a range.
    pub(crate) fn groups_of(&self, range: &KeyRange) -> Range<usize> {
        let from = self.groups.partition_point(|group| group.last < range.from);
        let to = match &range.to {
            Some(to) => self.groups.partition_point(|group| group.first < *to),
            None => self.groups.len(),
        };
        from..to.max(from)
    }

    /// Whether a row group may have keys before one.
    pub(crate) fn begins_before(&self, number: usize, key: &Key) -> bool {
        self.groups[number].first < *key
    }

    /// Whether a row group can have a path with these parts.
    pub(crate) fn may_have(&self, number: usize, wanted: &PathParts) -> Result<bool, CatalogError> {
        let Some(place) = self.parts.get(number) else { return Ok(true) };
        let bitmap = read(&self.file, &self.what, place.bytes.clone())?;
        if crc32c(&bitmap) != place.crc || !is_bitmap(&bitmap) {
            let reason = format!("the checksum of the bitmap of row group {number} is wrong");
            return Err(CatalogError::corrupt(&self.what, reason));
        }
        Ok(wanted.may_be_in(&bitmap))
    }

    /// A row group, from memory if it was used lately.
    pub(crate) fn group(&self, number: usize) -> Result<Arc<Group>, CatalogError> {
        if let Some(group) = self.kept(number) {
            return Ok(group);
        }
        let extent = &self.groups[number];
        let bytes = Bytes::from(read(&self.file, &self.what, extent.bytes.clone())?);
        if crc32c(&bytes) != extent.crc {
            let reason = format!("the checksum of row group {number} is wrong");
            return Err(CatalogError::corrupt(&self.what, reason));
        }
        let (what, metadata) = (Arc::clone(&self.what), Arc::clone(&self.metadata));
        let source = GroupSource { what, metadata, number, bytes, start: extent.bytes.start };
        let group = Arc::new(Group::decode(source)?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((number, Arc::clone(&group)));
        kept.truncate(GROUPS_KEPT);
        Ok(group)
    }

    fn kept(&self, number: usize) -> Option<Arc<Group>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(kept, _)| *kept == number)?;
        let found = kept.remove(at)?;
        let group = Arc::clone(&found.1);
        kept.push_front(found);
        Some(group)
    }
}

/// Length of the file, where its footer begins, and footer and tail.
fn read_footer(file: &File, what: &str) -> Result<(u64, u64, Vec<u8>), CatalogError> {
    let metadata =
        file.metadata().map_err(|source| CatalogError::Io { what: format!("cannot read {what}"), source })?;
    let len = metadata.len();
    let short = || CatalogError::corrupt(what, "it is cut short");
    let tail_start = len.checked_sub(TAIL_LEN).ok_or_else(short)?;
    let tail = read(file, what, tail_start..len)?;
    let footer_len = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if tail[4..] != *b"PAR1" || footer_len > FOOTER_LEN_MAX {
        return Err(CatalogError::corrupt(what, "it does not end as a Parquet file ends"));
    }
    let footer_start = tail_start.checked_sub(footer_len).ok_or_else(short)?;
    Ok((len, footer_start, read(file, what, footer_start..len)?))
}

fn parse_footer(what: &str, footer_and_tail: &[u8]) -> Result<ParquetMetaData, CatalogError> {
    let footer = &footer_and_tail[..footer_and_tail.len() - TAIL_LEN as usize];
    let metadata = match catch_unwind(|| ParquetMetaDataReader::decode_metadata(footer)) {
        Ok(Ok(metadata)) => metadata,
        Ok(Err(error)) => return Err(CatalogError::corrupt(what, format!("its footer: {error}"))),
        Err(_) => return Err(CatalogError::corrupt(what, "its footer cannot be decoded")),
    };
    let values = metadata.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let layout = values.iter().find(|value| value.key == LAYOUT.0).and_then(|value| value.value.as_deref());
    if layout != Some(LAYOUT.1) {
        let layout = layout.unwrap_or("none");
        return Err(CatalogError::corrupt(what, format!("its layout is {layout}, this program reads {}", LAYOUT.1)));
    }
    let expected = schema().map_err(|error| CatalogError::corrupt(what, error))?;
    if metadata.file_metadata().schema() != &*expected {
        return Err(CatalogError::corrupt(what, "it has other columns than an index"));
    }
    Ok(metadata)
}

/// Where the bitmaps of row groups lie, checked to be inside the file; either of all or of none.
fn parts_of(what: &str, metadata: &ParquetMetaData, footer_start: u64) -> Result<Vec<PartsPlace>, CatalogError> {
    let values = metadata.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let Some(text) = values.iter().find(|value| value.key == PARTS_KEY).and_then(|value| value.value.as_deref()) else {
        return Ok(Vec::new());
    };
    let place = |line: &str| {
        let mut numbers = line.split(' ').map(str::parse::<u64>);
        let mut next = || numbers.next()?.ok();
        let (offset, len, crc) = (next()?, next()?, u32::try_from(next()?).ok()?);
        let end = offset.checked_add(len).filter(|end| *end <= footer_start && len <= PARTS_LEN_MAX)?;
        Some(PartsPlace { bytes: offset..end, crc })
    };
    let places: Option<Vec<_>> = text.lines().map(place).collect();
    let places = places.filter(|places| places.len() == metadata.num_row_groups());
    places.ok_or_else(|| CatalogError::corrupt(what, "it does not say where the bitmaps of its row groups are"))
}

/// Where each row group lies, checked to be inside the file.
fn group_ranges(what: &str, metadata: &ParquetMetaData, footer_start: u64) -> Result<Vec<Range<u64>>, CatalogError> {
    let outside = || CatalogError::corrupt(what, "a column lies outside the file");
    let mut ranges = Vec::with_capacity(metadata.num_row_groups());
    for group in metadata.row_groups() {
        let (mut from, mut to) = (u64::MAX, 0);
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
            let start = u64::try_from(start).map_err(|_| outside())?;
            let len = u64::try_from(column.compressed_size()).map_err(|_| outside())?;
            let end = start.checked_add(len).ok_or_else(outside)?;
            (from, to) = (from.min(start), to.max(end));
        }
        if from >= to || to > footer_start || to - from > GROUP_LEN_MAX {
            return Err(outside());
        }
        ranges.push(from..to);
    }
    Ok(ranges)
}

fn read(file: &File, what: &str, range: Range<u64>) -> Result<Vec<u8>, CatalogError> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    match file.read_exact_at(&mut bytes, range.start) {
        Ok(()) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(CatalogError::corrupt(what, "it is cut short"))
        }
        Err(source) => Err(CatalogError::Io { what: format!("cannot read {what}"), source }),
    }
}

fn bounds(statistics: Option<&Statistics>) -> Option<(Vec<u8>, Vec<u8>)> {
    let statistics = statistics?;
    Some((statistics.min_bytes_opt()?.to_vec(), statistics.max_bytes_opt()?.to_vec()))
}
