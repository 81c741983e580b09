//! Objects in memory, found by their terms: what a node answers from.
//!
//! Every object has a slot, and every term the slots of the objects that have it. A search takes the term with the
//! fewest slots and looks at those alone: a million cartridges are not in the way of a Locate by name. Terms are kept
//! as 64-bit hashes with a key of the process's own; two terms that fall together cost a look, not a wrong answer.
//!
//! What was destroyed is kept, and found by its Unique Identifier alone.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

use thiserror::Error;

use crate::lifecycle::Material;
use crate::object::{KeyMaterial, ManagedObject};
use crate::store::{MaterialUnavailable, ObjectChange, ObjectStore, Stored};
use crate::term::Term;

/// The objects without their material.
#[derive(Debug, Default)]
pub struct ObjectIndex {
    slots: Vec<Option<Stored>>,
    free: Vec<u32>,
    by_uid: HashMap<String, u32>,
    by_term: HashMap<u64, Slots>,
    hasher: RandomState,
}

/// Most terms have one object: a set for each would be most of the memory.
#[derive(Debug)]
enum Slots {
    One(u32),
    Many(BTreeSet<u32>),
}

impl ObjectIndex {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many objects there are, destroyed ones too.
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }

    /// The object with this Unique Identifier.
    pub fn find(&self, uid: &str) -> Option<&Stored> {
        self.slots[*self.by_uid.get(uid)? as usize].as_ref()
    }

    /// Puts an object there, in place of the one with its Unique Identifier.
    pub fn put(&mut self, object: Arc<ManagedObject>, version: i64) {
        self.remove(&object.uid);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        for term in self.hashes(&object) {
            match self.by_term.entry(term) {
                Entry::Vacant(entry) => {
                    entry.insert(Slots::One(slot));
                }
                Entry::Occupied(mut entry) => match entry.get_mut() {
                    Slots::One(other) if *other == slot => {}
                    Slots::One(other) => *entry.get_mut() = Slots::Many(BTreeSet::from([*other, slot])),
                    Slots::Many(slots) => {
                        slots.insert(slot);
                    }
                },
            }
        }
        self.by_uid.insert(object.uid.clone(), slot);
        self.slots[slot as usize] = Some(Stored { object, version });
    }

    /// Takes an object away.
    pub fn remove(&mut self, uid: &str) {
        let Some(slot) = self.by_uid.remove(uid) else { return };
        let Some(stored) = self.slots[slot as usize].take() else { return };
        self.free.push(slot);
        for term in self.hashes(&stored.object) {
            let Entry::Occupied(mut entry) = self.by_term.entry(term) else { continue };
            let left = match entry.get_mut() {
                Slots::One(_) => 0,
                Slots::Many(slots) => {
                    slots.remove(&slot);
                    slots.len()
                }
            };
            if left == 0 {
                entry.remove();
            }
        }
    }

    /// Shows what [`ObjectStore::visit`] asks for.
    pub fn visit(&self, domain: &str, terms: &[Term], visitor: &mut dyn FnMut(&Stored)) {
        let found: Option<Vec<&Slots>> = terms.iter().map(|term| self.by_term.get(&self.hash(domain, term))).collect();
        // A term that nothing has: nothing has all of them.
        let Some(found) = found else { return };
        let fewest = found.into_iter().min_by_key(|slots| match slots {
            Slots::One(_) => 1,
            Slots::Many(slots) => slots.len(),
        });
        let mut show = |slot: u32| {
            let stored = self.slots[slot as usize].as_ref();
            if let Some(stored) = stored.filter(|stored| stored.object.domain == domain && findable(&stored.object)) {
                visitor(stored);
            }
        };
        match fewest {
            Some(Slots::One(slot)) => show(*slot),
            Some(Slots::Many(slots)) => slots.iter().copied().for_each(show),
            None => self.by_uid.values().copied().for_each(show),
        }
    }

    fn hash(&self, domain: &str, term: &Term) -> u64 {
        self.hasher.hash_one((domain, term))
    }

    fn hashes(&self, object: &ManagedObject) -> Vec<u64> {
        if !findable(object) {
            return Vec::new();
        }
        object.terms().iter().map(|term| self.hash(&object.domain, term)).collect()
    }
}

fn findable(object: &ManagedObject) -> bool {
    object.material() == Material::Kept
}

/// A change that no longer fits: someone else was faster. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{uid} was changed meanwhile: decide again")]
pub struct Conflict {
    /// The first object that is not as it was expected.
    pub uid: String,
}

/// A whole store in memory, its material in the clear: for tests, and to try clients out.
#[derive(Default)]
pub struct MemoryStore {
    index: ObjectIndex,
    material: HashMap<String, Arc<KeyMaterial>>,
    revision: i64,
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// The objects.
    pub fn index(&self) -> &ObjectIndex {
        &self.index
    }

    /// Makes all the changes, or none.
    ///
    /// # Errors
    /// [`Conflict`] if an object is not of the version that a change expects, or one to be inserted exists.
    pub fn apply(&mut self, changes: &[ObjectChange]) -> Result<(), Conflict> {
        for change in changes {
            let found = self.index.find(&change.object().uid).map(|stored| stored.version);
            let expected = match change {
                ObjectChange::Insert { .. } => None,
                ObjectChange::Replace { expected, .. } | ObjectChange::Destroy { expected, .. } => Some(*expected),
            };
            if found != expected {
                return Err(Conflict { uid: change.object().uid.clone() });
            }
        }
        self.revision += 1;
        for change in changes {
            let object = change.object();
            match change {
                ObjectChange::Insert { material: Some(material), .. } => {
                    self.material.insert(object.uid.clone(), Arc::clone(material));
                }
                ObjectChange::Insert { material: None, .. } | ObjectChange::Replace { .. } => {}
                ObjectChange::Destroy { .. } => {
                    self.material.remove(&object.uid);
                }
            }
            self.index.put(Arc::clone(object), self.revision);
        }
        Ok(())
    }
}

impl ObjectStore for MemoryStore {
    fn find(&self, uid: &str) -> Option<Stored> {
        self.index.find(uid).cloned()
    }

    fn material(&self, uid: &str) -> Result<Option<Arc<KeyMaterial>>, MaterialUnavailable> {
        Ok(self.material.get(uid).cloned())
    }

    fn visit(&self, domain: &str, terms: &[Term], visitor: &mut dyn FnMut(&Stored)) {
        self.index.visit(domain, terms, visitor);
    }
}
