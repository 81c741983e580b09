//! Following work: the line that is drawn, and the event of each second.

use std::time::{Duration, Instant};

use capstan_director::BackupWatch;
use capstan_mover::{Bottleneck, Load, RestoreWatch};

use super::pace::{Pace, Sample};
use super::{Display, shortened};
use crate::json;
use crate::table::path_text;
use crate::units;

/// How often there is an event.
const EVENT_EVERY: Duration = Duration::from_secs(1);

/// How far work is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Standing {
    /// Bytes of what is planned that are behind it, moved or not.
    pub(crate) done: u64,
    /// Bytes that are planned; 0 while that is not known.
    pub(crate) planned: u64,
    /// Bytes that were moved.
    pub(crate) moved: u64,
    /// Bytes that are flushed to volumes; 0 where nothing is.
    pub(crate) flushed: u64,
    /// Files or paths that are done.
    pub(crate) items: u64,
    /// What these are called; empty where they are not counted.
    pub(crate) noun: &'static str,
    /// What was read a moment ago.
    pub(crate) path: Vec<u8>,
    /// How long the parts were at work.
    pub(crate) load: Load,
    /// Whether volumes are read, and not written.
    pub(crate) reads: bool,
}

impl Standing {
    /// How far a backup is.
    pub(crate) fn of_backup(watch: &BackupWatch) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        let meters = watch.meters.get();
        Self {
            done: watch.progress.passed_bytes(),
            planned: watch.bytes_total.load(Relaxed),
            moved: watch.progress.bytes(),
            flushed: meters.map_or(0, |meters| meters.flushed_bytes.load(Relaxed)),
            items: watch.progress.files(),
            noun: "file",
            path: watch.progress.current(),
            load: meters.map(|meters| meters.load()).unwrap_or_default(),
            reads: false,
        }
    }

    /// How far a restore, a verification or a copy is; of a copy no paths are counted.
    pub(crate) fn of_reading(watch: &RestoreWatch) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        let (taken, items) = (watch.taken.load(Relaxed), watch.members.load(Relaxed));
        Self {
            done: taken,
            planned: watch.planned.load(Relaxed),
            moved: taken,
            items,
            noun: if items > 0 { "path" } else { "" },
            load: watch.meters.load(),
            reads: true,
            ..Self::default()
        }
    }

    fn sample(&self, at: Duration) -> Sample {
        Sample { at, done: self.done, moved: self.moved, load: self.load }
    }

    fn bottleneck(&self, pace: &Pace) -> Option<Bottleneck> {
        let (load, window) = pace.load().filter(|_| self.load != Load::default())?;
        if self.reads {
            return Some(load.of_reading());
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Some(load.of_session(window.as_nanos() as u64, cores))
    }

    /// Whether anything was done yet: who waits for another capstan to end has nothing to tell.
    fn has_begun(&self) -> bool {
        self.done > 0 || self.items > 0 || self.load != Load::default()
    }

    fn share(&self) -> Option<f64> {
        (self.planned > 0).then(|| (self.done as f64 / self.planned as f64).min(1.0))
    }
}

/// The line for people: what is done of what is planned, how fast, how long still, where, and what holds it up.
fn line(now: &Standing, pace: &Pace, mounted: &[(String, String)]) -> String {
    let share = now.share().map(|share| format!("{:5.1} %  ", share * 100.0)).unwrap_or_default();
    let planned = if now.planned > 0 { format!(" of {}", units::bytes(now.planned)) } else { String::new() };
    // What an incremental passes over is done and was not read.
    let read = if now.moved < now.done { format!(", {} read", units::bytes(now.moved)) } else { String::new() };
    let mut text =
        format!("{share}{}{planned}{read} at {}/s", units::bytes(now.done), units::bytes(pace.rate() as u64));
    if let Some(left) = pace.left(now.planned).filter(|_| now.planned > 0) {
        text += &match left.as_secs_f64().ceil() {
            few if few < 10.0 => format!(", {few} s left"),
            many => format!(", {} left", units::duration(many)),
        };
    }
    // What comes last is cut off where the terminal is narrow.
    for (drive, volume) in mounted {
        text += &format!("  {volume} in {drive}");
    }
    if let Some(bottleneck) = now.bottleneck(pace) {
        text += &format!("  bottleneck: {}", bottleneck.name());
    }
    if now.flushed > 0 {
        text += &format!("  {} on volumes", units::bytes(now.flushed));
    }
    if !now.noun.is_empty() {
        text += &format!("  {}", units::counted(now.items, now.noun));
    }
    if !now.path.is_empty() {
        text += &format!("  {}", shortened(&path_text(&now.path)));
    }
    text
}

