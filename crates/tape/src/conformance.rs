//! What every drive must do, whatever it is made of: one suite for all kinds.
//!
//! Each rule has a name, and is checked by itself: [`check`] collects how each came out, for a report; [`run`] panics
//! if any is broken, for tests. The cartridge in the drive is overwritten. A real drive passes it with a scratch tape;
//! nothing here relies on the speed, the capacity or the host of a virtual one.
//!
//! A rule that drives of metal may break without being broken carries its excuse: what the drive's own standard says
//! instead. A test knows no excuse, a report shows it.

use std::fmt;

use capstan_format::{Algorithm, KeyTag};

use crate::{Drive, DriveError, DriveKey, with_causes};

mod keys;
mod rules;
mod steps;
mod write_once;

pub use write_once::run_write_once;

/// Whether a drive can read what it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readback {
    /// It can.
    Keeps,
    /// It counts and forgets, as the null drive does; rules about contents are left out.
    Forgets,
}

/// How a rule came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleOutcome {
    /// The drive keeps it.
    Passed,
    /// It does not: what it did instead.
    Failed(String),
    /// It was not tried: why.
    LeftOut(String),
}

/// A rule, and how it came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The rule, in words; rules about keys are checked once for each cipher, and name it.
    pub rule: String,
    /// Why a drive of metal may break it, where one may.
    pub excuse: Option<&'static str>,
    /// How it came out.
    pub outcome: RuleOutcome,
}

/// All rules, in the order in which they were checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// One for each rule.
    pub checks: Vec<Checked>,
    /// The rule at which the drive was lost, if it was: behind it nothing was tried.
    pub drive_lost_at: Option<String>,
}

impl Report {
    /// Rules that are broken, without those that have an excuse.
    pub fn broken(&self) -> impl Iterator<Item = &Checked> {
        self.failed().filter(|checked| checked.excuse.is_none())
    }

    /// Rules that are broken, with or without excuse.
    pub fn failed(&self) -> impl Iterator<Item = &Checked> {
        self.checks.iter().filter(|checked| matches!(checked.outcome, RuleOutcome::Failed(_)))
    }

    /// How many rules were kept.
    pub fn passed(&self) -> usize {
        self.checks.iter().filter(|checked| checked.outcome == RuleOutcome::Passed).count()
    }
}

/// Checks every rule that applies to the drive, whose bay holds a writable cartridge that may be overwritten.
///
/// # Panics
/// If a rule is broken.
pub fn run(drive: &mut dyn Drive, retention: Readback) {
    let report = check(drive, retention, &mut |_| {});
    let failed: Vec<String> = report
        .failed()
        .filter_map(|checked| match &checked.outcome {
            RuleOutcome::Failed(text) => Some(format!("{}: {text}", checked.rule)),
            RuleOutcome::Passed | RuleOutcome::LeftOut(_) => None,
        })
        .collect();
    assert!(failed.is_empty(), "rules that the drive breaks:\n{}", failed.join("\n"));
}

/// The same, telling how each rule came out, as it comes. Behind a drive that is lost the rest is left out: each
/// command to it would be waited for as long as a tape may take. The cartridge is unloaded at the end.
pub fn check(drive: &mut dyn Drive, retention: Readback, on_checked: &mut dyn FnMut(&Checked)) -> Report {
    let mut report = Report::default();
    let mut lost: Option<String> = None;
    let mut note = |rule: String, excuse, outcome| {
        let checked = Checked { rule, excuse, outcome };
        on_checked(&checked);
        report.checks.push(checked);
    };
    let ciphers = match (drive.identity().encrypts, retention) {
        (true, Readback::Keeps) => ciphers(drive).map_err(|broken| broken.to_string()),
        _ => Ok(Vec::new()),
    };
    for rule in rules::RULES {
        let left_out = match rule.needs {
            Needs::Nothing => None,
            Needs::Contents => (retention == Readback::Forgets).then_some("the drive keeps nothing"),
            Needs::NoKeySlot => drive.identity().encrypts.then_some("the drive has a key slot"),
            Needs::KeySlot if !drive.identity().encrypts => Some("the drive has no key slot"),
            Needs::KeySlot => (retention == Readback::Forgets).then_some("the drive keeps nothing"),
        };
        if let Some(reason) = left_out {
            note(rule.name.to_owned(), rule.excuse, RuleOutcome::LeftOut(reason.to_owned()));
            continue;
        }
        for (name, check) in rule.with_ciphers(&ciphers) {
            let outcome = match (&lost, check) {
                (Some(during), _) => RuleOutcome::LeftOut(format!("the drive was lost at \"{during}\"")),
                (None, Err(reason)) => RuleOutcome::Failed(reason),
                (None, Ok(check)) => match check.of(drive) {
                    Ok(()) => RuleOutcome::Passed,
                    Err(Broken::Rule(text)) => RuleOutcome::Failed(text),
                    Err(Broken::DriveLost(text)) => {
                        lost = Some(name.clone());
                        RuleOutcome::Failed(text)
                    }
                },
            };
            note(name, rule.excuse, outcome);
        }
    }
    let outcome = match (&lost, drive.unload()) {
        (Some(during), _) => RuleOutcome::LeftOut(format!("the drive was lost at \"{during}\"")),
        (None, Ok(())) => RuleOutcome::Passed,
        (None, Err(error)) => RuleOutcome::Failed(with_causes(&error)),
    };
    note("the cartridge is let go at the end".to_owned(), None, outcome);
    report.drive_lost_at = lost;
    report
}

