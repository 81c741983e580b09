//! The way into a session for blocks, packed here or elsewhere.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_format::ObjectId;

use crate::control::{Control, Controls};
use crate::pack::{PackOptions, PackedTo};
use crate::pool::BlockPool;
use crate::throttle::Throttle;

/// Where blocks go, and what those who bring them share.
#[derive(Clone)]
pub(crate) struct BlocksIn {
    pub(crate) pool: BlockPool,
    pub(crate) out: PackedTo,
    pub(crate) controls: Controls,
    pub(crate) stop: Arc<AtomicBool>,
    /// Numbers of streams.
    pub(crate) streams: Arc<AtomicU64>,
    /// Streams that are open and that block links bring.
    pub(crate) receivers: Arc<AtomicUsize>,
    /// Blocks that they have reserved.
    pub(crate) reserved: Arc<AtomicUsize>,
    /// Room for the entries that they bring.
    pub(crate) entries: Arc<EntriesRoom>,
    /// How blocks of the session are packed, wherever that is done.
    pub(crate) pack: PackOptions,
    /// How fast they may come.
    pub(crate) throttle: Option<Arc<Throttle>>,
}

impl BlocksIn {
    /// Begins a stream of an object; its number.
    pub(crate) fn open_stream(&self, object: ObjectId) -> u64 {
        // Where nobody hears it, the first block is told so.
        let _ = self.controls.send(Control::Opened { object });
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    /// Begins a stream that block links bring; its number.
    pub(crate) fn open_received(&self, object: ObjectId) -> u64 {
        self.receivers.fetch_add(1, Ordering::Relaxed);
        self.open_stream(object)
    }

    /// Notes that such a stream has ended: as a whole, or in front of this block.
    pub(crate) fn close_received(&self, stream: u64, object: ObjectId, first_sequence: u32, cut_at: Option<u32>) {
        self.receivers.fetch_sub(1, Ordering::Relaxed);
        if let Some(sequence) = cut_at {
            self.controls.cut(stream, object, first_sequence, sequence);
        }
    }
}

/// The least room for entries.
const ROOM_MIN: usize = 64 << 20;
/// How much is taken of it at a time.
const STEP: usize = 64 << 10;

/// Room for entries that came over a network and are not on their volumes yet. Those of ordinary blocks are a fraction
/// of the blocks; what does not fit, such as all paths that are gone, is one block's at a time.
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
    /// Takes room for so many bytes in all, or waits so long for it. Only whoever may be `large` takes more than there
    /// is for all: a block in front of which others are missing could wait for them for ever.
    pub(crate) fn grows_to(&mut self, bytes: usize, may_be_large: bool, wait: Duration) -> bool {
        while bytes > self.bytes && !self.is_large {
            let mut taken = self.room.taken();
            if taken.bytes + STEP <= self.room.max {
                taken.bytes += STEP;
                self.bytes += STEP;
            } else if may_be_large && !taken.has_large {
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
        assert!(first.grows_to(ROOM_MIN - STEP, false, moment) && second.grows_to(1, false, moment));
        assert!(!third.grows_to(1, false, moment), "all is taken");
        assert!(third.grows_to(8 * ROOM_MIN, true, moment), "the one that is large");
        assert!(!first.grows_to(ROOM_MIN, true, moment), "there is one already");
        drop(third);
        assert!(first.grows_to(ROOM_MIN, true, moment));
        drop((first, second));
        assert_eq!((room.taken().bytes, room.taken().has_large), (0, false));
    }
}
