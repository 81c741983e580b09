//! The virtual library from outside: its units, and the iSCSI target in front of them.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod abort;
mod agent;
mod conformance;
mod events;
mod iscsi;
mod iscsi_rate;
mod protection;
mod storm;
mod units;
mod write_once;
