//! Nodes of the cluster from outside: as processes, on etcd members that are processes too.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../cheap_keyd/mod.rs"]
mod cheap_keyd;
mod dumped;
mod etcd;
mod full_disk;
mod killed;
mod kmip;
mod ledger;
mod openapi;
mod people;
mod recovery;
mod two_nodes;
mod watched;
