//! One copy of a session: a thread with its own queue, drive after drive until the session ends.
//!
//! Twin copies are written independently: each has its queue, its volumes, its checkpoints. A copy that fails is
//! reported and the others go on; what it lacks is found in the catalog and copied later.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use capstan_format::{ObjectId, ObjectRecord, ObjectState, SessionRecord, Volser};
use capstan_tape::{DriveError, with_causes};
use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::control::WholeObject;
use crate::drive_health::DriveHealth;
use crate::drive_sets::DriveSets;
use crate::meters::Meters;
use crate::queue::{Nothing, Receiver, Sender, queue};
use crate::volume::FIRST_SESSION_LBN;
use crate::writer::{Commit, Mounted, Taken, VolumeWriter};
use crate::{MountId, MountedDrives, MoverError};

/// Commands handled per reading of the clock. A checkpoint that is due by time comes so many blocks later at most.
const COMMANDS_UNASKED: u32 = 8;

/// How seldom a drive is asked in the middle of a session how it is: a minute, in nanoseconds. It takes five commands
/// of a millisecond each, for which the tape waits behind a flush that has stopped it anyway.
const HEALTH_EVERY_NS: i64 = 60 * 1_000_000_000;

/// When a checkpoint is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointBounds {
    /// After this many bytes on the volume.
    pub bytes: u64,
    /// After this long, if anything was written.
    pub every: Duration,
    /// After this many bytes of file entries and extents, so that a checkpoint fits behind early warning.
    pub entry_bytes: usize,
}

/// How a volume was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VolumeEnd {
    /// Its last session is closed and there is room for more.
    Closed,
    /// There is no room: its last session is closed at early warning, or ends at its last checkpoint.
    Full,
    /// Its session failed; it is readable up to its last checkpoint.
    Failed,
    /// The same, because a block could not be written: the medium is at fault, or the drive.
    WriteFailed,
}

impl VolumeEnd {
    /// How a volume is left behind an error.
    fn behind(error: &MoverError) -> Self {
        match error {
            MoverError::Drive { source, .. } => match source {
                // Not even a checkpoint fits any more: the next run would come to the same place with the same blocks.
                // The same of a volume that takes no further key.
                DriveError::EndOfMedium { .. } | DriveError::KeyListFull { .. } => Self::Full,
                source if source.is_failed_write() => Self::WriteFailed,
                _ => Self::Failed,
            },
            _ => Self::Failed,
        }
    }
}

/// Why whoever runs the mover could not do its part.
pub type HostError = Box<dyn std::error::Error + Send + Sync>;

/// What a copy asks of whoever decides, and what it reports. All of it is data: whoever decides may be another process
/// ([`crate::devices::remote`]). Called from the copy's thread; a call may take as long as an operator takes.
pub trait CopyHost: Send {
    /// Mounts the next volume to append to.
    ///
    /// # Errors
    /// There is none, or it cannot be made ready; the copy ends.
    fn mount(&mut self) -> Result<Mounted, HostError>;

    /// Records what a flush has made safe. Only after this returns may anything of it be reported as protected.
    ///
    /// # Errors
    /// It is not recorded; the copy ends, and nothing behind the last checkpoint that was recorded is protected.
    fn committed(&mut self, commit: &Commit) -> Result<(), HostError>;

    /// Takes note of how drive and volume are in the middle of a session. The tape stands still while this takes: keep
    /// it short.
    fn health(&mut self, _volser: &Volser, _health: &DriveHealth) {}

    /// Ends a mount whose drive the copy has given back.
    fn release(&mut self, mount: MountId, volser: &Volser, end: VolumeEnd);

    /// Nothing more of these objects comes in this session, and all that came of them is recorded.
    fn settled(&mut self, _objects: &[ObjectId]) {}

    /// The copy has ended: well, or for this reason. It asks nothing more.
    fn ended(&mut self, _failure: Option<&str>) {}

    /// The time, nanoseconds since 1970.
    fn now_ns(&self) -> i64;
}

pub(crate) enum Command {
    Block(Arc<Block>),
    /// An object begins, of which these connections stand on volumes already, with so much of their streams.
    Object(ObjectRecord, Vec<(u16, u64)>),
    /// All blocks of the object were sent, and it is whole, or not.
    ObjectEnd {
        object: ObjectId,
        whole: Option<Arc<WholeObject>>,
    },
    Close,
}

