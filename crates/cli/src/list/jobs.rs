//! `jobs`: what the settings name, how it went last, what comes next, and what stands in its way.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use capstan_catalog::{Object, ObjectFilter, ObjectStatus};
use capstan_director::{DEFAULT_POOL, HistoryEntry, JobConfig, Site, check_patterns, subject_of_job};

use super::history::names;
use crate::args;
use crate::failure::director;
use crate::failure::{DONE_WITH_PROBLEMS, Failure};
use crate::globals::Globals;
use crate::job_units;
use crate::json::{JobRow, KeepRow};
use crate::output::{print, print_rows};
use crate::secrets::site;
use crate::table::Table;
use crate::units;
use crate::wording::outcome_name;

/// Runs among which the last one of a job is looked for.
const RUNS_LOOKED_AT: u32 = 1_000;

pub(crate) fn jobs(cli: &Globals, args: &args::Jobs) -> Result<ExitCode, Failure> {
    let site = site(cli)?;
    if let Some(dir) = &args.units {
        return job_units::write(cli, &site, dir);
    }
    let objects = site.catalog().objects(&ObjectFilter::default()).map_err(director)?;
    let runs = site.history(RUNS_LOOKED_AT)?;
    let jobs = site.config().jobs.iter().filter(|(name, _)| !site.is_policy(name));
    let rows = jobs.map(|(name, job)| row(&site, (&objects, &runs), name, job).map(|row| (row, job)));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let faulty = rows.iter().any(|(row, _)| !row.faults.is_empty());
    let code = if faulty { ExitCode::from(DONE_WITH_PROBLEMS) } else { ExitCode::SUCCESS };
    for (row, _) in &rows {
        for fault in &row.faults {
            eprintln!("capstan: job {}: {fault}", row.job);
        }
    }
    if cli.json {
        print_rows(rows.into_iter().map(|(row, _)| Ok(row)))?;
        return Ok(code);
    }
    if rows.is_empty() {
        eprintln!("no job is named in {}: it has an example at its end", site.dir().join("capstan.toml").display());
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["job", "level", "keeps", "last run", "outcome", "next", "backs up"]);
    for (row, job) in &rows {
        table.row(vec![
            row.job.clone(),
            match (&job.full_every, job.consolidate_after) {
                (Some(every), _) => format!("{}, full every {every}", row.level),
                (None, Some(after)) => format!("{}, made full after {after}", row.level),
                (None, None) => row.level.to_owned(),
            },
            match (&job.keep, &job.retention) {
                (Some(rule), _) => rule.to_string(),
                (None, Some(retention)) => retention.clone(),
                (None, None) => format!("as pool {}", row.pool),
            },
            units::time(row.last_ns.unwrap_or_default()),
            outcome_text(row),
            row.next.to_owned(),
            match job.takes_puts() {
                true => format!("what is put as {}", job.put_names.join(", ")),
                false => row.sources.join(" "),
            },
        ]);
    }
    print(&table)?;
    Ok(code)
}

fn outcome_text(row: &JobRow) -> String {
    let mut text = row.outcome.to_owned();
    if row.outcome == "problems" && row.problems > 0 {
        text.push_str(&format!(" ({})", units::counted(row.problems, "path")));
    }
    if row.outcome != "never" && row.sources_never > 0 {
        text.push_str(&format!(", {} never", units::counted(row.sources_never as u64, "source")));
    }
    text
}

fn row(
    site: &Site,
    (objects, runs): (&[Object], &[HistoryEntry]),
    name: &str,
    job: &JobConfig,
) -> Result<JobRow, Failure> {
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
    let subject = subject_of_job(name);
    let run = runs.iter().find(|run| run.job.kind == "backup" && names(&run.job.subject, &subject));
    let last_begun = last.iter().flatten().map(|object| object.started_ns).max();
    // Objects say it where the history does not go back to the run, or went with a catalog.
    let outcome = match run {
        Some(run) => outcome_name(run),
        None if last_begun.is_none() => "never",
        None if last.iter().flatten().any(|object| object.status == ObjectStatus::Open) => "stopped",
        None if problems > 0 => "problems",
        None => "done",
    };
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
        last_ns: run.map(|run| run.job.started_ns).or(last_begun),
        outcome,
        problems,
        sources_never: last.iter().filter(|object| object.is_none()).count(),
        next: match full {
            0 if !sources.is_empty() => "incremental",
            all if all == sources.len() => "full",
            _ => "mixed",
        },
        sources: sources.iter().map(|source| String::from_utf8_lossy(source).into_owned()).collect(),
        faults: faults(site, job)?,
    })
}

/// What keeps the next run from doing all of its work.
fn faults(site: &Site, job: &JobConfig) -> Result<Vec<String>, Failure> {
    let gone = |path: &Path| {
        path.symlink_metadata().err().map(|error| format!("{} cannot be backed up: {error}", path.display()))
    };
    let unread = |path: &Path| {
        let error = std::fs::read_to_string(path).err()?;
        Some(format!("exclude_from {} cannot be read, and the job will not run: {error}", path.display()))
    };
    let hook = |(which, command): (&str, &Vec<String>)| {
        // A name without a slash is looked for when it is started.
        let program = command.first().filter(|program| program.contains('/'))?;
        let error = Path::new(program).metadata().err()?;
        Some(format!("{which} ({program}) cannot be started: {error}"))
    };
    let hooks = [("before", &job.before), ("after", &job.after), ("stdin_command", &job.stdin_command)];
    // What other machines have is for them to say.
    let here = if !job.is_of_clients() { job } else { &JobConfig::default() };
    let hooks = if !job.is_of_clients() { &hooks[..] } else { &[] };
    let sources = here.sources.iter().filter_map(|path| gone(path)).chain(hooks.iter().copied().filter_map(hook));
    let pattern = check_patterns(&job.exclude).err().map(|error| format!("{error}, and the job will not run"));
    let pool = job.pool.as_deref().unwrap_or(DEFAULT_POOL);
    let pools = site.catalog().pools().map_err(director)?;
    let is_known = pools.iter().any(|known| known.name == pool);
    let pool =
        (!is_known).then(|| format!("there is no pool {pool}, and the job will not run: `capstan pools add {pool}`"));
    let faults = sources.chain(here.exclude_from.iter().filter_map(|path| unread(path))).chain(pattern).chain(pool);
    Ok(faults.map(|fault| capstan_tape::without_error_numbers(&fault)).collect())
}
