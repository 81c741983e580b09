//! The doors: HTTP for agents and people, a stream of bytes for KMIP, and a small one for strangers who enrol.
//!
//! ```text
//!  accept --> place in the crowd --> TLS (5 s) --> Peer --> serve_streams: a handler of bytes (KMIP)
//!                  |                                   `--> serve_members: gate, limits, Router, log
//!                  `-- full? who has been quiet longest is shown out          serve_strangers: the same without a peer
//! ```
//! What is served is put together elsewhere: a desk gives an [`axum::Router`], and every handler finds the
//! [`crate::identity::Peer`] and the [`capstan_keys::api::RequestId`] of the request among its extensions. Errors are
//! [`Refusal`]s, which are `application/problem+json`.
//!
//! **Limits.** All are in [`Limits`], and none can be switched off. A connection has one of three standings: arriving
//! (no TLS yet), idle, busy. When all places are taken the one that has been arriving longest gives way, then the one
//! that has been idle longest; busy ones never do. So whoever opens connections by the thousand displaces himself, and
//! whoever asks is served. A request's head must be complete so many seconds after its first byte, however they trickle
//! in, and its body and answer in so many more; a peer that does not read is dropped as well. A connection that waits
//! for its first byte of TLS costs its socket and a small task.
//!
//! **Order of locks:** the crowd's only, never held across a wait.

mod accept;
mod crowd;
mod enrolment;
mod health;
mod http;
mod limits;
mod pace;
mod refusal;
mod shutdown;
mod tally;

/// The kind of a refusal: the peer's certificate was revoked.
pub(crate) const REVOKED: &str = "revoked";

pub use accept::{Visit, listen, serve_streams};
pub use crowd::{Place, Standing};
pub use enrolment::{enrolment_routes, renewal_routes};
pub use health::{Readiness, health_routes};
pub use http::{CameFrom, serve_members, serve_strangers};
pub use limits::Limits;
pub use refusal::{Input, Refusal};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use tally::Tally;