pub(crate) struct CopyThread {
    pub(crate) queue: Sender<Command>,
    handle: JoinHandle<Result<(), MoverError>>,
}

/// What a copy is started with.
pub(crate) struct CopyTask {
    /// Its number, from 1.
    pub(crate) number: u8,
    /// Whether it is the one that the session's counters tell of.
    pub(crate) first: bool,
    /// Whether it is of the first drive set, whose drive's time is told while it runs.
    pub(crate) first_set: bool,
    /// Its number among the writers of all drive sets, from 0; and these.
    pub(crate) writer: usize,
    pub(crate) sets: Weak<DriveSets>,
    pub(crate) record: SessionRecord,
    pub(crate) bounds: CheckpointBounds,
    pub(crate) ended_within: Option<Duration>,
    pub(crate) mounts_for_blocks: bool,
    pub(crate) chunk_len: usize,
    pub(crate) queue_blocks: usize,
    pub(crate) meters: Arc<Meters>,
    pub(crate) drives: Arc<MountedDrives>,
}

impl CopyThread {
    pub(crate) fn start(task: CopyTask, host: Box<dyn CopyHost>) -> Result<Self, MoverError> {
        let (queue, commands) = queue(task.queue_blocks);
        let number = task.number;
        let copy = Copy {
            task,
            host,
            objects: HashMap::new(),
            streams: HashMap::new(),
            ended: Vec::new(),
            end_due: None,
            writer: None,
            checkpointed: Instant::now(),
            asked_ns: 0,
            unflushed: 0,
            busy: Duration::ZERO,
            idle: Duration::ZERO,
        };
        let thread = std::thread::Builder::new().name(format!("copy-{number}"));
        let handle = thread.spawn(move || copy.run(commands)).map_err(MoverError::Thread)?;
        Ok(Self { queue, handle })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.handle.is_finished()
    }

