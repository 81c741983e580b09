//! What every module shares: the clock, and how a lock is taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The time, nanoseconds since 1970.
pub type Clock = fn() -> i64;

pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves a catalog or library as it was after the last whole transaction.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
