//! Windows: the times in which something may begin, such as `mon..fri 20:00-06:00; sat,sun`.
//!
//! A window is open if the local clock shows a time within one of its parts. So where a clock is put back, a part with
//! the hour that comes twice is an hour longer, and where it is put forward, an hour shorter. A part that passes
//! midnight belongs to the weekday on which it begins.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use thiserror::Error;

use crate::calendar::Weekdays;

/// Times of the week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    parts: Vec<Part>,
}

/// The same time on some weekdays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    weekdays: Weekdays,
    begin: Time,
    /// Not before the next day, if it is not after the beginning.
    end: Time,
}

/// Why a text is no window.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a window: write weekdays and times, as in `mon..fri 20:00-06:00; sat,sun`")]
pub struct WindowError {
    text: String,
}

impl Window {
    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self, at: Timestamp, zone: &TimeZone) -> bool {
        let local = zone.to_datetime(at);
        self.parts.iter().any(|part| part.holds(local))
    }

    /// When it is open next: now, if it is open now. None if it does not open within a year.
    #[must_use]
    pub fn next_open(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.is_open(now, zone) {
            return Some(now);
        }
        self.first_edge(now, zone, |at| self.is_open(at, zone))
    }

    /// When it closes, if it is open. None if it is not, or does not close within a year.
    #[must_use]
    pub fn closes(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if !self.is_open(now, zone) {
            return None;
        }
        self.first_edge(now, zone, |at| !self.is_open(at, zone))
    }

    /// The first instant after this one at which the window can change, and that is as wanted: a beginning or an end of
    /// a part, or a change of the clock.
    fn first_edge(&self, now: Timestamp, zone: &TimeZone, is_wanted: impl Fn(Timestamp) -> bool) -> Option<Timestamp> {
        let times: Vec<Time> = self.parts.iter().flat_map(|part| [part.begin, part.end]).collect();
        let year_later = now.checked_add((366 * 24).hours()).ok()?;
        let changes: Vec<Timestamp> =
            zone.following(now).map(|change| change.timestamp()).take_while(|change| *change < year_later).collect();
        let mut date = zone.to_datetime(now).date();
        for _ in 0..=366 {
            let of_day = times.iter().flat_map(|time| instants(zone, date.to_datetime(*time)));
            let of_changes = changes.iter().copied().filter(|change| zone.to_datetime(*change).date() == date);
            let mut edges: Vec<Timestamp> = of_day.chain(of_changes).filter(|edge| *edge > now).collect();
            edges.sort_unstable();
            if let Some(edge) = edges.into_iter().find(|edge| is_wanted(*edge)) {
                return Some(edge);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }
}

/// The instants at which a clock shows a local time: two where it comes twice, none where it is skipped.
fn instants(zone: &TimeZone, local: DateTime) -> impl Iterator<Item = Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let both = [ambiguous.earlier().ok(), ambiguous.later().ok()];
    both.into_iter().flatten().filter(move |at| zone.to_datetime(*at) == local)
}

impl Part {
    fn holds(&self, local: DateTime) -> bool {
        let on = |date: Date| {
            let day = date.weekday().to_monday_zero_offset().unsigned_abs();
            self.weekdays.contains(day)
        };
        let time = local.time();
        if self.begin < self.end {
            return on(local.date()) && self.begin <= time && time < self.end;
        }
        let began_yesterday = || local.date().yesterday().is_ok_and(on);
        on(local.date()) && time >= self.begin || time < self.end && began_yesterday()
    }
}

impl FromStr for Window {
    type Err = WindowError;

    /// # Errors
    /// The text has another form, or names a time that no day has.
    fn from_str(text: &str) -> Result<Self, WindowError> {
        let parts = text.split(';').map(part).collect::<Option<Vec<_>>>();
        parts.map(|parts| Self { parts }).ok_or_else(|| WindowError { text: text.to_owned() })
    }
}

fn part(text: &str) -> Option<Part> {
    let whole_day = Part { weekdays: Weekdays::ALL, begin: Time::midnight(), end: Time::midnight() };
    let words: Vec<&str> = text.split_whitespace().collect();
    let times = |text: &str| {
        let (begin, end) = text.split_once('-')?;
        // 24:00 is the end of a day; as a beginning it would be that of the next one.
        Some((time(begin).filter(|_| !begin.starts_with("24"))?, time(end)?))
    };
    match words[..] {
        [one] => match Weekdays::named(one) {
            Some(weekdays) => Some(Part { weekdays, ..whole_day }),
            None => times(one).map(|(begin, end)| Part { begin, end, ..whole_day }),
        },
        [days, hours] => {
            let (begin, end) = times(hours)?;
            Some(Part { weekdays: Weekdays::named(days)?, begin, end })
        }
        _ => None,
    }
}

