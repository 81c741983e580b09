//! The desk: what is asked of keys, decided on the state, as one transaction.
//!
//! An [`Asked`] holds everything that a decision depends on beside the state: who asks, when, and which key of the pool
//! is given if a new one is needed. So deciding is a pure function, and the same one serves a node in its cluster, one
//! that is cut off, and the reconciliation of what that one has decided. The rules themselves are `capstan_keys`', the
//! same as on one machine.
//!
//! ```text
//!  asked + state --decide--> Decided { answer, puts, removes, rests on } --> transaction --> ledger
//!                                                                        `-> provisional, and the journal, when cut off
//! ```
//! A transaction expects every record that the decision rests on to be as it was: the data unit, the keys that change,
//! group, policy, agent, and the key of the pool. Each operation on a volume writes its data unit anew, so two of them
//! never pass each other unseen.

mod confirmation;
mod decide;
mod error;
mod operation;
mod pool;
mod read;

pub use decide::{Answer, Decided, decide};
pub use error::DeskError;
pub use operation::{Adopted, Asked, Operation};
pub use pool::{KeyPool, next_of_pool, open_pool_key, pool_key_of, pool_of};
pub use read::{open, read, recovered};
