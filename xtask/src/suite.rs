//! Runs what `./x lint` and `./x test` run, counts it, and says the sum in the last line.
//!
//! Every step runs, even behind one that failed or hangs: one run shows all that is wrong. A step's output is passed on as it comes.
//! Tests in guests run beside the other end-to-end tests, and what measures the machine runs alone.
//! Tests are counted from what `cargo test` prints, and from the lines `ok ...` and `not ok ...` of the end-to-end tests:
//! executable files directly under `tests/`, which find the programs in `CAPSTAN_BIN` and `KEYD_BIN`.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::amount::shown_time;

/// A step that takes longer hangs: it is ended, and has failed. Continuous integration has 90 minutes for all of them.
const STEP_MAX: Duration = Duration::from_secs(30 * 60);
/// Time between TERM and KILL, and behind KILL.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether a step that says nothing any more has ended.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(20);

/// How many checks passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Count {
    fn summary(self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// What one line of output says of tests, if anything.
    fn of_line(line: &str) -> Self {
        if let Some(result) = line.strip_prefix("test result: ") {
            let before = |word: &str| {
                let end = result.find(word)?;
                result[..end].trim_end().rsplit(' ').next()?.parse().ok()
            };
            return Self { passed: before("passed").unwrap_or(0), failed: before("failed").unwrap_or(0) };
        }
        match line.split_once(' ') {
            Some(("ok", _)) => Self { passed: 1, failed: 0 },
            Some(("not", rest)) if rest.starts_with("ok ") => Self { passed: 0, failed: 1 },
            _ => Self::default(),
        }
    }
}

/// Format, clippy, tidy.
pub(crate) fn lint(root: &Path) -> Result<ExitCode> {
    Ok(lint_steps(root)?.summary())
}

/// Lint, then all tests.
pub(crate) fn test(root: &Path) -> Result<ExitCode> {
    let mut count = lint_steps(root)?;
    let out = &mut std::io::stdout();
    let cargo_test = ["test", "--locked", "--workspace", "--no-fail-fast"];
    count += step("unit and integration tests", cargo(root).args(cargo_test), out)?;
    let folder = target_folder()?;
    let (capstan, keyd) = (folder.join("capstan"), folder.join("keyd"));
    let run = |script: &Path, out: &mut dyn Write| {
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(script);
        command.current_dir(root).env("CAPSTAN_BIN", &capstan).env("KEYD_BIN", &keyd);
        step(&name, &mut command, out)
    };
    let Lanes { alone, guests, others } = Lanes::of(end_to_end_tests(&root.join("tests"))?);
    for script in alone {
        count += run(&script, out)?;
    }
    count += thread::scope(|scope| {
        let guests = scope.spawn(|| -> Result<(Count, Vec<u8>)> {
            let (mut count, mut said) = (Count::default(), Vec::new());
            for script in guests {
                count += run(&script, &mut said)?;
            }
            Ok((count, said))
        });
        let mut count = Count::default();
        for script in others {
            count += run(&script, out)?;
        }
        let (of_guests, said) = guests.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        out.write_all(&said)?;
        count += of_guests;
        anyhow::Ok(count)
    })?;
    Ok(count.summary())
}

/// What of the end-to-end tests runs beside what.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lanes {
    /// What measures the machine: first, with nothing beside it.
    alone: Vec<PathBuf>,
    /// In guests, which take one processor each and wait for much: one after the other, shown when they have ended.
    guests: Vec<PathBuf>,
    /// Meanwhile, and shown as they come.
    others: Vec<PathBuf>,
}

impl Lanes {
    fn of(scripts: Vec<PathBuf>) -> Self {
        let mut lanes = Self::default();
        for script in scripts {
            let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let lane = match name.as_str() {
                "advice.sh" => &mut lanes.alone,
                name if name.starts_with("tape_") => &mut lanes.guests,
                _ => &mut lanes.others,
            };
            lane.push(script);
        }
        lanes
    }
}

fn lint_steps(root: &Path) -> Result<Count> {
    let out = &mut std::io::stdout();
    let mut count = step("format", cargo(root).args(["fmt", "--all", "--check"]), out)?;
    let clippy = ["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    count += step("clippy", cargo(root).args(clippy), out)?;
    count += step("tidy", Command::new(env::current_exe()?).arg("tidy").current_dir(root), out)?;
    Ok(count)
}

fn cargo(root: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Where cargo put this program, and with it the product.
fn target_folder() -> Result<PathBuf> {
    Ok(env::current_exe()?.parent().context("a program lies in a folder")?.to_owned())
}

/// The executable files directly under `tests/`, by name.
fn end_to_end_tests(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Runs one step and passes its output on. A step that counts no tests counts as one.
fn step(name: &str, command: &mut Command, out: &mut dyn Write) -> Result<Count> {
    step_within((STEP_MAX, GRACE), name, command, out)
}

fn step_within(
    (limit, grace): (Duration, Duration),
    name: &str,
    command: &mut Command,
    out: &mut dyn Write,
) -> Result<Count> {
    writeln!(out, "\n==> {name}")?;
    let started = Instant::now();
    let program = command.get_program().to_owned();
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("start {}", shown(&program)))?;
    let mut count = Count::default();
    let lines = lines_of(child.stdout.take().context("the output is a pipe")?);
    let mut ended = pass_on(&lines, started + limit, out, &mut count)? && waited(&mut child, started + limit)?;
    let hung = !ended;
    let mut all = Vec::new();
    for signal in [Signal::TERM, Signal::KILL] {
        if ended {
            break;
        }
        // Once more each time: what cleans up starts programs, too.
        all.extend(with_descendants(child.id()));
        for pid in &all {
            // One that has just ended cannot be told.
            let _ = kill_process(*pid, signal);
        }
        let until = Instant::now() + grace;
        ended = pass_on(&lines, until, out, &mut count)? && waited(&mut child, until)?;
    }
    // What still holds the pipe has lost its parents, and cannot be found; the other steps do not wait for it.
    let status = if hung { child.try_wait()? } else { Some(child.wait()?) };
    if hung {
        count.failed += 1;
        writeln!(out, "{name}: not done after {}, and ended", shown_time(limit))?;
    } else if let Some(status) = status.filter(|status| !status.success() && count.failed == 0) {
        // It broke without naming a test, and that is a failure too.
        count.failed += 1;
        writeln!(out, "{name}: {status}")?;
    } else if count == Count::default() {
        count.passed = 1;
    }
    writeln!(out, "==> {name}: {} passed, {} failed, {}", count.passed, count.failed, shown_time(started.elapsed()))?;
    Ok(count)
}

/// The lines of a program's output, as they come.
fn lines_of(output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            if sender.send(std::mem::take(&mut line)).is_err() {
                break;
            }
        }
    });
    lines
}

