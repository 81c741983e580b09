//! A session: connections in, copies out.
//!
//! ```text
//! connection --+                                       +--> copy 1 --> drive
//! connection --+--> pack (threads) --> interleave -----+
//! connection --+                                       +--> copy 2 --> drive
//! ```
//! There may be several of these, side by side, each with drives of its own: the drive sets of the session
//! ([`crate::drive_sets`]).
//!
//! Every arrow is a queue whose blocks come from one pool. The interleaving thread owns the order; each copy owns its
//! volume.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use capstan_format::{ObjectId, SessionRecord};
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::blocks_in::BlocksIn;
use crate::control::{Control, Controls, WholeObject};
use crate::copy::{CheckpointBounds, Command, CopyHost, CopyTask, CopyThread};
use crate::drive_sets::DriveSets;
use crate::entries_room::EntriesRoom;
use crate::intake::{Intake, IntakeHere, IntakeWay, SetIn};
use crate::interleave::{ExtentBounds, Interleave, Pressure, Turn};
use crate::meters::Meters;
use crate::pack::{PackOptions, PackWorkers, PackedTo, Packer};
use crate::pool::BlockPool;
use crate::queue::{Nothing, Receiver, Sender, queue};
use crate::{MountedDrives, MoverError, Stopped};

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
    /// Drives of each copy that are written at the same time, each with a share of the pool.
    pub drive_sets: usize,
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
    workers: Vec<PackWorkers>,
    threads: SetThreads,
    meters: Arc<Meters>,
}

/// What interleaves and writes, set by set.
#[derive(Default)]
struct SetThreads {
    interleavers: Vec<JoinHandle<()>>,
    writers: Vec<CopyThread>,
}

/// A drive set that waits for its threads.
struct NewSet {
    blocks: BlocksIn,
    controls: Receiver<Control>,
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
    /// The drive sets hear of each other until they have ended.
    Here {
        threads: SetThreads,
        _sets: Arc<DriveSets>,
    },
    Elsewhere(Box<dyn ClosingElsewhere>),
}

/// How each writer ended: a copy, where there is one drive set, and else a copy of a drive set.
pub struct SessionOutcome {
    /// One result a host, in their order.
    pub writers: Vec<Result<(), MoverError>>,
}

impl Session {
    /// Starts the threads. Nothing is mounted before an object begins, or has a block to write. Once `stop` is set,
    /// sources are told so at their next chunk; what they have handed on is still written and flushed by
    /// [`Session::finish`]. `drives` are those that the hosts mount volumes in: a host a copy, set by set where there
    /// are several drive sets.
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
        let sets = options.drive_sets.max(1);
        let copies = hosts.len() / sets;
        let stops = std::iter::repeat_n(stop, sets);
        let new: Vec<NewSet> = stops.map(|stop| NewSet::of(options, stop, &meters)).collect();
        let between = Arc::new(DriveSets::new(new.iter().map(|set| set.blocks.controls.clone()).collect(), copies));
        let (mut ins, mut workers, mut threads) = (Vec::new(), Vec::new(), SetThreads::default());
        let mut hosts = hosts.into_iter();
        for (set, NewSet { blocks, controls }) in new.into_iter().enumerate() {
            let mut queues = Vec::new();
            for (copy, host) in hosts.by_ref().take(copies).enumerate() {
                let task = CopyTask {
                    number: options.first_copy + copy as u8,
                    first: copy == 0,
                    first_set: set == 0,
                    writer: set * copies + copy,
                    sets: Arc::downgrade(&between),
                    record: record.clone(),
                    bounds: options.checkpoints,
                    ended_within: options.ended_within,
                    mounts_for_blocks: options.mounts_for_blocks,
                    chunk_len: options.chunk_len,
                    // A copy has as many again that it took from its queue.
                    queue_blocks: (blocks.pool.buffers() / 8).max(1),
                    meters: Arc::clone(&meters),
                    drives: Arc::clone(drives),
                };
                let writer = CopyThread::start(task, host)?;
                queues.push(Some(writer.queue.clone()));
                threads.writers.push(writer);
            }
            let share = options.pack_workers.div_ceil(sets);
            let (packer, own_workers) =
                Packer::start(options.pack, share, &blocks.pool, Arc::clone(&blocks.out), Arc::clone(&meters.pack_ns))?;
            let loop_ = InterleaveLoop {
                interleave: Interleave::new(options.extents),
                pool: blocks.pool.clone(),
                queues,
                objects: HashMap::new(),
                set,
                sets: Arc::downgrade(&between),
                is_one_of_several: sets > 1,
            };
            threads.interleavers.push(spawn("interleave", move || loop_.run(controls))?);
            workers.push(own_workers);
            ins.push(SetIn { blocks, packer });
        }
        let way_in = Arc::new(IntakeHere::new(ins, between));
        let intake = Intake(IntakeWay::Here(Arc::clone(&way_in)));
        Ok(Self(SessionWay::Here(SessionHere { way_in, intake, workers, threads, meters })))
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
                Ok((here.way_in.another(&stop, Arc::clone(&job)), job))
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
        let SessionHere { way_in, intake, workers, threads, meters } = match self.0 {
            SessionWay::Here(here) => here,
            SessionWay::Elsewhere(far) => return ClosingSession(ClosingWay::Elsewhere(far.close())),
        };
        let sets = Arc::clone(&way_in.between);
        let pools: Vec<_> = way_in.sets.iter().map(|set| set.blocks.pool.clone()).collect();
        drop((way_in, intake));
        workers.into_iter().for_each(PackWorkers::join);
        sets.close();
        let waited = pools.iter().map(BlockPool::waited_ns).max().unwrap_or_default();
        meters.source_wait_ns.store(waited, Ordering::Relaxed);
        ClosingSession(ClosingWay::Here { threads, _sets: sets })
    }
}

