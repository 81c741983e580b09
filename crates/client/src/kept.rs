//! The connections that a mover keeps open at its server, for whoever needs one.
//!
//! The server cannot dial a mover that is behind a firewall, so the mover dials. There are always a few connections
//! that nobody uses; when one is taken into use, another one is opened. Whatever comes over them is between whoever
//! decides and [`ServedMover`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use capstan_mover::{Dial, ServedMover};

use crate::data::DataDialer;
use crate::{ClientError, MemberState};

/// Connections that nobody uses.
const IDLE: usize = 4;
/// How often it is looked whether to stop.
const LOOKS: Duration = Duration::from_secs(1);
/// How long after a failure the next one is tried, at first and at most.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// How long after a connection that the server ended as soon as it came.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Keeps connections of a mover until it is told to stop. Clones are the same.
#[derive(Clone)]
pub struct KeptConnections(Arc<Shared>);

struct Shared {
    state: MemberState,
    mover: ServedMover,
    kept: Mutex<Kept>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Default)]
struct Kept {
    /// Where the server listens for data; none until that is known.
    server: Option<String>,
    /// How many connections nobody uses.
    idle: usize,
}

impl KeptConnections {
    /// None, until it is known where to.
    pub fn new(state: &MemberState, mover: ServedMover) -> Self {
        let (kept, changed, stop) = Default::default();
        Self(Arc::new(Shared { state: state.clone(), mover, kept, changed, stop }))
    }

    /// Keeps them at this address, host and port.
    pub fn at(&self, server: &str) {
        self.0.change(|kept| kept.server = Some(server.to_owned()));
    }

    /// Opens no more, and ends those that nobody uses. What is under way goes on as long as this process does.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }

    /// Keeps connections open, in this thread, until it is told to stop. `trouble` is told why one cannot be opened,
    /// once for each reason.
    pub fn keep(&self, trouble: &dyn Fn(String)) {
        let (mut pause, mut told) = (PAUSE, String::new());
        while let Some(server) = self.wanted() {
            match self.open(&server) {
                Ok(()) => (pause, told) = (PAUSE, String::new()),
                Err(error) => {
                    let reason = error.to_string();
                    if reason != told {
                        trouble(reason.clone());
                        told = reason;
                    }
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Waits until one more is wanted; where to. None once it is told to stop.
    fn wanted(&self) -> Option<String> {
        let mut kept = self.0.kept();
        while !self.0.stop.load(Ordering::Relaxed) {
            if let Some(server) = kept.server.clone().filter(|_| kept.idle < IDLE) {
                return Some(server);
            }
            // A stop that comes in between is seen at the next look.
            kept = self.0.changed.wait_timeout(kept, LOOKS).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    /// Opens one more, and serves it in a thread of its own.
    fn open(&self, server: &str) -> Result<(), ClientError> {
        // Its certificate may have been renewed since the last one.
        let dialer = DataDialer::new(&self.0.state.identity()?, server.to_owned())?;
        let away = |error: std::io::Error| {
            let (address, reason) = (server.to_owned(), error.to_string());
            ClientError::Away { address, reason, may_have_arrived: false }
        };
        let stream = dialer.dial().map_err(away)?;
        let kept = self.clone();
        let idle = Idle::new(Arc::clone(&self.0));
        let serve = move || {
            let began = Instant::now();
            // Whoever is at the other end sees what becomes of the connection.
            let _ = kept.0.mover.serve(stream, &|| idle.is_over(), &kept.0.stop);
            if idle.counts() && began.elapsed() < REFUSED_PAUSE {
                // The server does not want it: it is asked again, but not at once.
                thread::sleep(REFUSED_PAUSE);
            }
        };
        thread::Builder::new().name("mover".to_owned()).spawn(serve).map(drop).map_err(away)
    }
}

impl Shared {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) {
        change(&mut self.kept());
        self.changed.notify_all();
    }
}

/// One that counts as idle, until it is used or ends.
struct Idle(Arc<Shared>, AtomicBool);

impl Idle {
    fn new(shared: Arc<Shared>) -> Self {
        shared.change(|kept| kept.idle += 1);
        Self(shared, AtomicBool::new(true))
    }

    fn counts(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    fn is_over(&self) {
        if self.1.swap(false, Ordering::Relaxed) {
            self.0.change(|kept| kept.idle -= 1);
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.is_over();
    }
}
