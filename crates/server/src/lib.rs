//! Runs policies when they are due.
//!
//! ```text
//! policies --due--> pending runs --decide--> active runs --worker--> done runs
//!                        ^                        |
//!                        '----- tried again ------'
//! ```
//! What is decided is decided by functions of a state and a time: [`due()`] says which runs have come, [`decide()`]
//! which of the runs that wait begin and what each of the others waits for, [`forecast()`] which runs come next. The
//! server calls them, and so does every command that shows the queue: what is shown is what happens.
//!
//! [`serve()`] is the loop around them. It owns the queue by a term ([`capstan_director::ServerTerm`]), has a
//! [`Worker`] do the work, and records what came of it. A server that is killed loses nothing: its runs wait again as
//! soon as another one begins its term, and go on from what is on the volumes.
//!
//! [`cell`] is what the peers of a cell meet: listeners, enrolment, and orders to clients.
//!
//! [`tell`] tells people what went wrong, by mail, webhook and command.
//!
//! Budget: 12,000 lines of source, for all that a cell's server will be.

pub mod cell;
mod decide;
mod due;
mod expiry;
mod look;
mod metrics;
mod restore_run;
mod serve;
pub mod tell;

pub use decide::{
    LimitOf, PeerAway, RunDecision, RunTerms, Situation, VolumeTaken, WaitingRun, WaitsFor, WorkingRun, decide,
};
pub use due::{ComingRun, DecidedUntil, DueRuns, Scheduled, due, forecast};
pub use expiry::{expire, make_room, migrate};
pub use look::{Look, MoverAway, look, network_of_client, note_nobody_listens, peers_there_twice};
pub use metrics::{ServedMetrics, serve_metrics};
pub use serve::{Expired, Notice, RunCounts, TakesEntry, WorkEnd, Worked, Worker, serve};
