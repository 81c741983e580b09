//! `queue`: what waits and why, what runs, what has ended; and what a person does about it.

use std::process::ExitCode;

use capstan_catalog::{Cancelled, DoneRun, Entered, QueuedRun, RunOutcome};
use capstan_director::{DirectorError, Site};
use capstan_server::{LimitOf, PeerAway, RunDecision, WaitsFor, decide, look};

use super::ns;
use super::policies::print_change;
use crate::args::{self, QueueAction};
use crate::failure::{DONE_WITH_PROBLEMS, Failure, director};
use crate::globals::Globals;
use crate::json::QueueRow;
use crate::output::{print, print_rows};
use crate::secrets::site;
use crate::table::Table;
use crate::units;
use crate::wording::peer_away;

pub(crate) fn queue(cli: &Globals, args: &args::Queue) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    match &args.action {
        None => list(cli, &site),
        Some(QueueAction::Done { last }) => done(cli, &site, *last),
        Some(QueueAction::Add { policies, client }) => {
            let wanted: Vec<_> = policies.iter().map(|policy| (policy.clone(), client.clone())).collect();
            add(cli, &site, &wanted)
        }
        Some(QueueAction::Cancel { runs }) => each(runs, |run| cancel(cli, &site, run)),
        Some(QueueAction::Hold { runs }) => each(runs, |run| hold(cli, &site, run, true)),
        Some(QueueAction::Release { runs }) => each(runs, |run| hold(cli, &site, run, false)),
        Some(QueueAction::Rerun { runs }) => {
            let done = |run: &i64| {
                let done = site.catalog().done_run(*run).map_err(director)?;
                let advice = || {
                    format!(
                        "run {run} has not ended, or there is none: `capstan queue done` lists those that can run again"
                    )
                };
                let run = done.ok_or_else(|| Failure::Other(advice()))?.run;
                Ok((run.policy, Some(run.client)))
            };
            let wanted: Vec<_> = runs.iter().map(done).collect::<Result<_, Failure>>()?;
            add(cli, &site, &wanted)
        }
    }
}

