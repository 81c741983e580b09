//! Streams that go on from the end of others: a member that begins in one may end in the next.
//!
//! ```text
//! stream 0   | a | b | big file ...           ends at 700
//! stream 3                           | ... big file | c |     continues 0
//!
//! the big file: offset 600 of stream 0, 250 bytes = 600..700 of stream 0, then 0..150 of stream 3
//! ```
//! The streams of a device image all go on from each other, in the order of their numbers.

use std::collections::BTreeMap;
use std::ops::Range;

use capstan_catalog::{Catalog, ContinuedStream, StreamEnds};
use capstan_format::{FileEntry, ObjectId, ObjectKind, PartRecord};
use capstan_mover::{Connection, CutFile, StreamSink};

use crate::DirectorError;

/// Which streams of an object others continue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chains {
    continued: BTreeMap<u16, ContinuedStream>,
}

impl Chains {
    /// Those of an object.
    pub(crate) fn of(catalog: &Catalog, object: ObjectId) -> Result<Self, DirectorError> {
        let is_image = catalog.object(object)?.is_some_and(|record| record.kind == ObjectKind::Device);
        Ok(Self::of_streams(catalog.stream_ends(object)?, is_image))
    }

    pub(crate) fn of_streams(ends: StreamEnds, is_image: bool) -> Self {
        let StreamEnds { parts, mut continued } = ends;
        if is_image {
            let pairs = parts.iter().zip(parts.iter().skip(1));
            continued = pairs
                .map(|(one, other)| (one.connection, (other.connection, one.valid_len)))
                .map(|(one, (by, end))| (one, ContinuedStream { by, end, begins: 0 }))
                .collect();
        }
        // A stream goes on from an earlier one, so that no way along them comes back.
        continued.retain(|connection, stream| *connection < stream.by);
        Self { continued }
    }

    /// Where a stream ends, if another continues it.
    pub(crate) fn end(&self, connection: u16) -> Option<u64> {
        self.continued.get(&connection).map(|stream| stream.end)
    }

    /// A stream and those that continue it, each with its offset from the beginning of the first.
    pub(crate) fn from(&self, connection: u16) -> Vec<(u16, u64)> {
        let mut streams = vec![(connection, 0)];
        let (mut at, mut base) = (connection, 0u64);
        while let Some(ContinuedStream { by, end, .. }) = self.continued.get(&at) {
            base = base.saturating_add(*end);
            streams.push((*by, base));
            at = *by;
        }
        streams
    }

    /// The ranges of streams that a member lies in.
    pub(crate) fn ranges(&self, entry: &FileEntry) -> Vec<(u16, Range<u64>)> {
        let (start, end) = (entry.offset, entry.end());
        let Some(first) = self.end(entry.connection).filter(|first| start < *first && *first < end) else {
            return vec![(entry.connection, start..end)];
        };
        let mut ranges = vec![(entry.connection, start..first)];
        for (connection, base) in self.from(entry.connection).into_iter().skip(1) {
            let left = end.saturating_sub(base);
            let until = self.end(connection).map_or(left, |own| own.min(left));
            if left > 0 {
                ranges.push((connection, 0..until));
            }
        }
        ranges
    }

    /// Where a member ends: the stream, and the offset in it.
    pub(crate) fn end_of(&self, entry: &FileEntry) -> (u16, u64) {
        match self.ranges(entry).pop() {
            Some((connection, range)) => (connection, range.end),
            None => (entry.connection, entry.end()),
        }
    }

    /// What an object's archive consists of, in order: the streams in order of their numbers, but the beginning of a
    /// member that goes on in another stream comes in front of that one. So a later member of a path stays the later,
    /// and hard links stay behind what they are names of.
    pub(crate) fn in_order(&self, parts: &[PartRecord]) -> Vec<(u16, Range<u64>)> {
        let mut order = Vec::new();
        for part in parts {
            let end = match self.continued.get(&part.connection) {
                // All of it is of the member that goes on.
                Some(ContinuedStream { begins: 0, .. }) => continue,
                Some(stream) => stream.begins,
                None => part.valid_len,
            };
            order.extend(self.in_front_of(part.connection));
            order.push((part.connection, 0..end));
        }
        order
    }

    /// What comes in front of a stream: the beginning of the member that goes on in it.
    fn in_front_of(&self, connection: u16) -> Vec<(u16, Range<u64>)> {
        let Some((before, stream)) = self.continued.iter().find(|(_, stream)| stream.by == connection) else {
            return Vec::new();
        };
        let mut pieces = if stream.begins == 0 { self.in_front_of(*before) } else { Vec::new() };
        pieces.push((*before, stream.begins..stream.end));
        pieces
    }
}

/// Entries of streams, by the stream that they end in, each with where that is.
pub(crate) type EntriesOf = BTreeMap<u16, Vec<(u64, FileEntry)>>;

