//! What is on which volume: SQLite or PostgreSQL for volumes, objects and extents; Parquet for file indexes.
//!
//! Two kinds of data with two natures. Volumes, sessions, objects and extents are few, change, and have to change
//! together: they are rows of a database, written in transactions that are on disk when they return. The files of an
//! object are many and never change once the object is complete: they are one immutable Parquet file, about 12 bytes a
//! file version, which any engine reads (`docs/CATALOG.md`). One database for both would cost ten times the space and
//! make a backup of a million files a transaction of a million rows; Parquet alone has no transactions.
//!
//! ```text
//! flush --> record_checkpoint --> objects, parts, extents       tables
//!                             \-> pieces (packed entries) --.   tables
//! complete --> seal_index <---------------------------------'
//!                  \--> index/OBJECT.GENERATION.parquet
//! ```
//! - **Recording is a join.** The same checkpoint twice, twins that were cut at different places, a rebuild that reads
//!   volumes backwards and in any order: all give the same rows, and the same index byte for byte. See
//!   [`Catalog::record_checkpoint`].
//! - **An index is one order**: by directory, then by name. [`Index`] gives one path, one directory, a subtree or all
//!   of it from the row groups that can hold it; [`MergedState`] merges an incremental with what it stands on.
//! - **Nothing is believed.** Each row group and footer has a checksum in the database, which is compared before
//!   anything is decoded. A damaged catalog is an error that says `capstan rebuild`, never a panic and never other
//!   files.
//! - **What was promised is kept**: which copies an object is wanted in, and which of them are not known to be whole
//!   yet. See [`Catalog::lacking_copies`].
//! - **Clocks are evidence, not truth**: which object is the latest follows the order of recording and the chain, and a
//!   time that cannot be right is in doubt. See [`Timeline`].
//! - **Many jobs**, in any number of processes. Methods with `&mut self` write, each in one short transaction; it waits
//!   half a minute for another; readers never wait. An [`Index`] that is open goes on to show what it showed. What one
//!   job at a time can have is reserved: see [`Catalog::reserve`].
//!
//! ```
//! use capstan_catalog::{Catalog, CheckpointSeen, Volume};
//! use capstan_format::{
//!     CatalogPart, Checkpoint, EntryEncoder, EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, ObjectRecord,
//!     ObjectState, SessionId, Volser, VolumeId,
//! };
//!
//! let dir = tempfile::tempdir()?;
//! let mut catalog = Catalog::open(dir.path())?;
//! let (volser, volume) = (Volser::new("A00001L9")?, VolumeId(7));
//! catalog.put_volume(&Volume { id: Some(volume), ..Volume::blank(volser.clone()) })?;
//!
//! // What a mover reports after a flush: an object and its entries.
//! let id = ObjectId([1; 16]);
//! let mut entries = EntryEncoder::new();
//! entries.push(&FileEntry {
//!     path: b"etc/fstab".to_vec(), kind: EntryKind::File, flags: EntryFlags::default(), mode: 0o644, uid: 0, gid: 0,
//!     size: 600, mtime_ns: 0, change: 0, crc: 0x1234, connection: 0, offset: 0, member_len: 1536, link: Vec::new(),
//! });
//! let object = ObjectRecord {
//!     object: id, source: b"/etc".to_vec(), client: "tern".into(), policy: "nightly".into(), kind: ObjectKind::Tree,
//!     state: ObjectState::Complete, base: None, copy: 1, chunk_len: 1 << 20, started_ns: 1, ended_ns: 2, expires_ns: 0,
//!     is_locked: false, consolidates: None, tags: Vec::new(),
//! };
//! let part = CatalogPart { objects: vec![object], entries: vec![(id, entries.finish())], ..CatalogPart::default() };
//! let checkpoint = Checkpoint {
//!     number: 1, previous_lbn: 0, part_lbn: 3, part_blocks: 1, part_len: 1, closed: true, written_ns: 2,
//! };
//! catalog.record_checkpoint(&CheckpointSeen {
//!     volser: &volser, volume, session: SessionId(1), session_record: None, lbn: 4, checkpoint: &checkpoint, part: &part,
//! })?;
//! catalog.seal_index(id)?;
//!
//! let state = catalog.state(id)?;
//! assert_eq!(state.get(b"etc/fstab")?.unwrap().entry.size, 600);
//! assert_eq!(state.children(b"etc").count(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
extern crate self as capstan_catalog;

mod catalog;
mod checkpoint;
mod copy_end;
mod counts;
mod damage;
mod db;
mod drive_report;
mod dump;
mod duplicate;
mod error;
mod expire;
mod fact;
mod fragments;
mod history;
mod index;
mod index_anew;
mod job;
mod left_out;
mod member_label;
mod object;
mod opened;
mod order;
mod peer;
#[cfg(test)]
#[allow(clippy::unwrap_used, unreachable_pub, reason = "shared with the tests, which fail by panicking")]
#[path = "../tests/it/tape/place.rs"]
mod place_in_tests;
mod policy;
mod pool;
mod queue;
#[cfg(test)]
#[path = "../tests/it/tape/random.rs"]
mod random;
mod recency;
mod reservation;
mod schema;
mod scratch;
mod seal;
mod sort;
mod state;
mod timeline;
mod told;
mod user;
mod vault;
mod volume;
mod volume_loss;
mod wanted;

pub use catalog::Catalog;
pub use checkpoint::{CheckpointSeen, Recorded};
pub use copy_end::CopyEnd;
pub use counts::Counts;
pub use damage::{DamageRecord, DamagedBlocks, Verification, Verified, without};
pub use db::Database;
pub use drive_report::{DriveReport, Moment};
pub use duplicate::CatalogCopy;
pub use error::CatalogError;
pub use expire::GoneSource;
pub use fragments::{ContinuedStream, StreamEnds};
pub use history::PathVersion;
pub use index::{Entries, Index, PathParts, PathPredicate, StopSearch};
pub use index_anew::PartPlaces;
pub use job::{Job, JobEnd, JobOutcome, JobStart};
pub use member_label::MemberLabel;
pub use object::{Extent, KeptOnVolume, NeededOnVolume, Object, ObjectCopy, ObjectFilter, ObjectStatus};
pub use peer::{EnrolmentRow, PeerRow, PeerSeen};
pub use policy::{PolicyEdit, PolicyText};
pub use pool::{Pool, ScratchFeed};
pub use queue::{
    ActiveRun, Again, Cancelled, DoneRun, DueDecision, Entered, HoldChange, NewRun, NewSchedule, PendingRun, QueuedRun,
    RunAgain, RunEnd, RunOutcome, RunPlace, RunProgress, SchedulePosition, UnfinishedRuns,
};
pub use reservation::{Grant, Reservation, Resource, SeatsWanted, Wish};
pub use state::{MergedState, StateEntries, StateEntry};
pub use timeline::{
    Begun, CLOCK_BACK_MAX_NS, CLOCK_GAP_MAX_NS, ClockConfirmed, ClockDoubt, ClockReading, Timeline, id_ms_after,
};
pub use told::{TellingRow, ToldRow};
pub use user::UserRow;
pub use vault::{NeededTimes, SentVolume};
pub use volume::{KeyRef, MAIN_LIBRARY, MediumKind, Volume, VolumeState};
pub use volume_loss::{LostCopy, Promise};
pub use wanted::{CopySeen, CopyState, WantedCopy};
