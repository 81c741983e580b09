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
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use capstan_format::{ObjectId, SessionRecord};
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::blocks_in::BlocksIn;
use crate::control::{Control, Controls};
use crate::copy::{CheckpointBounds, Command, CopyHost, CopyTask, CopyThread};
use crate::intake::{Intake, IntakeHere, IntakeWay};
use crate::interleave::{ExtentBounds, Interleave, Pressure, Turn};
use crate::meters::Meters;
use crate::pack::{PackOptions, PackWorkers, PackedTo, Packer};
use crate::pool::BlockPool;
use crate::queue::{Nothing, Receiver, Sender, queue};
use crate::{MountedDrives, MoverError};

/// After this long without a block the drive is taken to starve, and what is held back goes.
const STARVING: Duration = Duration::from_millis(20);

/// How a session runs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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
    /// How long an object that has ended may wait for a checkpoint while blocks of others come; where none come, it
    /// waits for nothing. Without it, for the next checkpoint that is due.
    pub ended_within: Option<Duration>,
    /// Whether a volume is mounted only when there is a block to write, and not for an object that begins.
    pub mounts_for_blocks: bool,
}

/// A running session, of this process or of a mover elsewhere.
pub struct Session(SessionWay);

enum SessionWay {
    Here(SessionHere),
    Elsewhere(Box<dyn SessionElsewhere>),
}

struct SessionHere {
    way_in: Arc<IntakeHere>,
    /// The same, for the only job.
    intake: Intake,
    workers: PackWorkers,
    interleaver: JoinHandle<()>,
    copies: Vec<CopyThread>,
    meters: Arc<Meters>,
}

/// A session of a mover elsewhere.
pub(crate) trait SessionElsewhere: Send {
    fn intake(&self) -> &Intake;

    fn intake_of(&self, stop: Arc<AtomicBool>) -> Result<(Intake, Arc<Meters>), MoverError>;

    fn meters(&self) -> Arc<Meters>;

    /// Brings all counters up to date.
    fn look(&self);

    fn close(self: Box<Self>) -> Box<dyn ClosingElsewhere>;
}

/// The same while it writes what is left.
pub(crate) trait ClosingElsewhere: Send {
    fn is_over(&self) -> bool;

    fn join(self: Box<Self>) -> SessionOutcome;
}

/// A session that takes nothing more, and writes what is left.
pub struct ClosingSession(ClosingWay);

enum ClosingWay {
    Here { interleaver: JoinHandle<()>, copies: Vec<CopyThread> },
    Elsewhere(Box<dyn ClosingElsewhere>),
}

/// How each copy ended, in order.
pub struct SessionOutcome {
    /// One result a copy.
    pub copies: Vec<Result<(), MoverError>>,
}

impl Session {
    /// Starts the threads. Nothing is mounted before an object begins, or has a block to write. Once `stop` is set,
    /// sources are told so at their next chunk; what they have handed on is still written and flushed by
    /// [`Session::finish`]. `drives` are those that the hosts mount volumes in.
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
                ended_within: options.ended_within,
                mounts_for_blocks: options.mounts_for_blocks,
                chunk_len: options.chunk_len,
                queue_blocks,
                meters: Arc::clone(&meters),
                drives: Arc::clone(drives),
            };
            copies.push(CopyThread::start(task, host)?);
        }
        let (control, controls) = queue(usize::MAX);
        let control = Controls(control);
        let (forward, counted) = (control.clone(), Arc::clone(&meters));
        let packed_to: PackedTo = Arc::new(move |block: Block| {
            counted.plain_bytes.fetch_add(u64::from(block.place.plain_len), Ordering::Relaxed);
            forward.block(block)
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
        let loop_ = InterleaveLoop { interleave, pool: watched, queues, objects: HashMap::new() };
        let interleaver = spawn("interleave", move || loop_.run(controls))?;
        let blocks = BlocksIn {
            pool,
            out: packed_to,
            controls: control,
            stop,
            streams: Arc::default(),
            receivers: Arc::default(),
            reserved: Arc::default(),
            pack: options.pack,
            throttle: None,
        };
        let way_in = Arc::new(IntakeHere::new(blocks, packer));
        let intake = Intake(IntakeWay::Here(Arc::clone(&way_in)));
        Ok(Self(SessionWay::Here(SessionHere { way_in, intake, workers, interleaver, copies, meters })))
    }

    pub(crate) fn elsewhere(session: Box<dyn SessionElsewhere>) -> Self {
        Self(SessionWay::Elsewhere(session))
    }

    /// The way in, for the only job of the session.
    pub fn intake(&self) -> &Intake {
        match &self.0 {
            SessionWay::Here(here) => &here.intake,
            SessionWay::Elsewhere(far) => far.intake(),
        }
    }

    /// The way in for one of several jobs, and what is counted for that alone.
    ///
    /// # Errors
    /// [`MoverError::Elsewhere`] if the mover of the session is gone.
    pub fn intake_of(&self, stop: Arc<AtomicBool>) -> Result<(Intake, Arc<Meters>), MoverError> {
        match &self.0 {
            SessionWay::Here(here) => {
                let job = Arc::new(Meters::of_job(&here.meters));
                Ok((here.way_in.another(stop, Arc::clone(&job)), job))
            }
            SessionWay::Elsewhere(far) => far.intake_of(stop),
        }
    }

    /// The live counters.
    pub fn meters(&self) -> Arc<Meters> {
        match &self.0 {
            SessionWay::Here(here) => Arc::clone(&here.meters),
            SessionWay::Elsewhere(far) => far.meters(),
        }
    }

    /// Brings the counters up to date, where they are counted elsewhere.
    pub fn look(&self) {
        if let SessionWay::Elsewhere(far) = &self.0 {
            far.look();
        }
    }

    /// Writes what is left, closes the session on every volume and says how each copy ended. All connections must be
    /// finished or dropped.
    pub fn finish(self) -> SessionOutcome {
        self.close().join()
    }

    /// Takes nothing more. All connections, and all that [`Session::intake_of`] has given, must be finished or dropped.
    pub fn close(self) -> ClosingSession {
        let SessionHere { way_in, intake, workers, interleaver, copies, meters } = match self.0 {
            SessionWay::Here(here) => here,
            SessionWay::Elsewhere(far) => return ClosingSession(ClosingWay::Elsewhere(far.close())),
        };
        let (control, pool) = (way_in.blocks.controls.clone(), way_in.blocks.pool.clone());
        drop((way_in, intake));
        workers.join();
        // The interleaver may be gone already because every copy has failed.
        let _ = control.send(Control::Close);
        meters.source_wait_ns.store(pool.waited_ns(), Ordering::Relaxed);
        ClosingSession(ClosingWay::Here { interleaver, copies })
    }
}