/// Does something with each run, and names those with which it cannot be done.
fn each(runs: &[i64], work: impl Fn(i64) -> Result<(), Failure>) -> Result<ExitCode, Failure> {
    let mut failed = None;
    for run in runs {
        match work(*run) {
            Ok(()) => {}
            Err(failure @ Failure::Other(_)) => {
                if let Some(before) = failed.replace(failure) {
                    eprintln!("capstan: {before}");
                }
            }
            Err(failure) => return Err(failure),
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn list(cli: &Globals, site: &Site) -> Result<ExitCode, Failure> {
    let look = look(site)?;
    let is_served = site.is_served()?;
    let mut rows: Vec<QueueRow> = Vec::new();
    for active in &look.active {
        let ends = look.situation.working.iter().find(|working| working.run == active.run.run);
        let until = ends.and_then(|working| working.ends).filter(|ends| *ends > look.situation.now);
        let message = match (is_served, until) {
            (false, _) if active.is_cancelled => {
                "no server is running: it will be cancelled when one starts".to_owned()
            }
            (false, _) => "no server is running: it continues when one starts".to_owned(),
            (true, until) => {
                let others = look.active.iter().filter(|other| other.session == active.session).count() - 1;
                let shares =
                    (others > 0).then(|| format!("shares drives with {}", units::counted(others as u64, "run")));
                let usual = until.map(|until| format!("usually done by {}", units::time(ns(until))));
                shares.into_iter().chain(usual).collect::<Vec<_>>().join(", ")
            }
        };
        rows.push(QueueRow {
            state: match (active.is_cancelled, is_served) {
                (true, _) => "stopping",
                (false, true) => "running",
                (false, false) => "interrupted",
            },
            started_ns: Some(active.started_ns),
            until_ns: until.map(ns),
            message,
            history: active.job,
            session: Some(active.session),
            ..row(&active.run)
        });
    }
    for (run, decision) in decide(&look.situation) {
        let Some(pending) = look.pending.iter().find(|pending| pending.run.run == run) else { continue };
        let (waits_for, until_ns, message) = match (is_served, &decision) {
            (true, RunDecision::Begins { .. }) => ("server", None, "the server starts it within a second".to_owned()),
            // What an operator must do stays true; all else waits for a server first.
            (true, RunDecision::Waits(waits_for))
            | (
                false,
                RunDecision::Waits(
                    waits_for @ (WaitsFor::Release | WaitsFor::Repair(_) | WaitsFor::Client(PeerAway::NotEnrolled)),
                ),
            ) => in_words(waits_for, &pending.run),
            (false, _) => ("server", None, "a server: `capstan server run` starts one".to_owned()),
        };
        rows.push(QueueRow { waits_for: Some(waits_for), until_ns, message, ..row(&pending.run) });
    }
    if cli.json {
        return print_rows(rows.into_iter().map(Ok));
    }
    if !is_served {
        eprintln!("no server is running, so no run starts. Start one: capstan server run");
    }
    if rows.is_empty() {
        eprintln!("the queue is empty");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["run", "policy", "client", "state", "since", "history", "waits for"]);
    for row in &rows {
        table.row(vec![
            row.run.to_string(),
            row.policy.clone(),
            row.client.clone(),
            row.state.to_owned(),
            units::time(row.started_ns.unwrap_or(row.entered_ns)),
            row.history.map_or_else(|| "-".to_owned(), |job| job.to_string()),
            row.message.clone(),
        ]);
    }
    print(&table)
}

/// What a run waits for: its name, until when, and in words.
fn in_words(waits_for: &WaitsFor, run: &QueuedRun) -> (&'static str, Option<i64>, String) {
    let probably = |until: Option<jiff::Timestamp>| {
        until.map_or_else(String::new, |until| format!(", probably free by {}", units::time(ns(until))))
    };
    let attempt = run.attempt;
    match waits_for {
        WaitsFor::Release => ("release", None, "somebody to release it: `capstan queue release`".to_owned()),
        WaitsFor::Repair(fault) => ("repair", None, format!("a correction of its policy: {fault}")),
        WaitsFor::Time(until) if attempt > 1 => {
            ("time", Some(ns(*until)), format!("attempt {attempt} at {}", units::time(ns(*until))))
        }
        WaitsFor::Time(until) => ("time", Some(ns(*until)), format!("its start at {}", units::time(ns(*until)))),
        WaitsFor::Window(Some(opens)) => {
            ("window", Some(ns(*opens)), format!("its window, which opens {}", units::time(ns(*opens))))
        }
        WaitsFor::Window(None) => ("window", None, "its window, which does not open within a year".to_owned()),
        WaitsFor::Source(held) => ("source", None, format!("its {held}")),
        WaitsFor::Client(away) => ("client", None, peer_away(*away, "client", &run.client)),
        WaitsFor::Limit { of, at_most } => {
            let (name, of, setting) = match of {
                LimitOf::Policy => (&run.policy, "policy", "runs_at_once"),
                LimitOf::Client => (&run.client, "client", "runs_per_client"),
            };
            let runs = units::counted(*at_most as u64, "run");
            ("limit", None, format!("another run of {of} {name} to end: at most {runs} at a time ({setting})"))
        }
        WaitsFor::Library => {
            ("library", None, "the library to answer: `capstan drives` shows whether it does".to_owned())
        }
        WaitsFor::Drives { needed, free, until } => {
            let needed = units::counted((*needed).into(), "drive");
            ("drives", until.map(ns), format!("{needed} ({free} free now{})", probably(*until)))
        }
        WaitsFor::Turn { behind, until } => {
            ("turn", until.map(ns), format!("its turn: drives are kept for run {behind}{}", probably(*until)))
        }
    }
}

fn row(run: &QueuedRun) -> QueueRow {
    QueueRow {
        run: run.run,
        policy: run.policy.clone(),
        client: run.client.clone(),
        state: "waiting",
        due_ns: run.due_ns,
        entered_ns: run.entered_ns,
        started_ns: None,
        ended_ns: None,
        attempt: run.attempt,
        priority: run.priority,
        waits_for: None,
        until_ns: None,
        message: String::new(),
        history: None,
        session: None,
    }
}

/// How a run ended, in the word that lists have for it.
pub(super) fn outcome_word(outcome: RunOutcome) -> &'static str {
    match outcome {
        RunOutcome::Succeeded => "done",
        RunOutcome::Warned => "problems",
        RunOutcome::Failed => "failed",
        RunOutcome::Cancelled => "cancelled",
        RunOutcome::Missed => "missed",
    }
}

fn done(cli: &Globals, site: &Site, last: u32) -> Result<ExitCode, Failure> {
    let done = site.catalog().done_runs(last).map_err(director)?;
    if cli.json {
        return print_rows(done.into_iter().map(|done| {
            let DoneRun { run, started_ns, ended_ns, outcome, message, job } = done;
            let state = outcome_word(outcome);
            Ok(QueueRow { state, started_ns, ended_ns: Some(ended_ns), message, history: job, ..row(&run) })
        }));
    }
    if done.is_empty() {
        eprintln!("no run has ended yet");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["run", "policy", "client", "due", "ended", "outcome", ">attempts", "history", "what"]);
    for done in &done {
        table.row(vec![
            done.run.run.to_string(),
            done.run.policy.clone(),
            done.run.client.clone(),
            match (done.run.due_ns, done.outcome) {
                (Some(due_ns), _) => units::time(due_ns),
                (None, RunOutcome::Missed) => "-".to_owned(),
                (None, _) => "by hand".to_owned(),
            },
            units::time(done.ended_ns),
            outcome_word(done.outcome).to_owned(),
            done.run.attempt.to_string(),
            done.job.map_or_else(|| "-".to_owned(), |job| job.to_string()),
            done.message.lines().next().unwrap_or_default().to_owned(),
        ]);
    }
    print(&table)
}

/// Enters runs of policies: of the client that is named, or of all.
fn add(cli: &Globals, site: &Site, wanted: &[(String, Option<String>)]) -> Result<ExitCode, Failure> {
    // All or none: a name that is mistyped enters nothing.
    let known = site.policies()?;
    for (name, client) in wanted {
        let policy = known.iter().find(|policy| policy.name == *name);
        let policy = policy.ok_or_else(|| DirectorError::UnknownPolicy { name: name.clone() })?;
        let named = client.as_deref().is_none_or(|client| policy.config.clients_of(site.client()).contains(&client));
        let fault = match (&policy.fault, client) {
            (Some(fault), _) => fault.clone(),
            (None, Some(client)) if !named => format!("it does not name client {client}"),
            _ => continue,
        };
        return Err(DirectorError::PolicyFault { name: name.clone(), reason: fault }.into());
    }
    let mut code = ExitCode::SUCCESS;
    for (name, client) in wanted {
        let entered = site.enter_runs(name, client.as_deref())?;
        // The name of the only client is no news.
        let several = entered.len() > 1 || client.is_some();
        for (client, entered) in entered {
            let of = if several { format!("{name} for client {client}") } else { name.clone() };
            match entered {
                Entered::Waits(run) => {
                    print_change(cli, run, "entered", &format!("run {run} of {of} is in the queue"))?;
                }
                Entered::Behind(run) => {
                    print_change(cli, run, "waiting", &format!("{of} has a run in the queue already: run {run}"))?;
                    code = ExitCode::from(DONE_WITH_PROBLEMS);
                }
                // A run that is entered by hand has no due time, and is never void: that is an error.
                Entered::Before | Entered::Void => {}
            }
        }
    }
    if !cli.json && !cli.quiet && !site.is_served()? {
        eprintln!("no server is running: the run starts after you start one (capstan server run)");
    }
    Ok(code)
}

fn cancel(cli: &Globals, site: &Site, run: i64) -> Result<(), Failure> {
    match site.cancel_run(run)? {
        Cancelled::Removed => print_change(cli, run, "cancelled", &format!("run {run} is cancelled")),
        Cancelled::Told => {
            let text = match site.is_served()? {
                true => format!("run {run} is told to stop: it flushes what it has read, which takes a moment"),
                false => format!("run {run} will be cancelled when a server starts: the server that ran it is gone"),
            };
            print_change(cli, run, "stopping", &text)
        }
        Cancelled::Unknown => Err(not_in_queue(run)),
    }
}

fn hold(cli: &Globals, site: &Site, run: i64, is_held: bool) -> Result<(), Failure> {
    if site.hold_run(run, is_held)? {
        let change = if is_held { "held" } else { "released" };
        return print_change(cli, run, change, &format!("run {run} is {change}"));
    }
    let active = site.catalog().active_runs().map_err(director)?;
    if active.iter().any(|active| active.run.run == run) {
        let advice = "only a run that waits can be held or released: `capstan queue cancel` stops this one";
        return Err(Failure::Other(format!("run {run} is at work: {advice}")));
    }
    Err(not_in_queue(run))
}

fn not_in_queue(run: i64) -> Failure {
    Failure::Other(format!(
        "run {run} is not in the queue: `capstan queue` lists what is, `capstan queue done` what was"
    ))
}
