//! The view of a batch: the store as it would be after what the batch has decided so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::enumeration::ResultReason;
use crate::lifecycle::Material;
use crate::object::{KeyMaterial, ManagedObject};
use crate::refusal::Refused;
use crate::store::{ObjectChange, ObjectStore, Stored};
use crate::term::Term;

/// An object that the batch changes.
#[derive(Clone)]
struct Pending {
    object: Arc<ManagedObject>,
    /// The version in the store, `None` for what is not there yet.
    base: Option<i64>,
    /// Of what is not there yet.
    material: Option<Arc<KeyMaterial>>,
    weight: Weight,
}

/// Whether the answer rests on a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// It is only noted, as that a fresh key was read: it may be lost.
    Noted,
    /// It must be committed before the answer leaves.
    Needed,
}

pub(crate) struct View<'a> {
    store: &'a dyn ObjectStore,
    domain: &'a str,
    pending: BTreeMap<String, Pending>,
}

/// Where a batch stood, to go back to.
pub(crate) struct Mark(BTreeMap<String, Pending>);

impl<'a> View<'a> {
    pub(crate) fn new(store: &'a dyn ObjectStore, domain: &'a str) -> Self {
        Self { store, domain, pending: BTreeMap::new() }
    }

    pub(crate) fn domain(&self) -> &'a str {
        self.domain
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark(self.pending.clone())
    }

    pub(crate) fn back_to(&mut self, mark: Mark) {
        self.pending = mark.0;
    }

    /// The object with this Unique Identifier, if it is one of the requester's domain.
    pub(crate) fn find(&self, uid: &str) -> Result<Arc<ManagedObject>, Refused> {
        let pending = self.pending.get(uid).map(|pending| Arc::clone(&pending.object));
        let found = pending.or_else(|| self.store.find(uid).map(|stored| stored.object));
        found
            .filter(|object| object.domain == self.domain)
            .ok_or_else(|| Refused::new(ResultReason::ObjectNotFound, "there is no object with this Unique Identifier"))
    }

    /// The material of an object that has some.
    pub(crate) fn material(&self, object: &ManagedObject) -> Result<Arc<KeyMaterial>, Refused> {
        if object.material() == Material::Gone {
            return Err(Refused::new(
                ResultReason::ObjectDestroyed,
                "the object was destroyed: only its attributes are left",
            ));
        }
        let pending = self.pending.get(&object.uid).and_then(|pending| pending.material.clone());
        let found = match pending {
            Some(material) => Some(material),
            None => self
                .store
                .material(&object.uid)
                .map_err(|unavailable| Refused::new(ResultReason::GeneralFailure, unavailable.to_string()))?,
        };
        found.ok_or_else(|| Refused::new(ResultReason::IllegalObjectType, "this kind of object has no material"))
    }

    pub(crate) fn insert(&mut self, object: ManagedObject, material: Option<KeyMaterial>) {
        let uid = object.uid.clone();
        let material = material.map(Arc::new);
        self.pending.insert(uid, Pending { object: Arc::new(object), base: None, material, weight: Weight::Needed });
    }

    /// Replaces an object that was found here.
    pub(crate) fn replace(&mut self, object: ManagedObject, weight: Weight) {
        let uid = object.uid.clone();
        let object = Arc::new(object);
        match self.pending.get_mut(&uid) {
            Some(pending) => {
                pending.weight = pending.weight.max(weight);
                if object.material() == Material::Gone {
                    pending.material = None;
                }
                pending.object = object;
            }
            None => {
                let base = self.store.find(&uid).map(|stored| stored.version);
                self.pending.insert(uid, Pending { object, base, material: None, weight });
            }
        }
    }

    /// Shows every object of the domain that has the terms, and maybe others.
    pub(crate) fn visit(&self, terms: &[Term], visitor: &mut dyn FnMut(&Arc<ManagedObject>)) {
        self.store.visit(self.domain, terms, &mut |stored: &Stored| {
            if !self.pending.contains_key(&stored.object.uid) {
                visitor(&stored.object);
            }
        });
        for pending in self.pending.values() {
            if pending.object.domain == self.domain && pending.object.material() == Material::Kept {
                visitor(&pending.object);
            }
        }
    }

    /// What the batch has decided: the needed changes, and the noted ones.
    pub(crate) fn into_changes(self) -> (Vec<ObjectChange>, Vec<ObjectChange>) {
        let (mut needed, mut noted) = (Vec::new(), Vec::new());
        for Pending { object, base, material, weight } in self.pending.into_values() {
            let change = match base {
                None => ObjectChange::Insert { object, material },
                Some(expected) if object.material() == Material::Gone => ObjectChange::Destroy { object, expected },
                Some(expected) => ObjectChange::Replace { object, expected },
            };
            match weight {
                Weight::Needed => needed.push(change),
                Weight::Noted => noted.push(change),
            }
        }
        (needed, noted)
    }
}