impl ClosingSession {
    /// Whether all copies have ended.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            ClosingWay::Here { interleaver, copies } => {
                interleaver.is_finished() && copies.iter().all(CopyThread::is_over)
            }
            ClosingWay::Elsewhere(far) => far.is_over(),
        }
    }

    /// Waits until all is written and every volume is released.
    pub fn join(self) -> SessionOutcome {
        match self.0 {
            ClosingWay::Here { interleaver, copies } => {
                join(interleaver);
                SessionOutcome { copies: copies.into_iter().map(CopyThread::join).collect() }
            }
            ClosingWay::Elsewhere(far) => far.join(),
        }
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
    objects: HashMap<ObjectId, ObjectFlow>,
}

/// An object that comes.
#[derive(Default)]
struct ObjectFlow {
    /// Streams of it that have not gone to their ends.
    streams: usize,
    /// That no further stream comes; and when it was whole, if it is.
    end: Option<Option<i64>>,
    /// What is counted for its job.
    job: Option<Arc<Meters>>,
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
                Ok(Control::Close) | Err(Nothing::More) => {
                    while let Some(turn) = self.interleave.next(Pressure::Release) {
                        self.forward(turn);
                    }
                    self.send(|| Command::Close);
                    return;
                }
                Err(Nothing::Yet) => starving = true,
                Ok(of_objects) => self.learn(of_objects),
            }
            // Half of the pool may be held back for longer extents; below that, sources come first.
            while let Some(turn) = {
                let crowded = self.interleave.held() * 2 > self.pool.buffers();
                let pressure = if starving || crowded { Pressure::Release } else { Pressure::None };
                self.interleave.next(pressure)
            } {
                self.forward(turn);
            }
            if self.queues.iter().all(Option::is_none) {
                // Dropping the queue's end tells packers and sources to stop.
                return;
            }
        }
    }

    fn learn(&mut self, control: Control) {
        match control {
            Control::Object { record, job } => {
                self.objects.insert(record.object, ObjectFlow { job, ..ObjectFlow::default() });
                self.send(|| Command::Object(record.clone()));
            }
            Control::Opened { object } => self.objects.entry(object).or_default().streams += 1,
            Control::Cut { stream, object, first_sequence, sequence } => {
                if self.interleave.cut(stream, first_sequence, sequence) {
                    self.stream_is_over(object);
                }
            }
            Control::ObjectEnd { object, ended_ns } => {
                self.objects.entry(object).or_default().end = Some(ended_ns);
                self.end_if_done(object);
            }
            Control::Block(_) | Control::Close => {}
        }
    }

    fn forward(&mut self, turn: Turn) {
        let Turn { block, ends_stream } = turn;
        let object = block.place.object;
        if let Some(job) = self.objects.get(&object).and_then(|flow| flow.job.as_deref()) {
            job.plain_bytes.fetch_add(u64::from(block.place.plain_len), Ordering::Relaxed);
            job.stored_bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
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
        if ends_stream {
            self.stream_is_over(object);
        }
    }

    fn stream_is_over(&mut self, object: ObjectId) {
        if let Some(flow) = self.objects.get_mut(&object) {
            flow.streams = flow.streams.saturating_sub(1);
        }
        self.end_if_done(object);
    }

    fn end_if_done(&mut self, object: ObjectId) {
        let Some(ObjectFlow { streams: 0, end: Some(ended_ns), .. }) = self.objects.get(&object) else { return };
        let ended_ns = *ended_ns;
        self.objects.remove(&object);
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
