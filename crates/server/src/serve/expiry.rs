//! What a server does now and then. Backups expire by themselves: at the times that the settings name, those are
//! forgotten whose retention has ended, as `capstan expire` forgets them. When that was last is on record, so a time
//! that passed while no server ran is made up for. Disks get room, and policies of copies run by what they owe.

use std::time::{Duration, Instant};

use capstan_director::{CopiesStarted, NothingOwed, StartedCopies};
use capstan_schedule::CalendarEvent;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Notice, Server, Trouble};
use crate::look::moment;

/// The catalog's fact that says when the server last had objects expire, or looked whether any do, nanoseconds since
/// 1970.
const LAST_FACT: &str = "expired last";
/// How often it is looked whether it is time, and how long after a failure.
const LOOKS: Duration = Duration::from_secs(2);
const LOOKS_AFTER_FAILURE: Duration = Duration::from_secs(600);
/// How often it is looked whether a disk needs room, and how long after nothing could be done about that.
const ROOM_LOOKS: Duration = Duration::from_secs(30);
const ROOM_LOOKS_IN_VAIN: Duration = Duration::from_secs(600);
/// How often it is looked whether there is something to copy for policies that run by that.
const OWED_LOOKS: Duration = Duration::from_secs(10);

impl Server<'_> {
    /// Has backups expire at their times, and disks get room when they need it, until the server ends.
    pub(super) fn mind_expiry(&self) {
        let times = self.site.config().server.expires();
        let (mut of_expiry, mut of_room, mut of_copies) = <(Trouble, Trouble, Trouble)>::default();
        let (mut expires_next, mut room_next, mut owed_next) = (Instant::now(), Instant::now(), Instant::now());
        let mut nothing_owed = NothingOwed::default();
        // Each server looks once, however short its term.
        loop {
            if let Some(times) = times.as_ref().filter(|_| Instant::now() >= expires_next) {
                let looked = self.expire_in_time(times);
                expires_next = Instant::now() + if looked.is_ok() { LOOKS } else { LOOKS_AFTER_FAILURE };
                let reason =
                    |error| format!("backups whose retention has ended do not expire: {error}; the server tries again");
                of_expiry.tell(self, looked.err().map(reason));
            }
            if Instant::now() >= room_next {
                let made = self.make_room();
                let is_in_vain = !matches!(made, Ok(true));
                room_next = Instant::now() + if is_in_vain { ROOM_LOOKS_IN_VAIN } else { ROOM_LOOKS };
                let reason = |error| format!("a disk that needs room gets none: {error}; the server tries again");
                of_room.tell(self, made.err().map(reason));
            }
            if Instant::now() >= owed_next {
                let looked = self.start_copies(&mut nothing_owed);
                owed_next = Instant::now() + OWED_LOOKS;
                let reason = |error| format!("policies of copies do not run by what they owe: {error}");
                of_copies.tell(self, looked.err().map(reason));
            }
            self.pause(LOOKS);
            if self.is_over() {
                return;
            }
        }
    }

    /// Enters runs of policies of copies that run by what there is to copy.
    fn start_copies(&self, nothing: &mut NothingOwed) -> Result<(), String> {
        let CopiesStarted { started, failed } =
            self.site.start_owed_copies(nothing).map_err(|error| error.to_string())?;
        for StartedCopies { run, policy, reason } in started {
            self.say(Notice::Entered { run, policy, reason });
        }
        let failed: Vec<_> = failed.iter().map(|(policy, error)| format!("policy {policy}: {error}")).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }

    /// Makes room on disks that need it; whether none needs any, or some was made.
    fn make_room(&self) -> Result<bool, String> {
        let Some(made) = self.worker.make_room()? else { return Ok(true) };
        let is_in_vain = made.iter().all(|expired| expired.volumes.is_empty());
        made.into_iter().for_each(|expired| self.say(Notice::Expired(expired)));
        Ok(!is_in_vain)
    }

    /// Has objects expire if it is time, and notes that it was.
    fn expire_in_time(&self, times: &CalendarEvent) -> Result<(), String> {
        let now = moment(self.site.now_ns());
        let note = || {
            let now = self.site.now_ns().to_string();
            self.site.catalog().put_fact(LAST_FACT, &now).map_err(|error| error.to_string())
        };
        let last = self.site.catalog().fact(LAST_FACT).map_err(|error| error.to_string())?;
        // A server that is new here begins with the next time; and a clock that was ahead for a while is not waited
        // for.
        let Some(last) = last.and_then(|last| last.parse().ok()).map(moment).filter(|last| *last <= now) else {
            return note();
        };
        if !is_time(times, last, now, &TimeZone::system()) {
            return Ok(());
        }
        if let Some(expired) = self.worker.expire()? {
            self.say(Notice::Expired(expired));
        }
        note()
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
        // No server ran for days.
        assert!(is_time("2026-02-01T12:00:00Z", "2026-03-02T09:00:00Z"));
        assert!(super::is_time(&times, Timestamp::MIN, "2026-03-02T09:00:00Z".parse().unwrap(), &TimeZone::UTC));
        let never: CalendarEvent = "2003-03-05 12:00".parse().unwrap();
        assert!(!super::is_time(&never, Timestamp::MIN, "2026-03-02T09:00:00Z".parse().unwrap(), &TimeZone::UTC));
    }
}
