//! What commands that change volumes and objects end with.

use capstan_director::{
    Consolidated, CopyReport, ExpiryPlan, IndexReport, Overwritten, RebuildReport, RepairReport, kept_reason,
};
use capstan_format::Volser;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::restore::VolumeReason;
use super::{Source, id, words};

/// A copy that was written.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CopiedLine {
    /// The object.
    object: String,
    /// The copy's number.
    copy: u8,
    /// Blocks that were read.
    blocks: u64,
    /// Bytes of the object's streams.
    bytes: u64,
    /// Blocks that no copy gives; the new copy ends before the first.
    lost_blocks: usize,
    /// How long it took, in nanoseconds.
    elapsed_ns: u64,
}

impl From<&CopyReport> for CopiedLine {
    fn from(report: &CopyReport) -> Self {
        Self {
            object: id(report.object),
            copy: report.copy,
            blocks: report.blocks,
            bytes: report.bytes,
            lost_blocks: report.lost.len(),
            elapsed_ns: report.elapsed_ns,
        }
    }
}

/// A full object that was made of an incremental and of what that is based on.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ConsolidatedLine {
    /// The new object.
    object: String,
    /// The incremental that it stands for.
    of: String,
    /// What was backed up.
    #[serde(flatten)]
    source: Source,
    /// The pool that it is in.
    pool: String,
    /// Backups that it is made of: the incremental, and those that it is based on.
    backups: usize,
    /// Members that were written.
    members: u64,
    /// Members that an earlier run had written, which was stopped.
    written_before: u64,
    /// Bytes of the streams that were written.
    bytes: u64,
    /// Blocks that were read.
    blocks: u64,
    /// How long it took, in nanoseconds.
    elapsed_ns: u64,
}

impl From<&Consolidated> for ConsolidatedLine {
    fn from(done: &Consolidated) -> Self {
        Self {
            object: id(done.object),
            of: id(done.of),
            source: done.source.as_slice().into(),
            pool: done.pool.clone(),
            backups: done.chain,
            members: done.members,
            written_before: done.written_before,
            bytes: done.bytes,
            blocks: done.blocks,
            elapsed_ns: done.elapsed_ns,
        }
    }
}

/// A copy that lacked something.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RepairedLine {
    /// The object.
    object: String,
    /// What was backed up.
    #[serde(flatten)]
    source: Source,
    /// The copy's number.
    copy: u8,
    /// Its pool.
    pool: String,
    /// Whether it is whole now.
    whole: bool,
    /// Why it is not; null if it is.
    reason: Option<String>,
}

/// The copies that a repair found lacking.
pub(crate) fn repaired(report: &RepairReport) -> Vec<RepairedLine> {
    let line = |copy: &capstan_director::RepairedCopy| RepairedLine {
        object: id(copy.object),
        source: copy.source.as_slice().into(),
        copy: copy.copy,
        pool: copy.pool.clone(),
        whole: copy.failure.is_none(),
        reason: copy.failure.as_ref().map(words),
    };
    report.copies.iter().map(line).collect()
}

/// A catalog that was made anew.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RebuiltLine {
    /// Volumes that were read.
    volumes: u64,
    /// Blank volumes.
    blank: u64,
    /// Checkpoints that were recorded.
    checkpoints: u64,
    /// Objects that are complete.
    complete: u64,
    /// Objects that a run left open.
    interrupted: u64,
    /// What could not be read, and why.
    problems: Vec<VolumeReason>,
    /// Where the old catalog lies now; null if there was none, or it was dropped.
    old: Option<String>,
}

impl From<&RebuildReport> for RebuiltLine {
    fn from(report: &RebuildReport) -> Self {
        Self {
            volumes: report.volumes,
            blank: report.blank,
            checkpoints: report.checkpoints,
            complete: report.complete,
            interrupted: report.open,
            problems: report.problems.iter().map(VolumeReason::from).collect(),
            old: report.old.as_ref().map(|old| old.display().to_string()),
        }
    }
}

