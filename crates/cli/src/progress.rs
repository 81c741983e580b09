//! Live progress on a terminal, events as JSON lines, and notices that stay readable in a log.

mod follow;
mod pace;

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use capstan_director::{Event, Events, JobJournal, Site};
use capstan_mover::{OrderedBy, Positioning, ReadOrder};
use capstan_tape::linux::waits::overdue;
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, words};
use crate::table::path_text;
use crate::units;
use crate::wording::doubt_text;
pub(crate) use follow::Standing;

/// Exit code of what a signal ended.
const STOPPED: i32 = 130;

/// How often the line is drawn anew.
const EVERY: Duration = Duration::from_millis(200);

/// Shows what goes on.
#[derive(Clone)]
pub(crate) struct Display {
    json: bool,
    quiet: bool,
    /// What stands before each warning: whose it is, where several work in one process.
    whose: String,
    bar: Arc<Mutex<Option<ProgressBar>>>,
    /// The entry in the history of what is done, which keeps what is said.
    journal: Arc<OnceLock<Arc<JobJournal>>>,
    /// Drives in use, and the volume in each.
    mounted: Arc<Mutex<Vec<(String, String)>>>,
}

impl Display {
    pub(crate) fn new(cli: &Globals) -> Self {
        Self {
            json: cli.json,
            quiet: cli.quiet,
            whose: String::new(),
            bar: Arc::default(),
            journal: Arc::default(),
            mounted: Arc::default(),
        }
    }

    /// The display of a run beside others in this process: its warnings have the policy's name.
    pub(crate) fn of_run(cli: &Globals, policy: &str) -> Self {
        Self { whose: format!("{policy}: "), ..Self::new(cli) }
    }

    /// Enters a job in the history, which keeps what is said from here on. Further jobs of one command are parts of the
    /// first.
    pub(crate) fn enter(&self, site: &Site, kind: &str, subject: &str) -> Option<Arc<JobJournal>> {
        let journal = Arc::new(site.begin_run(kind, subject)?);
        self.journal.set(Arc::clone(&journal)).ok().map(|()| journal)
    }

    /// The same for what may not begin unless it is entered.
    pub(crate) fn must_enter(&self, site: &Site, kind: &str, subject: &str) -> Result<Arc<JobJournal>, Failure> {
        let journal = Arc::new(site.must_begin_run(kind, subject)?);
        let _ = self.journal.set(Arc::clone(&journal));
        Ok(journal)
    }

    /// The number of what is entered.
    pub(crate) fn entry(&self) -> Option<i64> {
        self.journal.get().map(|journal| journal.number())
    }

    /// Whether something is entered.
    pub(crate) fn has_entered(&self) -> bool {
        self.journal.get().is_some()
    }

    /// A line for the history alone.
    pub(crate) fn note(&self, line: &str) {
        if let Some(journal) = self.journal.get() {
            journal.said(line);
        }
    }

    /// A sink for the director's events.
    pub(crate) fn events(&self) -> Events {
        let display = self.clone();
        Arc::new(move |event| display.event(&event))
    }

    /// A line for people, above the progress line.
    pub(crate) fn say(&self, line: &str) {
        self.note(line);
        if self.quiet || self.json {
            return;
        }
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        match &*bar {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
        }
    }

    /// A warning: shown even when quiet.
    pub(crate) fn warn(&self, line: &str) {
        let line = words(line);
        self.note(&line);
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let whose = &self.whose;
        match &*bar {
            Some(bar) => bar.suspend(|| tell(&format!("capstan: {whose}{line}"))),
            None => tell(&format!("capstan: {whose}{line}")),
        }
    }

