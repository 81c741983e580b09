//! `init` and `backup`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capstan_client::MemberState;
use capstan_director::{
    BackupReport, BackupRequest, BackupWatch, Bandwidth, Config, DEFAULT_POOL, DirectorError, Events, InitOptions,
    KeysConfig, Level, MANUAL, NetworkShare, Retention, Shortfall, Site, SourceOutcome, Tally, Target, subject_of_job,
};
use capstan_format::ObjectId;
use capstan_keys::api::PeerKind;
use capstan_mover::devices::BY_HAND;
use capstan_mover::{
    CacheDirectories, Mounts, ProblemKind, RestoreWatch, Severity, SourceProblem, StreamInput, TreeOptions, patterns_in,
};
use rustix::fs::statvfs;

use crate::args::{self, Device, WaitFor};
use crate::failure::{DONE_WITH_PROBLEMS, FAILED, Failure, of_member};
use crate::globals::Globals;
use crate::json::{self, BackupEnd};
use crate::place::MATCHED_NOTHING;
use crate::progress::{Display, Standing, missing_text, rate};
use crate::secrets::{Need, new_unlock, state_dir};
use crate::table::{Table, path_text};
use crate::units;
use crate::wording::short_id;
use crate::work::consolidate::behind_a_run;
use crate::work::recorded::{Ending, Record, recorded_in};

/// Most connections that are taken without being asked for.
const CONNECTIONS_MAX: usize = 8;
/// Virtual cartridges that a disk has room for, where nobody says how large they are.
const VOLUMES_ON_A_DISK: u64 = 20;
/// Problems that are listed one by one.
const PROBLEMS_SHOWN: usize = 20;

pub(crate) fn init(cli: &Globals, args: &args::Init) -> Result<ExitCode, Failure> {
    let dir = state_dir(cli)?;
    // Before a passphrase is asked for or a key file made.
    if dir.join("capstan.toml").exists() {
        return Err(DirectorError::AlreadyInitialised { path: dir }.into());
    }
    MemberState::new(&dir, PeerKind::Server).check_others().map_err(of_member)?;
    let mut config = Config::default();
    config.library.volumes_max = args.volumes_max;
    config.library.drives = args.drives;
    if let Some(library) = &args.library {
        config.library.path = absolute(library)?;
    }
    config.library.volume_mib = match args.volume_size {
        Some(bytes) => (bytes >> 20).max(1),
        None => volume_gib(&absolute(&dir.join(&config.library.path))?) << 10,
    };
    if let Some(changer) = &args.changer {
        config.library.changer = absolute(changer)?;
    }
    if args.standalone {
        config.library.changer = PathBuf::from(BY_HAND);
    }
    if !config.library.is_virtual() {
        config.library.devices = args.devices.iter().map(|device| absolute(device)).collect::<Result<_, _>>()?;
    }
    let of_cluster = args.keys.identity.is_some();
    if let Some(identity) = &args.keys.identity {
        let (nodes, site) = (args.keys.nodes.clone(), args.keys.site.clone().unwrap_or_default());
        config.keys = KeysConfig { nodes, identity: absolute(identity)?, site };
    }
    let unlock = if of_cluster { None } else { Some(new_unlock(cli)?) };
    let options = InitOptions { config, encryption: args.encrypt.algorithm(), database: args.database.clone() };
    Site::init(&dir, &options, unlock.as_ref())?;
    if cli.json {
        json::print(&json::Event::Initialised { state: dir.display().to_string() })?;
        return Ok(ExitCode::SUCCESS);
    }
    if of_cluster {
        println!("Capstan's state is in {}. Its keys are kept by the key cluster.", dir.display());
        println!("`capstan keys status` shows which of its nodes answer; it needs no passphrase here.");
        return Ok(ExitCode::SUCCESS);
    }
    let secret = match &cli.key_file {
        Some(file) => format!("the key file {}", file.display()),
        None => "the passphrase".to_owned(),
    };
    println!("Capstan's state is in {}.", dir.display());
    println!();
    println!("KEEP SAFE, somewhere else than on this machine:");
    println!("  1. {secret}: without it the keys cannot be opened;");
    println!(
        "  2. a copy of the keys, and its passphrase, after each volume that is labelled: capstan keys export FILE."
    );
    println!("Whoever loses both loses every encrypted volume for good. Nobody can help then.");
    println!("And a copy of capstan.toml, once it has jobs, and of the file of policies (capstan policies export):");
    println!("their excludes and rules are nowhere else.");
    Ok(ExitCode::SUCCESS)
}

