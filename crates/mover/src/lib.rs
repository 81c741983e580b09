//! Moves blocks: sources, pax streams, interleaving, twin copies, tape writer and reader, restore.
//!
//! The mover never sees the catalog: it reports what it wrote and where, and whoever runs it records that.

mod baseline;
mod between;
mod block;
mod blocks_in;
mod connection;
mod control;
mod copy;
mod crew;
mod damage;
pub mod devices;
mod drive_health;
mod drive_sets;
mod elsewhere;
mod entries_room;
mod error;
pub mod extract;
mod feed;
mod intake;
mod interleave;
mod job_token;
#[cfg(test)]
mod kept_words;
mod link;
mod meters;
mod mount_id;
mod mounted;
mod network;
mod order;
mod os_text;
mod pack;
mod pool;
mod program_group;
mod queue;
mod read;
mod restore;
mod session;
mod shared_drive;
mod sink;
mod source;
mod source_host;
mod stream;
mod stretch;
mod throttle;
mod turns;
mod volume;
mod writer;

pub use baseline::{BaselineBuilder, BaselineTable, SeenRows};
pub use between::BetweenBlocks;
pub use connection::Connection;
pub use copy::{CheckpointBounds, CopyHost, HostError, VolumeEnd};
pub use damage::{BadBlocks, Damage, FailedMember, add_bad_block};
pub use drive_health::DriveHealth;
pub use elsewhere::{Connect, MoverAt, OwnersKeys, RemoteMover, ServedMover};
pub use error::MoverError;
pub use feed::{
    DrivesAt, ReadHost, ReadReport, ReadRoutes, VolumeAccess, plans_apart, plans_by_library, read_between,
    read_streams, shares_of, split_by_library, without_torn,
};
pub use intake::Intake;
pub use interleave::ExtentBounds;
pub use job_token::JobToken;
pub use meters::{Bottleneck, Load, Meters, ReadMeters};
pub use mount_id::MountId;
pub use mounted::MountedDrives;
pub use network::{
    ClientEnd, ClientRules, Dial, DialHere, NetworkJob, NetworkJobs, NetworkStream, OwedScripts, Purpose,
    REFUSED_BY_CLIENT, RestoreInto, RestorePart, RestoreShare, StreamHere, moves_text, protocol_fault, serve_job,
};
pub use order::{Filled, OrderedBy, Positioning, ReadOrder};
pub use pack::PackOptions;
pub use program_group::ProgramGroup;
pub use read::{
    ExtentPlace, Pass, ReadPlan, Run, VolumePlace, Wanted, WantedMember, WantedStream, held_ranges, joined, plan_reads,
    plan_reads_at,
};
pub use restore::{RestoreWatch, StreamsReport, restore_streams, verify_streams};
pub use session::{ClosingSession, Session, SessionOptions, SessionOutcome};
pub use sink::{Baseline, Metadata, Stopped, StreamSink, Verdict};
pub use source::{
    CACHES_RULE, CacheDirectories, CutFile, DeviceSource, Mounts, OnProblem, OwnerNames, PathPatterns, PatternError,
    ProblemKind, Progress, ReadFrom, Severity, SnapshotUse, SourceError, SourceFound, SourceProblem, SourceReport,
    SourceRun, SourceSpec, StreamInput, StreamSource, Totals, TreeOptions, TreeSource, change_fingerprint,
    is_cache_directory, is_pseudo, patterns_in,
};
pub use source_host::{ListedBaseline, LocalSources, SourceHost, SourceReading};
pub use stream::{RangeBytes, StoredBlock, StreamReader};
pub use stretch::{Stretch, open_at_once, split_at_gaps};
pub use throttle::{RateLimit, Throttle};
pub use volume::{FIRST_SESSION_LBN, FoundBlock, FoundCheckpoint, VolumeReader, read_label, write_label};
pub use writer::{Commit, Mounted};
