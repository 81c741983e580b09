//! Which connection's block goes to the drive next.
//!
//! Blocks of one connection are kept together as long as it has any, up to an extent's length, because a restore of one
//! object passes over what is not its own extent by extent. When the current connection runs dry the choice waits until
//! another has gathered enough for a worthwhile extent, unless the pool runs low or the drive would starve: then the
//! one with most goes. The choice is a pure function of what is held; [`Interleave`] only keeps the queues.
//!
//! Chunks of a connection that were packed by different workers arrive out of order and are put back in order here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::block::Block;

/// Bounds of extents, in bytes as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentBounds {
    /// A stream that was interrupted is taken up again once it has this much.
    pub worthwhile: u64,
    /// After this much another stream has its turn.
    pub longest: u64,
}

/// Why blocks should move on even if no stream has a worthwhile extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// There is room and the drive is busy.
    None,
    /// The pool runs low, or the drive has nothing to do.
    Release,
}

#[derive(Default)]
struct Stream {
    ready: VecDeque<Block>,
    ready_bytes: u64,
    early: BTreeMap<u32, Block>,
    next_sequence: u32,
    ended: bool,
}

/// The queues of all streams and the one that has its turn.
pub(crate) struct Interleave {
    bounds: ExtentBounds,
    streams: HashMap<u64, Stream>,
    order: Vec<u64>,
    current: Option<u64>,
    extent_bytes: u64,
    held: usize,
}

impl Interleave {
    pub(crate) fn new(bounds: ExtentBounds) -> Self {
        Self { bounds, streams: HashMap::new(), order: Vec::new(), current: None, extent_bytes: 0, held: 0 }
    }

    /// Blocks held back.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Takes a block from a packer.
    pub(crate) fn offer(&mut self, block: Block) {
        let key = block.place.stream;
        let stream = self.streams.entry(key).or_insert_with(|| {
            self.order.push(key);
            Stream { next_sequence: block.place.first_sequence, ..Stream::default() }
        });
        self.held += 1;
        stream.early.insert(block.place.sequence, block);
        while let Some(block) = stream.early.remove(&stream.next_sequence) {
            stream.next_sequence += 1;
            stream.ended |= block.place.closes;
            stream.ready_bytes += block.len() as u64;
            stream.ready.push_back(block);
        }
    }

    /// The next block for the drive, if one should go now.
    pub(crate) fn next(&mut self, pressure: Pressure) -> Option<Block> {
        let current_goes_on = self.current.is_some_and(|key| {
            self.extent_bytes < self.bounds.longest && self.streams.get(&key).is_some_and(|s| !s.ready.is_empty())
        });
        if !current_goes_on {
            let queues = self.order.iter().map(|key| {
                let stream = &self.streams[key];
                Queue { ready_bytes: stream.ready_bytes, ended: stream.ended }
            });
            let current = self.current.and_then(|key| self.order.iter().position(|&other| other == key));
            let chosen = choose(queues, current, self.bounds.worthwhile, pressure)?;
            let key = self.order[chosen];
            // Another turn of the only stream that has anything is the same extent going on.
            if self.current != Some(key) || self.extent_bytes >= self.bounds.longest {
                self.extent_bytes = 0;
            }
            self.current = Some(key);
        }
        let key = self.current?;
        let stream = self.streams.get_mut(&key)?;
        let block = stream.ready.pop_front()?;
        stream.ready_bytes -= block.len() as u64;
        self.extent_bytes += block.len() as u64;
        self.held -= 1;
        if block.place.closes {
            self.streams.remove(&key);
            self.order.retain(|&other| other != key);
            self.current = None;
        }
        Some(block)
    }
}

/// What the choice knows of a stream.
#[derive(Debug, Clone, Copy)]
struct Queue {
    ready_bytes: u64,
    ended: bool,
}

/// The stream that has its turn: the one with most, if that is worth an extent, or if something must go.
///
/// The current stream loses a tie, so that equal streams take turns.
fn choose(
    queues: impl Iterator<Item = Queue>,
    current: Option<usize>,
    worthwhile: u64,
    pressure: Pressure,
) -> Option<usize> {
    queues
        .enumerate()
        .filter(|(_, queue)| queue.ready_bytes > 0)
        .filter(|(_, queue)| pressure == Pressure::Release || queue.ended || queue.ready_bytes >= worthwhile)
        .max_by_key(|&(at, queue)| (queue.ready_bytes, Some(at) != current, std::cmp::Reverse(at)))
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(ready_bytes: u64) -> Queue {
        Queue { ready_bytes, ended: false }
    }

    #[test]
    fn waits_until_an_extent_is_worthwhile() {
        let queues = [queue(3), queue(5)];
        assert_eq!(choose(queues.into_iter(), None, 10, Pressure::None), None);
        assert_eq!(choose(queues.into_iter(), None, 5, Pressure::None), Some(1));
    }

    #[test]
    fn releases_the_fullest_under_pressure() {
        let queues = [queue(3), queue(5), queue(0)];
        assert_eq!(choose(queues.into_iter(), None, 10, Pressure::Release), Some(1));
    }

    #[test]
    fn an_ended_stream_need_not_grow() {
        let queues = [queue(0), Queue { ready_bytes: 1, ended: true }];
        assert_eq!(choose(queues.into_iter(), Some(0), 10, Pressure::None), Some(1));
    }

    #[test]
    fn equal_streams_take_turns() {
        let queues = [queue(8), queue(8)];
        assert_eq!(choose(queues.into_iter(), Some(0), 4, Pressure::None), Some(1));
        assert_eq!(choose(queues.into_iter(), Some(1), 4, Pressure::None), Some(0));
    }

    #[test]
    fn nothing_ready_is_nothing_chosen() {
        assert_eq!(choose([queue(0)].into_iter(), None, 0, Pressure::Release), None);
    }
}
