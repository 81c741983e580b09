//! What a restore may do.

use rustix::process::geteuid;

/// What happens to what already exists in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overwrite {
    /// It stays as it is, content and metadata; directories are entered.
    Never,
    /// A file of the same size and modification time stays, and so does a symbolic link where a directory should be;
    /// everything else is replaced.
    Changed,
    /// It is replaced. A directory is never replaced by something else.
    Always,
}

/// Whose files are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// Owner and group as stored. Setuid and setgid bits and capabilities are set where this succeeded.
    Restore,
    /// Owner and group as stored, and no file gets setuid and setgid bits or capabilities: each that had some is a
    /// problem. Whoever may order a restore may not thereby give away the rights of others.
    WithoutPrivileges,
    /// Everything belongs to the caller, and setuid, setgid and capabilities are left out; a directory that has the
    /// group it had keeps its setgid bit.
    Caller,
}

/// Whether device nodes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceNodes {
    /// They are listed as problems instead: a device node in a backup opens a device of this machine.
    Refuse,
    /// They are made.
    Create,
}

/// When what was written is on stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Whenever the system gets to it.
    Lazy,
    /// Before [`super::RestoreTarget::finish`] returns.
    Synced,
}

/// What a restore may do.
#[derive(Debug, Clone)]
pub struct ExtractOptions {
    /// What happens to what exists.
    pub overwrite: Overwrite,
    /// Whose files are made.
    pub owners: Owners,
    /// Whether device nodes are made.
    pub devices: DeviceNodes,
    /// When it is on stable storage.
    pub durability: Durability,
    /// Leading components that are taken from each path.
    pub strip: usize,
    /// Memory for what waits for the end, directory metadata, hard links and what these may be made to; beyond it a
    /// file in the target is used.
    pub deferred_bytes_max: usize,
}

impl Default for ExtractOptions {
    /// Nothing existing is touched, no devices, owners as stored if the caller is root.
    fn default() -> Self {
        let owners = if geteuid().is_root() { Owners::Restore } else { Owners::Caller };
        Self {
            overwrite: Overwrite::Never,
            owners,
            devices: DeviceNodes::Refuse,
            durability: Durability::Lazy,
            strip: 0,
            deferred_bytes_max: 8 << 20,
        }
    }
}

/// Whether the caller wants a member, asked before anything of it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberChoice {
    /// Under its own path.
    Take,
    /// Under this path.
    TakeAs(Vec<u8>),
    /// Under this path, if it is missing: a directory that only leads to something. One that exists is left as it is.
    Enter(Vec<u8>),
    /// Not at all.
    Skip,
}
