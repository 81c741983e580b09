//! Moves blocks: sources, pax streams, interleaving, twin copies, tape writer and reader, restore.
//!
//! The mover never sees the catalog: it reports what it wrote and where, and whoever runs it records that.

mod sink;
mod source;

pub use sink::{Baseline, Metadata, Stopped, StreamSink, Verdict};
pub use source::{
    DeviceSource, Mounts, Problem, ProblemKind, Progress, Severity, SourceError, SourceReport, StreamSource, Totals,
    TreeOptions, TreeSource, change_fingerprint,
};
