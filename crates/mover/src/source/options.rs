//! What of a tree is read, and what is left out.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::snapshot::SnapshotUse;

/// What a walk does where another file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Mounts {
    /// It goes on, except into file systems that the kernel makes up (`proc`, `sysfs`, ...), unless they are named as a
    /// source.
    #[default]
    Cross,
    /// It stores the mount point and goes no further.
    Stay,
}

/// What a walk does with directories that say by a `CACHEDIR.TAG` that they hold nothing of worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum CacheDirectories {
    /// They are read as any other.
    #[default]
    Read,
    /// The directory and its tag are stored, and nothing else of it, unless it is named as a source.
    LeaveOut,
}

/// What to leave out of a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeOptions {
    /// Patterns of what is left out with everything below it, as [`super::PathPatterns`] takes them.
    pub excludes: Vec<String>,
    /// What to do at mount points.
    pub mounts: Mounts,
    /// What to do with caches.
    pub caches: CacheDirectories,
    /// Whether it is read from a snapshot.
    #[serde(default)]
    pub snapshot: SnapshotUse,
    /// Whether a directory in which nothing is any more counts as emptied. Without that, what was in it at the last
    /// backup keeps its state: more likely than not its file system is not mounted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_empty: bool,
}

/// The rule that says [`CacheDirectories::LeaveOut`].
pub const CACHES_RULE: &str = "--exclude-caches";

impl TreeOptions {
    /// What is left out, as a set in the words of the command line: two backups with the same rules look at the same
    /// paths.
    pub fn rules(&self) -> BTreeSet<String> {
        let mut rules: BTreeSet<String> = self.excludes.iter().cloned().collect();
        if self.mounts == Mounts::Stay {
            rules.insert("--one-file-system".to_owned());
        }
        if self.caches == CacheDirectories::LeaveOut {
            rules.insert(CACHES_RULE.to_owned());
        }
        rules
    }
}
