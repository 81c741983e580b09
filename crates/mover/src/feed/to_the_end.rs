//! Streams that come to their end, whatever happens to whoever brings them.

use std::collections::{BTreeMap, HashMap};

use super::Feeds;
use crate::stream::Piece;

/// Why a stream ends that was not sent to its end, though the mover says that it sent all.
pub(crate) const NOT_ALL: &str = "the mover did not send all of it";

/// Feeds, and which of some of their streams have begun, of those that have not ended. What comes of others is dropped.
pub(crate) struct UpToTheEnd<'a> {
    feeds: &'a mut dyn Feeds,
    have_begun: BTreeMap<usize, bool>,
}

impl<'a> UpToTheEnd<'a> {
    /// Streams that are to come.
    pub(crate) fn of(feeds: &'a mut dyn Feeds, streams: impl IntoIterator<Item = usize>) -> Self {
        Self { feeds, have_begun: streams.into_iter().map(|stream| (stream, false)).collect() }
    }

    fn has_begun(&self, stream: usize) -> bool {
        self.have_begun.get(&stream) == Some(&true)
    }

    /// Tells all streams that have not ended why nothing more comes.
    pub(crate) fn fail(&mut self, reason: &str) {
        let (begun, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.have_begun).into_iter().partition(|(_, has_begun)| *has_begun);
        // Those that have begun keep the threads that the others need.
        for (stream, has_begun) in begun.into_iter().chain(others) {
            if !has_begun {
                self.feeds.start(stream, 0);
            }
            self.feeds.send(stream, Piece::Gap((0..u64::MAX, reason.into())));
            self.feeds.end(stream);
        }
    }
}

impl Feeds for UpToTheEnd<'_> {
    fn without_blocks(&self, runs: &HashMap<usize, usize>) -> Vec<usize> {
        self.feeds.without_blocks(runs)
    }

    fn start(&mut self, stream: usize, open: usize) {
        if let Some(has_begun @ false) = self.have_begun.get_mut(&stream) {
            *has_begun = true;
            self.feeds.start(stream, open);
        }
    }

    fn try_send(&mut self, stream: usize, piece: Piece) -> Option<Piece> {
        if self.has_begun(stream) { self.feeds.try_send(stream, piece) } else { None }
    }

    fn send(&mut self, stream: usize, piece: Piece) {
        if self.has_begun(stream) {
            self.feeds.send(stream, piece);
        }
    }

    fn end(&mut self, stream: usize) {
        // One that has not begun is not ended by a word.
        if self.has_begun(stream) {
            self.have_begun.remove(&stream);
            self.feeds.end(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::io::BufRead;
    use std::sync::Mutex;

    use capstan_format::ObjectId;

    use super::*;
    use crate::crew::Crew;
    use crate::feed::CrewFeeds;
    use crate::read::{Wanted, WantedStream};
    use crate::stream::StreamReader;

    /// Streams that have begun keep all threads, and have higher numbers than those that have not.
    #[test]
    fn streams_that_have_not_begun_fail_behind_those_that_have() {
        let none = WantedStream {
            object: ObjectId([1; 16]),
            connection: 0,
            chunk_len: 100,
            members: vec![crate::read::WantedMember { offset: 0, len: 100, crc: 0 }],
            extents: Vec::new(),
        };
        let wanted = Wanted { volumes: Vec::new(), streams: vec![none; 40] };
        let failed = Mutex::new(Vec::new());
        let consume = |stream: usize, reader: &mut StreamReader<'_>| {
            if reader.range(0..100).fill_buf().is_err() {
                failed.lock().unwrap().push(stream);
            }
        };
        std::thread::scope(|scope| {
            let crew = Crew::new(scope, &wanted, &consume, 4, HashMap::new());
            let mut feeds = CrewFeeds { crew, feeds: HashMap::new() };
            let mut feeds = UpToTheEnd::of(&mut feeds, 0..40);
            (20..40).for_each(|stream| feeds.start(stream, stream - 20));
            feeds.fail("gone");
        });
        let mut failed = failed.into_inner().unwrap();
        failed.sort_unstable();
        assert_eq!(failed, (0..40).collect::<Vec<_>>());
    }
}
