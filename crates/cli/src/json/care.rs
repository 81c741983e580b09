//! What looking after volumes ends with.

use capstan_director::{
    ReclaimableVolume, Reclaimed, ScrubPlan, ScrubReport, ScrubbedVolume, UnscrubbedVolume, VolumeFate,
};
use capstan_format::ObjectId;
use capstan_server::cell::users::media_words::volume_state_word;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::media::ObjectReason;
use super::{id, words};

/// A sample that would be read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ToScrubLine {
    /// Blocks of a place.
    place_blocks: u32,
    /// Places that there are.
    places: u64,
    /// Those that would be read.
    drawn: u64,
    /// Volumes that would be mounted.
    mounts: usize,
    /// Volumes that would be left out, and why.
    left_out: Vec<UnscrubbedLine>,
}

impl From<&ScrubPlan> for ToScrubLine {
    fn from(plan: &ScrubPlan) -> Self {
        let (drawn, places) = plan.places();
        let left_out = plan.left_out.iter().map(left_out).collect();
        Self { place_blocks: plan.place_blocks, places, drawn, mounts: plan.mounts(), left_out }
    }
}

/// A sample that was read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ScrubbedLine {
    /// Blocks of a place.
    place_blocks: u32,
    /// Places that there are on the volumes.
    places: u64,
    /// Those that were read.
    read: u64,
    /// Those of them with a block that cannot be read.
    bad: u64,
    /// Blocks that were read.
    blocks: u64,
    /// Blocks that cannot be read.
    bad_blocks: u64,
    /// The share of blocks that cannot be read is no greater than this, of those that are not on record as damaged.
    bad_at_most: f64,
    /// Blocks of these volumes that are on record as damaged: they are in no place.
    known_bad_blocks: u64,
    /// Whether it was stopped before its end: it speaks of the volumes that were read to theirs.
    stopped: bool,
    /// How sure that is, from 0 to 1.
    certainty: f64,
    /// Repeats the draw.
    seed: u64,
    /// The volumes that this is about.
    volumes: Vec<ScrubbedVolumeLine>,
    /// Volumes that were left out, and why.
    left_out: Vec<UnscrubbedLine>,
    /// How long it took.
    elapsed_ns: u64,
}

/// A volume that was left out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct UnscrubbedLine {
    /// The volume.
    volume: String,
    /// Blocks on it that are needed.
    blocks: u64,
    /// Why it was left out.
    reason: String,
}

fn left_out(volume: &UnscrubbedVolume) -> UnscrubbedLine {
    UnscrubbedLine { volume: volume.volser.to_string(), blocks: volume.blocks, reason: words(&volume.reason) }
}

/// What was read of a volume.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ScrubbedVolumeLine {
    /// The volume.
    volume: String,
    /// Its pool.
    pool: String,
    /// Places that there are on it.
    places: u64,
    /// Those that were read.
    read: u64,
    /// Those of them with a block that cannot be read.
    bad: u64,
}

impl From<&ScrubReport> for ScrubbedLine {
    fn from(report: &ScrubReport) -> Self {
        let (places, read, bad) = report.places();
        let volume = |volume: &ScrubbedVolume| ScrubbedVolumeLine {
            volume: volume.volser.to_string(),
            pool: volume.pool.clone(),
            places: volume.places,
            read: volume.drawn,
            bad: volume.bad,
        };
        Self {
            place_blocks: report.place_blocks,
            places,
            read,
            bad,
            blocks: report.blocks,
            bad_blocks: report.bad_blocks,
            bad_at_most: report.bad_at_most(),
            known_bad_blocks: report.known_bad(),
            stopped: report.is_stopped,
            certainty: report.certainty,
            seed: report.seed,
            volumes: report.volumes.iter().map(volume).collect(),
            left_out: report.left_out.iter().map(left_out).collect(),
            elapsed_ns: report.elapsed_ns,
        }
    }
}

/// A volume that would be emptied.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ToReclaimLine {
    /// The volume.
    volume: String,
    /// Its pool.
    pool: String,
    /// How it stands, as in `volumes`.
    state: &'static str,
    /// Its generation; null where that is not known.
    generation: Option<String>,
    /// When it was labelled, nanoseconds since 1970; null where that is not known.
    labelled_ns: Option<i64>,
    /// Bytes on it.
    written_bytes: u64,
    /// Bytes of these that are needed.
    needed_bytes: u64,
    /// Objects that it holds something of.
    objects: u64,
    /// Blocks on record as damaged, and errors that were seen.
    faults: u64,
    /// Whether its generation is to go, so that it is retired.
    retires: bool,
    /// Whether something of an object on it is lost, so that it cannot be emptied.
    holds_lost: bool,
}

impl From<&ReclaimableVolume> for ToReclaimLine {
    fn from(volume: &ReclaimableVolume) -> Self {
        Self {
            volume: volume.volser.to_string(),
            pool: volume.pool.clone(),
            state: volume_state_word(volume.state),
            generation: volume.generation.clone(),
            labelled_ns: volume.labelled_ns,
            written_bytes: volume.written,
            needed_bytes: volume.needed,
            objects: volume.objects,
            faults: volume.faults,
            retires: volume.is_to_go,
            holds_lost: volume.holds_lost,
        }
    }
}

/// A volume that was emptied, as far as it could be.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ReclaimedLine {
    /// The volume.
    volume: String,
    /// Its pool.
    pool: String,
    /// What became of it: `scratch`, `retired`, `set-aside`, `needed` (it holds something still), or `kept` (it does
    /// not, and is not free).
    fate: &'static str,
    /// What keeps it as it is; null if nothing does.
    kept_by: Option<String>,
    /// Copies of objects that it holds nothing of any more.
    copies: u64,
    /// The volumes that hold these instead.
    onto: Vec<String>,
    /// Objects that it holds still, and why.
    left: Vec<ObjectReason>,
    /// Bytes of streams that were written.
    bytes: u64,
    /// Blocks that were read.
    blocks: u64,
    /// How long it took.
    elapsed_ns: u64,
}

impl From<&Reclaimed> for ReclaimedLine {
    fn from(done: &Reclaimed) -> Self {
        let left = |(object, reason): &(ObjectId, String)| ObjectReason { object: id(*object), reason: words(reason) };
        Self {
            volume: done.volser.to_string(),
            pool: done.pool.clone(),
            fate: match done.fate {
                VolumeFate::Scratch => "scratch",
                VolumeFate::Retired => "retired",
                VolumeFate::SetAside => "set-aside",
                VolumeFate::Needed => "needed",
                VolumeFate::Kept => "kept",
            },
            kept_by: done.kept_by.as_ref().map(words),
            copies: done.copies,
            onto: done.onto.iter().map(ToString::to_string).collect(),
            left: done.left.iter().map(left).collect(),
            bytes: done.bytes,
            blocks: done.blocks,
            elapsed_ns: done.elapsed_ns,
        }
    }
}
