//! What this process waits for in devices: told to a person after a while, and known to who ends the process.
//!
//! A drive may take 39 minutes over a read, and the kernel gives up no sooner. A thread of its own looks at what is
//! under way, so that somebody is told while the thread that waits can do nothing. Nothing can take a command back that
//! a device has, so whoever gets a signal while there is such a wait ([`overdue`]) ends the process: what was flushed
//! is on the medium, and everything else counts for nothing.

use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::hardware::Waiting;

/// Is told what a device is waited for.
pub type OnDeviceWait = Arc<dyn Fn(String) + Send + Sync>;

/// How long a device may take before anybody is told.
const PATIENCE: Duration = Duration::from_secs(10);
/// How seldom it is told again.
const AGAIN: Duration = Duration::from_secs(60);
/// A device that was not looked at for this long is not waited for any more: looks are 5 s apart at most.
const LOOKS_END: Duration = Duration::from_secs(8);
/// How often the thread looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A device of this process that may keep it waiting.
#[derive(Clone)]
pub(super) struct Watched(Arc<Slot>);

struct Slot {
    device: String,
    tell: OnDeviceWait,
    wait: Mutex<Wait>,
}

#[derive(Default)]
struct Wait {
    /// The command that is under way, since when, and how long it may take.
    call: Option<(&'static str, Instant, Option<Duration>)>,
    /// What the device says instead of being ready, since when, and when it said so last.
    look: Option<(String, Instant, Instant)>,
    /// When somebody was told last of what is waited for now.
    told: Option<Instant>,
}

impl Wait {
    /// What is waited for, and since when.
    fn overdue(&self, device: &str, now: Instant) -> Option<String> {
        let waited = |since: Instant| now.saturating_duration_since(since);
        if let Some((said, since, last)) = &self.look
            && waited(*last) < LOOKS_END
            && waited(*since) >= PATIENCE
        {
            return Some(format!("{device} is not ready yet, {} s so far ({said})", waited(*since).as_secs()));
        }
        let (command, since, within) = self.call.filter(|(_, since, _)| waited(*since) >= PATIENCE)?;
        let mut text = format!("{device} has not answered {command} for {} s", waited(since).as_secs());
        if let Some(within) = within {
            // Writing to a string cannot fail.
            let _ = write!(text, ", and is given {} s", within.as_secs());
        }
        Some(text)
    }
}

impl Slot {
    fn wait(&self) -> MutexGuard<'_, Wait> {
        self.wait.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overdue(&self, now: Instant) -> Option<String> {
        self.wait().overdue(&self.device, now)
    }
}

impl Watched {
    /// Registers a device for as long as this or a clone of it lives.
    pub(super) fn new(device: &str, tell: &OnDeviceWait) -> Self {
        let slot = Slot { device: device.to_owned(), tell: Arc::clone(tell), wait: Mutex::default() };
        let watched = Self(Arc::new(slot));
        let mut slots = slots();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&watched.0));
        drop(slots);
        start_watching();
        watched
    }

    fn wait(&self) -> MutexGuard<'_, Wait> {
        self.0.wait()
    }

    /// Does what may take long.
    pub(super) fn during<R>(&self, what: &'static str, within: Option<Duration>, call: impl FnOnce() -> R) -> R {
        self.begin(what, within, Instant::now());
        let result = call();
        self.end();
        result
    }

    fn begin(&self, what: &'static str, within: Option<Duration>, now: Instant) {
        self.wait().call = Some((what, now, within));
    }

    fn end(&self) {
        let mut wait = self.wait();
        wait.call = None;
        if wait.look.is_none() {
            wait.told = None;
        }
    }

    /// The device was looked at and is not ready.
    pub(super) fn not_ready(&self, said: String, waited: Duration) {
        self.looked(said, waited, Instant::now());
    }

    fn looked(&self, said: String, waited: Duration, now: Instant) {
        let mut wait = self.wait();
        if wait.look.as_ref().is_some_and(|(_, _, last)| now.saturating_duration_since(*last) >= LOOKS_END) {
            wait.told = None;
        }
        wait.look = Some((said, now.checked_sub(waited).unwrap_or(now), now));
    }

    /// The same of what a drive or changer says.
    pub(super) fn on_wait(&self) -> crate::hardware::OnWait {
        let watched = self.clone();
        Box::new(move |waiting: &Waiting| watched.not_ready(waiting.said(), waiting.waited))
    }
}

