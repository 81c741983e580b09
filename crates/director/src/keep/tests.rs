//! Rules over days, weeks, months and years, against the calendar.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn at(text: &str, zone: &TimeZone) -> i64 {
    let time: jiff::civil::DateTime = text.parse().unwrap();
    i64::try_from(time.to_zoned(zone.clone()).unwrap().timestamp().as_nanosecond()).unwrap()
}

fn id(number: usize) -> ObjectId {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&(number as u64).to_be_bytes());
    ObjectId(bytes)
}

/// Backups at these times, given from the earliest on; what is kept of them as text and parts, the earliest first.
fn kept_of<'t>(rule: KeepRule, times: &[&'t str], zone: &TimeZone) -> Vec<(&'t str, String)> {
    let backups: Vec<_> = times.iter().enumerate().map(|(number, text)| (id(number), at(text, zone))).rev().collect();
    let kept = rule.kept(&backups, zone);
    let named = times.iter().enumerate().filter_map(|(number, text)| {
        let parts: Vec<_> = kept.get(&id(number))?.iter().map(|part| part.name()).collect();
        Some((*text, parts.join(" ")))
    });
    named.collect()
}

fn days(rule: KeepRule, times: &[&str]) -> Vec<String> {
    kept_of(rule, times, &TimeZone::UTC).into_iter().map(|(text, _)| text[..10].to_owned()).collect()
}

#[test]
fn the_last_of_each_period_is_kept() {
    let rule = KeepRule { daily: 2, ..KeepRule::default() };
    let times = ["2026-11-20T01:00", "2026-11-20T23:00", "2026-11-21T03:00", "2026-11-22T03:00", "2026-11-22T15:00"];
    let kept = kept_of(rule, &times, &TimeZone::UTC);
    assert_eq!(kept, [("2026-11-21T03:00", "daily".to_owned()), ("2026-11-22T15:00", "daily".to_owned())]);
    // Weeks are ISO weeks: the last days of 2026 and the first of 2027 are one, and so were those of 2020 and 2021.
    let week = KeepRule { weekly: 9, ..KeepRule::default() };
    assert_eq!(
        days(week, &["2026-12-27T03:00", "2026-12-28T03:00", "2027-01-03T03:00", "2027-01-04T03:00"]),
        ["2026-12-27", "2027-01-03", "2027-01-04"]
    );
    let year = KeepRule { yearly: 9, ..KeepRule::default() };
    assert_eq!(days(year, &["2026-12-28T03:00", "2026-12-31T23:59", "2027-01-01T00:00"]), ["2026-12-31", "2027-01-01"]);
}

#[test]
fn periods_without_a_backup_do_not_count() {
    let rule = KeepRule { last: 1, daily: 3, ..KeepRule::default() };
    let times = ["2019-05-01T03:00", "2021-01-01T03:00", "2024-02-29T03:00", "2026-11-22T03:00"];
    assert_eq!(days(rule, &times), ["2021-01-01", "2024-02-29", "2026-11-22"]);
    assert!(days(rule, &[]).is_empty());
}

#[test]
fn a_day_is_one_of_the_zone() {
    let rule = KeepRule { daily: 9, ..KeepRule::default() };
    let zone = TimeZone::fixed(jiff::tz::offset(-5));
    // 22:00 and 01:00 in New York are one day in Greenwich.
    let times = ["2026-11-21T22:00", "2026-11-22T01:00"];
    assert_eq!(kept_of(rule, &times, &zone).len(), 2);
    let backups: Vec<_> = times.iter().enumerate().map(|(number, text)| (id(number), at(text, &zone))).rev().collect();
    assert_eq!(rule.kept(&backups, &TimeZone::UTC).len(), 1);
}

/// The rule of the manual, run every night for six years: it keeps what it says at every age, and never more.
#[test]
fn a_rule_run_every_night_keeps_what_it_says() {
    let rule = KeepRule { last: 3, daily: 7, weekly: 4, monthly: 12, yearly: 5 };
    let start: Date = "2026-01-01".parse().unwrap();
    let mut living: Vec<(ObjectId, i64)> = Vec::new();
    for night in 0..6 * 365 {
        let day = start.checked_add(jiff::Span::new().days(night)).unwrap();
        living.insert(0, (id(night as usize), at(&format!("{day}T03:00"), &TimeZone::UTC)));
        let kept = rule.kept(&living, &TimeZone::UTC);
        living.retain(|(backup, _)| kept.contains_key(backup));
        let count = |part: KeptBy| kept.values().filter(|parts| parts.contains(&part)).count();
        let nights = night as usize + 1;
        assert_eq!((count(KeptBy::Last), count(KeptBy::Daily)), (nights.min(3), nights.min(7)), "night {night}");
        assert!(living.len() <= 3 + 7 + 4 + 12 + 5, "night {night}");
        if nights > 366 {
            // The last day of each of the eleven months before this one is there, though it was chosen while its month
            // went on.
            assert_eq!(count(KeptBy::Monthly), 12, "night {night}");
        }
    }
    let kept = rule.kept(&living, &TimeZone::UTC);
    assert_eq!(kept.values().filter(|parts| parts.contains(&KeptBy::Yearly)).count(), 5);
    let all = [KeptBy::Last, KeptBy::Daily, KeptBy::Weekly, KeptBy::Monthly, KeptBy::Yearly];
    assert_eq!(kept[&living[0].0], all, "the newest is the last of every period");
}

#[test]
fn a_rule_reads_as_it_is_written() {
    let rule = KeepRule { last: 3, monthly: 12, ..KeepRule::default() };
    assert_eq!(rule.to_string(), "last 3, monthly 12");
    assert!(KeepRule::default().is_empty() && !rule.is_empty());
}

#[test]
fn a_rule_keeps_as_long_as_its_longest_part() {
    let rule = KeepRule { last: 3, daily: 7, monthly: 12, ..KeepRule::default() };
    assert!(rule.lifetime(DAY_NS).is_like(Lifetime::of_ns(365 * DAY_NS)));
    let rule = KeepRule { last: 3, daily: 7, ..KeepRule::default() };
    assert_eq!(rule.lifetime(DAY_NS), Lifetime::of_ns(7 * DAY_NS));
    assert_eq!(rule.lifetime(7 * DAY_NS), Lifetime::of_ns(49 * DAY_NS));
    let rule = KeepRule { last: 24, ..KeepRule::default() };
    assert_eq!(rule.lifetime(DAY_NS / 24), Lifetime::of_ns(DAY_NS));
    let rule = KeepRule { yearly: u32::MAX, ..KeepRule::default() };
    assert_eq!(rule.lifetime(DAY_NS), Lifetime::ENDLESS);
}
