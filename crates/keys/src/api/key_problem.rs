//! Problems of keys: what a node says when there is no key, and what an agent makes of it.
//!
//! Both directions stand here, side by side, so that every error that callers tell apart comes across as itself:
//! ```text
//! problem               status  members                        error of the agent
//! key-missing           404     tag, volume                    KeyMissing, in the cluster
//! key-destroyed         410     tag, volume, destroyed_ns      KeyDestroyed
//! key-retired           409     tag, volume, state             KeyRetired
//! key-of-other-volume   409     tag, volume, owner             KeyOfOtherVolume
//! cryptoperiod-over     403     tag, volume                    RefusedByCluster, CryptoperiodOver
//! keys-used-up          403     volume                         RefusedByCluster, KeysUsedUp
//! refused               403                                    RefusedByCluster, Other
//! pool-empty, isolated-too-long, locked, needs-majority
//!                       503                                    none: another node is asked
//! ```
//! The last line is what one node cannot do and another may. Where every node says so, the agent names them all.

use std::str::FromStr;

use capstan_format::{KeyTag, Volser};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Problem;
use crate::error::ClusterRefusal;
use crate::{KeyError, KeyPlace, KeyState, Refusal};

/// The members of a problem that name a key and a volume. What cannot be read is passed over: the words of the problem remain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMembers {
    /// The key's public name.
    #[serde(default, with = "word", skip_serializing_if = "Option::is_none")]
    pub tag: Option<KeyTag>,
    /// The volume that was asked for.
    #[serde(default, with = "word", skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volser>,
    /// The volume that the key was issued for, where that is another.
    #[serde(default, with = "word", skip_serializing_if = "Option::is_none")]
    pub owner: Option<Volser>,
    /// When the key was destroyed, in nanoseconds since 1970.
    #[serde(default, deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub destroyed_ns: Option<i64>,
    /// The state that the key is in.
    #[serde(default, with = "state", skip_serializing_if = "Option::is_none")]
    pub state: Option<KeyState>,
}

impl Problem {
    /// The problem that says what this error says; none for an error of the node itself, which is not the agent's business.
    pub fn of_key(error: &KeyError) -> Option<Self> {
        let detail = error.to_string();
        let problem = |status, name, title, members: KeyMembers| {
            let about = Box::new(members);
            Some(Self { about, ..Self::new(status, name, title, detail) })
        };
        let about = |tag: &KeyTag, volume: Option<&Volser>| KeyMembers {
            tag: Some(*tag),
            volume: volume.cloned(),
            ..KeyMembers::default()
        };
        match error {
            KeyError::KeyMissing { tag, volser, .. } => {
                problem(404, "key-missing", "There is no such key", about(tag, volser.as_ref()))
            }
            KeyError::KeyDestroyed { tag, volser, destroyed_ns } => {
                let members = KeyMembers { destroyed_ns: Some(*destroyed_ns), ..about(tag, Some(volser)) };
                problem(410, "key-destroyed", "The key was destroyed", members)
            }
            KeyError::KeyRetired { tag, volser, state } => {
                let members = KeyMembers { state: Some(*state), ..about(tag, Some(volser)) };
                problem(409, "key-retired", "The key does not encrypt any more", members)
            }
            KeyError::KeyOfOtherVolume { tag, volser, owner } => {
                let members = KeyMembers { owner: Some(owner.clone()), ..about(tag, Some(volser)) };
                problem(409, "key-of-other-volume", "The key is another volume's", members)
            }
            KeyError::Refused(Refusal::CryptoperiodOver { tag, volser, .. }) => {
                problem(403, "cryptoperiod-over", "The key's time is over", about(tag, Some(volser)))
            }
            KeyError::Refused(Refusal::KeysUsedUp { volser }) => {
                let members = KeyMembers { volume: Some(volser.clone()), ..KeyMembers::default() };
                problem(403, "keys-used-up", "The volume takes no further key", members)
            }
            KeyError::Refused(_) => problem(403, "refused", "A rule forbids it", KeyMembers::default()),
            _ => None,
        }
    }

    /// The error that a problem of keys stands for, if it is one and names what it is about.
    pub fn key_error(&self) -> Option<KeyError> {
        let KeyMembers { tag, volume, owner, destroyed_ns, state } = &*self.about;
        let refused = |reason| Some(KeyError::RefusedByCluster { reason, detail: self.detail.clone() });
        match self.name()? {
            "key-missing" => {
                Some(KeyError::KeyMissing { place: KeyPlace::Cluster, tag: (*tag)?, volser: volume.clone() })
            }
            "key-destroyed" => {
                Some(KeyError::KeyDestroyed { tag: (*tag)?, volser: volume.clone()?, destroyed_ns: (*destroyed_ns)? })
            }
            "key-retired" => Some(KeyError::KeyRetired { tag: (*tag)?, volser: volume.clone()?, state: (*state)? }),
            "key-of-other-volume" => {
                Some(KeyError::KeyOfOtherVolume { tag: (*tag)?, volser: volume.clone()?, owner: owner.clone()? })
            }
            "cryptoperiod-over" => refused(ClusterRefusal::CryptoperiodOver { tag: (*tag)? }),
            "keys-used-up" => refused(ClusterRefusal::KeysUsedUp),
            "refused" => refused(ClusterRefusal::Other),
            _ => None,
        }
    }
}