    fn event(&self, event: &Event) {
        if let (Event::Begun { object, .. }, Some(journal)) = (event, self.journal.get()) {
            journal.writes(*object);
        }
        if self.json {
            // A reader that is gone is no reason to give up a backup.
            let _ = json::print(&json::Event::from(event));
        }
        match event {
            Event::Created { volser } => self.say(&format!("new cartridge {volser}")),
            Event::Labelled { volser, pool, recycled } => {
                let whose = if pool.is_empty() { "scratch".to_owned() } else { format!("pool {pool}") };
                self.say(&match recycled {
                    0 => format!("labelled {volser} for {whose}"),
                    _ => format!(
                        "labelled {volser} for {whose}, its label number {}: any earlier data on it is lost",
                        recycled + 1
                    ),
                });
            }
            Event::Ordered { order } => {
                if let Some(line) = order_text(order) {
                    self.say(&line);
                }
            }
            Event::Full { volser } => self.say(&format!("volume {volser} is full; continuing on the next one")),
            Event::Begun { object, source, resumed } => {
                let how = if *resumed { "continuing" } else { "begun" };
                self.say(&format!("{}: {how} object {object}", path_text(source)));
            }
            Event::SourceMissing { source, reason } => {
                self.warn(&missing_text(source, reason));
            }
            Event::BaseUnavailable { source, gone, base } => {
                self.warn(&format!("{}: {}", path_text(source), gone.message(*base)));
            }
            Event::CopyFailed { copy, reason } => self.warn(&format!("copy {copy} failed: {reason}")),
            Event::Waiting { message } => self.warn(message),
            Event::Notice { message } => self.warn(message),
            Event::ClockDoubted { reading } => {
                if let Some(text) = doubt_text(reading) {
                    self.warn(&text);
                }
            }
            Event::Mended { object, copy, pool } => {
                self.say(&format!("object {object}: copy {copy} in pool {pool} is complete now"));
            }
            Event::Mounted { volser, drive } => {
                let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
                mounted.push((drive.clone(), volser.to_string()));
            }
            Event::Dismounted { volser, .. } => {
                let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
                mounted.retain(|(_, other)| other != volser.as_str());
            }
            // Problems are listed at the end, by source.
            Event::Checkpoint { .. } | Event::PathProblem { .. } => {}
        }
    }

    /// Whether a line is drawn.
    pub(crate) fn draws(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Whether anyone sees how far the work is: on a terminal, or in events.
    pub(crate) fn is_followed(&self) -> bool {
        self.draws() || self.json && !self.quiet
    }

    /// Drives in use, and the volume in each.
    fn mounted(&self) -> Vec<(String, String)> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Draws a line while `work` runs; `line` makes it, with the share done if it is known.
    pub(crate) fn during<T>(
        &self,
        line: &(dyn Fn(Duration) -> (String, Option<f64>) + Sync),
        work: impl FnOnce() -> T,
    ) -> T {
        if !self.draws() {
            return work();
        }
        let began = Instant::now();
        let look = |bar: Option<&ProgressBar>| {
            let (text, share) = line(began.elapsed());
            let share = share.map(|share| format!("{:5.1} %  ", share * 100.0)).unwrap_or_default();
            bar.inspect(|bar| bar.set_message(format!("{share}{text}")));
        };
        self.every(&look, work)
    }

    /// Calls `look` five times a second while `work` runs, if anyone sees what it shows: with the line, where one is
    /// drawn.
    fn every<T>(&self, look: &(dyn Fn(Option<&ProgressBar>) + Sync), work: impl FnOnce() -> T) -> T {
        if !self.is_followed() {
            return work();
        }
        let bar = self.draws().then(|| {
            let bar = ProgressBar::new(1000);
            // What does not fit on the terminal's line is cut off.
            let style = ProgressStyle::with_template("{spinner} {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar
        });
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = bar.clone();
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let shown = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    look(bar.as_ref());
                    bar.iter().for_each(ProgressBar::tick);
                    std::thread::park_timeout(EVERY);
                }
            });
            let result = work();
            done.store(true, Ordering::Relaxed);
            shown.thread().unpark();
            result
        });
        bar.iter().for_each(ProgressBar::finish_and_clear);
        *self.bar.lock().unwrap_or_else(PoisonError::into_inner) = None;
        result
    }
}

/// `1.2 GiB at 340 MiB/s`.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> String {
    let per_second = bytes as f64 / elapsed.as_secs_f64().max(0.001);
    format!("{}/s", units::bytes(per_second as u64))
}

/// The end of a path, where that is long.
fn shortened(path: &str) -> String {
    const LEN: usize = 40;
    let count = path.chars().count();
    if count <= LEN { path.to_owned() } else { format!("…{}", path.chars().skip(count - LEN).collect::<String>()) }
}

