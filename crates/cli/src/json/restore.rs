//! What a restore, a verification and a comparison found.

use capstan_director::{OlderVersion, RestorePlan, RestoreReport};
use capstan_format::Volser;
use capstan_mover::Damage;
use capstan_mover::{OrderedBy, ReadOrder};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::{id, words};
use capstan_client::files::ShownPath;

/// A mount of a restore.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct PassLine {
    /// The volume.
    pub(super) volume: String,
    /// Blocks to read from it.
    pub(super) blocks: u64,
    /// Blocks that are passed over between the first and the last.
    pub(super) blocks_skipped: u64,
}

/// A path that comes back as an older backup had it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct OlderLine {
    /// The path.
    #[serde(flatten)]
    path: ShownPath,
    /// The object that has it.
    object: String,
    /// When that was begun, nanoseconds since 1970.
    backed_up_ns: i64,
}

/// A path that could not be given back, or not as it was.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct FailedPath {
    /// The path.
    #[serde(flatten)]
    path: ShownPath,
    /// What is wrong, with volume and block where one is damaged.
    reason: String,
}

/// A path of the source that is not as the object has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct DifferenceLine {
    /// The path, without the slash in front.
    #[serde(flatten)]
    pub(crate) path: ShownPath,
    /// How it differs.
    pub(crate) reason: String,
}

/// A volume, and what is the matter with it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct VolumeReason {
    /// The volume.
    volume: String,
    /// What is the matter.
    reason: String,
}

impl<T: ToString> From<&(Volser, T)> for VolumeReason {
    fn from((volser, reason): &(Volser, T)) -> Self {
        Self { volume: volser.to_string(), reason: words(reason) }
    }
}

/// A block that a volume did not give.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct BlockLine {
    /// The volume.
    volume: String,
    /// The logical block number, if it is known.
    lbn: Option<u64>,
    /// What is wrong.
    reason: String,
}

impl From<&Damage> for BlockLine {
    fn from(damage: &Damage) -> Self {
        Self { volume: damage.volser.to_string(), lbn: damage.lbn, reason: words(damage) }
    }
}

/// In which order places on a volume are read.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct OrderLine {
    /// The volume.
    volume: String,
    /// By whom: `drive`, `model` or `position`.
    order: String,
    /// The model, if by one.
    model: Option<String>,
    /// How many places.
    places: usize,
    /// Seconds that positioning takes, if a model foretells it.
    positioning_s: Option<f64>,
    /// Seconds that it would take from front to back.
    front_to_back_s: Option<f64>,
}

impl From<&ReadOrder> for OrderLine {
    fn from(order: &ReadOrder) -> Self {
        let (by, model) = match &order.by {
            OrderedBy::Drive => ("drive", None),
            OrderedBy::Model(model) => ("model", Some(model.to_string())),
            OrderedBy::Position => ("position", None),
        };
        Self {
            volume: order.volser.to_string(),
            order: by.to_owned(),
            model,
            places: order.stretches,
            positioning_s: order.positioning.map(|positioning| positioning.taken_s),
            front_to_back_s: order.positioning.map(|positioning| positioning.front_to_back_s),
        }
    }
}

/// What reading gave.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct Work {
    /// Every path that could not be given back.
    failed: Vec<FailedPath>,
    /// Blocks that no copy gave.
    lost_blocks: Vec<BlockLine>,
    /// Blocks that were damaged in one copy and came from another.
    recovered_blocks: Vec<BlockLine>,
    /// Paths that were read.
    members: u64,
    /// Bytes of their content.
    bytes: u64,
    /// Blocks that were read.
    blocks: u64,
    /// Volumes that hold part of it and are not in the library.
    absent: Vec<String>,
    /// Volumes that no key opens.
    without_key: Vec<VolumeReason>,
    /// Paths that this copy lacks and another holds.
    behind: u64,
    /// In which order places on volumes were read.
    orders: Vec<OrderLine>,
    /// How long it took, in nanoseconds.
    elapsed_ns: u64,
}

impl From<&RestoreReport> for Work {
    fn from(report: &RestoreReport) -> Self {
        let failed = report.failed.iter();
        Self {
            failed: failed.map(|file| FailedPath { path: (&file.path).into(), reason: words(&file.reason) }).collect(),
            lost_blocks: report.lost.iter().map(BlockLine::from).collect(),
            recovered_blocks: report.recovered.iter().map(BlockLine::from).collect(),
            members: report.members,
            bytes: report.bytes,
            blocks: report.blocks,
            absent: report.absent.iter().map(ToString::to_string).collect(),
            without_key: report.without_key.iter().map(VolumeReason::from).collect(),
            behind: report.behind,
            orders: report.orders.iter().map(OrderLine::from).collect(),
            elapsed_ns: report.elapsed_ns,
        }
    }
}

/// The last line of a restore.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum RestoreEnd {
    /// How it ended.
    Finished(RestoreFinished),
}

/// How a restore ended.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RestoreFinished {
    /// What reading gave.
    #[serde(flatten)]
    work: Work,
    /// Paths that were there already and are left as they were, directories not counted.
    kept: u64,
    /// Those of them whose kind, size or time is not what was backed up; with any, the exit code is 3.
    differing: u64,
    /// As in `plan`: nothing of these is stored.
    lost: Vec<ShownPath>,
    /// As in `plan`: these came back as an older backup had them.
    older: Vec<OlderLine>,
    /// As in `plan`: these came back in part.
    incomplete: Vec<ShownPath>,
    /// As in `plan`: these vanished while they were backed up. They are no reason for exit code 3.
    vanished: Vec<ShownPath>,
    /// As in `plan`: whether the backup was never finished.
    interrupted: bool,
    /// Paths that could not be written, or not with everything; 8 MiB of them at most.
    problems: Vec<FailedPath>,
    /// How many there were.
    problems_count: u64,
}

pub(super) fn paths(paths: &[Vec<u8>]) -> Vec<ShownPath> {
    paths.iter().map(ShownPath::from).collect()
}

pub(super) fn older(plan: &RestorePlan) -> Vec<OlderLine> {
    let line = |older: &OlderVersion| OlderLine {
        path: (&older.path).into(),
        object: id(older.object),
        backed_up_ns: older.backed_up_ns,
    };
    plan.older.iter().map(line).collect()
}

impl RestoreFinished {
    pub(crate) fn new(plan: &RestorePlan, report: &RestoreReport) -> Self {
        let extract = report.extract.as_ref();
        let problems = extract.map_or(&[][..], |extract| &extract.problems).iter();
        Self {
            work: report.into(),
            kept: extract.map_or(0, |extract| extract.kept),
            differing: extract.map_or(0, |extract| extract.differing),
            lost: paths(&plan.lost),
            older: older(plan),
            incomplete: paths(&plan.incomplete),
            vanished: paths(&plan.vanished),
            interrupted: plan.interrupted,
            problems: problems
                .map(|problem| FailedPath { path: (&problem.path).into(), reason: words(&problem.reason) })
                .collect(),
            problems_count: extract.map_or(0, |extract| extract.problems_count),
        }
    }
}
