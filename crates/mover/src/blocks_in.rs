//! The way into a session for blocks, packed here or elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use capstan_format::ObjectId;

use crate::control::{Control, Controls};
use crate::entries_room::EntriesRoom;
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
