//! Keep rules: of the backups of a source the last few, and the last one of each of so many days, weeks, months and
//! years (grandfather, father, son). A pure function of times.
//!
//! A day is one of the zone that is given, which is the machine's: the same days that `capstan objects` shows. Weeks
//! are those of ISO 8601, from Monday to Sunday. Periods without a backup do not count: `daily = 7` keeps seven backups
//! of seven days, however long ago. So nothing goes because backups stopped.

use std::collections::{HashMap, HashSet};
use std::fmt;

use capstan_catalog::Object;
use capstan_format::ObjectId;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::lifetime::Lifetime;

pub(crate) const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// What is kept of the backups of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeepRule {
    /// So many of the last ones, whenever they were made.
    pub last: u32,
    /// The last one of each of so many days.
    pub daily: u32,
    /// The last one of each of so many weeks.
    pub weekly: u32,
    /// The last one of each of so many months.
    pub monthly: u32,
    /// The last one of each of so many years.
    pub yearly: u32,
}

/// The part of a rule that keeps a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptBy {
    /// It is one of the last.
    Last,
    /// It is the last of a day.
    Daily,
    /// It is the last of a week.
    Weekly,
    /// It is the last of a month.
    Monthly,
    /// It is the last of a year.
    Yearly,
}

impl KeptBy {
    /// Its name in settings and lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Last => "last",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Yearly => "yearly",
        }
    }

    /// Days of its period, about; `last` knows no periods.
    fn days(self) -> i64 {
        match self {
            Self::Last => 0,
            Self::Daily => 1,
            Self::Weekly => 7,
            Self::Monthly => 31,
            Self::Yearly => 366,
        }
    }

    /// The period that a day is in; `None` for `last`, which knows no periods.
    fn period(self, day: Date) -> Option<(i16, i8, i8)> {
        match self {
            Self::Last => None,
            Self::Daily => Some((day.year(), day.month(), day.day())),
            Self::Weekly => Some((day.iso_week_date().year(), day.iso_week_date().week(), 0)),
            Self::Monthly => Some((day.year(), day.month(), 0)),
            Self::Yearly => Some((day.year(), 0, 0)),
        }
    }
}

impl KeepRule {
    fn parts(&self) -> [(KeptBy, u32); 5] {
        [
            (KeptBy::Last, self.last),
            (KeptBy::Daily, self.daily),
            (KeptBy::Weekly, self.weekly),
            (KeptBy::Monthly, self.monthly),
            (KeptBy::Yearly, self.yearly),
        ]
    }

    /// Whether it keeps nothing at all.
    pub fn is_empty(&self) -> bool {
        self.parts().iter().all(|(_, count)| *count == 0)
    }

    /// How long it may keep a backup where one is made each so many nanoseconds. Periods without a backup do not count:
    /// of a backup each week, seven daily ones are of seven weeks.
    pub(crate) fn lifetime(&self, every_ns: i64) -> Lifetime {
        let apart_ns = |part: KeptBy| every_ns.max(part.days() * DAY_NS);
        let of_part = |(part, count): (KeptBy, u32)| i64::from(count).saturating_mul(apart_ns(part));
        Lifetime::of_ns(self.parts().into_iter().map(of_part).max().unwrap_or_default())
    }

    /// What it keeps of the backups of one source, each with the time it was begun, the latest first; and which parts
    /// of it keep each.
    pub fn kept(&self, backups: &[(ObjectId, i64)], zone: &TimeZone) -> HashMap<ObjectId, Vec<KeptBy>> {
        let mut kept: HashMap<ObjectId, Vec<KeptBy>> = HashMap::new();
        for (part, count) in self.parts() {
            let mut seen = HashSet::new();
            for (number, (backup, begun_ns)) in backups.iter().enumerate() {
                let is_kept = match part.period(day_of(*begun_ns, zone)) {
                    None => number < count as usize,
                    Some(period) => seen.len() < count as usize && seen.insert(period),
                };
                if is_kept {
                    kept.entry(*backup).or_default().push(part);
                }
            }
        }
        kept
    }
}

impl fmt::Display for KeepRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts().into_iter().filter(|(_, count)| *count > 0);
        let parts: Vec<_> = parts.map(|(part, count)| format!("{} {count}", part.name())).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Backups of sources, each with the time it was begun. A keep rule judges those of one policy, source and client by
/// themselves.
#[derive(Default)]
pub(crate) struct BackupsOfSources<'a> {
    of_sources: HashMap<SourceOfPolicy<'a>, Vec<(ObjectId, i64)>>,
    /// Incrementals of which a full one was made that is among them: the same backup.
    stood_for: HashSet<ObjectId>,
}

/// A policy, a source, and the client that it is on.
type SourceOfPolicy<'a> = (&'a str, &'a [u8], &'a str);

impl<'a> BackupsOfSources<'a> {
    /// Adds one; the latest is added first.
    pub(crate) fn add(&mut self, object: &'a Object, begun_ns: i64) {
        self.stood_for.extend(object.consolidates);
        if self.stood_for.contains(&object.id) {
            return;
        }
        let source = (&*object.policy, &object.source[..], &*object.client);
        self.of_sources.entry(source).or_default().push((object.id, begun_ns));
    }

    /// What a rule keeps of them.
    pub(crate) fn kept(&self, rule: &KeepRule, zone: &TimeZone) -> impl Iterator<Item = ObjectId> {
        self.of_sources.values().flat_map(|backups| rule.kept(backups, zone).into_keys())
    }
}

fn day_of(begun_ns: i64, zone: &TimeZone) -> Date {
    // Every i64 of nanoseconds is a time that `jiff` knows.
    Timestamp::from_nanosecond(i128::from(begun_ns)).unwrap_or_default().to_zoned(zone.clone()).date()
}

#[cfg(test)]
#[path = "keep/tests.rs"]
mod tests;
