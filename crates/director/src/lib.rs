//! Decides: pools, mounts, plans, and the loop that runs them.
//!
//! [`Site`] is one state directory; everything a person can ask of it is a method of it. What to do is decided by pure functions
//! of what the catalog holds (which volume a pool writes to next, in which order blocks are read); the rest carries it out.

mod admin;
mod append;
mod backup;
mod baseline;
mod config;
mod desk;
mod error;
mod events;
mod null;
mod pools;
mod rebuild;
mod restore;
mod select;
mod site;

pub use admin::{DriveRow, Loss};
pub use append::Shortfall;
pub use backup::{BackupReport, BackupRequest, BackupWatch, Level, SourceOutcome, Target};
pub use config::{Config, DataConfig, LibraryConfig};
pub use error::DirectorError;
pub use events::{Event, Events};
pub use pools::{Candidate, Choice, Fill, Refill, Shortage, choose_volume};
pub use rebuild::{RebuildReport, rebuild};
pub use restore::{FailedFile, PassRow, RestorePlan, RestoreReport};
pub use select::{Place, index_path};
pub use site::{Clock, DEFAULT_POOL, InitOptions, Site, WriterLock};