/// The entries of an object, in the order of their ends; a fragment comes before the member that ends with it.
pub(crate) fn entries_where_they_end(catalog: &Catalog, object: ObjectId) -> Result<EntriesOf, DirectorError> {
    let chains = Chains::of(catalog, object)?;
    let mut entries = EntriesOf::new();
    for (entry, fragment) in catalog.fragments(object)? {
        // Most are of members that were never cut off, and tell nothing any more.
        if fragment.continues.is_some() || chains.end(entry.connection) == Some(entry.end()) {
            entries.entry(entry.connection).or_default().push((entry.end(), entry));
        }
    }
    for entry in catalog.index(object)?.iter() {
        let entry = entry?;
        let (connection, end) = chains.end_of(&entry);
        entries.entry(connection).or_default().push((end, entry));
    }
    entries.values_mut().for_each(|own| own.sort_by_key(|(end, _)| *end));
    Ok(entries)
}

/// Whether a mover can have what is copied to it: those of older versions know no streams that go on from others.
pub(crate) fn check_taken(sink: &Connection, own: &[(u64, FileEntry)]) -> Result<(), DirectorError> {
    if sink.takes_fragments() || !own.iter().any(|(_, entry)| entry.is_fragment()) {
        return Ok(());
    }
    let reason = "its mover is too old for a backup that was cut off in the middle of a file: install a newer capstan \
                  there";
    Err(DirectorError::Output { reason: reason.to_owned() })
}

/// Files of an object that stays open that were cut off, and whose beginnings are on volumes; those with the most of it
/// first. One that the object has an entry of that came later is not gone on with: that entry would count.
pub(crate) fn cut_files(catalog: &Catalog, object: ObjectId) -> Result<Vec<CutFile>, DirectorError> {
    let ends = catalog.stream_ends(object)?;
    let fragments = catalog.fragments(object)?;
    let (mut cut, mut index) = (Vec::new(), None);
    for (entry, fragment) in &fragments {
        // Nothing came behind it in its stream, and no other goes on from there.
        let is_last =
            ends.parts.iter().any(|part| part.connection == entry.connection && part.valid_len == entry.end());
        if !is_last || ends.continued.contains_key(&entry.connection) || fragment.content >= entry.size {
            continue;
        }
        let (mut first, mut so_far, mut before) = (entry, entry.member_len, fragment.continues);
        while let Some((connection, end)) = before {
            let holds = |other: &FileEntry| other.connection == connection && other.offset < end && end <= other.end();
            let earlier = fragments.iter().find(|(other, _)| holds(other) && other.path == entry.path);
            let Some((earlier, said)) = earlier else { break };
            (first, before) = (earlier, said.continues);
            so_far = so_far.saturating_add(end - earlier.offset);
        }
        // A volume that was found without those before it does not say where the member begins.
        if before.is_some() {
            continue;
        }
        let begins = (first.connection, first.offset);
        // The index of an object that is open is made for this.
        let index = match &mut index {
            Some(index) => index,
            none => none.insert(catalog.index(object)?),
        };
        if index.get(&entry.path)?.is_some_and(|known| (known.connection, known.offset) >= begins) {
            continue;
        }
        cut.push(CutFile::of((entry, fragment), begins, so_far));
    }
    cut.sort_by_key(|file| std::cmp::Reverse(file.content));
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chains(continued: &[(u16, u16, u64, u64)]) -> Chains {
        let stream = |&(of, by, begins, end): &(u16, u16, u64, u64)| (of, ContinuedStream { by, end, begins });
        Chains { continued: continued.iter().map(stream).collect() }
    }

    fn parts(lens: &[u64]) -> Vec<PartRecord> {
        let part = |(at, &valid_len)| PartRecord { object: ObjectId([1; 16]), connection: at as u16, valid_len };
        lens.iter().enumerate().map(part).collect()
    }

    #[test]
    fn the_beginning_of_a_member_stands_in_front_of_its_rest_in_the_archive() {
        // Stream 2 is all of one member; stream 4 has its end and more.
        let found = chains(&[(0, 2, 600, 700), (2, 4, 0, 90)]).in_order(&parts(&[700, 50, 90, 60, 80]));
        assert_eq!(found, [(0, 0..600), (1, 0..50), (3, 0..60), (0, 600..700), (2, 0..90), (4, 0..80)]);
        // Stream 2 ends one, and begins another.
        let found = chains(&[(0, 2, 600, 700), (2, 4, 30, 90)]).in_order(&parts(&[700, 50, 90, 60, 80]));
        assert_eq!(found, [(0, 0..600), (1, 0..50), (0, 600..700), (2, 0..30), (3, 0..60), (2, 30..90), (4, 0..80)]);
        let image = [(0, 1, 0, 10), (1, 2, 0, 20)];
        assert_eq!(chains(&image).in_order(&parts(&[10, 20, 30])), [(0, 0..10), (1, 0..20), (2, 0..30)]);
    }
}