fn slots() -> MutexGuard<'static, Vec<Weak<Slot>>> {
    static SLOTS: Mutex<Vec<Weak<Slot>>> = Mutex::new(Vec::new());
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start_watching() {
    static WATCHING: OnceLock<()> = OnceLock::new();
    WATCHING.get_or_init(|| {
        let watch = || {
            loop {
                std::thread::sleep(LOOK_EVERY);
                look(&there(), Instant::now());
            }
        };
        // Without it nobody is told; nothing else is the worse for it.
        drop(std::thread::Builder::new().name("device-waits".to_owned()).spawn(watch));
    });
}

fn there() -> Vec<Arc<Slot>> {
    slots().iter().filter_map(Weak::upgrade).collect()
}

/// Tells what has been waited for long enough.
fn look(slots: &[Arc<Slot>], now: Instant) {
    for slot in slots {
        let mut wait = slot.wait();
        let due = wait.told.is_none_or(|told| now.saturating_duration_since(told) >= AGAIN);
        let Some(text) = wait.overdue(&slot.device, now).filter(|_| due) else { continue };
        wait.told = Some(now);
        drop(wait);
        (slot.tell)(format!("{text}; Ctrl-C ends the wait"));
    }
}

/// What this process has waited for in a device for more than a while, if there is such a thing.
pub fn overdue() -> Option<String> {
    let now = Instant::now();
    there().iter().find_map(|slot| slot.overdue(now))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn watched() -> (Arc<Mutex<Vec<String>>>, Watched) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&told);
        let tell: OnDeviceWait = Arc::new(move |text| listener.lock().unwrap().push(text));
        (told, Watched::new("drive /dev/sg9", &tell))
    }

    /// A drive that did not answer got no word for up to 39 minutes, and the first signal did nothing.
    #[test]
    fn a_wait_is_told_after_ten_seconds_and_then_each_minute() {
        let (told, watched) = watched();
        // So far ahead that the thread, which goes by the clock, finds nothing to tell.
        let began = Instant::now() + Duration::from_secs(100_000);
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        watched.begin("READ", Some(Duration::from_secs(2340)), began);
        for seconds in [9, 10, 11, 69, 70] {
            look(&[Arc::clone(&watched.0)], after(seconds));
        }
        let words = |seconds| {
            format!("drive /dev/sg9 has not answered READ for {seconds} s, and is given 2340 s; Ctrl-C ends the wait")
        };
        assert_eq!(*told.lock().unwrap(), [words(10), words(70)]);
        assert_eq!(watched.0.overdue(after(9)), None);
        assert!(watched.0.overdue(after(30)).is_some_and(|text| text.contains("not answered READ for 30 s")));
        watched.end();
        assert_eq!(watched.0.overdue(after(30)), None);

        watched.begin("WRITE", None, after(100));
        look(&[Arc::clone(&watched.0)], after(111));
        assert_eq!(told.lock().unwrap().len(), 3, "another wait is told anew");
        watched.end();
    }

    #[test]
    fn what_a_device_says_while_it_is_looked_at_is_told() {
        let (told, watched) = watched();
        let began = Instant::now() + Duration::from_secs(200_000);
        for seconds in (0..=20).step_by(5) {
            let waited = Duration::from_secs(seconds);
            watched.looked("becoming ready".to_owned(), waited, began + waited);
            look(&[Arc::clone(&watched.0)], began + waited);
        }
        let words = "drive /dev/sg9 is not ready yet, 10 s so far (becoming ready); Ctrl-C ends the wait";
        assert_eq!(*told.lock().unwrap(), [words]);
        assert_eq!(watched.0.overdue(began + Duration::from_secs(40)), None, "it is not looked at any more");
    }
}
