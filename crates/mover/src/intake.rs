//! The way into a session for one job: with a stop and counters of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use capstan_format::{ObjectId, ObjectRecord};

use crate::blocks_in::BlocksIn;
use crate::control::{Control, Controls};
use crate::meters::Meters;
use crate::pack::{PackOptions, PackedTo, Packer};
use crate::pool::BlockPool;
use crate::throttle::Throttle;
use crate::{Connection, MoverError};

/// What a job hands its objects to. Several jobs may have one of the same session each.
pub struct Intake {
    pub(crate) pool: BlockPool,
    pub(crate) packer: Packer,
    pub(crate) out: PackedTo,
    pub(crate) controls: Controls,
    pub(crate) stop: Arc<AtomicBool>,
    /// Numbers of streams.
    pub(crate) streams: Arc<AtomicU64>,
    /// Block connections of clients that are open, and blocks that they have reserved.
    pub(crate) receivers: Arc<AtomicUsize>,
    pub(crate) reserved: Arc<AtomicUsize>,
    pub(crate) pack: PackOptions,
    /// What is counted for its job alone.
    pub(crate) job: Option<Arc<Meters>>,
    /// How fast its sources may be read.
    pub(crate) throttle: Option<Arc<Throttle>>,
}

impl Intake {
    /// Another way into the same session. Once `stop` is set, the sources of this job are told so at their next chunk;
    /// those of others go on. `job` counts what is written of its objects.
    pub(crate) fn another(&self, stop: Arc<AtomicBool>, job: Arc<Meters>) -> Self {
        Self {
            pool: self.pool.clone(),
            packer: self.packer.share(),
            out: Arc::clone(&self.out),
            controls: self.controls.clone(),
            stop,
            streams: Arc::clone(&self.streams),
            receivers: Arc::clone(&self.receivers),
            reserved: Arc::clone(&self.reserved),
            pack: self.pack,
            job: Some(job),
            throttle: None,
        }
    }

    /// The same way in, through which no more comes than so much.
    #[must_use]
    pub fn throttled(self, throttle: Throttle) -> Self {
        Self { throttle: Some(Arc::new(throttle)), ..self }
    }

    /// Announces an object; its connections come after.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes.
    pub fn begin_object(&self, record: ObjectRecord) -> Result<(), MoverError> {
        self.controls.send(Control::Object { record, job: self.job.clone() })
    }

    /// One connection of an announced object.
    pub fn connection(&self, object: ObjectId, number: u16) -> Connection {
        // Where nobody hears it, the first chunk is told so.
        let _ = self.controls.send(Control::Opened { object });
        Connection::new(
            (self.streams.fetch_add(1, Ordering::Relaxed), object, number),
            self.pool.clone(),
            self.packer.share(),
            Some(self.controls.clone()),
            Arc::clone(&self.stop),
        )
        .throttled(self.throttle.clone())
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
            controls: self.controls.clone(),
            stop: Arc::clone(&self.stop),
            streams: Arc::clone(&self.streams),
            receivers: Arc::clone(&self.receivers),
            reserved: Arc::clone(&self.reserved),
            pack: self.pack,
            throttle: self.throttle.clone(),
        }
    }

    /// Announces that an object is whole once the last blocks of its connections are written. All of them were begun.
    ///
    /// # Errors
    /// [`MoverError::Stopped`] if no copy is left that writes.
    pub fn end_object(&self, object: ObjectId, ended_ns: i64) -> Result<(), MoverError> {
        self.controls.send(Control::ObjectEnd { object, ended_ns: Some(ended_ns) })
    }

    /// Announces that nothing more of an object comes, and that it stays open. All its connections are finished or
    /// dropped.
    pub fn leave_object(&self, object: ObjectId) {
        // Where nobody hears it, nothing more is written.
        let _ = self.controls.send(Control::ObjectEnd { object, ended_ns: None });
    }
}