/// The size of a virtual cartridge where nobody names one: many have room on its disk, so that expiry frees some.
fn volume_gib(library: &Path) -> u64 {
    let about = library.ancestors().find_map(|path| statvfs(path).ok());
    let disk = about.map_or(u64::MAX, |about| about.f_blocks.saturating_mul(about.f_frsize));
    ((disk / VOLUMES_ON_A_DISK) >> 30).clamp(1, 100)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let text = |error: std::io::Error| Failure::Usage(format!("{}: {error}", path.display()));
    // Kept as it was named, links and all, but without `.` and relative parts.
    std::path::absolute(path).map_err(text)
}

fn request(args: &args::Backup, retention: Retention, display: &Display) -> Result<BackupRequest, Failure> {
    let command: Vec<_> = args.sources.iter().filter(|_| args.from_command).map(|word| word.clone().into()).collect();
    if args.from_command && command.is_empty() {
        return Err(Failure::Usage(
            "--from-command needs a program: capstan backup --stdin NAME --from-command -- PROGRAM".to_owned(),
        ));
    }
    if args.stdin.is_some() && command.is_empty() && !args.sources.is_empty() {
        let reason =
            "--stdin takes no sources; to back up what a program prints, add --from-command and name it behind --";
        return Err(Failure::Usage(reason.to_owned()));
    }
    let paths = if args.from_command { &[][..] } else { &args.sources[..] };
    let sources: Result<Vec<_>, _> = paths.iter().map(|source| normalised(source)).collect();
    let stream = args.stdin.clone().map(|name| StreamInput { name, command });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let connections = args.connections.unwrap_or_else(|| cores.min(CONNECTIONS_MAX) as u16);
    Ok(BackupRequest {
        sources: sources?,
        stream,
        pool: args.pool.clone().unwrap_or_else(|| DEFAULT_POOL.to_owned()),
        policy: args.policy.clone().unwrap_or_else(|| MANUAL.to_owned()),
        retention,
        is_locked: args.lock,
        tags: args.tags.clone(),
        connections,
        copies: args.copies.unwrap_or(1),
        drives: args.drives.unwrap_or(1),
        drives_by_need: args.drives_by_need,
        level: if args.incremental || args.full_every.is_some() { Level::Incremental } else { Level::Full },
        full_every_ns: args.full_every.as_deref().map(units::parse_age).transpose().map_err(Failure::Usage)?,
        tree: TreeOptions {
            excludes: excludes(args)?,
            mounts: if args.one_file_system { Mounts::Stay } else { Mounts::Cross },
            caches: if args.exclude_caches { CacheDirectories::LeaveOut } else { CacheDirectories::Read },
            snapshot: args.snapshot.map_or_else(Default::default, Into::into),
            may_be_empty: args.may_be_empty,
        },
        target: if args.device == Device::Null { Target::Null } else { Target::Pool },
        compression: args.compression,
        // For a percentage that nobody sees no directory is listed twice.
        count_first: !args.no_tree_walk && display.is_followed(),
        shortfall: if args.wait == Some(WaitFor::All) { Shortfall::Wait } else { Shortfall::Fail },
        waits_for_writer: args.wait.is_some(),
        session: None,
        run: None,
        bandwidth: None,
        network: None,
    })
}

/// The patterns of the command line and of files.
fn excludes(args: &args::Backup) -> Result<Vec<String>, Failure> {
    let mut excludes = args.exclude.clone();
    for file in &args.exclude_from {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("--exclude-from {} cannot be read: {error}", file.display())))?;
        excludes.extend(patterns_in(&text));
    }
    Ok(excludes)
}

/// An absolute path without `..`, so that the same source has the same name whatever the working directory.
pub(super) fn normalised(source: &Path) -> Result<PathBuf, Failure> {
    let path = absolute(source)?;
    if !path.components().any(|part| part == std::path::Component::ParentDir) {
        return Ok(path.components().collect());
    }
    // One that is not there is named with those that are not, and does not stop the others.
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

/// How a backup ended that was run.
pub(super) struct Ended {
    /// The exit code.
    pub(super) code: u8,
    /// The objects it made, or went on with.
    pub(super) objects: Vec<ObjectId>,
    /// How it went, in a line.
    pub(super) message: String,
}

/// Opens the site of a job, for whoever is told of its events.
pub(super) type OpenSite<'a> = dyn Fn(Need, Events) -> Result<Site, Failure> + 'a;

/// What a backup stands in: how its site is opened, and what is done when it has begun and when it has ended.
pub(super) struct Frame<'a> {
    /// Opens the site.
    pub(super) open: &'a OpenSite<'a>,
    /// Called once the history has it.
    pub(super) begun: &'a dyn Fn() -> Result<(), Failure>,
    /// Told how it ended; gives what went wrong then.
    pub(super) after: &'a dyn Fn(&Result<Ended, Failure>) -> Option<String>,
    /// The session that it shares with other runs of a server.
    pub(super) session: Option<i64>,
    /// The run of a server's queue that it is an attempt of.
    pub(super) run: Option<i64>,
    /// How fast its sources may be read.
    pub(super) bandwidth: Option<Bandwidth>,
    /// Its share of what its client's network takes.
    pub(super) network: Option<Arc<NetworkShare>>,
}

