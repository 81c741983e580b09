//! Why the queue did not take somebody's word.

use capstan_keys::Name;
use thiserror::Error;

use super::super::{Act, Denied};
use super::PendingId;
use capstan_service::time::rfc3339;

/// Why the queue did not take somebody's word.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// Operator: they may not.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Caller: this waits for nobody.
    #[error("to {} takes no quorum: do it at once", act.words())]
    NoQuorumNeeded {
        /// The act.
        act: Act,
    },
    /// Operator: two people's work.
    #[error("{who} asked for this and cannot approve it: other quorum members must")]
    OwnRequest {
        /// Who.
        who: Name,
    },
    /// Operator: each counts once.
    #[error("{who} has already decided on this request: somebody else must")]
    DecidedAlready {
        /// Who.
        who: Name,
    },
    /// Caller: the approval is of something else.
    #[error("what was approved is not what is asked for: read the request again, and decide on that")]
    OtherRequest,
    /// Caller: something else was to be done than what was approved.
    #[error("request {id} was approved for something else: ask for what is to be done, and have it approved")]
    OtherAct {
        /// The request.
        id: PendingId,
    },
    /// Operator: not their own.
    #[error("only {requested_by} can withdraw this request: a quorum member can reject it")]
    NotOwn {
        /// Who asked for it.
        requested_by: Name,
    },
    /// Operator: more must approve.
    #[error("{approvals} of {needed} approvals are there: ask other quorum members")]
    TooFew {
        /// Those that count.
        approvals: usize,
        /// Those that it takes.
        needed: u8,
    },
    /// Operator: its time is over.
    #[error("the request expired on {}: ask again", rfc3339(*expired_ns))]
    Expired {
        /// When.
        expired_ns: i64,
    },
    /// Operator: it was rejected or withdrawn.
    #[error("the request was ended by {by}: ask again, once they agree")]
    Ended {
        /// By whom.
        by: Name,
    },
    /// Operator: it was done already.
    #[error("the request was executed by {by} on {}: it is done, and is not done again", rfc3339(*at_ns))]
    Executed {
        /// By whom.
        by: Name,
        /// When.
        at_ns: i64,
    },
    /// Host: this node's clock is behind.
    #[error(
        "this node's clock is at {}, and the request knows of {}: set the clock, and try again", rfc3339(*now_ns), rfc3339(*known_ns)
    )]
    ClockBehind {
        /// What this node takes for now.
        now_ns: i64,
        /// A time that has passed already.
        known_ns: i64,
    },
}
