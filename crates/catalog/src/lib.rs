//! What is on which volume: SQLite for volumes, objects and extents; Parquet for file indexes.

mod catalog;
mod checkpoint;
mod counts;
mod dump;
mod error;
mod expire;
mod history;
mod index;
mod job;
mod object;
mod order;
mod pool;
mod schema;
mod scratch;
mod seal;
mod sort;
mod state;
mod volume;

pub use catalog::Catalog;
pub use checkpoint::{CheckpointSeen, Recorded};
pub use counts::Counts;
pub use error::CatalogError;
pub use history::Version;
pub use index::{Entries, Index, Wanted};
pub use job::{Job, JobEnd, JobOutcome};
pub use object::{Extent, Object, ObjectCopy, ObjectFilter, ObjectStatus};
pub use pool::{Pool, ScratchFeed};
pub use state::{State, StateEntries, StateEntry};
pub use volume::{LostCopy, Volume, VolumeKey, VolumeState};
