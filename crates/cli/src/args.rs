//! Arguments of commands, by what the commands are about.

mod backup;
mod care;
mod cell;
mod keys;
mod list;
mod media;
mod restore;
mod status;

pub(crate) use backup::{Backup, Cipher, Device, Init, Jobs, KeyCluster, Put, WaitFor};
pub(crate) use care::{Reclaim, Scrub};
pub(crate) use cell::{
    Audit, AuditAction, BackupPolicyAction, Client, MemberEnrol, MemberJoin, MemberLabels, Mover, Policies, Queue,
    QueueAction, Schedule, Server, User, UserRoles,
};
pub(crate) use keys::{
    Approved, DriveAction, Enrol, GroupAction, KeyAction, KeyCipher, Keys, PolicyAction, PolicyAdd, Words,
};
pub(crate) use list::{Find, FindWhat, Ls, LsWhat, ObjectAction, ObjectOf, Objects, Show, Versions, VersionsWhat};
pub(crate) use media::{
    CatalogAction, CatalogOf, Consolidate, Copy, Expire, GiveUp, Label, PoolAction, Pools, Rebuild, Repair, Verify,
    Volumes,
};
pub(crate) use restore::{Cat, Get, Overwrite, Restore};
pub(crate) use status::{Clock, History, Man, Status};