/// In which order a volume is read, if it is not the order of its blocks.
fn order_text(order: &ReadOrder) -> Option<String> {
    let whose = match &order.by {
        OrderedBy::Drive => "as the drive recommends".to_owned(),
        OrderedBy::Model(model) => format!("by the geometry of {model}"),
        OrderedBy::Position => return None,
    };
    let (volser, stretches) = (&order.volser, units::count(order.stretches as u64));
    let gain = order.positioning.map(|Positioning { taken_s, front_to_back_s }| {
        let (taken, front_to_back) = (units::duration(taken_s), units::duration(front_to_back_s));
        format!(": about {taken} of positioning, front to back {front_to_back}")
    });
    Some(format!("volume {volser}: {stretches} places are read {whose}{}", gain.unwrap_or_default()))
}

/// How often it is looked whether there is a wait to end.
const STOP_EVERY: Duration = Duration::from_millis(100);

/// How many times it is looked before it is said that a stop takes a while.
const STOP_SAID_AFTER: u32 = 15;

/// Says a line to people. A reader that is gone is no reason to stop work.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Turns Ctrl-C into a flag, for a process in which several jobs work: none of them ends before it has flushed what it
/// read, whatever device another one waits for. A second Ctrl-C ends the process at once.
pub(crate) fn stop_all_on_interrupt(stop: &Arc<AtomicBool>) {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // Without the handler the signal ends the process: that is safe, only less tidy.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, STOPPED, Arc::clone(stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(stop));
    }
}

/// How often it is looked whether what a server does is to stop.
const SERVER_STOP_LOOKS: Duration = Duration::from_millis(100);

/// Waits for what a server does, and tells the server once if it is to stop. The flag stays, so that a second Ctrl-C
/// ends the command.
pub(crate) fn waiting_for_server<T>(
    stop: &AtomicBool,
    tell_server: impl FnOnce() + Send,
    wait: impl FnOnce() -> T,
) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(SERVER_STOP_LOOKS);
            }
            if stop.load(Ordering::Relaxed) {
                tell_server();
            }
        });
        let ended = wait();
        is_over.store(true, Ordering::Relaxed);
        ended
    })
}

/// Turns Ctrl-C into a flag; a second Ctrl-C ends the process at once, and so does the first where a device is waited
/// for, since no device gives a command back.
pub(crate) fn stop_on_interrupt(stop: &Arc<AtomicBool>) {
    let stopped = Arc::clone(stop);
    let watch = move || {
        let mut since = 0;
        loop {
            std::thread::sleep(STOP_EVERY);
            since += u32::from(stopped.load(Ordering::Relaxed));
            if since == STOP_SAID_AFTER {
                eprintln!(
                    "capstan: stopping: Capstan flushes what was read, and waits for sources that do not answer. A \
                     second Ctrl-C ends it at once"
                );
            }
            if let Some(last_words) = end_of_wait(stopped.load(Ordering::Relaxed), overdue()) {
                eprintln!("capstan: {last_words}");
                std::process::exit(STOPPED);
            }
        }
    };
    // Without it a second Ctrl-C is needed.
    drop(std::thread::Builder::new().name("stop".to_owned()).spawn(watch));
    // Without the handler Ctrl-C still ends the process: that is safe, only less tidy.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let _ = signal_hook::flag::register_conditional_shutdown(signal, STOPPED, Arc::clone(stop));
        let _ = signal_hook::flag::register(signal, Arc::clone(stop));
    }
}

/// What is said of a source that was not there, or was refused.
pub(crate) fn missing_text(source: &[u8], reason: &str) -> String {
    format!("source {} is not backed up: {reason}", path_text(source))
}

/// What is said where a signal came while a device is waited for.
fn end_of_wait(stopped: bool, wait: Option<String>) -> Option<String> {
    let wait = wait.filter(|_| stopped)?;
    Some(format!("stopped while {wait}; what was reported as protected stays, and the device may still be busy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first SIGTERM did nothing until the drive answered.
    #[test]
    fn one_signal_ends_a_wait_and_no_work() {
        let wait = || Some("drive /dev/sg1 has not answered READ for 30 s".to_owned());
        assert_eq!(end_of_wait(false, wait()), None);
        assert_eq!(end_of_wait(true, None), None, "what runs ends tidily");
        assert!(
            end_of_wait(true, wait())
                .is_some_and(|text| text.contains("stopped while drive /dev/sg1 has not answered"))
        );
    }
}
