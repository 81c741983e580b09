//! `put` and `get`: what scripts and other programs store by name, each time as a version of its own.

use std::fs::{File, Permissions};
use std::io::{BufWriter, Write, stdin, stdout};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use capstan_catalog::{Object, ObjectFilter, ObjectStatus};
use capstan_director::{DirectorError, FileGiven, JobConfig, Retention, Site, find_settings, index_path};
use capstan_format::ObjectKind;

use super::job::{fault_of, run_by_hand};
use crate::args;
use crate::audited::{ShellAct, audited};
use crate::failure::{DONE_WITH_PROBLEMS, Failure, director};
use crate::globals::Globals;
use crate::progress::{Display, stop_on_interrupt};
use crate::secrets::{Need, now_ns, open, site, state_dir};
use crate::table::path_text;
use crate::units;
use crate::wording::short_id;

/// Bytes that are given on at a time.
const OUTPUT_BUFFER: usize = 1 << 20;

const HOUR_NS: i64 = 3_600_000_000_000;

/// Major and minor number of `/dev/null`.
const DEV_NULL: (u32, u32) = (1, 3);

pub(crate) fn put(cli: &Globals, args: &args::Put) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    check_name(&args.name)?;
    find_settings(&state_dir(cli)?)?;
    let job = policy_of(&site(cli)?, args, &display)?;
    if let Some(path) = &args.file {
        read_instead(path)?;
    }
    let kept_ns = args.retention.as_deref().map(retention_ns).transpose()?;
    if let (Some((name, policy)), Some(kept_ns)) = (&job, kept_ns) {
        if policy.keep.is_some() {
            return Err(Failure::Usage(format!(
                "policy {name} keeps by its rule, whatever a retention says: leave --retention out, or name another \
                 policy"
            )));
        }
        if policy.lock && policy.retention_ns().is_some_and(|locked_ns| kept_ns < locked_ns) {
            let locked = policy.retention.as_deref().unwrap_or_default();
            return Err(Failure::Usage(format!(
                "policy {name} locks what it stores for {locked}: --retention is shorter"
            )));
        }
    }
    if args.file.is_none() && args.command.is_empty() && !args.may_be_empty && is_input_empty() {
        return Err(Failure::Other(
            "standard input is empty, and nothing was stored: if a program was to make it, let `capstan put NAME -- \
             PROGRAM` run that, which stores nothing if it fails. --may-be-empty stores what is empty"
                .to_owned(),
        ));
    }
    let job = job.map(|(name, job)| match &args.retention {
        Some(_) => (name, JobConfig { retention: args.retention.clone(), ..job }),
        None => (name, job),
    });
    let backup = args::Backup {
        sources: args.command.clone(),
        stdin: Some(args.name.clone()),
        from_command: !args.command.is_empty(),
        tags: args.tags.clone(),
        is_put: true,
        unit: args.unit.clone(),
        pool: args.pool.clone(),
        copies: args.copies,
        lock: args.lock,
        // Two scripts that store under one name at the same moment are no mistake.
        wait: Some(if args.wait { args::WaitFor::All } else { args::WaitFor::Writer }),
        ..args::Backup::default()
    };
    run_by_hand(cli, &backup, job, kept_ns.map_or(Retention::OfPool, Retention::For), &display)
}

/// A name is one whatever way it is written: `a`, `./a` and `/a` would be three, with versions of their own; and what
/// begins at the root is the source of a backup.
fn check_name(name: &str) -> Result<(), Failure> {
    if !name.is_empty() && index_path(name.as_bytes()) == name.as_bytes() && name.split('/').all(|part| part != "..") {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{name:?} is no name to store under: leave out slashes in front, behind and beside others, and the parts . and \
         .., as in dumps/shop.sql"
    )))
}

/// How long a version is kept, as somebody typed it.
fn retention_ns(text: &str) -> Result<i64, Failure> {
    let kept_ns = units::parse_age(text).map_err(Failure::Usage)?;
    if kept_ns < HOUR_NS {
        return Err(Failure::Usage(format!(
            "--retention {text} is shorter than an hour: m is for minutes, and a month is 30d or 4w"
        )));
    }
    Ok(kept_ns)
}

