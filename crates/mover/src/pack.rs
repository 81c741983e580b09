//! Packing: chunks are compressed on as many cores as there are.
//!
//! A chunk goes to a worker if one is free, else the connection's own thread packs it: one connection keeps every core
//! busy, and many connections do not queue behind a few workers. A worker compresses into a spare buffer of its own and
//! keeps the chunk's buffer as its next spare, so packing takes nothing from the pool and cannot deadlock with it.
//!
//! Incompressible data is noticed: after a chunk that does not shrink, the next ones of its connection are passed
//! through, more of them each time, with a probe between.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use capstan_format::{BLOCK_HEADER_LEN, Compression, ObjectId};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use serde::{Deserialize, Serialize};

use crate::block::{Block, Chunk};
use crate::pool::{BlockPool, Buffer};
use crate::{MoverError, Stopped};

/// A chunk that compresses to more than this share of itself is stored as it is.
const WORTH_IT_PERCENT: usize = 95;
/// Most chunks passed through between two probes.
const PASS_MAX: u8 = 16;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PackOptions {
    /// Stored as read.
    Store,
    /// One zstd frame a block, at this level.
    Zstd(i32),
}

/// Where packed blocks go.
pub(crate) type PackedTo = Arc<dyn Fn(Block) -> Result<(), Stopped> + Send + Sync>;

/// Hands chunks to the packing workers; each connection has a clone.
pub(crate) struct Packer {
    options: PackOptions,
    work: Option<Sender<Chunk>>,
    out: PackedTo,
    own: Option<Bench>,
    pool: BlockPool,
    adaptive: Arc<Mutex<HashMap<(ObjectId, u16), Adaptive>>>,
    busy_ns: Arc<AtomicU64>,
}

/// The workers' end: joined when every packer is gone.
pub(crate) struct PackWorkers(Vec<JoinHandle<()>>);

#[derive(Clone, Copy, Default)]
struct Adaptive {
    pass: u8,
    next_pass: u8,
}

/// What one thread needs to compress.
struct Bench {
    compressor: zstd::bulk::Compressor<'static>,
    spare: Buffer,
}

impl Bench {
    fn new(level: i32, spare: Buffer) -> Result<Self, MoverError> {
        let compressor = zstd::bulk::Compressor::new(level).map_err(MoverError::Compression)?;
        Ok(Self { compressor, spare })
    }

    fn pack(&mut self, chunk: Chunk, adaptive: &Mutex<HashMap<(ObjectId, u16), Adaptive>>) -> Block {
        let Chunk { place, mut buffer, entries } = chunk;
        let key = (place.object, place.connection);
        let plain_len = place.plain_len as usize;
        let skip = {
            let mut states = adaptive.lock().expect("no thread panics while it holds the lock");
            let state = states.entry(key).or_default();
            let skip = state.pass > 0;
            state.pass = state.pass.saturating_sub(1);
            skip
        };
        let mut compression = Compression::None;
        let mut stored_len = plain_len;
        if !skip && plain_len > 0 {
            let limit = plain_len * WORTH_IT_PERCENT / 100;
            let source = &buffer[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + plain_len];
            // Too little room is how zstd says that the chunk does not shrink enough.
            let packed =
                self.compressor.compress_to_buffer(source, &mut self.spare[BLOCK_HEADER_LEN..BLOCK_HEADER_LEN + limit]);
            let mut states = adaptive.lock().expect("no thread panics while it holds the lock");
            let state = states.entry(key).or_default();
            if let Ok(len) = packed {
                std::mem::swap(&mut buffer, &mut self.spare);
                compression = Compression::Zstd;
                stored_len = len;
                *state = Adaptive::default();
            } else {
                state.next_pass = (state.next_pass * 2).clamp(1, PASS_MAX);
                state.pass = state.next_pass;
            }
        }
        Block { place, buffer, compression, stored_len: stored_len as u32, entries, _held: None }
    }
}

