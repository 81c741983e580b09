//! What the rules look at beside the keys themselves: policies, key groups, agents, data units.
//!
//! ```text
//! policy 1 ---- n key group 1 ---- n key n ---- 1 data unit (cartridge)
//!                     n
//!                     |
//!                     n
//!                   agent (drive): the groups it may use, and the one it uses unasked
//! ```
//! The rules ([`Realm::key_to_begin`], [`Realm::key_to_append`], [`Realm::check_reading`]) are functions of a realm,
//! the records of keys, and a time that the caller gives; they change nothing. A store records what they decide.
//!
//! A policy's periods run from the first issue of a key. That one is over shows in a key's *effective* state and is not
//! written into its record: a clock that is wrong by years for a minute must not retire every key for good. What
//! follows from it, a newer key on the volume, is recorded as ever.
//!
//! The group and the policy `default` are always there, without limits: what keys belong to that nobody has said
//! anything of.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use capstan_format::{KeyTag, Volser};

mod agent;
mod cartridge;
mod name;
mod policy;
mod record;
mod remedy;
mod rules;
mod unit;

pub use agent::Agent;
pub use cartridge::{Cartridge, SeenAs, SeenCartridge, SeenCartridges};
pub use name::{InvalidName, Name};
pub use policy::{KeyGroup, Period, Permission, Policy};
pub use record::{RealmRecord, RecordKind};
pub(crate) use remedy::Keeper;
pub use rules::{AppendKey, KnownPolicy, NewKey, RuleRefusal};
pub use unit::{DataUnit, IssuedKey, KeyUse};

/// Policies, key groups, agents and data units, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Realm {
    policies: BTreeMap<Name, Policy>,
    groups: BTreeMap<Name, KeyGroup>,
    agents: BTreeMap<Name, Agent>,
    units: BTreeMap<Volser, DataUnit>,
    /// Groups that a key was issued of.
    used_groups: BTreeSet<Name>,
}

impl Default for Realm {
    /// Nothing but the group and the policy `default`.
    fn default() -> Self {
        let mut realm = Self {
            policies: BTreeMap::new(),
            groups: BTreeMap::new(),
            agents: BTreeMap::new(),
            units: BTreeMap::new(),
            used_groups: BTreeSet::new(),
        };
        let policy = Policy::unlimited(Name::default());
        realm.groups.insert(Name::default(), KeyGroup { name: Name::default(), policy: policy.name.clone() });
        realm.policies.insert(policy.name.clone(), policy);
        realm
    }
}

impl Realm {
    /// All policies, by name.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.values()
    }

    /// All key groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = &KeyGroup> {
        self.groups.values()
    }

    /// All agents that something was said of, by name.
    pub fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.values()
    }

    /// All data units that a key was issued for since there are policies, by barcode.
    pub fn units(&self) -> impl Iterator<Item = &DataUnit> {
        self.units.values()
    }

    /// How many there are.
    pub fn unit_count(&self) -> usize {
        self.units.len()
    }

    /// Those behind a barcode, by barcode: whoever looks at all of them need not do so at once.
    pub fn units_after(&self, after: Option<&Volser>) -> impl Iterator<Item = &DataUnit> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.units.range::<Volser, _>((from, Bound::Unbounded)).map(|(_, unit)| unit)
    }

    /// A key group.
    pub fn group(&self, name: &Name) -> Option<&KeyGroup> {
        self.groups.get(name)
    }

    /// An agent: one that nobody has said anything of may use every group, and uses `default` unasked.
    pub fn agent(&self, name: &Name) -> Agent {
        self.agents.get(name).cloned().unwrap_or_else(|| Agent::anything(name.clone()))
    }

    /// A data unit.
    pub fn unit(&self, volser: &Volser) -> Option<&DataUnit> {
        self.units.get(volser)
    }

    /// What an operation on one volume looks at: everything but the other volumes, and agents, which say themselves
    /// what they may. Without a volume it is what operations on policies and groups look at.
    pub fn about(&self, volser: Option<&Volser>) -> Self {
        let unit = volser.and_then(|volser| self.units.get_key_value(volser));
        Self {
            policies: self.policies.clone(),
            groups: self.groups.clone(),
            agents: BTreeMap::new(),
            units: unit.into_iter().map(|(volser, unit)| (volser.clone(), unit.clone())).collect(),
            used_groups: self.used_groups.clone(),
        }
    }

    /// Takes out what was said of an agent.
    pub fn remove_agent(&mut self, name: &Name) {
        self.agents.remove(name);
    }

    /// Takes out that a key was issued for a volume: it was another's.
    pub fn remove_issue(&mut self, volser: &Volser, tag: &KeyTag) {
        if let Some(unit) = self.units.get_mut(volser) {
            unit.keys.retain(|key| key.tag != *tag);
        }
    }

    /// Takes a record in, in the place of the one that has its name.
    pub fn put(&mut self, record: RealmRecord) {
        match record {
            RealmRecord::Policy(policy) => drop(self.policies.insert(policy.name.clone(), policy)),
            RealmRecord::Group(group) => drop(self.groups.insert(group.name.clone(), group)),
            RealmRecord::Agent(agent) => drop(self.agents.insert(agent.name.clone(), agent)),
            RealmRecord::Unit(unit) => {
                let keys = self.units.remove(&unit.volser).map(|unit| unit.keys).unwrap_or_default();
                self.units.insert(unit.volser.clone(), DataUnit { keys, ..unit });
            }
            RealmRecord::Issue { volser, key } => {
                if !self.used_groups.contains(&key.group) {
                    self.used_groups.insert(key.group.clone());
                }
                let unit =
                    self.units.entry(volser.clone()).or_insert_with(|| DataUnit::first_seen(volser, key.issued_ns));
                match unit.keys.iter_mut().find(|known| known.tag == key.tag) {
                    Some(known) => *known = key,
                    None => {
                        // Most have one key all their life, and a vector begins with room for four.
                        if unit.keys.is_empty() {
                            unit.keys.reserve_exact(1);
                        }
                        unit.keys.push(key);
                    }
                }
            }
        }
    }
}
