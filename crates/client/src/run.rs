//! A client that waits for orders.
//!
//! ```text
//!  poller thread: renew? --> hello --> orders? (waits up to 25 s) --> orders? ...    server away: 1, 2, 4 ... 30 s
//!                                          | what it hears, one at a time
//!  run():                                  '--> handler, a thread for each order
//! ```
//! The poller is a thread of its own because a question that waits cannot be interrupted: a client that is told to stop
//! leaves it behind.

mod poller;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::{CellOrder, ClientError, ClientSettings, ClientState};
use poller::{Heard, Poller};

/// Orders that are worked on at a time.
pub const ORDERS_AT_WORK_MAX: usize = 256;

/// How often it is looked whether the client is to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// What a client says while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientNotice {
    /// The server answers: at the start, and again after it was lost.
    Connected {
        /// Where.
        address: String,
    },
    /// The server does not answer any more. The client goes on looking for it.
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
    state: &ClientState,
    now_ns: fn() -> i64,
    handler: &(dyn Fn(CellOrder) + Sync),
    say: &(dyn Fn(ClientNotice) + Sync),
    stop: &AtomicBool,
) -> Result<(), ClientError> {
    let (hears, heard) = sync_channel(0);
    let is_over = Arc::new(AtomicBool::new(false));
    let settings = ClientSettings::read(state.dir())?;
    let poller = Poller::new(state, &settings, now_ns, hears, Arc::clone(&is_over))?;
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
                            say(ClientNotice::Trouble { reason: reason.to_owned() });
                        }
                        at_work.fetch_sub(1, Ordering::Relaxed);
                    };
                    at_work.fetch_add(1, Ordering::Relaxed);
                    if let Err(error) = thread::Builder::new().name("order".to_owned()).spawn_scoped(scope, work) {
                        at_work.fetch_sub(1, Ordering::Relaxed);
                        say(ClientNotice::Trouble { reason: format!("an order cannot be begun: {error}") });
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