impl ClosingSession {
    /// Whether all writers have ended.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            ClosingWay::Here { threads: SetThreads { interleavers, writers }, .. } => {
                interleavers.iter().all(JoinHandle::is_finished) && writers.iter().all(CopyThread::is_over)
            }
            ClosingWay::Elsewhere(far) => far.is_over(),
        }
    }

    /// Waits until all is written and every volume is released.
    pub fn join(self) -> SessionOutcome {
        match self.0 {
            ClosingWay::Here { threads: SetThreads { interleavers, writers }, .. } => {
                interleavers.into_iter().for_each(join);
                SessionOutcome { writers: writers.into_iter().map(CopyThread::join).collect() }
            }
            ClosingWay::Elsewhere(far) => far.join(),
        }
    }
}

impl NewSet {
    fn of(options: &SessionOptions, stop: Arc<AtomicBool>, meters: &Arc<Meters>) -> Self {
        let sets = options.drive_sets.max(1);
        let (connections, workers) = (options.connections.div_ceil(sets), options.pack_workers.div_ceil(sets));
        // Each connection may hold a chunk and a spare, each worker a chunk and a spare; the rest is buffer. A set has
        // its share of the connections, since each goes to the one that has fewest.
        let needed = connections * 2 + workers * 2 + 8;
        let share = options.pool_bytes / sets as u64;
        let pool = BlockPool::new(needed.max((share / options.chunk_len as u64) as usize), options.chunk_len);
        let (control, controls) = queue(usize::MAX);
        let (forward, counted) = (control.clone(), Arc::clone(meters));
        let out: PackedTo = Arc::new(move |block: Block| {
            counted.plain_bytes.fetch_add(u64::from(block.place.plain_len), Ordering::Relaxed);
            forward.send(Control::Block(block)).map_err(|_| Stopped)
        });
        let entries = EntriesRoom::beside(pool.buffers() * pool.chunk_len());
        let blocks = BlocksIn {
            pool,
            out,
            controls: Controls(control),
            stop,
            streams: Arc::default(),
            receivers: Arc::default(),
            reserved: Arc::default(),
            entries,
            pack: options.pack,
            throttle: None,
        };
        Self { blocks, controls }
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
    set: usize,
    sets: Weak<DriveSets>,
    /// Whether there are other sets.
    is_one_of_several: bool,
}

/// An object that comes.
#[derive(Default)]
struct ObjectFlow {
    /// Streams of it that have not gone to their ends.
    streams: usize,
    /// That no further stream comes; and when it was whole, if it is.
    end: Option<Option<Arc<WholeObject>>>,
    /// How long its streams are as far as they have gone; kept where other drive sets have some, too.
    parts: HashMap<u16, u64>,
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
                    self.send(|_| Command::Close);
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
            Control::Object { record, known, job } => {
                self.objects.insert(record.object, ObjectFlow { job, ..ObjectFlow::default() });
                self.send(|_| Command::Object(record.clone(), known.clone()));
            }
            Control::Opened { object } => self.objects.entry(object).or_default().streams += 1,
            Control::Cut { stream, object, first_sequence, sequence } => {
                if self.interleave.cut(stream, first_sequence, sequence) {
                    self.stream_is_over(object);
                }
            }
            Control::ObjectEnd { object, whole } => {
                self.objects.entry(object).or_default().end = Some(whole);
                self.end_if_done(object);
            }
            Control::Block(_) | Control::Close => {}
        }
    }

    fn forward(&mut self, turn: Turn) {
        let Turn { block, ends_stream } = turn;
        let object = block.place.object;
        if let Some(flow) = self.objects.get_mut(&object) {
            if self.is_one_of_several {
                flow.parts.insert(block.place.connection, block.place.valid_len);
            }
            if let Some(job) = &flow.job {
                job.plain_bytes.fetch_add(u64::from(block.place.plain_len), Ordering::Relaxed);
                job.stored_bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
            }
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
        if let Some(sets) = self.sets.upgrade() {
            sets.connection_is_over(self.set);
        }
        if let Some(flow) = self.objects.get_mut(&object) {
            flow.streams = flow.streams.saturating_sub(1);
        }
        self.end_if_done(object);
    }

    fn end_if_done(&mut self, object: ObjectId) {
        let is_done = |flow: &ObjectFlow| flow.streams == 0 && flow.end.is_some();
        if !self.objects.get(&object).is_some_and(is_done) {
            return;
        }
        let Some(ObjectFlow { end: Some(whole), parts, .. }) = self.objects.remove(&object) else { return };
        if let Some(sets) = self.sets.upgrade().filter(|_| self.is_one_of_several) {
            sets.has_gone(object, parts);
        }
        self.send(|copy| {
            let whole = whole.clone().filter(|whole| !whole.lacking.contains(&copy));
            Command::ObjectEnd { object, whole }
        });
    }

    fn send(&mut self, command: impl Fn(usize) -> Command) {
        for (copy, queue) in self.queues.iter_mut().enumerate() {
            if queue.as_ref().is_some_and(|sender| sender.send(command(copy)).is_err()) {
                *queue = None;
            }
        }
    }
}
