//! What a node that is cut off has assigned: a chained file, flushed before the answer goes out.
//!
//! A node without the majority gives new volumes keys of its own pool. That a key is taken must not be forgotten,
//! whatever happens to the node: the key would be given to a second volume. So [`Journal::append`] returns when the
//! entry is on disk, and only then is the key given out. Back with the majority the desk reconciles
//! [`Journal::pending`] by compare-and-set, and says how far it came ([`Journal::reconciled`]).
//!
//! ```text
//! own     header | assigned key/4f.. | assigned key/9a.. | reconciled to 1 | assigned key/17.. | torn
//!                  MAC 1 ------------> MAC 2 ------------> MAC 3 ----------> MAC 4               cut off at the next start
//! peers   copies/<kma>: the same records, taken only where they continue the chain
//! ```
//! Each record's MAC is over the one before, under a key of that node's journal, which every node can derive and no
//! disk holds. So a copy proves itself, wherever it comes from: a node that lost its disk takes its journal back from
//! any peer ([`Journal::take_back`]), and a node that was brought back from an old copy and assigns once more what is
//! assigned already is told apart, for its chain forks ([`JournalError::Forked`], [`JournalError::PeerKnowsMore`]).
//!
//! **Torn or altered.** A crash leaves the beginning of a record, or zeros in whole sectors where the file grew and its
//! bytes did not arrive. That was never acknowledged and is cut off. Everything else that does not fit is no crash
//! ([`JournalError::Altered`]): each record's length has a checksum of its own, so that a flipped bit in it cannot pass
//! for a record that is cut short and take all that follow along. That records were cut off between two of them shows
//! no file by itself; the copies show it.
//!
//! An append that fails may stand in the journal after all, at the next start: then its key counts as assigned, and
//! nobody has it. That wastes a key. The other way round would give one out twice.
//!
//! **Wiped.** Entries hold wrapped keys, and a key may be destroyed. So once all is reconciled the file begins anew,
//! with the chain's last MAC in its header, and the old one is overwritten; a crash in between is made up for at the
//! next start. Where overwriting takes room and there is none, the new file counts all the same, and the journal is not
//! wiped ([`Journal::is_wiped`]) until there is. A copy is not told of that, and is wiped by who keeps it
//! ([`JournalCopy::wipe`]). What is torn off is overwritten before it is cut off.
//!
//! Limits: 64 MiB of what is not reconciled. One owner, no locking: the desk's loop appends.
//!
//! The bytes, little-endian:
//! ```text
//! header      "CAPSJRNL" (8) | version 1 (4) | length of the node's name (1), name | sequence before the first record (8) |
//!             MAC of the record before, or zeros (32) | HMAC-SHA-256 of 1 (1) and all before (32)
//! record      length of the body (4) | sequence (8) | CRC32C of these 12 bytes (4) | body |
//!             HMAC-SHA-256 of 2 (1), the MAC of the record before (32), and all before (32)
//! body        entry: 1 (1) | the caller's kind (1) | length of the path (2), path | sealed bytes
//!             reconciled: 2 (1) | up to which record (8)
//! segment     header | records: what one node sends to another, and what a file is
//! key         HMAC-SHA-256 under the cluster's journal key of "capstan journal v1" and the node's name
//! ```

mod chain;
mod error;
mod file;
mod medium;
mod places;
mod record;

pub use error::JournalError;
pub use file::{Journal, JournalCopy, Start};
pub(crate) use medium::wipe;
pub use record::{JournalEntry, PlacedEntry};
