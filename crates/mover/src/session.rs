//! A session: connections in, copies out.
//!
//! ```text
//! connection --+                                       +--> copy 1 --> drive
//! connection --+--> pack (threads) --> interleave -----+
//! connection --+                                       +--> copy 2 --> drive
//! ```
//! Every arrow is a queue whose blocks come from one pool. The interleaving thread owns the order; each copy owns its
//! volume.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use capstan_format::{ObjectId, ObjectRecord, SessionRecord};

use crate::block::Block;
use crate::blocks_in::BlocksIn;
use crate::copy::{CheckpointBounds, Command, CopyHost, CopyTask, CopyThread};
use crate::interleave::{ExtentBounds, Interleave, Pressure};
use crate::meters::Meters;
use crate::pack::{PackOptions, PackWorkers, PackedTo, Packer};
use crate::pool::BlockPool;
use crate::queue::{Nothing, Receiver, Sender, queue};
use crate::{Connection, MountedDrives, MoverError, Stopped};

/// After this long without a block the drive is taken to starve, and what is held back goes.
const STARVING: Duration = Duration::from_millis(20);

/// How a session runs.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// Payload bytes of a block.
    pub chunk_len: usize,
    /// Memory of the block pool.
    pub pool_bytes: u64,
    /// Compression.
    pub pack: PackOptions,
    /// Threads that compress; connections help when all are busy.
    pub pack_workers: usize,
    /// Number of the first copy; the others follow.
    pub first_copy: u8,
    /// Most connections that are open at a time.
    pub connections: usize,
    /// Lengths of extents.
    pub extents: ExtentBounds,
    /// When checkpoints are due.
    pub checkpoints: CheckpointBounds,
}

enum Control {
    Block(Block),
    Object(ObjectRecord),
    ObjectEnd { object: ObjectId, connections: usize, ended_ns: i64 },
    Close,
}

/// A running session.
pub struct Session {
    pool: BlockPool,
    packer: Packer,
    stop: Arc<AtomicBool>,
    streams: Arc<AtomicU64>,
    out: PackedTo,
    connections: usize,
    pack: PackOptions,
    workers: PackWorkers,
    control: Sender<Control>,
    interleaver: JoinHandle<()>,
    copies: Vec<CopyThread>,
    meters: Arc<Meters>,
}

/// How each copy ended, in order.
pub struct SessionOutcome {
    /// One result a copy.
    pub copies: Vec<Result<(), MoverError>>,
}

impl Session {
    /// Starts the threads. Nothing is mounted before the first object begins. Once `stop` is set, sources are told so
    /// at their next chunk; what they have handed on is still written and flushed by [`Session::finish`]. `drives` are
    /// those that the hosts mount volumes in.
    ///
    /// # Errors
    /// A thread cannot be started, or the compressor cannot be set up.
    pub fn start(
        options: &SessionOptions,
        record: &SessionRecord,
        drives: &Arc<MountedDrives>,
        hosts: Vec<Box<dyn CopyHost>>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, MoverError> {
        let meters = Arc::new(Meters::default());
        // Each connection may hold a chunk and a spare, each worker a chunk and a spare; the rest is buffer.
        let needed = options.connections * 2 + options.pack_workers * 2 + 8;
        let buffers = needed.max((options.pool_bytes / options.chunk_len as u64) as usize);
        let pool = BlockPool::new(buffers, options.chunk_len);
        // A copy has as many again that it took from its queue.
        let queue_blocks = (buffers / 8).max(1);
        let mut copies = Vec::new();
        for (number, host) in (options.first_copy..).zip(hosts) {
            let task = CopyTask {
                number,
                first: number == options.first_copy,
                record: record.clone(),
                bounds: options.checkpoints,
                chunk_len: options.chunk_len,
                queue_blocks,
                meters: Arc::clone(&meters),
                drives: Arc::clone(drives),
            };
            copies.push(CopyThread::start(task, host)?);
        }
        let (control, controls) = queue(usize::MAX);
        // Blocks and controls share one queue, so that an object's beginning always comes before its blocks.
        let (forward, counted) = (control.clone(), Arc::clone(&meters));
        let packed_to: PackedTo = Arc::new(move |block: Block| {
            counted.plain_bytes.fetch_add(u64::from(block.place.plain_len), Ordering::Relaxed);
            forward.send(Control::Block(block)).map_err(|_| Stopped)
        });
        let (packer, workers) = Packer::start(
            options.pack,
            options.pack_workers,
            &pool,
            Arc::clone(&packed_to),
            Arc::clone(&meters.pack_ns),
        )?;
        let queues = copies.iter().map(|copy| Some(copy.queue.clone())).collect();
        let (interleave, watched) = (Interleave::new(options.extents), pool.clone());
        let loop_ = InterleaveLoop { interleave, pool: watched, queues, ending: HashMap::new(), lasts: HashMap::new() };
        let interleaver = spawn("interleave", move || loop_.run(controls))?;
        let (streams, connections, pack) = (Arc::default(), options.connections, options.pack);
        Ok(Self {
            pool,
            packer,
            stop,
            streams,
            out: packed_to,
            connections,
            pack,
            workers,
            control,
            interleaver,
            copies,
            meters,
        })
    }

    /// Announces an object; its connections come after.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes.
    pub fn begin_object(&self, record: ObjectRecord) -> Result<(), MoverError> {
        self.control.send(Control::Object(record)).map_err(|_| MoverError::Stopped)
    }

    /// One connection of an announced object.
    pub fn connection(&self, object: ObjectId, number: u16) -> Connection {
        Connection::new(
            self.streams.fetch_add(1, Ordering::Relaxed),
            object,
            number,
            self.pool.clone(),
            self.packer.share(),
            Arc::clone(&self.stop),
        )
    }

    /// A connection that goes on at a block's edge: `sequence` is the number of its next block, `offset` where that
    /// begins.
    pub fn connection_at(&self, object: ObjectId, number: u16, sequence: u32, offset: u64) -> Connection {
        self.connection(object, number).starting_at(sequence, offset)
    }

    /// The way in for blocks that were packed elsewhere.
    pub(crate) fn blocks_in(&self) -> BlocksIn {
        BlocksIn {
            pool: self.pool.clone(),
            out: Arc::clone(&self.out),
            stop: Arc::clone(&self.stop),
            streams: Arc::clone(&self.streams),
            connections: self.connections,
            pack: self.pack,
        }
    }

    /// Announces that an object is whole once the last blocks of its `connections` connections are written.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes.
    pub fn end_object(&self, object: ObjectId, connections: usize, ended_ns: i64) -> Result<(), MoverError> {
        self.control.send(Control::ObjectEnd { object, connections, ended_ns }).map_err(|_| MoverError::Stopped)
    }

    /// The live counters.
    pub fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.meters)
    }

    /// Writes what is left, closes the session on every volume and says how each copy ended. All connections must be
    /// finished or dropped.
    pub fn finish(self) -> SessionOutcome {
        let Self { pool, packer, out, workers, control, interleaver, copies, meters, .. } = self;
        drop((packer, out));
        workers.join();
        // The interleaver may be gone already because every copy has failed.
        let _ = control.send(Control::Close);
        join(interleaver);
        meters.source_wait_ns.store(pool.waited_ns(), Ordering::Relaxed);
        SessionOutcome { copies: copies.into_iter().map(CopyThread::join).collect() }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, MoverError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(MoverError::Thread)
}

