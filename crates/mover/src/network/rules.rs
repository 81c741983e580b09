//! What a client lets a server do.

use std::ffi::OsString;
use std::path::Path;

use super::undoing::OwedScripts;

/// What the machine's own settings allow, whoever orders it.
pub trait ClientRules: Sync {
    /// Whether this may be read.
    fn allows(&self, path: &Path) -> bool;

    /// The program of this name, with its arguments.
    fn script(&self, name: &str) -> Option<Vec<OsString>>;

    /// What the jobs of this process owe, if that is kept beyond each of them.
    fn owed(&self) -> Option<&OwedScripts> {
        None
    }
}
