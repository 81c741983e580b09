//! The way from a connection into a session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::pack::{PackOptions, PackedTo};
use crate::pool::BlockPool;

/// Where blocks go that were packed elsewhere.
#[derive(Clone)]
pub(crate) struct BlocksIn {
    pub(crate) pool: BlockPool,
    pub(crate) out: PackedTo,
    pub(crate) stop: Arc<AtomicBool>,
    /// Numbers of streams.
    pub(crate) streams: Arc<AtomicU64>,
    /// Most connections that are open at a time.
    pub(crate) connections: usize,
    /// How blocks of the session are packed, wherever that is done.
    pub(crate) pack: PackOptions,
}
