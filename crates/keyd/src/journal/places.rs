//! Where the records of a journal stand in its file.
//!
//! A node that is cut off sends each entry to its peers as it notes it. Were the whole file read for each of them, a
//! long journal would cost the square of its length; so it is known where each record stands.

use std::ops::Range;

use super::chain::{Mac, Next, next_record};

/// A record that is in the file.
struct Placed {
    sequence: u64,
    mac: Mac,
    range: Range<u64>,
}

/// The records of a file, in order.
pub(super) struct Places {
    header_len: u64,
    records: Vec<Placed>,
}

impl Places {
    /// Of a file that has nothing but its header.
    pub(super) fn behind_header(header_len: u64) -> Self {
        Self { header_len, records: Vec::new() }
    }

    /// Takes in whole records that were written behind the others.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Next::Record { sequence, mac, len, .. } = next_record(bytes, at) {
            let begin = self.records.last().map_or(self.header_len, |last| last.range.end);
            self.records.push(Placed { sequence, mac, range: begin..begin + len as u64 });
            at += len;
        }
    }

    /// Whether the file has nothing but its header.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn header(&self) -> Range<u64> {
        0..self.header_len
    }

    /// The MAC of a record that is in the file.
    pub(super) fn mac(&self, sequence: u64) -> Option<&Mac> {
        let at = self.records.binary_search_by_key(&sequence, |record| record.sequence).ok()?;
        Some(&self.records[at].mac)
    }

    /// Where the records behind one stand, as many as have so many bytes together.
    pub(super) fn behind(&self, sequence: u64, len_max: u64) -> Range<u64> {
        let first = self.records.partition_point(|record| record.sequence <= sequence);
        let Some(begin) = self.records.get(first).map(|record| record.range.start) else { return 0..0 };
        let fitting = self.records[first..].partition_point(|record| record.range.end - begin <= len_max);
        let end = fitting.checked_sub(1).map_or(begin, |last| self.records[first + last].range.end);
        begin..end
    }
}
