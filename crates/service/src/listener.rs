//! Listeners: HTTP for members, a stream of bytes for other protocols, and a small HTTP for whoever enrols.
//!
//! ```text
//!  accept --> Permit --> TLS (5 s) --> Peer --> serve_streams: a handler of bytes (KMIP)
//!               |                         `---> serve_members: gate, limits, Router, log
//!               `-- none left? the connection that has been quiet longest is evicted     serve_enrolment: without a peer
//! ```
//! What is served is put together elsewhere: the program gives an [`axum::Router`], and every handler finds the
//! [`crate::identity::Peer`], the [`RemoteAddress`] and the [`capstan_keys::api::RequestId`] of the request among its
//! extensions. Errors are [`crate::problem::Refusal`]s, which are `application/problem+json`.
//!
//! **Limits.** All are in [`ListenerLimits`], and none can be switched off. A connection has one of three states:
//! arriving (no TLS yet), idle, busy. When all permits are held, the connection that has been arriving longest gives
//! way, then the one that has been idle longest; busy ones never do. A connection is busy once a request is there as a
//! whole (a body of more than 64 KiB is not waited for). So whoever opens connections by the thousand, or sends half of
//! a request on each, displaces himself, and whoever asks is served. A request's head must be complete so many seconds
//! after its first byte, however they trickle in, and its body and answer in so many more; a peer that does not read is
//! dropped, too. A connection that waits for its first byte of TLS costs its socket and a small task.
//!
//! **Order of locks:** the limiter's only, never held across a wait.

mod accept;
mod connection_limiter;
mod counts;
mod http;
mod limits;
mod request_timer;

pub use accept::{PeerConnection, listen, serve_streams};
pub use connection_limiter::{ConnectionState, Permit};
pub use counts::ConnectionCounts;
pub use http::{ACCESS_LOG, RemoteAddress, serve_enrolment, serve_members};
pub use limits::ListenerLimits;
