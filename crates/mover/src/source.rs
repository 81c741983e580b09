//! Sources: what is read into an object's streams.
//!
//! A tree of directories and files ([`TreeSource`]), a block device or an image ([`DeviceSource`]), or a stream of
//! unknown length ([`StreamSource`]). Which of them, of what, is data ([`SourceSpec`]). Sources write pax members into
//! [`StreamSink`](crate::StreamSink)s, one thread for each connection, and know nothing of blocks or tapes; a read
//! lands in the chunk that becomes a block.

mod attributes;
mod batch;
mod cache;
mod content;
mod count;
mod cut;
mod device;
mod emit;
mod files;
mod filesystem;
mod links;
mod listing;
mod metadata;
mod options;
mod owners;
mod patterns;
mod producer;
mod queue;
#[cfg(test)]
mod recorded;
mod report;
mod run;
mod snapshot;
mod spec;
mod stream;
mod tree;
mod walk;
mod walker;

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::Stopped;

pub use cache::is_cache_directory;
pub use count::Totals;
pub use cut::CutFile;
pub use device::DeviceSource;
pub use filesystem::is_pseudo;
pub use metadata::change_fingerprint;
pub use options::{CACHES_RULE, CacheDirectories, Mounts, TreeOptions};
pub use owners::OwnerNames;
pub use patterns::{PathPatterns, PatternError, patterns_in};
pub(crate) use report::Counted;
pub use report::{OnProblem, ProblemKind, Progress, Severity, SourceProblem, SourceReport};
pub use snapshot::{ReadFrom, SnapshotUse};
pub use spec::{SourceFound, SourceRun, SourceSpec, StreamInput};
pub use stream::StreamSource;
pub use tree::TreeSource;

/// Why a source gave no complete object.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The other end stopped the run.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The client that has the source is gone, or does not keep to the protocol. The object stays open.
    #[error("client {client}: {reason}")]
    Client {
        /// Its name.
        client: String,
        /// What is known of it.
        reason: String,
    },
    /// What the client that has the source says against it.
    #[error("{reason} (on {client})")]
    AtClient {
        /// Its name.
        client: String,
        /// What it says.
        reason: String,
    },
    /// The mover that was to take it is gone.
    #[error("{reason}")]
    Mover {
        /// What is known of it.
        reason: String,
    },
    /// No path was given.
    #[error("nothing to back up: name at least one file or directory")]
    Nothing,
    /// No connection was given.
    #[error("nowhere to write to: a source needs at least one connection")]
    NoConnection,
    /// A path that cannot name members.
    #[error("source {path:?} cannot be stored under that name: give it without '..' components")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// No snapshot can be made of a source that is to be read from one.
    #[error("no snapshot of {path:?} can be made: {reason}; `snapshot = \"prefer\"` reads it as it is then")]
    Snapshot {
        /// The path.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A device that cannot be opened.
    #[error("{path:?} cannot be opened: check that it is there and that you may read it")]
    Open {
        /// The path.
        path: PathBuf,
        /// What the system says.
        #[source]
        reason: io::Error,
    },
    /// Something else where a device should be.
    #[error("{path:?} is neither a block device nor an image file: back it up as a tree")]
    NotADevice {
        /// The path.
        path: PathBuf,
    },
    /// A stream that broke off.
    #[error("what was read as {name} broke off before its end, and the object is not complete")]
    Stream {
        /// Name that the stream was to be stored under.
        name: String,
        /// What the system says.
        #[source]
        reason: io::Error,
    },
    /// The program whose output was to be read does not start.
    #[error("cannot start {program}")]
    Program {
        /// The program.
        program: String,
        /// What the system says.
        #[source]
        reason: io::Error,
    },
    /// A pattern that is none.
    #[error(transparent)]
    Exclude(#[from] PatternError),
}
