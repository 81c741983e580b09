//! How fast a job may take what its sources have, by the time of the week.

use capstan_schedule::Window;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::job::Wrong;

/// Bytes a second that a run may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bandwidth {
    /// The first whose window is open holds.
    steps: Vec<(u64, Option<Window>)>,
    zone: TimeZone,
}

impl Bandwidth {
    /// The bound of a time; none where nothing bounds it then.
    pub fn at(&self, now: Timestamp) -> Option<u64> {
        let is_open = |window: &Option<Window>| window.as_ref().is_none_or(|window| window.is_open(now, &self.zone));
        self.steps.iter().find(|(_, window)| is_open(window)).map(|(rate, _)| *rate)
    }

    /// What these texts say; none where there are none.
    pub(super) fn parse(texts: &[String], zone: &TimeZone) -> Result<Option<Self>, Wrong> {
        let step = |text: &String| {
            let (rate, window) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
            let reason = || {
                let form = "write a rate, and the times at which it holds, as in \"5M mon..fri 08:00-18:00\" (5 MB/s)";
                (Some("bandwidth"), format!("{text:?} is no bandwidth: {form}"))
            };
            let rate = rate_of(rate).ok_or_else(reason)?;
            let window = match window.trim() {
                "" => None,
                window => Some(window.parse().map_err(|_| reason())?),
            };
            Ok((rate, window))
        };
        let steps = texts.iter().map(step).collect::<Result<Vec<_>, Wrong>>()?;
        Ok((!steps.is_empty()).then(|| Self { steps, zone: zone.clone() }))
    }
}

/// `800k`, `5M`, `1G`: bytes a second, in thousands.
fn rate_of(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let unit = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn parsed(texts: &[&str]) -> Result<Option<Bandwidth>, Wrong> {
        let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
        Bandwidth::parse(&texts, &TimeZone::UTC)
    }

    #[test]
    fn the_first_window_that_is_open_holds() {
        let bandwidth = parsed(&["800k mon..fri 08:00-18:00", "5M sat,sun"]).unwrap().unwrap();
        let at = |time: &str| bandwidth.at(time.parse().unwrap());
        // A Friday, its night, and the Saturday.
        assert_eq!(at("2026-11-27T12:00:00Z"), Some(800_000));
        assert_eq!(at("2026-11-27T20:00:00Z"), None);
        assert_eq!(at("2026-11-28T12:00:00Z"), Some(5_000_000));
        let always = parsed(&["1G sat", "7"]).unwrap().unwrap();
        assert_eq!(always.at("2026-11-27T12:00:00Z".parse().unwrap()), Some(7));
        assert_eq!(parsed(&[]).unwrap(), None);
    }

    #[test]
    fn what_is_no_bandwidth_is_named() {
        for text in ["fast", "0", "5T", "5 M", "5M sometimes", "", "99999999999G"] {
            let (key, reason) = parsed(&[text]).unwrap_err();
            assert!(key == Some("bandwidth") && reason.contains("5 MB/s"), "{text}: {reason}");
        }
    }
}