/// A list of files that was made anew.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct IndexRebuiltLine {
    /// The object.
    object: String,
    /// Paths that it has now.
    entries: u64,
    /// Paths that it had by the record; null where that is not known.
    entries_before: Option<u64>,
    /// Whether nothing is known to be missing.
    whole: bool,
    /// Catalog parts that were read.
    parts: u64,
    /// What could not be read, and why.
    problems: Vec<VolumeReason>,
}

impl From<&IndexReport> for IndexRebuiltLine {
    fn from(report: &IndexReport) -> Self {
        Self {
            object: id(report.object),
            entries: report.entries,
            entries_before: report.entries_before,
            whole: report.is_whole(),
            parts: report.parts,
            problems: report.problems.iter().map(VolumeReason::from).collect(),
        }
    }
}

/// A volume of which all that it held is gone.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct OverwrittenLine {
    /// The volume.
    volume: String,
    /// Objects that lost a copy, or a part of one.
    lost_a_copy: Vec<String>,
    /// Objects of which no other volume has what it held.
    gone: Vec<String>,
}

impl OverwrittenLine {
    pub(crate) fn new(volume: &Volser, lost: &Overwritten) -> Self {
        Self {
            volume: volume.to_string(),
            lost_a_copy: lost.copies.iter().map(|copy| id(copy.object)).collect(),
            gone: lost.last.iter().map(|object| id(object.id)).collect(),
        }
    }
}

/// What was forgotten, or would be.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ExpiredLine {
    /// Objects that are forgotten.
    objects: Vec<String>,
    /// Copies that are forgotten of objects that stay.
    copies: Vec<ForgottenCopyRow>,
    /// Objects that are kept although their time is over or they were named, and why.
    kept: Vec<ObjectReason>,
    /// Objects that a job's rule keeps.
    kept_by_rule: Vec<KeptByRule>,
    /// Volumes that become scratch.
    freed: Vec<String>,
    /// Whether nothing was done.
    dry_run: bool,
}

/// A copy that is forgotten of an object that stays.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ForgottenCopyRow {
    /// The object.
    object: String,
    /// The copy's number, from 1.
    copy: u8,
    /// The pool that it is in.
    pool: String,
    /// The policy of copies that has taken its place; null where its time is over.
    migrated_by: Option<String>,
    /// The pool of a copy that is whole, and stays.
    stays_in: String,
}

/// An object that a job's rule keeps.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct KeptByRule {
    /// The object.
    object: String,
    /// The job.
    policy: String,
    /// `last`, `daily`, `weekly`, `monthly` or `yearly`; several where several keep it.
    kept_by: Vec<&'static str>,
}

impl ExpiredLine {
    pub(crate) fn new(plan: &ExpiryPlan, dry_run: bool) -> Self {
        let kept = plan
            .kept
            .iter()
            .map(|(object, why)| ObjectReason { object: id(object.id), reason: kept_reason(*why, &object.source) });
        let copies = plan.copies.iter().map(|copy| ForgottenCopyRow {
            object: id(copy.object.id),
            copy: copy.copy,
            pool: copy.pool.clone(),
            migrated_by: copy.migrated_by.clone(),
            stays_in: copy.stays_in.clone(),
        });
        let by_rule = plan.by_rule.iter().map(|(object, parts)| KeptByRule {
            object: id(object.id),
            policy: object.policy.clone(),
            kept_by: parts.iter().map(|part| part.name()).collect(),
        });
        Self {
            objects: plan.forget.iter().map(|object| id(object.id)).collect(),
            copies: copies.collect(),
            kept: kept.collect(),
            kept_by_rule: by_rule.collect(),
            freed: plan.frees.iter().map(ToString::to_string).collect(),
            dry_run,
        }
    }
}

/// An object and a reason.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ObjectReason {
    /// The object.
    pub(crate) object: String,
    /// What is the matter.
    pub(crate) reason: String,
}