/// One rule.
struct Rule {
    name: &'static str,
    needs: Needs,
    excuse: Option<&'static str>,
    check: Check,
}

/// What a drive must have for a rule to mean something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// What was written can be read.
    Contents,
    KeySlot,
    NoKeySlot,
}

type Verdict = Result<(), Broken>;

#[derive(Clone, Copy)]
enum Check {
    Once(fn(&mut dyn Drive) -> Verdict),
    EachCipher(fn(&mut dyn Drive, Algorithm) -> Verdict),
}

/// A check with its cipher, if it is about one.
enum Ready {
    Once(fn(&mut dyn Drive) -> Verdict),
    Keyed(fn(&mut dyn Drive, Algorithm) -> Verdict, Algorithm),
}

impl Ready {
    fn of(&self, drive: &mut dyn Drive) -> Verdict {
        match self {
            Self::Once(check) => check(drive),
            Self::Keyed(check, algorithm) => check(drive, *algorithm),
        }
    }
}

impl Rule {
    fn with_ciphers(&self, ciphers: &Result<Vec<Algorithm>, String>) -> Vec<(String, Result<Ready, String>)> {
        let name = self.name.to_owned();
        match (self.check, ciphers) {
            (Check::Once(check), _) => vec![(name, Ok(Ready::Once(check)))],
            (Check::EachCipher(_), Err(reason)) => vec![(name, Err(reason.clone()))],
            (Check::EachCipher(_), Ok(ciphers)) if ciphers.is_empty() => {
                vec![(name, Err("the drive encrypts, and takes a key for no cipher".to_owned()))]
            }
            (Check::EachCipher(check), Ok(ciphers)) => {
                let keyed = |algorithm: &Algorithm| {
                    (format!("{name} ({})", algorithm.name()), Ok(Ready::Keyed(check, *algorithm)))
                };
                ciphers.iter().map(keyed).collect()
            }
        }
    }
}

/// Why a rule is not kept.
enum Broken {
    /// The drive did something else.
    Rule(String),
    /// The drive is gone, or nobody's to use: no more can be said of it.
    DriveLost(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(text) | Self::DriveLost(text) => f.write_str(text),
        }
    }
}

/// A step that must succeed.
fn done<T>(what: &str, result: Result<T, DriveError>) -> Result<T, Broken> {
    result.map_err(|error| {
        let text = format!("{what}: {}", with_causes(&error));
        match error {
            DriveError::OutOfReach { .. } | DriveError::ReservationLost { .. } | DriveError::NotReady { .. } => {
                Broken::DriveLost(text)
            }
            _ => Broken::Rule(text),
        }
    })
}

fn key(seed: u8, algorithm: Algorithm) -> DriveKey {
    DriveKey { tag: KeyTag([seed; 16]), algorithm, key: [seed ^ 0x5a; 32] }
}

/// The ciphers that an encrypting drive takes keys for: real ones have one.
fn ciphers(drive: &mut dyn Drive) -> Result<Vec<Algorithm>, Broken> {
    steps::rewound(drive)?;
    let mut ciphers = Vec::new();
    for algorithm in [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm] {
        match drive.set_key(Some(key(1, algorithm))) {
            Err(DriveError::CipherMissing { .. }) => {}
            loaded => {
                done("load a key", loaded)?;
                ciphers.push(algorithm);
            }
        }
    }
    Ok(ciphers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fault, FaultyDrive, NullDrive};

    #[test]
    fn every_rule_is_told_and_none_is_told_twice() {
        let mut told = Vec::new();
        let report = check(&mut NullDrive::new(), Readback::Forgets, &mut |checked| told.push(checked.rule.clone()));
        assert_eq!(report.checks.len(), rules::RULES.len() + 1);
        assert_eq!(told, report.checks.iter().map(|checked| checked.rule.clone()).collect::<Vec<_>>());
        told.sort();
        told.dedup();
        assert_eq!(told.len(), report.checks.len());
        assert_eq!(report.failed().count(), 0);
        assert!(report.passed() > 5);
    }

    #[test]
    fn a_broken_rule_is_named_and_the_others_are_checked_all_the_same() {
        let mut drive = FaultyDrive::new(NullDrive::new(), vec![Fault::WriteFails { write: 2 }]);
        let report = check(&mut drive, Readback::Forgets, &mut |_| {});
        assert_eq!(report.failed().count(), 1, "{report:?}");
        assert!(report.passed() > 4);
    }
}
