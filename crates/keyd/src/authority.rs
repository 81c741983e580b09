//! Who may do what: roles, the table of acts, users, and the queue in which some acts wait for a quorum.
//!
//! ```text
//! certificate --Users::identify--> User --may(user, act)--> AtOnce ----------------------------------> done, noted in the audit log
//!                                               |
//!                                               +---------> ByQuorum --Pending::request--> waits for m approvals, or expires
//!                                               |                                            |
//!                                               +---------> Denied: names who may            +--execute--> Mandate, once
//! ```
//! The roles are those of the StorageTek key manager, and like there nobody has power over keys, people and proof at
//! once: security officers decide on people and nodes and see no keys; compliance officers decide on keys and see no
//! secrets; operators do the daily work; backup operators keep the copies; auditors look; quorum members say yes or no.
//! The table is data, in one place ([`Act`]), and `testdata/roles.txt` is its second copy, for people: a test compares
//! both cell by cell.
//!
//! **Separation of duties, decided.**
//! - A person may have several roles, for small sites have few people. Except auditors: who checks must not do.
//! - Who asks for an act does not approve it, whatever roles they have: an act by quorum takes m + 1 people, so that m
//!   stolen certificates are one too few.
//! - Each person counts once. An approval counts only while its giver is an enabled quorum member: who is thrown out
//!   takes their approvals along. The same is asked of whoever requested it.
//! - One rejection ends a request. It can be made again; who rejects stands in the audit log.
//! - Taking power away is quick, giving it is slow: one security officer disables a user or revokes an agent at once;
//!   to add a user or a role takes the quorum.
//! - No change of users may leave the cluster without a security officer and m other quorum members ([`Users::check`]).
//!
//! - To unlock a node takes no request: a locked node cannot read one, and the split credentials of the root key are
//!   its quorum. That a node may unlock itself takes one.
//!
//! - A new epoch, for which there is no majority to hold a request, takes none either: custodians and holders together
//!   are its quorum (`keyd restore`).
//!
//! **Where a request lies.** In the ledger, sealed. A record is kept until it could not be executed any more
//! ([`Pending::is_removable`]): an older state of it that somebody puts back, approved and not yet executed, would be
//! executed again. Until then the act itself has to stand a repetition, as all compare-and-set does.
//!
//! Everything here is a function of (record, who, now) and changes nothing: the desk commits what comes out by
//! compare-and-set, so that of two executions of one request only one finds the record as it was.

mod act;
mod arguments;
mod bytes;
mod certificate_serial;
mod denied;
mod pending;
mod permission;
mod public_texts;
mod quorum;
mod role;
mod user;

pub use act::Act;
pub use arguments::{Arguments, InvalidArgument};
pub use certificate_serial::CertificateSerial;
pub use denied::Denied;
pub use pending::{Decision, Mandate, Pending, PendingId, Refused, RequestDigest, Stage, Vote};
pub use permission::may;
pub use quorum::QuorumRule;
pub use role::{Role, Roles};
pub use user::{Unworkable, User, UserStatus, Users};
