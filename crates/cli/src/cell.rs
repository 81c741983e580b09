//! `policies`, `schedule`, `queue` and `server`: what runs by itself. `client`, `mover`: the machines of a cell.
//! `user`, `audit`: its people, and what they did.

mod client;
mod member;
mod mover;
mod policies;
mod queue;
mod serve;
mod service;
mod tell;
mod user;

pub(crate) use client::client;
pub(crate) use mover::mover;
pub(crate) use policies::{policies, schedule};
pub(crate) use queue::queue;
pub(crate) use serve::server;
pub(crate) use user::{audit, user};
