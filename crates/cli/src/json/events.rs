//! Lines that tell what happens, each with its name in `event`.

use capstan_director::{Event as Told, PassRow, RestorePlan};
use capstan_mover::Severity;
use capstan_tape::with_causes;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::care::{ReclaimedLine, ScrubbedLine, ToReclaimLine, ToScrubLine};
use super::lists::ClockRow;
use super::media::{
    ConsolidatedLine, CopiedLine, ExpiredLine, IndexRebuiltLine, ObjectReason, OverwrittenLine, RebuiltLine,
    RepairedLine,
};
use super::restore::{DifferenceLine, OlderLine, OrderLine, PassLine, VolumeReason, Work, older, paths};
use super::{Source, id, words};
use capstan_client::files::ShownPath;
use capstan_server::cell::users::media_words::PoolRow;

/// What happens while a command works, one object a line; the last line of a command is `finished`, `verified`,
/// `compared` or `error`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// `init` has made a state directory.
    Initialised {
        /// Where.
        state: String,
    },
    /// `jobs --units` has written the units of systemd.
    UnitsWritten {
        /// Their paths.
        files: Vec<String>,
    },
    /// `pools add` has made a pool, or changed it.
    PoolSet(PoolRow),
    /// `pools remove` has removed a pool.
    PoolRemoved {
        /// Its name.
        pool: String,
    },
    /// `catalog copy` has copied what no volume has.
    CatalogCopied {
        /// The directory of the copy.
        directory: String,
        /// Files that it did not have as they are.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A command failed. Standard error has the same for people.
    Error {
        /// What failed, why, and what to do; further causes stand on lines of their own.
        message: String,
        /// The exit code that the command ends with.
        exit_code: u8,
    },
    /// A virtual cartridge was made.
    Created {
        /// The volume.
        volume: String,
    },
    /// A volume was labelled; what it held before is gone.
    Labelled {
        /// The volume.
        volume: String,
        /// Its pool; null for scratch.
        pool: Option<String>,
        /// How many lives it had before.
        recycled: u32,
    },
    /// A volume is in a drive.
    Mounted {
        /// The volume.
        volume: String,
        /// The drive.
        drive: String,
    },
    /// A volume left its drive.
    Dismounted {
        /// The volume.
        volume: String,
        /// The drive.
        drive: String,
    },
    /// How far a backup, a restore, a verification, a copy or a repair is: a line each second once it has begun, unless
    /// `--quiet` is given.
    Progress {
        /// Bytes of what is planned that are behind it; of an incremental, files that stand as they did count as well.
        bytes: u64,
        /// Bytes that are planned; null while they are being counted, and where nobody knows: what a program prints,
        /// `--no-tree-walk`.
        bytes_planned: Option<u64>,
        /// Bytes that were read from sources, or from volumes.
        bytes_moved: u64,
        /// Bytes of a backup that are flushed to volumes of the first copy.
        bytes_flushed: u64,
        /// Files or paths that are done.
        items: u64,
        /// Bytes moved a second, over the last ten seconds.
        rate: u64,
        /// How long it has taken, in nanoseconds.
        elapsed_ns: u64,
        /// How long it will take if it goes on as in the last minute, in nanoseconds; null where nothing moved, or
        /// nothing is planned.
        left_ns: Option<u64>,
        /// Volumes that are in drives.
        volumes: Vec<InDrive>,
        /// What held it up in the last ten seconds: `source`, `processor`, `drive`; `target` where what is read from a
        /// volume is not taken as fast. Null in the beginning.
        bottleneck: Option<&'static str>,
    },
    /// Parts of a volume will be read, in this order.
    Ordered(OrderLine),
    /// A volume is full, and the work goes on with another.
    Full {
        /// The volume.
        volume: String,
    },
    /// An object was begun.
    Begun {
        /// Its id.
        object: String,
        /// Its source.
        #[serde(flatten)]
        source: Source,
        /// Whether an earlier run had begun it.
        resumed: bool,
    },
    /// A source is not there, or cannot be looked at; the others are backed up.
    SourceMissing {
        /// The source.
        #[serde(flatten)]
        source: Source,
        /// Why.
        reason: String,
    },
    /// A path was not backed up as it should have been. There is a line for every one.
    Problem {
        /// The object.
        object: String,
        /// The path as the object has it.
        #[serde(flatten)]
        path: ShownPath,
        /// `loss`: something of it is not in the object; `unsteady`: it was in use, or vanished; `note`: nothing is
        /// wrong.
        severity: String,
        /// What happened to it.
        reason: String,
    },
    /// A backup does not stand on the latest complete object of its source, because that cannot be restored.
    BaseGone {
        /// The source.
        #[serde(flatten)]
        source: Source,
        /// That object.
        object: String,
        /// Why it cannot be restored.
        reason: String,
        /// What the backup stands on instead; null for a full one.
        base: Option<String>,
    },
    /// Everything up to here is flushed and in the catalog: it can be restored whatever happens now.
    Checkpoint {
        /// Objects that the copy holds something of.
        objects: Vec<String>,
        /// Which copy.
        copy: u8,
        /// The volume.
        volume: String,
        /// Bytes of the run on this volume.
        bytes: u64,
    },
    /// A copy failed; others go on.
    CopyFailed {
        /// Which copy.
        copy: u8,
        /// Why.
        reason: String,
    },
    /// A job's program failed that runs before or after it. That which runs after does so behind `finished`.
    HookFailed {
        /// The job.
        job: String,
        /// `before` or `after`.
        hook: &'static str,
        /// How it ended.
        reason: String,
    },
    /// A copy lacked something and is whole now.
    Mended {
        /// The object.
        object: String,
        /// Which copy.
        copy: u8,
        /// Its pool.
        pool: String,
    },
    /// Somebody or something is waited for: a volume, a drive, a person, another job.
    Waiting {
        /// What to do.
        message: String,
    },
    /// Something that is no failure.
    Notice {
        /// What.
        message: String,
    },
    /// The clock is in doubt: what is made now is marked.
    ClockDoubted {
        /// What it says.
        clock: ClockRow,
    },
    /// What a restore will read.
    Plan {
        /// Mounts, in order.
        passes: Vec<PassLine>,
        /// Paths that will be written.
        members: u64,
        /// Bytes of files that will be written.
        bytes: u64,
        /// Files that are there already, as `--overwrite changed` leaves them: they are neither read nor counted above.
        there: u64,
        /// Bytes to read, before compression.
        read_bytes: u64,
        /// Volumes that are not in the library and hold part of it that no volume there holds.
        absent: Vec<String>,
        /// How long it is thought to take, in nanoseconds.
        estimate_ns: u64,
        /// Paths that could not be read when they were backed up: nothing of them is stored.
        lost: Vec<ShownPath>,
        /// Paths that come back as an older backup had them.
        older: Vec<OlderLine>,
        /// Directories that could not be listed, and files that could not be read to their ends, when they were backed
        /// up.
        incomplete: Vec<ShownPath>,
        /// Paths that vanished while they were backed up.
        vanished: Vec<ShownPath>,
        /// Volumes whose key was destroyed.
        without_key: Vec<VolumeReason>,
        /// Whether an object was interrupted and never finished: what it has comes back.
        interrupted: bool,
        /// Objects of which something is missing that nobody can name: a base cannot be used, or a part is on no volume
        /// that is known.
        in_part: Vec<ObjectReason>,
        /// Why no library could be asked, and volumes are taken to be in one; null if one answered.
        not_asked: Option<String>,
    },
    /// A volume, or a copy of an object, was read.
    Verified {
        /// What was read.
        what: String,
        /// Whether something that was read is at fault, and not merely out of reach.
        damaged: bool,
        /// What came of it.
        #[serde(flatten)]
        work: Work,
    },
    /// A further copy of an object was written.
    Copied(CopiedLine),
    /// A full object was made of an incremental and of what that is based on.
    Consolidated(ConsolidatedLine),
    /// A volume would be emptied.
    ToReclaim(ToReclaimLine),
    /// A volume was emptied, as far as it could be.
    Reclaimed(ReclaimedLine),
    /// A sample of what volumes hold would be read.
    ToScrub(ToScrubLine),
    /// A sample of what volumes hold was read.
    Scrubbed(ScrubbedLine),
    /// Copies that lacked something were looked at.
    Repaired {
        /// Each of them; none where every copy that was promised is whole.
        copies: Vec<RepairedLine>,
    },
    /// The catalog was made anew.
    Rebuilt(RebuiltLine),
    /// The list of files of an object was made anew.
    IndexRebuilt(IndexRebuiltLine),
    /// All that a volume held is gone: it was labelled anew, erased or forgotten.
    Overwritten(OverwrittenLine),
    /// A new key store was made where one was lost or damaged.
    KeyStoreCreated {
        /// Where the damaged one is kept; null where there was none.
        kept: Option<String>,
        /// Volumes whose keys are not in it.
        volumes_without_key: Vec<String>,
    },
    /// Objects were forgotten, or would be.
    Expired(ExpiredLine),
    /// Objects that had been forgotten were taken back.
    Unexpired {
        /// Which.
        objects: Vec<String>,
        /// Those that cannot be taken back, and why.
        lost: Vec<ObjectReason>,
        /// Volumes that are scratch no more.
        volumes: Vec<String>,
    },
    /// An object was compared with its source.
    Compared {
        /// What differs.
        differences: Vec<DifferenceLine>,
    },
}

