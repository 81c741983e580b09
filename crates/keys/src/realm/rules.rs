//! Which key a drive gets, and why it gets none.

use capstan_format::{Algorithm, KeyTag, Volser};
use thiserror::Error;

use super::{Agent, IssuedKey, KeyGroup, KeyUse, Name, Permission, Policy, Realm};
use crate::dates::date;
use crate::{KeyRecord, KeyState};

/// Most keys of one life of a volume: a cartridge's memory has room for so many names.
const KEYS_OF_LIFE_MAX: usize = 24;

/// A key that is to be drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its group.
    pub group: Name,
    /// Its cipher.
    pub algorithm: Algorithm,
}

/// What becomes of a policy that is there, of the name of one that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownPolicy {
    /// It stays: what is said may be meant for another.
    Stays,
    /// It is said anew, all of it, if no key was issued under it.
    Replaced,
}

/// The key to append to a volume with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendKey {
    /// The one that the volume was written with so far.
    Same,
    /// A new one beside it.
    New(NewKey),
}

/// What the rules forbid. Who may change that depends on where the keys are kept:
/// [`KeyError::Refused`](crate::KeyError::Refused) says it for a store,
/// [`Problem::of_key`](crate::api::Problem::of_key) for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RuleRefusal {
    /// Operator: no such group.
    #[error("there is no key group {group}")]
    UnknownGroup {
        /// The group.
        group: Name,
    },
    /// Operator: no such policy.
    #[error("there is no key policy {policy}")]
    UnknownPolicy {
        /// The policy.
        policy: Name,
    },
    /// Operator: this drive does not get keys of this group.
    #[error("drive {agent} may not use keys of group {group}")]
    GroupNotAllowed {
        /// The drive.
        agent: Name,
        /// The group.
        group: Name,
    },
    /// Operator: the pool wants one cipher, the policy another.
    #[error(
        "key group {group} has keys for {} (policy {policy}), and {} was asked for: give the pool that cipher, or \
         make another group under another policy", required.name(), asked.name()
    )]
    OtherCipher {
        /// The group.
        group: Name,
        /// Its policy.
        policy: Name,
        /// What was asked for.
        asked: Algorithm,
        /// What the policy says.
        required: Algorithm,
    },
    /// Operator: the keys of the volume are past their time.
    #[error(
        "the cryptoperiod of key {tag} of volume {volser} ended on {} (policy {policy}: {period}), so that it is no longer given out",
        date(*ended_ns)
    )]
    CryptoperiodOver {
        /// The volume.
        volser: Volser,
        /// The key.
        tag: KeyTag,
        /// Its policy.
        policy: Name,
        /// How long it allows reading.
        period: super::Period,
        /// When that ended.
        ended_ns: i64,
    },
    /// Medium: the volume goes on under no further key.
    #[error(
        "volume {volser} has {KEYS_OF_LIFE_MAX} keys, and can have no more: it can still be read, but written only \
         from the beginning of tape, when it is relabelled"
    )]
    KeysUsedUp {
        /// The volume.
        volser: Volser,
    },
    /// Operator: a node that was lost gave the key out, and of which group it is nobody has said yet.
    #[error(
        "a lost node gave out key {tag} of volume {volser}, and its key group must be confirmed first: a compliance \
         officer does that (`keyd keys confirm {tag} --volume {volser} --group GROUP`)"
    )]
    Unconfirmed {
        /// The volume.
        volser: Volser,
        /// The key.
        tag: KeyTag,
    },
    /// Drive: it begins the volume again and again.
    #[error(
        "many keys were issued to begin volume {volser}, and none of them was reported as used: find out what goes \
         wrong at the drive, and destroy the keys that are ready (`keyd keys list --volume {volser} --state ready`)"
    )]
    BegunInVain {
        /// The volume.
        volser: Volser,
    },
    /// Operator: the policy leaves it to people to take keys out of use.
    #[error(
        "{agent} may not take key {tag} of volume {volser} out of use (policy {policy}): ask a compliance officer, who does it (`keyd keys \
         compromise {tag}`). A policy that is in use stays as it is; they make another for new groups with `keyd policies add NAME --agents-revoke`"
    )]
    RevokingForbidden {
        /// Who asked.
        agent: Name,
        /// The volume.
        volser: Volser,
        /// The key.
        tag: KeyTag,
        /// Its policy.
        policy: Name,
    },
    /// Operator: the policy keeps its keys here.
    #[error("the keys of volume {volser} may not leave the store (policy {policy}): leave the volume out")]
    ExportForbidden {
        /// The volume.
        volser: Volser,
        /// The policy.
        policy: Name,
    },
    /// Operator: the policy lets no foreign keys in.
    #[error("key group {group} takes no keys of other stores (policy {policy}): name another group")]
    ImportForbidden {
        /// The group.
        group: Name,
        /// Its policy.
        policy: Name,
    },
    /// Operator: the name is taken.
    #[error("{what} {name} exists already with other settings: {why}; choose another name")]
    Exists {
        /// `key policy`, `key group`.
        what: &'static str,
        /// The name.
        name: Name,
        /// Why it is not changed.
        why: &'static str,
    },
    /// Operator: a policy of the name is there, and no key was issued under it.
    #[error(
        "key policy {policy} exists already with other settings, and no key was issued under it yet: choose another \
         name, or give all settings again with --replace, which changes the policy for the groups that have it"
    )]
    PolicyThere {
        /// The policy.
        policy: Name,
    },
    /// Operator: a policy that cannot be meant.
    #[error("policy {policy} cannot be: {reason}")]
    Contradiction {
        /// The policy.
        policy: Name,
        /// What is wrong with it.
        reason: String,
    },
    /// Operator: no such data unit.
    #[error("no key was issued for volume {volser}")]
    UnknownUnit {
        /// The volume.
        volser: Volser,
    },
}

