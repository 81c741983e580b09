//! The next moment of an event on a clock that is never changed.

use jiff::civil::{Date, DateTime, Time};

use super::{CalendarEvent, Days, YEAR_MAX, YEAR_MIN};

impl CalendarEvent {
    /// The first local moment of the event that is not before this one; none if there is none up to [`YEAR_MAX`].
    pub(super) fn next_local(&self, from: DateTime) -> Option<DateTime> {
        let date = self.next_date(from.date())?;
        if date == from.date() {
            if let Some(time) = self.next_time(from.time()) {
                return Some(date.to_datetime(time));
            }
            let date = self.next_date(date.tomorrow().ok()?)?;
            return Some(date.to_datetime(self.next_time(Time::midnight())?));
        }
        Some(date.to_datetime(self.next_time(Time::midnight())?))
    }

    fn has_day(&self, date: Date) -> bool {
        let weekday = unsigned(date.weekday().to_monday_zero_offset());
        self.weekdays.contains(weekday)
            && match self.days {
                Days::FromStart(days) => days.contains(unsigned(date.day())),
                Days::FromEnd(days) => days.contains(unsigned(date.days_in_month() - date.day() + 1)),
            }
    }

    fn next_date(&self, from: Date) -> Option<Date> {
        let mut year = from.year().max(YEAR_MIN);
        let mut month = if year == from.year() { unsigned(from.month()) } else { 1 };
        while year <= YEAR_MAX {
            let named = self.years.contains(year).then(|| self.months.at_least(month)).flatten();
            let Some(named) = named else {
                (year, month) = (year + 1, 1);
                continue;
            };
            let first = Date::new(year, i8::try_from(named).ok()?, 1).ok()?;
            let begin = first.max(from);
            let days = begin.day()..=first.days_in_month();
            let found =
                days.filter_map(|day| Date::new(year, first.month(), day).ok()).find(|date| self.has_day(*date));
            if found.is_some() {
                return found;
            }
            month = named + 1;
        }
        None
    }

    fn next_time(&self, from: Time) -> Option<Time> {
        let from = [from.hour(), from.minute(), from.second()].map(unsigned);
        let made = |[hour, minute, second]: [u8; 3]| {
            let part = |part: u8| i8::try_from(part).ok();
            Time::new(part(hour)?, part(minute)?, part(second)?, 0).ok()
        };
        let mut hour = self.hours.at_least(from[0])?;
        if hour == from[0] {
            if let Some(minute) = self.minutes.at_least(from[1]) {
                if minute == from[1]
                    && let Some(second) = self.seconds.at_least(from[2])
                {
                    return made([hour, minute, second]);
                }
                let later = if minute == from[1] { self.minutes.at_least(minute + 1) } else { Some(minute) };
                if let Some(minute) = later {
                    return made([hour, minute, self.seconds.at_least(0)?]);
                }
            }
            hour = self.hours.at_least(hour + 1)?;
        }
        made([hour, self.minutes.at_least(0)?, self.seconds.at_least(0)?])
    }
}

/// Parts of dates and times are never negative.
fn unsigned(part: i8) -> u8 {
    part.unsigned_abs()
}
