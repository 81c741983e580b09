//! Housekeeping: what a process looks after beside its requests, as named checks that are made again and again.
//!
//! ```text
//!  check "low water" --> NextCheck after 1 s
//!  check "anchors"   --> NextCheck after 10 s, or when one is wanted at once        one task polls all of them
//!  check "tend"      --> NextCheck after 200 ms
//! ```
//! A check looks once, does what is due, and says when it is to be made again. One that waits, for a disk or for
//! another process, holds up no other. What it keeps from one time to the next is in the closure, so that a test makes
//! the checks by itself, without waiting.

use std::convert::Infallible;
use std::future::pending;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::futures::Notified;

/// A check that takes longer is named in the log, for whoever looks into a process that is slow.
const LONG: Duration = Duration::from_secs(5);

/// When a check is made again.
#[must_use]
pub struct NextCheck<'a> {
    after: Option<Duration>,
    when: Option<Notified<'a>>,
}

impl<'a> NextCheck<'a> {
    /// After so long.
    pub fn after(pause: Duration) -> Self {
        Self { after: Some(pause), when: None }
    }

    /// When this happens. Make it before looking, so that what happens meanwhile counts.
    pub fn when(event: Notified<'a>) -> Self {
        Self { after: None, when: Some(event) }
    }

    /// Also when this happens.
    pub fn or_when(self, event: Notified<'a>) -> Self {
        Self { when: Some(event), ..self }
    }

    /// Never again.
    pub fn never() -> Self {
        Self { after: None, when: None }
    }

    async fn due(self) {
        let time = async {
            match self.after {
                Some(pause) => tokio::time::sleep(pause).await,
                None => pending().await,
            }
        };
        let event = async {
            match self.when {
                Some(event) => event.await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = time => {}
            () = event => {}
        }
    }
}

/// The checks of a process.
#[derive(Default)]
pub struct Housekeeping<'a> {
    checks: Vec<LocalBoxFuture<'a, Infallible>>,
}

impl<'a> Housekeeping<'a> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more. It is made at once, and then whenever it said.
    pub fn check(mut self, name: &'static str, mut check: impl AsyncFnMut() -> NextCheck<'a> + 'a) -> Self {
        self.checks.push(Box::pin(async move {
            loop {
                let begun = Instant::now();
                let next = check().await;
                let took = begun.elapsed();
                if took >= LONG {
                    tracing::debug!(check = name, seconds = took.as_secs_f64(), "a check took long");
                }
                next.due().await;
            }
        }));
        self
    }

    /// Makes the checks for as long as it is polled.
    pub async fn run(self) -> Infallible {
        let mut checks: FuturesUnordered<_> = self.checks.into_iter().collect();
        match checks.next().await {
            Some(never) => never,
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::sync::Notify;

    use super::*;

    /// `often` is made again and again while `slow` waits for it; `wanted` is made when it is asked for.
    #[tokio::test]
    async fn each_check_is_made_when_it_said_and_holds_up_no_other() {
        let (made, done) = (RefCell::new(Vec::new()), Notify::new());
        let (third, wanted) = (Notify::new(), Notify::new());
        let note = |name: &'static str| made.borrow_mut().push(name);
        let mut times = 0;
        let housekeeping = Housekeeping::new()
            .check("wanted", async || {
                let event = wanted.notified();
                note("wanted");
                NextCheck::when(event)
            })
            .check("slow", async || {
                third.notified().await;
                note("slow");
                wanted.notify_waiters();
                NextCheck::never()
            })
            .check("often", async || {
                times += 1;
                match times {
                    1..=3 => note("often"),
                    4 => third.notify_one(),
                    5.. if made.borrow().len() == 6 => done.notify_one(),
                    _ => {}
                }
                NextCheck::after(Duration::from_millis(1))
            });
        tokio::select! {
            never = housekeeping.run() => match never {},
            () = done.notified() => {}
        }
        let mut made = made.take();
        made[..2].sort_unstable();
        assert_eq!(made, ["often", "wanted", "often", "often", "slow", "wanted"]);
    }
}
