//! Tells people what went wrong: by mail, webhook and command, by the rules of `capstan.toml`.
//!
//! ```text
//! ended runs, findings --+                       +-- sender of oncall by mail --> arrived: noted as told
//! what was told before --+-> plan() -> messages -+-- sender of oncall by webhook
//! rules, the time -------+                       +-- ...                      --> did not: said, planned again
//! ```
//! What is told is a function of what is true and what was told ([`plan()`]), so a server that starts again tells
//! nothing twice, and what did not arrive is simply still to be told. Rejected: a queue of messages in the catalog,
//! which after a night without a mail server is a hundred mails about what is long over.
//!
//! What happens once (a run that failed) is told once. What lasts (an overdue source) is told once it was found for a
//! minute, again after the rule's time, and once when it is over. A rule sends at most one message by each of its ways
//! in ten minutes: all that came up meanwhile is in it, and what came and went is in none. What a look knows nothing of
//! for sure, because the clock is in doubt, does not begin and is not over.
//!
//! A message is noted as told after it has arrived. A server that dies in between tells it once more, because a message
//! twice is better than none.
//!
//! What `capstan status` finds is found there: a [`Worker`](crate::Worker) hands it over, and nothing is found twice.
//!
//! Limits: one message on its way for each way of each rule, [`TROUBLES_MAX`] troubles that wait to be told,
//! [`ITEMS_MAX`] things in a message, 30 seconds for each answer of a mail server and for a webhook, 60 for a command.
//! Locks: what was heard; it is never held across another one.
//!
//! Budget: 1,500 lines.

mod ask;
mod desk;
mod error;
mod finding;
mod mail;
mod message;
mod plan;
mod program;
mod sender;
mod way;
mod webhook;

pub use ask::{TellTrial, try_rule};
pub use desk::TROUBLES_MAX;
pub(crate) use desk::{TellDesk, TellFrom};
pub use error::TellError;
pub use finding::{TellFinding, TellFindings, run_findings};
pub use message::{ITEMS_MAX, TellItem, TellMessage};
pub use plan::{Found, ToldMemory, outdated, plan};
pub use sender::{TellPatience, TellSender};
pub use way::TellWay;
