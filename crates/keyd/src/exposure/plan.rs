//! The order in which exposed data gets other keys.

use std::cmp::Reverse;
use std::fmt;

use capstan_format::KeyTag;
use capstan_keys::KeyState;
use serde_json::{Value, json};

use super::{Exported, ExposedUnit, Suspect, Why};
use capstan_service::time::rfc3339;

/// What is to be done with a data unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Its data is copied to volumes with other keys, and it is labelled anew.
    CopyAndLabel,
    /// The exposed keys are destroyed here, so that nobody can copy what is under them: the cartridge is destroyed.
    DestroyCartridge,
}

impl Remedy {
    fn words(self) -> &'static str {
        match self {
            Self::CopyAndLabel => {
                "copy what matters to volumes with other keys, then label it anew and destroy its old keys"
            }
            Self::DestroyCartridge => {
                "its exposed keys are destroyed here and may be known elsewhere: destroy the cartridge"
            }
        }
    }
}

/// One data unit of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RekeyStep {
    /// What is exposed on it.
    pub unit: ExposedUnit,
    /// What is to be done.
    pub remedy: Remedy,
}

/// What is to be done after a compromise, the most pressing first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RekeyPlan {
    suspect: Suspect,
    exports: Vec<Exported>,
    steps: Vec<RekeyStep>,
}

impl RekeyPlan {
    /// A plan for what [`super::exposure`] and [`super::exports_of`] found.
    ///
    /// Data units that are still written under an exposed key come first, for each hour adds to what can be read; then
    /// those whose keys lay open at the suspect, then those that it had sealed; among these the ones written last,
    /// which are kept longest.
    pub fn new(suspect: Suspect, exports: Vec<Exported>, exposed: Vec<ExposedUnit>) -> Self {
        let step = |unit: ExposedUnit| {
            let gone = |state: &Option<KeyState>| *state == Some(KeyState::Destroyed);
            let remedy = if unit.keys.iter().all(|key| gone(&key.state)) {
                Remedy::DestroyCartridge
            } else {
                Remedy::CopyAndLabel
            };
            RekeyStep { unit, remedy }
        };
        let mut steps: Vec<_> = exposed.into_iter().map(step).collect();
        let rank = |step: &RekeyStep| {
            let reason = match step.unit.worst() {
                Some(Why::Suspected | Why::HandedOut { .. } | Why::Exported { .. }) => 0,
                Some(Why::InReplica) | None => 1,
            };
            (!step.unit.is_written_still(), reason, Reverse(step.unit.last_seen_ns), step.unit.volser.clone())
        };
        steps.sort_by_cached_key(rank);
        Self { suspect, exports, steps }
    }

    /// The data units in their order.
    pub fn steps(&self) -> &[RekeyStep] {
        &self.steps
    }

    /// The keys to be reported as compromised before anything else, so that nothing more is written under them.
    pub fn keys_to_compromise(&self) -> Vec<KeyTag> {
        let open = |state: &Option<KeyState>| !matches!(state, Some(KeyState::Destroyed | KeyState::Compromised));
        let keys = self.steps.iter().flat_map(|step| &step.unit.keys).filter(|key| open(&key.state));
        let mut tags: Vec<_> = keys.map(|key| key.tag).collect();
        tags.sort();
        tags.dedup();
        tags
    }

