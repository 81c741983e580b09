//! `queue`: what waits and why, what runs, what has ended; and what a person does about it.

use std::process::ExitCode;

use capstan_server::cell::users::words::{
    ChangeRuns, EnterRuns, QueueChangeRow, QueueRow, RerunRuns, RunChange, RunNotChanged, RunProgressRow, RunsChanged,
};

use crate::args::{self, QueueAction};
use crate::door::{Door, door};
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::json;
use crate::output::{print, print_rows};
use crate::table::Table;
use crate::units;

/// Runs that a server changes by one request.
const RUNS_AT_ONCE: usize = 100;
/// Longest message in a table.
const MESSAGE_CHARS_MAX: usize = 300;

pub(crate) fn queue(cli: &Globals, args: &args::Queue) -> Result<ExitCode, Failure> {
    let door = door(cli)?;
    let change = |change, runs: &[i64]| {
        let mut all: Option<RunsChanged> = None;
        for runs in runs.chunks(RUNS_AT_ONCE) {
            let changed = door.change_runs(&ChangeRuns { change, runs: runs.to_vec() })?;
            match &mut all {
                None => all = Some(changed),
                Some(all) => {
                    all.changes.extend(changed.changes);
                    all.failed.extend(changed.failed);
                }
            }
        }
        all.map_or(Ok(ExitCode::SUCCESS), |changed| tell(cli, &changed, false))
    };
    match &args.action {
        None => list(cli, &door),
        Some(QueueAction::Done { last }) => done(cli, &door, *last),
        Some(QueueAction::Add { policies, client, full, now }) => {
            let asked = EnterRuns { policies: policies.clone(), client: client.clone(), full: *full, now: *now };
            tell(cli, &door.enter_runs(&asked)?, client.is_some())
        }
        Some(QueueAction::Cancel { runs }) => change(RunChange::Cancel, runs),
        Some(QueueAction::Hold { runs }) => change(RunChange::Hold, runs),
        Some(QueueAction::Release { runs }) => change(RunChange::Release, runs),
        Some(QueueAction::Rerun { runs }) => tell(cli, &door.rerun(&RerunRuns { runs: runs.clone() })?, true),
    }
}

fn list(cli: &Globals, door: &Door) -> Result<ExitCode, Failure> {
    let queue = door.queue()?;
    if cli.json {
        return print_rows(queue.runs.into_iter().map(Ok));
    }
    if !queue.is_served {
        eprintln!("no server is running, so no run starts. Start one: capstan server run");
    }
    if queue.runs.is_empty() {
        eprintln!("the queue is empty");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["run", "policy", "client", "state", "since", "done", "history", "waits for"]);
    for row in &queue.runs {
        table.row(vec![
            row.run.to_string(),
            name_of(row),
            row.client.clone(),
            row.state.to_string(),
            units::time(row.started_ns.unwrap_or(row.entered_ns)),
            row.progress.as_ref().map_or_else(|| "-".to_owned(), how_far),
            row.history.map_or_else(|| "-".to_owned(), |job| job.to_string()),
            with_times(row),
        ]);
    }
    print(&table)
}

/// How far a run at work is.
fn how_far(progress: &RunProgressRow) -> String {
    let planned = progress.bytes_planned.map(|planned| format!(" of {}", units::bytes(planned))).unwrap_or_default();
    format!("{}{planned} at {}/s", units::bytes(progress.bytes), units::bytes(progress.rate))
}

/// The policy of a run, or that it is a restore.
fn name_of(row: &QueueRow) -> String {
    match (&row.restore, row.full) {
        (Some(_), _) => "(restore)".to_owned(),
        (None, true) => format!("{} (full)", row.policy),
        (None, false) => row.policy.clone(),
    }
}

/// What a run waits for in words, with the times that are known of it in this machine's zone, and why its last attempt
/// did not do it.
fn with_times(row: &QueueRow) -> String {
    let last = row.last_message.as_deref().filter(|message| !message.is_empty());
    let last = last.map(|message| format!("; last attempt: {}", in_one_line(message)));
    format!("{}{}", waits_with_times(row), last.unwrap_or_default())
}

