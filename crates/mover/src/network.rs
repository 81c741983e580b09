//! Sources at the other end of a network: a client reads them, and its blocks go into a session here.
//!
//! ```text
//!  client                                              mover
//!  serve_job                                           NetworkJobs: who may come, by a token
//!    orders link   <---- look, read, rows --------       NetworkJob, a SourceHost
//!                  ----- progress, report ------->
//!    walk, pax, compress                                                  session
//!    block sender  ===== blocks of one connection ==>  block receiver --> pool --> interleave ...
//!                  <---- grants: received, free ------
//! ```
//! **Who dials.** The client opens every connection, and begins it with a hello: the token of its job, and what the
//! connection is for. What protects a connection (TLS, identities) is for whoever opens it; whoever accepts it says who
//! is at the other end.
//!
//! **Credit.** A client sends a block only when the mover has reserved a free one for it. So a slow drive slows the
//! source, and a client that sends nothing holds a few blocks.
//!
//! **Links.** The blocks of a stream cross one link, or several where latency is high (`links`). The mover brings them
//! in order.
//!
//! **A block link that breaks** is opened again. The mover says how many blocks of the stream it has, and the client
//! sends what it does not have: it keeps each block until the mover has it. That a block was received says nothing of
//! its safety. What is safe is what a checkpoint recorded; a client that dies is continued from there by the next run.
//! An orders link that breaks ends the job.
//!
//! **A restore** goes the other way: the mover sends blocks as it reads them, and the client unpacks them and writes
//! files, where its own user said. Nothing is written that nobody asked for there.
//!
//! **LAN-free.** A client in the process of the mover that writes puts its blocks into the session itself (`here`).
//!
//! **Silence.** Both ends of a block link say something every 15 seconds, also while a tape is rewound, and take
//! the other for gone after a minute.

mod client;
mod frame;
mod hello;
mod here;
mod job;
#[cfg(test)]
mod kept_words;
mod links;
mod orders;
mod pattern_text;
mod peer_text;
mod pieces;
mod receiver;
mod report_bounds;
mod restore;
mod rules;
mod script;
mod sender;
#[cfg(test)]
mod several_links;
mod undoing;

pub use client::{ClientEnd, RestoreInto, serve_job};
pub use frame::protocol_fault;
pub use hello::{Dial, NetworkStream, Purpose, StreamHere};
pub use here::DialHere;
pub use job::{NetworkJob, NetworkJobs, REFUSED_BY_CLIENT, RestorePart, RestoreShare};
pub use peer_text::moves_text;
pub use rules::ClientRules;
pub use undoing::OwedScripts;

pub(crate) use hello::{common, connect};
pub(crate) use job::Expected;
pub(crate) use pieces::receive as receive_pieces;
pub(crate) use sender::{BlockLinks, BlockSender, NotSent};

use std::io;
use std::time::Duration;

use capstan_tape::with_causes;

use crate::JobToken;

/// How often each end says that it is there.
const SPEAKS_EVERY: Duration = Duration::from_secs(15);
/// After this long without a word the other end is gone.
const SILENT_MAX: Duration = Duration::from_secs(60);

/// Why a connection of data broke, in words for whoever reads the history.
fn why_broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            "the other end was stopped, or something on the way cut it".to_owned()
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing was heard for a minute".to_owned(),
        _ => with_causes(error),
    }
}
