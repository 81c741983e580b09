//! The members of a cell: clients, whose data is backed up and which have neither catalog nor drives, and how movers,
//! which have drives, join and wait at their server.
//!
//! ```text
//!  join   one-time passphrase --> STATE/cell/identity.pem, STATE/cell/server      once
//!  run    hello, then one request after the other that waits for orders           until it is stopped
//!                                   '--> each order to the handler, on a thread of its own
//! ```
//! A client dials out, and only out, so firewalls and address translation do not matter: nothing listens here. What
//! the server may ask for is bounded here and not there: `STATE/client.toml` names the paths and the programs
//! ([`ClientSettings`]), and the handler is held to it. A mover joins and waits in the same way
//! ([`run_mover`]), says where clients bring their data ([`MoverSettings`]), and keeps connections open at the server,
//! for whoever needs its drives ([`KeptConnections`]).
//!
//! A user of the cell is a person, who joins in the same way and asks what commands need ([`ServerQuestions`]).
//!
//! Orders are words ([`CellOrder`]). [`ClientWork`] carries them out: it dials the mover over TLS ([`data`]), and reads
//! there what it is asked for (`capstan_mover::serve_job`).
//! Rejected: connections that the server opens (a port on each client), and a message bus (one more program that can
//! be down).
//!
//! One process alone runs as a client or mover from a state directory ([`LockedState`]).
//!
//! Limits: [`ORDERS_AT_WORK_MAX`] orders are worked on at a time, and further ones wait at the server. One thread asks
//! the server; it holds no lock while it waits.
//!
//! Budget: 6,000 lines of source, for all that a client will be.
//!
//! ```
//! use capstan_client::{CellOrder, JobId};
//!
//! let stop = CellOrder::Stop { job: JobId([7; 16]) };
//! assert_eq!(stop.job().to_string(), "07".repeat(16));
//! ```

pub mod data;
mod error;
pub mod files;
mod join;
mod kept;
mod lock;
mod mover;
pub mod orders;
mod questions;
mod renewal;
pub mod restores;
mod run;
mod server_link;
mod settings;
mod state;
mod work;

pub use error::ClientError;
pub use join::join;
pub use kept::KeptConnections;
pub use lock::LockedState;
pub use mover::run_mover;
pub use orders::{CellOrder, JobId, OrderToken};
pub use questions::ServerQuestions;
pub use run::{MemberNotice, ORDERS_AT_WORK_MAX, run};
pub use settings::{ClientSettings, MoverSettings, is_host_and_port, may_restore_to};
pub use state::MemberState;
pub use work::{ClientWork, OrderEnd};
