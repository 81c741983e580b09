//! Events around every change of every clock from 2020 to 2035, against an oracle that is slow and obvious.
//!
//! The oracle looks at every minute: it asks the zone what the clock shows, and looks whether the event names that. A
//! time that the clock never shows counts on from the last minute that the clock did show.

use std::collections::BTreeSet;

use capstan_schedule::CalendarEvent;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// How long before and after a change is looked at.
const AROUND: SignedDuration = SignedDuration::from_hours(26);

/// An expression, with the numbers that it was made from.
struct Drawn {
    text: String,
    weekdays: BTreeSet<i8>,
    days: Days,
    months: BTreeSet<i8>,
    hours: BTreeSet<i8>,
    minutes: BTreeSet<i8>,
}

enum Days {
    All,
    Of(BTreeSet<i8>),
    FromEnd(BTreeSet<i8>),
}

impl Drawn {
    fn names(&self, local: DateTime) -> bool {
        let from_end = local.date().days_in_month() - local.day() + 1;
        self.weekdays.contains(&local.weekday().to_monday_one_offset())
            && self.months.contains(&local.month())
            && self.hours.contains(&local.hour())
            && self.minutes.contains(&local.minute())
            && local.second() == 0
            && match &self.days {
                Days::All => true,
                Days::Of(days) => days.contains(&local.day()),
                Days::FromEnd(days) => days.contains(&from_end),
            }
    }
}

/// Draws numbers; the same seed draws the same ones.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64*, Vigna 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }

    fn number(&mut self, first: i8, last: i8) -> i8 {
        first + i8::try_from(self.below(u64::from((last - first).unsigned_abs()) + 1)).unwrap()
    }

    /// Numbers of a field and the text that names them.
    fn field(&mut self, first: i8, last: i8) -> (BTreeSet<i8>, String) {
        match self.below(5) {
            0 => ((first..=last).collect(), format!("{first}..{last}")),
            1 => {
                let (begin, step) = (self.number(first, last), self.number(2, 20));
                ((begin..=last).step_by(step.unsigned_abs().into()).collect(), format!("{begin}..{last}/{step}"))
            }
            2 => {
                let begin = self.number(first, last);
                let end = self.number(begin, last);
                ((begin..=end).collect(), format!("{begin}..{end}"))
            }
            _ => {
                let numbers: BTreeSet<i8> = (0..=self.below(3)).map(|_| self.number(first, last)).collect();
                let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
                (numbers, words.join(","))
            }
        }
    }

    fn event(&mut self) -> Drawn {
        const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let (mut weekdays, mut words) = ((1..=7).collect(), String::new());
        if self.below(4) == 0 {
            let days: BTreeSet<i8> = (0..4).map(|_| self.number(1, 7)).collect();
            let named: Vec<_> = days.iter().map(|day| NAMES[usize::from(day.unsigned_abs()) - 1]).collect();
            (weekdays, words) = (days, named.join(","));
        }
        let (mut months, mut days, mut date) = ((1..=12).collect(), Days::All, "*-*-*".to_owned());
        match self.below(6) {
            0 => {
                let (named, text) = self.field(1, 28);
                (days, date) = (Days::Of(named), format!("*-*-{text}"));
            }
            1 => {
                let near = self.number(1, 9);
                (days, date) = (Days::FromEnd((1..=near).collect()), format!("*~{near}/1"));
            }
            2 => {
                let (named, text) = self.field(1, 12);
                (months, date) = (named, format!("*-{text}-*"));
            }
            _ => {}
        }
        // Clocks change at night: most times of the day are drawn there.
        let (hours, of_hours) = if self.below(3) == 0 { self.field(0, 23) } else { self.field(0, 4) };
        let (minutes, of_minutes) = self.field(0, 59);
        let text = format!("{words} {date} {of_hours}:{of_minutes}").trim().to_owned();
        Drawn { text, weekdays, days, months, hours, minutes }
    }
}

/// What the clock shows at each minute of a time, and which minutes it never shows.
struct Minutes {
    begin: Timestamp,
    end: Timestamp,
    /// Shown, and whether for the first time.
    shown: Vec<(Timestamp, DateTime, bool)>,
    /// Never shown, with the instant at which they would have been, had the clock not been changed.
    skipped: Vec<(Timestamp, DateTime)>,
}