/// Whether standard input has nothing, where that can be seen before it is read. Of a pipe it is waited until something
/// comes or its writer ends.
fn is_input_empty() -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::{FileType, fstat, major, minor, tell};
    use rustix::io::pread;
    let input = stdin();
    let Ok(about) = fstat(&input) else { return false };
    match FileType::from_raw_mode(about.st_mode) {
        // What the kernel makes when it is read has no length.
        FileType::RegularFile => tell(&input).is_ok_and(|at| pread(&input, &mut [0; 1], at).is_ok_and(|len| len == 0)),
        FileType::CharacterDevice => (major(about.st_rdev), minor(about.st_rdev)) == DEV_NULL,
        FileType::Fifo => {
            let mut asked = [PollFd::new(&input, PollFlags::IN)];
            let is_told = poll(&mut asked, None).is_ok();
            is_told && !asked[0].revents().contains(PollFlags::IN)
        }
        _ => false,
    }
}

/// The job or policy that a name is stored under, if one takes it.
fn policy_of(site: &Site, args: &args::Put, display: &Display) -> Result<Option<(String, JobConfig)>, Failure> {
    let jobs = &site.config().jobs;
    let name = match &args.policy {
        Some(asked) => {
            let job = jobs.get(asked).ok_or_else(|| DirectorError::UnknownPolicy { name: asked.clone() })?;
            if !job.takes_puts() {
                return Err(Failure::Usage(format!(
                    "{asked} stores nothing by name: give it put_names, which are the names that it takes"
                )));
            }
            asked
        }
        None => {
            let taking: Vec<_> =
                jobs.iter().filter(|(_, job)| job.takes_name(&args.name)).map(|(name, _)| name).collect();
            match taking[..] {
                [] => {
                    for policy in site.policies()?.iter().filter(|policy| policy.config == JobConfig::default()) {
                        let Some(reason) = &policy.fault else { continue };
                        display.warn(&format!(
                            "policy {} cannot be read ({reason}): whether it takes {} is not known, which is stored \
                             without a policy",
                            policy.name, args.name
                        ));
                    }
                    return Ok(None);
                }
                [one] => one,
                [one, other, ..] => {
                    return Err(Failure::Usage(format!(
                        "{} is a name that {one} and {other} take: say which with --policy",
                        args.name
                    )));
                }
            }
        }
    };
    if let Some(fault) = fault_of(site, name) {
        return Err(fault.into());
    }
    Ok(jobs.get(name).map(|job| (name.clone(), job.clone())))
}

/// Makes a file what this process reads as its standard input.
fn read_instead(path: &Path) -> Result<(), Failure> {
    let wrong = |reason: String| Failure::Other(format!("{} cannot be stored: {reason}", path.display()));
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    if file.metadata().is_ok_and(|about| about.is_dir()) {
        return Err(wrong("it is a directory, and `capstan backup` is for those".to_owned()));
    }
    rustix::stdio::dup2_stdin(&file).map_err(|error| wrong(error.to_string()))
}

pub(crate) fn get(cli: &Globals, args: &args::Get) -> Result<ExitCode, Failure> {
    let display = Display::new(cli);
    let to = args.to.as_deref().map(|to| target(to, args.overwrite)).transpose()?;
    let site = open(cli, Need::Keys, display.events())?;
    let object = version_of(&site, args)?;
    let stop = Arc::new(AtomicBool::new(false));
    if to.is_some() {
        stop_on_interrupt(&stop);
    }
    let read = |out: &mut (dyn Write + Send)| {
        audited(&site, ShellAct::Restore, &[object.id.to_string()], || {
            Ok(site.cat_file(object.id, &index_path(&object.source), out, &stop)?)
        })
    };
    let given = match &to {
        None => {
            let mut out = BufWriter::with_capacity(OUTPUT_BUFFER, stdout());
            let given = read(&mut out)?;
            out.flush().map_err(Failure::output)?;
            given
        }
        Some(to) => {
            let given = write_whole(to, args.overwrite, read)?;
            display.say(&format!("{}: version {} is in {}", args.name, short_id(object.id), to.display()));
            given
        }
    };
    if given.is_incomplete {
        display.warn(&format!("version {} of {} was not stored to its end", short_id(object.id), args.name));
        return Ok(ExitCode::from(DONE_WITH_PROBLEMS));
    }
    Ok(ExitCode::SUCCESS)
}

