//! The queues of the data path: many senders, one receiver, which takes all there is at once.
//!
//! A block is handed on three times on its way. Where each hand-over wakes a thread, asks the clock and yields to
//! others until something comes, system calls cost more than moving the bytes: in a guest, where one takes 65 µs,
//! twenty a block were half of a backup's time. Here nobody is woken who does not sleep, and a sender that waited for
//! room goes on when the receiver has taken the whole queue: both work in stretches. A receiver that ran out of items
//! is not woken by the next one alone, but when there are several, or when [`GATHERING`] is over. Rejected: a channel
//! of a library (it spins and yields before it sleeps, and wakes its sender for each item).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::thread::futex::{self, Flags, Timespec};

/// Most items that must be there before a receiver is woken that had some a moment ago.
const WORTHWHILE_MAX: usize = 4;
/// Longest that an item waits for others. A source of 100 MB/s brings a block less often: each of its blocks is taken
/// at once.
const GATHERING: Duration = Duration::from_millis(2);

/// Makes a queue for `room` items, beside those that the receiver has taken and not used yet.
pub(crate) fn queue<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let state = State { items: VecDeque::new(), senders: 1, full: 0, wakes: 0, received: true };
    let worthwhile = (room / 2).clamp(1, WORTHWHILE_MAX);
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        room: room.max(1),
        worthwhile,
        came: Bell::default(),
        went: Condvar::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver { shared, taken: VecDeque::new() })
}

/// Puts items in.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// Takes items out, in the order in which they came.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    taken: VecDeque<T>,
}

/// Why an item was not taken; here it is again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused<T> {
    /// There is no room now.
    Full(T),
    /// The receiver is gone.
    Gone(T),
}

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// Not in this time.
    Yet,
    /// All senders are gone, and what they sent was received.
    More,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    room: usize,
    /// A receiver that gathers is woken when there are so many; never more than there is room for.
    worthwhile: usize,
    came: Bell,
    went: Condvar,
}

struct State<T> {
    items: VecDeque<T>,
    senders: usize,
    /// Senders that sleep because there is no room.
    full: usize,
    /// The receiver sleeps until there are so many; 0 while it does not.
    wakes: usize,
    /// Whether there is a receiver.
    received: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until so many items are queued, all senders are gone, or the time is over. Returns at once if items are
    /// queued. May return early: asking the clock for what is left costs more than looking again.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        worthwhile: usize,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, State<T>> {
        while state.items.is_empty() && state.senders > 0 {
            state.wakes = worthwhile;
            let heard = self.came.heard();
            drop(state);
            self.came.wait(heard, limit);
            state = self.state();
            state.wakes = 0;
            if limit.is_some() {
                break;
            }
        }
        state
    }
}

/// Wakes the receiver, which sleeps no longer than a time that the kernel counts from now on. `Condvar` sleeps until a
/// time of day of the monotonic clock instead: a program that is given another clock (by faketime, say) would sleep for
/// years.
#[derive(Default)]
struct Bell(AtomicU32);

impl Bell {
    /// How often it was rung. Read it under the lock: `wait` returns at once if the bell has rung since then.
    fn heard(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps until it is rung again or the time is over; may wake early.
    fn wait(&self, heard: u32, limit: Option<Duration>) {
        // A time too long for the kernel is for ever.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // That it was rung meanwhile, that the time is over, that a signal came: all of them end the wait, and the
        // caller looks again.
        let _ = futex::wait(&self.0, Flags::PRIVATE, heard, limit.as_ref());
    }

    /// Wakes who sleeps, if anybody.
    fn ring(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
    }
}

impl<T> Sender<T> {
    /// Puts an item in, waiting for room if need be. Gives it back when the receiver is gone.
    pub(crate) fn send(&self, item: T) -> Result<(), T> {
        let mut state = self.0.state();
        while state.received && state.items.len() >= self.0.room {
            state.full += 1;
            state = self.0.went.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.full -= 1;
        }
        self.put(state, item)
    }

    /// Puts an item in if there is room now.
    pub(crate) fn try_send(&self, item: T) -> Result<(), Refused<T>> {
        let state = self.0.state();
        if state.received && state.items.len() >= self.0.room {
            return Err(Refused::Full(item));
        }
        self.put(state, item).map_err(Refused::Gone)
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, item: T) -> Result<(), T> {
        if !state.received {
            return Err(item);
        }
        state.items.push_back(item);
        let wake = (1..=state.items.len()).contains(&state.wakes);
        if wake {
            state.wakes = 0;
        }
        drop(state);
        if wake {
            self.0.came.ring();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.came.ring();
        }
    }
}

impl<T> Receiver<T> {
    /// The next item, if there is one now.
    pub(crate) fn try_next(&mut self) -> Option<T> {
        if self.taken.is_empty() {
            let shared = Arc::clone(&self.shared);
            self.take(shared.state());
        }
        self.taken.pop_front()
    }

    /// The next item, waiting for it. `None` when all senders are gone.
    pub(crate) fn next(&mut self) -> Option<T> {
        self.wait(None).ok()
    }

    /// The next item, waiting for it no longer than this, or a little less.
    pub(crate) fn next_within(&mut self, limit: Duration) -> Result<T, Nothing> {
        self.wait(Some(limit))
    }

