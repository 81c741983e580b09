//! How a backup ended.

use capstan_director::{BackupReport, BaseUnavailable};
use capstan_mover::Severity;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::restore::VolumeReason;
use super::{Source, id, words};

/// The last line of a backup.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum BackupEnd {
    /// How it ended.
    Finished(BackupFinished),
}

/// How a backup ended.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct BackupFinished {
    /// One for each source that was there.
    sources: Vec<SourceLine>,
    /// Sources that were not there.
    missing: Vec<MissingLine>,
    /// Exclude patterns that matched nothing.
    excludes_unused: Vec<String>,
    /// Bytes that were read, headers included.
    plain_bytes: u64,
    /// Bytes that were written to the first copy.
    stored_bytes: u64,
    /// How long it took, to the last flush, in nanoseconds.
    elapsed_ns: u64,
    /// What held it up.
    bottleneck: String,
    /// Copies that failed while another was finished.
    failed_copies: Vec<CopyFailedLine>,
    /// Volumes that would have been gone on with, and were not.
    passed_over: Vec<VolumeReason>,
}

/// A source that was not there.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct MissingLine {
    /// The source.
    #[serde(flatten)]
    source: Source,
    /// Why it could not be looked at.
    reason: String,
}

/// A copy that failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct CopyFailedLine {
    /// Which copy.
    copy: u8,
    /// Why.
    reason: String,
}

/// An object that was to be stood on, and cannot be restored.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct BaseGoneLine {
    /// The object.
    object: String,
    /// Why it cannot be restored.
    reason: String,
}

impl From<&BaseUnavailable> for BaseGoneLine {
    fn from(gone: &BaseUnavailable) -> Self {
        Self { object: id(gone.object), reason: words(&gone.reason) }
    }
}

/// How one source ended. Each path of it that is not in the object as it should be had a line `problem`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct SourceLine {
    /// The object.
    object: String,
    /// The source.
    #[serde(flatten)]
    source: Source,
    /// Whether an earlier run had begun the object.
    resumed: bool,
    /// The object it stands on; null for a full one.
    base: Option<String>,
    /// The one it would have stood on, if that cannot be restored.
    base_gone: Option<BaseGoneLine>,
    /// Regular files that were written.
    files: u64,
    /// Links, fifos and devices that were written.
    others: u64,
    /// Directories that were written.
    directories: u64,
    /// Bytes of content.
    bytes: u64,
    /// Paths that stand as they did in the base.
    unchanged: u64,
    /// Paths that the base has and the source no longer has.
    deleted: u64,
    /// Paths of which something is not in the object.
    losses: u64,
    /// Paths that were in use while they were read, or vanished.
    unsteady: u64,
    /// Why the source was not read to its end; null if it was.
    error: Option<String>,
}

impl From<&BackupReport> for BackupFinished {
    fn from(report: &BackupReport) -> Self {
        let sources = report.sources.iter().map(|source| {
            let read = source.report.clone().unwrap_or_default();
            SourceLine {
                object: id(source.object),
                source: source.source.as_slice().into(),
                resumed: source.resumed,
                base: source.base.map(id),
                base_gone: source.base_gone.as_ref().map(BaseGoneLine::from),
                files: read.files,
                others: read.others,
                directories: read.directories,
                bytes: read.bytes,
                unchanged: read.unchanged,
                deleted: read.deleted,
                losses: read.count(Severity::Loss),
                unsteady: read.count(Severity::Unsteady),
                error: source.report.as_ref().err().map(words),
            }
        });
        let missing = report.missing.iter();
        let failed = report.failed_copies.iter();
        Self {
            sources: sources.collect(),
            missing: missing
                .map(|missing| MissingLine { source: missing.source.as_slice().into(), reason: words(&missing.reason) })
                .collect(),
            excludes_unused: report.excludes_unused.clone(),
            plain_bytes: report.plain_bytes,
            stored_bytes: report.stored_bytes,
            elapsed_ns: report.elapsed_ns,
            bottleneck: report.bottleneck.name().to_owned(),
            failed_copies: failed.map(|(copy, reason)| CopyFailedLine { copy: *copy, reason: words(reason) }).collect(),
            passed_over: report.passed_over.iter().map(VolumeReason::from).collect(),
        }
    }
}
