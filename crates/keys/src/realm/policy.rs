//! Key policies, and the groups of keys under them.

use std::fmt;

use capstan_format::Algorithm;

use super::Name;
use crate::{KeyEvent, KeyState};

const NS_PER_SECOND: i64 = 1_000_000_000;
/// 365.25 days, as durations are written.
const SECONDS_PER_YEAR: u32 = 31_557_600;

/// A span of time, from the first issue of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// It never ends.
    Unlimited,
    /// It ends after so many seconds, more than 0.
    Seconds(u32),
}

impl Period {
    /// When it ends, in nanoseconds since 1970; `None` for never.
    pub fn end_ns(self, begun_ns: i64) -> Option<i64> {
        match self {
            Self::Unlimited => None,
            Self::Seconds(seconds) => Some(begun_ns.saturating_add(i64::from(seconds) * NS_PER_SECOND)),
        }
    }

    /// Whether it is over: at its end it is.
    pub fn is_over(self, begun_ns: i64, now_ns: i64) -> bool {
        self.end_ns(begun_ns).is_some_and(|end_ns| now_ns >= end_ns)
    }
}

impl fmt::Display for Period {
    /// In the largest unit that leaves no rest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Seconds(seconds) = *self else { return f.pad("unlimited") };
        let (number, unit) = match seconds {
            years if years.is_multiple_of(SECONDS_PER_YEAR) => (years / SECONDS_PER_YEAR, "y"),
            days if days.is_multiple_of(86_400) => (days / 86_400, "d"),
            hours if hours.is_multiple_of(3_600) => (hours / 3_600, "h"),
            minutes if minutes.is_multiple_of(60) => (minutes / 60, "min"),
            seconds => (seconds, "s"),
        };
        f.pad(&format!("{number} {unit}"))
    }
}

/// Whether something may be done with the keys of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// It may.
    Allowed,
    /// It may not.
    Forbidden,
}

/// What holds for keys. It cannot be changed once a key was issued under it: whoever was told how long a key would be
/// used must be able to rely on it. Another policy is made for what is to be different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: Name,
    /// The cipher of its keys; `None` leaves it to the pool.
    pub algorithm: Option<Algorithm>,
    /// For how long a key encrypts. After it a volume goes on with a new key.
    pub encryption_period: Period,
    /// For how long a key decrypts; no shorter than the encryption period.
    pub cryptoperiod: Period,
    /// Whether its keys may leave the store.
    pub export: Permission,
    /// Whether keys of other stores may join.
    pub import: Permission,
    /// Whether an agent may report a key as known to others. What only people may say an agent that was taken over
    /// cannot.
    pub agents_revoke: Permission,
    /// For how long a node of a cluster that is cut off from the majority gives out what it has; on one machine it
    /// means nothing.
    pub isolation_limit: Period,
}

impl Policy {
    /// One that sets no limit.
    pub fn unlimited(name: Name) -> Self {
        Self {
            name,
            algorithm: None,
            encryption_period: Period::Unlimited,
            cryptoperiod: Period::Unlimited,
            export: Permission::Allowed,
            import: Permission::Allowed,
            agents_revoke: Permission::Forbidden,
            isolation_limit: Period::Unlimited,
        }
    }

    /// What in it cannot be meant.
    pub fn contradiction(&self) -> Option<String> {
        match (self.encryption_period, self.cryptoperiod) {
            _ if [self.encryption_period, self.cryptoperiod, self.isolation_limit].contains(&Period::Seconds(0)) => Some("a period must be longer than nothing".to_owned()),
            (Period::Seconds(encrypts), Period::Seconds(decrypts)) if encrypts > decrypts => {
                Some("keys would encrypt what they no longer decrypt: the cryptoperiod must not be the shorter one".to_owned())
            }
            (Period::Unlimited, Period::Seconds(_)) => Some(
                "keys would encrypt what they no longer decrypt: with a cryptoperiod there must be an encryption period".to_owned(),
            ),
            _ => None,
        }
    }

