//! The way into a session for one job: with a stop and counters of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_format::{ObjectId, ObjectRecord};
use serde::{Deserialize, Serialize};

use crate::blocks_in::BlocksIn;
use crate::drive_sets::DriveSets;
use crate::meters::Meters;
use crate::pack::{PackOptions, Packer};
use crate::throttle::Throttle;
use crate::{Connection, JobToken, MoverError};

/// What a job hands its objects to. Several jobs may have one of the same session each.
pub struct Intake(pub(crate) IntakeWay);

/// Where the session is.
pub(crate) enum IntakeWay {
    Here(Arc<IntakeHere>),
    Elsewhere(Arc<dyn IntakeElsewhere>),
}

/// The way into a session of this process.
pub(crate) struct IntakeHere {
    pub(crate) sets: Vec<SetIn>,
    pub(crate) between: Arc<DriveSets>,
    /// What is counted for its job alone.
    job: Option<Arc<Meters>>,
}

/// The way into one drive set.
pub(crate) struct SetIn {
    pub(crate) blocks: BlocksIn,
    pub(crate) packer: Packer,
}

/// The way into a session of a mover elsewhere.
pub(crate) trait IntakeElsewhere: Send + Sync {
    /// Announces an object, of which others have these connections and so much of their streams.
    fn begin_object(&self, record: ObjectRecord, known: Vec<(u16, u64)>) -> Result<(), MoverError>;

    /// Says that no further stream of an object comes; and when it was whole, if it is.
    fn end_object(&self, object: ObjectId, ended_ns: Option<i64>) -> Result<(), MoverError>;

    /// A connection whose blocks this process sends to the mover.
    fn connection(&self, object: ObjectId, start: StreamStart) -> Connection;

    /// Has the mover expect these streams of an object from a client.
    fn expect(&self, client: &str, object: ObjectId, streams: &[StreamStart]) -> Result<ExpectedStreams, MoverError>;

    /// Ends that; whether all of each stream has come.
    fn have_come(&self, expected: &ExpectedStreams) -> bool;

    fn chunk_len(&self) -> usize;

    fn pack(&self) -> PackOptions;

    /// Set where nothing more is wanted.
    fn stop(&self) -> &AtomicBool;

    fn throttle(&self, throttle: Throttle);

    /// Whether the mover is of a version that knows fragments.
    fn takes_fragments(&self) -> bool;

    /// Why what this process sends does not reach the mover, if it does not.
    fn why_lost(&self) -> Option<String>;
}

/// Where a stream of an object begins in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StreamStart {
    /// The number of the connection in its object.
    pub(crate) connection: u16,
    /// The number of its first block, and where that begins.
    pub(crate) sequence: u32,
    pub(crate) offset: u64,
}

impl StreamStart {
    /// From its beginning.
    pub(crate) fn whole(connection: u16) -> Self {
        Self { connection, sequence: 0, offset: 0 }
    }
}

/// Streams that a mover elsewhere expects, or sends.
#[derive(Debug, Clone)]
pub(crate) struct ExpectedStreams {
    /// Where clients reach it: host and port.
    pub(crate) address: String,
    /// What whoever brings them comes with.
    pub(crate) token: JobToken,
    /// What they are called there, by whoever brings them or takes them.
    pub(crate) reading: u64,
    /// What they are called there, by whoever decides.
    pub(crate) number: u64,
}

impl Intake {
    /// The same way in, through which no more comes than so much.
    #[must_use]
    pub fn throttled(self, throttle: Throttle) -> Self {
        match &self.0 {
            IntakeWay::Here(here) => {
                let throttle = Arc::new(throttle);
                let way = |blocks: BlocksIn| BlocksIn { throttle: Some(Arc::clone(&throttle)), ..blocks };
                Self(IntakeWay::Here(Arc::new(here.with(way, here.job.clone()))))
            }
            IntakeWay::Elsewhere(far) => {
                far.throttle(throttle);
                self
            }
        }
    }

    /// Announces an object; its connections come after.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes; [`MoverError::Elsewhere`] if the mover is gone.
    pub fn begin_object(&self, record: ObjectRecord) -> Result<(), MoverError> {
        self.begin_object_again(record, Vec::new())
    }