impl Ended {
    /// Notes what went wrong once it had ended: behind what went wrong before, which it often came of.
    fn went_wrong_afterwards(&mut self, reason: String) {
        match self.code {
            0 => (self.code, self.message) = (DONE_WITH_PROBLEMS, reason),
            _ => self.message = format!("{}; {reason}", self.message),
        }
    }
}

impl Ending for Ended {
    fn code(&self) -> u8 {
        self.code
    }
}

/// Runs a backup as the command line, and the job that was laid over it, ask for it.
pub(super) fn run(
    cli: &Globals,
    args: &args::Backup,
    retention: Retention,
    display: &Display,
    watch: &BackupWatch,
    frame: &Frame<'_>,
) -> Result<Ended, Failure> {
    let request = BackupRequest {
        session: frame.session,
        run: frame.run,
        bandwidth: frame.bandwidth.clone(),
        network: frame.network.clone(),
        ..request(args, retention, display)?
    };
    let need = if request.target == Target::Null { Need::Nothing } else { Need::Keys };
    let site = (frame.open)(need, display.events())?;
    let site = match &args.client {
        Some(client) => site.for_client(client),
        None => site,
    };
    // A server has said in which library its run writes.
    let site = match (request.target, frame.session) {
        (Target::Pool, None) => site.in_unit(args.unit.as_deref())?,
        _ => site,
    };
    let work = |record: &mut Record| {
        (frame.begun)()?;
        let ended = display.follow(&|| Standing::of_backup(watch), || site.backup(&request, watch));
        let mut ended = ended
            .map_err(Failure::from)
            .and_then(|report| conclude(cli, display, (&report, args.is_put), (record, frame.run.is_some())));
        if let (Some(reason), Ok(ended)) = ((frame.after)(&ended), ended.as_mut()) {
            ended.went_wrong_afterwards(reason);
            record.message.clone_from(&ended.message);
        }
        if let (Some(after), Ok(ended)) = (args.consolidate_after, ended.as_mut()) {
            let reading = RestoreWatch { stop: Arc::clone(&watch.stop), ..RestoreWatch::default() };
            let work = || behind_a_run(&site, (&request.policy, after), &ended.objects, (request.shortfall, &reading));
            // What was backed up is backed up, whatever becomes of that.
            let told = display.follow(&|| Standing::of_reading(&reading), work);
            for told in told.unwrap_or_else(|error| vec![Err(error.to_string())]) {
                match told {
                    Ok(line) => display.say(&line),
                    Err(reason) => {
                        display.warn(&reason);
                        ended.went_wrong_afterwards(reason);
                    }
                }
            }
            record.message.clone_from(&ended.message);
        }
        ended
    };
    if request.target == Target::Null {
        let ended = work(&mut Record::default());
        display.say("nothing is stored: --device null only measures");
        return ended;
    }
    let subject = match site.sources_are_here() {
        true => subject(&request),
        false => format!("{} of {}", subject(&request), site.client()),
    };
    let journal = match frame.run {
        // Its next attempt has to find what this one writes.
        Some(_) => Some(display.must_enter(&site, "backup", &subject)?),
        None => display.enter(&site, "backup", &subject),
    };
    recorded_in(journal.as_deref(), work)
}

