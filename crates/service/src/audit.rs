//! The audit log of a process: every act with who, what, from where and result, in a chain that shows what was done to
//! it.
//!
//! ```text
//! audit/000000000001.jsonl   {"sequence":1,...,"before":"000..."}\n        a record is a line; it names the SHA-256 of the line before it,
//!                            {"sequence":2,...,"before":"9f3..."}\n        newline included: `sed -n 1p FILE | sha256sum` is what line 2 says
//! audit/000000004711.jsonl   {"sequence":4711,...}\n                       the chain goes on across files
//! audit/reserve              room for readings once the disk is full
//!
//! ledger: anchor/<kma>       (sequence, hash) of a recent line: it cannot be cut off or rewritten without the cluster
//! ```
//! JSON lines were chosen over binary records so that an auditor needs none of our programs: `tests/audit.py` checks a
//! log with what Python brings along. A keyed chain was rejected: the auditor would need the key, and who holds the key
//! could rewrite the log; anchors that other nodes hold bind this node, too.
//!
//! **Nothing secret goes in.** An [`AuditEntry`] is made of [`AuditFact`]s, and a fact is made of names, tags, numbers
//! and texts of the program itself ([`PublicText`]); there is no way to make one from a string that came from
//! somewhere.
//!
//! **An act that cannot be noted does not happen**: whoever acts notes it first and acts then, and notes what became of
//! it.
//! When the disk is full, everything that changes something is refused, by name ([`AuditError::DiskFull`]). Keys for
//! *reading* are still given: a restore is what all of this is for, and a full disk must not be a way to stop it. But
//! not unnoted: a reserve of [`RESERVE_LEN`] is given up for them, and when that is used up, they are refused, too.
//! Changes are taken again when the reserve could be laid in anew; the log then says how many were refused.
//!
//! **After a crash** the last line may be torn. None of it was acknowledged, so it is cut off, and the record that is
//! written at every start says how many bytes and what their SHA-256 was. A line that is whole and wrong, or torn and
//! followed by others, is no crash: the log is not opened ([`AuditError::Altered`]).
//!
//! What it cannot show: records after the last anchor that were cut off together with it, or a last record that was
//! changed. So anchors are set often, and nodes note each other's anchors ([`AuditEntry::witnessed`]).
//!
//! One thread writes; callers hand entries over and wait. What gathers while a flush is under way goes out with the
//! next one, in one write and one flush. Where several processes have one log, each act opens it for itself
//! ([`note_once`]): that reads the newest file anew, and is for acts that are rare.

mod anchor;
mod chain;
mod entry;
mod error;
mod folder;
mod head;
mod log;
mod verify;
mod writer;

pub use anchor::{Anchor, AnchorGoesBack};
pub use entry::{AuditAction, AuditActor, AuditEntry, AuditFact, AuditOrigin, AuditOutcome, AuditWeight, PublicText};
pub use error::AuditError;
pub use folder::{RESERVE_LEN, last_records, log_files};
pub use head::{LineHash, LogHead};
pub use log::{AuditLog, KeptHead, note_once};
pub use verify::{AuditFinding, AuditReport, LinePosition, verify};
