//! Jobs of `capstan.toml`, and policies: how a name is told from a path, what the command line changes of a job, and
//! what runs before and after.
//!
//! ```text
//! before --ok--> backup --> after     CAPSTAN_JOB, CAPSTAN_OUTCOME, CAPSTAN_EXIT_CODE, CAPSTAN_OBJECTS
//!    `--failed: nothing is backed up ----^
//! ```
//! A source without a slash that is the name of a job or policy is that, whatever lies in the working directory: a
//! timer must not mean something else by the directory it is started in. `./nightly` is the path.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_catalog::QueuedRun;
use capstan_director::{
    BackupWatch, DirectorError, Events, JobConfig, NetworkShare, Retention, Site, StageChoice, find_settings,
    subject_of_job,
};
use capstan_format::ObjectId;
use capstan_mover::{NetworkJob, ProgramGroup, SourceHost, patterns_in};

use super::backup::{self, Ended, Frame, OpenSite};
use crate::args::{self, Device};
use crate::failure::{FAILED, Failure, outcome_word};
use crate::globals::Globals;
use crate::json;
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::{Need, PASSPHRASES, open, site, state_dir};
use crate::table::path_text;
use crate::work::recorded::recorded;

/// The variable that has the exit code of a run.
const CODE: &str = "CAPSTAN_EXIT_CODE";
/// Streams that a client reads at the same time, where its policy says nothing.
const CLIENT_CONNECTIONS: u16 = 4;
/// How often it is looked whether a hook has ended.
const HOOK_LOOKED_AT_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn backup(cli: &Globals, args: &args::Backup) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let job = named(cli, args, &display)?;
    run_by_hand(cli, args, job, Retention::OfPool, &display)
}

/// Runs a backup that a person or a script asked for; under a job, if there is one.
pub(super) fn run_by_hand(
    cli: &Globals,
    args: &args::Backup,
    job: Option<(String, JobConfig)>,
    retention: Retention,
    display: &Display,
) -> Result<ExitCode, Failure> {
    let watch = BackupWatch::default();
    stop_on_interrupt(&watch.stop);
    let open = |need, events| open(cli, need, events);
    if let Some((name, job)) = job {
        let around = Around { open: &open, begun: &|| Ok(()), client: None, session: None, run: None, network: None };
        let ended = run(cli, args, (&name, &job), display, &watch, &around)?;
        return Ok(ExitCode::from(ended.code));
    }
    let (session, run, bandwidth, network) = Default::default();
    let frame = Frame { open: &open, begun: &|| Ok(()), after: &|_| None, session, run, bandwidth, network };
    let ended = backup::run(cli, args, retention, display, &watch, &frame);
    if let Some(failure) = ended.as_ref().err().filter(|_| args.device != Device::Null) {
        let sources = args.sources.iter().filter_map(|source| backup::normalised(source).ok());
        let sources: Vec<_> = sources.map(|source| path_text(source.as_os_str().as_bytes())).collect();
        note_failed(frame.open, args.stdin.as_ref().unwrap_or(&sources.join(" ")), display, failure);
    }
    ended.map(|ended| ExitCode::from(ended.code))
}

/// The job that the command line names, if it names one.
fn named(cli: &Globals, args: &args::Backup, display: &Display) -> Result<Option<(String, JobConfig)>, Failure> {
    let plain = |source: &&std::path::PathBuf| !source.to_string_lossy().contains('/');
    if args.stdin.is_some() || !args.sources.iter().any(|source| plain(&source)) {
        return Ok(None);
    }
    // Policies are kept in the catalog, which need not be there for what needs none.
    find_settings(&state_dir(cli)?)?;
    let site = site(cli)?;
    let mut jobs = site.config().jobs.clone();
    let is_there = |name: &str| Path::new(name).symlink_metadata().is_ok();
    for source in args.sources.iter().filter(plain) {
        let name = source.to_string_lossy().into_owned();
        let Some(job) = jobs.remove(&name) else {
            if !jobs.is_empty() && !is_there(&name) {
                let names = jobs.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                display.warn(&format!("{name} is neither a path here nor a job or policy: there are {names}"));
            }
            continue;
        };
        if args.sources.len() > 1 {
            let advice = format!("{name} is a job, which is run by itself: for a path of that name write ./{name}");
            return Err(Failure::Usage(advice));
        }
        if job.is_of_clients() {
            let clients = job.clients_in_words();
            return Err(Failure::Usage(format!(
                "policy {name} backs up {clients}, and a server runs it: `capstan queue add {name}`"
            )));
        }
        if job.takes_puts() {
            let names = job.put_names.join(", ");
            return Err(Failure::Usage(format!(
                "{name} stores what is put as {names}, and has no sources: `capstan put NAME`"
            )));
        }
        if job.is_of_care() {
            let pools = job.care_of.join(", ");
            return Err(Failure::Usage(format!(
                "policy {name} looks after the volumes of pool {pools}, and a server runs it: `capstan queue add {name}`"
            )));
        }
        if job.is_of_copies() {
            let copied = job.copies_of.join(", ");
            return Err(Failure::Usage(format!(
                "policy {name} copies the backups of {copied}, and a server runs it: `capstan queue add {name}`"
            )));
        }
        if args.policy.is_some() {
            return Err(Failure::Usage(format!("the objects of job {name} bear its name: leave --policy out")));
        }
        if let Some(fault) = fault_of(&site, &name) {
            return Err(fault.into());
        }
        if is_there(&name) {
            let what = if site.is_policy(&name) { "policy" } else { "job of capstan.toml" };
            display.say(&format!("{name} is the {what}; the path of that name would be ./{name}"));
        }
        return Ok(Some((name, job)));
    }
    Ok(None)
}

