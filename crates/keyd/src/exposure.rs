//! What a compromise exposes, and in which order the data gets other keys.
//!
//! ```text
//! who is suspected (agent, key, KMA) --> keys they may know --> data units that still hold blocks under these keys --> plan
//! ```
//! Functions of [`ExposureFacts`]; nothing here asks or changes anything. What counts, decided:
//! - **An agent** may know the keys that were handed to it, no others; from a time on, if somebody says since when it
//!   is suspected.
//! - **A KMA** may know every key that was drawn before it was removed, for it has a replica of all. Those that it
//!   handed out itself lay open in its memory; the others lie sealed, and it takes the cluster key to open them. Both
//!   are exposed, the first come first.
//! - **An export** lays open every key in it to whoever has the file and its passphrase, also where somebody has said
//!   that it is destroyed: what they knew they may have copied before. A key that is suspected names the exports that
//!   have it.
//! - **A key that is destroyed here** may be known there: destroying it does not take it back. Such data cannot be
//!   copied any more, so the cartridge is to be destroyed.
//! - **A key whose data unit was begun anew since** exposes nothing that is still on it, where the key's own cartridge
//!   is known to be the one that was begun anew, or erased: its serial number then agrees with the one that the key was
//!   begun on. A label can be stuck on another cartridge, and the first one lies in a drawer as it was; so where that
//!   is not known the key stays exposed, and the plan says so. Copies made of a cartridge before are not known here.

mod plan;
mod unread;

use std::collections::{BTreeMap, BTreeSet};

use capstan_format::{KeyTag, Volser};
use capstan_keys::{DataUnit, IssuedKey, KeyRecord, KeyState, KeyUse, Name};

pub use plan::{RekeyPlan, RekeyStep, Remedy};
pub use unread::{Lack, Unread};

/// A key that was handed out, as issue records and the audit log tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handed {
    /// The key.
    pub tag: KeyTag,
    /// To whom.
    pub agent: Name,
    /// By which node.
    pub kma: Name,
    /// When, in nanoseconds since 1970.
    pub at_ns: i64,
}

/// An export, and which keys left in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Its request.
    pub id: String,
    /// Who has it.
    pub by: Name,
    /// When it was made, in nanoseconds since 1970.
    pub made_ns: i64,
    /// When somebody said that it is destroyed.
    pub destroyed_ns: Option<i64>,
    /// Its keys, as far as they matter to the suspect.
    pub keys: BTreeSet<KeyTag>,
}

/// What is known at a moment.
#[derive(Debug, Clone, Default)]
pub struct ExposureFacts {
    /// All data units with the keys that were issued for them.
    pub units: Vec<DataUnit>,
    /// All keys.
    pub keys: BTreeMap<KeyTag, KeyRecord>,
    /// Every time that a key was handed out.
    pub handed: Vec<Handed>,
    /// Nodes that were removed, and when.
    pub removed_kmas: BTreeMap<Name, i64>,
    /// What has left the cluster.
    pub exports: Vec<Exported>,
}

/// Who or what is suspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Suspect {
    /// A drive, or whoever had its certificate.
    Agent {
        /// Which.
        name: Name,
        /// Since when; none for ever.
        since_ns: Option<i64>,
    },
    /// A key that others may know.
    Key(KeyTag),
    /// A node.
    Kma(Name),
    /// An export whose file and passphrase others may have; by its request.
    Export(String),
}

/// Why a key is exposed; the worst comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is the key that is suspected.
    Suspected,
    /// It lay open at the suspect.
    HandedOut {
        /// By which node.
        kma: Name,
        /// To which agent.
        agent: Name,
        /// When first.
        at_ns: i64,
    },
    /// It left in the export that is suspected.
    Exported {
        /// Who carried the export out.
        by: Name,
        /// When.
        at_ns: i64,
    },
    /// The suspect had it sealed.
    InReplica,
}

/// A key that is exposed, on a data unit that holds blocks under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedKey {
    /// The key.
    pub tag: KeyTag,
    /// Where it stands in its life; none where no record of it is left.
    pub state: Option<KeyState>,
    /// Why.
    pub why: Why,
    /// When the barcode was begun anew without it, if it was: its own cartridge is not known to have been that one.
    pub dropped_ns: Option<i64>,
}

/// A data unit on which something can be read by who should not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedUnit {
    /// Its barcode.
    pub volser: Volser,
    /// When it was written last, as far as keys tell.
    pub last_seen_ns: i64,
    /// The exposed keys it holds, in the order of their issue.
    pub keys: Vec<ExposedKey>,
    /// How many keys it holds in all.
    pub keys_in_all: usize,
}

impl ExposedUnit {
    /// The worst of the reasons.
    fn worst(&self) -> Option<&Why> {
        self.keys.iter().map(|key| &key.why).min()
    }

    fn is_written_still(&self) -> bool {
        let writes = |key: &ExposedKey| matches!(key.state, Some(KeyState::Ready | KeyState::ProtectAndProcess));
        self.keys.iter().any(writes)
    }
}

