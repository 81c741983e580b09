//! Which instants the moments of an event are, in a zone that changes its clock.
//!
//! A zone is a row of spans, each with one offset from UTC. Where the clock is put forward, some local times do not
//! exist; where it is put back, some exist twice. The rules, with clocks of Berlin as the example:
//!
//! ```text
//! forward   01:59:59 +01 | 03:00:00 +02    02:30 does not exist: it occurs at the offset before, at 03:30 +02
//! back      02:59:59 +02 | 02:00:00 +01    02:30 exists twice: it occurs at the first one, at 02:30 +02
//! ```
//!
//! Both are the rules of iCalendar (RFC 5545, 3.3.5). So an event that names a time of the day occurs exactly once on
//! each of its days. An event that leaves the hour open means a rhythm, such as `*:00/10`: it occurs in both of the two
//! hours, because an hour without it would be a gap. Two moments that are the same instant are one occurrence.
//!
//! Systemd leaves out what does not exist; cron differs from one implementation to the other.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{CalendarEvent, YEAR_MAX};

/// Over how many intervals the mean is taken: those of six weeks where there is one each working day.
const MEAN_OVER: usize = 32;

impl CalendarEvent {
    /// How long it is from one instant of the event to the next, on average over some that come after this one; none if
    /// fewer than two come.
    #[must_use]
    pub fn mean_interval(&self, after: Timestamp, zone: &TimeZone) -> Option<SignedDuration> {
        let first = self.next_after(after, zone)?;
        let instants = std::iter::successors(Some(first), |at| self.next_after(*at, zone));
        let (count, last) = instants.enumerate().take(MEAN_OVER + 1).last()?;
        last.duration_since(first).checked_div(i32::try_from(count).ok()?)
    }

    /// The first instant of the event after this one, in the event's own zone or else in this one; none if there is
    /// none up to the end of 2199.
    #[must_use]
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(zone);
        let mut from = whole_second_after(after)?;
        loop {
            let span = Span::with(zone, from);
            if let Some(found) = self.next_in(&span, from) {
                return Some(found);
            }
            from = span.end.filter(|end| zone.to_datetime(*end).year() <= YEAR_MAX)?;
        }
    }

    /// The first instant that is not before `from`, of those that belong to a span.
    fn next_in(&self, span: &Span, from: Timestamp) -> Option<Timestamp> {
        let mut begin = span.offset.to_datetime(from);
        if let Some(change) = &span.change
            && !self.is_of_every_hour()
        {
            // What is behind the change, and was there before it already, has occurred.
            begin = begin.max(change.local_before());
        }
        let usual = self.next_local(begin).and_then(|local| span.offset.to_timestamp(local).ok());
        let usual = usual.filter(|found| span.end.is_none_or(|end| *found < end));
        let skipped = span.change.as_ref().and_then(|change| self.next_skipped(change, span.offset, from));
        usual.into_iter().chain(skipped).min()
    }

    /// The first instant, not before `from`, of a moment that the change to this offset skipped.
    fn next_skipped(&self, change: &Change, offset: Offset, from: Timestamp) -> Option<Timestamp> {
        let end = offset.to_datetime(change.at);
        let begin = change.local_before().max(change.before.to_datetime(from));
        let skipped = self.next_local(begin).filter(|local| *local < end)?;
        change.before.to_timestamp(skipped).ok()
    }
}

/// A time in which a zone has one offset.
struct Span {
    offset: Offset,
    /// How it began; none if the zone has had this offset from the start.
    change: Option<Change>,
    /// When the next one begins.
    end: Option<Timestamp>,
}

/// A change of the clock.
struct Change {
    at: Timestamp,
    /// The offset up to then.
    before: Offset,
}

impl Span {
    /// The span that this instant is in.
    fn with(zone: &TimeZone, at: Timestamp) -> Self {
        // A change counts as one that precedes if it is before the instant, and so one that is at the instant does not.
        let behind = at.checked_add(SignedDuration::from_nanos(1)).unwrap_or(at);
        let change = zone.preceding(behind).next().map(|change| {
            let at = change.timestamp();
            let just_before = at.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(at);
            Change { at, before: zone.to_offset(just_before) }
        });
        Self { offset: zone.to_offset(at), change, end: zone.following(at).next().map(|next| next.timestamp()) }
    }
}

impl Change {
    /// What the clock would have shown without the change.
    fn local_before(&self) -> DateTime {
        self.before.to_datetime(self.at)
    }
}

fn whole_second_after(after: Timestamp) -> Option<Timestamp> {
    // The second that an instant is in begins before it, also before 1970.
    let second = after.as_nanosecond().div_euclid(1_000_000_000) + 1;
    Timestamp::from_second(i64::try_from(second).ok()?).ok()
}
