//! The way into a session for one job: with a stop and counters of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_format::{ObjectId, ObjectRecord};

use crate::blocks_in::BlocksIn;
use crate::control::Control;
use crate::meters::Meters;
use crate::pack::Packer;
use crate::throttle::Throttle;
use crate::{Connection, MoverError};

/// What a job hands its objects to. Several jobs may have one of the same session each.
pub struct Intake {
    pub(crate) blocks: BlocksIn,
    pub(crate) packer: Packer,
    /// What is counted for its job alone.
    pub(crate) job: Option<Arc<Meters>>,
}

impl Intake {
    /// Another way into the same session. Once `stop` is set, the sources of this job are told so at their next chunk;
    /// those of others go on. `job` counts what is written of its objects.
    pub(crate) fn another(&self, stop: Arc<AtomicBool>, job: Arc<Meters>) -> Self {
        let blocks = BlocksIn { stop, throttle: None, ..self.blocks.clone() };
        Self { blocks, packer: self.packer.share(), job: Some(job) }
    }

    /// The same way in, through which no more comes than so much.
    #[must_use]
    pub fn throttled(mut self, throttle: Throttle) -> Self {
        self.blocks.throttle = Some(Arc::new(throttle));
        self
    }

    /// Announces an object; its connections come after.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes.
    pub fn begin_object(&self, record: ObjectRecord) -> Result<(), MoverError> {
        self.blocks.controls.send(Control::Object { record, job: self.job.clone() })
    }

    /// One connection of an announced object.
    pub fn connection(&self, object: ObjectId, number: u16) -> Connection {
        let blocks = &self.blocks;
        Connection::new(
            (blocks.open_stream(object), object, number),
            blocks.pool.clone(),
            self.packer.share(),
            Some(blocks.controls.clone()),
            Arc::clone(&blocks.stop),
        )
        .throttled(blocks.throttle.clone())
    }

    /// A connection that goes on at a block's edge: `sequence` is the number of its next block, `offset` where that
    /// begins.
    pub fn connection_at(&self, object: ObjectId, number: u16, sequence: u32, offset: u64) -> Connection {
        self.connection(object, number).starting_at(sequence, offset)
    }

    /// The way in for blocks that were packed elsewhere.
    pub(crate) fn blocks_in(&self) -> BlocksIn {
        self.blocks.clone()
    }

    /// Announces that an object is whole once the last blocks of its connections are written. All of them were begun.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes.
    pub fn end_object(&self, object: ObjectId, ended_ns: i64) -> Result<(), MoverError> {
        self.blocks.controls.send(Control::ObjectEnd { object, ended_ns: Some(ended_ns) })
    }

    /// Announces that nothing more of an object comes, and that it stays open. All its connections are finished or
    /// dropped.
    pub fn leave_object(&self, object: ObjectId) {
        // Where nobody hears it, nothing more is written.
        let _ = self.blocks.controls.send(Control::ObjectEnd { object, ended_ns: None });
    }
}
