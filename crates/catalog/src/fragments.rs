//! Fragments: what streams hold of members that are not whole yet, or that began in other streams.
//!
//! They come with the entries of checkpoints and are no members: nothing that lists files knows them. The longest of a
//! member in each stream is kept. What they say of the streams is computed where it is asked for, whatever came first:
//! where another stream goes on, a stream ends, though a volume that is found later holds more of it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use capstan_format::{EntryDecoder, EntryEncoder, FileEntry, FormatError, Fragment, ObjectId, PartRecord};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Row, Transaction, params};

/// How the streams of an object end, and which go on in others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamEnds {
    /// How much of each stream counts, by connection.
    pub parts: Vec<PartRecord>,
    /// The streams that others continue.
    pub continued: BTreeMap<u16, ContinuedStream>,
}

/// A stream that another continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContinuedStream {
    /// The other one.
    pub by: u16,
    /// Where it ends.
    pub end: u64,
    /// Where the member begins in it that goes on.
    pub begins: u64,
}

/// What becomes of the beginning of a file at the end of a stream that nothing continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CutOff {
    /// It may be gone on with.
    Kept,
    /// It is no part of the stream.
    Dropped,
}

impl StreamEnds {
    fn of(mut parts: Vec<PartRecord>, fragments: &[(FileEntry, Fragment)], cut_off: CutOff) -> Self {
        // By stream: those that go on from it, and where.
        let mut next: BTreeMap<u16, BTreeMap<u16, u64>> = BTreeMap::new();
        for (entry, fragment) in fragments {
            if let Some((before, end)) = fragment.continues {
                next.entry(before).or_default().insert(entry.connection, end);
            }
        }
        // A stream goes on from an earlier one.
        for part in parts.iter_mut().rev() {
            let is_continued = next.get(&part.connection).is_some_and(|others| !others.is_empty());
            if cut_off == CutOff::Kept || is_continued {
                continue;
            }
            let is_cut = |(entry, fragment): &&(FileEntry, Fragment)| {
                entry.connection == part.connection && entry.end() == part.valid_len && fragment.content < entry.size
            };
            if let Some((entry, fragment)) = fragments.iter().find(is_cut) {
                part.valid_len = entry.offset;
                if let Some(others) = fragment.continues.and_then(|(before, _)| next.get_mut(&before)) {
                    others.remove(&entry.connection);
                }
            }
        }
        let mut continued = BTreeMap::new();
        for (before, others) in next {
            // What an earlier one wrote was never recorded before this one was begun.
            let Some((by, end)) = others.into_iter().next_back() else { continue };
            let holds = |entry: &FileEntry| entry.connection == before && entry.offset < end && end <= entry.end();
            let begins = fragments.iter().find(|(entry, _)| holds(entry)).map_or(end, |(entry, _)| entry.offset);
            continued.insert(before, ContinuedStream { by, end, begins });
            parts.iter_mut().filter(|part| part.connection == before).for_each(|part| part.valid_len = end);
        }
        Self { parts, continued }
    }
}

/// Takes the fragments out of a run of entries.
pub(crate) fn apart(run: &[u8]) -> Result<(Cow<'_, [u8]>, Vec<FileEntry>), FormatError> {
    let mut found = Vec::new();
    for entry in EntryDecoder::new(run) {
        let entry = entry?;
        if entry.is_fragment() {
            found.push(entry);
        }
    }
    if found.is_empty() {
        return Ok((Cow::Borrowed(run), found));
    }
    let mut members = EntryEncoder::new();
    for entry in EntryDecoder::new(run) {
        let entry = entry?;
        if !entry.is_fragment() {
            members.push(&entry);
        }
    }
    Ok((Cow::Owned(members.finish()), found))
}

/// Keeps a fragment, if it is the longest of its member in its stream, and no later one says that the member is whole.
pub(crate) fn record(
    db: &Transaction<'_>,
    object: ObjectId,
    (entry, fragment): &(FileEntry, Fragment),
) -> Result<(), CatalogError> {
    let (id, connection) = (object.0, entry.connection);
    let start = number("the offset of a fragment", entry.offset)?;
    let goes_on = fragment.continues.is_some();
    let is_passed = "SELECT 1 FROM fragments WHERE object = ?1 AND connection = ?2 AND start > ?3";
    if !goes_on && db.exists(is_passed, params![id, connection, start])? {
        return Ok(());
    }
    let mut packed = EntryEncoder::new();
    packed.push(entry);
    db.execute(
        "INSERT INTO fragments (object, connection, start, stretch, goes_on, entry) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (object, connection, start) DO UPDATE SET stretch = excluded.stretch, entry = excluded.entry
         WHERE fragments.stretch < excluded.stretch",
        params![
            id,
            connection,
            start,
            number("the length of a fragment", entry.member_len)?,
            goes_on,
            packed.finish(),
        ],
    )?;
    db.execute(
        "DELETE FROM fragments WHERE object = ?1 AND connection = ?2 AND start < ?3 AND goes_on = ?4",
        params![id, connection, start, false],
    )?;
    Ok(())
}

impl Catalog {
    /// The fragments of an object, by connection and offset.
    ///
    /// # Errors
    /// The database cannot be read, or holds a fragment that is none.
    pub fn fragments(&self, object: ObjectId) -> Result<Vec<(FileEntry, Fragment)>, CatalogError> {
        let query = "SELECT entry FROM fragments WHERE object = ?1 ORDER BY connection, start";
        let entry = |row: &Row<'_>| Ok(row.bytes(0)?.to_vec());
        let packed: Vec<Vec<u8>> = self.db.query(query, params![object.0], entry)?;
        let damaged = |source: FormatError| CatalogError::corrupt("a fragment", source);
        let unpack = |packed: &Vec<u8>| {
            let entry = EntryDecoder::new(packed).next().transpose()?;
            let fragment = entry.as_ref().map(FileEntry::fragment).transpose()?.flatten();
            Ok(entry.zip(fragment))
        };
        packed.iter().filter_map(|packed| unpack(packed).map_err(damaged).transpose()).collect()
    }

