//! A client or a mover that waits for orders.
//!
//! ```text
//!  poller thread: renew? --> hello --> orders? (waits up to 25 s) --> orders? ...    server away: 1, 2, 4 ... 30 s
//!                                          | what it hears, one at a time
//!  run():                                  '--> handler, a thread for each order
//! ```
//! The poller is a thread of its own because a question that waits cannot be interrupted: a process that is told to
//! stop leaves it behind.

mod poller;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::orders::PeerHello;
use crate::{CellOrder, ClientError, ClientSettings, LockedState};
use poller::{Heard, Poller};

/// Orders that are worked on at a time.
pub const ORDERS_AT_WORK_MAX: usize = 256;

/// How often it is looked whether the process is to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// What a client or a mover says while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberNotice {
    /// The server answers: at the start, and again after it was lost or has started anew.
    Connected {
        /// Where.
        address: String,
        /// Where the same server listens for data: host and port; none if it does not say that.
        data: Option<String>,
    },
    /// The server does not answer any more. It is looked for again and again.
    Lost {
        /// Why, in words.
        reason: String,
    },
    /// The certificate was renewed.
    Renewed {
        /// Until when it holds, nanoseconds since 1970.
        until_ns: i64,
    },
    /// Something does not work, and is tried again.
    Trouble {
        /// What, in words.
        reason: String,
    },
}

/// Waits for orders until it is told to stop, and gives each to `handler` on a thread of its own. It returns when all
/// handlers have. A server that is away is looked for again and again.
///
/// # Errors
/// [`ClientError::NotJoined`], [`ClientError::Revoked`], [`ClientError::CertificateEnded`] or [`ClientError::Refused`];
/// otherwise the state directory cannot be read.
pub fn run(
    locked: &LockedState,
    now_ns: fn() -> i64,
    handler: &(dyn Fn(CellOrder) + Sync),
    say: &(dyn Fn(MemberNotice) + Sync),
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    let settings = ClientSettings::read(locked.state().dir())?;
    let hello = PeerHello {
        paths: settings.paths.iter().map(|path| path.display().to_string()).collect(),
        restore_to: settings.restore_to.iter().map(|path| path.display().to_string()).collect(),
        scripts: settings.scripts.into_keys().collect(),
        ..PeerHello::default()
    };
    wait_for_orders(locked, hello, now_ns, handler, say, stop)
}

/// The same for a member of either kind, which says this of itself.
pub(crate) fn wait_for_orders(
    locked: &LockedState,
    hello: PeerHello,
    now_ns: fn() -> i64,
    handler: &(dyn Fn(CellOrder) + Sync),
    say: &(dyn Fn(MemberNotice) + Sync),
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    if let Some(reason) = locked.problem() {
        say(MemberNotice::Trouble { reason });
    }
    let state = locked.state();
    let (hears, heard) = sync_channel(0);
    let is_over = Arc::new(AtomicBool::new(false));
    let poller = Poller::new(state, hello, now_ns, hears, Arc::clone(&is_over))?;
    let spawned = thread::Builder::new().name("orders".to_owned()).spawn(move || poller.poll());
    spawned.map_err(ClientError::io("begin to ask for orders for", state.dir()))?;
    let at_work = AtomicUsize::new(0);
    let ended = thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            if at_work.load(Ordering::Relaxed) >= ORDERS_AT_WORK_MAX {
                thread::sleep(LOOKS);
                continue;
            }
            match heard.recv_timeout(LOOKS) {
                Ok(Heard::Order(order)) => {
                    let work = || {
                        if catch_unwind(AssertUnwindSafe(|| handler(order))).is_err() {
                            let reason = "an order failed because of a bug: please report it, with this output";
                            say(MemberNotice::Trouble { reason: reason.to_owned() });
                        }
                        at_work.fetch_sub(1, Ordering::Relaxed);
                    };
                    at_work.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = thread::Builder::new().name("order".to_owned()).spawn_scoped(scope, work) {
                        at_work.fetch_sub(1, Ordering::Relaxed);
                        say(MemberNotice::Trouble { reason: format!("an order cannot be begun: {error}") });
                    }
                }
                Ok(Heard::Notice(notice)) => say(notice),
                Ok(Heard::Ended(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    });
    is_over.store(true, Ordering::Relaxed);
    ended
}
