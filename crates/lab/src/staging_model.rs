//! Disk staging: what a file library in front of a tape takes, what it gives, and both at once.
//!
//! ```text
//!  source --write, behind a cache--> array of disks --read, block by block--> tape, or target
//!                                    one set of spindles
//! ```
//! Three figures: what the array writes, what it reads, and what a block costs its reader. Writes go behind a cache, so
//! that only the slower of source and array counts. A reader waits for each block, hands it on, and asks for the next:
//! both times add up, and short blocks make it slower. When both go on at once, the spindles belong to one or to the
//! other, each for as much of the time as it needs, and for half of it if both want more. Nothing is taken off for the
//! seeks between the two: no figure of that was published, so that both at once is an upper bound.
//!
//! A depot is a file of the library; it goes to tape when it is complete, and meanwhile the next is filled. So the
//! length of a depot decides how much goes on at once ([`StagingModel::elapsed_s`]).

/// An array of disks that stages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StagingModel {
    /// What it writes when nothing is read, MB/s.
    pub(crate) write_mb_per_s: f64,
    /// What it reads when nothing is written, MB/s.
    pub(crate) read_mb_per_s: f64,
    /// Seconds that each block costs its reader besides the disk's.
    pub(crate) block_s: f64,
}

/// What goes in and out at the same time, MB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BothWays {
    /// From the source.
    pub(crate) taken_mb_per_s: f64,
    /// To the tape.
    pub(crate) given_mb_per_s: f64,
}

/// A job that is staged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StagedJob {
    /// What the source gives, MB/s.
    pub(crate) source_mb_per_s: f64,
    /// What the tape, or the target of a restore, takes, MB/s.
    pub(crate) taker_mb_per_s: f64,
    /// Bytes of a block.
    pub(crate) block_bytes: f64,
}

impl StagingModel {
    /// What it takes of a job while nothing is read, MB/s.
    pub(crate) fn takes(&self, job: &StagedJob) -> f64 {
        job.source_mb_per_s.min(self.write_mb_per_s)
    }

    /// What it gives while nothing is written, MB/s.
    pub(crate) fn gives(&self, job: &StagedJob) -> f64 {
        let mb = job.block_bytes / 1e6;
        (mb / (mb / self.read_mb_per_s + self.block_s)).min(job.taker_mb_per_s)
    }

    /// Both at once.
    pub(crate) fn both_ways(&self, job: &StagedJob) -> BothWays {
        let (takes, gives) = (self.takes(job), self.gives(job));
        // The share of the spindles' time that each would use.
        let (writing, reading) = (takes / self.write_mb_per_s, gives / self.read_mb_per_s);
        let of_writing = writing.min((1.0 - reading).max(0.5));
        let of_reading = reading.min(1.0 - of_writing);
        BothWays { taken_mb_per_s: of_writing * self.write_mb_per_s, given_mb_per_s: of_reading * self.read_mb_per_s }
    }

    /// Seconds until so many MB are on tape, through depots of so many MB.
    pub(crate) fn elapsed_s(&self, job: &StagedJob, mb: f64, depot_mb: f64) -> f64 {
        let alone = BothWays { taken_mb_per_s: self.takes(job), given_mb_per_s: self.gives(job) };
        through_depots_s(mb, depot_mb, &alone, &self.both_ways(job))
    }
}