fn join(handle: JoinHandle<()>) {
    if let Err(panic) = handle.join() {
        std::panic::resume_unwind(panic);
    }
}

struct InterleaveLoop {
    interleave: Interleave,
    pool: BlockPool,
    /// `None` once a copy has failed.
    queues: Vec<Option<Sender<Command>>>,
    /// Objects whose sources are done: connections and time of the end.
    ending: HashMap<ObjectId, (usize, i64)>,
    /// Last blocks seen of each object.
    lasts: HashMap<ObjectId, usize>,
}

impl InterleaveLoop {
    fn run(mut self, mut controls: Receiver<Control>) {
        loop {
            let mut starving = false;
            // Where nothing is held back nobody starves for it.
            let control = match self.interleave.held() {
                0 => controls.next().ok_or(Nothing::More),
                _ => controls.next_within(STARVING),
            };
            match control {
                Ok(Control::Block(block)) => self.interleave.offer(block),
                Ok(Control::Object(record)) => self.send(|| Command::Object(record.clone())),
                Ok(Control::ObjectEnd { object, connections, ended_ns }) => {
                    self.ending.insert(object, (connections, ended_ns));
                    self.end_if_done(object);
                }
                Ok(Control::Close) | Err(Nothing::More) => {
                    while let Some(block) = self.interleave.next(Pressure::Release) {
                        self.forward(block);
                    }
                    self.send(|| Command::Close);
                    return;
                }
                Err(Nothing::Yet) => starving = true,
            }
            // Half of the pool may be held back for longer extents; below that, sources come first.
            while let Some(block) = {
                let crowded = self.interleave.held() * 2 > self.pool.buffers();
                let pressure = if starving || crowded { Pressure::Release } else { Pressure::None };
                self.interleave.next(pressure)
            } {
                self.forward(block);
            }
            if self.queues.iter().all(Option::is_none) {
                // Dropping the queue's end tells packers and sources to stop.
                return;
            }
        }
    }

    fn forward(&mut self, block: Block) {
        let (object, closes) = (block.place.object, block.place.closes);
        let block = Arc::new(block);
        // The last copy gets the loop's own reference, so that a single copy is the only holder.
        let mut block = Some(block);
        let alive = self.queues.iter().filter(|queue| queue.is_some()).count();
        let mut sent = 0;
        for queue in &mut self.queues {
            let Some(sender) = queue else { continue };
            sent += 1;
            let shared = if sent == alive { block.take() } else { block.clone() };
            let Some(shared) = shared else { continue };
            if sender.send(Command::Block(shared)).is_err() {
                *queue = None;
            }
        }
        if closes {
            *self.lasts.entry(object).or_default() += 1;
            self.end_if_done(object);
        }
    }

    fn end_if_done(&mut self, object: ObjectId) {
        let Some(&(connections, ended_ns)) = self.ending.get(&object) else { return };
        if self.lasts.get(&object).copied().unwrap_or_default() < connections {
            return;
        }
        self.ending.remove(&object);
        self.lasts.remove(&object);
        self.send(|| Command::ObjectEnd { object, ended_ns });
    }

    fn send(&mut self, command: impl Fn() -> Command) {
        for queue in &mut self.queues {
            if queue.as_ref().is_some_and(|sender| sender.send(command()).is_err()) {
                *queue = None;
            }
        }
    }
}
