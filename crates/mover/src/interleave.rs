//! Which connection's block goes to the drive next.
//!
//! Blocks of one connection are kept together as long as it has any, up to an extent's length, because a restore of one
//! object passes over what is not its own extent by extent. When the current connection runs dry the choice waits until
//! another has gathered enough for a worthwhile extent, unless the pool runs low or the drive would starve: then the
//! one with most goes. A stream that could have gone and was passed over for some turns goes next, however much others
//! have: a small job ends while a large one goes on. The choice is a pure function of what is held; [`Interleave`] only
//! keeps the queues.
//!
//! Chunks of a connection that were packed by different workers arrive out of order and are put back in order here.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::block::Block;

/// Bounds of extents, in bytes as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Turns of others that a stream is passed over for, at most.
const TURNS_PASSED_MAX: u64 = 8;

#[derive(Default)]
struct Stream {
    ready: VecDeque<Block>,
    ready_bytes: u64,
    early: BTreeMap<u32, Block>,
    next_sequence: u32,
    /// Whether its last block is ready.
    ended: bool,
    /// It ends in front of the block of this sequence, without a last one.
    cut_at: Option<u32>,
    /// The turn from which on it could have gone; none where it is not worth one, or has it.
    since_turn: Option<u64>,
}

impl Stream {
    fn starting_at(first_sequence: u32) -> Self {
        Self { next_sequence: first_sequence, ..Self::default() }
    }

    /// Notes whether it is worth a turn.
    fn note_turn(&mut self, turn: u64, worthwhile: u64) {
        let is_worth_it = self.ready_bytes > 0 && (self.ended || self.ready_bytes >= worthwhile);
        if is_worth_it {
            self.since_turn.get_or_insert(turn);
        }
    }

    /// Whether all of it has gone.
    fn is_over(&self) -> bool {
        self.ready.is_empty() && self.cut_at.is_some_and(|cut_at| self.next_sequence >= cut_at)
    }
}

/// A block whose turn has come.
pub(crate) struct Turn {
    pub(crate) block: Block,
    /// Whether nothing more of its stream comes.
    pub(crate) ends_stream: bool,
}

/// The queues of all streams and the one that has its turn.
pub(crate) struct Interleave {
    bounds: ExtentBounds,
    streams: HashMap<u64, Stream>,
    order: Vec<u64>,
    current: Option<u64>,
    extent_bytes: u64,
    held: usize,
    /// How many turns there were.
    turns: u64,
}

impl Interleave {
    pub(crate) fn new(bounds: ExtentBounds) -> Self {
        Self { bounds, streams: HashMap::new(), order: Vec::new(), current: None, extent_bytes: 0, held: 0, turns: 0 }
    }

    /// Blocks held back.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Takes a block from a packer.
    pub(crate) fn offer(&mut self, block: Block) {
        let first_sequence = block.place.first_sequence;
        let (turns, worthwhile) = (self.turns, self.bounds.worthwhile);
        let is_current = self.current == Some(block.place.stream);
        let stream = self.stream(block.place.stream, first_sequence);
        stream.early.insert(block.place.sequence, block);
        while let Some(block) = stream.early.remove(&stream.next_sequence) {
            stream.next_sequence += 1;
            stream.ended |= block.place.closes || stream.cut_at == Some(stream.next_sequence);
            stream.ready_bytes += block.len() as u64;
            stream.ready.push_back(block);
        }
        if !is_current {
            stream.note_turn(turns, worthwhile);
        }
        self.held += 1;
    }

    fn stream(&mut self, key: u64, first_sequence: u32) -> &mut Stream {
        self.streams.entry(key).or_insert_with(|| {
            self.order.push(key);
            Stream::starting_at(first_sequence)
        })
    }

    /// Learns that a stream ends in front of this block; whether all of it has gone already.
    pub(crate) fn cut(&mut self, key: u64, first_sequence: u32, sequence: u32) -> bool {
        let (turns, worthwhile) = (self.turns, self.bounds.worthwhile);
        let stream = self.stream(key, first_sequence);
        stream.cut_at = Some(sequence);
        stream.ended |= stream.next_sequence >= sequence;
        if stream.is_over() {
            self.forget(key);
            return true;
        }
        stream.note_turn(turns, worthwhile);
        false
    }

    fn forget(&mut self, key: u64) {
        self.streams.remove(&key);
        self.order.retain(|&other| other != key);
        if self.current == Some(key) {
            self.current = None;
        }
    }

    /// The next block for the drive, if one should go now.
    pub(crate) fn next(&mut self, pressure: Pressure) -> Option<Turn> {
        let current_goes_on = self.current.is_some_and(|key| {
            self.extent_bytes < self.bounds.longest && self.streams.get(&key).is_some_and(|s| !s.ready.is_empty())
        });
        if !current_goes_on {
            let queues = self.order.iter().map(|key| {
                let stream = &self.streams[key];
                let passed_over = stream.since_turn.map_or(0, |since| self.turns - since);
                Queue { ready_bytes: stream.ready_bytes, ended: stream.ended, passed_over }
            });
            let current = self.current.and_then(|key| self.order.iter().position(|&other| other == key));
            let chosen = choose(queues, current, self.bounds.worthwhile, pressure)?;
            self.give_turn(self.order[chosen]);
        }
        let key = self.current?;
        let stream = self.streams.get_mut(&key)?;
        let block = stream.ready.pop_front()?;
        stream.ready_bytes -= block.len() as u64;
        self.extent_bytes += block.len() as u64;
        self.held -= 1;
        let ends_stream = block.place.closes || stream.is_over();
        if ends_stream {
            self.forget(key);
        }
        Some(Turn { block, ends_stream })
    }

