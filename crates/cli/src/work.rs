//! Commands that do work.

mod backup;
mod keys;
mod media;
mod restore;

pub(crate) use backup::{backup, init};
pub(crate) use keys::keys;
pub(crate) use media::{copy, erase, expire, label, rebuild};
pub(crate) use restore::{cat, restore, verify};
