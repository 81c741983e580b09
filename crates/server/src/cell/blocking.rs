//! What handlers ask that may block.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_service::problem::Refusal;

/// Says whether whoever asked still waits for the answer.
pub(super) type IsAwaited<'a> = dyn Fn() -> bool + 'a;

/// Sets its flag when it goes.
struct Leaves(Arc<AtomicBool>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks what takes long before it changes something, and may ask itself whether anybody waits for it still.
pub(super) async fn blocking_awaited<T: Send + 'static>(
    work: impl FnOnce(&IsAwaited<'_>) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let is_left = Arc::new(AtomicBool::new(false));
    let leaves = Leaves(Arc::clone(&is_left));
    let answer = blocking(move || work(&|| !is_left.load(Ordering::Relaxed))).await;
    drop(leaves);
    answer
}

/// Asks what may block, on a thread for that.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::failed())?
}
