//! A client that is told to stop, and may not.
//!
//! It reports in one thread and works in others. One that waits for a dead disk reports for ever, and cannot stop: then
//! it is left alone, so that neither a run nor the server waits for it.

use std::time::{Duration, Instant};

use super::super::orders::JobOrder;
use crate::Stopped;

/// Whether an orders link is of use once what was asked on it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkUse {
    /// The client waits for an order on it.
    Again,
    /// It does something else.
    Over,
}

/// What a client is answered that reports, and how long it may take to stop.
pub(super) struct StopPatience {
    limit: Duration,
    told: Option<Instant>,
}

impl StopPatience {
    pub(super) fn of(limit: Duration) -> Self {
        Self { limit, told: None }
    }

    /// The answer to a report; none once it was told to stop for so long.
    pub(super) fn answer(&mut self, stops: bool, now: Instant, link: &mut LinkUse) -> Result<JobOrder, Stopped> {
        if !stops {
            return Ok(JobOrder::GoOn);
        }
        if now.duration_since(*self.told.get_or_insert(now)) > self.limit {
            *link = LinkUse::Over;
            return Err(Stopped);
        }
        Ok(JobOrder::Stop)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::super::super::hello::{Hello, Purpose, VERSION, Welcome};
    use super::super::super::orders::JobReport;
    use super::super::{NetworkJobs, locked};
    use super::*;
    use crate::link::Link;
    use crate::source::SourceError;

    #[test]
    fn a_client_that_is_told_to_stop_has_a_while_for_it() {
        let (mut patience, mut link, now) = (StopPatience::of(Duration::from_secs(60)), LinkUse::Again, Instant::now());
        let mut answer = |stops, seconds| patience.answer(stops, now + Duration::from_secs(seconds), &mut link);
        assert!(matches!(answer(false, 0), Ok(JobOrder::GoOn)));
        assert!(matches!((answer(true, 100), answer(true, 160)), (Ok(JobOrder::Stop), Ok(JobOrder::Stop))));
        answer(true, 161).unwrap_err();
        assert_eq!(link, LinkUse::Over);
    }

    /// A source lay on a disk that was gone: the client reported and could not stop, `queue cancel` had no effect, and
    /// a server that was stopped waited for it.
    #[test]
    fn one_that_reports_and_does_not_stop_is_left_alone() {
        let jobs = NetworkJobs::default();
        let mut job = jobs.open("tern", Duration::from_secs(20)).unwrap();
        job.stops_within = (Duration::ZERO, Duration::ZERO);
        let (near, far) = UnixStream::pair().unwrap();
        let hello = Hello {
            version: VERSION,
            token: job.token().clone(),
            process: crate::JobToken([1; 32]),
            purpose: Purpose::Orders,
        };
        thread::scope(|scope| {
            scope.spawn(|| jobs.accept("tern", Box::new(far)).unwrap());
            let client = scope.spawn(move || {
                let mut link = Link(near);
                link.send(&hello, &[]).unwrap();
                assert!(matches!(link.receive::<Welcome>().unwrap().0, Welcome::Taken));
                assert!(matches!(link.receive::<JobOrder>().unwrap().0, JobOrder::Run(_)));
                // Until the link is gone.
                while link.send(&JobReport::StillRuns, &[]).is_ok() && link.receive::<JobOrder>().is_ok() {}
            });
            let ended = job.run_before("hangs", &[], None, &AtomicBool::new(true));
            assert!(matches!(ended, Err(SourceError::Stopped(_))), "{ended:?}");
            client.join().unwrap();
            assert_eq!(locked(&job.job.links).open, 0);
        });
    }
}
