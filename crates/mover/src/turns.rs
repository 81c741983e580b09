//! Turns at a drive that several readers of one volume share.
//!
//! Each reader has a plan of its own, and says which block it reads next. The drive goes forward over the volume and
//! reads for each of them what lies on the way: what several want is read in one pass, and whoever comes later joins
//! it.
//!
//! A reader that is next is waited for, as long as it is cheaper to wait than to go elsewhere and come back: each way
//! on a tape costs seconds. So a slow client costs the others one such wait, falls behind, and has its turn when the
//! pass is over, or when the drive would stand still. A new pass begins as well when somebody behind has waited for
//! [`PASS_MIN`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What it costs at least to go to another place of the tape, and for each block that lies between; and at most.
const WAY_MIN: Duration = Duration::from_secs(2);
const WAY_BLOCK: Duration = Duration::from_micros(150);
const WAY_MAX: Duration = Duration::from_secs(60);
/// For each second that the drive reads, so much of a second that it stood still is forgiven.
const FORGIVEN: u32 = 10;
/// How long a reader that is behind waits at most for a new pass, and how long a pass is not broken off for another.
const PASS_MIN: Duration = Duration::from_secs(600);

/// Names a reader at a drive.
pub(crate) type ReaderId = u64;

/// Who has the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// This one.
    Reader(ReaderId),
    /// Nobody before then, unless somebody comes.
    Nobody(Instant),
}

/// A reader between its first block and its last.
#[derive(Debug)]
struct AtDrive {
    /// The block that it reads next.
    lbn: u64,
    /// Since when it waits for its turn; none while it is busy with what it has read.
    ready: Option<Instant>,
}

/// Who reads with one drive, and where it stands.
#[derive(Debug)]
pub(crate) struct Turns {
    head: u64,
    readers: BTreeMap<ReaderId, AtDrive>,
    /// For how long the drive stood still though somebody could read, since it was last sent elsewhere.
    stood: Duration,
    /// Since when that is so now.
    stands: Option<Instant>,
    /// When the last turn began.
    reads: Instant,
    /// When the last pass began that did so because somebody had waited.
    pass: Instant,
}

impl Turns {
    pub(crate) fn new(now: Instant) -> Self {
        Self { head: 0, readers: BTreeMap::new(), stood: Duration::ZERO, stands: None, reads: now, pass: now }
    }

    /// A reader waits for its turn at a block.
    pub(crate) fn waits(&mut self, id: ReaderId, lbn: u64, now: Instant) {
        let reader = self.readers.entry(id).or_insert(AtDrive { lbn, ready: None });
        reader.lbn = lbn;
        reader.ready.get_or_insert(now);
    }

    /// It has read its block, and goes on with that one; with none, it needs no turn any more.
    pub(crate) fn has_read(&mut self, id: ReaderId, lbn: u64, next: Option<u64>, now: Instant) {
        self.head = lbn + 1;
        self.stood = self.stood.saturating_sub(now.duration_since(self.reads) / FORGIVEN);
        match (next, self.readers.get_mut(&id)) {
            (Some(next), Some(reader)) => (reader.lbn, reader.ready) = (next, None),
            _ => self.leaves(id),
        }
    }

    /// It needs no turn any more.
    pub(crate) fn leaves(&mut self, id: ReaderId) {
        self.readers.remove(&id);
    }