    fn wait(&mut self, limit: Option<Duration>) -> Result<T, Nothing> {
        if let Some(item) = self.taken.pop_front() {
            return Ok(item);
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        let gathering = limit.map_or(GATHERING, |limit| limit.min(GATHERING));
        if shared.worthwhile > 1 {
            state = shared.sleep(state, shared.worthwhile, Some(gathering));
        }
        state = shared.sleep(state, 1, limit.map(|limit| limit - gathering));
        let nothing = if state.senders > 0 { Nothing::Yet } else { Nothing::More };
        self.take(state);
        self.taken.pop_front().ok_or(nothing)
    }

    /// Takes all there is, and wakes who waited for room.
    fn take(&mut self, mut state: MutexGuard<'_, State<T>>) {
        std::mem::swap(&mut self.taken, &mut state.items);
        let waiting = state.full > 0;
        drop(state);
        if waiting {
            self.shared.went.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.received = false;
        // What was sent and not received is dropped here, and not while the queue is held: a buffer goes back to its
        // pool.
        let items = std::mem::take(&mut state.items);
        drop(state);
        self.shared.went.notify_all();
        drop(items);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn items_come_in_order_and_the_end_after_the_last() {
        let (sender, mut receiver) = queue(2);
        assert_eq!(receiver.next_within(Duration::ZERO), Err(Nothing::Yet));
        assert_eq!((sender.try_send(1), sender.send(2)), (Ok(()), Ok(())));
        assert_eq!(sender.try_send(3), Err(Refused::Full(3)));
        assert_eq!(receiver.try_next(), Some(1));
        // Both were taken: there is room for two more.
        assert_eq!((sender.try_send(3), sender.try_send(4)), (Ok(()), Ok(())));
        let other = sender.clone();
        drop(sender);
        assert_eq!((receiver.next(), receiver.next(), receiver.try_next()), (Some(2), Some(3), Some(4)));
        assert_eq!((receiver.try_next(), receiver.next_within(Duration::ZERO)), (None, Err(Nothing::Yet)));
        drop(other);
        assert_eq!((receiver.next(), receiver.next_within(Duration::MAX)), (None, Err(Nothing::More)));
    }

    #[test]
    fn what_a_receiver_that_goes_leaves_is_dropped_and_its_senders_are_told() {
        let (sender, mut receiver) = queue(1);
        let item = Arc::new(());
        assert!(sender.send(Arc::clone(&item)).is_ok());
        std::thread::scope(|scope| {
            let waits =
                scope.spawn(|| sender.send(Arc::clone(&item)).is_err() || sender.send(Arc::clone(&item)).is_err());
            let first = receiver.next();
            drop(receiver);
            drop(first);
            assert!(waits.join().unwrap(), "the second or the third met nobody");
        });
        assert_eq!(Arc::strong_count(&item), 1);
        assert_eq!(sender.try_send(item).unwrap_err(), Refused::Gone(Arc::new(())));
    }

    #[test]
    fn many_senders_lose_nothing_in_a_queue_of_one() {
        let (sender, mut receiver) = queue(1);
        let mut sums = std::thread::scope(|scope| {
            for number in 0..4u64 {
                let sender = sender.clone();
                scope.spawn(move || (0..5_000).for_each(|item| sender.send((number, item)).unwrap()));
            }
            drop(sender);
            let mut next = [0; 4];
            while let Some((number, item)) = receiver.next() {
                assert_eq!(next[number as usize], item, "in the order of their sender");
                next[number as usize] += 1;
            }
            next
        });
        sums.sort_unstable();
        assert_eq!(sums, [5_000; 4]);
    }

    #[test]
    fn a_receiver_that_gathers_is_woken_for_several() {
        let (sender, mut receiver) = queue(8);
        sender.0.state().wakes = WORTHWHILE_MAX;
        for item in 1..WORTHWHILE_MAX {
            sender.send(item).unwrap();
            assert_eq!(sender.0.state().wakes, WORTHWHILE_MAX, "it sleeps on behind {item}");
        }
        sender.send(WORTHWHILE_MAX).unwrap();
        assert_eq!(sender.0.state().wakes, 0, "it was woken");
        assert_eq!((receiver.next(), receiver.taken.len()), (Some(1), WORTHWHILE_MAX - 1));
        // Where there is no room for so many, nobody waits for them.
        assert_eq!([1, 2, 3, 5, 100].map(|room| queue::<()>(room).0.0.worthwhile), [1, 1, 1, 2, WORTHWHILE_MAX]);
    }

    #[test]
    fn a_single_item_is_taken_though_no_other_comes() {
        let (sender, mut receiver) = queue(8);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| (receiver.next(), receiver.next(), receiver.next()));
            for item in 1..=2 {
                sender.send(item).unwrap();
                while !sender.0.state().items.is_empty() {
                    std::thread::yield_now();
                }
            }
            drop(sender);
            assert_eq!(taken.join().unwrap(), (Some(1), Some(2), None));
        });
    }

    /// The channel before this one woke the sender for each item that was received.
    #[test]
    fn who_waits_for_room_finds_room_for_many() {
        let (sender, mut receiver) = queue(8);
        std::thread::scope(|scope| {
            (0..8).for_each(|item| sender.send(item).unwrap());
            let waits = scope.spawn(|| sender.send(8).map(|()| sender.0.state().items.len()));
            while sender.0.state().full == 0 {
                std::thread::yield_now();
            }
            assert_eq!(receiver.next(), Some(0));
            assert_eq!(waits.join().unwrap(), Ok(1), "it came into an empty queue");
        });
    }
}
