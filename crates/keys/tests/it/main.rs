//! The sealed store and the client of a cluster from outside.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cluster;
mod store;
