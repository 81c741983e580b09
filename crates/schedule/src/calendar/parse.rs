//! The words of calendar events.
//!
//! ```text
//! event     [weekdays] [date] [time] [zone]  |  shorthand [zone]
//! weekdays  mon  |  mon..fri  |  sat,sun                          names in full or three letters; a range may pass Sunday
//! date      [years-]months-days  |  [years-]months~days           ~ counts days from the end: *~1 is the last of each month
//! time      hours:minutes[:seconds]  |  minutes/step              without a time it is 00:00
//! numbers   *  |  6  |  6,18  |  8..17  |  0/15  |  8..17/3  |  */5
//! zone      UTC, Europe/Berlin                                    a name of the zone database
//! shorthand minutely hourly daily weekly monthly quarterly semiannually yearly
//! ```
//!
//! Fractions of seconds are refused, and so is a number that stands alone: systemd has no such time, and for Proxmox it
//! is the minute of each hour, which whoever types `22` does not mean.

use std::str::FromStr;

use jiff::civil::date;
use jiff::tz::TimeZone;
use thiserror::Error;

use super::fields::{DAY, Field, HOUR, MINUTE, MONTH, Numbers, SECOND};
use super::{CalendarEvent, Days, Weekdays, YEAR_MAX, YEAR_MIN, Years};

/// Why a text is no calendar event.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is not a calendar event: {reason}")]
pub struct CalendarError {
    text: String,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum Reason {
    #[error("it is empty; write for example `daily`, or `mon..fri 22:30`")]
    Empty,
    #[error(
        "{word:?} is none of weekdays, date, time and zone, in this order; write for example `mon..fri *-*-* 22:30 Europe/Berlin`"
    )]
    Word { word: String },
    #[error("{word:?} stands alone; write `{word}:00` for a time of the day, or `*:{word}` for a minute of each hour")]
    Alone { word: String },
    #[error("the zone database of this machine has no zone {word:?}; write for example Europe/Berlin or UTC")]
    Zone { word: String },
    #[error(
        "{part:?} is not a number of {field}s; write a number, `*`, or a list, range or step of numbers such as 1,3 or 1..5 or 0/15"
    )]
    Number { part: String, field: &'static str },
    #[error("the {field} {number} is not between {first} and {last}")]
    Outside { number: String, field: &'static str, first: i16, last: i16 },
    #[error("the range {part} ends before it begins")]
    Backwards { part: String },
    #[error("in {part:?} the step after / is not a number from 1 to 9999")]
    Step { part: String },
    #[error("seconds have no fractions here")]
    Fraction,
    #[error("no date is like that; look at the day of the month")]
    Never,
}

impl FromStr for CalendarEvent {
    type Err = CalendarError;

    /// # Errors
    /// The text is none of the grammar of this module, names a zone that this machine does not know, or a date that
    /// does not exist in any year.
    fn from_str(text: &str) -> Result<Self, CalendarError> {
        event(text).map_err(|reason| CalendarError { text: text.to_owned(), reason })
    }
}

fn event(text: &str) -> Result<CalendarEvent, Reason> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let first = *words.first().ok_or(Reason::Empty)?;
    let zone = match words[..] {
        [_, .., last] if begins_with_letter(last) && Weekdays::named(last).is_none() && shorthand(last).is_none() => {
            words.pop();
            let zone = TimeZone::get(last).ok().filter(|zone| !zone.is_unknown());
            Some(zone.ok_or_else(|| Reason::Zone { word: last.to_owned() })?)
        }
        _ => None,
    };
    let mut event = match shorthand(first) {
        Some(event) => {
            words.remove(0);
            event
        }
        None => worded(&mut words)?,
    };
    if let Some(word) = words.first() {
        return Err(Reason::Word { word: (*word).to_owned() });
    }
    event.zone = zone;
    event.next_local(date(YEAR_MIN, 1, 1).at(0, 0, 0, 0)).ok_or(Reason::Never)?;
    Ok(event)
}

