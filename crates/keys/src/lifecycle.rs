//! The life of a key: one table of what may follow what.
//!
//! The states are those of NIST SP 800-57 part 1 (section 7) in the words of the StorageTek key management system. The
//! table is a pure function, so that one machine and a cluster of key nodes obey the same rules and a property test can
//! walk through all of it. How long a key encrypts and decrypts is for its policy to say ([`crate::Policy`]).
//!
//! ```text
//! generated --stored--> ready --activated--> protect-and-process --superseded--> process-only --expired--> deactivated
//!     |                   |                            |                            ^                          ^
//!     |                   +------ encryption period over ---------------------------+                          |
//!     +-------------------+----- expired: not known to be used, so straight to the end ------------------------+
//! any but destroyed --compromised--> compromised         any --destroyed--> destroyed
//! ```
//! Two rules stand behind the table: a key that has stopped protecting never protects again, and nothing leaves
//! `destroyed`. A key that is `ready` is not superseded when its volume is begun with another: of two keys that were
//! issued for one volume, the volume itself shows which of them it was begun with last. An event that says nothing new
//! leaves the state as it is, so that every caller may repeat itself.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a key stands in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyState {
    /// Drawn at random, and not yet proved to be stored where it can be had back. Never given out.
    Generated,
    /// Stored and read back; no block is known to be encrypted with it.
    Ready,
    /// Encrypts and decrypts: the key of a volume that is being filled.
    ProtectAndProcess,
    /// Decrypts only: the volume has a newer key, or its encryption period is over.
    ProcessOnly,
    /// Past its cryptoperiod: decrypts if somebody insists.
    Deactivated,
    /// Somebody else may know it: decrypts, so that the data can be moved under another key.
    Compromised,
    /// Gone. So is all that was encrypted with it.
    Destroyed,
}

impl KeyState {
    /// All states, in the order of a life.
    pub const ALL: [Self; 7] = [
        Self::Generated,
        Self::Ready,
        Self::ProtectAndProcess,
        Self::ProcessOnly,
        Self::Deactivated,
        Self::Compromised,
        Self::Destroyed,
    ];

    /// The state's number in the store and in an export.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Generated => 1,
            Self::Ready => 2,
            Self::ProtectAndProcess => 3,
            Self::ProcessOnly => 4,
            Self::Deactivated => 5,
            Self::Compromised => 6,
            Self::Destroyed => 7,
        }
    }

    /// The state of a number, if there is one.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The field's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Generated => "generated",
            Self::Ready => "ready",
            Self::ProtectAndProcess => "protect-and-process",
            Self::ProcessOnly => "process-only",
            Self::Deactivated => "deactivated",
            Self::Compromised => "compromised",
            Self::Destroyed => "destroyed",
        }
    }

    /// The state after an event.
    ///
    /// # Errors
    /// [`ForbiddenTransition`] if the event cannot happen in this state.
    pub fn after(self, event: KeyEvent) -> Result<Self, ForbiddenTransition> {
        use KeyState::{Compromised, Deactivated, Destroyed, Generated, ProcessOnly, ProtectAndProcess, Ready};
        let forbidden = Err(ForbiddenTransition { state: self, event });
        match (event, self) {
            (KeyEvent::Stored, Generated) => Ok(Ready),
            (KeyEvent::Stored, Destroyed) => forbidden,
            (KeyEvent::Stored, Ready | ProtectAndProcess | ProcessOnly | Deactivated | Compromised) => Ok(self),

            (KeyEvent::Activated, Ready | ProtectAndProcess) => Ok(ProtectAndProcess),
            (KeyEvent::Activated, Generated | ProcessOnly | Deactivated | Compromised | Destroyed) => forbidden,

            (KeyEvent::Superseded, ProtectAndProcess) => Ok(ProcessOnly),
            (KeyEvent::Superseded, Generated | Ready | ProcessOnly | Deactivated | Compromised | Destroyed) => Ok(self),

            (KeyEvent::EncryptionPeriodOver | KeyEvent::Retired, Ready | ProtectAndProcess) => Ok(ProcessOnly),
            (
                KeyEvent::EncryptionPeriodOver | KeyEvent::Retired,
                Generated | ProcessOnly | Deactivated | Compromised | Destroyed,
            ) => Ok(self),

            (KeyEvent::Expired, Generated | Ready | ProtectAndProcess | ProcessOnly) => Ok(Deactivated),
            (KeyEvent::Expired, Deactivated | Compromised | Destroyed) => Ok(self),

            (KeyEvent::Compromised, Destroyed) => forbidden,
            (
                KeyEvent::Compromised,
                Generated | Ready | ProtectAndProcess | ProcessOnly | Deactivated | Compromised,
            ) => Ok(Compromised),

            (KeyEvent::Destroyed, _) => Ok(Destroyed),
        }
    }
}

