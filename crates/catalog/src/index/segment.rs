//! Looking for names that have a segment of a pattern in them, in all names of a row group at once.
//!
//! What stands between the stars of a pattern is a segment: `z?b` of `*z?b*`, where `?` is any byte. Of a segment the
//! longest run of known bytes is looked for, and the rest of it is compared where that is found.

use std::ops::Range;

use memchr::memmem::Finder;

/// Bytes in the order in which they are rare in names, the rarest first; of all others nothing is known.
const FREQUENT: &[u8] = b"qjzxkwvybfgphumdlcr0123456789nsotaie";

/// Bytes that stand in a row in a name; `None` for any byte.
pub(crate) type Segment = Vec<Option<u8>>;

/// A segment that is looked for.
pub(crate) struct SegmentSearch {
    segment: Segment,
    finder: Finder<'static>,
    /// Where in the segment the run is that is looked for.
    at: usize,
}

impl SegmentSearch {
    /// `None` if nothing of the segment is known.
    pub(crate) fn new(segment: &Segment) -> Option<Self> {
        let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
        for (at, byte) in segment.iter().enumerate() {
            match (byte, runs.last_mut()) {
                (None, _) => {}
                (Some(byte), Some((from, run))) if *from + run.len() == at => run.push(*byte),
                (Some(byte), _) => runs.push((at, vec![*byte])),
            }
        }
        let rarity = |run: &[u8]| run.iter().filter_map(|byte| FREQUENT.iter().position(|other| other == byte)).min();
        let best = runs.into_iter().max_by_key(|(_, run)| (run.len(), std::cmp::Reverse(rarity(run))))?;
        let (at, run) = best;
        Some(Self { segment: segment.clone(), finder: Finder::new(&run).into_owned(), at })
    }

    /// Where the run stands next, from a place on.
    pub(crate) fn next_in(&self, texts: &[u8], from: usize) -> Option<usize> {
        Some(from + self.finder.find(texts.get(from..)?)?)
    }

    /// Whether the whole segment stands around a run that was found, within a name.
    pub(crate) fn is_at(&self, texts: &[u8], run: usize, name: Range<usize>) -> bool {
        let Some(begin) = run.checked_sub(self.at).filter(|begin| *begin >= name.start) else { return false };
        let Some(there) = texts[..name.end].get(begin..begin + self.segment.len()) else { return false };
        self.segment.iter().zip(there).all(|(wanted, byte)| wanted.is_none_or(|wanted| wanted == *byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: &str) -> Segment {
        text.bytes().map(|byte| (byte != b'?').then_some(byte)).collect()
    }

    #[test]
    fn the_longest_run_is_looked_for_and_of_equals_the_rarest() {
        for (text, run, at) in [("a?bcd?e", "bcd", 2), ("e?z?a", "z", 2), ("??x", "x", 2), ("a?\u{1}", "\u{1}", 2)] {
            let Some(search) = SegmentSearch::new(&segment(text)) else { panic!("{text}") };
            assert_eq!((search.finder.needle(), search.at), (run.as_bytes(), at), "{text}");
        }
        assert!(SegmentSearch::new(&segment("??")).is_none() && SegmentSearch::new(&Vec::new()).is_none());
    }

    #[test]
    fn a_segment_stands_within_one_name() {
        let search = SegmentSearch::new(&segment("b?d")).expect("b is known");
        // "ab" and "cde" behind it.
        assert!(
            !search.is_at(b"abcde", 1, 0..2) && search.is_at(b"abcde", 1, 0..5) && !search.is_at(b"abcde", 1, 2..5)
        );
    }
}
