//! Problems of keys: what a node says when there is no key, and what an agent makes of it.
//!
//! Both directions stand here, side by side, so that every error that callers tell apart comes across as itself:
//! ```text
//! problem               status  members                        error of the agent
//! key-missing           404     tag, volume                    KeyMissing, in the cluster
//! key-destroyed         410     tag, volume, destroyed_ns      KeyDestroyed
//! key-retired           409     tag, volume, state             KeyRetired
//! key-of-other-volume   409     tag, volume, owner             KeyOfOtherVolume
//! key-of-other-cipher   409     tag                            none: it answers an import, which agents do not ask for
//! cryptoperiod-over     403     tag, volume                    RefusedByCluster, CryptoperiodOver
//! keys-used-up          403     volume                         RefusedByCluster, KeysUsedUp
//! key-unconfirmed       403     tag, volume                    RefusedByCluster, Unconfirmed
//! refused               403                                    RefusedByCluster, Other
//! pool-empty, isolated-too-long, locked, needs-majority
//!                       503                                    none: another node is asked
//! ```
//! The last line is what one node cannot do and another may. Where every node says so, the agent names them all.

use std::str::FromStr;

use capstan_format::{KeyTag, Volser};

use super::Problem;
use crate::error::ClusterRefusal;
use crate::realm::Keeper;
use crate::{KeyError, KeyPlace, KeyState, RuleRefusal};

impl Problem {
    /// The problem that says what this error says; none for an error of the node itself, which is not the agent's
    /// business.
    pub fn of_key(error: &KeyError) -> Option<Self> {
        let said = match error {
            KeyError::Refused(refusal) => refusal.said_by(Keeper::Cluster),
            other => other.to_string(),
        };
        let problem = |status, name, title| Self::new(status, name, title, said.clone());
        Some(match error {
            KeyError::KeyMissing { tag, volser, .. } => {
                let problem = problem(404, "key-missing", "There is no such key").with("tag", tag);
                match volser {
                    Some(volser) => problem.with("volume", volser),
                    None => problem,
                }
            }
            KeyError::KeyDestroyed { tag, volser, destroyed_ns } => {
                let problem = problem(410, "key-destroyed", "The key was destroyed").with("tag", tag);
                problem.with("volume", volser).with("destroyed_ns", destroyed_ns)
            }
            KeyError::KeyRetired { tag, volser, state } => {
                let problem = problem(409, "key-retired", "The key encrypts no more").with("tag", tag);
                problem.with("volume", volser).with("state", &state.name())
            }
            KeyError::KeyOfOtherVolume { tag, volser, owner } => {
                let problem = problem(409, "key-of-other-volume", "The key is another volume's").with("tag", tag);
                problem.with("volume", volser).with("owner", owner)
            }
            KeyError::KeyOfOtherCipher { tag, .. } => {
                problem(409, "key-of-other-cipher", "The key is known with another cipher").with("tag", tag)
            }
            KeyError::Refused(RuleRefusal::CryptoperiodOver { tag, volser, .. }) => {
                let problem = problem(403, "cryptoperiod-over", "The key's time is over").with("tag", tag);
                problem.with("volume", volser)
            }
            KeyError::Refused(RuleRefusal::KeysUsedUp { volser }) => {
                problem(403, "keys-used-up", "The volume takes no further key").with("volume", volser)
            }
            KeyError::Refused(RuleRefusal::Unconfirmed { tag, volser }) => {
                let problem = problem(403, "key-unconfirmed", "Nobody has confirmed the key's group").with("tag", tag);
                problem.with("volume", volser)
            }
            KeyError::Refused(_) => problem(403, "refused", "The rules forbid it"),
            _ => return None,
        })
    }

    /// The error that a problem of keys stands for, if it is one and names what it is about.
    pub fn key_error(&self) -> Option<KeyError> {
        let refused = |reason| Some(KeyError::RefusedByCluster { reason, detail: self.detail.clone() });
        let tag = || self.member::<KeyTag>("tag");
        let volser = || self.member::<Volser>("volume");
        match self.name()? {
            "key-missing" => Some(KeyError::KeyMissing { place: KeyPlace::Cluster, tag: tag()?, volser: volser() }),
            "key-destroyed" => {
                let destroyed_ns = self.member("destroyed_ns")?;
                Some(KeyError::KeyDestroyed { tag: tag()?, volser: volser()?, destroyed_ns })
            }
            "key-retired" => Some(KeyError::KeyRetired { tag: tag()?, volser: volser()?, state: self.state()? }),
            "key-of-other-volume" => {
                Some(KeyError::KeyOfOtherVolume { tag: tag()?, volser: volser()?, owner: self.member("owner")? })
            }
            "cryptoperiod-over" => refused(ClusterRefusal::CryptoperiodOver { tag: tag()? }),
            "keys-used-up" => refused(ClusterRefusal::KeysUsedUp),
            "key-unconfirmed" => refused(ClusterRefusal::Unconfirmed { tag: tag()? }),
            "refused" => refused(ClusterRefusal::Other),
            _ => None,
        }
    }

    /// A member, if it is there and can be read.
    fn member<T: FromStr>(&self, name: &str) -> Option<T> {
        self.members.get(name)?.parse().ok()
    }

    fn state(&self) -> Option<KeyState> {
        let name = self.members.get("state")?;
        KeyState::ALL.into_iter().find(|state| state.name() == name)
    }
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
        let over = RuleRefusal::CryptoperiodOver {
            volser: volser("A00001"),
            tag: TAG,
            policy: Name::default(),
            period: Period::Seconds(1),
            ended_ns: 5,
        };
        let full = RuleRefusal::KeysUsedUp { volser: volser("A00001") };
        let unconfirmed = RuleRefusal::Unconfirmed { volser: volser("A00001"), tag: TAG };
        let other = RuleRefusal::UnknownGroup { group: Name::default() };
        let said = |refusal: &RuleRefusal| sent(&refusal.clone().into()).unwrap();
        for refusal in [&over, &full, &unconfirmed, &other] {
            let error = said(refusal);
            assert!(error.is_refusal() && error.to_string().contains(&refusal.to_string()), "{error}");
        }
        assert_eq!(said(&over).past_its_time(), Some(TAG));
        assert!(said(&full).keys_used_up() && said(&full).past_its_time().is_none());
        assert!(said(&unconfirmed).unconfirmed() && !said(&other).unconfirmed());
        assert!(!said(&other).keys_used_up() && said(&other).past_its_time().is_none());
    }

    #[test]
    fn a_member_that_cannot_be_read_leaves_the_words() {
        let json = r#"{"type": "capstan:problem/key-retired", "status": 409, "detail": "It rests.",
                       "tag": 5, "volume": "not a barcode", "state": "asleep", "more": [1]}"#;
        let problem: Problem = serde_json::from_str(json).unwrap();
        assert_eq!((problem.to_string(), problem.status), ("It rests.".to_owned(), 409));
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
