//! What to do about a refusal: whoever may change what the rules rest on is another person, with another command, on
//! one machine and in a cluster.

use super::RuleRefusal;

/// Who keeps the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// A store of this machine: whoever has its secret may do everything.
    Store,
    /// A cluster of key nodes: people have roles.
    Cluster,
}

impl RuleRefusal {
    /// What is refused, and what to do about it.
    pub(crate) fn said_by(&self, keeper: Keeper) -> String {
        match self.remedy(keeper) {
            Some(remedy) => format!("{self}: {remedy}"),
            None => self.to_string(),
        }
    }

    /// What to do about it, where that depends on who keeps the keys; else the refusal itself says it.
    fn remedy(&self, keeper: Keeper) -> Option<String> {
        Some(match (self, keeper) {
            (Self::UnknownGroup { .. }, Keeper::Store) => {
                "`capstan keys groups` lists those there are, `capstan keys groups add` makes one".to_owned()
            }
            (Self::UnknownGroup { .. }, Keeper::Cluster) => {
                "`keyd groups list` shows those there are, and a compliance officer makes one with `keyd groups add`".to_owned()
            }
            (Self::UnknownPolicy { .. }, Keeper::Store) => {
                "`capstan keys policies` lists those there are, `capstan keys policies add` makes one".to_owned()
            }
            (Self::UnknownPolicy { .. }, Keeper::Cluster) => {
                "`keyd policies list` shows those there are, and a compliance officer makes one with `keyd policies add`".to_owned()
            }
            (Self::GroupNotAllowed { agent, group }, Keeper::Store) => {
                format!("choose another drive, or allow it (`capstan keys drives set {agent} --group {group}`)")
            }
            (Self::GroupNotAllowed { agent, group }, Keeper::Cluster) => format!(
                "choose another drive, or have a compliance officer let it (`keyd agents groups {agent} --group {group}`, with \
                 every other group that it is to use)"
            ),
            (Self::CryptoperiodOver { volser, .. }, Keeper::Store) => format!(
                "whoever has the key store's secret can allow reading for a time (`capstan keys extend-decryption \
                 {volser} --for 7d`)"
            ),
            (Self::CryptoperiodOver { volser, .. }, Keeper::Cluster) => format!(
                "a compliance officer may allow reading for a time (`keyd units extend-decryption {volser} --for 7d`, or `capstan keys \
                 --identity FILE extend-decryption {volser} --for 7d`)"
            ),
            (Self::UnknownUnit { .. }, Keeper::Store) => "`capstan keys volumes` names those that have one".to_owned(),
            (Self::UnknownUnit { .. }, Keeper::Cluster) => "`keyd units list` names those that have one".to_owned(),
            (
                Self::OtherCipher { .. }
                | Self::KeysUsedUp { .. }
                | Self::Unconfirmed { .. }
                | Self::BegunInVain { .. }
                | Self::RevokingForbidden { .. }
                | Self::ExportForbidden { .. }
                | Self::ImportForbidden { .. }
                | Self::Exists { .. }
                | Self::PolicyThere { .. }
                | Self::Contradiction { .. },
                _,
            ) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{KeyTag, Volser};

    use super::*;
    use crate::api::Problem;
    use crate::{KeyError, Name, Period};

    /// A drive of a cluster was told to ask whoever holds the secret of a key store, where there is none, and to type
    /// what changes nothing there.
    #[test]
    fn a_refusal_names_who_may_change_it_where_the_keys_are() {
        let (name, volser) = (|text: &str| text.parse::<Name>().unwrap(), Volser::new("A00001").unwrap());
        let over = RuleRefusal::CryptoperiodOver {
            volser: volser.clone(),
            tag: KeyTag([7; 16]),
            policy: name("yearly"),
            period: Period::Seconds(1),
            ended_ns: 5,
        };
        let refusals = [
            (over, "store's secret", "compliance officer", "keyd units extend-decryption A00001"),
            (
                RuleRefusal::UnknownGroup { group: name("g") },
                "`capstan keys groups",
                "compliance officer",
                "keyd groups add",
            ),
            (
                RuleRefusal::UnknownPolicy { policy: name("p") },
                "`capstan keys policies",
                "compliance officer",
                "keyd policies",
            ),
            (
                RuleRefusal::GroupNotAllowed { agent: name("d"), group: name("g") },
                "capstan keys drives set d",
                "compliance officer",
                "keyd agents groups d --group g",
            ),
            (RuleRefusal::UnknownUnit { volser }, "`capstan keys volumes", "", "keyd units list"),
        ];
        for (refusal, of_store, officer, of_cluster) in refusals {
            let here = KeyError::from(refusal.clone()).to_string();
            assert!(here.contains(of_store) && !here.contains("keyd"), "{here}");
            let there = Problem::of_key(&refusal.into()).unwrap().detail;
            assert!(there.contains(officer) && there.contains(of_cluster) && !there.contains(of_store), "{there}");
        }
    }
}