/// A value that is written as text, or nothing where the text says nothing to this program.
mod word {
    use std::fmt::Display;

    use super::{Deserializer, FromStr, Serializer, text};

    pub(super) fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        Ok(text(deserializer)?.and_then(|text| text.parse().ok()))
    }
}

mod state {
    use super::{Deserializer, KeyState, Serializer, text};

    pub(super) fn serialize<S: Serializer>(state: &Option<KeyState>, serializer: S) -> Result<S::Ok, S::Error> {
        super::word::serialize(&state.map(KeyState::name), serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<KeyState>, D::Error> {
        let text = text(deserializer)?;
        Ok(KeyState::ALL.into_iter().find(|state| text.as_deref() == Some(state.name())))
    }
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().map(str::to_owned))
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_i64())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::{Name, Period};

    const TAG: KeyTag = KeyTag([7; 16]);

    fn volser(name: &str) -> Volser {
        Volser::new(name).unwrap()
    }

    /// Over the wire and back.
    fn sent(error: &KeyError) -> Option<KeyError> {
        let json = serde_json::to_string(&Problem::of_key(error)?).unwrap();
        serde_json::from_str::<Problem>(&json).unwrap().key_error()
    }

    #[test]
    fn what_callers_tell_apart_comes_across_as_itself() {
        let errors = [
            KeyError::KeyMissing { place: KeyPlace::Cluster, tag: TAG, volser: Some(volser("A00001")) },
            KeyError::KeyMissing { place: KeyPlace::Cluster, tag: TAG, volser: None },
            KeyError::KeyDestroyed { tag: TAG, volser: volser("A00001"), destroyed_ns: i64::MAX },
            KeyError::KeyDestroyed { tag: TAG, volser: volser("A00001"), destroyed_ns: -1 },
            KeyError::KeyRetired { tag: TAG, volser: volser("A00001"), state: KeyState::Compromised },
            KeyError::KeyOfOtherVolume { tag: TAG, volser: volser("A00001"), owner: volser("A00002") },
        ];
        for error in errors {
            assert_eq!(format!("{:?}", sent(&error).unwrap()), format!("{error:?}"));
        }
    }

    #[test]
    fn refusals_keep_their_words_and_what_makes_a_difference() {
        let over = Refusal::CryptoperiodOver {
            volser: volser("A00001"),
            tag: TAG,
            policy: Name::default(),
            period: Period::Seconds(1),
            ended_ns: 5,
        };
        let full = Refusal::KeysUsedUp { volser: volser("A00001") };
        let other = Refusal::UnknownGroup { group: Name::default() };
        let said = |refusal: &Refusal| sent(&refusal.clone().into()).unwrap();
        for refusal in [&over, &full, &other] {
            let error = said(refusal);
            assert!(error.is_refusal() && error.to_string().contains(&refusal.to_string()), "{error}");
        }
        assert_eq!(said(&over).past_its_time(), Some(TAG));
        assert!(said(&full).keys_used_up() && said(&full).past_its_time().is_none());
        assert!(!said(&other).keys_used_up() && said(&other).past_its_time().is_none());
    }

    #[test]
    fn a_member_that_cannot_be_read_leaves_the_words() {
        let json = r#"{"type": "capstan:problem/key-retired", "status": 409, "detail": "It rests.",
                       "tag": 5, "volume": "not a barcode", "state": "asleep", "destroyed_ns": "yesterday", "more": [1]}"#;
        let problem: Problem = serde_json::from_str(json).unwrap();
        assert_eq!(problem.to_string(), "It rests.");
        assert_eq!(*problem.about, KeyMembers::default());
        assert!(problem.key_error().is_none());
    }

    #[test]
    fn an_error_of_the_node_is_no_problem_of_keys() {
        assert!(Problem::of_key(&KeyError::EmptyPassphrase).is_none());
        let problem = Problem::new(503, "pool-empty", "No key is ready", "Make a backup.");
        assert!(problem.key_error().is_none());
        // Without members of keys there are none on the wire.
        let json = serde_json::to_value(&problem).unwrap();
        assert_eq!(json.as_object().unwrap().len(), 4, "{json}");
    }
}
