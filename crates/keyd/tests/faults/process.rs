//! A program that is killed, stopped and started again.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) struct Process {
    command: Box<dyn Fn() -> Command + Send>,
    pub(crate) log: PathBuf,
    child: Option<Child>,
}

impl Process {
    pub(crate) fn new(log: PathBuf, command: impl Fn() -> Command + Send + 'static) -> Self {
        Self { command: Box::new(command), log, child: None }
    }

    /// Whether it runs, or is stopped.
    pub(crate) fn is_there(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Its number, while it runs.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = (self.command)();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}")));
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(crate) fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        if self.is_there()
            && let Some(child) = &self.child
        {
            kill_process(Pid::from_child(child), signal).unwrap();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