/// A volume in a drive.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct InDrive {
    /// The volume.
    pub(crate) volume: String,
    /// The drive.
    pub(crate) drive: String,
}

impl Event {
    pub(crate) fn plan(plan: &RestorePlan) -> Self {
        let pass = |pass: &PassRow| PassLine {
            volume: pass.volser.to_string(),
            blocks: pass.blocks,
            blocks_skipped: pass.skipped,
        };
        Self::Plan {
            passes: plan.passes.iter().map(pass).collect(),
            members: plan.members,
            bytes: plan.bytes,
            there: plan.files_there(),
            read_bytes: plan.read_bytes,
            absent: plan.absent.iter().map(ToString::to_string).collect(),
            estimate_ns: plan.estimate_ns,
            lost: paths(&plan.lost),
            older: older(plan),
            incomplete: paths(&plan.incomplete),
            vanished: paths(&plan.vanished),
            without_key: plan.without_key.iter().map(VolumeReason::from).collect(),
            interrupted: plan.interrupted,
            in_part: plan.in_part().map(|(object, reason)| ObjectReason { object: id(object), reason }).collect(),
            not_asked: plan.not_asked.as_ref().map(|error| with_causes(error)),
        }
    }
}

impl From<&Told> for Event {
    fn from(event: &Told) -> Self {
        match event {
            Told::Mounted { volser, drive } => Self::Mounted { volume: volser.to_string(), drive: drive.clone() },
            Told::Dismounted { volser, drive } => Self::Dismounted { volume: volser.to_string(), drive: drive.clone() },
            Told::Labelled { volser, pool, recycled } => Self::Labelled {
                volume: volser.to_string(),
                pool: Some(pool.clone()).filter(|pool| !pool.is_empty()),
                recycled: *recycled,
            },
            Told::Created { volser } => Self::Created { volume: volser.to_string() },
            Told::Ordered { order } => Self::Ordered(order.into()),
            Told::Full { volser } => Self::Full { volume: volser.to_string() },
            Told::Begun { object, source, resumed } => {
                Self::Begun { object: id(*object), source: source.as_slice().into(), resumed: *resumed }
            }
            Told::SourceMissing { source, reason } => {
                Self::SourceMissing { source: source.as_slice().into(), reason: words(reason) }
            }
            Told::PathProblem { object, path, kind } => Self::Problem {
                object: id(*object),
                path: path.into(),
                severity: match kind.severity() {
                    Severity::Loss => "loss",
                    Severity::Unsteady => "unsteady",
                    Severity::Note => "note",
                }
                .to_owned(),
                reason: words(kind),
            },
            Told::BaseUnavailable { source, gone, base } => Self::BaseGone {
                source: source.as_slice().into(),
                object: id(gone.object),
                reason: words(&gone.reason),
                base: base.map(id),
            },
            Told::Checkpoint { objects, copy, volser, bytes } => Self::Checkpoint {
                objects: objects.iter().copied().map(id).collect(),
                copy: *copy,
                volume: volser.to_string(),
                bytes: *bytes,
            },
            Told::CopyFailed { copy, reason } => Self::CopyFailed { copy: *copy, reason: words(reason) },
            Told::Mended { object, copy, pool } => {
                Self::Mended { object: id(*object), copy: *copy, pool: pool.clone() }
            }
            Told::Waiting { message } => Self::Waiting { message: words(message) },
            Told::Notice { message } => Self::Notice { message: words(message) },
            Told::ClockDoubted { reading } => Self::ClockDoubted { clock: reading.into() },
        }
    }
}
