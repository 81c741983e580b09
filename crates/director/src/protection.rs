//! What is protected: which objects could be given back in full, as far as the catalog knows.

use std::collections::{BTreeSet, HashMap, HashSet};

use capstan_catalog::{Object, ObjectFilter, ObjectStatus};
use capstan_format::ObjectId;

use crate::DirectorError;
use crate::base::why_gone;
use crate::keys::volumes_without_key;
use crate::repair::{CopyAudit, IncompleteCopy, look};
use crate::site::{Site, locked};

/// What is protected and what is not.
#[derive(Debug, Default)]
pub struct Protection {
    /// Complete objects all of whose blocks are in some copy that can be read and whose keys are there, and so are
    /// those of the objects they stand on. The latest first.
    pub protected: Vec<Object>,
    /// Complete objects of which that is not so: they can be restored in part, or not at all.
    pub unprotected: Vec<Object>,
    /// Complete objects that lack a copy, or a part of one, that was promised, and that no policy of copies makes.
    pub lacking: Vec<ObjectId>,
    /// Whether any copy of a complete object lacks something, whoever makes it.
    pub any_lacking: bool,
    /// Objects that a backup left open, or writes now, and of whose source, on that machine, there is no later complete
    /// one.
    pub open: Vec<Object>,
}

impl Site {
    /// Sorts all living objects by how well they are protected. Asks the catalog only; no volume is looked at.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub fn protection(&self) -> Result<Protection, DirectorError> {
        let of_policies = self.copies_of_policies()?;
        let catalog = locked(&self.catalog);
        let CopyAudit { lacking, whole } = look(&catalog)?;
        let mut readable: HashSet<ObjectId> = catalog.readable_objects()?.into_iter().collect();
        if !volumes_without_key(&catalog)?.is_empty() {
            readable.retain(|object| matches!(why_gone(&catalog, *object), Ok(None)));
        }
        // Of others, parts of several copies may make up a whole.
        let others: BTreeSet<ObjectId> =
            whole.iter().map(|(copy, _)| copy.object).chain(lacking.iter().map(|lack| lack.object.id)).collect();
        for object in others {
            if !readable.contains(&object) && why_gone(&catalog, object)?.is_none() {
                readable.insert(object);
            }
        }
        let objects = catalog.objects(&ObjectFilter::default())?;
        let bases: HashMap<_, _> = objects.iter().map(|object| (object.id, object.base)).collect();
        let mut protection = Protection::default();
        // The latest come first.
        let mut done = HashSet::new();
        for object in objects {
            if object.status != ObjectStatus::Complete {
                // No backup goes on with what is made of others.
                let is_of_backup = object.consolidates.is_none();
                if is_of_backup && !done.contains(&(object.source.clone(), object.client.clone())) {
                    protection.open.push(object);
                }
                continue;
            }
            done.insert((object.source.clone(), object.client.clone()));
            if stands(object.id, &readable, &bases) {
                protection.protected.push(object);
            } else {
                protection.unprotected.push(object);
            }
        }
        protection.any_lacking = !lacking.is_empty();
        let lacks = |lack: &IncompleteCopy| !of_policies.make(&lack.object, &lack.wanted.pool);
        protection.lacking = lacking.into_iter().filter(lacks).map(|lack| lack.object.id).collect();
        protection.lacking.dedup();
        Ok(protection)
    }
}

/// Whether an object and all that it stands on can be read.
fn stands(object: ObjectId, readable: &HashSet<ObjectId>, bases: &HashMap<ObjectId, Option<ObjectId>>) -> bool {
    let mut at = Some(object);
    // A chain that leads back to itself was made up; it has no more links than there are objects.
    for _ in 0..=bases.len() {
        let Some(id) = at else { return true };
        let Some(base) = bases.get(&id).filter(|_| readable.contains(&id)) else { return false };
        at = *base;
    }
    false
}