/// Passes lines on and counts them; whether they ended before the time was over.
fn pass_on(lines: &Receiver<Vec<u8>>, until: Instant, out: &mut dyn Write, count: &mut Count) -> Result<bool> {
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                out.write_all(&line)?;
                out.flush()?;
                *count += Count::of_line(String::from_utf8_lossy(&line).trim_end());
            }
            Err(error) => return Ok(error == RecvTimeoutError::Disconnected),
        }
    }
}

/// Whether a program has ended before the time was over.
fn waited(child: &mut Child, until: Instant) -> Result<bool> {
    loop {
        if child.try_wait()?.is_some() {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(LOOKED_AT_EVERY);
    }
}

/// A process, and all that it and they have started.
fn with_descendants(pid: u32) -> Vec<Pid> {
    let number = |name: &OsStr| name.to_str().and_then(|name| name.parse::<i32>().ok());
    // The parent stands second behind the program's name, which is in parentheses and may hold any byte.
    let parent = |stat: &str| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<i32>().ok();
    let running = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let stat = fs::read(entry.path().join("stat")).ok()?;
        Some((number(&entry.file_name())?, parent(&String::from_utf8_lossy(&stat))?))
    });
    let running: Vec<(i32, i32)> = running.collect();
    let mut found: Vec<i32> = i32::try_from(pid).into_iter().collect();
    let mut looked_at = 0;
    while let Some(&parent) = found.get(looked_at) {
        found.extend(running.iter().filter(|(_, of)| *of == parent).map(|(child, _)| child));
        looked_at += 1;
    }
    found.into_iter().filter_map(Pid::from_raw).collect()
}

fn shown(program: &OsStr) -> String {
    program.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn lines_of_output_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(Count::of_line(line), Count { passed: 12, failed: 3 });
        assert_eq!(Count::of_line("ok 3 - every byte flipped"), Count { passed: 1, failed: 0 });
        assert_eq!(Count::of_line("not ok 4 - xattrs"), Count { passed: 0, failed: 1 });
        for other in ["", "okay", "not okay", "test format::label ... ok", "ok"] {
            assert_eq!(Count::of_line(other), Count::default(), "{other}");
        }
    }

    #[test]
    fn what_measures_the_machine_runs_alone() {
        let lanes = Lanes::of(["advice.sh", "key_days.py", "tape_guest.sh", "tape_job.sh"].map(PathBuf::from).to_vec());
        let [advice, days, guest, job] =
            ["advice.sh", "key_days.py", "tape_guest.sh", "tape_job.sh"].map(PathBuf::from);
        assert_eq!(lanes, Lanes { alone: vec![advice], guests: vec![guest, job], others: vec![days] });
    }

    #[test]
    fn a_step_that_names_no_test_counts_by_its_exit_code() {
        let shell = |script: &str| step("step", Command::new("sh").args(["-c", script]), &mut Vec::new()).unwrap();
        assert_eq!(shell("true"), Count { passed: 1, failed: 0 });
        assert_eq!(shell("false"), Count { passed: 0, failed: 1 });
        assert_eq!(shell("echo ok 1 - a; echo ok 2 - b"), Count { passed: 2, failed: 0 });
        assert_eq!(shell("echo ok 1 - a; exit 1"), Count { passed: 1, failed: 1 });
        assert_eq!(shell("echo not ok 1 - a; exit 1"), Count { passed: 0, failed: 1 });
    }

    /// A hang was told by nobody: continuous integration ended, and with it went what the other steps had to say.
    #[test]
    fn a_step_that_hangs_is_ended_with_all_that_it_started_and_has_failed() {
        let mut said = Vec::new();
        let script = "echo ok 1 - a; (sleep 600; echo ok 2 - b) & sleep 600";
        let started = Instant::now();
        let limits = (Duration::from_millis(300), GRACE);
        let count = step_within(limits, "step", Command::new("sh").args(["-c", script]), &mut said).unwrap();
        assert_eq!(count, Count { passed: 1, failed: 1 });
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("step: not done after") && said.contains("and ended"), "{said}");
        assert!(started.elapsed() < Duration::from_secs(300), "the processes below it were ended too");
    }

    #[test]
    fn nobody_waits_for_a_pipe_that_a_program_without_parents_holds() {
        let (mut said, short) = (Vec::new(), Duration::from_millis(100));
        let started = Instant::now();
        let mut script = Command::new("sh");
        script.args(["-c", "printf 'ok 1 - a'; (sleep 20 &); exit 0"]);
        let count = step_within((short, short), "step", &mut script, &mut said).unwrap();
        assert_eq!(count.failed, 1);
        assert!(started.elapsed() < Duration::from_secs(15), "it did not wait for the one that sleeps");
    }
}