impl Realm {
    /// The group of the keys of a pool: that of its name, if there is one.
    pub fn group_of_pool(&self, pool: &str) -> Name {
        pool.parse().ok().filter(|name| self.groups.contains_key(name)).unwrap_or_default()
    }

    /// The policy of a group.
    ///
    /// # Errors
    /// [`RuleRefusal::UnknownGroup`] and [`RuleRefusal::UnknownPolicy`].
    pub fn policy_of(&self, group: &Name) -> Result<&Policy, RuleRefusal> {
        let unknown = || RuleRefusal::UnknownGroup { group: group.clone() };
        let KeyGroup { policy, .. } = self.groups.get(group).ok_or_else(unknown)?;
        self.policies.get(policy).ok_or_else(|| RuleRefusal::UnknownPolicy { policy: policy.clone() })
    }

    /// The key for a volume that is to be written from the beginning of tape. It is always a new one.
    ///
    /// # Errors
    /// [`RuleRefusal::GroupNotAllowed`] if the agent may not use the group;
    /// [`RuleRefusal::OtherCipher`] if its policy asks for
    /// another cipher; else as [`Realm::policy_of`].
    pub fn key_to_begin(&self, agent: &Agent, group: &Name, asked: Algorithm) -> Result<NewKey, RuleRefusal> {
        let policy = self.usable(agent, group)?;
        match policy.algorithm {
            Some(required) if required != asked => {
                Err(RuleRefusal::OtherCipher { group: group.clone(), policy: policy.name.clone(), asked, required })
            }
            _ => Ok(NewKey { group: group.clone(), algorithm: asked }),
        }
    }

