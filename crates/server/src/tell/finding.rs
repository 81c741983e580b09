//! What can be told: one thing that is so, or that happened.

use capstan_catalog::{DoneRun, RunOutcome};
use capstan_director::TellEvent;

use super::message::time_text;
use crate::restore_run::restored_in_words;

/// How long ago a run may have ended that is told of: a server that was off for longer has older news than mail.
const RUNS_TOLD_FOR_NS: i64 = 3 * 24 * 3600 * 1_000_000_000;

/// Something that people may have to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TellFinding {
    /// Which event it is.
    pub event: TellEvent,
    /// What it is known by as long as it lasts.
    pub key: String,
    /// The policy that it is about; empty for none.
    pub policy: String,
    /// The client that it is about; empty for none.
    pub client: String,
    /// Its entry in the history, if it is about a run that has one.
    pub run: Option<i64>,
    /// What it is, in a few words.
    pub subject: String,
    /// What it is, why, and what to do next.
    pub text: String,
    /// Since when it is so, or when it happened, nanoseconds since 1970; `None` for since it was found.
    pub since_ns: Option<i64>,
    /// Whether it is so until it is found no more; else it happened, once.
    pub lasts: bool,
}

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TellFindings {
    /// What a person should look at.
    pub found: Vec<TellFinding>,
    /// First words of the keys of which this look knows nothing for sure: while the clock is in doubt, what is too old.
    pub unsure: Vec<&'static str>,
}

impl TellFinding {
    /// Something that lasts and is about no policy, client or run.
    #[must_use]
    pub fn lasting(event: TellEvent, key: String, subject: String, text: String) -> Self {
        let (policy, client) = (String::new(), String::new());
        Self { event, key, policy, client, run: None, subject, text, since_ns: None, lasts: true }
    }
}

/// The runs among those that have ended lately which failed or were missed; `own` is the machine of this server.
#[must_use]
pub fn run_findings(done: &[DoneRun], own: &str, now_ns: i64) -> Vec<TellFinding> {
    let is_news = |done: &&DoneRun| done.ended_ns > now_ns.saturating_sub(RUNS_TOLD_FOR_NS);
    done.iter().filter(is_news).filter_map(|done| run_finding(done, own)).collect()
}

fn run_finding(done: &DoneRun, own: &str) -> Option<TellFinding> {
    let (run, policy) = (done.run.run, &done.run.policy);
    let whose = if done.run.client == own { String::new() } else { format!(" of client {}", done.run.client) };
    let restored = restored_in_words(&done.run);
    let (event, subject, further) = match done.outcome {
        RunOutcome::Failed if restored.is_some() => {
            let further = "It is not tried again: whoever asked for it was told. To look further: `capstan queue done`";
            let subject = format!("the restore of {} failed", restored.unwrap_or_default());
            (TellEvent::Failed, subject, further.to_owned())
        }
        RunOutcome::Failed => {
            let attempts = match done.run.attempt {
                0 | 1 => "1 attempt".to_owned(),
                many => format!("{many} attempts"),
            };
            let look = done.job.map_or_else(|| "capstan queue done".to_owned(), |job| format!("capstan history {job}"));
            let further = format!(
                "It is not tried again before its next time. To begin it again now: `capstan queue rerun {run}`. To look \
                 further: `{look}`"
            );
            (TellEvent::Failed, format!("policy {policy}{whose} failed ({attempts})"), further)
        }
        RunOutcome::Missed => {
            let further = format!(
                "To run it now: `capstan queue add {policy}`. To look further: `capstan queue done`, `capstan schedule`"
            );
            (TellEvent::Missed, format!("policy {policy}{whose} missed a run"), further)
        }
        RunOutcome::Succeeded | RunOutcome::Warned | RunOutcome::Cancelled => return None,
    };
    let began = done.started_ns.map(|at| format!(", the last attempt began {}", time_text(at))).unwrap_or_default();
    let text = format!("Run {run}, ended {}{began}: {}. {further}", time_text(done.ended_ns), full(&done.message));
    Some(TellFinding {
        event,
        key: format!("run {run}"),
        policy: policy.clone(),
        client: done.run.client.clone(),
        run: done.job,
        subject,
        text,
        since_ns: Some(done.ended_ns),
        lasts: false,
    })
}

/// A message without the stop that the next sentence brings.
fn full(message: &str) -> &str {
    message.trim().trim_end_matches('.')
}