    fn give_turn(&mut self, key: u64) {
        self.turns += 1;
        let (before, turns, worthwhile) = (self.current.replace(key), self.turns, self.bounds.worthwhile);
        // Another turn of the only stream that has anything is the same extent going on.
        if before != Some(key) || self.extent_bytes >= self.bounds.longest {
            self.extent_bytes = 0;
        }
        if let Some(stream) = before.filter(|before| *before != key).and_then(|key| self.streams.get_mut(&key)) {
            stream.note_turn(turns, worthwhile);
        }
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.since_turn = None;
        }
    }
}

/// What the choice knows of a stream.
#[derive(Debug, Clone, Copy)]
struct Queue {
    ready_bytes: u64,
    ended: bool,
    /// Turns for which it could have gone and did not.
    passed_over: u64,
}

/// The stream that has its turn: the one with most, if that is worth an extent, or if something must go; and before it
/// one that was passed over too often.
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
        .max_by_key(|&(at, queue)| {
            let overdue = if queue.passed_over < TURNS_PASSED_MAX { 0 } else { queue.passed_over };
            (overdue, queue.ready_bytes, Some(at) != current, std::cmp::Reverse(at))
        })
        .map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use capstan_format::{Compression, ObjectId};

    use super::*;
    use crate::block::ChunkPlace;
    use crate::pool::BlockPool;

    fn queue(ready_bytes: u64) -> Queue {
        Queue { ready_bytes, ended: false, passed_over: 0 }
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
        let queues = [queue(0), Queue { ready_bytes: 1, ended: true, passed_over: 0 }];
        assert_eq!(choose(queues.into_iter(), Some(0), 10, Pressure::None), Some(1));
    }

    #[test]
    fn equal_streams_take_turns() {
        let queues = [queue(8), queue(8)];
        assert_eq!(choose(queues.into_iter(), Some(0), 4, Pressure::None), Some(1));
        assert_eq!(choose(queues.into_iter(), Some(1), 4, Pressure::None), Some(0));
    }

    #[test]
    fn who_was_passed_over_often_goes_before_who_has_more() {
        let small = |passed_over| Queue { ready_bytes: 1, ended: true, passed_over };
        let chosen = |passed_over| choose([queue(9), small(passed_over)].into_iter(), None, 4, Pressure::None);
        assert_eq!((chosen(TURNS_PASSED_MAX - 1), chosen(TURNS_PASSED_MAX)), (Some(0), Some(1)));
    }

    #[test]
    fn nothing_ready_is_nothing_chosen() {
        assert_eq!(choose([queue(0)].into_iter(), None, 0, Pressure::Release), None);
    }

    fn block(stream: u64, sequence: u32, closes: bool) -> Block {
        let place = ChunkPlace {
            stream,
            first_sequence: 0,
            closes,
            object: ObjectId([stream as u8; 16]),
            connection: 0,
            sequence,
            offset: 0,
            plain_len: 0,
            last: closes,
            valid_len: 0,
        };
        let buffer = BlockPool::new(1, 0).take();
        Block { place, buffer, compression: Compression::None, stored_len: 0, entries: Vec::new(), _held: None }
    }

    fn interleave() -> Interleave {
        Interleave::new(ExtentBounds { worthwhile: 1, longest: 1 })
    }

    /// The streams of the blocks that go, and whether each was its stream's last.
    fn turns(interleave: &mut Interleave) -> Vec<(u64, bool)> {
        let next = || interleave.next(Pressure::None).map(|turn| (turn.block.place.stream, turn.ends_stream));
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn a_stream_that_is_cut_ends_with_its_last_block_wherever_that_is() {
        let mut all = interleave();
        // Before any block came, with none to come; with one that is packed still; with one that waits for its turn.
        assert!(all.cut(1, 0, 0));
        assert!(!all.cut(2, 0, 2));
        all.offer(block(2, 1, false));
        assert_eq!(turns(&mut all), []);
        all.offer(block(2, 0, false));
        assert_eq!(turns(&mut all), [(2, false), (2, true)]);
        all.offer(block(3, 0, false));
        assert!(!all.cut(3, 0, 1));
        assert_eq!(turns(&mut all), [(3, true)]);
        // Behind the last one that went.
        all.offer(block(4, 0, false));
        assert_eq!(turns(&mut all), [(4, false)]);
        assert!(all.cut(4, 0, 1));
        assert_eq!((all.held(), all.streams.len(), all.order.len()), (0, 0, 0));
    }

    #[test]
    fn a_small_stream_comes_through_though_a_large_one_always_has_more() {
        let mut all = interleave();
        all.offer(block(1, 0, true));
        let mut sequence = 0;
        let mut passed = 0;
        loop {
            while all.held() < 9 {
                all.offer(block(2, sequence, false));
                sequence += 1;
            }
            let turn = all.next(Pressure::None).map(|turn| turn.block.place.stream);
            if turn == Some(1) {
                break;
            }
            passed += 1;
            assert!(passed <= TURNS_PASSED_MAX, "{passed}");
        }
        assert_eq!(passed, TURNS_PASSED_MAX);
    }
}
