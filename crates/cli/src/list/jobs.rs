//! `jobs`: what the settings name, how it went last, and what comes next.

use std::process::ExitCode;

use capstan_director::{DEFAULT_POOL, JobConfig, Object, ObjectFilter, ObjectStatus, Site};

use super::{director, print, print_rows, site};
use crate::args::Cli;
use crate::failure::Failure;
use crate::json::{JobRow, KeepRow};
use crate::table::Table;
use crate::units;

pub(crate) fn jobs(cli: &Cli) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    let objects = site.catalog().objects(&ObjectFilter::default()).map_err(director)?;
    let jobs = site.config().jobs.iter();
    let rows = jobs.map(|(name, job)| row(&site, &objects, name, job).map(|row| (row, job)));
    if cli.json {
        return print_rows(rows.map(|row| row.map(|(row, _)| row)));
    }
    let mut table = Table::new(&["job", "level", "keeps", "last", "outcome", "next", "backs up"]);
    let mut any = false;
    for row in rows {
        any = true;
        let (row, job) = row?;
        table.row(vec![
            row.job.clone(),
            match &job.full_every {
                Some(every) => format!("{}, full every {every}", row.level),
                None => row.level.to_owned(),
            },
            match (&job.keep, &job.retention) {
                (Some(rule), _) => rule.to_string(),
                (None, Some(retention)) => retention.clone(),
                (None, None) => format!("as pool {}", row.pool),
            },
            units::time(row.last_ns.unwrap_or_default()),
            match row.outcome {
                "problems" => units::counted(row.problems, "problem"),
                other => other.to_owned(),
            },
            row.next.to_owned(),
            row.sources.join(" "),
        ]);
    }
    if !any {
        eprintln!("no job is named in {}: it has an example at its end", site.dir().join("capstan.toml").display());
        return Ok(ExitCode::SUCCESS);
    }
    print(&table)
}

fn row(site: &Site, objects: &[Object], name: &str, job: &JobConfig) -> Result<JobRow, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let paths = job.sources.iter().map(|path| path.as_os_str().as_bytes().to_vec());
    let sources: Vec<_> = paths.chain(job.stdin.iter().map(|name| name.clone().into_bytes())).collect();
    // The latest come first.
    let last_of = |source: &Vec<u8>| objects.iter().find(|object| object.policy == name && object.source == *source);
    let last: Vec<_> = sources.iter().map(last_of).collect();
    let problems = last.iter().flatten().filter_map(|object| object.counts).map(|counts| counts.problems).sum();
    let incremental = job.is_incremental();
    let mut full = 0;
    for source in &sources {
        let is_full = !incremental || site.next_is_full(source, job.full_every_ns())?;
        full += usize::from(is_full);
    }
    Ok(JobRow {
        job: name.to_owned(),
        pool: job.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
        copies: job.copies.unwrap_or(1),
        level: if incremental { "incremental" } else { "full" },
        full_every_ns: job.full_every_ns(),
        retention_ns: job.retention_ns(),
        keep: job.keep.map(|rule| KeepRow {
            last: rule.last,
            daily: rule.daily,
            weekly: rule.weekly,
            monthly: rule.monthly,
            yearly: rule.yearly,
        }),
        last_ns: last.iter().flatten().map(|object| object.started_ns).max(),
        outcome: match () {
            () if last.contains(&None) => "never",
            () if last.iter().flatten().any(|object| object.status == ObjectStatus::Open) => "interrupted",
            () if problems > 0 => "problems",
            () => "complete",
        },
        problems,
        next: match full {
            0 => "incremental",
            all if all == sources.len() => "full",
            _ => "mixed",
        },
        sources: sources.iter().map(|source| String::from_utf8_lossy(source).into_owned()).collect(),
    })
}
