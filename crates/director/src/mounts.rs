//! What is in the drives of this process: one state, shared by every job that mounts.
//!
//! Locks: `choosing` before any other; each of the others is held for one look or one change, and never together with
//! another.

use std::sync::Mutex;

use capstan_format::Volser;
use capstan_tape::PaceMeter;

/// Volumes in drives, and what their drives said of them.
#[derive(Default)]
pub(crate) struct Mounts {
    /// Held from the choice of a volume to its mount and label, so that two copies never choose the same.
    pub(crate) choosing: Mutex<()>,
    /// Volumes that are in a drive of this process.
    pub(crate) in_use: Mutex<Vec<Volser>>,
    /// Volumes that their drives call worn or damaged, and the words for it.
    pub(crate) worn: Mutex<Vec<(Volser, String)>>,
    /// TapeAlert flags that were up before a volume came into its drive: they are about the one before, or the drive.
    pub(crate) left_alerts: Mutex<Vec<(Volser, u16)>>,
    /// What paced drives did, by their number.
    pub(crate) meters: Mutex<Vec<(u32, PaceMeter)>>,
}
