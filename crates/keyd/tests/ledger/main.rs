//! The ledger and its replica, on etcd members that are stopped, killed and compacted, and in memory.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../etcd/mod.rs"]
mod etcd;

mod conform;
mod faults;
mod follow;