fn event(now: &Standing, pace: &Pace, mounted: &[(String, String)], elapsed: Duration) -> json::Event {
    let in_drive = |(drive, volume): &(String, String)| json::InDrive { volume: volume.clone(), drive: drive.clone() };
    let known = now.planned > 0;
    json::Event::Progress {
        bytes: now.done,
        bytes_planned: known.then_some(now.planned),
        bytes_moved: now.moved,
        bytes_flushed: now.flushed,
        items: now.items,
        rate: pace.rate() as u64,
        elapsed_ns: elapsed.as_nanos() as u64,
        left_ns: pace.left(now.planned).filter(|_| known).map(|left| left.as_nanos() as u64),
        volumes: mounted.iter().map(in_drive).collect(),
        bottleneck: now.bottleneck(pace).map(Bottleneck::name),
    }
}

impl Display {
    /// Shows how far it is while `work` runs: a line on a terminal, with `--json` an event each second.
    pub(crate) fn follow<T>(&self, look: &(dyn Fn() -> Standing + Sync), work: impl FnOnce() -> T) -> T {
        let follower = std::sync::Mutex::new(Follower { pace: Pace::new(), told: Duration::ZERO });
        let began = Instant::now();
        self.every(
            &|bar| {
                let (now, elapsed) = (look(), began.elapsed());
                let mut follower = follower.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                follower.pace.see(now.sample(elapsed));
                let mounted = self.mounted();
                match bar {
                    Some(bar) => bar.set_message(line(&now, &follower.pace, &mounted)),
                    None if now.has_begun() && elapsed >= follower.told + EVENT_EVERY => {
                        follower.told = elapsed;
                        // A reader that is gone is no reason to give up a backup.
                        let _ = json::print(&event(&now, &follower.pace, &mounted, elapsed));
                    }
                    None => {}
                }
            },
            work,
        )
    }
}

/// What is kept from one look to the next.
struct Follower {
    pace: Pace,
    told: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64, now: &Standing) -> Pace {
        let mut pace = Pace::new();
        pace.see(now.sample(Duration::from_secs(seconds)));
        pace
    }

    /// A huge file was "0 files, 0.0 %" until its end.
    #[test]
    fn a_line_says_how_much_of_one_file_is_done_and_how_long_it_will_take() {
        let load = Load { drive_ns: 0, pack_ns: 0, target_ns: 4_000_000_000 };
        let now =
            Standing { done: 1 << 30, planned: 4 << 30, moved: 1 << 30, load, reads: true, ..Standing::default() };
        let mounted = [("drive 1".to_owned(), "A00001".to_owned())];
        let text = line(&now, &after(8, &now), &mounted);
        assert_eq!(
            text,
            " 25.0 %  1.00 GiB of 4.00 GiB at 128 MiB/s, 24 s left  A00001 in drive 1  bottleneck: target"
        );
    }

    #[test]
    fn nothing_is_told_before_anything_is_done() {
        assert!(!Standing { planned: 4 << 30, ..Standing::default() }.has_begun());
        let mounting = Load { drive_ns: 1, ..Load::default() };
        assert!(Standing { load: mounting, ..Standing::default() }.has_begun());
        assert!(Standing { items: 1, ..Standing::default() }.has_begun(), "files that stand as they did");
    }

    #[test]
    fn what_an_incremental_passes_over_is_not_what_it_read() {
        let load = Load { drive_ns: 1, ..Load::default() };
        let done =
            Standing { done: 100 << 30, planned: 100 << 30, items: 1, noun: "file", load, ..Standing::default() };
        let now = Standing { moved: 100 << 20, flushed: 1 << 20, path: b"etc/fstab".to_vec(), ..done };
        let text = line(&now, &after(100, &now), &[]);
        assert_eq!(
            text,
            "100.0 %  100 GiB of 100 GiB, 100 MiB read at 1.00 MiB/s, 0 s left  bottleneck: source  1.00 MiB on volumes  1 file  \
             etc/fstab"
        );
        // Nothing is known of what a program will print.
        let unknown = Standing { done: 5 << 20, moved: 5 << 20, ..Standing::default() };
        assert_eq!(line(&unknown, &Pace::new(), &[]), "5.00 MiB at 0 B/s");
    }
}
