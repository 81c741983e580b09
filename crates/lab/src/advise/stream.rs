//! A block pool in front of a drive, in virtual time: what becomes of a source of one rate.

use capstan_tape::model::{DriveModel, Engine};

/// MB of a piece at least: blocks are looked at together.
const PIECE_MB_MIN: f64 = 0.25;
/// Checkpoints after which a stream is as it stays, and between how many it is looked at.
const CHECKPOINTS_BEFORE: u32 = 2;
const CHECKPOINTS: u32 = 8;
/// MB of a label, and of what ends a session.
const LABEL_MB: f64 = 0.001;

/// A stream of blocks, all as they go to the tape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream<'a> {
    pub(super) drive: &'a DriveModel,
    /// What the source gives, MB/s.
    pub(super) source_mb_per_s: f64,
    /// What the pool holds, MB.
    pub(super) pool_mb: f64,
    /// A synchronous flush behind so many MB ...
    pub(super) checkpoint_mb: f64,
    /// ... or so many seconds.
    pub(super) checkpoint_s: f64,
    /// Tape for each byte of a block: gaps, and what encryption adds.
    pub(super) tape_share: f64,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Streamed {
    /// MB that were written.
    pub(super) mb: f64,
    /// Seconds.
    pub(super) seconds: f64,
    /// Times that the tape went back.
    pub(super) backhitches: u64,
    /// Seconds in which the tape moved.
    pub(super) streaming_s: f64,
}

impl Streamed {
    pub(super) fn mb_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.mb / self.seconds } else { 0.0 }
    }
}

/// The state of a stream on its way.
struct Flow<'a> {
    stream: Stream<'a>,
    engine: Engine,
    pooled_mb: f64,
    read_mb: f64,
    unsynced_mb: f64,
    /// When the last flush was done.
    synced_s: f64,
    written_mb: f64,
    checkpoints: u32,
}

impl Flow<'_> {
    /// The source goes on reading for so long, as far as the pool has room and there is anything left.
    fn read_for(&mut self, seconds: f64, left_mb: f64) {
        let room = (self.stream.pool_mb - self.pooled_mb).max(0.0);
        let read = (self.stream.source_mb_per_s * seconds).min(room).min(left_mb);
        self.pooled_mb += read;
        self.read_mb += read;
    }

    /// Writes a piece that is in the pool, or as it comes in.
    fn write(&mut self, mb: f64, left_mb: f64) {
        let ceiling = self.stream.drive.ceiling_mb_per_s.value;
        let missing_mb = (mb - self.pooled_mb).max(0.0);
        let comes_s = missing_mb / self.stream.source_mb_per_s;
        let rate = if comes_s > 0.0 { (mb / comes_s).min(ceiling) } else { ceiling };
        // What is missing goes through the pool, too.
        self.pooled_mb += missing_mb;
        self.read_mb += missing_mb;
        let took = self.engine.write(mb * self.stream.tape_share, rate);
        self.pooled_mb = (self.pooled_mb - mb).max(0.0);
        self.read_for((took - comes_s).max(0.0), left_mb - missing_mb);
        self.written_mb += mb;
        self.unsynced_mb += mb;
        let due_s = self.synced_s + self.stream.checkpoint_s;
        if self.unsynced_mb >= self.stream.checkpoint_mb || self.engine.now_s() >= due_s {
            self.sync(left_mb - missing_mb);
        }
    }

    fn sync(&mut self, left_mb: f64) {
        let took = self.engine.file_sync(self.unsynced_mb);
        self.unsynced_mb = 0.0;
        self.synced_s = self.engine.now_s();
        self.checkpoints += 1;
        self.read_for(took, left_mb);
    }
}

impl<'a> Stream<'a> {
    fn begin(&self) -> Flow<'a> {
        // Drives that have a way around syncs have it switched on, as the paced drives have.
        let engine = Engine::new(self.drive, 1.0).accelerated(true);
        Flow {
            stream: *self,
            engine,
            pooled_mb: 0.0,
            read_mb: 0.0,
            unsynced_mb: 0.0,
            synced_s: 0.0,
            written_mb: 0.0,
            checkpoints: 0,
        }
    }

    fn piece_mb(&self) -> f64 {
        let buffer = self.drive.buffer_mb.value;
        let timed_mb = self.source_mb_per_s * self.checkpoint_s;
        let checkpoint_mb = self.checkpoint_mb.min(timed_mb);
        (self.pool_mb / 4.0).min(buffer / 8.0).min(checkpoint_mb / 4.0).max(PIECE_MB_MIN)
    }

    /// How it goes on when it has gone on for a while: from one flush to another, so that as much is read as is
    /// written.
    pub(super) fn steadily(&self) -> Streamed {
        let mut flow = self.begin();
        let piece = self.piece_mb();
        let until = |flow: &mut Flow<'_>, checkpoints: u32| {
            while flow.checkpoints < checkpoints {
                flow.write(piece, f64::INFINITY);
            }
            (flow.so_far(), flow.read_mb)
        };
        let (from, read_before) = until(&mut flow, CHECKPOINTS_BEFORE);
        let (to, read) = until(&mut flow, CHECKPOINTS_BEFORE + CHECKPOINTS);
        Streamed {
            // A pool that filled before must not count as what the source gave.
            mb: (to.mb - from.mb).min(read - read_before),
            seconds: to.seconds - from.seconds,
            backhitches: to.backhitches - from.backhitches,
            streaming_s: to.streaming_s - from.streaming_s,
        }
    }

    /// A run from a label to the last flush: the source is read for so many seconds, or has so many MB.
    pub(super) fn once(&self, seconds: f64, source_mb: f64) -> Streamed {
        let mut flow = self.begin();
        flow.engine.write(LABEL_MB, self.drive.ceiling_mb_per_s.value);
        let took = flow.engine.file_sync(LABEL_MB);
        flow.synced_s = flow.engine.now_s();
        flow.read_for(took, source_mb);
        let piece = self.piece_mb();
        while flow.engine.now_s() < seconds && flow.written_mb < source_mb - 1e-9 {
            let left = source_mb - flow.read_mb;
            flow.write(piece.min(source_mb - flow.written_mb), left);
        }
        // What was read is written, though no more is read.
        while flow.pooled_mb > 1e-9 {
            let mb = piece.min(flow.pooled_mb);
            flow.write(mb, 0.0);
        }
        flow.sync(0.0);
        flow.engine.finish();
        flow.so_far()
    }
}

