//! Commands that do work.

mod backup;
mod expire;
mod key_cluster;
mod key_cluster_lists;
mod key_people;
mod key_policies;
mod key_revocation;
mod keys;
mod media;
mod recorded;
mod repair;
mod restore;

pub(crate) use backup::{backup, init};
pub(crate) use expire::{bases_line, expire};
pub(crate) use keys::keys;
pub(crate) use media::{confirm, copy, erase, forget, label, rebuild, volser};
pub(crate) use repair::repair;
pub(crate) use restore::{cat, restore, verify};
