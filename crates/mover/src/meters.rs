//! What a session, or whoever reads one back, counts while it runs, and what the counts say about the bottleneck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// What moments are counted from.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How long somebody was at work, what is under way included: a mount of a minute counts while it lasts. One thread
/// works, any looks.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    done_ns: AtomicU64,
    /// When what is under way began, and one more; 0 for nothing.
    since_ns: AtomicU64,
}

impl Busy {
    /// Work begins now.
    pub(crate) fn begin(&self, now: Instant) {
        self.since_ns.store(now.duration_since(*ORIGIN).as_nanos() as u64 + 1, Ordering::Relaxed);
    }

    /// What began then ends now.
    pub(crate) fn end(&self, began: Instant, now: Instant) {
        self.since_ns.store(0, Ordering::Relaxed);
        self.done_ns.fetch_add((now - began).as_nanos() as u64, Ordering::Relaxed);
    }

    /// As it was counted elsewhere.
    fn follow(&self, done_ns: u64) {
        self.done_ns.store(done_ns, Ordering::Relaxed);
    }

    /// So far.
    fn ns(&self) -> u64 {
        let under_way = match self.since_ns.load(Ordering::Relaxed) {
            0 => 0,
            since => (ORIGIN.elapsed().as_nanos() as u64).saturating_sub(since - 1),
        };
        self.done_ns.load(Ordering::Relaxed) + under_way
    }
}

/// How long the parts of a session or of a restore were at work, up to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The drive of the slowest copy; of a restore the drive that is read, mounts included.
    pub drive_ns: u64,
    /// Packing, all threads together; of a restore nothing.
    pub pack_ns: u64,
    /// Of a restore: how long the drive stood because nobody took its blocks.
    pub target_ns: u64,
}

impl Load {
    /// What came to it since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            drive_ns: self.drive_ns.saturating_sub(earlier.drive_ns),
            pack_ns: self.pack_ns.saturating_sub(earlier.pack_ns),
            target_ns: self.target_ns.saturating_sub(earlier.target_ns),
        }
    }

    /// The bottleneck of a session that took `elapsed_ns` for it on `cores` cores.
    ///
    /// A drive that was busy most of the time is it. Else the time in compression decides whether sources wait for
    /// processors or processors for sources.
    pub fn of_session(self, elapsed_ns: u64, cores: u64) -> Bottleneck {
        let elapsed_ns = elapsed_ns.max(1);
        let drive = self.drive_ns as f64 / elapsed_ns as f64;
        let pack = self.pack_ns as f64 / (elapsed_ns as f64 * cores.max(1) as f64);
        if drive > 0.6 && drive > pack {
            Bottleneck::Drive
        } else if pack > 0.5 {
            Bottleneck::Processor
        } else {
            Bottleneck::Source
        }
    }

    /// The bottleneck of a restore: whoever was waited for longer.
    pub fn of_reading(self) -> Bottleneck {
        if self.target_ns > self.drive_ns { Bottleneck::Target } else { Bottleneck::Drive }
    }
}

/// What is counted while volumes are read.
#[derive(Debug, Default)]
pub struct ReadMeters {
    pub(crate) drive: Busy,
    pub(crate) target: Busy,
}

impl ReadMeters {
    /// As a mover elsewhere counts.
    pub(crate) fn follow(&self, load: Load) {
        self.drive.follow(load.drive_ns);
        self.target.follow(load.target_ns);
    }

    /// How long each was waited for so far.
    pub fn load(&self) -> Load {
        Load { drive_ns: self.drive.ns(), pack_ns: 0, target_ns: self.target.ns() }
    }
}

/// A reader at its drive, from now until it is dropped, except while it waits for somebody. The clock is asked where
/// there is something to wait for, and not for each block.
pub(crate) struct AtDrive<'a> {
    meters: &'a ReadMeters,
    since: Instant,
}

impl<'a> AtDrive<'a> {
    pub(crate) fn begin(meters: &'a ReadMeters) -> Self {
        let since = Instant::now();
        meters.drive.begin(since);
        Self { meters, since }
    }

    /// Counts what `wait` takes as the target's.
    pub(crate) fn waits<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        self.meters.drive.end(self.since, began);
        self.meters.target.begin(began);
        let result = wait();
        self.since = Instant::now();
        self.meters.target.end(began, self.since);
        self.meters.drive.begin(self.since);
        result
    }
}

impl Drop for AtDrive<'_> {
    fn drop(&mut self) {
        self.meters.drive.end(self.since, Instant::now());
    }
}

