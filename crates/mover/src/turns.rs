//! Turns at a drive that several readers of one volume share.
//!
//! Each reader has a plan of its own, and says which block it reads next. The drive goes forward over the volume and
//! reads for each of them what lies on the way: what several want is read in one pass, and whoever comes later joins
//! it.
//!
//! A reader is waited for only for moments: one whose client is slow falls behind, and is served when the pass is over.
//! Nobody goes back before that, for on a tape each way back costs as much as hundreds of blocks; but whoever has
//! waited for [`WAITS_MAX`] has the next turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a reader that is next is waited for, while others could read.
const PATIENCE: Duration = Duration::from_millis(100);
/// What all such waits for one reader may cost: so much, and a part of the time that it takes part.
const PATIENCE_AT_FIRST: Duration = Duration::from_millis(500);
const PATIENCE_PART: u32 = 20;
/// After so long without a word from those ahead the drive goes back for one that is behind.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// How long a reader that is ready waits at most before it has the next turn.
const WAITS_MAX: Duration = Duration::from_secs(600);

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
    /// Whether it waits for its turn.
    is_ready: bool,
    /// Since when it waits, or since when it is busy with what it has read.
    since: Instant,
    joined: Instant,
    /// For how long others have waited for it.
    waited_for: Duration,
}

impl AtDrive {
    /// Until when it is waited for.
    fn patience(&self, now: Instant) -> Instant {
        let allowed = PATIENCE_AT_FIRST + now.duration_since(self.joined) / PATIENCE_PART;
        if self.waited_for > allowed { self.since } else { self.since + PATIENCE }
    }
}

/// Who reads with one drive, and where it stands.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    head: u64,
    readers: BTreeMap<ReaderId, AtDrive>,
}

impl Turns {
    /// A reader waits for its turn at a block.
    pub(crate) fn waits(&mut self, id: ReaderId, lbn: u64, now: Instant) {
        let is_waited_for = self.readers.iter().any(|(other, reader)| *other != id && reader.is_ready);
        let reader = self.readers.entry(id).or_insert_with(|| AtDrive {
            lbn,
            is_ready: false,
            since: now,
            joined: now,
            waited_for: Duration::ZERO,
        });
        if reader.is_ready {
            return;
        }
        if is_waited_for {
            reader.waited_for += now.duration_since(reader.since).min(PATIENCE);
        }
        (reader.lbn, reader.is_ready, reader.since) = (lbn, true, now);
    }