/// Seconds until so many MB are on tape, through depots of so many MB: what goes in and out while the other stands, and
/// while both go on.
pub(crate) fn through_depots_s(mb: f64, depot_mb: f64, alone: &BothWays, both: &BothWays) -> f64 {
    let depot_mb = if depot_mb > 0.0 { depot_mb.min(mb) } else { mb };
    let depots = (mb / depot_mb).ceil() as u64;
    // Where a depot ends. Depots are counted, so that rounding makes none of no length.
    let end_of = |depot: u64| (depot as f64 * depot_mb).min(mb);
    let (mut complete, mut copied) = (0, 0);
    let (mut filled_mb, mut copied_mb, mut seconds) = (0.0, 0.0, 0.0);
    while copied < depots {
        let (fills, copies) = (complete < depots, copied < complete);
        let (taken, given) = match (fills, copies) {
            (true, true) => (both.taken_mb_per_s, both.given_mb_per_s),
            (true, false) => (alone.taken_mb_per_s, 0.0),
            (false, _) => (0.0, alone.given_mb_per_s),
        };
        let until_filled = if fills { (end_of(complete + 1) - filled_mb) / taken } else { f64::INFINITY };
        let until_copied = if copies { (end_of(copied + 1) - copied_mb) / given } else { f64::INFINITY };
        let step_s = until_filled.min(until_copied);
        (filled_mb, copied_mb) = (filled_mb + taken * step_s, copied_mb + given * step_s);
        if until_filled <= until_copied {
            complete += 1;
            filled_mb = end_of(complete);
        } else {
            copied += 1;
            copied_mb = end_of(copied);
        }
        seconds += step_s;
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRAY: StagingModel = StagingModel { write_mb_per_s: 60.0, read_mb_per_s: 80.0, block_s: 0.0 };

    fn job(source_mb_per_s: f64, taker_mb_per_s: f64) -> StagedJob {
        StagedJob { source_mb_per_s, taker_mb_per_s, block_bytes: 262_144.0 }
    }

    #[test]
    fn the_slowest_part_counts_and_short_blocks_cost() {
        assert_eq!((ARRAY.takes(&job(30.0, 1e9)), ARRAY.takes(&job(90.0, 1e9))), (30.0, 60.0));
        assert!((ARRAY.gives(&job(1.0, 1e9)) - 80.0).abs() < 1e-9 && ARRAY.gives(&job(1.0, 20.0)) == 20.0);
        let costly = StagingModel { block_s: 0.001, ..ARRAY };
        // 65,536 bytes: 0.819 ms of the disk, and 1 ms.
        let short = StagedJob { block_bytes: 65_536.0, ..job(1.0, 1e9) };
        assert!((costly.gives(&short) - 0.065_536 / 0.001_819_2).abs() < 1e-9);
    }

    #[test]
    fn spindles_are_shared_and_never_given_twice() {
        for source in [5.0, 20.0, 40.0, 60.0, 200.0] {
            for taker in [5.0, 20.0, 40.0, 80.0, 200.0] {
                let job = job(source, taker);
                let BothWays { taken_mb_per_s, given_mb_per_s } = ARRAY.both_ways(&job);
                let share = taken_mb_per_s / 60.0 + given_mb_per_s / 80.0;
                assert!(share <= 1.0 + 1e-9 && taken_mb_per_s <= ARRAY.takes(&job) && given_mb_per_s <= taker);
                // Whoever gets less than it wants has half of the time at least, and none of it is idle.
                assert!(taken_mb_per_s >= ARRAY.takes(&job).min(30.0) - 1e-9, "{source} {taker}");
                assert!(given_mb_per_s >= ARRAY.gives(&job).min(40.0) - 1e-9, "{source} {taker}");
                let wanted = ARRAY.takes(&job) / 60.0 + ARRAY.gives(&job) / 80.0;
                assert!((share - wanted.min(1.0)).abs() < 1e-9, "{source} {taker}: {share} of {wanted}");
            }
        }
    }

    #[test]
    fn depots_let_both_go_on_at_once() {
        // One depot: first in, then out.
        let slow = job(20.0, 30.0);
        assert!((ARRAY.elapsed_s(&slow, 6000.0, 1e9) - (300.0 + 200.0)).abs() < 1e-6);
        // Ten depots, and spindles enough for both: all but the last goes out while the rest comes in.
        assert!((ARRAY.elapsed_s(&slow, 6000.0, 600.0) - (300.0 + 20.0)).abs() < 1e-6);
        // Lengths that no sum of them meets exactly.
        assert!((ARRAY.elapsed_s(&slow, 0.7, 0.1) - (0.7 / 20.0 + 0.1 / 30.0)).abs() < 1e-6);
        // Spindles that are short make shorter depots gain less, and never less than nothing.
        let fast = job(200.0, 200.0);
        let times = [1e9, 2000.0, 600.0, 10.0].map(|depot| ARRAY.elapsed_s(&fast, 6000.0, depot));
        assert!(times.is_sorted_by(|longer, shorter| shorter <= &(longer + 1e-6)), "{times:?}");
    }
}
