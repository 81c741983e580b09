//! `policies`, `schedule`, `queue` and `server`: what runs by itself. `client`: the machines of a cell.

mod client;
mod policies;
mod queue;
mod serve;
mod tell;

pub(crate) use client::client;
pub(crate) use policies::{policies, schedule};
pub(crate) use queue::queue;
pub(crate) use serve::server;

use jiff::Timestamp;

fn ns(at: Timestamp) -> i64 {
    i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX)
}
