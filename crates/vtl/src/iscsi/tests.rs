//! The target as a wire sees it: PDUs that no well-behaved initiator would send, and what comes back.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod login;
mod management;
mod protocol;
mod raw;
