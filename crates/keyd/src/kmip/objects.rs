//! The objects that a node knows, and the view that decisions about them read.

use std::collections::HashMap;
use std::sync::Arc;

use capstan_kmip::{
    KeyMaterial, ManagedObject, Material, MaterialUnavailable, ObjectChange, ObjectIndex, ObjectStore, Stored, Term,
};

use super::record::{Attempt, KmipObjectRecord, ObjectError, unwrap, wrap};
use crate::mark::Mark;
use crate::path::Path;
use crate::root::ClusterKeys;

/// The objects of all clients, their material wrapped.
#[derive(Default)]
pub struct Objects {
    index: ObjectIndex,
    kept: HashMap<String, Kept>,
    /// What each domain has.
    usage: HashMap<String, Usage>,
}

/// What the objects of a domain take of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Those that are not destroyed.
    pub objects: u64,
    /// The bytes of all records, of destroyed ones too.
    pub bytes: u64,
}

/// What is known of an object beside itself.
struct Kept {
    mark: Mark,
    attempt: Attempt,
    wrapped: Box<[u8]>,
    len: usize,
}

impl Objects {
    /// Takes in a record.
    pub(crate) fn put(&mut self, record: KmipObjectRecord, mark: Mark) {
        let KmipObjectRecord { attempt, object, wrapped, len } = record;
        self.count_off(&object.uid);
        let usage = self.usage.entry(object.domain.clone()).or_default();
        usage.objects += u64::from(object.material() == Material::Kept);
        usage.bytes += len as u64;
        self.kept.insert(object.uid.clone(), Kept { mark, attempt, wrapped, len });
        self.index.put(Arc::new(object), mark.revision);
    }

    /// Takes out a record.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.count_off(uid);
        self.index.remove(uid);
        self.kept.remove(uid);
    }

    fn count_off(&mut self, uid: &str) {
        let (Some(kept), Some(stored)) = (self.kept.get(uid), self.index.find(uid)) else { return };
        let Some(usage) = self.usage.get_mut(&stored.object.domain) else { return };
        usage.objects -= u64::from(stored.object.material() == Material::Kept);
        usage.bytes -= kept.len as u64;
        if *usage == Usage::default() {
            self.usage.remove(&stored.object.domain);
        }
    }

    /// What the objects of a domain take: counted as they change.
    pub fn usage(&self, domain: &str) -> Usage {
        self.usage.get(domain).copied().unwrap_or_default()
    }

    /// How long the record of an object is; 0 where there is none.
    pub fn record_len(&self, uid: &str) -> usize {
        self.kept.get(uid).map_or(0, |kept| kept.len)
    }

    /// Which version of a record there is.
    pub(crate) fn mark(&self, uid: &str) -> Option<Mark> {
        self.kept.get(uid).map(|kept| kept.mark)
    }

    /// The same, to be changed.
    pub(crate) fn mark_mut(&mut self, uid: &str) -> Option<&mut Mark> {
        self.kept.get_mut(uid).map(|kept| &mut kept.mark)
    }

    /// How many objects there are, destroyed ones too.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The Unique Identifiers of those that have material, in no order.
    pub(crate) fn with_material(&self) -> impl Iterator<Item = &str> {
        self.kept.iter().filter(|(_, kept)| !kept.wrapped.is_empty()).map(|(uid, _)| uid.as_str())
    }

    /// The material of an object, wrapped, and the commit that put it there; none for one that has no material any
    /// more.
    pub(crate) fn wrapped(&self, uid: &str) -> Option<(&[u8], Mark)> {
        self.kept.get(uid).filter(|kept| !kept.wrapped.is_empty()).map(|kept| (&*kept.wrapped, kept.mark))
    }

    /// Whether an attempt to commit these changes succeeded and nothing was changed since.
    pub fn has(&self, attempt: Attempt, changes: &[ObjectChange]) -> bool {
        changes.iter().any(|change| self.kept.get(&change.object().uid).is_some_and(|kept| kept.attempt == attempt))
    }

    /// The records that make changes true.
    pub fn records(
        &self,
        changes: &[ObjectChange],
        attempt: Attempt,
        keys: &ClusterKeys,
    ) -> Result<Vec<(Path, Vec<u8>)>, ObjectError> {
        let record = |change: &ObjectChange| {
            let object: &ManagedObject = change.object();
            let wrapped = match change {
                ObjectChange::Insert { material: Some(material), .. } => wrap(keys, &object.uid, material)?,
                ObjectChange::Replace { .. } => {
                    self.kept.get(&object.uid).map(|kept| kept.wrapped.clone()).unwrap_or_default()
                }
                ObjectChange::Insert { material: None, .. } | ObjectChange::Destroy { .. } => Box::default(),
            };
            Ok((Path::Kmip(object.uid.clone()), KmipObjectRecord::encode(attempt, object, &wrapped)))
        };
        changes.iter().map(record).collect()
    }

    /// The objects with what opens their material.
    pub fn open<'a>(&'a self, keys: &'a ClusterKeys) -> OpenObjects<'a> {
        OpenObjects { objects: self, keys }
    }
}

/// What decisions about objects read: all of one moment, as long as the state is borrowed.
#[derive(Clone, Copy)]
pub struct OpenObjects<'a> {
    objects: &'a Objects,
    keys: &'a ClusterKeys,
}

impl ObjectStore for OpenObjects<'_> {
    fn find(&self, uid: &str) -> Option<Stored> {
        self.objects.index.find(uid).cloned()
    }

    fn material(&self, uid: &str) -> Result<Option<Arc<KeyMaterial>>, MaterialUnavailable> {
        let Some(kept) = self.objects.kept.get(uid).filter(|kept| !kept.wrapped.is_empty()) else { return Ok(None) };
        let material = unwrap(self.keys, uid, &kept.wrapped);
        let unavailable = |error| MaterialUnavailable { uid: uid.to_owned(), source: Box::new(error) };
        material.map(|material| Some(Arc::new(material))).map_err(unavailable)
    }

    fn visit(&self, domain: &str, terms: &[Term], visitor: &mut dyn FnMut(&Stored)) {
        self.objects.index.visit(domain, terms, visitor);
    }
}
