//! Commands that list: from the catalog, without keys.

mod clock;
mod files;
mod files_of;
mod find;
mod history;
mod jobs;
mod media;
mod objects;
mod show;
mod status;
mod why;

pub(crate) use clock::clock;
pub(crate) use files::{ls, ls_there, versions, versions_there};
pub(crate) use files_of::FilesOf;
pub(crate) use find::{find, find_there};
pub(crate) use history::history;
pub(crate) use jobs::jobs;
pub(crate) use media::{pools, volumes};
pub(crate) use objects::objects;
pub(crate) use show::show;
pub(crate) use status::{findings, metrics_of, status, status_of};
pub(crate) use why::object;