impl Packer {
    /// Starts `workers` threads (none where nothing is compressed) that put blocks into `out`.
    pub(crate) fn start(
        options: PackOptions,
        workers: usize,
        pool: &BlockPool,
        out: PackedTo,
        busy_ns: Arc<AtomicU64>,
    ) -> Result<(Self, PackWorkers), MoverError> {
        let adaptive = Arc::default();
        let mut handles = Vec::new();
        let mut work = None;
        if let PackOptions::Zstd(level) = options {
            let (sender, receiver): (Sender<Chunk>, Receiver<Chunk>) = bounded(0);
            for number in 0..workers {
                let mut bench = Bench::new(level, pool.take())?;
                let (receiver, out) = (receiver.clone(), Arc::clone(&out));
                let (adaptive, busy_ns) = (Arc::clone(&adaptive), Arc::clone(&busy_ns));
                let run = move || {
                    for chunk in receiver {
                        let since = Instant::now();
                        let block = bench.pack(chunk, &adaptive);
                        busy_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
                        if out(block).is_err() {
                            return;
                        }
                    }
                };
                let thread = std::thread::Builder::new().name(format!("pack-{number}"));
                handles.push(thread.spawn(run).map_err(MoverError::Thread)?);
            }
            work = Some(sender);
        }
        let packer = Self { options, work, out, own: None, pool: pool.clone(), adaptive, busy_ns };
        Ok((packer, PackWorkers(handles)))
    }

    /// A packer that compresses nothing.
    pub(crate) fn storing(pool: &BlockPool, out: PackedTo) -> Self {
        let (adaptive, busy_ns) = Default::default();
        Self { options: PackOptions::Store, work: None, out, own: None, pool: pool.clone(), adaptive, busy_ns }
    }

    /// A packer for one more connection.
    pub(crate) fn share(&self) -> Self {
        Self {
            options: self.options,
            work: self.work.clone(),
            out: Arc::clone(&self.out),
            own: None,
            pool: self.pool.clone(),
            adaptive: Arc::clone(&self.adaptive),
            busy_ns: Arc::clone(&self.busy_ns),
        }
    }

    /// Gives a chunk to a free worker, or packs it here, unless it has to wait for a buffer and is to stop.
    pub(crate) fn hand_on(&mut self, mut chunk: Chunk, stop: &AtomicBool) -> Result<(), Stopped> {
        let PackOptions::Zstd(level) = self.options else {
            let (place, buffer, entries) = (chunk.place, chunk.buffer, chunk.entries);
            let stored_len = place.plain_len;
            let block = Block { place, buffer, compression: Compression::None, stored_len, entries, _held: None };
            return (self.out)(block);
        };
        if let Some(work) = &self.work {
            match work.try_send(chunk) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) => chunk = back,
                Err(TrySendError::Disconnected(_)) => return Err(Stopped),
            }
        }
        let adaptive = Arc::clone(&self.adaptive);
        let bench = self.bench(level, stop)?;
        let since = Instant::now();
        let block = bench.pack(chunk, &adaptive);
        self.busy_ns.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
        (self.out)(block)
    }

    /// Hands on a block that was packed elsewhere.
    pub(crate) fn hand_on_packed(&self, block: Block) -> Result<(), Stopped> {
        (self.out)(block)
    }

    /// Whether it has no spare buffer yet, for which handing a chunk on may wait.
    pub(crate) fn wants_spare(&self) -> bool {
        matches!(self.options, PackOptions::Zstd(_)) && self.own.is_none()
    }

    /// Takes one.
    pub(crate) fn take_spare(&mut self, spare: Buffer) -> Result<(), Stopped> {
        if let PackOptions::Zstd(level) = self.options {
            self.own = Some(Bench::new(level, spare).map_err(|_| Stopped)?);
        }
        Ok(())
    }

    fn bench(&mut self, level: i32, stop: &AtomicBool) -> Result<&mut Bench, Stopped> {
        match &mut self.own {
            Some(bench) => Ok(bench),
            none => {
                let spare = self.pool.take_unless(stop).ok_or(Stopped)?;
                Ok(none.insert(Bench::new(level, spare).map_err(|_| Stopped)?))
            }
        }
    }
}

impl PackWorkers {
    pub(crate) fn join(self) {
        for handle in self.0 {
            if let Err(panic) = handle.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