/// Shows how it ended, and notes it. An attempt of a server's run has failed if one of its sources has: the next one
/// reads that alone.
fn conclude(
    cli: &Globals,
    display: &Display,
    (report, is_put): (&BackupReport, bool),
    (record, is_attempt): (&mut Record, bool),
) -> Result<Ended, Failure> {
    record.tally = tally(report);
    let failed = report.sources.iter().find_map(|source| Some((&source.source, source.report.as_ref().err()?)));
    let code = match show(cli, display, (report, is_put))? {
        DONE_WITH_PROBLEMS if is_attempt && failed.is_some() => FAILED,
        code => code,
    };
    record.message = match failed {
        // Figures of nothing say nothing.
        Some((_, reason)) if code == FAILED && report.sources.len() == 1 => reason.clone(),
        Some((source, reason)) if code == FAILED => format!("{}: {reason}", path_text(source)),
        // What is missing comes first: the figures say nothing of it.
        _ => problems(report).into_iter().chain([summary(report)]).collect::<Vec<_>>().join("; "),
    };
    let earlier = report.earlier.iter().map(|earlier| earlier.object);
    let objects = earlier.chain(report.sources.iter().map(|source| source.object)).collect();
    Ok(Ended { code, objects, message: record.message.clone() })
}

/// What is backed up, for the history: of a job its name, too.
fn subject(request: &BackupRequest) -> String {
    let sources = request.sources.iter().map(|source| path_text(source.as_os_str().as_bytes()));
    let job = Some(request.policy.clone()).filter(|policy| policy != MANUAL).into_iter();
    let words = job.map(|job| subject_of_job(&job)).chain(sources);
    words.chain(request.stream.iter().map(|stream| stream.name.clone())).collect::<Vec<_>>().join(" ")
}

fn tally(report: &BackupReport) -> Tally {
    let read = || report.sources.iter().filter_map(|source| source.report.as_ref().ok());
    let (files, bytes) = (read().map(|read| read.files).sum(), read().map(|read| read.bytes).sum());
    Tally { files, bytes, stored: report.stored_bytes }
}

/// Shows how it ended, and gives the exit code.
fn show(cli: &Globals, display: &Display, (report, is_put): (&BackupReport, bool)) -> Result<u8, Failure> {
    let mut losses = 0;
    let mut failed = 0;
    for source in &report.sources {
        match &source.report {
            Ok(read) => {
                losses += read.count(Severity::Loss);
                let all = read.count(Severity::Loss) + read.count(Severity::Unsteady);
                let worth_saying = read.problems.iter().filter(|problem| problem.kind.severity() >= Severity::Unsteady);
                let shown: Vec<_> = worth_saying.take(PROBLEMS_SHOWN).collect();
                for problem in &shown {
                    display.warn(&format!("{}: {}", path_text(&problem.path), problem.kind));
                }
                show_notes(display, &read.problems);
                let hidden = all.saturating_sub(shown.len() as u64);
                if hidden > 0 {
                    let hidden = units::count(hidden);
                    let source = path_text(&source.source);
                    display.warn(&format!(
                        "and {hidden} more: `capstan ls -R {source}` shows them by their flags, `--json` names each"
                    ));
                }
            }
            Err(reason) => {
                failed += 1;
                display.warn(&format!("{}: {reason}", path_text(&source.source)));
            }
        }
    }
    for pattern in &report.excludes_unused {
        display.say(&format!("capstan: --exclude {pattern} {MATCHED_NOTHING}"));
    }
    if cli.json {
        json::print(&BackupEnd::Finished(report.into()))?;
    } else if !cli.quiet {
        if is_put { print_stored(report) } else { print_table(report) }
    }
    let in_part = losses > 0
        || failed > 0
        || !report.failed_copies.is_empty()
        || !report.missing.is_empty()
        || report.earlier.iter().any(|earlier| !earlier.lacks.is_empty());
    Ok(if failed > 0 && failed == report.sources.len() && report.earlier.is_empty() {
        FAILED
    } else if in_part {
        DONE_WITH_PROBLEMS
    } else {
        0
    })
}

/// What is left out by its nature, such as sockets: the first of each kind, and how many there are, as far as they were
/// kept.
fn show_notes(display: &Display, problems: &[SourceProblem]) {
    let mut notes: Vec<(&SourceProblem, u64)> = Vec::new();
    for problem in problems.iter().filter(|problem| problem.kind.severity() == Severity::Note) {
        match notes.iter_mut().find(|(first, _)| first.kind == problem.kind) {
            Some((_, count)) => *count += 1,
            None => notes.push((problem, 1)),
        }
    }
    for (first, count) in notes {
        let more = match count - 1 {
            0 => String::new(),
            more => format!(", and {} of the kind", units::counted(more, "more path")),
        };
        let line = format!("{}: {}{more}", path_text(&first.path), first.kind);
        // A source of which nothing but a link is stored is hardly what was meant.
        if first.kind == ProblemKind::SourceIsLink { display.warn(&line) } else { display.say(&line) }
    }
}

