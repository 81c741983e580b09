//! What takes longer than a request may: it is begun, and asked for until it is done.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RequestId;

/// A job that is under way. It is asked for at the node that began it, and goes on when nobody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobStarted {
    /// Its id: that of the request which began it.
    pub job: RequestId,
}

/// A job, as it stands. One that failed is answered with its problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum JobSeen<T> {
    /// It is under way.
    Working {
        /// Steps that are done.
        done: u64,
        /// Of how many; 0 while that is not known.
        of: u64,
    },
    /// It is done.
    Done(T),
}