    /// How the streams of an object end. The beginning of a file that was cut off counts while the object is open; of a
    /// complete one it does not, unless another stream goes on with it.
    ///
    /// # Errors
    /// The database cannot be read, or holds a fragment that is none.
    pub fn stream_ends(&self, object: ObjectId) -> Result<StreamEnds, CatalogError> {
        let query = "SELECT connection, valid_len FROM parts WHERE object = ?1 ORDER BY connection";
        let part = |row: &Row<'_>| Ok(PartRecord { object, connection: row.get(0)?, valid_len: row.get(1)? });
        let parts = self.db.query(query, params![object.0], part)?;
        let fragments = self.fragments(object)?;
        if fragments.is_empty() {
            return Ok(StreamEnds { parts, continued: BTreeMap::new() });
        }
        let complete = "SELECT 1 FROM objects WHERE object = ?1 AND complete = ?2";
        let is_complete = self.db.exists(complete, params![object.0, true])?;
        let cut_off = if is_complete { CutOff::Dropped } else { CutOff::Kept };
        Ok(StreamEnds::of(parts, &fragments, cut_off))
    }

    /// The same of an object as if it were complete.
    ///
    /// # Errors
    /// As [`Catalog::stream_ends`].
    pub fn whole_stream_ends(&self, object: ObjectId) -> Result<StreamEnds, CatalogError> {
        let ends = self.stream_ends(object)?;
        match self.fragments(object)? {
            fragments if fragments.is_empty() => Ok(ends),
            fragments => Ok(StreamEnds::of(ends.parts, &fragments, CutOff::Dropped)),
        }
    }

    /// How much of each connection's stream counts, by connection.
    ///
    /// # Errors
    /// As [`Catalog::stream_ends`].
    pub fn parts(&self, object: ObjectId) -> Result<Vec<PartRecord>, CatalogError> {
        Ok(self.stream_ends(object)?.parts)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{EntryFlags, EntryKind};

    use super::*;

    /// The fragment of a file of 1,000 bytes: its stream, where it begins there and how long it is, up to where the
    /// content goes, and the stream that it continues.
    fn fragment(
        (connection, offset, member_len): (u16, u64, u64),
        content: u64,
        continues: Option<(u16, u64)>,
    ) -> (FileEntry, Fragment) {
        let fragment = Fragment { content, header_len: 512, header_crc: 1, continues };
        let entry = FileEntry {
            path: b"large".to_vec(),
            kind: EntryKind::File,
            flags: EntryFlags::FRAGMENT,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 1000,
            mtime_ns: 0,
            change: 0,
            crc: 0,
            connection,
            offset,
            member_len,
            link: fragment.encode(),
        };
        (entry, fragment)
    }

    fn ends(lens: &[u64], fragments: &[(FileEntry, Fragment)], cut_off: CutOff) -> (Vec<u64>, Vec<(u16, u16)>) {
        let part = |(at, &valid_len)| PartRecord { object: ObjectId([1; 16]), connection: at as u16, valid_len };
        let ends = StreamEnds::of(lens.iter().enumerate().map(part).collect(), fragments, cut_off);
        let pairs = ends.continued.iter().map(|(before, next)| (*before, next.by)).collect();
        (ends.parts.iter().map(|part| part.valid_len).collect(), pairs)
    }

    #[test]
    fn a_file_that_nothing_goes_on_with_is_no_part_of_a_complete_object() {
        let cut = [fragment((0, 600, 100), 80, None)];
        assert_eq!(ends(&[700, 50], &cut, CutOff::Dropped), (vec![600, 50], vec![]));
        assert_eq!(ends(&[700, 50], &cut, CutOff::Kept), (vec![700, 50], vec![]));
        // Something came behind it.
        assert_eq!(ends(&[900, 50], &cut, CutOff::Dropped).0, [900, 50]);
        // It was gone on with once, and then no more.
        let twice = [fragment((0, 600, 100), 80, None), fragment((1, 0, 50), 130, Some((0, 700)))];
        assert_eq!(ends(&[700, 50], &twice, CutOff::Dropped), (vec![600, 0], vec![]));
        assert_eq!(ends(&[700, 50], &twice, CutOff::Kept), (vec![700, 50], vec![(0, 1)]));
    }

    #[test]
    fn a_stream_ends_where_another_goes_on_whatever_is_found_behind_it() {
        let whole = fragment((1, 0, 950), 1000, Some((0, 700)));
        for longest in [100, 250] {
            let cut = [fragment((0, 600, longest), 80, None), whole.clone()];
            assert_eq!(ends(&[2000, 990], &cut, CutOff::Dropped), (vec![700, 990], vec![(0, 1)]));
        }
        // A stream that was never recorded continues the same one.
        let lost = fragment((1, 0, 40), 120, Some((0, 700)));
        let later = fragment((2, 0, 950), 1000, Some((0, 700)));
        let all = [fragment((0, 600, 100), 80, None), lost, later];
        assert_eq!(ends(&[700, 40, 950], &all, CutOff::Dropped), (vec![700, 0, 950], vec![(0, 2)]));
    }
}
