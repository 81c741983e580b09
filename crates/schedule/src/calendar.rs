//! Calendar events: which moments of the local clock an expression such as `mon..fri 22:30` names.
//!
//! The grammar is that of `OnCalendar=` in systemd.time(7), with the shortened times of Proxmox's calendar events. The
//! words are in [`parse`]; which instants the local moments are, in a zone that changes its clock, is in [`instants`].

mod fields;
mod instants;
mod local;
mod parse;

use std::fmt;

use jiff::tz::TimeZone;

use self::fields::{DAY, HOUR, MINUTE, MONTH, Numbers, SECOND};
pub use self::parse::CalendarError;

/// The first year that an event can name, as in systemd.
pub(crate) const YEAR_MIN: i16 = 1970;
/// The last year that an event can name, as in systemd. After it, no event occurs.
pub(crate) const YEAR_MAX: i16 = 2199;

/// A calendar event: a set of moments of the local clock, to the second.
///
/// It is made from its text ([`std::str::FromStr`]), and [`fmt::Display`] writes it in full, as in
/// `Mon..Fri *-*-* 22:30:00`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarEvent {
    weekdays: Weekdays,
    years: Years,
    months: Numbers,
    days: Days,
    hours: Numbers,
    minutes: Numbers,
    seconds: Numbers,
    /// The zone that the event itself names.
    zone: Option<TimeZone>,
}

/// Days of the week: bit 0 stands for Monday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weekdays(u8);

impl Weekdays {
    pub(crate) const ALL: Self = Self(0b111_1111);
    const NAMES: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

    pub(crate) fn contains(self, from_monday: u8) -> bool {
        self.0 & (1 << from_monday) != 0
    }
}

/// Years that an event names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Years {
    All,
    /// From the first year to the last one, in steps.
    Spans(Vec<(i16, i16, i16)>),
}

impl Years {
    fn contains(&self, year: i16) -> bool {
        let within =
            |(first, last, step): &(i16, i16, i16)| (*first..=*last).contains(&year) && (year - first) % step == 0;
        match self {
            Self::All => (YEAR_MIN..=YEAR_MAX).contains(&year),
            Self::Spans(spans) => spans.iter().any(within),
        }
    }
}

/// Days of a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Days {
    FromStart(Numbers),
    /// Counted from the end: 1 is the last day of the month.
    FromEnd(Numbers),
}

impl CalendarEvent {
    /// Whether the event leaves the hour open: it then means a rhythm, and not a time of the day.
    fn is_of_every_hour(&self) -> bool {
        self.hours == Numbers::all(HOUR)
    }
}

impl fmt::Display for CalendarEvent {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.weekdays != Weekdays::ALL {
            self.weekdays.fmt(to)?;
            to.write_str(" ")?;
        }
        self.years.fmt(to)?;
        to.write_str("-")?;
        self.months.write(MONTH, to)?;
        match self.days {
            Days::FromStart(days) => {
                to.write_str("-")?;
                days.write(DAY, to)?;
            }
            Days::FromEnd(days) => {
                to.write_str("~")?;
                days.write_plain(to)?;
            }
        }
        for (mark, numbers, field) in
            [(" ", self.hours, HOUR), (":", self.minutes, MINUTE), (":", self.seconds, SECOND)]
        {
            to.write_str(mark)?;
            numbers.write(field, to)?;
        }
        match self.zone.as_ref().and_then(TimeZone::iana_name) {
            Some(name) => write!(to, " {name}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Weekdays {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut day = 0;
        let mut comma = "";
        while day < 7 {
            let in_line = (day..7).take_while(|day| self.contains(*day)).count();
            let first = Self::NAMES[usize::from(day)];
            match in_line {
                0 => day += 1,
                1 | 2 => {
                    write!(to, "{comma}{first}")?;
                    (day, comma) = (day + 1, ",");
                }
                _ => {
                    let last = usize::from(day) + in_line - 1;
                    write!(to, "{comma}{first}..{}", Self::NAMES[last])?;
                    (day, comma) = (7.min(day + u8::try_from(in_line).unwrap_or(7)), ",");
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Years {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Spans(spans) = self else { return to.write_str("*") };
        let mut comma = "";
        for (first, last, step) in spans {
            write!(to, "{comma}{first}")?;
            match (last, step) {
                (last, _) if last == first => {}
                (last, 1) => write!(to, "..{last}")?,
                (last, step) => write!(to, "..{last}/{step}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}