impl Flow<'_> {
    fn so_far(&self) -> Streamed {
        let totals = self.engine.totals();
        Streamed {
            mb: self.written_mb,
            seconds: totals.elapsed_s,
            backhitches: totals.backhitches,
            streaming_s: totals.streaming_s,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::model::built_in;

    use super::*;

    fn stream(drive: &DriveModel, source_mb_per_s: f64, pool_mb: f64, checkpoint_mb: f64) -> Stream<'_> {
        Stream { drive, source_mb_per_s, pool_mb, checkpoint_mb, checkpoint_s: f64::INFINITY, tape_share: 1.0 }
    }

    /// A backup makes a checkpoint each minute, too: that of a slow source was forecast to go on for much longer.
    #[test]
    fn a_checkpoint_comes_by_its_time_where_its_bytes_take_longer() {
        let drive = built_in("SDLT-220").unwrap();
        let by_bytes = stream(&drive, 10.0, 64.0, 600.0);
        let by_time = Stream { checkpoint_mb: 1e9, checkpoint_s: 60.0, ..by_bytes };
        let [by_bytes, by_time] = [by_bytes, by_time].map(|stream| stream.steadily());
        let share = (by_time.seconds / by_time.backhitches as f64) / (by_bytes.seconds / by_bytes.backhitches as f64);
        assert!((0.8..1.2).contains(&share), "{by_bytes:?}, {by_time:?}");
        // What comes sooner decides.
        let both = Stream { checkpoint_s: 600.0, ..stream(&drive, 10.0, 64.0, 600.0) }.steadily();
        assert_eq!(both, by_bytes);
    }

    #[test]
    fn the_slower_of_source_and_drive_decides() {
        let drive = built_in("LTO-6").unwrap();
        for (source, wanted) in [(20.0, 20.0), (100.0, 100.0), (1000.0, 160.0)] {
            let found = stream(&drive, source, 2000.0, 50_000.0).steadily().mb_per_s();
            assert!((found / wanted - 1.0).abs() < 0.03, "{source} MB/s: {found} of {wanted}");
        }
    }

    #[test]
    fn a_larger_pool_is_never_worse_and_carries_a_source_over_flushes() {
        let drive = built_in("LTO-6").unwrap();
        let rates: Vec<f64> = [4.0, 32.0, 128.0, 512.0, 2048.0]
            .map(|pool| stream(&drive, 120.0, pool, 500.0).steadily().mb_per_s())
            .into();
        for pair in rates.windows(2) {
            assert!(pair[1] >= pair[0] * 0.995, "{rates:?}");
        }
        assert!(rates[4] > rates[0] * 1.1, "{rates:?}");
    }

    #[test]
    fn fewer_checkpoints_are_never_worse() {
        let drive = built_in("LTO-5").unwrap();
        let rates: Vec<f64> =
            [64.0, 256.0, 1024.0, 4096.0].map(|each| stream(&drive, 300.0, 128.0, each).steadily().mb_per_s()).into();
        for pair in rates.windows(2) {
            assert!(pair[1] > pair[0], "{rates:?}");
        }
    }

    #[test]
    fn nothing_comes_out_that_did_not_go_in_and_more_is_never_worse() {
        for name in capstan_tape::model::built_in_names() {
            let drive = built_in(name).unwrap();
            for source in [5.0, 60.0, 300.0, 1500.0] {
                for pool in [1.0, 128.0, 2048.0] {
                    let mut last = 0.0;
                    for checkpoint in [256.0, 1024.0, 4096.0, 16_384.0] {
                        let rate = stream(&drive, source, pool, checkpoint).steadily().mb_per_s();
                        let alone = stream(&drive, 1e5, pool, checkpoint).steadily().mb_per_s();
                        let what = format!("{name}, {source} MB/s, pool {pool} MB, checkpoint {checkpoint} MB");
                        assert!(rate <= source * 1.001, "{what}: {rate}");
                        assert!(rate <= alone * 1.02, "{what}: {rate}, and {alone} from a source without end");
                        assert!(rate >= last * 0.97, "{what}: {rate}, and {last} with shorter ones");
                        last = rate;
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_run_writes_what_was_read_and_no_more() {
        let drive = built_in("SDLT-220").unwrap();
        let done = stream(&drive, 100.0, 50.0, 10_000.0).once(3.0, f64::INFINITY);
        // The drive takes 11 MB/s: after 3 s there are 33 MB on it or in its buffer, and 50 in the pool.
        assert!(done.mb > 50.0 && done.mb < 200.0, "{done:?}");
        let backhitch_s = drive.backhitch_s.value;
        assert!(
            (done.seconds - backhitch_s - done.mb / 11.0).abs() < 0.5,
            "the label's flush, then the data: {done:?}"
        );
        let whole = stream(&drive, 100.0, 50.0, 10_000.0).once(1e9, 40.0);
        assert!((whole.mb - 40.0).abs() < 1e-6, "{whole:?}");
    }
}