/// Why a policy cannot be run now, if it cannot.
pub(super) fn fault_of(site: &Site, name: &str) -> Option<DirectorError> {
    let reason = site.policy_fault(name)?.to_owned();
    Some(DirectorError::PolicyFault { name: name.to_owned(), reason })
}

/// What the command line says, and where it says nothing what the job does. Patterns of both are left out.
fn laid_over(args: &args::Backup, name: &str, job: &JobConfig) -> args::Backup {
    let says_level = args.full || args.incremental || args.full_every.is_some();
    let mut exclude = job.exclude.clone();
    exclude.extend(args.exclude.iter().cloned());
    let mut exclude_from = job.exclude_from.clone();
    exclude_from.extend(args.exclude_from.iter().cloned());
    args::Backup {
        sources: match (&args.stdin, &job.stdin) {
            (Some(_), _) => args.sources.clone(),
            (None, None) => job.sources.clone(),
            (None, Some(_)) => job.stdin_command.iter().map(Into::into).collect(),
        },
        stdin: args.stdin.clone().or_else(|| job.stdin.clone()),
        from_command: if args.stdin.is_some() { args.from_command } else { job.stdin.is_some() },
        policy: Some(name.to_owned()),
        unit: args.unit.clone().or_else(|| job.unit.clone()),
        pool: args.pool.clone().or_else(|| job.pool.clone()),
        connections: args.connections.or(job.connections),
        copies: args.copies.or(job.copies),
        drives: args.drives.or(job.drives),
        drives_by_need: args.drives.is_none(),
        consolidate_after: job.consolidate_after,
        compression: args.compression.or(job.compression),
        incremental: if says_level { args.incremental } else { job.is_incremental() },
        full_every: if says_level { args.full_every.clone() } else { job.full_every.clone() },
        exclude,
        exclude_from,
        exclude_caches: args.exclude_caches || job.exclude_caches,
        one_file_system: args.one_file_system || job.one_file_system,
        may_be_empty: args.may_be_empty || job.may_be_empty,
        snapshot: args.snapshot.or(job.snapshot.map(Into::into)),
        lock: args.lock || job.lock,
        wait: if job.wait { Some(args::WaitFor::All) } else { args.wait },
        ..args.clone()
    }
}

/// A server's site, and what takes the number of a run's entry in its history.
pub(crate) struct Served<'a> {
    /// The site, with its keys.
    pub(crate) site: &'a Site,
    /// Takes the number.
    pub(crate) entered: &'a dyn Fn(i64) -> Result<(), DirectorError>,
    /// The client that reads the sources and runs the scripts; none where that is this process.
    pub(crate) client: Option<Arc<NetworkJob>>,
    /// The session that it writes into.
    pub(crate) session: i64,
    /// Drives that each copy of that has.
    pub(crate) drives: u32,
    /// Its share of what its client's network takes.
    pub(crate) network: Option<Arc<NetworkShare>>,
}

impl Served<'_> {
    /// Notes the run's entry in the history, if it has one.
    pub(super) fn note_entry(&self, display: &Display) -> Result<(), Failure> {
        Ok(display.entry().map_or(Ok(()), self.entered)?)
    }
}

/// A policy that can be run here.
pub(super) fn policy_of(site: &Site, name: &str) -> Result<JobConfig, Failure> {
    if let Some(fault) = fault_of(site, name) {
        return Err(fault.into());
    }
    let job = site.config().jobs.get(name).filter(|_| site.is_policy(name));
    Ok(job.ok_or_else(|| DirectorError::UnknownPolicy { name: name.to_owned() })?.clone())
}