/// What a script wants to know that stores something by name.
fn print_stored(report: &BackupReport) {
    for source in &report.sources {
        let Ok(read) = &source.report else { continue };
        let (name, size) = (path_text(&source.source), units::bytes(read.bytes));
        println!("{name}: {size} stored as version {}", short_id(source.object));
    }
}

fn print_table(report: &BackupReport) {
    let mut table = Table::new(&[
        "object",
        "level",
        ">files",
        ">others",
        ">directories",
        ">unchanged",
        ">deleted",
        ">size",
        "source",
    ]);
    for source in &report.sources {
        let id = source.object.to_string();
        let read = source.report.clone().unwrap_or_default();
        table.row(vec![
            id[id.len() - 8..].to_owned(),
            if source.base.is_some() { "incr" } else { "full" }.to_owned(),
            units::count(read.files),
            units::count(read.others),
            units::count(read.directories),
            units::count(read.unchanged),
            units::count(read.deleted),
            units::bytes(read.bytes),
            path_text(&source.source),
        ]);
    }
    // A summary that cannot be printed is no reason to call a backup failed.
    let _ = table.print(&mut std::io::stdout().lock());
    println!("{}", summary(report));
    for source in &report.sources {
        if let Some(gone) = &source.base_gone {
            println!("{}: {}", path_text(&source.source), gone.message(source.base));
        }
    }
}

/// What went wrong, of each kind the first.
fn problems(report: &BackupReport) -> Vec<String> {
    let missing = report.missing.iter().map(|missing| missing_text(&missing.source, &missing.reason)).collect();
    let failed = |source: &SourceOutcome| {
        source.report.as_ref().err().map(|reason| format!("{}: {reason}", path_text(&source.source)))
    };
    let copies = report.failed_copies.iter().map(|(copy, reason)| format!("copy {copy} failed: {reason}")).collect();
    let first = |all: Vec<String>| match all.len().saturating_sub(1) {
        0 => all.into_iter().next(),
        more => all.into_iter().next().map(|first| format!("{first} (and {} more)", units::count(more as u64))),
    };
    let read = report.sources.iter().filter_map(|source| source.report.as_ref().ok());
    let losses: u64 = read.map(|read| read.count(Severity::Loss)).sum();
    let unread = (losses > 0).then(|| format!("{} could not be read in full", units::counted(losses, "path")));
    let kinds = [first(missing), first(report.sources.iter().filter_map(failed).collect()), unread, first(copies)];
    kinds.into_iter().flatten().map(|text| json::words(&text)).collect()
}

/// All of it in a line.
fn summary(report: &BackupReport) -> String {
    let earlier = &report.earlier;
    if earlier.is_empty() {
        return figures(report);
    }
    let mut parts = vec![format!(
        "an earlier attempt has backed up {}",
        units::counted(earlier.len() as u64, if report.sources.is_empty() { "source" } else { "other source" })
    )];
    if !report.sources.is_empty() {
        parts.insert(0, figures(report));
    }
    parts.extend(earlier.iter().flat_map(|earlier| earlier.lacks.iter().cloned()));
    parts.join("; ")
}

fn figures(report: &BackupReport) -> String {
    let elapsed = Duration::from_nanos(report.elapsed_ns);
    let ratio = report.plain_bytes as f64 / report.stored_bytes.max(1) as f64;
    format!(
        "{} in {} ({}), {} written, ratio {ratio:.2}, bottleneck: {}",
        units::bytes(report.plain_bytes),
        units::duration(elapsed.as_secs_f64()),
        rate(report.plain_bytes, elapsed),
        units::bytes(report.stored_bytes),
        report.bottleneck.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client was lost in the middle of a backup, and the queue said that its script could not be run.
    #[test]
    fn what_ended_a_backup_comes_before_what_came_of_that() {
        let ended = |code: u8, message: &str| {
            let mut ended = Ended { code, objects: Vec::new(), message: message.to_owned() };
            ended.went_wrong_afterwards("job db: after: client tern: it is down".to_owned());
            (ended.code, ended.message)
        };
        let message = "client tern: it has ended the connection; job db: after: client tern: it is down";
        assert_eq!(ended(FAILED, "client tern: it has ended the connection"), (FAILED, message.to_owned()));
        let message = "job db: after: client tern: it is down";
        assert_eq!(ended(0, "12 files"), (DONE_WITH_PROBLEMS, message.to_owned()));
    }
}
