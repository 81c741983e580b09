//! A drive that several readers of its volume use by turns.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_tape::Drive;

use crate::turns::{Next, ReaderId, Turns};

/// How often whoever waits for a turn looks whether it is to stop.
const LOOKS: Duration = Duration::from_millis(250);
/// How long it sleeps at least.
const SLEEPS: Duration = Duration::from_millis(2);

/// One reader's part of a drive.
pub(crate) struct DriveShare {
    drive: Arc<SharedDrive>,
    id: ReaderId,
}

/// A drive, with whoever reads or between two turns.
pub(crate) struct SharedDrive {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// None while somebody reads.
    drive: Option<Box<dyn Drive>>,
    /// Where it stands, if that is known.
    at: Option<u64>,
    turns: Turns,
    readers: usize,
    last: ReaderId,
}

impl SharedDrive {
    pub(crate) fn new(drive: Box<dyn Drive>) -> Arc<Self> {
        let state = State { drive: Some(drive), at: None, turns: Turns::new(Instant::now()), readers: 0, last: 0 };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// One more reader.
    pub(crate) fn join(self: &Arc<Self>) -> DriveShare {
        let mut state = self.locked();
        state.readers += 1;
        state.last += 1;
        DriveShare { drive: Arc::clone(self), id: state.last }
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, within: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, within.clamp(SLEEPS, LOOKS)).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl DriveShare {
    /// Uses the drive for a block: `read` is told where the drive stands, if that is known, and says where it stands
    /// then. Behind it the reader wants the block `next`, if any. None where `stop` was set before it had its turn.
    pub(crate) fn turn<T>(
        &self,
        (lbn, next): (u64, Option<u64>),
        stop: &AtomicBool,
        read: impl FnOnce(&mut dyn Drive, &mut Option<u64>) -> T,
    ) -> Option<T> {
        let mut state = self.drive.locked();
        let drive = loop {
            let now = Instant::now();
            state.turns.waits(self.id, lbn, now);
            let until = match state.drive.is_some().then(|| state.turns.next(now)) {
                Some(Next::Reader(id)) if id == self.id => match state.drive.take() {
                    Some(drive) => {
                        state.turns.takes(id, now);
                        break drive;
                    }
                    None => LOOKS,
                },
                Some(Next::Nobody(until)) => until.saturating_duration_since(now),
                Some(Next::Reader(_)) | None => LOOKS,
            };
            if stop.load(Ordering::Relaxed) {
                state.turns.leaves(self.id);
                drop(state);
                self.drive.changed.notify_all();
                return None;
            }
            state = self.drive.wait(state, until);
        };
        Some(self.lend(state, drive, Some((lbn, next)), read))
    }

    /// Uses the drive for something else than a block, between two turns: told where it stands, it says where it does
    /// then.
    pub(crate) fn between_turns<T>(&self, work: impl FnOnce(&mut dyn Drive, &mut Option<u64>) -> T) -> T {
        let mut state = self.drive.locked();
        let drive = loop {
            match state.drive.take() {
                Some(drive) => break drive,
                None => state = self.drive.wait(state, LOOKS),
            }
        };
        self.lend(state, drive, None, work)
    }

    fn lend<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        mut drive: Box<dyn Drive>,
        read: Option<(u64, Option<u64>)>,
        work: impl FnOnce(&mut dyn Drive, &mut Option<u64>) -> T,
    ) -> T {
        let mut at = state.at.take();
        drop(state);
        // Brought back also by whoever fails.
        let worked = catch_unwind(AssertUnwindSafe(|| work(drive.as_mut(), &mut at)));
        let mut state = self.drive.locked();
        (state.drive, state.at) = (Some(drive), at);
        if let Some((lbn, next)) = read {
            state.turns.has_read(self.id, lbn, next, Instant::now());
        }
        drop(state);
        self.drive.changed.notify_all();
        worked.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether there are other readers.
    pub(crate) fn has_others(&self) -> bool {
        self.drive.locked().readers > 1
    }

    /// Whether it is of this drive.
    pub(crate) fn is_of(&self, drive: &Arc<SharedDrive>) -> bool {
        Arc::ptr_eq(&self.drive, drive)
    }

    /// Reads no more; gives the drive away if nobody else has a part of it.
    pub(crate) fn leave(self) -> Option<Box<dyn Drive>> {
        let mut state = self.drive.locked();
        state.readers -= 1;
        state.turns.leaves(self.id);
        let drive = if state.readers == 0 { state.drive.take() } else { None };
        drop(state);
        self.drive.changed.notify_all();
        drive
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::thread;

    use capstan_tape::NullDrive;

    use super::*;

    /// Each of four readers wants every fourth block: one pass gives them all.
    #[test]
    fn interleaved_readers_are_served_in_one_pass() {
        let shared = SharedDrive::new(Box::new(NullDrive::new()));
        let (order, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        let shares: Vec<_> = (0..4).map(|_| shared.join()).collect();
        // All wait before the first block is read: who comes first is chance.
        let held = shared.locked().drive.take();
        thread::scope(|scope| {
            for (first, share) in (0..).zip(&shares) {
                let (order, stop) = (&order, &stop);
                scope.spawn(move || {
                    for lbn in (first..400).step_by(4) {
                        let next = Some(lbn + 4).filter(|next| *next < 400);
                        share.turn((lbn, next), stop, |_, at| {
                            *at = Some(lbn + 1);
                            order.lock().unwrap().push(lbn);
                        });
                    }
                });
            }
            while shared.locked().turns.waiting() < 4 {
                thread::yield_now();
            }
            shared.locked().drive = held;
        });
        let order = order.into_inner().unwrap();
        // On a busy machine one may be late, and is served behind the others.
        let back = order.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert_eq!(order.len(), 400);
        assert!(back <= 4, "{back} times back: {order:?}");
    }

    #[test]
    fn a_reader_that_fails_or_is_stopped_leaves_the_drive_to_others() {
        let shared = SharedDrive::new(Box::new(NullDrive::new()));
        let (one, other, stop) = (shared.join(), shared.join(), AtomicBool::new(false));
        assert!(one.has_others());
        let failed = catch_unwind(AssertUnwindSafe(|| one.turn((5, Some(6)), &stop, |_, _| panic!("by a bug"))));
        assert!(failed.is_err());
        assert_eq!(other.turn((9, None), &stop, |_, at| *at), Some(None));
        stop.store(true, Ordering::Relaxed);
        let held = shared.locked().drive.take();
        assert_eq!(one.turn((6, None), &stop, |_, _| ()), None);
        shared.locked().drive = held;
        assert!(one.leave().is_none());
        assert!(!other.has_others() && other.leave().is_some());
    }
}
