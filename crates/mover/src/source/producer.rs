//! A program whose output is backed up.
//!
//! In `dump | capstan backup` nobody tells capstan that the dump failed half-way: the pipe ends as that of a whole one
//! does. A program that is started here is waited for, and what it printed counts only if it ended well.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::SourceError;

/// How long its output is waited for, in nanoseconds, until whoever reads it looks whether it is still wanted.
const WAITS_NS: i64 = 200_000_000;
/// How often one is looked at that has closed its output, and works on.
const LOOKS: Duration = Duration::from_millis(10);

/// What a program prints, read to its end.
pub(crate) struct Producer {
    name: String,
    child: Child,
    output: ChildStdout,
    /// Whether it has closed its output.
    is_read: bool,
    ended: bool,
}

impl Producer {
    /// Starts a program, given with its arguments. It has no input; what it complains of goes where our complaints go.
    pub(crate) fn start(program: &OsStr, arguments: &[OsString]) -> Result<Self, SourceError> {
        let name = program.to_string_lossy().into_owned();
        let error = |reason| SourceError::Program { program: name.clone(), reason };
        let command = Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = command.map_err(error)?;
        let output = child.stdout.take().ok_or_else(|| error(io::Error::other("it has no output")))?;
        Ok(Self { name, child, output, is_read: false, ended: false })
    }

    /// Waits a while for output, or for its end. Whether it came.
    fn has_output(&self) -> io::Result<bool> {
        let mut output = [PollFd::new(&self.output, PollFlags::IN)];
        Ok(poll(&mut output, Some(&Timespec { tv_sec: 0, tv_nsec: WAITS_NS }))? > 0)
    }
}

impl Read for Producer {
    /// One that prints nothing for a while gives [`ErrorKind::WouldBlock`], again and again.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.ended {
            return Ok(0);
        }
        if !self.is_read {
            if !self.has_output()? {
                return Err(ErrorKind::WouldBlock.into());
            }
            let len = self.output.read(buffer)?;
            if len > 0 {
                return Ok(len);
            }
            self.is_read = true;
        }
        let Some(status) = self.child.try_wait()? else {
            std::thread::sleep(LOOKS);
            return Err(ErrorKind::WouldBlock.into());
        };
        self.ended = true;
        if status.success() {
            return Ok(0);
        }
        Err(io::Error::other(format!("{} ended with {status}, so what it printed does not count", self.name)))
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if !self.ended {
            // Nobody reads what it prints any more. If it has ended by itself meanwhile, nothing is left to stop.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::with_causes;

    use super::*;

    /// What it printed, and how often it was waited for.
    fn run_waiting(script: &str) -> io::Result<(String, u32)> {
        let (mut text, mut waits) = (Vec::new(), 0);
        let mut producer = Producer::start("sh".as_ref(), &["-c".into(), script.into()]).unwrap();
        loop {
            match producer.read_to_end(&mut text) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => waits += 1,
                ended => return ended.map(|_| (String::from_utf8(text).unwrap(), waits)),
            }
        }
    }

    fn run(script: &str) -> io::Result<String> {
        run_waiting(script).map(|(text, _)| text)
    }

    #[test]
    fn whoever_reads_one_that_is_silent_is_not_held_up() {
        let (text, waits) = run_waiting("printf a; sleep 0.5; printf b").unwrap();
        assert_eq!(text, "ab");
        assert!(waits > 0);
        let (text, waits) = run_waiting("printf all; exec >&-; sleep 0.2").unwrap();
        assert_eq!(text, "all");
        assert!(waits > 0, "it closed its output, and went on");
    }

    #[test]
    fn what_it_prints_counts_if_it_ends_well() {
        assert_eq!(run("printf whole").unwrap(), "whole");
        let reason = run("printf half; exit 3").unwrap_err().to_string();
        assert!(reason.starts_with("sh ended with exit status: 3"), "{reason}");
        let reason = run("printf half; kill -9 $$").unwrap_err().to_string();
        assert!(reason.contains("signal: 9"), "{reason}");
    }

    #[test]
    fn one_that_does_not_exist_is_named() {
        let error = Producer::start("no-such-program".as_ref(), &[]).err().unwrap();
        assert_eq!(with_causes(&error), "cannot start no-such-program: No such file or directory");
    }

    #[test]
    fn one_that_nobody_reads_any_more_is_stopped() {
        let mut producer = Producer::start("yes".as_ref(), &[]).unwrap();
        producer.read_exact(&mut [0; 100]).unwrap();
        let process = std::path::PathBuf::from(format!("/proc/{}", producer.child.id()));
        assert!(process.exists());
        drop(producer);
        assert!(!process.exists(), "it was stopped, and waited for");
    }
}