/// Runs a policy for a server; gives the exit code that the command would have had, and how it went in a line.
pub(crate) fn run_served(
    cli: &Globals,
    served: &Served<'_>,
    run_of: &QueuedRun,
    display: &Display,
    watch: &BackupWatch,
) -> Result<(u8, String), Failure> {
    let (name, client) = (run_of.policy.as_str(), run_of.client.clone());
    let open = |_: Need, events: Events| {
        let site = served.site.beside(events)?.for_client(&client);
        Ok(match &served.client {
            Some(client) => site.with_sources(Arc::clone(client) as Arc<dyn SourceHost>),
            None => site,
        })
    };
    let site = open(Need::Nothing, display.events())?;
    let mut job = policy_of(&site, name)?;
    let staging = site.stage_choice(name, &job, &client)?;
    if staging.is_some() {
        job = site.policy_in(&job, site.library_name());
    }
    match &served.client {
        Some(client) => {
            for file in std::mem::take(&mut job.exclude_from) {
                match client.text_of(&file) {
                    Ok(text) => job.exclude.extend(patterns_in(&text)),
                    Err(error) => {
                        let failure = DirectorError::from(error).into();
                        note_failed(&open, &subject_of_job(name), display, &failure);
                        let _ = served.note_entry(display);
                        return Err(failure);
                    }
                }
            }
            // This machine's processors say nothing of the client's.
            job.connections.get_or_insert(CLIENT_CONNECTIONS);
        }
        None if job.is_of_clients() => job = site.policy_here(name, &job)?,
        None => {}
    }
    let place = Cell::new(staging.map(|staging| staging_text(staging, &job)));
    let begun = || {
        served.note_entry(display)?;
        if let Some(line) = place.take() {
            display.say(&line);
        }
        Ok(())
    };
    let (session, run_number) = (Some(served.session), Some(run_of.run));
    let (client, network) = (served.client.as_deref(), served.network.as_ref());
    let around = Around { open: &open, begun: &begun, client, session, run: run_number, network };
    let drives = u8::try_from(served.drives).ok();
    let args = args::Backup { drives, full: run_of.is_full, ..args::Backup::default() };
    let ended = run(cli, &args, (name, &job), display, watch, &around);
    // One that failed before it began is in the history all the same, where that can be written.
    let _ = begun();
    ended.map(|ended| (ended.code, ended.message))
}

/// Where a run writes, and why. What it was begun for counts: another run may have ended since.
fn staging_text(staging: StageChoice, job: &JobConfig) -> String {
    let is_staged = job.stage.is_some() && job.unit == job.stage;
    match staging.is_staged() == is_staged {
        true => staging.to_string(),
        false if is_staged => "to the stage".to_owned(),
        false => "straight to the drive".to_owned(),
    }
}

/// What a job's run stands in.
struct Around<'a> {
    open: &'a OpenSite<'a>,
    /// Called once the history has it.
    begun: &'a dyn Fn() -> Result<(), Failure>,
    /// The client that runs its scripts; none where that is this process.
    client: Option<&'a NetworkJob>,
    /// The session that it shares with other runs of a server.
    session: Option<i64>,
    /// The run of a server's queue that it is an attempt of.
    run: Option<i64>,
    /// Its share of what its client's network takes.
    network: Option<&'a Arc<NetworkShare>>,
}

/// Runs a job, and what it has run before and after.
fn run(
    cli: &Globals,
    args: &args::Backup,
    (name, job): (&str, &JobConfig),
    display: &Display,
    watch: &BackupWatch,
    around: &Around<'_>,
) -> Result<Ended, Failure> {
    let Around { open, begun, client, session, run, network } = *around;
    let args = laid_over(args, name, job);
    let has_ended = Cell::new(false);
    // Before the history has how the run ended: that it could not be ended is part of it.
    let after = |outcome: &Result<Ended, Failure>| {
        has_ended.set(true);
        let reason = after(cli, client, name, job, outcome).err()?;
        let line = format!("job {name}: {reason}");
        display.warn(&line);
        if cli.json {
            // A reader that is gone needs no line.
            let _ = json::print(&hook_failed(name, "after", &reason));
        }
        Some(line)
    };
    let bandwidth = job.bandwidth().ok().flatten();
    let frame = Frame { open, begun, after: &after, session, run, bandwidth, network: network.cloned() };
    let outcome = before(cli, client, name, job, &watch.stop)
        .and_then(|()| backup::run(cli, &args, Retention::of_job(job), display, watch, &frame));
    if let Err(failure) = &outcome {
        note_failed(open, &subject_of_job(name), display, failure);
    }
    if !has_ended.get() {
        after(&outcome);
    }
    outcome
}

