//! Listeners over real sockets: our client, `openssl s_client`, and peers that mean no good.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod crowds;
mod enrolment;
mod fail_over;
mod members;
mod node;
mod openssl;
mod slow;