/// The exports that matter to a suspect: those that have the key, or the one that is suspected.
pub fn exports_of(view: &ExposureFacts, suspect: &Suspect) -> Vec<Exported> {
    let matters = |export: &&Exported| match suspect {
        Suspect::Key(tag) => export.keys.contains(tag),
        Suspect::Export(id) => export.id == *id,
        Suspect::Agent { .. } | Suspect::Kma(_) => false,
    };
    view.exports.iter().filter(matters).cloned().collect()
}

/// The data units that a compromise exposes, by barcode.
pub fn exposure(view: &ExposureFacts, suspect: &Suspect) -> Vec<ExposedUnit> {
    let known = known_keys(view, suspect);
    let mut units: Vec<_> = view.units.iter().filter_map(|unit| exposed_unit(view, unit, &known)).collect();
    units.sort_by(|one, other| one.volser.cmp(&other.volser));
    units
}

fn exposed_unit(view: &ExposureFacts, unit: &DataUnit, known: &BTreeMap<KeyTag, Why>) -> Option<ExposedUnit> {
    let held: Vec<_> = unit.keys.iter().filter(|key| may_hold(view, unit, key)).collect();
    let exposed = |key: &IssuedKey| {
        let (tag, dropped_ns) = (key.tag, key.dropped_ns);
        let state = view.keys.get(&tag).map(|record| record.state);
        known.get(&tag).map(|why| ExposedKey { tag, state, why: why.clone(), dropped_ns })
    };
    let keys: Vec<_> = held.iter().filter_map(|key| exposed(key)).collect();
    (!keys.is_empty()).then(|| ExposedUnit {
        volser: unit.volser.clone(),
        last_seen_ns: unit.last_seen_ns,
        keys,
        keys_in_all: held.len(),
    })
}

/// Whether something may still be there under a key: its volume was not begun anew, or not, as far as is known, on the
/// same cartridge.
fn may_hold(view: &ExposureFacts, unit: &DataUnit, key: &IssuedKey) -> bool {
    let Some(dropped_ns) = key.dropped_ns else { return true };
    let first = match key.issued_for {
        KeyUse::Append { first } => first,
        KeyUse::Begin | KeyUse::Elsewhere => key.tag,
    };
    // One that was never reported as used has written nothing: it was issued for a life that did not begin.
    let Some(record) = view.keys.get(&first) else { return true };
    match record.activated_ns {
        Some(begun_ns) => !unit.cartridges.is_overwritten(begun_ns, dropped_ns),
        None => key.issued_for == KeyUse::Elsewhere,
    }
}

/// The keys that the suspect may know, each with the worst reason.
fn known_keys(view: &ExposureFacts, suspect: &Suspect) -> BTreeMap<KeyTag, Why> {
    let mut known: BTreeMap<KeyTag, Why> = BTreeMap::new();
    let mut knows = |tag: KeyTag, why: Why| {
        let worst = known.entry(tag).or_insert_with(|| why.clone());
        if why < *worst {
            *worst = why;
        }
    };
    // Of several times the first one counts.
    let mut handed: Vec<_> = view.handed.iter().collect();
    handed.sort_by_key(|handed| std::cmp::Reverse(handed.at_ns));
    let first = |which: &dyn Fn(&Handed) -> bool| -> BTreeMap<KeyTag, &Handed> {
        handed.iter().filter(|handed| which(handed)).map(|handed| (handed.tag, *handed)).collect()
    };
    let why = |handed: &Handed| {
        let Handed { kma, agent, at_ns, .. } = handed.clone();
        Why::HandedOut { kma, agent, at_ns }
    };
    match suspect {
        Suspect::Key(tag) => knows(*tag, Why::Suspected),
        Suspect::Agent { name, since_ns } => {
            let to_it =
                |handed: &Handed| handed.agent == *name && since_ns.is_none_or(|since_ns| handed.at_ns >= since_ns);
            first(&to_it).into_iter().for_each(|(tag, handed)| knows(tag, why(handed)));
        }
        Suspect::Export(id) => {
            for export in view.exports.iter().filter(|export| export.id == *id) {
                let why = Why::Exported { by: export.by.clone(), at_ns: export.made_ns };
                export.keys.iter().for_each(|tag| knows(*tag, why.clone()));
            }
        }
        Suspect::Kma(name) => {
            first(&|handed| handed.kma == *name).into_iter().for_each(|(tag, handed)| knows(tag, why(handed)));
            let removed_ns = view.removed_kmas.get(name);
            let issued = view.units.iter().flat_map(|unit| &unit.keys).map(|key| key.tag);
            let tags: BTreeSet<KeyTag> = view.keys.keys().copied().chain(issued).collect();
            for tag in tags {
                // A key without a record is taken for an old one.
                let created_ns = view.keys.get(&tag).map_or(i64::MIN, |record| record.created_ns);
                if removed_ns.is_none_or(|&removed_ns| created_ns <= removed_ns) {
                    knows(tag, Why::InReplica);
                }
            }
        }
    }
    known
}

#[cfg(test)]
mod tests;