/// A night on which a backup failed before it began is part of the history; a command line that is wrong is not.
fn note_failed(open: &OpenSite<'_>, subject: &str, display: &Display, failure: &Failure) {
    if display.has_entered() || matches!(failure, Failure::Usage(_)) {
        return;
    }
    if let Ok(site) = open(Need::Nothing, display.events()) {
        let again = || Failure::Again { text: failure.to_string(), exit_code: failure.exit_code() };
        // It is told by whoever asked for the job.
        let _ = recorded(display, &site, ("backup", subject), |_| Err::<ExitCode, _>(again()));
    }
}

fn hook_failed(job: &str, hook: &'static str, reason: &str) -> json::Event {
    json::Event::HookFailed { job: job.to_owned(), hook, reason: reason.to_owned() }
}

/// Runs what the job has run before it.
fn before(
    cli: &Globals,
    client: Option<&NetworkJob>,
    name: &str,
    job: &JobConfig,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let ended = hook(cli, client, (name, "before"), &job.before, &[], (Some(stop), Some(&job.after)));
    if stop.load(Ordering::Relaxed) {
        return Err(DirectorError::Interrupted.into());
    }
    ended.map_err(|reason| {
        if cli.json {
            // A reader that is gone needs no line.
            let _ = json::print(&hook_failed(name, "before", &reason));
        }
        Failure::Other(format!("job {name}: {reason}; nothing was backed up"))
    })
}

/// Runs what the job has run after it, and lets that know how it went.
fn after(
    cli: &Globals,
    client: Option<&NetworkJob>,
    name: &str,
    job: &JobConfig,
    outcome: &Result<Ended, Failure>,
) -> Result<(), String> {
    let (code, objects) = match outcome {
        Ok(ended) => (ended.code, &ended.objects[..]),
        Err(failure) => (failure.exit_code(), &[][..]),
    };
    let objects: Vec<_> = objects.iter().map(ObjectId::to_string).collect();
    let told = [
        ("CAPSTAN_OUTCOME", outcome_word(code).to_owned()),
        (CODE, code.to_string()),
        ("CAPSTAN_OBJECTS", objects.join(" ")),
    ];
    // It is not stopped: it may be what lets a database write again.
    hook(cli, client, (name, "after"), &job.after, &told, (None, None))
}

/// Runs a program to its end, or until it is to stop. It has no input, its output goes where our messages go, and it is
/// not told the passphrase.
fn hook(
    cli: &Globals,
    client: Option<&NetworkJob>,
    (name, which): (&str, &str),
    command: &[String],
    told: &[(&'static str, String)],
    (stop, then): (Option<&AtomicBool>, Option<&[String]>),
) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    if let Some(client) = client {
        let with_job = |told: &[(&'static str, String)]| -> Vec<_> {
            [("CAPSTAN_JOB", name.to_owned())].into_iter().chain(told.iter().cloned()).collect()
        };
        let ran = match stop {
            Some(stop) => {
                // If the client loses this machine, it runs by itself what undoes it.
                let failed =
                    with_job(&[("CAPSTAN_OUTCOME", outcome_word(FAILED).to_owned()), (CODE, FAILED.to_string())]);
                let then = then.and_then(|then| Some((then.first()?.as_str(), &failed[..])));
                client.run_before(program, &with_job(told), then, stop)
            }
            None => client.run_after(program, &with_job(told)),
        };
        return ran.map_err(|error| format!("{which}: {error}"));
    }
    let mut child = Command::new(program);
    child.args(arguments).stdin(Stdio::null()).stdout(std::io::stderr()).env("CAPSTAN_JOB", name);
    child.envs(told.iter().map(|(name, value)| (name, value)));
    for secret in PASSPHRASES {
        child.env_remove(secret);
    }
    if let Ok(state) = state_dir(cli) {
        child.env("CAPSTAN_STATE", state);
    }
    match ProgramGroup::start_beside_terminal(&mut child).and_then(|program| ended(program, stop)) {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{which} ({program}) ended with {status}")),
        Err(error) => Err(format!("{which} ({program}) could not be started: {error}")),
    }
}

/// Waits until a program has ended, and tells it to end when we are told to stop.
fn ended(mut program: ProgramGroup, stop: Option<&AtomicBool>) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = program.ended()? {
            return Ok(status);
        }
        if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            program.stop();
        }
        std::thread::sleep(HOOK_LOOKED_AT_EVERY);
    }
}
