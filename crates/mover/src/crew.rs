//! Threads that take streams: each has one at a time, and goes on with the next when that has ended.
//!
//! Whoever wants a thousand files of a tape has as many short streams, one open after the other: a thread for each
//! would be made and gone within one block. So a thread that has nothing left takes the next stream, and only if none
//! is free, another is made.
//!
//! Limits: as many threads as streams are open, and [`FINISHING_MAX`] that write what is left of those before. Whoever
//! starts a stream beyond that waits for one of these; they need nothing more from it, so they come to their end.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::Scope;

use crossbeam_channel::{TrySendError, bounded};

use crate::queue::{Receiver, Sender, queue};
use crate::read::Wanted;
use crate::stream::{Gap, Piece, Room, StreamReader};

/// Blocks that may wait for the threads of all open streams together. Each stream has its part of them, within
/// [`QUEUED_MIN`] and
/// [`QUEUED_MAX`]: a reader that has one stream hands on several blocks at a time.
const QUEUED: usize = 64;
const QUEUED_MIN: usize = 4;
const QUEUED_MAX: usize = 16;
/// Threads beyond those of open streams.
const FINISHING_MAX: usize = 8;

/// Blocks that may wait for a stream's thread where so many streams are open at once.
pub(crate) fn queue_len(open: usize) -> usize {
    (QUEUED / open.max(1)).clamp(QUEUED_MIN, QUEUED_MAX)
}

/// What is done with a stream.
pub(crate) type Consume<'env> = &'env (dyn Fn(usize, &mut StreamReader<'_>) + Sync);

/// A stream to take.
struct Job {
    stream: usize,
    gaps: Vec<Gap>,
    pieces: Receiver<Piece>,
}

/// The threads of one run.
pub(crate) struct Crew<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    wanted: &'env Wanted,
    consume: Consume<'env>,
    /// Blocks that may wait for a stream's thread.
    queue_len: usize,
    /// What no copy holds of streams that were not started yet.
    gaps: HashMap<usize, Vec<Gap>>,
    /// Without room: a job goes to a thread that waits for one, or to none.
    jobs: crossbeam_channel::Sender<Job>,
    waiting: crossbeam_channel::Receiver<Job>,
    /// Each thread holds one more, also one that panics.
    alive: Arc<()>,
}

impl<'scope, 'env> Crew<'scope, 'env> {
    pub(crate) fn new(
        scope: &'scope Scope<'scope, 'env>,
        wanted: &'env Wanted,
        consume: Consume<'env>,
        queue_len: usize,
        gaps: HashMap<usize, Vec<Gap>>,
    ) -> Self {
        let (jobs, waiting) = bounded(0);
        Self { scope, wanted, consume, queue_len, gaps, jobs, waiting, alive: Arc::default() }
    }

    /// Streams that have gaps and no block to read: whoever consumes them is told of the gaps all the same.
    pub(crate) fn without_blocks(&self, runs: &HashMap<usize, usize>) -> Vec<usize> {
        let mut streams: Vec<usize> = self.gaps.keys().copied().filter(|stream| !runs.contains_key(stream)).collect();
        streams.sort_unstable();
        streams
    }

    /// Starts a stream while so many others are open; its pieces go where this leads, and it ends when that is dropped.
    pub(crate) fn start(&mut self, stream: usize, open: usize) -> Sender<Piece> {
        let (sender, pieces) = queue(self.queue_len);
        let job = Job { stream, gaps: self.gaps.remove(&stream).unwrap_or_default(), pieces };
        if let Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) = self.jobs.try_send(job) {
            let threads = Arc::strong_count(&self.alive) - 1;
            if threads < open + FINISHING_MAX {
                self.hire(job);
            } else {
                // It cannot be without receivers: one is kept here.
                let _ = self.jobs.send(job);
            }
        }
        sender
    }

    fn hire(&self, first: Job) {
        let (wanted, consume) = (self.wanted, self.consume);
        let (waiting, alive) = (self.waiting.clone(), Arc::clone(&self.alive));
        self.scope.spawn(move || {
            let mut room = Room::default();
            let mut next = Some(first);
            while let Some(Job { stream, gaps, pieces }) = next {
                consume(stream, &mut StreamReader::new(&wanted.streams[stream], gaps, pieces, &mut room));
                next = waiting.recv().ok();
            }
            drop(alive);
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;
    use crate::read::WantedStream;

    #[test]
    fn a_thousand_short_streams_are_taken_once_each_by_few_threads() {
        let none = WantedStream {
            object: capstan_format::ObjectId([1; 16]),
            connection: 0,
            chunk_len: 100,
            members: Vec::new(),
            extents: Vec::new(),
        };
        let wanted = Wanted { volumes: Vec::new(), streams: vec![none; 1000] };
        let (taken, threads) = (Mutex::new(Vec::new()), Mutex::new(BTreeSet::new()));
        let consume = |stream: usize, _: &mut StreamReader<'_>| {
            taken.lock().unwrap().push(stream);
            threads.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
        };
        std::thread::scope(|scope| {
            let gap = (0..100, "on no volume".into());
            let mut crew = Crew::new(scope, &wanted, &consume, QUEUED_MIN, HashMap::from([(7, vec![gap])]));
            assert_eq!(crew.without_blocks(&HashMap::new()), [7]);
            // The first stays open all the time.
            let _first = crew.start(0, 0);
            (1..1000).for_each(|stream| drop(crew.start(stream, 1)));
        });
        let mut taken = taken.into_inner().unwrap();
        taken.sort_unstable();
        assert_eq!(taken, (0..1000).collect::<Vec<_>>());
        let threads = threads.into_inner().unwrap().len();
        assert!(threads <= 1 + FINISHING_MAX, "{threads} threads");
    }
}