impl fmt::Display for KeyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What happens to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyEvent {
    /// It was stored where it can be had back, and was read back from there.
    Stored,
    /// The first block encrypted with it stands on its volume.
    Activated,
    /// Its volume was begun anew with another key.
    Superseded,
    /// The time in which it encrypts is over.
    EncryptionPeriodOver,
    /// Somebody said that it is to encrypt no more.
    Retired,
    /// Its cryptoperiod is over.
    Expired,
    /// Somebody else may know it.
    Compromised,
    /// It was destroyed.
    Destroyed,
}

/// Why a key is taken out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Revocation {
    /// Somebody else may know it: what it encrypted is to be moved.
    Compromised,
    /// It is to encrypt no more, and reads as before.
    Retired,
}

impl Revocation {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compromised => "compromised",
            Self::Retired => "retired",
        }
    }

    pub(crate) fn event(self) -> KeyEvent {
        match self {
            Self::Compromised => KeyEvent::Compromised,
            Self::Retired => KeyEvent::Retired,
        }
    }
}

/// The table has no such transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a key that is {state} cannot be {event:?}")]
pub struct ForbiddenTransition {
    /// The state the key is in.
    pub state: KeyState,
    /// What was to happen to it.
    pub event: KeyEvent,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use proptest::prelude::*;

    use super::*;

    const EVENTS: [KeyEvent; 8] = [
        KeyEvent::Stored,
        KeyEvent::Activated,
        KeyEvent::Superseded,
        KeyEvent::EncryptionPeriodOver,
        KeyEvent::Retired,
        KeyEvent::Expired,
        KeyEvent::Compromised,
        KeyEvent::Destroyed,
    ];

    fn rank(state: KeyState) -> usize {
        KeyState::ALL.iter().position(|&other| other == state).unwrap()
    }

    #[test]
    fn the_usual_life() {
        let mut state = KeyState::Generated;
        for (event, expected) in [
            (KeyEvent::Stored, KeyState::Ready),
            (KeyEvent::Activated, KeyState::ProtectAndProcess),
            (KeyEvent::Superseded, KeyState::ProcessOnly),
            (KeyEvent::Expired, KeyState::Deactivated),
            (KeyEvent::Destroyed, KeyState::Destroyed),
        ] {
            state = state.after(event).unwrap();
            assert_eq!(state, expected);
        }
    }

    #[test]
    fn a_key_that_is_not_stored_is_never_activated() {
        let error = KeyState::Generated.after(KeyEvent::Activated).unwrap_err();
        assert_eq!(error, ForbiddenTransition { state: KeyState::Generated, event: KeyEvent::Activated });
    }

    #[test]
    fn only_ready_leads_to_protecting() {
        for state in KeyState::ALL {
            for event in EVENTS {
                if state.after(event) == Ok(KeyState::ProtectAndProcess) {
                    assert!(matches!(state, KeyState::Ready | KeyState::ProtectAndProcess), "{state} {event:?}");
                }
            }
        }
    }

    #[test]
    fn every_event_may_be_repeated() {
        for state in KeyState::ALL {
            for event in EVENTS {
                if let Ok(next) = state.after(event) {
                    assert_eq!(next.after(event), Ok(next), "{state} {event:?}");
                }
            }
        }
    }

    #[test]
    fn every_state_can_be_destroyed_and_none_comes_back() {
        for state in KeyState::ALL {
            assert_eq!(state.after(KeyEvent::Destroyed), Ok(KeyState::Destroyed));
        }
        for event in EVENTS {
            if let Ok(next) = KeyState::Destroyed.after(event) {
                assert_eq!(next, KeyState::Destroyed, "{event:?}");
            }
        }
    }

    #[test]
    fn codes_are_told_apart() {
        for state in KeyState::ALL {
            assert_eq!(KeyState::from_code(state.code()), Some(state));
        }
        assert_eq!(KeyState::from_code(0), None);
        assert_eq!(KeyState::from_code(8), None);
    }

    proptest! {
        /// Whatever happens to a key, its life only goes forward, and once it has stopped protecting it never protects
        /// again.
        #[test]
        fn a_life_only_goes_forward(events in proptest::collection::vec(proptest::sample::select(&EVENTS[..]), 0..30)) {
            let mut state = KeyState::Generated;
            let mut stopped_protecting = false;
            for event in events {
                let Ok(next) = state.after(event) else { continue };
                prop_assert!(rank(next) >= rank(state), "{state} went back to {next} on {event:?}");
                stopped_protecting |= state == KeyState::ProtectAndProcess && next != KeyState::ProtectAndProcess;
                prop_assert!(!(stopped_protecting && next == KeyState::ProtectAndProcess));
                state = next;
            }
        }
    }
}
