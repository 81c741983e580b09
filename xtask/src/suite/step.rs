//! One step: a program whose output is passed on, counted and timed, and which is ended where it hangs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::FULL;
use super::count::Count;
use super::excerpt::Excerpt;
use super::times::Times;
use super::units::Unit;
use crate::amount::shown_time;

/// A step that takes longer hangs: it is ended, and has failed. Continuous integration has 90 minutes for all of them.
const STEP_MAX: Duration = Duration::from_secs(30 * 60);
/// The same of a sweep in its full length, on a machine that is busy.
const STEP_FULL_MAX: Duration = Duration::from_secs(2 * 60 * 60);
/// Time between TERM and KILL, and behind KILL.
const GRACE: Duration = Duration::from_secs(10);
/// How often it is looked whether a step that says nothing any more has ended.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(20);

/// What came of steps.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) count: Count,
    pub(super) times: Times,
    /// The steps that failed, and what they said near their failures.
    pub(super) failures: Vec<(String, Vec<String>)>,
}

/// Steps that run one behind the other, and what came of them.
pub(super) struct Steps<'o> {
    out: &'o mut (dyn Write + Send),
    pub(super) outcome: Outcome,
}

impl<'o> Steps<'o> {
    pub(super) fn new(out: &'o mut (dyn Write + Send)) -> Self {
        Self { out, outcome: Outcome::default() }
    }

    /// Says something between steps.
    pub(super) fn say(&mut self, words: &[u8]) -> Result<()> {
        Ok(self.out.write_all(words)?)
    }

    /// One step whose work is done: it has passed where nothing is wrong.
    pub(super) fn done(&mut self, name: &str, took: Duration, wrong: &BTreeSet<String>) -> Result<()> {
        writeln!(self.out, "\n==> {name}")?;
        for text in wrong {
            writeln!(self.out, "{}", text.trim_end())?;
        }
        let failed = wrong.len() as u64;
        let lines = wrong.iter().map(|text| text.trim_end().to_owned()).collect();
        self.end(name, Count { passed: u64::from(failed == 0), failed, skipped: 0 }, took, lines)
    }

    /// Takes in what steps said and counted that ran beside these.
    pub(super) fn append(&mut self, said: &[u8], mut other: Outcome) -> Result<()> {
        self.say(said)?;
        self.outcome.count += other.count;
        self.outcome.times.append(other.times);
        self.outcome.failures.append(&mut other.failures);
        Ok(())
    }

    /// Shows once more what failed, and what it said: of long output, continuous integration shows the end.
    pub(super) fn show_failures(&mut self) -> Result<()> {
        for (name, lines) in &self.outcome.failures {
            writeln!(self.out, "\n==> failed: {name}")?;
            for line in lines {
                writeln!(self.out, "    {line}")?;
            }
        }
        Ok(())
    }

    /// Runs a unit as a step; it has failed, too, where it counts fewer tests than it has.
    pub(super) fn run_unit(&mut self, unit: &mut Unit) -> Result<()> {
        let before = self.outcome.count;
        self.run(&unit.name, &mut unit.command)?;
        let after = self.outcome.count;
        let counted = after.total() - before.total();
        if let Some(tests) = unit.tests.filter(|tests| (*tests as u64) > counted && after.failed == before.failed) {
            let text = format!("{}: of {tests} tests only {counted} were counted", unit.name);
            writeln!(self.out, "{text}")?;
            self.outcome.count.failed += 1;
            self.outcome.failures.push((unit.name.clone(), vec![text]));
        }
        Ok(())
    }

    /// Runs one step and passes its output on. A step that counts no tests counts as one.
    pub(super) fn run(&mut self, name: &str, command: &mut Command) -> Result<()> {
        let is_full = command.get_envs().any(|(name, value)| name == FULL && value.is_some());
        let limit = if is_full { STEP_FULL_MAX } else { STEP_MAX };
        self.run_within((limit, GRACE), name, command)
    }

