//! Programs that the client runs for a job: those that its own settings name, and no others.
//!
//! A program that undoes another, such as one that lets a database write again, is run whatever becomes of the job: it
//! is never stopped, and if the mover is gone before it has ordered it, the client runs it by itself
//! ([`super::undoing`]).

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::orders::{JobOrder, JobReport, OrdersLink, REPORTS_EVERY, RunScript};
use super::rules::ClientRules;
use super::undoing::{HeldPair, OwedScripts, Pair};
use crate::program_group::ProgramGroup;

/// How often it is looked whether a program has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// How long a job waits for what an earlier one of the same pair of programs owes.
const OWED_WITHIN: Duration = Duration::from_secs(600);
/// What the names of variables begin with that a server may set.
const TOLD: &str = "CAPSTAN_";

/// A program that is to be run before the job ends.
pub(super) type Owed<'a> = Mutex<Option<OwedScript<'a>>>;

/// The program, and what keeps its pair to this job.
pub(super) struct OwedScript<'a> {
    order: RunScript,
    held: Option<HeldPair<'a>>,
}

fn take<'a>(owed: &Owed<'a>) -> Option<OwedScript<'a>> {
    owed.lock().unwrap_or_else(PoisonError::into_inner).take()
}

pub(super) fn no_script(name: &str) -> String {
    format!(
        "client.toml of this machine has no script {name}: add it there under [scripts], and start the client again"
    )
}

/// Tells the mover that something goes on, and hears from it whether it is to stop.
struct Reporting<'a> {
    link: &'a mut OrdersLink,
    stop: &'a AtomicBool,
    reported: Instant,
    lost: Option<io::Error>,
    is_told: bool,
}

impl<'a> Reporting<'a> {
    fn new(link: &'a mut OrdersLink, stop: &'a AtomicBool) -> Self {
        Self { link, stop, reported: Instant::now(), lost: None, is_told: false }
    }

    /// Reports where it is time to; whether what goes on is to stop.
    fn stops(&mut self) -> bool {
        if self.lost.is_none() && self.reported.elapsed() > REPORTS_EVERY {
            self.reported = Instant::now();
            let asked = self.link.send(&JobReport::StillRuns, &[]).and_then(|()| self.link.receive());
            match asked {
                Ok((answer, _)) => self.is_told |= matches!(answer, JobOrder::Stop),
                Err(error) => self.lost = Some(error),
            }
        }
        self.is_told || self.lost.is_some() || self.stop.load(Ordering::Relaxed)
    }

    fn finish(self) -> io::Result<()> {
        self.lost.map_or(Ok(()), Err)
    }
}

/// Runs a program to its end, and reports meanwhile. An error is that of the orders link.
pub(super) fn run<'a>(
    rules: &'a dyn ClientRules,
    link: &mut OrdersLink,
    mut order: RunScript,
    owed: &Owed<'a>,
    stop: &AtomicBool,
) -> io::Result<Result<(), String>> {
    let mut reporting = Reporting::new(link, stop);
    let mut undoes = None;
    if let Some(then) = order.then.take() {
        let held = match hold(rules, &mut reporting, (&order, &then), owed) {
            Ok(held) => held,
            Err(reason) => return reporting.finish().map(|()| Err(reason)),
        };
        *owed.lock().unwrap_or_else(PoisonError::into_inner) = Some(OwedScript { order: *then, held });
    } else if !order.can_be_stopped {
        undoes = take(owed);
    }
    let mut program = match start(rules, &order) {
        Ok(program) => program,
        Err(reason) => return Ok(Err(reason)),
    };
    let status = loop {
        if let Some(status) = program.ended()? {
            break status;
        }
        if reporting.stops() && order.can_be_stopped {
            program.stop();
        }
        thread::sleep(LOOKS);
    };
    if let Some(held) = undoes.and_then(|undoes| undoes.held) {
        held.has_run();
    }
    reporting.finish()?;
    Ok(ended(&order.script, status))
}

/// Keeps a pair of programs to this job, and notes what is owed; waits for an earlier job that owes the same.
fn hold<'a>(
    rules: &'a dyn ClientRules,
    reporting: &mut Reporting<'_>,
    (before, after): (&RunScript, &RunScript),
    owed: &Owed<'a>,
) -> Result<Option<HeldPair<'a>>, String> {
    let Some(scripts) = rules.owed() else { return Ok(None) };
    // A job owes one program: what it owed before is what it owes again.
    if let Some(held) = take(owed).and_then(|owed| owed.held) {
        held.has_run();
    }
    let (pair, until) = (Pair::of(before, after), Instant::now() + OWED_WITHIN);
    loop {
        if let Some(mut held) = scripts.hold(&pair) {
            held.owe(after)?;
            return Ok(Some(held));
        }
        if reporting.stops() {
            return Err("it was told to stop".to_owned());
        }
        if Instant::now() > until {
            return Err(format!(
                "{} was not run, because {} of an earlier attempt is still owed or running at this machine, for ten \
                 minutes now: look what that attempt, or the script, waits for",
                before.script, after.script
            ));
        }
        thread::sleep(LOOKS);
    }
}

/// Runs what is still owed, once the job is over.
pub(super) fn run_owed(rules: &dyn ClientRules, owed: &Owed<'_>) -> Option<String> {
    let OwedScript { order, held } = take(owed)?;
    let ran = start(rules, &order).and_then(|program| {
        let ran = wait_for(program, &order.script);
        if let Some(held) = held {
            held.has_run();
        }
        ran
    });
    ran.err()
}

impl OwedScripts {
    /// Runs what a process before this one owed when it was killed, one after the other. `say` is told of each.
    pub fn run_left(&self, rules: &dyn ClientRules, say: &dyn Fn(String)) {
        for left in self.left() {
            let path = left.path.display();
            let owed = match &left.owed {
                Ok(owed) => owed,
                Err(error) => {
                    say(format!(
                        "{path} says that a script is owed, and cannot be read: {error}. Run by hand what undoes your \
                         scripts, and remove the file"
                    ));
                    continue;
                }
            };
            let name = &owed.script;
            say(format!("script {name} is owed by a job that ended with this client's process: it is run now"));
            match start(rules, owed) {
                Ok(program) => {
                    say(wait_for(program, name).err().unwrap_or_else(|| format!("script {name} has ended well")));
                    // If it stays, the program is run once more.
                    drop(std::fs::remove_file(&left.path));
                }
                Err(reason) => say(format!("{reason}; or do by hand what {name} does, and remove {path}")),
            }
        }
    }
}

/// Waits for a program's end, whoever stops what.
fn wait_for(mut program: ProgramGroup, name: &str) -> Result<(), String> {
    loop {
        if let Some(status) = program.ended().map_err(|error| format!("{name}: {error}"))? {
            return ended(name, status);
        }
        thread::sleep(LOOKS);
    }
}

fn start(rules: &dyn ClientRules, order: &RunScript) -> Result<ProgramGroup, String> {
    let name = &order.script;
    let words = rules.script(name).ok_or_else(|| no_script(name))?;
    let (program, arguments) = words.split_first().ok_or_else(|| no_script(name))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(io::stderr());
    // Other variables would change what the program is.
    command.envs(order.told.iter().filter(|(name, _)| name.starts_with(TOLD)).map(|(name, value)| (name, value)));
    let failed = |error| format!("{name} ({}) could not be started: {error}", Path::new(program).display());
    ProgramGroup::start(&mut command).map_err(failed)
}

fn ended(name: &str, status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}