    /// The state of a key as time makes it: `state` is what its record says.
    pub fn effective_state(&self, state: KeyState, issued_ns: i64, now_ns: i64) -> KeyState {
        let after = |state: KeyState, period: Period, event| {
            // An event that the state forbids does not happen to it.
            if period.is_over(issued_ns, now_ns) { state.after(event).unwrap_or(state) } else { state }
        };
        let state = after(state, self.encryption_period, KeyEvent::EncryptionPeriodOver);
        after(state, self.cryptoperiod, KeyEvent::Expired)
    }
}

/// Keys under one policy, for one purpose: those of a pool, of a customer, of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyGroup {
    /// Its name. The keys of a pool belong to the group that has the pool's name, if there is one. Else, in a
    /// key store of one machine, to `default`; in a cluster to the default group of the mover that asks.
    pub name: Name,
    /// Its policy, for good.
    pub policy: Name,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use proptest::prelude::*;

    use super::*;

    const DAY_NS: i64 = 86_400 * NS_PER_SECOND;

    fn policy(encrypts: Period, decrypts: Period) -> Policy {
        Policy { encryption_period: encrypts, cryptoperiod: decrypts, ..Policy::unlimited("p".parse().unwrap()) }
    }

    #[test]
    fn periods_run_from_the_first_issue_to_the_moment_they_end() {
        let policy = policy(Period::Seconds(86_400), Period::Seconds(2 * 86_400));
        let at = |ns| policy.effective_state(KeyState::ProtectAndProcess, 5, ns);
        assert_eq!(at(5 + DAY_NS - 1), KeyState::ProtectAndProcess);
        assert_eq!(at(5 + DAY_NS), KeyState::ProcessOnly);
        assert_eq!(at(5 + 2 * DAY_NS - 1), KeyState::ProcessOnly);
        assert_eq!(at(5 + 2 * DAY_NS), KeyState::Deactivated);
        // The clock may be set back: nothing of this was written down.
        assert_eq!(at(0), KeyState::ProtectAndProcess);
    }

    #[test]
    fn what_cannot_be_meant_is_said() {
        for (encrypts, decrypts) in [
            (Period::Seconds(2), Period::Seconds(1)),
            (Period::Unlimited, Period::Seconds(1)),
            (Period::Seconds(0), Period::Unlimited),
            (Period::Seconds(0), Period::Seconds(0)),
        ] {
            assert!(policy(encrypts, decrypts).contradiction().is_some(), "{encrypts} {decrypts}");
        }
        for (encrypts, decrypts) in [
            (Period::Seconds(1), Period::Seconds(1)),
            (Period::Seconds(1), Period::Unlimited),
            (Period::Unlimited, Period::Unlimited),
        ] {
            assert_eq!(policy(encrypts, decrypts).contradiction(), None);
        }
    }

    #[test]
    fn a_period_is_said_in_its_largest_unit() {
        let periods = [10 * SECONDS_PER_YEAR, 7 * 86_400, 36 * 3_600, 90 * 60, 61];
        let said = periods.map(|seconds| Period::Seconds(seconds).to_string());
        assert_eq!(said, ["10 y", "7 d", "36 h", "90 min", "61 s"]);
    }

    fn period() -> impl Strategy<Value = Period> {
        prop_oneof![Just(Period::Unlimited), (1..u32::MAX).prop_map(Period::Seconds)]
    }

    proptest! {
        /// Time only takes a key forward, and takes no key from where time has no power: destroyed, compromised,
        /// generated.
        #[test]
        fn time_only_takes_a_key_forward(
            encrypts in period(),
            decrypts in period(),
            state in proptest::sample::select(&KeyState::ALL[..]),
            issued in any::<i64>(),
            earlier in any::<i64>(),
            later in any::<i64>(),
        ) {
            let policy = policy(encrypts, decrypts);
            let (earlier, later) = (earlier.min(later), earlier.max(later));
            let rank = |state| KeyState::ALL.iter().position(|&other| other == state);
            let (before, after) = (policy.effective_state(state, issued, earlier), policy.effective_state(state, issued, later));
            prop_assert!(rank(state) <= rank(before) && rank(before) <= rank(after), "{state} {before} {after}");
            if matches!(state, KeyState::Destroyed | KeyState::Compromised) {
                prop_assert_eq!(after, state);
            }
        }
    }
}
