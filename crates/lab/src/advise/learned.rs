//! What trials teach: how little rates fluctuate here, and by how much forecasts miss.

use schemars::JsonSchema;
use serde::Serialize;

use super::setting::TapeDrive;
use crate::part::together;
use crate::published::built_in_host;
use crate::site::{Measured, Tried};

/// The power with which forecasts come nearest to what was tried: one figure for all trials. Before anything was tried
/// it is that of the host that was calibrated best.
pub(super) fn steadiness(trials: &[Measured<Tried>]) -> f64 {
    const LEAST: f64 = 1.2;
    const MOST: f64 = 12.0;
    const STEP: f64 = 0.1;
    let joined: Vec<&Tried> = trials.iter().map(|trial| &trial.found).filter(|trial| !trial.parts.is_empty()).collect();
    if joined.is_empty() {
        return built_in_host("lto4").map_or(MOST, |host| host.steadiness);
    }
    let error = |power: f64| -> f64 { joined.iter().map(|trial| trial_error(trial, power)).sum() };
    let powers = (0..).map(|step| LEAST + f64::from(step) * STEP).take_while(|power| *power <= MOST);
    powers.min_by(|one, other| error(*one).total_cmp(&error(*other))).unwrap_or(MOST)
}

/// What was forecast of a trial, with this power where rates are joined.
fn forecast_of(trial: &Tried, power: f64) -> f64 {
    if trial.parts.is_empty() { trial.predicted_mb_per_s } else { together(&trial.parts, power) }
}

/// How far a forecast with this power is from what was tried.
fn trial_error(trial: &Tried, power: f64) -> f64 {
    (forecast_of(trial, power) / trial.mb_per_s).ln().abs()
}

/// How far what was tried was from its forecast. Each is forecast by the power that all others of them give, so that
/// none has a say in its own: what is found is what the next one may miss by.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
pub struct Misses {
    /// How many were tried.
    pub trials: usize,
    /// What was measured at least, of what was forecast: 0.9 where it was a tenth less.
    pub least: f64,
    /// What was measured at most, of what was forecast.
    pub most: f64,
    /// Of the trials whose forecast was an interval, how many there were, and how many fell within.
    pub within: (usize, usize),
}

/// What trials missed by, apart for what is forecast apart: rates that are joined, and runs of a drive's model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learned {
    /// To virtual drives.
    pub joined: Option<Misses>,
    /// To drives that take a model's time.
    pub simulated: Option<Misses>,
}

impl Learned {
    pub(super) fn of(trials: &[Measured<Tried>]) -> Self {
        let (simulated, joined): (Vec<_>, Vec<_>) =
            trials.iter().cloned().partition(|trial| trial.found.parts.is_empty());
        Self { joined: Misses::of(&joined), simulated: Misses::of(&simulated) }
    }

    /// What concerns a forecast for this drive.
    pub(super) fn for_drive(&self, drive: &TapeDrive) -> Option<Misses> {
        if *drive == TapeDrive::Virtual { self.joined } else { self.simulated }
    }
}

impl Misses {
    fn of(trials: &[Measured<Tried>]) -> Option<Self> {
        let share = |at: usize| {
            let trial = &trials[at].found;
            let others: Vec<_> =
                trials.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, one)| one.clone()).collect();
            trial.mb_per_s / forecast_of(trial, steadiness(&others))
        };
        let shares: Vec<f64> = (0..trials.len()).map(share).filter(|share| share.is_finite()).collect();
        let foretold: Vec<&Tried> =
            trials.iter().map(|trial| &trial.found).filter(|trial| trial.foretold.is_some()).collect();
        let within = foretold.iter().filter(|trial| trial.within() == Some(true)).count();
        (!shares.is_empty()).then(|| Self {
            trials: shares.len(),
            least: shares.iter().copied().fold(f64::INFINITY, f64::min),
            most: shares.iter().copied().fold(0.0, f64::max),
            within: (foretold.len(), within),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn what_was_tried_says_how_little_rates_fluctuate() {
        use crate::part::Part;
        let parts = vec![(Part::Source, 100.0), (Part::Processor, 120.0), (Part::Drive, 400.0)];
        for power in [2.0, 3.0, 8.0] {
            let found = Tried {
                source: "/srv".into(),
                setting: String::new(),
                mb_per_s: together(&parts, power),
                parts: parts.clone(),
                predicted_mb_per_s: 0.0,
                foretold: None,
            };
            let fitted = steadiness(&[Measured { at_ns: 1, found }]);
            assert!((fitted - power).abs() < 0.06, "{fitted}, not {power}");
        }
        // A disk that is shared stands for the drive.
        let shared = vec![(Part::Source, 1e9), (Part::Drive, 50.0), (Part::Disk, 50.0)];
        assert!((together(&shared, 3.0) - 50.0).abs() < 1e-6);
    }

    /// One trial fits one power exactly: "off by 0 %", though the forecast had missed it by a tenth. Now none is held
    /// against itself.
    #[test]
    fn a_trial_is_held_against_what_all_others_foretell() {
        use crate::part::Part;
        let parts = vec![(Part::Source, 100.0), (Part::Processor, 120.0)];
        let tried = |mb_per_s: f64, foretold| {
            let found = Tried {
                source: "/srv".into(),
                setting: mb_per_s.to_string(),
                mb_per_s,
                parts: parts.clone(),
                predicted_mb_per_s: 0.0,
                foretold,
            };
            Measured { at_ns: 1, found }
        };
        assert_eq!(Misses::of(&[]), None);
        let unfitted = together(&parts, steadiness(&[]));
        let alone = Misses::of(&[tried(unfitted * 0.9, Some([1.0, 2.0]))]).unwrap();
        assert!((alone.least - 0.9).abs() < 1e-9 && alone.most == alone.least, "{alone:?}");
        assert_eq!((alone.trials, alone.within), (1, (1, 0)));
        let both = Misses::of(&[tried(60.0, None), tried(70.0, Some([65.0, 75.0]))]).unwrap();
        assert!(both.least < 0.9 && both.most > 1.1, "each is foretold by the other: {both:?}");
        assert_eq!((both.trials, both.within), (2, (1, 1)));
    }
}