    /// The key for an append to a volume that was last written with `carried`: that one while its encryption period
    /// lasts and nothing else took it out of use, else a new one of its group on the same data unit.
    ///
    /// # Errors
    /// [`RuleRefusal::GroupNotAllowed`] if the agent may not use the group;
    /// [`RuleRefusal::KeysUsedUp`] if the volume takes no
    /// further key; else as [`Realm::policy_of`].
    pub fn key_to_append(&self, agent: &Agent, carried: &KeyRecord, now_ns: i64) -> Result<AppendKey, RuleRefusal> {
        let issued = self.issued(carried);
        self.usable(agent, &issued.group)?;
        Ok(match self.state_of(carried, now_ns)? {
            KeyState::Ready | KeyState::ProtectAndProcess => AppendKey::Same,
            KeyState::Generated
            | KeyState::ProcessOnly
            | KeyState::Deactivated
            | KeyState::Compromised
            | KeyState::Destroyed
                if self.keys_of_life(carried) >= KEYS_OF_LIFE_MAX =>
            {
                return Err(RuleRefusal::KeysUsedUp { volser: carried.volser.clone() });
            }
            KeyState::Generated
            | KeyState::ProcessOnly
            | KeyState::Deactivated
            | KeyState::Compromised
            | KeyState::Destroyed => AppendKey::New(NewKey { group: issued.group, algorithm: carried.algorithm }),
        })
    }

    /// How many keys there are for the life of its volume that a key belongs to.
    fn keys_of_life(&self, of: &KeyRecord) -> usize {
        let first = match self.issued(of).issued_for {
            KeyUse::Append { first } => first,
            KeyUse::Begin | KeyUse::Elsewhere => of.tag,
        };
        self.unit(&of.volser).map_or(1, |unit| unit.keys.iter().filter(|key| key.is_of_life(&first)).count())
    }

    /// Whether a key may be given out to read with. A compromised one may: its data is to be moved under another.
    ///
    /// # Errors
    /// [`RuleRefusal::GroupNotAllowed`] if the agent may not use the group;
    /// [`RuleRefusal::CryptoperiodOver`]; else as
    /// [`Realm::policy_of`].
    pub fn check_reading(&self, agent: &Agent, record: &KeyRecord, now_ns: i64) -> Result<(), RuleRefusal> {
        let issued = self.issued(record);
        let policy = self.usable(agent, &issued.group)?;
        let extended =
            self.unit(&record.volser).and_then(|unit| unit.read_until_ns).is_some_and(|until| now_ns < until);
        if self.state_of(record, now_ns)? != KeyState::Deactivated || extended {
            return Ok(());
        }
        Err(RuleRefusal::CryptoperiodOver {
            volser: record.volser.clone(),
            tag: record.tag,
            policy: policy.name.clone(),
            period: policy.cryptoperiod,
            ended_ns: policy.cryptoperiod.end_ns(issued.issued_ns).or(record.retired_ns).unwrap_or(now_ns),
        })
    }

    /// Whether an agent may take a key out of use.
    ///
    /// # Errors
    /// [`RuleRefusal::GroupNotAllowed`] if the agent may not use the group;
    /// [`RuleRefusal::RevokingForbidden`] if its policy
    /// says so; else as [`Realm::policy_of`].
    pub fn check_revoking(&self, agent: &Agent, record: &KeyRecord) -> Result<(), RuleRefusal> {
        let policy = self.usable(agent, &self.issued(record).group)?;
        match policy.agents_revoke {
            Permission::Allowed => Ok(()),
            Permission::Forbidden => Err(RuleRefusal::RevokingForbidden {
                agent: agent.name.clone(),
                volser: record.volser.clone(),
                tag: record.tag,
                policy: policy.name.clone(),
            }),
        }
    }

    /// Whether a key may leave the store.
    ///
    /// # Errors
    /// [`RuleRefusal::ExportForbidden`] if its policy says so; else as [`Realm::policy_of`].
    pub fn check_export(&self, record: &KeyRecord) -> Result<(), RuleRefusal> {
        let policy = self.policy_of(&self.issued(record).group)?;
        match policy.export {
            Permission::Allowed => Ok(()),
            Permission::Forbidden => {
                Err(RuleRefusal::ExportForbidden { volser: record.volser.clone(), policy: policy.name.clone() })
            }
        }
    }

