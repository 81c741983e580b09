//! Runs one contestant and measures it: wall time, processor time, peak memory.
//!
//! Every contestant is a shell line, so that the report can show it and anyone can repeat it. Processor time is that of
//! all its processes together; peak memory that of the largest one, as the kernel accounts it for processes that were
//! waited for.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Longest that one run may take before it is ended and counted as failed.
const RUN_SECONDS_MAX: u32 = 900;

/// What one run cost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) wall: Duration,
    pub(super) processor: Duration,
    pub(super) peak_bytes: u64,
}

/// Where scripts run, and what they know.
#[derive(Debug)]
pub(super) struct Stage {
    /// Scratch folder; `$WORK` in scripts.
    pub(super) work: PathBuf,
    variables: Vec<(&'static str, OsString)>,
}

/// How a measured script ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) usage: Usage,
}

impl Stage {
    pub(super) fn new(work: &Path) -> Self {
        Self { work: work.to_owned(), variables: vec![("WORK", work.into())] }
    }

    /// Sets an environment variable of scripts.
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.variables.push((name, value.into()));
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &RUN_SECONDS_MAX.to_string(), "bash", "-c"]);
        command
            .arg(format!("set -euo pipefail\n{script}"))
            .current_dir(&self.work)
            .envs(self.variables.iter().cloned());
        command
    }

    /// Runs what stands before or behind a measurement, and returns what it printed.
    pub(super) fn run(&self, script: &str) -> Result<String> {
        let output = self.shell(script).output().context("run bash")?;
        if !output.status.success() {
            bail!("{script}\n{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a contestant; its output goes to files, see [`Stage::stdout`] and [`Stage::stderr_end`].
    pub(super) fn measure(&self, script: &str) -> Result<Ended> {
        let mut command = self.shell(script);
        command.stdout(File::create(self.work.join("stdout"))?).stderr(File::create(self.work.join("stderr"))?);
        let started = Instant::now();
        let child = command.spawn().context("run bash")?;
        let (status, mut usage) = wait(child.id()).context("wait for a contestant")?;
        usage.wall = started.elapsed();
        Ok(Ended { status, usage })
    }

    /// What the last contestant printed: the last line that is JSON, or all of it when it is one document.
    pub(super) fn stdout(&self) -> Result<Value> {
        let text = fs::read_to_string(self.work.join("stdout"))?;
        let last = text.lines().rev().find_map(|line| serde_json::from_str(line).ok().filter(Value::is_object));
        last.map_or_else(|| serde_json::from_str(&text).context("the contestant's output is no JSON"), Ok)
    }

    /// The end of what the last contestant complained of.
    pub(super) fn stderr_end(&self) -> String {
        let text = fs::read(self.work.join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

/// Waits for a child of ours and takes the account of it and of all that it waited for.
fn wait(child: u32) -> io::Result<(ExitStatus, Usage)> {
    let child = libc::pid_t::try_from(child).map_err(io::Error::other)?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // SAFETY: both pointers are to live variables of the right type.
        #[allow(unsafe_code, reason = "neither std nor rustix has wait4")]
        let ended = unsafe { libc::wait4(child, &raw mut status, 0, usage.as_mut_ptr()) };
        if ended == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroes are a valid rusage, and wait4 filled it.
    #[allow(unsafe_code, reason = "neither std nor rustix has wait4")]
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    let processor = time(usage.ru_utime) + time(usage.ru_stime);
    // Linux counts it in KiB.
    let peak_bytes = usage.ru_maxrss.unsigned_abs() << 10;
    Ok((ExitStatus::from_raw(status), Usage { wall: Duration::ZERO, processor, peak_bytes }))
}

/// The account of a running daemon so far, from /proc.
pub(super) fn account(process: u32) -> Result<Usage> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/{process}/{name}")).with_context(|| format!("process {process}"))
    };
    let stat = read("stat")?;
    // Behind the name, which is in parentheses and may hold spaces: user and system time are the 12th and 13th field.
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok()).context("times in /proc/PID/stat");
    let ticks = ticks()? + ticks()?;
    let status = read("status")?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).and_then(|line| line.trim().strip_suffix(" kB"));
    let peak: u64 = peak.context("VmHWM in /proc/PID/status")?.parse()?;
    let processor = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    Ok(Usage { wall: Duration::ZERO, processor, peak_bytes: peak << 10 })
}

/// Processor time of a running daemon so far, of its children, and of those that it has waited for.
pub(super) fn account_of_family(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).with_context(|| format!("process {process}"))?;
    // Behind the name: user and system time, and those of children that have ended, are the 12th to 15th field.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(4);
    let ticks: u64 = fields.map(|field| field.parse().unwrap_or(0)).sum();
    let own = Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64);
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    // One that has ended meanwhile is counted with its parent.
    let family = children.split_whitespace().filter_map(|child| account_of_family(child.parse().ok()?).ok());
    Ok(own + family.sum())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn a_run_is_accounted_with_all_its_processes() {
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage::new(folder.path());
        // The inner shell burns processor time and holds 64 MiB in its heap; both are the run's.
        let ended = stage.measure("(x=$(head -c 67108864 /dev/zero | tr '\\0' x); echo ${#x}) | cat").unwrap();
        assert!(ended.status.success(), "{}", stage.stderr_end());
        assert!(ended.usage.peak_bytes > 64 << 20, "{:?}", ended.usage);
        assert!(ended.usage.processor > Duration::from_millis(10), "{:?}", ended.usage);
        assert!(ended.usage.wall > Duration::from_millis(5), "{:?}", ended.usage);
        let small = stage.measure("true").unwrap();
        assert!(small.usage.peak_bytes < 64 << 20, "the account is of one run: {:?}", small.usage);
    }

    #[test]
    fn a_failure_inside_a_pipe_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage::new(folder.path());
        assert!(!stage.measure("false | cat").unwrap().status.success());
        let error = stage.run("echo why >&2; false | cat").unwrap_err();
        assert!(error.to_string().contains("why"), "{error}");
    }

    #[test]
    fn the_last_json_line_counts() {
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage::new(folder.path());
        stage.measure("echo '{\"bytes\":1}'; echo '{\"bytes\":2}'; echo bye").unwrap();
        assert_eq!(stage.stdout().unwrap()["bytes"], 2);
        stage.measure("printf '{\\n \"bytes\": 3\\n}\\n'").unwrap();
        assert_eq!(stage.stdout().unwrap()["bytes"], 3);
    }

    #[test]
    fn a_daemon_is_accounted() {
        let usage = account(std::process::id()).unwrap();
        assert!(usage.peak_bytes > 1 << 20, "{usage:?}");
    }
}
