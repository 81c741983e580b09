//! Numbers as people write and read them: bytes, durations, times.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs};

use capstan_client::files::SizeRange;
pub(crate) use capstan_director::parse_age;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// `500M`, `100G`, `1.5TiB`, `4096`: powers of 1024 whether or not an `i` is written.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a size: write 500M, 100G or 12T");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let power = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return Err(wrong()),
    };
    let bytes = number * 1024f64.powi(power);
    if bytes.is_finite() && (0.0..=1e18).contains(&bytes) { Ok(bytes as u64) } else { Err(wrong()) }
}

/// `1.3 GiB`, with three digits that count.
pub(crate) fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1000.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match (unit, scaled) {
        (0, _) => format!("{value} B"),
        (_, small) if small < 10.0 => format!("{small:.2} {}", UNITS[unit]),
        (_, middle) if middle < 100.0 => format!("{middle:.1} {}", UNITS[unit]),
        (_, large) => format!("{large:.0} {}", UNITS[unit]),
    }
}

/// `12,345,678`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 object`, `2,345 objects`, `3 copies`.
pub(crate) fn counted(value: u64, noun: &str) -> String {
    // A day has days, and a policy has policies.
    let stem = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']));
    match (value, stem) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{} {stem}ies", count(value)),
        (_, None) => format!("{} {noun}s", count(value)),
    }
}

/// `0.42 s`, `3 min 12 s`, `2 h 05 min`.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{seconds:.2} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// How long ago something was, or how long it may be: `35 min`, `26 h`, `12 days`, `3 years`.
pub(crate) fn age(ns: i64) -> String {
    let minutes = ns / 60_000_000_000;
    match minutes {
        0 => duration(ns as f64 / 1e9),
        1..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        2880..1_051_200 => format!("{} days", minutes / 1440),
        _ => format!("{} years", minutes / 525_960),
    }
}

/// How long the zone of this machine is believed: a server runs for longer.
const ZONE_HOLDS: Duration = Duration::from_secs(60);

/// The zone of this machine. The file that says it is read where it can be: by its name, the zone would be looked for
/// among all zones there are, which is a third of what a small `find` executes.
fn local_zone() -> TimeZone {
    static ZONE: Mutex<Option<(Instant, TimeZone)>> = Mutex::new(None);
    let from_file = || {
        let rules = env::var_os("TZ").is_none().then(|| fs::read("/etc/localtime").ok())??;
        TimeZone::tzif("local", &rules).ok()
    };
    let mut known = ZONE.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some((read, zone)) if read.elapsed() < ZONE_HOLDS => zone.clone(),
        _ => {
            let zone = from_file().unwrap_or_else(TimeZone::system);
            *known = Some((Instant::now(), zone.clone()));
            zone
        }
    }
}