    fn run_within(&mut self, (limit, grace): (Duration, Duration), name: &str, command: &mut Command) -> Result<()> {
        writeln!(self.out, "\n==> {name}")?;
        let started = Instant::now();
        // What is said on one stream explains the other: both are one.
        let (reader, writer) = std::io::pipe().context("make a pipe")?;
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child =
            command.stdout(writer.try_clone()?).stderr(writer).spawn().with_context(|| format!("start {program}"))?;
        // The pipe ends when nobody has its other end any more.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut output = Output { lines: lines_of(reader), count: Count::default(), excerpt: Excerpt::default() };
        let mut ended = self.pass_on(&mut output, started + limit)? && waited(&mut child, started + limit)?;
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
            ended = self.pass_on(&mut output, until)? && waited(&mut child, until)?;
        }
        // What still holds the pipe has lost its parents, and cannot be found; the other steps do not wait for it.
        let status = if hung { child.try_wait()? } else { Some(child.wait()?) };
        let mut count = output.count;
        let mut lines = output.excerpt.lines();
        let mut broke = |text: String| {
            count.failed += 1;
            writeln!(self.out, "{text}")?;
            lines.push(text);
            anyhow::Ok(())
        };
        if hung {
            broke(format!("{name}: not done after {}, and ended", shown_time(limit)))?;
        } else if let Some(status) = status.filter(|status| !status.success() && output.count.failed == 0) {
            // It broke without naming a test, and that is a failure too.
            broke(format!("{name}: {status}"))?;
        } else if count == Count::default() {
            count.passed = 1;
        }
        self.end(name, count, started.elapsed(), lines)
    }

    fn end(&mut self, name: &str, count: Count, took: Duration, lines: Vec<String>) -> Result<()> {
        writeln!(self.out, "==> {name}: {} passed, {} failed, {}", count.passed, count.failed, shown_time(took))?;
        self.outcome.count += count;
        self.outcome.times.add(name, took);
        if count.failed > 0 {
            self.outcome.failures.push((name.to_owned(), lines));
        }
        Ok(())
    }

    /// Passes lines on and counts them; whether they ended before the time was over.
    fn pass_on(&mut self, output: &mut Output, until: Instant) -> Result<bool> {
        loop {
            match output.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.out.write_all(&line)?;
                    self.out.flush()?;
                    let line = String::from_utf8_lossy(&line);
                    let count = Count::of_line(line.trim_end());
                    output.count += count;
                    output.excerpt.add(line.trim_end(), count);
                }
                Err(error) => return Ok(error == RecvTimeoutError::Disconnected),
            }
        }
    }
}

/// What a step says.
struct Output {
    lines: Receiver<Vec<u8>>,
    count: Count,
    excerpt: Excerpt,
}

/// The lines of a program's output, as they come.
fn lines_of(output: PipeReader) -> Receiver<Vec<u8>> {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn counted(limits: (Duration, Duration), script: &str) -> (Count, String) {
        let mut said = Vec::new();
        let mut steps = Steps::new(&mut said);
        steps.run_within(limits, "step", Command::new("sh").args(["-c", script])).unwrap();
        let count = steps.outcome.count;
        (count, String::from_utf8(said).unwrap())
    }

    fn of(passed: u64, failed: u64) -> Count {
        Count { passed, failed, skipped: 0 }
    }

    #[test]
    fn a_step_that_names_no_test_counts_by_its_exit_code() {
        let shell = |script: &str| counted((STEP_MAX, GRACE), script).0;
        assert_eq!(shell("true"), of(1, 0));
        assert_eq!(shell("false"), of(0, 1));
        assert_eq!(shell("echo ok 1 - a; echo ok 2 - b >&2"), of(2, 0));
        assert_eq!(shell("echo ok 1 - a; exit 1"), of(1, 1));
        assert_eq!(shell("echo not ok 1 - a; exit 1"), of(0, 1));
        assert_eq!(shell("echo 'SKIP it: no kernel'"), Count { skipped: 1, ..Count::default() });
    }

    #[test]
    fn what_failed_is_shown_once_more_at_the_end_with_what_it_said() {
        let mut said = Vec::new();
        let mut steps = Steps::new(&mut said);
        for (name, script) in [("good", "echo ok 1 - a"), ("bad", "echo why; echo not ok 1 - b"), ("broken", "exit 3")]
        {
            steps.run(name, Command::new("sh").args(["-c", script])).unwrap();
        }
        steps.say(b"end\n").unwrap();
        steps.show_failures().unwrap();
        let said = String::from_utf8(said).unwrap();
        let shown = said.split_once("end\n").unwrap().1;
        let bad = "\n==> failed: bad\n    why\n    not ok 1 - b\n";
        assert_eq!(shown, format!("{bad}\n==> failed: broken\n    broken: exit status: 3\n"));
    }

    /// A hang was told by nobody: continuous integration ended, and with it went what the other steps had to say.
    #[test]
    fn a_step_that_hangs_is_ended_with_all_that_it_started_and_has_failed() {
        let script = "echo ok 1 - a; (sleep 600; echo ok 2 - b) & sleep 600";
        let started = Instant::now();
        let (count, said) = counted((Duration::from_millis(300), GRACE), script);
        assert_eq!(count, of(1, 1));
        assert!(said.contains("step: not done after") && said.contains("and ended"), "{said}");
        assert!(started.elapsed() < Duration::from_secs(300), "the processes below it were ended too");
    }

    #[test]
    fn nobody_waits_for_a_pipe_that_a_program_without_parents_holds() {
        let short = Duration::from_millis(100);
        let started = Instant::now();
        let (count, _) = counted((short, short), "printf 'ok 1 - a'; (sleep 20 &); exit 0");
        assert_eq!(count.failed, 1);
        assert!(started.elapsed() < Duration::from_secs(15), "it did not wait for the one that sleeps");
    }
}