    /// The plan for other programs.
    pub fn to_json(&self) -> Value {
        let (kind, name) = named(&self.suspect);
        let step = |step: &RekeyStep| {
            let remedy = match step.remedy {
                Remedy::CopyAndLabel => "copy-and-label",
                Remedy::DestroyCartridge => "destroy-cartridge",
            };
            let keys = step.unit.keys.iter().map(|key| {
                let state = key.state.map(KeyState::name);
                let dropped = key.dropped_ns.map(rfc3339);
                json!({ "tag": key.tag.to_string(), "state": state, "why": words(&key.why), "begun_anew": dropped })
            });
            let keys: Vec<_> = keys.collect();
            json!({
                "barcode": step.unit.volser.to_string(), "remedy": remedy, "keys": keys,
                "keys_in_all": step.unit.keys_in_all, "last_seen": rfc3339(step.unit.last_seen_ns),
            })
        };
        let compromise: Vec<_> = self.keys_to_compromise().iter().map(KeyTag::to_string).collect();
        let steps: Vec<_> = self.steps.iter().map(step).collect();
        let exports: Vec<_> = self.exports.iter().map(export).collect();
        json!({
            "suspect": { "kind": kind, "name": name }, "exports": exports, "keys_to_compromise": compromise, "steps": steps,
        })
    }
}

fn named(suspect: &Suspect) -> (&'static str, String) {
    match suspect {
        Suspect::Agent { name, .. } => ("agent", name.to_string()),
        Suspect::Key(tag) => ("key", tag.to_string()),
        Suspect::Kma(name) => ("kma", name.to_string()),
        Suspect::Export(id) => ("export", id.clone()),
    }
}

fn export(export: &Exported) -> Value {
    let destroyed = export.destroyed_ns.map(rfc3339);
    json!({ "id": export.id, "by": export.by, "made": rfc3339(export.made_ns), "destroyed": destroyed })
}

fn words(why: &Why) -> String {
    match why {
        Why::Suspected => "it is the suspected key".to_owned(),
        Why::HandedOut { kma, agent, at_ns } => format!("{kma} handed it to {agent} on {}", rfc3339(*at_ns)),
        Why::Exported { by, at_ns } => format!("it left in the export, which {by} carried out on {}", rfc3339(*at_ns)),
        Why::InReplica => "sealed in the node's replica".to_owned(),
    }
}

impl fmt::Display for RekeyPlan {
    /// The plan in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = named(&self.suspect);
        for Exported { id, by, made_ns, destroyed_ns, .. } in &self.exports {
            let which = if matches!(self.suspect, Suspect::Export(_)) { "the suspect" } else { "has the key" };
            let said = destroyed_ns.map(|at_ns| format!("; said to be destroyed on {}", rfc3339(at_ns)));
            writeln!(
                f,
                "export {id} {which}: carried out by {by} on {}{}",
                rfc3339(*made_ns),
                said.unwrap_or_default()
            )?;
        }
        if self.steps.is_empty() {
            return write!(f, "{kind} {name} exposes no data unit");
        }
        let units = self.steps.len();
        writeln!(f, "{kind} {name} exposes {units} data unit{}", if units == 1 { "" } else { "s" })?;
        match &self.suspect {
            Suspect::Agent { name, .. } => writeln!(f, "1. revoke agent {name}")?,
            Suspect::Kma(name) => writeln!(f, "1. remove node {name}, and change the credentials of the root key")?,
            Suspect::Key(_) => writeln!(f, "1. find out who has the key")?,
            Suspect::Export(_) => {
                writeln!(
                    f,
                    "1. destroy all copies of the export that you have; then `keyd exports confirm-destroyed {name}`"
                )?;
            }
        }
        writeln!(
            f,
            "2. report {} keys as compromised, so that nothing more is written under them",
            self.keys_to_compromise().len()
        )?;
        writeln!(f, "3. in this order:")?;
        for step in &self.steps {
            writeln!(f, "   {}: {}", step.unit.volser, step.remedy.words())?;
            for key in &step.unit.keys {
                let state = key.state.map_or("unknown", KeyState::name);
                writeln!(f, "      key {} ({state}): {}", key.tag, words(&key.why))?;
                if let Some(dropped_ns) = key.dropped_ns {
                    writeln!(
                        f,
                        "      this barcode was begun anew without it on {}, and not as far as is known on the same cartridge: look for the other one",
                        rfc3339(dropped_ns)
                    )?;
                }
            }
        }
        Ok(())
    }
}
