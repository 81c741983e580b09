//! Streams that come to their end, whatever happens to whoever brings them.

use std::collections::{BTreeMap, HashMap};

use super::Feeds;
use crate::stream::Piece;

/// Feeds, and which of their streams have begun, of those that have not ended.
pub(crate) struct UpToTheEnd<'a> {
    feeds: &'a mut dyn Feeds,
    have_begun: BTreeMap<usize, bool>,
}

impl<'a> UpToTheEnd<'a> {
    /// Streams that are to come.
    pub(crate) fn of(feeds: &'a mut dyn Feeds, streams: impl IntoIterator<Item = usize>) -> Self {
        Self { feeds, have_begun: streams.into_iter().map(|stream| (stream, false)).collect() }
    }

    /// Tells all streams that have not ended why nothing more comes.
    pub(crate) fn fail(&mut self, reason: &str) {
        for (stream, has_begun) in std::mem::take(&mut self.have_begun) {
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
        if let Some(has_begun) = self.have_begun.get_mut(&stream) {
            *has_begun = true;
        }
        self.feeds.start(stream, open);
    }

    fn try_send(&mut self, stream: usize, piece: Piece) -> Option<Piece> {
        self.feeds.try_send(stream, piece)
    }

    fn send(&mut self, stream: usize, piece: Piece) {
        self.feeds.send(stream, piece);
    }

    fn end(&mut self, stream: usize) {
        self.have_begun.remove(&stream);
        self.feeds.end(stream);
    }
}
