//! What somebody does at a shell of the server's machine with volumes and objects: noted where the state directory is
//! that of a cell.

use capstan_director::Site;
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditOrigin};

use super::acts::shell_actor;
use super::log::{KnownNames, noted};
use crate::cell::CellError;

/// An act of a shell, by the command that does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellAct {
    /// Volumes are labelled.
    Label,
    /// A volume is made blank.
    Erase,
    /// A volume is taken out of the catalog.
    Forget,
    /// Objects are forgotten.
    Expire,
    /// Objects that were forgotten are taken back.
    TakeBack,
    /// Cartridges are moved.
    MoveCartridges,
    /// A pool is added, changed or removed.
    ChangePools,
    /// Objects are copied into another pool.
    Copy,
    /// Full objects are made of incrementals.
    Consolidate,
    /// Volumes are emptied.
    Reclaim,
    /// Copies that lack something are made whole.
    Repair,
    /// Files are given back, or read.
    Restore,
}

impl ShellAct {
    /// Its name in the log, and what it is done to.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Label => ("label-volumes", "volume"),
            Self::Erase => ("erase-volume", "volume"),
            Self::Forget => ("forget-volume", "volume"),
            Self::Expire => ("expire-objects", "object"),
            Self::TakeBack => ("take-back-objects", "object"),
            Self::MoveCartridges => ("move-cartridges", "volume"),
            Self::ChangePools => ("change-pools", "pool"),
            Self::Copy => ("copy-objects", "object"),
            Self::Consolidate => ("consolidate-objects", "object"),
            Self::Reclaim => ("reclaim-volumes", "volume"),
            Self::Repair => ("repair-copies", "object"),
            Self::Restore => ("restore", "object"),
        }
    }

    /// Whether it is done though it cannot be noted: whoever restores must be able to on a full disk, and have the
    /// volumes for that brought in.
    fn may_go_unnoted(self) -> bool {
        matches!(self, Self::Restore | Self::MoveCartridges)
    }
}

/// Does something at a shell, by somebody with this user id of the machine: noted before it begins and when it has
/// ended, with the names of what it is done to, if the state directory is that of a cell. What cannot be noted is not
/// done, but for restores and what they need; `tell` says so.
///
/// # Errors
/// Those of the work; or by `refuse` that the log cannot be written.
pub fn noted_at_shell<T, E>(
    site: &Site,
    user_id: u32,
    (act, names): (ShellAct, &[&str]),
    (refuse, tell): (impl FnOnce(CellError) -> E, impl FnOnce(&CellError)),
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    if !is_of_cell(site) {
        return work();
    }
    match shell_actor(user_id) {
        Ok(who) => noted_act(site, who, (act, names), (refuse, tell), work),
        Err(error) => Err(refuse(error)),
    }
}

/// The same, for what the server does by itself.
///
/// # Errors
/// Those of the work; or by `refuse` that the log cannot be written.
pub(crate) fn noted_of_itself<T, E>(
    site: &Site,
    (act, names): (ShellAct, &[&str]),
    refuse: impl FnOnce(CellError) -> E,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    match is_of_cell(site) {
        true => noted_act(site, AuditActor::Itself, (act, names), (refuse, |_: &CellError| {}), work),
        false => work(),
    }
}

/// Whether a server was ever run here, or machines or people may join: then there is a log, of all that is done.
fn is_of_cell(site: &Site) -> bool {
    ["cell/authority.pem", "cell/audit"].iter().any(|path| site.dir().join(path).exists())
}

fn noted_act<T, E>(
    site: &Site,
    who: AuditActor,
    (act, names): (ShellAct, &[&str]),
    (refuse, tell): (impl FnOnce(CellError) -> E, impl FnOnce(&CellError)),
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let (action, kind) = act.words();
    let entry = AuditEntry::new(who, AuditOrigin::Here, AuditAction::named(action));
    let entry = if names.is_empty() { entry } else { entry.of(kind, KnownNames(names)) };
    let entry = if act == ShellAct::Restore { entry.reading() } else { entry };
    let unnoted = |error| match act.may_go_unnoted() {
        true => {
            tell(&error);
            Ok(())
        }
        false => Err(refuse(error)),
    };
    noted(site, entry, unnoted, |_| "it failed", work)
}