fn waits_with_times(row: &QueueRow) -> String {
    let time = |what: &str, ns: Option<i64>| ns.map(|ns| format!("{what} {}", units::time(ns)));
    let said = |text: Option<String>| Some(text?).filter(|text| !text.is_empty());
    match row.waits_for.as_deref() {
        Some("time") => {
            [Some(row.message.clone()), time("at", row.until_ns)].into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        waits_for => {
            let until = match waits_for {
                None => time("usually done by", row.until_ns),
                Some("window") => time("which opens", row.until_ns),
                Some(_) => time("probably free by", row.until_ns),
            };
            let parts = [said(Some(row.message.clone())), until, time("last seen", row.seen_ns)];
            parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    }
}

/// A message of several lines; what no line of a table has room for is in the history.
fn in_one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let text = lines.collect::<Vec<_>>().join("; ").replace("; because: ", ", because: ");
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn done(cli: &Globals, door: &Door, last: u32) -> Result<ExitCode, Failure> {
    let done = door.done_runs(last)?.runs;
    if cli.json {
        return print_rows(done.into_iter().map(Ok));
    }
    if done.is_empty() {
        eprintln!("no run has ended yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["run", "policy", "client", "due", "ended", "outcome", ">attempts", "history", "what"]);
    for row in &done {
        table.row(vec![
            row.run.to_string(),
            name_of(row),
            row.client.clone(),
            match (row.due_ns, row.state.as_ref()) {
                (Some(due_ns), _) => units::time(due_ns),
                (None, "missed") => "-".to_owned(),
                (None, _) => "by hand".to_owned(),
            },
            row.ended_ns.map_or_else(String::new, units::time),
            row.state.to_string(),
            row.attempt.to_string(),
            row.history.map_or_else(|| "-".to_owned(), |job| job.to_string()),
            in_one_line(&row.message),
        ]);
    }
    print(&table)
}

/// Says what became of runs, and fails with the last that nothing could be done with.
fn tell(cli: &Globals, changed: &RunsChanged, names_clients: bool) -> Result<ExitCode, Failure> {
    let mut code = ExitCode::SUCCESS;
    for row in &changed.changes {
        if row.change == "waiting" {
            code = ExitCode::from(DONE_WITH_PROBLEMS);
        }
        if cli.json {
            json::print(row)?;
        } else if !cli.quiet {
            println!("{}", in_words(row, changed, names_clients));
        }
    }
    let entered = changed.changes.iter().any(|row| row.policy.is_some());
    if entered && !changed.is_served && !cli.json && !cli.quiet {
        eprintln!("no server is running: the run starts after you start one (capstan server run)");
    }
    let Some((last, before)) = changed.failed.split_last() else { return Ok(code) };
    for RunNotChanged { reason, .. } in before {
        eprintln!("capstan: {reason}");
    }
    Err(Failure::Other(last.reason.clone()))
}

fn in_words(row: &QueueChangeRow, changed: &RunsChanged, names_clients: bool) -> String {
    let run = row.run;
    // The name of the only client is no news.
    let of_policy = changed.changes.iter().filter(|other| other.policy == row.policy).count();
    let of = match (&row.policy, &row.client) {
        (Some(policy), Some(client)) if names_clients || of_policy > 1 => format!("{policy} for client {client}"),
        (policy, _) => policy.clone().unwrap_or_default(),
    };
    match (row.change.as_ref(), changed.is_served) {
        ("entered", _) => format!("run {run} of {of} is in the queue"),
        ("waiting", _) => format!("{of} has a run in the queue already: run {run}"),
        ("stopping", true) => format!("run {run} is told to stop: it flushes what it has read, which takes a moment"),
        ("stopping", false) => {
            format!("run {run} will be cancelled when a server starts: the server that ran it is gone")
        }
        (change, _) => format!("run {run} is {change}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_waits_for_is_said_with_its_times() {
        let row = |waits_for: Option<&'static str>, message: &str, until_ns, seen_ns| QueueRow {
            run: 1,
            policy: String::new(),
            client: String::new(),
            restore: None,
            full: false,
            state: "waiting".into(),
            due_ns: None,
            entered_ns: 0,
            started_ns: None,
            ended_ns: None,
            attempt: 1,
            priority: 0,
            waits_for: waits_for.map(Into::into),
            until_ns,
            seen_ns,
            message: message.to_owned(),
            last_message: None,
            progress: None,
            history: None,
            session: None,
            library: None,
            drives: None,
        };
        let (at, time) = (Some(1_700_000_000_000_000_000), units::time(1_700_000_000_000_000_000));
        for (row, words) in [
            (row(Some("time"), "attempt 2", at, None), format!("attempt 2 at {time}")),
            (row(Some("window"), "its window", at, None), format!("its window, which opens {time}")),
            (row(Some("drives"), "1 drive", at, None), format!("1 drive, probably free by {time}")),
            (row(Some("drives"), "1 drive", None, None), "1 drive".to_owned()),
            (row(Some("client"), "client tern", None, at), format!("client tern, last seen {time}")),
            (row(None, "", at, None), format!("usually done by {time}")),
            (row(None, "", None, None), String::new()),
        ] {
            assert_eq!(with_times(&row), words);
        }
        let again = QueueRow {
            last_message: Some("no drive\nbecause: x".to_owned()),
            ..row(Some("time"), "attempt 2", at, None)
        };
        assert_eq!(with_times(&again), format!("attempt 2 at {time}; last attempt: no drive, because: x"));
        assert_eq!(in_one_line(&"\u{e4}".repeat(301)), format!("{}...", "\u{e4}".repeat(300)));
        let progress = RunProgressRow { files: 1, bytes: 1 << 30, bytes_planned: None, rate: 100 << 20, noted_ns: 0 };
        assert_eq!(how_far(&progress), "1.00 GiB at 100 MiB/s");
        let planned = RunProgressRow { bytes_planned: Some(4 << 30), ..progress };
        assert_eq!(how_far(&planned), "1.00 GiB of 4.00 GiB at 100 MiB/s");
    }
}