/// The file that is written: where a link leads. Another one than a file is not replaced by one.
fn target(to: &Path, overwrite: bool) -> Result<PathBuf, Failure> {
    let wrong = |reason: &str| Failure::Other(format!("{} {reason}", to.display()));
    if to.symlink_metadata().is_err() {
        return Ok(to.to_owned());
    }
    match to.metadata() {
        Err(_) => Err(wrong("is a link that leads nowhere: remove it, or name another file")),
        Ok(about) if about.is_dir() => Err(wrong("is a directory: name the file in it")),
        Ok(about) if !about.is_file() => Err(wrong("is no file: leave --to out, and redirect the output there")),
        Ok(_) if !overwrite => Err(wrong("is there: --overwrite replaces it")),
        Ok(_) => to.canonicalize().map_err(|error| wrong(&format!("cannot be followed: {error}"))),
    }
}

/// Writes a file under its name once all of it is there. What was not stored to its end takes the place of none.
fn write_whole(
    to: &Path,
    overwrite: bool,
    read: impl FnOnce(&mut (dyn Write + Send)) -> Result<FileGiven, Failure>,
) -> Result<FileGiven, Failure> {
    let wrong = |error: std::io::Error| Failure::Other(format!("{} cannot be written: {error}", to.display()));
    let below = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // What it may be read by, the umask says, as of any new file.
    let mode = Permissions::from_mode(0o666);
    let staged = tempfile::Builder::new().prefix(".capstan-get-").permissions(mode).tempfile_in(below);
    let mut staged = staged.map_err(wrong)?;
    let mut out = BufWriter::with_capacity(OUTPUT_BUFFER, staged.as_file_mut());
    let given = read(&mut out)?;
    out.flush().map_err(wrong)?;
    drop(out);
    staged.as_file().sync_all().map_err(wrong)?;
    if given.is_incomplete && to.symlink_metadata().is_ok() {
        let reason = "that version was not stored to its end, and takes the place of nothing: name another file";
        return Err(Failure::Other(format!("{} stays as it is: {reason}", to.display())));
    }
    let persisted = match overwrite {
        true => staged.persist(to),
        false => staged.persist_noclobber(to),
    };
    persisted.map_err(|error| wrong(error.error))?;
    Ok(given)
}

/// The version that is meant.
fn version_of(site: &Site, args: &args::Get) -> Result<Object, Failure> {
    let at_ns = args.at.as_deref().map(|text| units::parse_time(text, now_ns())).transpose().map_err(Failure::Usage)?;
    let filter = ObjectFilter {
        source: Some(args.name.clone().into_bytes()),
        client: args.of.clone(),
        status: Some(ObjectStatus::Complete),
        ..ObjectFilter::default()
    };
    let mut versions = site.catalog().objects(&filter).map_err(director)?;
    versions.retain(|object| object.kind == ObjectKind::Stream);
    let name = path_text(args.name.as_bytes());
    if versions.is_empty() {
        let of = args.of.as_ref().map_or(String::new(), |of| format!(" by client {of}"));
        return Err(Failure::Other(format!(
            "nothing is stored as {name}{of}: `capstan objects` lists what is, by source"
        )));
    }
    let mut clients: Vec<_> = versions.iter().map(|object| object.client.clone()).collect();
    clients.sort();
    clients.dedup();
    if clients.len() > 1 {
        let clients = clients.join(" and ");
        return Err(Failure::Usage(format!("{name} is stored by {clients}: say which with --of")));
    }
    let is_meant = |object: &Object| {
        let id = object.id.to_string();
        let is_typed = |typed: &str| !typed.is_empty() && (id.starts_with(typed) || id.ends_with(typed));
        args.id.as_deref().is_none_or(is_typed)
            && args.tags.iter().all(|tag| object.tags.contains(tag))
            && at_ns.is_none_or(|at_ns| object.started_ns <= at_ns)
    };
    let count = versions.len();
    let mut meant = versions.into_iter().filter(is_meant);
    let first = meant.next().ok_or_else(|| {
        let versions = units::counted(count as u64, "version");
        Failure::Other(format!(
            "{name} has {versions}, and none is that one: `capstan objects --source {name}` lists them"
        ))
    })?;
    if args.id.is_some() && meant.next().is_some() {
        return Err(Failure::Usage(format!("several versions of {name} are called so: write more of the id")));
    }
    Ok(first)
}
