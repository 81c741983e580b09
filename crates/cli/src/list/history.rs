//! `history`: which commands ran, how they ended, and what they said.

use std::process::ExitCode;

use capstan_director::{HistoryEntry, JobOutcome};

use super::{print, print_json, print_rows, site};
use crate::args::{self, Cli};
use crate::failure::Failure;
use crate::json::{RunRow, ShownRun, run_row};
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

/// How a run ended, in a word.
pub(crate) fn outcome_name(row: &HistoryEntry) -> &'static str {
    match row.job.end.as_ref().map(|end| end.outcome) {
        Some(JobOutcome::Succeeded) => "done",
        Some(JobOutcome::Warned) => "warnings",
        Some(JobOutcome::Failed) if row.job.end.as_ref().is_some_and(|end| end.exit_code == 130) => "stopped",
        Some(JobOutcome::Failed) => "failed",
        None | Some(JobOutcome::Running) if row.runs => "running",
        None | Some(JobOutcome::Running) => "killed",
    }
}

pub(crate) fn history(cli: &Cli, args: &args::History) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if let Some(id) = args.run {
        let (row, log) = site.run(id)?;
        return show(cli, &row, &log);
    }
    let since_ns = args.since.as_deref().map(|text| units::parse_since(text, now_ns())).transpose();
    let since_ns = since_ns.map_err(Failure::Usage)?.unwrap_or(i64::MIN);
    let mut rows = site.history(if args.since.is_some() || args.kind.is_some() { u32::MAX } else { args.last })?;
    rows.retain(|row| row.job.started_ns >= since_ns);
    rows.retain(|row| args.kind.as_ref().is_none_or(|kind| *kind == row.job.kind));
    rows.truncate(args.last as usize);
    if cli.json {
        return print_rows(rows.iter().map(|row| Ok(run_row(row))));
    }
    let mut table = Table::new(&["run", "begun", ">took", "what", "outcome", ">files", ">size", "of"]);
    for row in &rows {
        let end = row.job.end.as_ref();
        table.row(vec![
            row.job.id.to_string(),
            units::time(row.job.started_ns),
            end.map_or_else(|| "-".to_owned(), |end| took(row, end.ended_ns)),
            row.job.kind.clone(),
            outcome_name(row).to_owned(),
            units::count(end.map_or(0, |end| end.files)),
            units::bytes(end.map_or(0, |end| end.bytes)),
            row.job.subject.clone(),
        ]);
    }
    print(&table)
}

fn took(row: &HistoryEntry, ended_ns: i64) -> String {
    units::duration(ended_ns.saturating_sub(row.job.started_ns).max(0) as f64 / 1e9)
}

fn show(cli: &Cli, row: &HistoryEntry, log: &str) -> Result<ExitCode, Failure> {
    let lines: Vec<String> = log.lines().map(str::to_owned).collect();
    if cli.json {
        let run: RunRow = run_row(row);
        return print_json(&ShownRun { run, log: lines });
    }
    println!("run         {}, {} of {}", row.job.id, row.job.kind, row.job.subject);
    println!("begun       {}", units::time(row.job.started_ns));
    if let Some(end) = &row.job.end {
        println!("ended       {}, after {}", units::time(end.ended_ns), took(row, end.ended_ns));
        println!("outcome     {} (exit code {})", outcome_name(row), end.exit_code);
        if !end.message.is_empty() {
            println!("summary     {}", end.message.replace('\n', "\n            "));
        }
    } else {
        println!("outcome     {}", outcome_name(row));
    }
    for object in &row.objects {
        println!("object      {object}");
    }
    for line in lines {
        println!("said        {line}");
    }
    Ok(ExitCode::SUCCESS)
}
