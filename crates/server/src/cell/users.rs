//! Users of the cell: people, what each may do, and what they ask and do.
//!
//! ```text
//!  user == mutual TLS ==> user_routes --.
//!                                        '--> CellActs: rights (catalog) --> audit log --> Site
//!  somebody at a shell of the server ---'               |
//!                                                       '-- no: refused, and noted
//! ```
//! - **One way for both.** A command asks [`CellActs`] whether it runs beside the server or over the network; what it
//!   prints is the same. At a shell, whoever may write the state directory may do everything, and is noted by the
//!   user id.
//! - **What changes something is noted before it is done**, and what came of it afterwards; refusals are noted; looking
//!   is not, but for the audit log.
//! - **Rights are read at each request.** A change holds from the next one on.

mod acts;
mod cartridges;
mod log;
mod media;
pub mod media_words;
mod members;
mod policies;
mod queue;
mod rights;
mod shell;
pub mod task_words;
pub mod words;

pub use acts::CellActs;
pub use cartridges::move_cartridges;
pub use queue::{peer_away_in_words, run_outcome_word};
pub use rights::{CellAct, CellRole, CellRoles, ClientsOf, Rights};
pub use shell::{ShellAct, noted_at_shell};

pub(crate) use shell::noted_of_itself;

pub(super) use cartridges::VOLUMES_MAX;
pub(super) use log::{KnownNames, Refusals, note};
pub(super) use queue::run_waits_for;
