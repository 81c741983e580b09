//! Programs that the client runs for a job: those that its own settings name, and no others.
//!
//! A program that undoes another, such as one that lets a database write again, is run whatever becomes of the job: it
//! is never stopped, and if the mover is gone before it has ordered it, the client runs it by itself.

use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::orders::{JobOrder, JobReport, OrdersLink, REPORTS_EVERY, RunScript};
use super::rules::ClientRules;

/// How often it is looked whether a program has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// What the names of variables begin with that a server may set.
const TOLD: &str = "CAPSTAN_";

/// A program that is to be run before the job ends.
pub(super) type Owed = Mutex<Option<RunScript>>;

pub(super) fn no_script(name: &str) -> String {
    format!(
        "client.toml of this machine has no script {name}: add it there under [scripts], and start the client again"
    )
}

/// Runs a program to its end, and reports meanwhile. An error is that of the orders link.
pub(super) fn run(
    rules: &dyn ClientRules,
    link: &mut OrdersLink,
    mut order: RunScript,
    owed: &Owed,
    stop: &AtomicBool,
) -> io::Result<Result<(), String>> {
    if let Some(then) = order.then.take() {
        *owed.lock().unwrap_or_else(PoisonError::into_inner) = Some(*then);
    } else if !order.can_be_stopped {
        *owed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    let mut child = match start(rules, &order) {
        Ok(child) => child,
        Err(reason) => return Ok(Err(reason)),
    };
    let (mut is_told, mut reported, mut lost) = (false, Instant::now(), None);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let mut stops = stop.load(Ordering::Relaxed) || lost.is_some();
        if lost.is_none() && reported.elapsed() > REPORTS_EVERY {
            reported = Instant::now();
            let asked = link.send(&JobReport::StillRuns, &[]).and_then(|()| link.receive());
            match asked {
                Ok((answer, _)) => stops |= matches!(answer, JobOrder::Stop),
                Err(error) => lost = Some(error),
            }
        }
        if stops && order.can_be_stopped && !is_told {
            is_told = true;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            // It has not been waited for, so the number is still its own.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        thread::sleep(LOOKS);
    };
    lost.map_or(Ok(()), Err)?;
    Ok(ended(&order.script, status))
}

/// Runs what is still owed, once the job is over.
pub(super) fn run_owed(rules: &dyn ClientRules, owed: &Owed) -> Option<String> {
    let order = owed.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let ran = start(rules, &order).and_then(|mut child| {
        let status = child.wait().map_err(|error| format!("{}: {error}", order.script))?;
        ended(&order.script, status)
    });
    ran.err()
}

fn start(rules: &dyn ClientRules, order: &RunScript) -> Result<Child, String> {
    let name = &order.script;
    let words = rules.script(name).ok_or_else(|| no_script(name))?;
    let (program, arguments) = words.split_first().ok_or_else(|| no_script(name))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(io::stderr());
    // Other variables would change what the program is.
    command.envs(order.told.iter().filter(|(name, _)| name.starts_with(TOLD)).map(|(name, value)| (name, value)));
    let failed = |error| format!("{name} ({}) could not be started: {error}", Path::new(program).display());
    command.spawn().map_err(failed)
}

fn ended(name: &str, status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}
