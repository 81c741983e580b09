//! `policies`, `schedule`, `queue` and `server`: what runs by itself. `client`, `mover`: the machines of a cell.

mod client;
mod member;
mod mover;
mod policies;
mod queue;
mod serve;
mod tell;

pub(crate) use client::client;
pub(crate) use mover::mover;
pub(crate) use policies::{policies, schedule};
pub(crate) use queue::queue;
pub(crate) use serve::server;

use jiff::Timestamp;

fn ns(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}
