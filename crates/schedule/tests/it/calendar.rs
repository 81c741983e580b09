//! The grammar: what is read, how it is written in full, and what is refused with which words.

use std::io::Write;

use capstan_schedule::CalendarEvent;
use jiff::Timestamp;
use jiff::tz::TimeZone;

fn event(text: &str) -> CalendarEvent {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Up to so many instants of an event in 2026, in UTC unless it names a zone.
fn first(text: &str, count: usize) -> Vec<String> {
    let (event, mut at) = (event(text), "2025-12-31T23:59:59Z".parse::<Timestamp>().unwrap());
    let next = std::iter::from_fn(|| {
        at = event.next_after(at, &TimeZone::UTC)?;
        Some(at.to_string())
    });
    next.take(count).collect()
}

/// Expressions of systemd.time(7), and how they are written in full here.
const OF_SYSTEMD: [(&str, &str); 36] = [
    ("Sat,Thu,Mon..Wed,Sat..Sun", "Mon..Thu,Sat,Sun *-*-* 00:00:00"),
    ("Mon,Sun 12-*-* 2,1:23", "Mon,Sun 2012-*-* 01,02:23:00"),
    ("Wed *-1", "Wed *-*-01 00:00:00"),
    ("Wed..Wed,Wed *-1", "Wed *-*-01 00:00:00"),
    ("Wed, 17:48", "Wed *-*-* 17:48:00"),
    ("Wed..Sat,Tue 12-10-16 1:2:3", "Tue..Sat 2012-10-16 01:02:03"),
    ("*-*-7 0:0:0", "*-*-07 00:00:00"),
    ("10-15", "*-10-15 00:00:00"),
    ("monday *-12-* 17:00", "Mon *-12-* 17:00:00"),
    ("Mon,Fri *-*-3,1,2 *:30:45", "Mon,Fri *-*-01..03 *:30:45"),
    ("12,14,13,12:20,10,30", "*-*-* 12..14:10,20,30:00"),
    ("12..14:10,20,30", "*-*-* 12..14:10,20,30:00"),
    ("mon,fri *-1/2-1,3 *:30:45", "Mon,Fri *-01/2-01,03 *:30:45"),
    ("03-05 08:05:40", "*-03-05 08:05:40"),
    ("08:05:40", "*-*-* 08:05:40"),
    ("05:40", "*-*-* 05:40:00"),
    ("Sat,Sun 12-05 08:05:40", "Sat,Sun *-12-05 08:05:40"),
    ("Sat,Sun 08:05:40", "Sat,Sun *-*-* 08:05:40"),
    ("2003-03-05 05:40", "2003-03-05 05:40:00"),
    ("2003-02..04-05", "2003-02..04-05 00:00:00"),
    ("2003-03-05 05:40 UTC", "2003-03-05 05:40:00 UTC"),
    ("2003-03-05", "2003-03-05 00:00:00"),
    ("hourly", "*-*-* *:00:00"),
    ("daily", "*-*-* 00:00:00"),
    ("daily UTC", "*-*-* 00:00:00 UTC"),
    ("monthly", "*-*-01 00:00:00"),
    ("weekly", "Mon *-*-* 00:00:00"),
    ("weekly Pacific/Auckland", "Mon *-*-* 00:00:00 Pacific/Auckland"),
    ("yearly", "*-01-01 00:00:00"),
    ("quarterly", "*-01/3-01 00:00:00"),
    ("semi-annually", "*-01,07-01 00:00:00"),
    ("*:2/3", "*-*-* *:02/3:00"),
    ("*-02~03", "*-02~03 00:00:00"),
    ("2020..2020/5-1-1", "2020-01-01 00:00:00"),
    ("Mon *-05~07/1", "Mon *-05~01,02,03,04,05,06,07 00:00:00"),
    ("2020..2030/5-01-01", "2020..2030/5-01-01 00:00:00"),
];

/// Expressions of Proxmox, and a range of weekdays that passes Sunday.
const OTHERS: [(&str, &str); 3] = [
    ("*/5", "*-*-* *:00/5:00"),
    ("mon..wed 30/10", "Mon..Wed *-*-* *:30/10:00"),
    ("fri..mon 8..17,22:0/15", "Mon,Fri..Sun *-*-* 08..17,22:00/15:00"),
];

#[test]
fn expressions_of_systemd_and_proxmox_are_read() {
    for (text, full) in OF_SYSTEMD.into_iter().chain(OTHERS) {
        assert_eq!(event(text).to_string(), full, "{text}");
        assert_eq!(event(full), event(text), "{full} says the same as {text}");
    }
}

#[test]
fn days_count_from_either_end() {
    assert_eq!(first("*~1", 3), ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"]);
    assert_eq!(first("Mon *-05~07/1 12:00", 2), ["2026-05-25T12:00:00Z", "2027-05-31T12:00:00Z"], "last Monday in May");
    assert_eq!(first("Sat *-1..7 15:00", 2), ["2026-01-03T15:00:00Z", "2026-02-07T15:00:00Z"], "first Saturday");
    assert_eq!(first("*-02-29", 2), ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]);
    assert_eq!(first("*-02~1..3", 3), ["2026-02-26T00:00:00Z", "2026-02-27T00:00:00Z", "2026-02-28T00:00:00Z"]);
}

#[test]
fn an_event_of_the_past_does_not_occur() {
    assert_eq!(first("2003-03-05", 1), [""; 0]);
    assert_eq!(first("2199-12-31 23:59:59", 2), ["2199-12-31T23:59:59Z"]);
}

#[test]
fn what_is_no_event_is_refused_with_what_to_write() {
    for (text, words) in [
        ("", "it is empty; write for example `daily`"),
        ("22", "write `22:00` for a time of the day, or `*:22` for a minute of each hour"),
        ("25:00", "the hour 25 is not between 0 and 23"),
        ("12:60", "the minute 60 is not between 0 and 59"),
        ("*-13-01", "the month 13 is not between 1 and 12"),
        ("*-00-01", "the month 00 is not between 1 and 12"),
        ("*-02-30", "no date is like that"),
        ("2025-02-29", "no date is like that"),
        ("mon 2026-11-24", "no date is like that"),
        ("17..8:00", "the range 17..8 ends before it begins"),
        ("*:0/0", "the step after / is not a number from 1 to 9999"),
        ("12:00:00.5", "seconds have no fractions here"),
        ("daily Europe/Nowhere", "no zone \"Europe/Nowhere\""),
        ("daily Etc/Unknown", "no zone \"Etc/Unknown\""),
        ("mon hourly", "\"hourly\" is none of weekdays, date, time and zone"),
        ("*:0/+5", "the step after / is not a number"),
        ("*~5..1", "the range 5..1 ends before it begins"),
        ("someday", "\"someday\" is none of weekdays, date, time and zone"),
        ("12:00 mon", "\"mon\" is none of weekdays, date, time and zone"),
        ("1000-01-01", "the year 1000 is not between 1970 and 2199"),
        ("x:00", "\"x:00\" is none of weekdays"),
        ("1,,2:00", "\"\" is not a number of hours"),
        ("-1:00", "is not a number of"),
        ("99999999999999999999:00", "is not between 0 and 23"),
    ] {
        let error = text.parse::<CalendarEvent>().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(error.contains(&format!("{text:?} is not a calendar event")), "{error}");
    }
}

/// The same instants as `systemd-analyze calendar` prints; in UTC, because systemd has other rules where clocks change.
#[test]
fn systemd_prints_the_same_instants() {
    let asked = |text: &str| {
        let mut command = std::process::Command::new("systemd-analyze");
        command.args(["calendar", "--iterations=5", "--base-time=2025-12-31 23:59:59 UTC", text]);
        command.env("TZ", "UTC").env("LC_ALL", "C").output()
    };
    if asked("daily").is_err() {
        // Past the harness, which keeps to itself what passing tests print. `./x test` counts it.
        let _ = writeln!(std::io::stderr(), "\nSKIP systemd-analyze is not installed");
        return;
    }
    for (text, _) in OF_SYSTEMD.into_iter().filter(|(text, _)| !text.contains("Pacific")) {
        let said = String::from_utf8(asked(text).unwrap().stdout).unwrap();
        let instants = said.lines().filter_map(|line| {
            let line = line.trim();
            let is_instant = line.starts_with("Next elapse:") || line.starts_with("Iter");
            // As in: Mon 2026-01-05 00:00:00 UTC
            line.split_once(": ").filter(|(_, rest)| is_instant && rest.ends_with("UTC"))
        });
        let instants: Vec<String> =
            instants.map(|(_, rest)| rest[4..].replace(' ', "T").replace("TUTC", "Z")).collect();
        assert_eq!(first(text, 5), instants, "{text}: {said}");
    }
}

#[test]
fn the_time_between_two_instants_is_a_mean() {
    let mean = |text: &str| {
        let hours = event(text).mean_interval(Timestamp::UNIX_EPOCH, &TimeZone::UTC).map(|mean| mean.as_hours());
        hours.unwrap_or(-1)
    };
    let found = ["hourly", "8,20:00", "22:30", "sun 3:00", "2030-01-01..28 3:00"].map(mean);
    assert_eq!(found, [1, 12, 24, 168, 24]);
    // 32 from a Thursday on: six weeks, and from that Thursday to the next Monday.
    assert_eq!(mean("mon..fri 22:30"), 46 * 24 / 32);
    assert_eq!(mean("2030-01-01 3:00"), -1, "it comes once");
}
