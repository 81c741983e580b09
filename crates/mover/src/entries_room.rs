//! Memory for entries on their way to the volumes: what one client sends is not to be that of all others.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The least room for entries.
const ROOM_MIN: usize = 64 << 20;
/// How much is taken of it at a time.
const STEP: usize = 64 << 10;

/// Room for entries that came over a network and are not on their volumes yet. Those of ordinary blocks are a fraction
/// of the blocks. Only one block at a time may exceed the room, such as one with all paths that are gone.
pub(crate) struct EntriesRoom {
    max: usize,
    taken: Mutex<RoomTaken>,
    freed: Condvar,
}

#[derive(Default)]
struct RoomTaken {
    bytes: usize,
    has_large: bool,
}

/// The room of one block's entries, until it is dropped.
pub(crate) struct EntriesHeld {
    room: Arc<EntriesRoom>,
    bytes: usize,
    is_large: bool,
}

impl EntriesRoom {
    /// For blocks that take so many bytes.
    pub(crate) fn beside(pool_bytes: usize) -> Arc<Self> {
        let (taken, freed) = (Mutex::default(), Condvar::new());
        Arc::new(Self { max: (pool_bytes / 2).max(ROOM_MIN), taken, freed })
    }

    fn taken(&self) -> MutexGuard<'_, RoomTaken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(self: &Arc<Self>) -> EntriesHeld {
        EntriesHeld { room: Arc::clone(self), bytes: 0, is_large: false }
    }
}

impl EntriesHeld {
    /// Takes room for so many bytes in all, or waits so long for it. A block that is not the next of its stream gets
    /// half of the room at most, and never more than there is for all: it may wait for those in front of it for ever.
    pub(crate) fn grows_to(&mut self, bytes: usize, is_next: bool, wait: Duration) -> bool {
        while bytes > self.bytes && !self.is_large {
            let mut taken = self.room.taken();
            let max = if is_next { self.room.max } else { self.room.max / 2 };
            if taken.bytes + STEP <= max {
                taken.bytes += STEP;
                self.bytes += STEP;
            } else if is_next && !taken.has_large {
                taken.has_large = true;
                self.is_large = true;
            } else {
                drop(self.room.freed.wait_timeout(taken, wait));
                return false;
            }
        }
        true
    }
}

impl Drop for EntriesHeld {
    fn drop(&mut self) {
        let mut taken = self.room.taken();
        taken.bytes -= self.bytes;
        taken.has_large &= !self.is_large;
        drop(taken);
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_beyond_the_room_for_all_are_one_blocks_at_a_time() {
        let (room, moment) = (EntriesRoom::beside(0), Duration::from_millis(1));
        let [mut first, mut second, mut third] = [(); 3].map(|()| room.hold());
        assert!(first.grows_to(ROOM_MIN / 2, false, moment));
        assert!(!first.grows_to(ROOM_MIN / 2 + 1, false, moment), "half is for those that are next");
        assert!(second.grows_to(ROOM_MIN / 2, true, moment) && !third.grows_to(1, false, moment), "all is taken");
        assert!(third.grows_to(8 * ROOM_MIN, true, moment), "the one that is large");
        assert!(!first.grows_to(ROOM_MIN, true, moment), "there is one already");
        drop(third);
        assert!(first.grows_to(ROOM_MIN, true, moment));
        drop((first, second));
        let taken = room.taken();
        assert_eq!((taken.bytes, taken.has_large), (0, false));
    }
}
