//! Backups expire by themselves: at the times that the settings name, those are forgotten whose retention has ended, as
//! `capstan expire` forgets them. When that was last is what the history says, so a time that passed while no server
//! ran is made up for.

use std::time::Duration;

use capstan_schedule::CalendarEvent;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Notice, Server, Trouble};
use crate::look::moment;

/// What an expiry is in the history; it is about all objects.
pub(crate) const KIND_OF_EXPIRY: &str = "expire";
pub(crate) const SUBJECT_OF_EXPIRY: &str = "";
/// How often it is looked whether it is time, and how long after a failure.
const LOOKS: Duration = Duration::from_secs(10);
const LOOKS_AFTER_FAILURE: Duration = Duration::from_secs(600);

impl Server<'_> {
    /// Has backups expire at their times, until the server ends.
    pub(super) fn mind_expiry(&self) {
        let Some(times) = self.site.config().server.expires() else { return };
        let (mut trouble, mut last) = (Trouble::default(), None);
        while !self.is_over() {
            let looked = self.expire_in_time(&times, &mut last);
            let pause = if looked.is_ok() { LOOKS } else { LOOKS_AFTER_FAILURE };
            let reason =
                |error| format!("backups whose retention has ended do not expire: {error}; the server tries again");
            trouble.tell(self, looked.err().map(reason));
            self.pause(pause);
        }
    }

    /// Forgets what has expired if it is time; `last` is when that was before, once it is known.
    fn expire_in_time(&self, times: &CalendarEvent, last: &mut Option<Timestamp>) -> Result<(), String> {
        let now = moment(self.site.now_ns());
        let before = match *last {
            Some(before) => before,
            None => {
                let job = self
                    .site
                    .catalog()
                    .last_job(KIND_OF_EXPIRY, SUBJECT_OF_EXPIRY)
                    .map_err(|error| error.to_string())?;
                job.map_or(Timestamp::MIN, |job| moment(job.started_ns))
            }
        };
        if is_time(times, before, now, &TimeZone::system()) {
            if let Some(expired) = self.worker.expire()? {
                self.say(Notice::Expired(expired));
            }
            *last = Some(now);
        } else {
            // A clock that was ahead for a while is not waited for.
            *last = Some(before.min(now));
        }
        Ok(())
    }
}

/// Whether one of the times has come since the last one that was used.
fn is_time(times: &CalendarEvent, last: Timestamp, now: Timestamp, zone: &TimeZone) -> bool {
    // Who looks a year back finds the last time of any event that still comes.
    let from = now.checked_sub(jiff::SignedDuration::from_hours(366 * 24)).unwrap_or(Timestamp::MIN);
    times.next_after(last.max(from), zone).is_some_and(|next| next <= now)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_time_that_passed_is_made_up_for_once() {
        let times: CalendarEvent = "12:00".parse().unwrap();
        let is_time =
            |last: &str, now: &str| is_time(&times, last.parse().unwrap(), now.parse().unwrap(), &TimeZone::UTC);
        assert!(!is_time("2026-03-01T12:00:01Z", "2026-03-02T11:59:59Z"));
        assert!(is_time("2026-03-01T12:00:01Z", "2026-03-02T12:00:00Z"));
        assert!(!is_time("2026-03-02T12:00:00Z", "2026-03-02T12:00:09Z"));
        // Nobody ran for days, or it never expired before.
        assert!(is_time("2026-02-01T12:00:00Z", "2026-03-02T09:00:00Z"));
        assert!(super::is_time(&times, Timestamp::MIN, "2026-03-02T09:00:00Z".parse().unwrap(), &TimeZone::UTC));
        let never: CalendarEvent = "2003-03-05 12:00".parse().unwrap();
        assert!(!super::is_time(&never, Timestamp::MIN, "2026-03-02T09:00:00Z".parse().unwrap(), &TimeZone::UTC));
    }
}
