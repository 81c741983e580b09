//! Listeners over real sockets: our client, `openssl s_client`, and peers that mean no good.
//!
//! A program of its own: it raises its limit of open files, and measures its own memory.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod crowds;
mod enrolment;
mod fail_over;
mod members;
mod node;
mod openssl;
mod slow;