/// Local time to the second; `-` for zero, which stands for never.
pub(crate) fn time(ns: i64) -> String {
    if ns == 0 {
        return "-".to_owned();
    }
    match Timestamp::from_nanosecond(i128::from(ns)) {
        Ok(time) => time.to_zoned(local_zone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => ns.to_string(),
    }
}

/// The local day; `-` for zero, which stands for never.
pub(crate) fn day(ns: i64) -> String {
    time(ns).split(' ').next().unwrap_or_default().to_owned()
}

/// A duration as people write it, and as [`parse_age`] takes it: `30d`, `5y`, `1h`; the largest unit that it is a whole
/// number of.
pub(crate) fn period(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let units =
        [("y", 31_557_600 * SECOND), ("d", 86_400 * SECOND), ("h", 3_600 * SECOND), ("m", 60 * SECOND), ("s", SECOND)];
    let whole = units.iter().find(|(_, len)| ns >= *len && ns.is_multiple_of(*len));
    match whole {
        Some((unit, len)) => format!("{}{unit}", ns / len),
        // A fraction of a year or of a day was given: to the nearest second.
        None => format!("{}s", (ns + SECOND / 2) / SECOND),
    }
}

/// `+10M`, `-1G`, `4096`.
pub(crate) fn parse_size_range(text: &str) -> Result<SizeRange, String> {
    let wrong = |_| format!("{text:?} is not a range of sizes: write +10M for more, -10M for less, or 4096");
    match (text.strip_prefix('+'), text.strip_prefix('-')) {
        (Some(above), _) => parse_bytes(above).map(SizeRange::Above),
        (_, Some(below)) => parse_bytes(below).map(SizeRange::Below),
        _ => parse_bytes(text).map(SizeRange::Just),
    }
    .map_err(wrong)
}

/// The beginning of what is written as for [`parse_time`]: a date means its first moment, a second the first of it.
pub(crate) fn parse_since(text: &str, now_ns: i64) -> Result<i64, String> {
    let end = parse_time(text, now_ns)?;
    if parse_age(text).is_ok() {
        return Ok(end);
    }
    let days = if text == "today" {
        Some(0)
    } else if text == "yesterday" {
        Some(1)
    } else {
        None
    };
    if let Some(days) = days {
        let now = Timestamp::from_nanosecond(i128::from(now_ns)).map_err(|_| format!("{text:?} is not a time"))?;
        let day = now.to_zoned(local_zone()).date().checked_sub(jiff::Span::new().days(days));
        return parse_since(&day.map_err(|_| format!("{text:?} is not a time"))?.to_string(), now_ns);
    }
    if let (false, Ok(date)) = (text.contains([':', 'T', ' ']), text.parse::<jiff::civil::Date>()) {
        let begin = date.to_zoned(local_zone()).map_err(|_| format!("{text:?} is not a time"))?;
        return i64::try_from(begin.timestamp().as_nanosecond()).map_err(|_| format!("{text:?} is not a time"));
    }
    Ok(end - unwritten_ns(text))
}

/// How long the last unit lasts that a time with a time of day is written to.
fn unwritten_ns(text: &str) -> i64 {
    let time = text.split(['T', ' ']).next_back().unwrap_or(text).trim_end_matches('Z');
    // An offset has a colon of its own.
    let time = time.split(['+', '-']).next().unwrap_or(time);
    match time.matches(':').count() {
        _ if time.contains('.') => 0,
        1 => 59_999_999_999,
        _ => 999_999_999,
    }
}

/// A point in time: an age (`3d` ago), a date, `yesterday`, a local time of today, a local date and time, or RFC 3339.
/// What is written means its end: a date the last moment of that day, a minute or a second the last of it.
pub(crate) fn parse_time(text: &str, now_ns: i64) -> Result<i64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a time: write 2026-11-01, 2026-11-01T12:00, 12:00 of today, yesterday, or an age such as 3d"
        )
    };
    if let Ok(age) = parse_age(text) {
        return Ok(now_ns - age);
    }
    let today = Timestamp::from_nanosecond(i128::from(now_ns)).map_err(|_| wrong())?.to_zoned(local_zone()).date();
    let with_day = match text {
        "today" => today.to_string(),
        "yesterday" => today.yesterday().map_err(|_| wrong())?.to_string(),
        _ if text.len() <= 8 && text.contains(':') => format!("{today}T{text}"),
        _ => text.to_owned(),
    };
    let text = with_day.as_str();
    let at = if text.contains('[') {
        text.replace(' ', "T").parse::<jiff::Zoned>().map_err(|_| wrong())?.timestamp()
    } else if let Ok(exact) = text.parse::<Timestamp>() {
        exact
    } else if let (false, Ok(date)) = (text.contains([':', 'T', ' ']), text.parse::<jiff::civil::Date>()) {
        // A date means its end; the parser would take a time behind it as well, and drop it.
        let end = date.at(23, 59, 59, 0).to_zoned(local_zone());
        end.map_err(|_| wrong())?.timestamp()
    } else {
        let local: DateTime = text.replace(' ', "T").parse().map_err(|_| wrong())?;
        local.to_zoned(local_zone()).map_err(|_| wrong())?.timestamp()
    };
    // A second means its end: `capstan objects` shows no more of when a backup began.
    let whole = at.as_nanosecond() + i128::from(unwritten_ns(text));
    i64::try_from(whole).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone behind a time was dropped, and another state was restored.
    #[test]
    fn a_zone_behind_a_time_counts() {
        let (rome, utc) = (parse_time("2026-07-30T04:27:33[Europe/Rome]", 0), parse_time("2026-07-30T02:27:33Z", 0));
        assert_eq!(rome, utc);
        assert!(parse_time("2026-07-30T04:27:33[Europe/Nowhere]", 0).is_err());
    }

    #[test]
    fn sizes_round_trip() {
        assert_eq!(parse_bytes("100G"), Ok(100 << 30));
        assert_eq!(parse_bytes("1.5KiB"), Ok(1536));
        assert_eq!(parse_bytes("7"), Ok(7));
        assert!(parse_bytes("ten").is_err() && parse_bytes("1X").is_err() && parse_bytes("").is_err());
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(100 << 30), "100 GiB");
    }

    #[test]
    fn counts_and_durations_read_well() {
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(999), "999");
        assert_eq!(counted(1, "object"), "1 object");
        assert_eq!(counted(0, "object"), "0 objects");
        assert_eq!(counted(1_200, "copy"), "1,200 copies");
        assert_eq!(counted(7, "day"), "7 days");
        assert_eq!(duration(0.419), "0.42 s");
        assert_eq!(duration(192.4), "3 min 12 s");
        assert_eq!(duration(7500.0), "2 h 05 min");
    }

    /// A retention of an hour was shown as `0 d`, one of five years as `1826 d`.
    #[test]
    fn a_period_is_shown_as_it_is_written() {
        for text in ["30d", "5y", "1h", "84d", "90m", "36h", "45s"] {
            assert_eq!(parse_age(text).map(|ns| period(ns.cast_unsigned())).as_deref(), Ok(text));
        }
        assert_eq!(parse_age("12w").map(|ns| period(ns.cast_unsigned())).as_deref(), Ok("84d"));
        assert_eq!(parse_age("1.5d").map(|ns| period(ns.cast_unsigned())).as_deref(), Ok("36h"));
    }

    #[test]
    fn sizes_have_a_side() {
        assert_eq!(parse_size_range("+10M"), Ok(SizeRange::Above(10 << 20)));
        assert_eq!(parse_size_range("-1K"), Ok(SizeRange::Below(1024)));
        assert_eq!(parse_size_range("0"), Ok(SizeRange::Just(0)));
        assert!(parse_size_range("+").is_err() && parse_size_range("large").is_err());
    }

    #[test]
    fn since_means_the_beginning_of_what_is_written() {
        let now = 1_800_000_000_000_000_000;
        assert_eq!(parse_since("1d", now), parse_time("1d", now));
        assert_eq!(parse_since("2026-11-01T12:00:00Z", now), Ok(1_793_534_400_000_000_000));
        let day = parse_time("2026-11-01", now).and_then(|end| parse_since("2026-11-01", now).map(|begin| end - begin));
        assert_eq!(day, Ok(86_399_999_999_999), "a date is a whole day");
        let span = |text: &str| parse_since(text, now).and_then(|begin| parse_time(text, now).map(|end| end - begin));
        assert_eq!((span("01:54"), span("01:54:20")), (Ok(59_999_999_999), Ok(999_999_999)), "times of today");
        assert_eq!((span("today"), span("yesterday")), (Ok(86_399_999_999_999), Ok(86_399_999_999_999)));
        assert!(parse_time("yesterday", now).is_ok_and(|end| end < now && Ok(end + 1) == parse_since("today", now)));
    }

    #[test]
    fn times_are_ages_dates_or_both() {
        let now = 1_800_000_000_000_000_000;
        assert_eq!(parse_time("1d", now), Ok(now - 86_400_000_000_000));
        assert_eq!(parse_time("2026-11-01T12:00:00Z", now), Ok(1_793_534_400_999_999_999));
        assert_eq!(parse_time("2026-11-01T12:00:00.0Z", now), Ok(1_793_534_400_000_000_000));
        assert!(parse_time("someday", now).is_err() && parse_time("25:00", now).is_err());
        let (noon, end) = (parse_time("2026-11-01 12:00:00", now), parse_time("2026-11-01", now));
        assert_eq!(
            parse_time("2026-11-01 12:00", now),
            noon.clone().map(|noon| noon + 59_000_000_000),
            "a minute, too"
        );
        assert_eq!(parse_time("2026-11-01T12:00:00+00:00", now), Ok(1_793_534_400_999_999_999));
        assert_eq!(parse_time("2026-11-01T12:00:00", now), noon);
        let apart = end.and_then(|end| noon.map(|noon| end - noon));
        assert_eq!(apart, Ok((12 * 3600 - 1) * 1_000_000_000), "a date means its end");
        assert!(parse_age("").is_err() && parse_age("d").is_err() && parse_age("1é").is_err());
    }
}
