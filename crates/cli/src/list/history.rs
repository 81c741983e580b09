//! `history`: which commands ran, how they ended, and what they said.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use capstan_catalog::ObjectFilter;
use capstan_director::{HistoryEntry, Site, subject_of_job};

use crate::args;
use crate::failure::Failure;
use crate::failure::director;
use crate::globals::Globals;
use crate::json::{RunRow, ShownRun, run_row};
use crate::output::{print, print_json, print_rows};
use crate::place::{most_like, sources};
use crate::secrets::now_ns;
use crate::secrets::site;
use crate::table::{Table, path_text};
use crate::units;
use crate::wording::outcome_name;

pub(crate) fn history(cli: &Globals, args: &args::History) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if let Some(id) = args.run.as_deref().and_then(|run| run.parse().ok()) {
        let (row, log) = site.run(id)?;
        return show(cli, &row, &log);
    }
    let since_ns = args.since.as_deref().map(|text| units::parse_since(text, now_ns())).transpose();
    let since_ns = since_ns.map_err(Failure::Usage)?.unwrap_or(i64::MIN);
    let chosen = args.since.is_some() || args.kind.is_some() || args.run.is_some();
    let mut rows = site.history(if chosen { u32::MAX } else { args.last })?;
    rows.retain(|row| row.job.started_ns >= since_ns);
    rows.retain(|row| args.kind.as_ref().is_none_or(|kind| *kind == row.job.kind));
    if let Some(name) = &args.run {
        let wanted = words_for(&site, name);
        let is_named = |row: &HistoryEntry| wanted.iter().any(|word| names(&row.job.subject, word));
        rows.retain(is_named);
        if rows.is_empty() && !is_known(&site, &wanted)? && !site.history(u32::MAX)?.iter().any(is_named) {
            return Err(unknown(&site, name));
        }
        if rows.is_empty() && !cli.json && !cli.quiet {
            eprintln!("capstan: no run names {name:?}: `capstan history` lists all, `capstan jobs` the jobs");
        }
    }
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

/// Whether the subject of a run has a name as one of its words; paths may hold blanks.
pub(super) fn names(subject: &str, name: &str) -> bool {
    subject.match_indices(name).any(|(at, _)| {
        let (before, after) = (&subject[..at], &subject[at + name.len()..]);
        (before.is_empty() || before.ends_with(' ')) && (after.is_empty() || after.starts_with(' '))
    })
}

/// The words by which the subject of a run may name what was typed: a job, a path from here, or a word as it is.
fn words_for(site: &Site, name: &str) -> Vec<String> {
    let mut words = vec![name.to_owned()];
    if site.config().jobs.contains_key(name) {
        words.push(subject_of_job(name));
    }
    if let Ok(path) = std::path::absolute(name) {
        let path: std::path::PathBuf = path.components().collect();
        words.push(path_text(path.as_os_str().as_bytes()));
    }
    words
}

/// Whether one of the words is a job, a source or a volume.
fn is_known(site: &Site, words: &[String]) -> Result<bool, Failure> {
    let (jobs, sources) = (&site.config().jobs, sources(site));
    if words.iter().any(|word| jobs.contains_key(word) || sources.contains(word)) {
        return Ok(true);
    }
    let volumes = site.catalog().volumes().map_err(director)?;
    let objects = site.catalog().objects(&ObjectFilter::default()).map_err(director)?;
    let is_volume = volumes.iter().any(|volume| words.iter().any(|word| word == volume.volser.as_str()));
    Ok(is_volume || objects.iter().any(|object| words.contains(&object.id.to_string())))
}

/// That nothing has a name, and the job, source or volume that looks most like it.
fn unknown(site: &Site, name: &str) -> Failure {
    let volumes = site.catalog().volumes().unwrap_or_default().into_iter().map(|volume| volume.volser.to_string());
    let names = site.config().jobs.keys().cloned().chain(sources(site)).chain(volumes);
    let like = most_like(name, names).map(|like| format!(" (did you mean {like}?)")).unwrap_or_default();
    Failure::Other(format!(
        "{name:?} is not a run, job, source or volume{like}: `capstan history` lists all runs, `capstan jobs` the jobs"
    ))
}

fn took(row: &HistoryEntry, ended_ns: i64) -> String {
    units::duration(ended_ns.saturating_sub(row.job.started_ns).max(0) as f64 / 1e9)
}

fn show(cli: &Globals, row: &HistoryEntry, log: &str) -> Result<ExitCode, Failure> {
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
