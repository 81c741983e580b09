//! What happens while the director works, for whoever shows it.

use std::sync::Arc;

use capstan_catalog::ClockReading;
use capstan_format::{ObjectId, Volser};
use capstan_mover::{ProblemKind, ReadOrder};

/// The latest complete object of a source, on which a backup does not stand because it cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUnavailable {
    /// The object.
    pub object: ObjectId,
    /// Why it cannot be restored.
    pub reason: String,
}

impl BaseUnavailable {
    /// What became of the backup: `base` is what it stands on instead.
    pub fn message(&self, base: Option<ObjectId>) -> String {
        let instead = match base {
            None => "this backup is a full one".to_owned(),
            Some(base) => format!("this incremental is based on object {base}"),
        };
        format!("object {} cannot be restored: {}. It cannot be a base, so {instead}", self.object, self.reason)
    }
}

/// Something an operator may want to see.
#[derive(Debug, Clone)]
pub enum Event {
    /// A volume is in a drive.
    Mounted {
        /// The volume.
        volser: Volser,
        /// The drive.
        drive: String,
    },
    /// A volume left its drive.
    Dismounted {
        /// The volume.
        volser: Volser,
        /// The drive.
        drive: String,
    },
    /// Parts of a volume will be read, in this order.
    Ordered {
        /// Which.
        order: ReadOrder,
    },
    /// A volume was labelled, and what it held before is gone.
    Labelled {
        /// The volume.
        volser: Volser,
        /// Its pool.
        pool: String,
        /// How many lives it had before.
        recycled: u32,
    },
    /// A virtual cartridge was made.
    Created {
        /// The volume.
        volser: Volser,
    },
    /// A volume is full and the session goes on with another.
    Full {
        /// The volume.
        volser: Volser,
    },
    /// An object was begun, or taken up again where an earlier run was interrupted.
    Begun {
        /// The object.
        object: ObjectId,
        /// Its source.
        source: Vec<u8>,
        /// Whether an earlier run had begun it.
        resumed: bool,
    },
    /// A source is not there, or cannot be looked at; the others are backed up.
    SourceMissing {
        /// The source.
        source: Vec<u8>,
        /// Why.
        reason: String,
    },
    /// A path was not read as it should have been. Every one is told, as it is met.
    PathProblem {
        /// The object.
        object: ObjectId,
        /// The path as the object has it.
        path: Vec<u8>,
        /// What happened to it.
        kind: ProblemKind,
    },
    /// A backup does not stand on the latest complete object of its source.
    BaseUnavailable {
        /// The source.
        source: Vec<u8>,
        /// That object, and why it cannot be restored.
        gone: BaseUnavailable,
        /// What it stands on instead; `None` for a full one.
        base: Option<ObjectId>,
    },
    /// Everything of the session up to here is flushed and in the catalog, on this copy.
    Checkpoint {
        /// Objects it holds something of.
        objects: Vec<ObjectId>,
        /// Which copy.
        copy: u8,
        /// The volume.
        volser: Volser,
        /// Bytes of the session on this volume.
        bytes: u64,
    },
    /// A copy failed; others go on.
    CopyFailed {
        /// Which copy.
        copy: u8,
        /// Why.
        reason: String,
    },
    /// A copy lacked something and is whole now.
    Mended {
        /// The object.
        object: ObjectId,
        /// Which copy.
        copy: u8,
        /// Its pool.
        pool: String,
    },
    /// A pool has no volume; somebody is waited for.
    Waiting {
        /// What to do.
        message: String,
    },
    /// The clock stands where it can hardly be right; what is made now is marked by that.
    ClockDoubted {
        /// What it says, and what is recorded.
        reading: ClockReading,
    },
    /// Something that is no failure.
    Notice {
        /// What.
        message: String,
    },
}

/// Where events go; called from any thread.
pub type Events = Arc<dyn Fn(Event) + Send + Sync>;
