//! Between a library and who listens to it.
//!
//! Units and sessions tell an event where it happens, under their locks. So who listens must never make them wait, and
//! nobody who knocks a thousand times a second may fill a log: in between stands a queue of bounded length, in front of
//! which no more than [`BURST`] events of a kind pass in a [`WINDOW`]; of the others only their number is told. Each
//! kind has a measure of its own, so that a flood of refused logins hides no write that failed.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{TargetEvent, TargetEvents};

/// Events of one kind that are told in a window.
const BURST: u32 = 20;
/// How long a window lasts.
const WINDOW: Duration = Duration::from_secs(60);
/// Events that may wait for the listener.
const WAITING_MAX: usize = 1024;
/// How often the end of windows is looked for.
const LOOKS: Duration = Duration::from_secs(1);
/// How long the end waits for a listener.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many of each kind are told.
#[derive(Default)]
struct Throttle {
    windows: HashMap<Discriminant<TargetEvent>, Window>,
}

struct Window {
    began: Instant,
    told: u32,
    withheld: u64,
    what: &'static str,
}

impl Throttle {
    /// Puts an event into the queue, or counts it.
    fn pass(&mut self, event: TargetEvent, now: Instant, queue: &mut VecDeque<TargetEvent>) {
        let fresh = || Window { began: now, told: 0, withheld: 0, what: event.many() };
        let window = self.windows.entry(discriminant(&event)).or_insert_with(fresh);
        if now.duration_since(window.began) >= WINDOW {
            queue.extend(window.withheld());
            *window = Window { began: now, told: 0, withheld: 0, what: window.what };
        }
        if window.told < BURST && queue.len() < WAITING_MAX {
            window.told += 1;
            queue.push_back(event);
        } else {
            window.withheld += 1;
        }
    }

    /// What was withheld in windows that have ended, or in all of them.
    fn due(&mut self, now: Instant, all: Due) -> Vec<TargetEvent> {
        let ended = |window: &&mut Window| all == Due::All || now.duration_since(window.began) >= WINDOW;
        self.windows.values_mut().filter(ended).filter_map(Window::withheld).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Ended,
    All,
}

impl Window {
    fn withheld(&mut self) -> Option<TargetEvent> {
        let count = std::mem::take(&mut self.withheld);
        (count > 0).then_some(TargetEvent::Withheld { what: self.what, count })
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<TargetEvent>,
    throttle: Throttle,
    closed: bool,
}

#[derive(Default)]
struct Desk {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Desk {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that tells a listener what happens; it has told all once this is dropped.
pub(crate) struct Teller {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl Teller {
    /// Begins; events for the listener go where the second value says.
    pub(crate) fn start(listener: TargetEvents) -> io::Result<(Self, TargetEvents)> {
        let desk = Arc::<Desk>::default();
        let (at_desk, telling) = (Arc::clone(&desk), Arc::clone(&desk));
        let thread = std::thread::Builder::new().name("vtl-events".into()).spawn(move || tell(&telling, &listener))?;
        let events = move |event| {
            let mut queue = at_desk.queue();
            let Queue { waiting, throttle, .. } = &mut *queue;
            throttle.pass(event, Instant::now(), waiting);
            drop(queue);
            at_desk.changed.notify_one();
        };
        Ok((Self { desk, thread: Some(thread) }, Arc::new(events)))
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.desk.queue().closed = true;
        self.desk.changed.notify_one();
        // The listener has what happened last, unless it hangs: its output may be a pipe that nobody reads any more.
        let Some(thread) = self.thread.take() else { return };
        let until = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn tell(desk: &Desk, listener: &TargetEvents) {
    loop {
        let mut queue = desk.queue();
        if queue.waiting.is_empty() && !queue.closed {
            queue = desk.changed.wait_timeout(queue, LOOKS).unwrap_or_else(PoisonError::into_inner).0;
        }
        let closed = queue.closed;
        let due = queue.throttle.due(Instant::now(), if closed { Due::All } else { Due::Ended });
        let told = std::mem::take(&mut queue.waiting);
        drop(queue);
        told.into_iter().chain(due).for_each(|event| listener(event));
        if closed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::net::SocketAddr;

    use super::*;

    fn refused(number: u16) -> TargetEvent {
        let address = SocketAddr::from(([192, 0, 2, 1], number));
        TargetEvent::LoginRefused { initiator: None, address, reason: "a reason".to_owned() }
    }

    /// Somebody who tries passwords ten thousand times a minute fills no log, and hides no write that failed.
    #[test]
    fn a_flood_of_one_kind_is_counted_and_hides_no_other() {
        let (mut throttle, mut queue, now) = (Throttle::default(), VecDeque::new(), Instant::now());
        for number in 0..10_000 {
            throttle.pass(refused(number), now, &mut queue);
        }
        assert_eq!(queue.len(), BURST as usize);
        throttle.pass(TargetEvent::DoorClosed, now, &mut queue);
        assert_eq!(queue.pop_back(), Some(TargetEvent::DoorClosed));
        assert_eq!(throttle.due(now, Due::Ended), []);
        let later = now + WINDOW;
        let withheld = TargetEvent::Withheld { what: "refused logins", count: 10_000 - u64::from(BURST) };
        assert_eq!(throttle.due(later, Due::Ended), std::slice::from_ref(&withheld));
        assert_eq!(throttle.due(later, Due::Ended), [], "once");
        throttle.pass(refused(1), later, &mut queue);
        assert_eq!(queue.back(), Some(&refused(1)), "a new window");
        assert_eq!(withheld.to_string(), "and 9980 more refused logins");
    }

    #[test]
    fn nobody_waits_for_a_listener_and_all_is_told_at_the_end() {
        let (begun, told) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(Vec::new())));
        let held = begun.lock().unwrap();
        let (gate, into) = (Arc::clone(&begun), Arc::clone(&told));
        let listener: TargetEvents = Arc::new(move |event| {
            drop(gate.lock().unwrap());
            into.lock().unwrap().push(event);
        });
        let (teller, events) = Teller::start(listener).unwrap();
        for number in 0..100 {
            events(refused(number));
        }
        events(TargetEvent::DoorClosed);
        assert!(told.lock().unwrap().is_empty(), "the listener is held, and the library is not");
        drop(held);
        drop(teller);
        let told = told.lock().unwrap();
        assert_eq!(told.len(), BURST as usize + 2);
        assert_eq!(
            told[BURST as usize..],
            [TargetEvent::DoorClosed, TargetEvent::Withheld { what: "refused logins", count: 100 - u64::from(BURST) }]
        );
    }
}