    /// It has read its block, and goes on with that one; with none, it needs no turn any more.
    pub(crate) fn has_read(&mut self, id: ReaderId, lbn: u64, next: Option<u64>, now: Instant) {
        self.head = lbn + 1;
        match (next, self.readers.get_mut(&id)) {
            (Some(next), Some(reader)) => (reader.lbn, reader.is_ready, reader.since) = (next, false, now),
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
        self.readers.values().filter(|reader| reader.is_ready).count()
    }

    /// Who has the next turn.
    pub(crate) fn next(&self, now: Instant) -> Next {
        let waiting = self.readers.iter().filter(|(_, reader)| reader.is_ready);
        let longest = waiting.min_by_key(|(_, reader)| reader.since);
        if let Some((id, reader)) = longest
            && now.duration_since(reader.since) >= WAITS_MAX
        {
            return Next::Reader(*id);
        }
        let mut ahead: Vec<_> = self.readers.iter().filter(|(_, reader)| reader.lbn >= self.head).collect();
        let mut behind: Vec<_> = self.readers.iter().filter(|(_, reader)| reader.lbn < self.head).collect();
        for readers in [&mut ahead, &mut behind] {
            readers.sort_by_key(|(id, reader)| (reader.lbn, !reader.is_ready, **id));
        }
        let stalled = ahead.iter().map(|(_, reader)| reader.since + STALLED_AFTER).max();
        let ahead = first_of(&ahead, now);
        match (ahead, stalled) {
            (Some(next @ Next::Reader(_)), _) => next,
            (Some(next), Some(stalled)) if now < stalled => {
                let Next::Nobody(until) = next else { return next };
                Next::Nobody(if until > now { until } else { stalled })
            }
            _ => first_of(&behind, now).unwrap_or(Next::Nobody(now + STALLED_AFTER)),
        }
    }
}

/// The first of some readers that is ready, unless one before it is waited for; none of none.
fn first_of(readers: &[(&ReaderId, &AtDrive)], now: Instant) -> Option<Next> {
    for (id, reader) in readers {
        if reader.is_ready {
            return Some(Next::Reader(**id));
        }
        let until = reader.patience(now);
        if now < until {
            return Some(Next::Nobody(until));
        }
    }
    readers.first().map(|_| Next::Nobody(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readers at a drive, in virtual time.
    struct Bench {
        turns: Turns,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            Self { turns: Turns::default(), now: Instant::now() }
        }

        fn waits(&mut self, id: ReaderId, lbn: u64) {
            self.turns.waits(id, lbn, self.now);
        }

        fn passes(&mut self, time: Duration) {
            self.now += time;
        }

        fn next(&self) -> Option<ReaderId> {
            match self.turns.next(self.now) {
                Next::Reader(id) => Some(id),
                Next::Nobody(until) => {
                    assert!(until >= self.now);
                    None
                }
            }
        }

        /// The next one reads its block, and wants the one behind that.
        fn reads(&mut self, id: ReaderId, lbn: u64) {
            assert_eq!(self.next(), Some(id));
            self.turns.has_read(id, lbn, Some(lbn + 1), self.now);
        }
    }

    #[test]
    fn the_drive_goes_forward_and_takes_in_whoever_comes() {
        let mut bench = Bench::new();
        bench.waits(1, 50);
        bench.reads(1, 50);
        // One behind and one ahead come: the one behind has its turn when the pass is over.
        bench.waits(2, 20);
        bench.waits(3, 52);
        bench.waits(1, 51);
        bench.reads(1, 51);
        bench.reads(3, 52);
        assert_eq!(bench.next(), None, "reader 3 comes in a moment");
        bench.waits(3, 53);
        bench.reads(3, 53);
        // What another one has read in front of its eyes is behind it, too.
        bench.waits(1, 52);
        bench.waits(3, 54);
        bench.reads(3, 54);
        bench.turns.leaves(3);
        bench.reads(2, 20);
        bench.turns.leaves(2);
        bench.reads(1, 52);
    }

    #[test]
    fn a_slow_one_is_waited_for_a_little_and_then_falls_behind() {
        let mut bench = Bench::new();
        let (mut waited, mut at_once) = (Duration::ZERO, 0);
        // The slow one wants the odd blocks, and has each 90 milliseconds later than it could.
        let mut slow_at = 1;
        bench.waits(1, slow_at);
        for lbn in (2..10_002).step_by(2) {
            bench.waits(2, lbn);
            let mut tried = Duration::ZERO;
            while bench.next() != Some(2) {
                if bench.next() == Some(1) || tried == Duration::from_millis(90) {
                    bench.waits(1, slow_at);
                    assert_eq!(bench.next(), Some(1));
                    bench.turns.has_read(1, slow_at, Some(slow_at + 2), bench.now);
                    slow_at += 2;
                } else {
                    bench.passes(Duration::from_millis(10));
                    tried += Duration::from_millis(10);
                }
            }
            at_once += u32::from(tried.is_zero());
            waited += tried;
            assert_eq!(bench.next(), Some(2));
            bench.turns.has_read(2, lbn, Some(lbn + 2), bench.now);
            bench.passes(Duration::from_millis(1));
        }
        assert!(waited < Duration::from_secs(2), "others waited for {waited:?} in five seconds of reading");
        assert!(at_once > 4_900, "{at_once}");
        // When the other one is done, it goes on where it was.
        bench.turns.leaves(2);
        bench.waits(1, slow_at);
        assert_eq!(bench.next(), Some(1));
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut bench = Bench::new();
        bench.waits(1, 900);
        bench.reads(1, 900);
        bench.waits(2, 10);
        // The one ahead hangs.
        bench.passes(STALLED_AFTER - Duration::from_secs(1));
        assert_eq!(bench.next(), None);
        bench.passes(Duration::from_secs(1));
        bench.reads(2, 10);
        bench.waits(1, 901);
        // From here on it is ahead of the other one, and waits for its place in the pass.
        for lbn in 11..71 {
            bench.waits(2, lbn);
            bench.reads(2, lbn);
            bench.passes(Duration::from_secs(10));
        }
        bench.waits(2, 71);
        bench.reads(1, 901);
    }
}