    pub(crate) fn join(self) -> Result<(), MoverError> {
        drop(self.queue);
        self.handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Tells the drive sets that a writer has ended, when it is dropped.
struct TellsSets {
    sets: Weak<DriveSets>,
    writer: usize,
    has_failed: bool,
}

impl Drop for TellsSets {
    fn drop(&mut self) {
        if let Some(sets) = self.sets.upgrade() {
            sets.ended(self.writer, self.has_failed);
        }
    }
}

struct Copy {
    task: CopyTask,
    host: Box<dyn CopyHost>,
    objects: HashMap<ObjectId, ObjectRecord>,
    /// How long the streams of each object are, on whatever volume: the one that says that it is whole names them all.
    streams: HashMap<ObjectId, HashMap<u16, u64>>,
    /// Objects that have ended since the last checkpoint, whole or not.
    ended: Vec<ObjectId>,
    /// When they are to be recorded.
    end_due: Option<Instant>,
    writer: Option<VolumeWriter>,
    checkpointed: Instant,
    /// When the drive was asked last how it is, nanoseconds since 1970.
    asked_ns: i64,
    /// Bytes that are counted as stored and not as flushed.
    unflushed: u64,
    busy: Duration,
    idle: Duration,
}

impl Copy {
    fn run(mut self, commands: Receiver<Command>) -> Result<(), MoverError> {
        // However it ends, by a panic too, the other drive sets hear of it.
        let mut tells = TellsSets { sets: self.task.sets.clone(), writer: self.task.writer, has_failed: true };
        let outcome = self.serve(commands);
        if let Some(writer) = self.writer.take() {
            let volser = writer.volser().clone();
            let end = match &outcome {
                // What is left behind early warning is for closing a session, and was used for that.
                Ok(()) if writer.is_full() => VolumeEnd::Full,
                Ok(()) => VolumeEnd::Closed,
                Err(error) => VolumeEnd::behind(error),
            };
            self.release(writer, &volser, end);
        }
        let failure = outcome.as_ref().err().map(|error| with_causes(error));
        self.host.ended(failure.as_deref());
        tells.has_failed = failure.is_some();
        outcome
    }

    /// All that came of these objects is recorded.
    fn settled(&mut self, objects: &[ObjectId]) {
        self.host.settled(objects);
        if let Some(sets) = self.task.sets.upgrade() {
            sets.settled(self.task.writer, objects);
        }
    }

    /// Gives the drive back, and ends its mount.
    fn release(&mut self, writer: VolumeWriter, volser: &Volser, end: VolumeEnd) {
        let (mount, drive) = writer.into_drive();
        self.task.drives.give_back(mount, drive);
        self.host.release(mount, volser, end);
    }

    fn serve(&mut self, mut commands: Receiver<Command>) -> Result<(), MoverError> {
        let meters = Arc::clone(&self.task.meters);
        // The clock is asked when there is nothing to do, and once for some blocks: in a guest that asks the kernel
        // each time, it is a good part of what a block takes. What is under way counts meanwhile.
        let mut now = Instant::now();
        let mut unasked = 0;
        loop {
            let command = match commands.try_next() {
                Some(command) => Some(command),
                // The tape would stand still anyway: what has ended is recorded.
                None if self.end_due.is_some() => {
                    self.end_due = Some(now);
                    None
                }
                None => {
                    let waits = self.at_work(now, unasked);
                    let waited = commands.next_within(self.task.bounds.every);
                    now = Instant::now();
                    unasked = 0;
                    self.idle += now - waits;
                    meters.drive_idle_ns.fetch_max(self.idle.as_nanos() as u64, Ordering::Relaxed);
                    match waited {
                        Ok(command) => Some(command),
                        Err(Nothing::Yet) => None,
                        // The session was dropped rather than finished: what is flushed stays, the rest was never
                        // reported.
                        Err(Nothing::More) => return Err(MoverError::Stopped),
                    }
                }
            };
            if self.task.first && self.task.first_set && unasked == 0 {
                meters.at_drive.begin(now);
            }
            unasked += 1;
            let applied = command.map_or(Ok(false), |command| self.apply(command));
            let done = applied.and_then(|done| self.checkpoint_if_due(now).map(|()| done));
            if unasked == COMMANDS_UNASKED || !matches!(done, Ok(false)) {
                now = self.at_work(now, unasked);
                unasked = 0;
            }
            if done? {
                return Ok(());
            }
        }
    }

    /// Counts what the commands since then took; the time.
    fn at_work(&mut self, since: Instant, commands: u32) -> Instant {
        if commands == 0 {
            return since;
        }
        let meters = &self.task.meters;
        let now = Instant::now();
        if self.task.first && self.task.first_set {
            meters.at_drive.end(since, now);
        }
        self.busy += now - since;
        meters.drive_busy_ns.fetch_max(self.busy.as_nanos() as u64, Ordering::Relaxed);
        now
    }

    fn apply(&mut self, command: Command) -> Result<bool, MoverError> {
        match command {
            Command::Block(block) => self.write(block)?,
            Command::Object(mut record, known) => {
                record.copy = self.task.number;
                let object = record.object;
                self.streams.insert(object, known.into_iter().collect());
                self.objects.insert(object, record);
                if self.writer.is_some() || !self.task.mounts_for_blocks {
                    self.writer()?.touch(object);
                }
            }
            Command::ObjectEnd { object, whole } => self.end_object(object, whole.as_deref())?,
            Command::Close => {
                if self.writer.is_some() {
                    self.checkpoint(true)?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end_object(&mut self, object: ObjectId, whole: Option<&WholeObject>) -> Result<(), MoverError> {
        let streams = self.streams.remove(&object).unwrap_or_default();
        match whole {
            Some(WholeObject { ended_ns, elsewhere, .. }) => {
                if let Some(record) = self.objects.get_mut(&object) {
                    record.state = ObjectState::Complete;
                    record.ended_ns = *ended_ns;
                }
                let writer = self.writer()?;
                writer.touch(object);
                writer.note_streams(object, streams.into_iter().chain(elsewhere.iter().copied()));
            }
            // Nothing of it came here; or what came is recorded with the volume that was left.
            None if self.writer.is_none() || !self.objects.contains_key(&object) => {
                self.objects.remove(&object);
                self.settled(&[object]);
                return Ok(());
            }
            None => self.writer()?.touch(object),
        }
        self.ended.push(object);
        if let (None, Some(within)) = (self.end_due, self.task.ended_within) {
            self.end_due = Instant::now().checked_add(within);
        }
        Ok(())
    }

    fn writer(&mut self) -> Result<&mut VolumeWriter, MoverError> {
        if self.writer.is_none() {
            let mounted = self.host.mount().map_err(MoverError::Host)?;
            let (record, chunk_len) = (self.task.record.clone(), self.task.chunk_len);
            let drive = self.task.drives.take(mounted.mount)?;
            self.asked_ns = self.host.now_ns();
            let writer = self.writer.insert(VolumeWriter::new(mounted, drive, record, chunk_len));
            // Whatever goes wrong from here on, the drive is given back.
            writer.begin()?;
            // A volume that a session goes on to must name the objects it holds.
            self.objects
                .values()
                .filter(|record| record.state == ObjectState::Open)
                .for_each(|record| writer.touch(record.object));
            self.checkpointed = Instant::now();
        }
        self.writer.as_mut().ok_or(MoverError::Stopped)
    }

    fn write(&mut self, block: Arc<Block>) -> Result<(), MoverError> {
        let len = block.len() as u64;
        if let Some(streams) = self.streams.get_mut(&block.place.object) {
            // A range in the middle of a stream that other volumes have, too, says less than is known.
            let valid_len = streams.entry(block.place.connection).or_default();
            *valid_len = block.place.valid_len.max(*valid_len);
        }
        if let Taken::NoRoom(block) = self.writer()?.write(block)? {
            // Early warning was not seen: the session is closed if there is room for that, and the block goes on.
            self.next_volume()?;
            if let Taken::NoRoom(_) = self.writer()?.write(block)? {
                let volser = self.writer()?.volser().clone();
                let reason = "it has no room for a single block: give the pool larger volumes".to_owned();
                return Err(MoverError::Misplaced { volser, lbn: FIRST_SESSION_LBN, reason });
            }
        }
        if self.task.first {
            self.task.meters.stored_bytes.fetch_add(len, Ordering::Relaxed);
            self.unflushed += len;
        }
        if self.writer.as_ref().is_some_and(VolumeWriter::is_full) {
            self.next_volume()?;
        }
        Ok(())
    }

    fn next_volume(&mut self) -> Result<(), MoverError> {
        self.checkpoint(true)?;
        if let Some(writer) = self.writer.take() {
            let volser = writer.volser().clone();
            self.release(writer, &volser, VolumeEnd::Full);
        }
        Ok(())
    }

    fn checkpoint_if_due(&mut self, now: Instant) -> Result<(), MoverError> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let due = writer.bytes_since() >= self.task.bounds.bytes
            || writer.part_bytes() >= self.task.bounds.entry_bytes
            || self.end_due.is_some_and(|due| now >= due)
            || now.duration_since(self.checkpointed) >= self.task.bounds.every && writer.has_news();
        if due {
            self.checkpoint(false)?;
            if self.writer.as_ref().is_some_and(VolumeWriter::is_full) {
                self.next_volume()?;
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, closed: bool) -> Result<(), MoverError> {
        let now_ns = self.host.now_ns();
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let commit = writer.checkpoint(&self.objects, closed, now_ns)?;
        self.host.committed(&commit).map_err(MoverError::Host)?;
        if !closed && writer.tells_health() {
            let now_ns = self.host.now_ns();
            // A clock that was set back is no reason not to ask for hours.
            if !(self.asked_ns..self.asked_ns.saturating_add(HEALTH_EVERY_NS)).contains(&now_ns) {
                self.asked_ns = now_ns;
                let volser = writer.volser().clone();
                writer.health(|health| self.host.health(&volser, health))?;
            }
        }
        let flushed = std::mem::take(&mut self.unflushed);
        self.task.meters.flushed_bytes.fetch_add(flushed, Ordering::Relaxed);
        let ended = std::mem::take(&mut self.ended);
        self.end_due = None;
        self.objects.retain(|object, record| record.state == ObjectState::Open && !ended.contains(object));
        if !ended.is_empty() {
            self.settled(&ended);
        }
        self.checkpointed = Instant::now();
        Ok(())
    }
}
