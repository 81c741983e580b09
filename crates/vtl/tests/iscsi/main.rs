//! The iSCSI target from outside: our initiator, and tools that nobody here wrote.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod access;
mod data;
mod device;
mod disk;
mod faults;
mod limits;
mod tools;
