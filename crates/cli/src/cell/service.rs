//! What the manager of services hears of a server, mover or client: their units are of `Type=notify`.

use sd_notify::NotifyState;

/// The program does its work from now on, so whatever was ordered to start behind it may. Where nobody waits for it,
/// or it cannot be said, the work goes on all the same.
pub(super) fn is_ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}
