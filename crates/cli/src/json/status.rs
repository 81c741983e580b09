//! `status` and `history`.

use capstan_director::HistoryEntry;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

use super::Source;
use super::lists::{ClockRow, DamageRow};
use crate::wording::outcome_name;

/// `status`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct StatusRow {
    /// The state directory.
    pub(crate) state: String,
    /// Objects that are complete.
    pub(crate) objects_complete: usize,
    /// Those that can be restored in full.
    pub(crate) objects_protected: usize,
    /// Those that cannot.
    pub(crate) objects_unprotected: Vec<String>,
    /// Those that lack a copy that was promised and that no policy of copies makes.
    pub(crate) objects_lacking_a_copy: usize,
    /// What policies of copies have yet to copy; one that has nothing to is left out.
    pub(crate) copies_owed: Vec<StatusOwed>,
    /// Objects that a run left open.
    pub(crate) objects_interrupted: usize,
    /// Objects that a run writes now.
    pub(crate) objects_running: usize,
    /// Files of what is protected.
    pub(crate) files: u64,
    /// Bytes of what is protected.
    pub(crate) bytes: u64,
    /// How many volumes there are.
    pub(crate) volumes: usize,
    /// What is written on them.
    pub(crate) written_bytes: u64,
    /// Volumes that are suspect.
    pub(crate) suspect: Vec<String>,
    /// When the latest protected object was complete, nanoseconds since 1970.
    pub(crate) latest_ended_ns: Option<i64>,
    /// What the clock says, and whether that is believed.
    pub(crate) clock: ClockRow,
    /// Objects that are kept only because younger ones stand on them.
    pub(crate) objects_kept_as_bases: usize,
    /// Objects of which something can be read in no copy any more.
    pub(crate) objects_lost_in_part: Vec<String>,
    /// What is on record as damaged.
    pub(crate) damage: Vec<DamageRow>,
    /// Why the library cannot be used; null if it can.
    pub(crate) library_problem: Option<String>,
    /// Whether a server runs policies when they are due.
    pub(crate) server_runs: bool,
    /// How many policies there are.
    pub(crate) policies: usize,
    /// Runs of policies that wait.
    pub(crate) runs_waiting: usize,
    /// Runs of policies that are at work.
    pub(crate) runs_at_work: usize,
    /// Objects whose list of files is gone from the catalog.
    pub(crate) indexes_missing: Vec<String>,
    /// Whether the key store is not there.
    pub(crate) key_store_missing: bool,
    /// Volumes whose keys are not in the key store, where that was made anew.
    pub(crate) volumes_without_key: Vec<String>,
    /// Volumes whose keys are in no export that was made here.
    pub(crate) volumes_not_exported: Vec<String>,
    /// How each source stands.
    pub(crate) sources: Vec<StatusSource>,
    /// What runs now.
    pub(crate) running: Vec<RunRow>,
    /// Whether a person should look: the command ends with 3 then.
    pub(crate) attention: bool,
    /// At what, a line each, as people read them.
    pub(crate) attention_lines: Vec<String>,
}

/// How a source stands.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct StatusSource {
    /// The source.
    #[serde(flatten)]
    pub(crate) source: Source,
    /// The host.
    pub(crate) client: String,
    /// The last object that can be restored in full; null for none.
    pub(crate) object: Option<String>,
    /// When that was complete, nanoseconds since 1970.
    pub(crate) ended_ns: Option<i64>,
    /// How long ago that is, in nanoseconds; null for none, or while a clock is in doubt.
    pub(crate) age_ns: Option<i64>,
    /// Paths of it that vanished, or could not be read in full.
    pub(crate) problems: Option<u64>,
    /// Copies of it that are known to be whole.
    pub(crate) copies_whole: usize,
    /// Copies of it that were promised.
    pub(crate) copies_promised: usize,
    /// Copies of it that are whole and cannot be read, because a key is not in the key store or was destroyed;
    /// `copies_whole` is without them.
    pub(crate) copies_without_key: usize,
    /// A later object that is open; null for none.
    pub(crate) open: Option<String>,
    /// The run that writes that; null for none.
    pub(crate) run: Option<i64>,
    /// Whether the last backup is older than is wanted.
    pub(crate) overdue: bool,
    /// Whether somebody said that the source is gone.
    pub(crate) gone: bool,
    /// What to do; null for nothing.
    pub(crate) next: Option<String>,
}

/// What a policy of copies has yet to copy.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct StatusOwed {
    /// The policy.
    pub(crate) policy: String,
    /// The pool that the copies go to.
    pub(crate) pool: String,
    /// How many objects its next run would copy.
    pub(crate) objects: usize,
    /// How many more have not ended for as long as its delay.
    pub(crate) later: usize,
    /// When the oldest of them ended, nanoseconds since 1970.
    pub(crate) oldest_ended_ns: i64,
    /// Since when that one could have been copied, the policy being there, nanoseconds since 1970.
    pub(crate) since_ns: i64,
    /// Why no run of the policy comes by itself: it `cannot run`, `is switched off` or `has no schedule`; null if one
    /// does.
    pub(crate) not_by_itself: Option<String>,
}

/// What a command did or does: a line of `history`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct RunRow {
    /// Its number.
    run: i64,
    /// `backup`, `restore`, `verify`, `copy`, `repair`, `expire`, `label`, `erase`, `forget` or `rebuild`.
    kind: String,
    /// To what it was done.
    subject: String,
    /// `running`, `done`, `problems`, `busy` (it did not begin, because another job had what it needs), `failed`,
    /// `stopped` or `killed`.
    outcome: &'static str,
    /// When it was begun, nanoseconds since 1970.
    started_ns: i64,
    /// When it ended; null while it runs, and where it was killed.
    ended_ns: Option<i64>,
    /// The exit code of its command.
    exit_code: Option<u8>,
    /// Files handled.
    files: u64,
    /// Bytes of their content.
    bytes: u64,
    /// Bytes written to volumes.
    stored_bytes: u64,
    /// How it ended, in a line.
    message: String,
    /// The objects that it wrote.
    objects: Vec<String>,
}

/// `history RUN`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub(crate) struct ShownRun {
    /// The run.
    #[serde(flatten)]
    pub(crate) run: RunRow,
    /// What it said, a line each.
    pub(crate) log: Vec<String>,
}

pub(crate) fn run_row(row: &HistoryEntry) -> RunRow {
    let (job, end) = (&row.job, row.job.end.as_ref());
    RunRow {
        run: job.id,
        kind: job.kind.clone(),
        subject: job.subject.clone(),
        outcome: outcome_name(row),
        started_ns: job.started_ns,
        ended_ns: end.map(|end| end.ended_ns),
        exit_code: end.map(|end| end.exit_code),
        files: end.map_or(0, |end| end.files),
        bytes: end.map_or(0, |end| end.bytes),
        stored_bytes: end.map_or(0, |end| end.stored),
        message: end.map(|end| end.message.clone()).unwrap_or_default(),
        objects: row.objects.iter().map(ToString::to_string).collect(),
    }
}