/// Live counters of a session; all of them only grow.
#[derive(Debug, Default)]
pub struct Meters {
    /// Bytes of payload that left the packers.
    pub plain_bytes: AtomicU64,
    /// Bytes written to the first copy.
    pub stored_bytes: AtomicU64,
    /// Bytes of the first copy that are flushed.
    pub flushed_bytes: AtomicU64,
    /// Time spent packing, all threads together.
    pub pack_ns: Arc<AtomicU64>,
    /// Time sources waited for a buffer, all connections together.
    pub source_wait_ns: AtomicU64,
    /// Time the slowest copy spent in its drive.
    pub drive_busy_ns: AtomicU64,
    /// Time the slowest copy waited for blocks.
    pub drive_idle_ns: AtomicU64,
    /// The first copy at its drive, what is under way included.
    pub(crate) at_drive: Busy,
    /// Of a job that shares its session with others: the counters of the session, and how they stood when it came.
    session: Option<(Arc<Self>, Load)>,
}

/// The counters of a session or a job, as they cross to whoever decides.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct MeterCounts {
    plain_bytes: u64,
    stored_bytes: u64,
    flushed_bytes: u64,
    source_wait_ns: u64,
    drive_busy_ns: u64,
    drive_idle_ns: u64,
}

/// The part that everything else waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Blocks come no faster.
    Source,
    /// Compression takes all cores.
    Processor,
    /// The drive takes them, or gives them, no faster.
    Drive,
    /// What is read is taken no faster: files are written, checksums computed, or another volume is written.
    Target,
}

impl Bottleneck {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Processor => "processor",
            Self::Drive => "drive",
            Self::Target => "target",
        }
    }
}

impl Meters {
    /// The counters of one of several jobs of a session.
    pub(crate) fn of_job(session: &Arc<Self>) -> Self {
        Self { session: Some((Arc::clone(session), session.load())), ..Self::default() }
    }

    pub(crate) fn counts(&self) -> MeterCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MeterCounts {
            plain_bytes: load(&self.plain_bytes),
            stored_bytes: load(&self.stored_bytes),
            flushed_bytes: load(&self.flushed_bytes),
            source_wait_ns: load(&self.source_wait_ns),
            drive_busy_ns: load(&self.drive_busy_ns).max(self.at_drive.ns()),
            drive_idle_ns: load(&self.drive_idle_ns),
        }
    }

    /// As a mover elsewhere counts. What is packed is packed here.
    pub(crate) fn follow(&self, counts: &MeterCounts) {
        let store = |counter: &AtomicU64, value| counter.store(value, Ordering::Relaxed);
        store(&self.plain_bytes, counts.plain_bytes);
        store(&self.stored_bytes, counts.stored_bytes);
        if self.session.is_none() {
            // What is flushed of one of several jobs is counted where it is recorded.
            store(&self.flushed_bytes, counts.flushed_bytes);
        }
        store(&self.source_wait_ns, counts.source_wait_ns);
        store(&self.drive_busy_ns, counts.drive_busy_ns);
        store(&self.drive_idle_ns, counts.drive_idle_ns);
    }

    /// How long the parts were at work so far; of a job, since it came to its session.
    pub fn load(&self) -> Load {
        if let Some((session, before)) = &self.session {
            return session.load().since(*before);
        }
        let drive_ns = self.drive_busy_ns.load(Ordering::Relaxed).max(self.at_drive.ns());
        Load { drive_ns, pack_ns: self.pack_ns.load(Ordering::Relaxed), target_ns: 0 }
    }

    /// Names the bottleneck of a session that took `elapsed_ns` on `cores` cores.
    pub fn bottleneck(&self, elapsed_ns: u64, cores: u64) -> Bottleneck {
        let load = match &self.session {
            Some(_) => self.load(),
            None => Load { drive_ns: self.drive_busy_ns.load(Ordering::Relaxed), ..self.load() },
        };
        load.of_session(elapsed_ns, cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottleneck_is_what_was_at_work_of_late() {
        let load = |drive_ns, pack_ns, target_ns| Load { drive_ns, pack_ns, target_ns };
        let (first, then) = (load(900, 100, 0), load(950, 1_900, 0));
        assert_eq!(first.of_session(1_000, 2), Bottleneck::Drive);
        assert_eq!(then.since(first).of_session(1_000, 2), Bottleneck::Processor);
        assert_eq!(then.since(then).of_session(1_000, 2), Bottleneck::Source);
        assert_eq!(load(10, 0, 0).of_reading(), Bottleneck::Drive);
        assert_eq!(load(10, 0, 11).of_reading(), Bottleneck::Target);
    }

    #[test]
    fn what_is_under_way_counts_for_whom_is_waited_for() {
        let meters = ReadMeters::default();
        let grows = |busy: &Busy| {
            let before = busy.ns();
            while busy.ns() == before {}
        };
        let mut at_drive = AtDrive::begin(&meters);
        grows(&meters.drive);
        let read = at_drive.waits(|| {
            grows(&meters.target);
            let read = meters.drive.ns();
            grows(&meters.target);
            assert_eq!(meters.drive.ns(), read, "it stands");
            read
        });
        grows(&meters.drive);
        drop(at_drive);
        let load = meters.load();
        assert!(load.drive_ns > read && load.target_ns > 0);
        assert_eq!(meters.load(), load, "nothing is under way");
    }
}