/// Takes weekdays, date and time from the front of the words.
fn worded(words: &mut Vec<&str>) -> Result<CalendarEvent, Reason> {
    let mut event = midnight();
    let mut named = Weekdays(0);
    while let Some(more) = words.first().and_then(|word| Weekdays::named(word)) {
        named.0 |= more.0;
        words.remove(0);
    }
    if named.0 != 0 {
        event.weekdays = named;
    }
    if let Some(word) = words.first().filter(|word| word.contains(['-', '~']) && !begins_with_letter(word)) {
        (event.years, event.months, event.days) = date_of(word)?;
        words.remove(0);
    }
    if let Some(word) = words.first().filter(|word| !begins_with_letter(word)) {
        (event.hours, event.minutes, event.seconds) = time_of(word)?;
        words.remove(0);
    }
    Ok(event)
}

/// Every day at midnight.
fn midnight() -> CalendarEvent {
    CalendarEvent {
        weekdays: Weekdays::ALL,
        years: Years::All,
        months: Numbers::all(MONTH),
        days: Days::FromStart(Numbers::all(DAY)),
        hours: Numbers::one(0),
        minutes: Numbers::one(0),
        seconds: Numbers::one(0),
        zone: None,
    }
}

fn shorthand(word: &str) -> Option<CalendarEvent> {
    let months = |months: &[u8]| {
        let mut set = Numbers::NONE;
        months.iter().for_each(|month| set.insert(*month));
        CalendarEvent { months: set, days: Days::FromStart(Numbers::one(1)), ..midnight() }
    };
    Some(match word.to_ascii_lowercase().as_str() {
        "minutely" => CalendarEvent { hours: Numbers::all(HOUR), minutes: Numbers::all(MINUTE), ..midnight() },
        "hourly" => CalendarEvent { hours: Numbers::all(HOUR), ..midnight() },
        "daily" => midnight(),
        "weekly" => CalendarEvent { weekdays: Weekdays(1), ..midnight() },
        "monthly" => CalendarEvent { days: Days::FromStart(Numbers::one(1)), ..midnight() },
        "quarterly" => months(&[1, 4, 7, 10]),
        "semiannually" | "semi-annually" => months(&[1, 7]),
        "yearly" | "annually" => months(&[1]),
        _ => return None,
    })
}

fn begins_with_letter(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_alphabetic())
}

impl Weekdays {
    /// The weekdays that a word names; nothing if it is another word.
    pub(crate) fn named(word: &str) -> Option<Self> {
        let mut named = Self(0);
        // Proxmox and systemd both take a comma at the end.
        for part in word.strip_suffix(',').unwrap_or(word).split(',') {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            let (mut day, last) = (weekday(first)?, weekday(last)?);
            named.0 |= 1 << day;
            while day != last {
                day = (day + 1) % 7;
                named.0 |= 1 << day;
            }
        }
        Some(named)
    }
}

/// The number of a weekday, from Monday.
fn weekday(name: &str) -> Option<u8> {
    const FULL: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    let name = name.to_ascii_lowercase();
    let found = FULL.iter().position(|full| *full == name || full[..3] == name)?;
    u8::try_from(found).ok()
}

fn date_of(word: &str) -> Result<(Years, Numbers, Days), Reason> {
    let unknown = || Reason::Word { word: word.to_owned() };
    let (front, days) = match word.split_once('~') {
        Some((front, days)) => {
            let days = from_end(days)?;
            let is_all = days == Numbers::all(DAY);
            (front, if is_all { Days::FromStart(days) } else { Days::FromEnd(days) })
        }
        None => {
            let (front, days) = word.rsplit_once('-').ok_or_else(unknown)?;
            (front, Days::FromStart(numbers(days, DAY)?))
        }
    };
    let (years, months) = match front.split_once('-') {
        Some((years, months)) => (years_of(years)?, months),
        None => (Years::All, front),
    };
    Ok((years, numbers(months, MONTH)?, days))
}