/// A time such as `6:30`; `24:00` is midnight.
fn time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let is_plain = |part: &str| (1..=2).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_digit());
    if !is_plain(hour) || !is_plain(minute) {
        return None;
    }
    match (hour.parse().ok()?, minute.parse().ok()?) {
        (24, 0) => Some(Time::midnight()),
        (hour, minute) => Time::new(hour, minute, 0, 0).ok(),
    }
}

impl fmt::Display for Window {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mark = "";
        for Part { weekdays, begin, end } in &self.parts {
            to.write_str(mark)?;
            mark = "; ";
            let (begin, end) = (begin.strftime("%H:%M"), end.strftime("%H:%M"));
            match *weekdays {
                Weekdays::ALL => write!(to, "{begin}-{end}")?,
                weekdays => write!(to, "{weekdays} {begin}-{end}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::get("Europe/Berlin").unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Opens and closes next, after a moment.
    fn next(window: &str, now: &str) -> (Option<String>, Option<String>) {
        let (window, now): (Window, _) = (window.parse().unwrap(), at(now));
        let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
        (text(window.next_open(now, &berlin())), text(window.closes(now, &berlin())))
    }

    #[test]
    fn a_part_that_passes_midnight_belongs_to_the_day_on_which_it_begins() {
        // Friday, 27 November 2026; Berlin is an hour ahead of UTC.
        let window = "mon..fri 20:00-06:00";
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(next(window, "2026-11-27T18:00:00Z"), (some("2026-11-27T19:00:00Z"), None));
        assert_eq!(next(window, "2026-11-27T22:00:00Z").1, some("2026-11-28T05:00:00Z"));
        assert_eq!(next(window, "2026-11-28T06:00:00Z"), (some("2026-11-30T19:00:00Z"), None), "not on Saturday");
        assert_eq!(next(window, "2026-11-30T04:00:00Z"), (some("2026-11-30T19:00:00Z"), None), "Sunday began nothing");
    }

    #[test]
    fn parts_that_meet_are_one() {
        let window = "mon..fri 20:00-06:00; sat,sun";
        // Saturday begins within the night of Friday; Sunday ends at midnight in Berlin.
        assert_eq!(next(window, "2026-11-27T22:00:00Z").1, Some("2026-11-29T23:00:00Z".to_owned()));
        assert_eq!(next("00:00-24:00", "2026-11-27T22:00:00Z"), (Some("2026-11-27T22:00:00Z".to_owned()), None));
    }

    #[test]
    fn what_the_clock_shows_counts_when_it_is_changed() {
        // Put back on 25 October 2026, at 03:00 to 02:00; put forward on 28 March 2027, at 02:00 to 03:00.
        assert_eq!(next("02:00-03:00", "2026-10-24T23:00:00Z").0, Some("2026-10-25T00:00:00Z".to_owned()));
        assert_eq!(next("02:00-03:00", "2026-10-25T00:30:00Z").1, Some("2026-10-25T02:00:00Z".to_owned()), "two hours");
        assert_eq!(
            next("02:00-03:00", "2027-03-28T00:00:00Z").0,
            Some("2027-03-29T00:00:00Z".to_owned()),
            "not on that day"
        );
        assert_eq!(
            next("02:30-04:00", "2027-03-28T00:00:00Z").0,
            Some("2027-03-28T01:00:00Z".to_owned()),
            "at the change"
        );
    }

    #[test]
    fn windows_are_read_and_written() {
        for (text, full) in
            [("20:00-06:00", "20:00-06:00"), ("mon..fri 8:5-24:00;sun", "Mon..Fri 08:05-00:00; Sun 00:00-00:00")]
        {
            let window: Window = text.parse().unwrap();
            assert_eq!(window.to_string(), full);
            assert_eq!(full.parse::<Window>().unwrap(), window);
        }
        for text in [
            "",
            ";",
            "someday",
            "20:00",
            "20-06",
            "25:00-26:00",
            "sat 24:00-06:00",
            "mon 8:00-9:00 10:00",
            "8:60-9:00",
            "-1:00-2:00",
        ] {
            let error = text.parse::<Window>().unwrap_err().to_string();
            assert!(error.contains("is not a window: write weekdays and times"), "{error}");
        }
    }
}
