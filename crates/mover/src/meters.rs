//! What a session counts while it runs, and what the counts say about the bottleneck.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
}

/// The part that everything else waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// Blocks come no faster.
    Source,
    /// Compression takes all cores.
    Processor,
    /// The drive takes them no faster.
    Drive,
}

impl Bottleneck {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Processor => "processor",
            Self::Drive => "drive",
        }
    }
}

impl Meters {
    /// Names the bottleneck of a session that took `elapsed_ns` on `cores` cores.
    ///
    /// A drive that was busy most of the time is it. Else the time in compression decides whether sources wait for
    /// processors or processors for sources.
    pub fn bottleneck(&self, elapsed_ns: u64, cores: u64) -> Bottleneck {
        let elapsed_ns = elapsed_ns.max(1);
        let drive = self.drive_busy_ns.load(Ordering::Relaxed) as f64 / elapsed_ns as f64;
        let pack = self.pack_ns.load(Ordering::Relaxed) as f64 / (elapsed_ns as f64 * cores.max(1) as f64);
        if drive > 0.6 && drive > pack {
            Bottleneck::Drive
        } else if pack > 0.5 {
            Bottleneck::Processor
        } else {
            Bottleneck::Source
        }
    }
}