fn time_of(word: &str) -> Result<(Numbers, Numbers, Numbers), Reason> {
    let parts: Vec<&str> = word.split(':').collect();
    let second = || Numbers::one(0);
    match parts[..] {
        [hours, minutes] => Ok((numbers(hours, HOUR)?, numbers(minutes, MINUTE)?, second())),
        [hours, minutes, seconds] => {
            if seconds.replace("..", "").contains('.') {
                return Err(Reason::Fraction);
            }
            Ok((numbers(hours, HOUR)?, numbers(minutes, MINUTE)?, numbers(seconds, SECOND)?))
        }
        [minutes] if minutes.contains('/') => Ok((Numbers::all(HOUR), numbers(minutes, MINUTE)?, second())),
        [alone] if alone.bytes().all(|digit| digit.is_ascii_digit()) => Err(Reason::Alone { word: alone.to_owned() }),
        _ => Err(Reason::Word { word: word.to_owned() }),
    }
}

/// A list of numbers, ranges and steps.
fn numbers(text: &str, field: Field) -> Result<Numbers, Reason> {
    let mut set = Numbers::NONE;
    for part in text.split(',') {
        let Part { first, last, step } = Part::of(part, field.name, i16::from(field.first), i16::from(field.last))?;
        if last < first {
            return Err(Reason::Backwards { part: part.to_owned() });
        }
        (first..=last)
            .step_by(step.into())
            .filter_map(|number| u8::try_from(number).ok())
            .for_each(|number| set.insert(number));
    }
    Ok(set)
}

/// Days counted from the end of the month: a step goes on towards the end.
fn from_end(text: &str) -> Result<Numbers, Reason> {
    let mut set = Numbers::NONE;
    for part in text.split(',') {
        let is_stepped = part.contains('/');
        let Part { first, last, step } = Part::of(part, DAY.name, 1, 31)?;
        if last < first {
            return Err(Reason::Backwards { part: part.to_owned() });
        }
        let (far, near) = match part.contains("..") || part.starts_with('*') {
            true => (last, first),
            false => (first, if is_stepped { 1 } else { first }),
        };
        (near..=far)
            .rev()
            .step_by(step.into())
            .filter_map(|day| u8::try_from(day).ok())
            .for_each(|day| set.insert(day));
    }
    Ok(set)
}

fn years_of(text: &str) -> Result<Years, Reason> {
    if text == "*" {
        return Ok(Years::All);
    }
    let spans = text.split(',').map(|part| {
        let Part { first, last, step } = Part::of(part, "year", YEAR_MIN, YEAR_MAX)?;
        match last < first {
            true => Err(Reason::Backwards { part: part.to_owned() }),
            false => {
                let step = i16::try_from(step).unwrap_or(i16::MAX);
                // One span has one form: its last year is one of its years.
                let last = last - (last - first) % step;
                Ok((first, last, if first == last { 1 } else { step }))
            }
        }
    });
    Ok(Years::Spans(spans.collect::<Result<_, _>>()?))
}

/// One part of a list: a number, a range, or steps from a number to the end of the field.
struct Part {
    first: i16,
    last: i16,
    step: u16,
}

impl Part {
    fn of(part: &str, field: &'static str, lowest: i16, highest: i16) -> Result<Self, Reason> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let unread = || Reason::Step { part: part.to_owned() };
        let step_by = match step {
            Some(step) => {
                number(step, "step", 1, 9999).ok().and_then(|step| u16::try_from(step).ok()).ok_or_else(unread)?
            }
            None => 1,
        };
        let number = |text: &str| number(text, field, lowest, highest);
        if range == "*" {
            return Ok(Self { first: lowest, last: highest, step: step_by });
        }
        let (first, last) = match (range.split_once(".."), step) {
            (Some((first, last)), _) => (number(first)?, number(last)?),
            (None, Some(_)) => (number(range)?, highest),
            (None, None) => (number(range)?, number(range)?),
        };
        Ok(Self { first, last, step: step_by })
    }
}

fn number(text: &str, field: &'static str, first: i16, last: i16) -> Result<i16, Reason> {
    let is_number = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number {
        return Err(Reason::Number { part: text.to_owned(), field });
    }
    let read = text.parse::<i16>().ok().map(|number| match (field, text.len(), number) {
        // As systemd reads years of two digits.
        ("year", 2, 0..70) => number + 2000,
        ("year", 2, 70..) => number + 1900,
        _ => number,
    });
    let outside = || Reason::Outside { number: text.to_owned(), field, first, last };
    read.filter(|number| (first..=last).contains(number)).ok_or_else(outside)
}
