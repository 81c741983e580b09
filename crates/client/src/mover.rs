//! A mover that waits at its server.

use std::sync::atomic::AtomicBool;

use crate::orders::PeerHello;
use crate::run::wait_for_orders;
use crate::{ClientError, LockedState, MemberNotice};

/// Tells the server where clients bring this mover their data, stays connected and renews the certificate, until it is
/// told to stop. `data` is what [`MoverSettings::data`](crate::MoverSettings::data) gives. Where the server listens for
/// data is in [`MemberNotice::Connected`].
///
/// # Errors
/// As [`crate::run()`].
pub fn run_mover(
    locked: &LockedState,
    data: String,
    now_ns: fn() -> i64,
    say: &(dyn Fn(MemberNotice) + Sync),
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    let hello = PeerHello { data: Some(data), ..PeerHello::default() };
    // Orders are for clients.
    wait_for_orders(locked, hello, now_ns, &|_| {}, say, stop)
}
