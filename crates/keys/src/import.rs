//! What an import did.

use capstan_format::{KeyTag, Volser};

use crate::lifecycle::KeyState;

/// What became of one key of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedKey {
    /// The key.
    pub tag: KeyTag,
    /// Its volume.
    pub volser: Volser,
    /// What was done.
    pub outcome: ImportOutcome,
}

/// What an import did with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The store has it now, in this state.
    Added(KeyState),
    /// The store had it, and keeps its own record.
    AlreadyPresent,
    /// It was destroyed here, and stays so. Whoever wants it back all the same imports it into a new store.
    StaysDestroyed {
        /// When it was destroyed.
        destroyed_ns: i64,
    },
}