    /// How many wait for their turn.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.readers.values().filter(|reader| reader.ready.is_some()).count()
    }

    /// Who has the next turn, while nobody reads.
    pub(crate) fn next(&mut self, now: Instant) -> Next {
        if let Some(since) = self.stands.take() {
            self.stood += now.duration_since(since);
        }
        if let Some(id) = self.late(now) {
            return Next::Reader(id);
        }
        let ready = self.first(|reader| reader.ready.is_some());
        let (Some((first, _)), Some((ready, lbn))) = (self.first(|_| true), ready) else {
            return Next::Nobody(now + WAY_MAX);
        };
        let blocks = u32::try_from(lbn.abs_diff(self.head)).unwrap_or(u32::MAX);
        let way = WAY_BLOCK.saturating_mul(blocks).saturating_add(WAY_MIN).min(WAY_MAX);
        if first == ready || self.stood >= way {
            return Next::Reader(ready);
        }
        self.stands = Some(now);
        Next::Nobody(now + (way - self.stood))
    }

    /// The reader that has the next turn takes it.
    pub(crate) fn takes(&mut self, id: ReaderId, now: Instant) {
        let is_late = self.late(now) == Some(id);
        let goes_on = self.first(|_| true).is_some_and(|(first, lbn)| first == id && lbn >= self.head);
        if is_late {
            self.pass = now;
        }
        // Where the drive is sent elsewhere, what it stood still is paid.
        if is_late || !goes_on {
            self.stood = Duration::ZERO;
        }
        (self.reads, self.stands) = (now, None);
    }

    /// The first of some readers in the order of the pass, and the block that it wants; one that is ready before one
    /// that is not, where they want the same.
    fn first(&self, of: impl Fn(&AtDrive) -> bool) -> Option<(ReaderId, u64)> {
        let place =
            |(id, reader): &(&ReaderId, &AtDrive)| (reader.lbn < self.head, reader.lbn, reader.ready.is_none(), **id);
        let first = self.readers.iter().filter(|(_, reader)| of(reader)).min_by_key(place);
        first.map(|(id, reader)| (*id, reader.lbn))
    }

    /// The first that is ready behind, if somebody there has waited for long enough.
    fn late(&self, now: Instant) -> Option<ReaderId> {
        let has_waited = |since: Instant| now.duration_since(since) >= PASS_MIN;
        let is_behind = |reader: &AtDrive| reader.lbn < self.head && reader.ready.is_some();
        let is_late = |reader: &AtDrive| is_behind(reader) && reader.ready.is_some_and(has_waited);
        let is_due = has_waited(self.pass) && self.readers.values().any(is_late);
        if is_due { self.first(is_behind).map(|(id, _)| id) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers at a drive, in virtual time.
    struct Bench {
        turns: Turns,
        now: Instant,
    }

    /// How long a drive needs for a block.
    const BLOCK: Duration = Duration::from_millis(2);

    impl Bench {
        fn new() -> Self {
            let now = Instant::now();
            Self { turns: Turns::new(now), now }
        }

        fn waits(&mut self, id: ReaderId, lbn: u64) {
            self.turns.waits(id, lbn, self.now);
        }

        fn next(&mut self) -> Option<ReaderId> {
            let next = self.turns.next(self.now);
            // Each of those who wait asks: that alone changes nothing.
            assert_eq!(self.turns.next(self.now), next);
            match next {
                Next::Reader(id) => {
                    self.turns.takes(id, self.now);
                    Some(id)
                }
                Next::Nobody(until) => {
                    assert!(until > self.now);
                    None
                }
            }
        }

        /// The next one reads its block, and wants that one then.
        fn reads(&mut self, id: ReaderId, lbn: u64, next: u64) {
            assert_eq!(self.next(), Some(id));
            self.now += BLOCK;
            self.turns.has_read(id, lbn, Some(next), self.now);
        }

        /// Reads for a client that takes a block of these whenever it is given one, until it has all of them; others
        /// come as `others` says, which is asked every ten milliseconds. How long it takes.
        fn reads_all(&mut self, id: ReaderId, blocks: &[u64], mut others: impl FnMut(&mut Self)) -> Duration {
            let began = self.now;
            let mut at = 0;
            while let Some(lbn) = blocks.get(at) {
                self.waits(id, *lbn);
                others(self);
                match self.next() {
                    Some(next) if next == id => {
                        self.now += BLOCK;
                        at += 1;
                        self.turns.has_read(id, *lbn, blocks.get(at).copied(), self.now);
                    }
                    Some(other) => {
                        let lbn = self.turns.readers[&other].lbn;
                        self.now += BLOCK;
                        self.turns.has_read(other, lbn, Some(lbn + 1), self.now);
                    }
                    None => self.now += Duration::from_millis(10),
                }
            }
            self.now - began
        }
    }

    #[test]
    fn the_drive_goes_forward_and_takes_in_whoever_comes() {
        let mut bench = Bench::new();
        bench.waits(1, 50);
        bench.reads(1, 50, 51);
        // One behind and one ahead come: the one behind has its turn when the pass is over.
        bench.waits(2, 20);
        bench.waits(3, 52);
        assert_eq!(bench.next(), None, "reader 1 comes in a moment");
        bench.waits(1, 51);
        bench.reads(1, 51, 52);
        bench.reads(3, 52, 53);
        bench.waits(3, 53);
        bench.reads(3, 53, 54);
        // What another one has read in front of its eyes is behind it, too.
        bench.waits(1, 52);
        bench.waits(3, 54);
        bench.reads(3, 54, 55);
        bench.turns.leaves(3);
        bench.reads(2, 20, 21);
        bench.turns.leaves(2);
        bench.reads(1, 52, 53);
    }

    /// A client that takes a block every two seconds, in front of a fast one, behind it, and with the same files.
    #[test]
    fn a_slow_client_costs_others_one_wait() {
        let blocks: Vec<u64> = (1_000..11_000).collect();
        let alone = BLOCK * 10_000;
        for slow_at in [200_000, 0, 5_000, 1_000] {
            let mut bench = Bench::new();
            bench.waits(1, slow_at);
            bench.reads(1, slow_at, slow_at + 1);
            let mut last = bench.now;
            let took = bench.reads_all(2, &blocks, |bench| {
                let wants = bench.turns.readers[&1].lbn;
                if bench.turns.readers[&1].ready.is_none() && bench.now - last > Duration::from_secs(2) {
                    bench.waits(1, wants);
                    last = bench.now;
                }
            });
            assert!(took < alone + WAY_MAX + Duration::from_secs(10), "slow at {slow_at}: {took:?}, alone {alone:?}");
        }
    }

    /// Clients that are as fast as the drive lose little by each other: they are waited for, and not left.
    #[test]
    fn clients_that_need_a_moment_for_each_block_stay_in_the_pass() {
        let mut bench = Bench::new();
        let (mut at, mut ready) = ([0_u64, 1], [bench.now; 2]);
        let mut back = 0;
        while at.iter().any(|at| *at < 40_000) {
            for reader in 0..2 {
                if bench.now >= ready[reader] && at[reader] < 40_000 {
                    bench.waits(reader as u64, at[reader]);
                }
            }
            match bench.next() {
                Some(reader) => {
                    let lbn = at[reader as usize];
                    back += u32::from(lbn < bench.turns.head);
                    at[reader as usize] += 2;
                    bench.now += BLOCK;
                    bench.turns.has_read(reader, lbn, Some(lbn + 2).filter(|next| *next < 40_000), bench.now);
                    ready[reader as usize] = bench.now + Duration::from_millis(3);
                }
                None => bench.now += Duration::from_millis(1),
            }
        }
        assert!(back <= 40_000 * 2 / 2_000, "{back} ways back");
    }

    #[test]
    fn nobody_behind_waits_for_longer_than_a_part_of_a_pass() {
        let mut bench = Bench::new();
        bench.waits(2, 10);
        bench.reads(2, 10, 11);
        bench.waits(1, 900);
        bench.turns.leaves(2);
        // A fast one is at work for hours, and one behind comes.
        let blocks: Vec<u64> = (900..2_000_000).collect();
        let began = bench.now;
        let mut waited = None;
        bench.reads_all(1, &blocks, |bench| match bench.turns.readers.get(&2) {
            None if waited.is_none() && bench.turns.head > 1_000 => bench.waits(2, 500),
            Some(reader) if reader.lbn > 500 => {
                waited = Some(bench.now - began);
                bench.turns.leaves(2);
            }
            _ => {}
        });
        assert!(waited.unwrap_or(Duration::MAX) < PASS_MIN + Duration::from_secs(5), "{waited:?}");
    }
}