    /// Whether keys of other stores may join a group.
    ///
    /// # Errors
    /// [`RuleRefusal::ImportForbidden`] if its policy says so; else as [`Realm::policy_of`].
    pub fn check_import(&self, group: &Name) -> Result<(), RuleRefusal> {
        let policy = self.policy_of(group)?;
        match policy.import {
            Permission::Allowed => Ok(()),
            Permission::Forbidden => {
                Err(RuleRefusal::ImportForbidden { group: group.clone(), policy: policy.name.clone() })
            }
        }
    }

    /// The state of a key as it is now, its policy's periods considered.
    ///
    /// # Errors
    /// As [`Realm::policy_of`].
    pub fn state_of(&self, record: &KeyRecord, now_ns: i64) -> Result<KeyState, RuleRefusal> {
        let issued = self.issued(record);
        Ok(self.policy_of(&issued.group)?.effective_state(record.state, issued.issued_ns, now_ns))
    }

    /// What is known of the issue of a key. Of one from before there were policies, or from another store, only when it
    /// was drawn.
    pub fn issued(&self, record: &KeyRecord) -> IssuedKey {
        self.unit(&record.volser).and_then(|unit| unit.key(&record.tag)).cloned().unwrap_or_else(|| IssuedKey {
            tag: record.tag,
            group: Name::default(),
            issued_for: KeyUse::Begin,
            issued_ns: record.created_ns,
            dropped_ns: None,
        })
    }

    /// Checks a policy that is to be made, or that is there and is said again.
    pub(crate) fn check_policy(&self, policy: &Policy, known: KnownPolicy) -> Result<(), RuleRefusal> {
        if let Some(reason) = policy.contradiction() {
            return Err(RuleRefusal::Contradiction { policy: policy.name.clone(), reason });
        }
        match self.policies.get(&policy.name) {
            Some(there) if there == policy => Ok(()),
            Some(_) if policy.name.is_default() => {
                Err(exists("key policy", &policy.name, "keys that nobody has said anything of rely on it"))
            }
            Some(_) if self.is_used(&policy.name) => {
                Err(exists("key policy", &policy.name, "keys were issued under it"))
            }
            Some(_) if known == KnownPolicy::Stays => Err(RuleRefusal::PolicyThere { policy: policy.name.clone() }),
            _ => Ok(()),
        }
    }

    /// Whether a key was issued under a policy.
    pub fn is_used(&self, policy: &Name) -> bool {
        let mut groups = self.used_groups.iter().filter_map(|group| self.groups.get(group));
        groups.any(|group| group.policy == *policy)
    }

    /// Checks a group that is to be made, or that is there and is said again.
    pub(crate) fn check_group(&self, group: &KeyGroup) -> Result<(), RuleRefusal> {
        if !self.policies.contains_key(&group.policy) {
            return Err(RuleRefusal::UnknownPolicy { policy: group.policy.clone() });
        }
        match self.groups.get(&group.name) {
            Some(there) if there != group => Err(exists("key group", &group.name, "a group keeps its policy")),
            _ => Ok(()),
        }
    }

    /// Checks what is to be said of an agent.
    pub(crate) fn check_agent(&self, agent: &Agent) -> Result<(), RuleRefusal> {
        for group in agent.groups.iter().chain([&agent.default_group]) {
            self.policy_of(group)?;
        }
        if !agent.may_use(&agent.default_group) {
            return Err(RuleRefusal::GroupNotAllowed { agent: agent.name.clone(), group: agent.default_group.clone() });
        }
        Ok(())
    }

    /// The policy of a group that the agent may use.
    fn usable(&self, agent: &Agent, group: &Name) -> Result<&Policy, RuleRefusal> {
        let policy = self.policy_of(group)?;
        if !agent.may_use(group) {
            return Err(RuleRefusal::GroupNotAllowed { agent: agent.name.clone(), group: group.clone() });
        }
        Ok(policy)
    }
}

fn exists(what: &'static str, name: &Name, why: &'static str) -> RuleRefusal {
    RuleRefusal::Exists { what, name: name.clone(), why }
}

#[cfg(test)]
mod tests;
