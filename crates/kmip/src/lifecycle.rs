//! The states of a managed object, as one table (KMIP 1.4, section 3.22; NIST SP 800-57).
//!
//! ```text
//!                 activate              deactivate
//!    Pre-Active -----------> Active -----------------> Deactivated
//!      |  |                    |                         |    |
//!      |  '--compromise--.     | compromise   compromise |    | destroy
//!      |                 v     v                         |    v
//!      | destroy         Compromised <-------------------'  Destroyed
//!      |                   | destroy                          | compromise
//!      '--> Destroyed      '-----> Destroyed Compromised <----'
//! ```
//! An active key is not destroyed at a stroke: it is revoked first, which is a decision of its own. Dates make events
//! too: an Activation Date that has come activates, a Deactivation Date deactivates, without anyone writing it down.

use crate::enumeration::ResultReason;

/// Where a managed cryptographic object is in its life. The numbers are the standard's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It may be stored and given out, and must not protect anything.
    PreActive = 1,
    /// It may protect and process.
    Active = 2,
    /// It may process what it protected before.
    Deactivated = 3,
    /// Someone else may know it: it may process, by those who know that.
    Compromised = 4,
    /// Its material is gone, its attributes are kept.
    Destroyed = 5,
    /// Its material is gone, and someone else may have it.
    DestroyedCompromised = 6,
}

/// What happens to a managed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LifecycleEvent {
    /// By Activate, or by its Activation Date.
    Activate,
    /// By Revoke for a reason other than compromise, or by its Deactivation Date.
    Deactivate,
    /// By Revoke for a compromise.
    Compromise,
    /// By Destroy.
    Destroy,
}

impl State {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [
        Self::PreActive,
        Self::Active,
        Self::Deactivated,
        Self::Compromised,
        Self::Destroyed,
        Self::DestroyedCompromised,
    ];

    /// The one with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|state| u32::from(*state) == number)
    }

    /// Where an event leads, or the reason to refuse it with.
    ///
    /// # Errors
    /// The result reason that the standard gives for this event in this state.
    pub fn after(self, event: LifecycleEvent) -> Result<Self, ResultReason> {
        use LifecycleEvent::{Activate, Compromise, Deactivate, Destroy};
        match (self, event) {
            (Self::PreActive, Activate) => Ok(Self::Active),
            (Self::PreActive, Compromise) => Ok(Self::Compromised),
            (Self::PreActive, Destroy) => Ok(Self::Destroyed),
            (Self::Active, Deactivate) => Ok(Self::Deactivated),
            (Self::Active, Compromise) => Ok(Self::Compromised),
            (Self::Deactivated, Compromise) => Ok(Self::Compromised),
            (Self::Deactivated, Destroy) => Ok(Self::Destroyed),
            (Self::Compromised, Destroy) => Ok(Self::DestroyedCompromised),
            (Self::Destroyed, Compromise) => Ok(Self::DestroyedCompromised),
            (Self::PreActive, Deactivate) => Err(ResultReason::IllegalOperation),
            (Self::Active, Activate | Destroy)
            | (Self::Deactivated, Activate | Deactivate)
            | (Self::Compromised, Activate | Deactivate | Compromise)
            | (Self::Destroyed, Activate | Deactivate | Destroy)
            | (Self::DestroyedCompromised, Activate | Deactivate | Compromise | Destroy) => {
                Err(ResultReason::WrongKeyLifecycleState)
            }
        }
    }

    /// The state that the calendar has brought a state to.
    pub(crate) fn at(self, now_s: i64, activation_s: Option<i64>, deactivation_s: Option<i64>) -> Self {
        let came = |date: Option<i64>| date.is_some_and(|date| date <= now_s);
        let mut state = self;
        if state == Self::PreActive && came(activation_s) {
            state = Self::Active;
        }
        if state == Self::Active && came(deactivation_s) {
            state = Self::Deactivated;
        }
        state
    }

    /// Whether the material still exists.
    pub fn material(self) -> Material {
        match self {
            Self::Destroyed | Self::DestroyedCompromised => Material::Gone,
            Self::PreActive | Self::Active | Self::Deactivated | Self::Compromised => Material::Kept,
        }
    }
}

/// What a state means for the key's material.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Material {
    /// It is there.
    Kept,
    /// It was destroyed.
    Gone,
}

impl From<State> for u32 {
    fn from(state: State) -> Self {
        state as Self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LifecycleEvent, Material, State};

    const EVENTS: [LifecycleEvent; 4] =
        [LifecycleEvent::Activate, LifecycleEvent::Deactivate, LifecycleEvent::Compromise, LifecycleEvent::Destroy];

    proptest! {
        /// Whatever happens in whatever order: what is destroyed stays destroyed, what is compromised stays
        /// compromised, nothing becomes Pre-Active, nothing is active again, and nothing that is active is destroyed at
        /// a stroke.
        #[test]
        fn no_way_back(events in proptest::collection::vec(0..EVENTS.len(), 0..12)) {
            let mut state = State::PreActive;
            for event in events {
                let Ok(next) = state.after(EVENTS[event]) else { continue };
                let compromised = |state| matches!(state, State::Compromised | State::DestroyedCompromised);
                prop_assert!(next != State::PreActive);
                prop_assert!(next != State::Active || state == State::PreActive);
                prop_assert!(state.material() == Material::Kept || next.material() == Material::Gone);
                prop_assert!(!compromised(state) || compromised(next));
                prop_assert!(!(state == State::Active && next.material() == Material::Gone));
                prop_assert!(next != state);
                state = next;
            }
        }

        /// The calendar goes the way that events go, and never further than Deactivated.
        #[test]
        fn the_calendar_follows_the_table(now in 0..10i64, on in proptest::option::of(0..10i64), off in proptest::option::of(0..10i64)) {
            for state in State::ALL {
                let later = state.at(now, on, off);
                let activated = state.after(LifecycleEvent::Activate);
                let both = activated.and_then(|active| active.after(LifecycleEvent::Deactivate));
                let by_events = [activated, both, state.after(LifecycleEvent::Deactivate)];
                prop_assert!(later == state || by_events.contains(&Ok(later)));
                prop_assert_eq!(later.at(now, on, off), later);
            }
        }
    }
}
