//! What every module shares: the clock, the keys, and how a lock is taken.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_catalog::Catalog;
use capstan_keys::KeyProvider;

/// The time, nanoseconds since 1970.
pub type Clock = fn() -> i64;

/// Who gives drives their keys, shared by everything in one process that mounts.
pub(crate) type SharedKeys = Arc<dyn KeyProvider>;

/// Reads a catalog by a connection of its own, where there can be one: nobody else waits for what takes long.
///
/// # Errors
/// What reading it gives.
pub(crate) fn apart<T, E>(catalog: &Mutex<Catalog>, read: impl FnOnce(&Catalog) -> Result<T, E>) -> Result<T, E> {
    let own = locked(catalog).another();
    match own {
        Ok(Some(own)) => read(&own),
        // A database may have no connection left: then others wait.
        Ok(None) | Err(_) => read(&locked(catalog)),
    }
}

/// The first of some names, and how many more there are.
pub(crate) fn first_of<T>(names: &[T], max: usize, name: impl Fn(&T) -> String) -> String {
    let mut first: Vec<_> = names.iter().take(max).map(name).collect();
    if names.len() > max {
        first.push(format!("{} more", names.len() - max));
    }
    first.join(", ")
}

pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked leaves a catalog or library as it was after the last whole transaction.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