impl Minutes {
    fn around(zone: &TimeZone, change: Timestamp) -> Self {
        let (begin, end) = (change.checked_sub(AROUND).unwrap(), change.checked_add(AROUND).unwrap());
        // A day earlier, for what was shown before.
        let mut at = begin.checked_sub(SignedDuration::from_hours(26)).unwrap();
        let (mut shown, mut skipped, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut last = zone.to_datetime(at).checked_sub(MINUTE).unwrap();
        while at <= end {
            let local = zone.to_datetime(at);
            let mut missing = last.checked_add(MINUTE).unwrap();
            let mut would_be = at;
            while missing < local {
                if !seen.contains(&missing) {
                    skipped.push((would_be, missing));
                }
                missing = missing.checked_add(MINUTE).unwrap();
                would_be = would_be.checked_add(MINUTE).unwrap();
            }
            shown.push((at, local, seen.insert(local)));
            last = local;
            at = at.checked_add(MINUTE).unwrap();
        }
        Self { begin, end, shown, skipped }
    }

    fn occurrences(&self, event: &Drawn) -> BTreeSet<Timestamp> {
        let is_rhythm = event.hours.len() == 24;
        let shown = self.shown.iter().filter(|(_, local, first)| (is_rhythm || *first) && event.names(*local));
        let shown = shown.map(|(at, ..)| *at);
        let skipped = self.skipped.iter().filter(|(_, local)| event.names(*local)).map(|(at, _)| *at);
        shown.chain(skipped).filter(|at| (self.begin..=self.end).contains(at)).collect()
    }
}

/// Zones of the database, one for each row of changes; with the instants of the changes.
fn zones() -> Vec<(TimeZone, Vec<Timestamp>)> {
    let from: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    let until: Timestamp = "2036-01-01T00:00:00Z".parse().unwrap();
    let mut seen = BTreeSet::new();
    let mut zones = Vec::new();
    for name in jiff::tz::db().available() {
        let Ok(zone) = TimeZone::get(name.as_str()) else { continue };
        let changes = zone.following(from).take_while(|change| change.timestamp() < until);
        let changes: Vec<_> = changes.map(|change| (change.timestamp(), change.offset())).collect();
        if seen.insert((zone.to_offset(from), changes.clone())) {
            zones.push((zone, changes.into_iter().map(|(at, _)| at).collect()));
        }
    }
    zones
}

#[test]
fn events_around_every_change_of_every_clock_are_those_of_the_oracle() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = || u64::try_from(Timestamp::now().as_microsecond()).unwrap();
    let seed: u64 = seed.unwrap_or_else(now) | 1;
    let count = if std::env::var_os("CAPSTAN_FULL").is_some() { 200 } else { 8 };
    println!("seed {seed} (CAPSTAN_SEED=... replays it), {count} events");
    let mut dice = Dice(seed);
    let drawn: Vec<Drawn> = std::iter::repeat_with(|| dice.event())
        .filter(|drawn| drawn.text.parse::<CalendarEvent>().is_ok())
        .take(count)
        .collect();
    let events: Vec<(CalendarEvent, &Drawn)> = drawn.iter().map(|drawn| (drawn.text.parse().unwrap(), drawn)).collect();
    let zones = zones();
    assert!(zones.len() > 50, "the zone database has only {} rows of changes", zones.len());
    let (mut changes, mut occurred) = (0, 0);
    for (zone, at) in &zones {
        for change in at {
            changes += 1;
            let minutes = Minutes::around(zone, *change);
            for (event, drawn) in &events {
                let expected = minutes.occurrences(drawn);
                let mut found = BTreeSet::new();
                let mut at = minutes.begin.checked_sub(SignedDuration::from_secs(1)).unwrap();
                while let Some(next) = event.next_after(at, zone).filter(|next| *next <= minutes.end) {
                    assert!(next > at, "{}: {next} is not after {at}", drawn.text);
                    found.insert(next);
                    at = next;
                }
                occurred += found.len();
                let name = zone.iana_name().unwrap_or("?");
                assert_eq!(found, expected, "{} in {name} around {change}, seed {seed}", drawn.text);
            }
        }
    }
    println!("{} rows of changes, {changes} changes, {occurred} occurrences", zones.len());
    assert!(changes > 1000 && occurred > 1000, "too little was looked at");
}
