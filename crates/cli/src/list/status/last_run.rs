//! How a policy or job ended last.

use capstan_catalog::RunOutcome;

/// The last run of a policy for a client, or of a job here.
#[derive(Clone)]
pub(super) struct LastRun {
    pub(super) policy: String,
    pub(super) client: String,
    pub(super) ended_ns: i64,
    pub(super) outcome: RunOutcome,
    pub(super) message: String,
    /// Its last entry in the history, if it has one.
    pub(super) job: Option<i64>,
}
