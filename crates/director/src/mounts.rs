//! What drives of this process said of the volumes in them: one state, shared by every job that mounts. Who has which
//! volume stands in the catalog ([`crate::hold`]).
//!
//! Each lock is held for one look or one change, and never together with another.

use std::sync::Mutex;

use capstan_format::{KeyTag, Volser};

/// What drives said of volumes.
#[derive(Default)]
pub(crate) struct Mounts {
    /// Volumes that their drives call worn or damaged, and the words for it.
    pub(crate) worn: Mutex<Vec<(Volser, String)>>,
    /// TapeAlert flags that were up before a volume came into its drive: they are about the one before, or the drive.
    pub(crate) left_alerts: Mutex<Vec<(Volser, u16)>>,
    /// Keys that blocks named and that could not be had, until somebody asks.
    pub(crate) missed_keys: Mutex<Vec<(Volser, KeyTag)>>,
}
