//! A program and all that it starts, which are told to end as a whole.
//!
//! A script that is told to end may leave what it has started at work: then what undoes it would run beside it. So a
//! program is the first of a process group of its own, the whole group is told, and the program has ended once nothing
//! of the group is left. One that ends by itself may leave something behind, such as a service that it has started.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group, test_kill_process_group};
use rustix::termios::tcgetpgrp;

/// How long a group that was told to end may take, until it is killed.
const KILLED_AFTER: Duration = Duration::from_secs(60);
/// How long what was killed is waited for: a process that a dead disk holds cannot end.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(70);

/// A program that runs.
#[derive(Debug)]
pub struct ProgramGroup {
    child: Child,
    /// Also the number of its group, if it has one.
    pid: Option<Pid>,
    has_group: bool,
    status: Option<ExitStatus>,
    told: Option<Instant>,
}

impl ProgramGroup {
    /// Starts a program in a group of its own.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        Self::started(command.process_group(0), true)
    }

    /// The same, unless this process is in the foreground of a terminal. What is typed there, such as Ctrl-C, reaches
    /// all of the foreground's group, and nobody else may ask there for a password: the program stays in that group
    /// then, and is told to end alone.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_beside_terminal(command: &mut Command) -> io::Result<Self> {
        let is_in_front =
            File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()));
        if is_in_front { Self::started(command, false) } else { Self::start(command) }
    }

    fn started(command: &mut Command, has_group: bool) -> io::Result<Self> {
        let child = command.spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Self { child, pid, has_group, status: None, told: None })
    }

    /// Tells it to end, and kills it if it has not a minute later. It is to be called as often as it is looked whether
    /// it has ended.
    pub fn stop(&mut self) {
        match self.told {
            None => {
                self.told = Some(Instant::now());
                self.signal(Signal::TERM);
            }
            Some(told) if told.elapsed() > KILLED_AFTER => self.signal(Signal::KILL),
            Some(_) => {}
        }
    }

    fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        let _ = match (self.has_group, self.status) {
            // While something of it is left, no other group gets its number.
            (true, _) => kill_process_group(pid, signal),
            // It has not been waited for, so the number is still its own.
            (false, None) => kill_process(pid, signal),
            (false, Some(_)) => Ok(()),
        };
    }

    /// How it ended, if it has; one that was told to end has when nothing of its group is left.
    ///
    /// # Errors
    /// The system does not say it.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        let is_over = self.told.is_none_or(|told| told.elapsed() > GIVEN_UP_AFTER || !self.has_left_something());
        Ok(self.status.filter(|_| is_over))
    }

    fn has_left_something(&self) -> bool {
        let Some(group) = self.pid.filter(|_| self.has_group) else { return false };
        // What has ended may count, where nobody waits for it.
        test_kill_process_group(group) != Err(Errno::SRCH) && has_living(group)
    }
}

/// Whether a process of a group has not ended.
fn has_living(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let number = group.as_raw_nonzero().to_string();
    let is_of_it = |stat: &str| {
        // The name in front may be anything, and ends with the last parenthesis.
        let mut words = stat.rsplit_once(')').map_or("", |(_, behind)| behind).split_ascii_whitespace();
        let (state, of_group) = (words.next(), words.nth(1));
        !matches!(state, Some("Z" | "X")) && of_group == Some(number.as_str())
    };
    let mut stats = processes.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.any(|stat| is_of_it(&stat))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::process::Stdio;
    use std::thread::sleep;

    use super::*;

    const LOOKS: Duration = Duration::from_millis(5);

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]).stdin(Stdio::null());
        command
    }

    fn wait_for(group: &mut ProgramGroup) -> ExitStatus {
        loop {
            if let Some(status) = group.ended().unwrap() {
                return status;
            }
            sleep(LOOKS);
        }
    }

    /// The script alone was told to end, and its children went on beside what undoes them.
    #[test]
    fn what_a_program_has_started_is_told_to_end_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (began, ended) = (folder.path().join("began"), folder.path().join("ended"));
        let child = format!("trap 'sleep 0.5; echo > {}; exit' TERM; echo > {}", ended.display(), began.display());
        let text = format!("trap 'exit 3' TERM; ({child}; while :; do sleep 0.05; done) & wait");
        let mut group = ProgramGroup::start(&mut shell(&text)).unwrap();
        while !began.exists() {
            assert!(group.ended().unwrap().is_none());
            sleep(LOOKS);
        }
        group.stop();
        assert_eq!(wait_for(&mut group).code(), Some(3));
        assert!(ended.exists(), "its child was not waited for");
    }

    #[test]
    fn a_program_that_ends_by_itself_may_leave_something_at_work() {
        let mut group = ProgramGroup::start(&mut shell("sleep 600 > /dev/null 2>&1 &")).unwrap();
        let began = Instant::now();
        assert!(wait_for(&mut group).success() && began.elapsed() < Duration::from_secs(300));
        group.signal(Signal::TERM);
    }
}