    /// Announces an object of which there are volumes already, with these connections and so much of their streams.
    ///
    /// # Errors
    /// As [`Intake::begin_object`].
    pub fn begin_object_again(&self, record: ObjectRecord, known: Vec<(u16, u64)>) -> Result<(), MoverError> {
        match &self.0 {
            IntakeWay::Here(here) => here.between.begin_object(record, known, here.job.clone()),
            IntakeWay::Elsewhere(far) => far.begin_object(record, known),
        }
    }

    /// One connection of an announced object.
    pub fn connection(&self, object: ObjectId, number: u16) -> Connection {
        self.connection_from(object, StreamStart::whole(number))
    }

    /// A connection that goes on at a block's edge: `sequence` is the number of its next block, `offset` where that
    /// begins.
    pub fn connection_at(&self, object: ObjectId, number: u16, sequence: u32, offset: u64) -> Connection {
        self.connection_from(object, StreamStart { connection: number, sequence, offset })
    }

    fn connection_from(&self, object: ObjectId, start: StreamStart) -> Connection {
        match &self.0 {
            IntakeWay::Here(here) => here.connection(object, start),
            IntakeWay::Elsewhere(far) => far.connection(object, start),
        }
    }

    /// Announces that an object is whole once the last blocks of its connections are written. All of them were begun.
    ///
    /// # Errors
    /// As [`Intake::begin_object`].
    pub fn end_object(&self, object: ObjectId, ended_ns: i64) -> Result<(), MoverError> {
        self.end(object, Some(ended_ns))
    }

    /// Announces that nothing more of an object comes, and that it stays open. All its connections are finished or
    /// dropped.
    pub fn leave_object(&self, object: ObjectId) {
        // Where nobody hears it, nothing more is written.
        let _ = self.end(object, None);
    }

    /// Why what is read does not reach the session, if it is the network's fault.
    pub(crate) fn why_lost(&self) -> Option<String> {
        match &self.0 {
            IntakeWay::Here(_) => None,
            IntakeWay::Elsewhere(far) => far.why_lost(),
        }
    }

    pub(crate) fn end(&self, object: ObjectId, ended_ns: Option<i64>) -> Result<(), MoverError> {
        match &self.0 {
            IntakeWay::Here(here) => here.between.end_object(object, ended_ns),
            IntakeWay::Elsewhere(far) => far.end_object(object, ended_ns),
        }
    }
}

impl IntakeHere {
    pub(crate) fn new(sets: Vec<SetIn>, between: Arc<DriveSets>) -> Self {
        Self { sets, between, job: None }
    }

    fn with(&self, way: impl Fn(BlocksIn) -> BlocksIn, job: Option<Arc<Meters>>) -> Self {
        let set = |set: &SetIn| SetIn { blocks: way(set.blocks.clone()), packer: set.packer.share() };
        Self { sets: self.sets.iter().map(set).collect(), between: Arc::clone(&self.between), job }
    }

    /// The drive set for one more connection of an object, which has begun there.
    pub(crate) fn set_for(&self, object: ObjectId) -> &SetIn {
        &self.sets[self.between.set_for(object)]
    }

    /// How blocks of the session are packed, and where the job stops.
    pub(crate) fn blocks(&self) -> &BlocksIn {
        &self.sets[0].blocks
    }

    /// Another way into the same session. Once `stop` is set, the sources of this job are told so at their next chunk;
    /// those of others go on. `job` counts what is written of its objects.
    pub(crate) fn another(&self, stop: &Arc<AtomicBool>, job: Arc<Meters>) -> Intake {
        let way = |blocks: BlocksIn| BlocksIn { stop: Arc::clone(stop), throttle: None, ..blocks };
        Intake(IntakeWay::Here(Arc::new(self.with(way, Some(job)))))
    }

    fn connection(&self, object: ObjectId, start: StreamStart) -> Connection {
        let SetIn { blocks, packer } = self.set_for(object);
        Connection::new(
            (blocks.open_stream(object), object, start.connection),
            blocks.pool.clone(),
            packer.share(),
            Some(blocks.controls.clone()),
            Arc::clone(&blocks.stop),
        )
        .starting_at(start.sequence, start.offset)
        .throttled(blocks.throttle.clone())
    }
}
