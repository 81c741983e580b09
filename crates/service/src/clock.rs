//! The time of day, as an argument: tests move it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The time of day, in nanoseconds since 1970.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The clock of the machine.
pub fn system_clock() -> WallClock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}
