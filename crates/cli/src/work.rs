//! Commands that do work.

mod backup;
mod care_run;
mod catalog;
mod client_restore;
mod consolidate;
mod copy_run;
mod expire;
mod job;
mod key_cluster;
mod key_cluster_lists;
mod key_output;
mod key_people;
mod key_policies;
mod key_revocation;
mod keys;
mod media;
mod reclaim;
mod recorded;
mod repair;
mod restore;
mod scrub;

pub(crate) use backup::init;
pub(crate) use care_run::care_served;
pub(crate) use catalog::catalog;
pub(crate) use client_restore::{ended_as_planned, show_planned, show_queued, show_restored, until_ended};
pub(crate) use consolidate::consolidate;
pub(crate) use copy_run::copy_served;
pub(crate) use expire::expire;
pub(crate) use job::{Served, backup, run_served};
pub(crate) use keys::keys;
pub(crate) use media::{copy, erase, forget, label, rebuild};
pub(crate) use reclaim::reclaim;
pub(crate) use repair::repair;
pub(crate) use restore::{cat, restore, verify};
pub(crate) use scrub::scrub;
