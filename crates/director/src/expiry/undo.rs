//! Taking objects back that were forgotten, while their volumes still have them.

use std::collections::HashMap;

use capstan_catalog::{Catalog, CatalogError, Object, ObjectStatus, VolumeState};
use capstan_format::{ObjectId, Volser};

use crate::DirectorError;
use crate::base::why_gone;
use crate::site::{Site, locked};

/// Share of a medium up to which an unexpired volume counts as having room, in percent.
const ROOM_PERCENT: u64 = 90;

/// What came of taking objects back.
#[derive(Debug, Default)]
pub struct Unexpired {
    /// Objects that are there again.
    pub objects: Vec<Object>,
    /// Objects that could not be taken back, and why.
    pub lost: Vec<(Object, String)>,
    /// Volumes that are no longer scratch.
    pub volumes: Vec<Volser>,
}

impl Site {
    /// Takes back that objects were given up, and what they stand on: these, or those of the last run. What has lost a
    /// volume since cannot be taken back, nor what was promised to a pool that is gone, until there is one again.
    ///
    /// # Errors
    /// [`DirectorError::InUse`] if a job has one of the objects. Otherwise the catalog cannot be read or written. What
    /// cannot be taken back is in the report.
    pub fn unexpire(&self, objects: &[ObjectId]) -> Result<Unexpired, DirectorError> {
        let _presence = self.presence()?;
        let wanted = if objects.is_empty() { locked(&self.catalog).last_expired()? } else { objects.to_vec() };
        let _claim = self.claim_to_take_back(&wanted)?;
        let mut catalog = locked(&self.catalog);
        let mut done = Unexpired::default();
        let mut judged: HashMap<ObjectId, Option<String>> = HashMap::new();
        // What comes back with them stands for what it was made of.
        let mut stand_for: HashMap<ObjectId, ObjectId> = HashMap::new();
        for id in &wanted {
            stand_for.extend(catalog.object(*id)?.and_then(|object| Some((object.consolidates?, *id))));
        }
        for object in wanted {
            let mut chain = Vec::new();
            let mut at = Some(object);
            while let Some(record) = at.map(|id| catalog.object(id)).transpose()?.flatten() {
                // What lives is whole or not by its own account; a chain that leads back to itself was made up.
                if record.status != ObjectStatus::Expired || chain.iter().any(|known: &Object| known.id == record.id) {
                    break;
                }
                let is_living = |id: ObjectId| {
                    let found = catalog.object(id)?;
                    Ok::<_, CatalogError>(found.is_some_and(|found| found.status == ObjectStatus::Complete))
                };
                at = match record.made_on.and_then(|base| Some((base, stand_for.get(&base)?))) {
                    Some((base, other)) if !is_living(base)? => Some(*other),
                    _ => record.base,
                };
                chain.push(record);
            }
            // From the base on: what stands on something that is lost is lost with it.
            let mut below: Option<String> = None;
            for record in chain.into_iter().rev() {
                let reason = match judged.get(&record.id) {
                    Some(known) => known.clone(),
                    None => {
                        below.clone().map_or_else(|| why_not_back(&catalog, record.id), |reason| Ok(Some(reason)))?
                    }
                };
                if judged.insert(record.id, reason.clone()).is_none() {
                    match &reason {
                        None => done.objects.push(record),
                        Some(reason) => done.lost.push((record, reason.clone())),
                    }
                }
                below = reason;
            }
        }
        let ids: Vec<_> = done.objects.iter().map(|object| object.id).collect();
        done.volumes = back_from_scratch(&mut catalog, &ids)?;
        catalog.unexpire(&ids)?;
        Ok(done)
    }
}

/// Why an object cannot be taken back, what it stands on aside.
fn why_not_back(catalog: &Catalog, object: ObjectId) -> Result<Option<String>, DirectorError> {
    if let Some(reason) = why_gone(catalog, object)? {
        return Ok(Some(reason));
    }
    let wanted = catalog.wanted_copies(object)?;
    for copy in catalog.copies(object)? {
        let Some(promised) = wanted.iter().find(|wanted| wanted.copy == copy.copy) else { continue };
        let pool = &promised.pool;
        if catalog.pool(pool)?.is_some() {
            continue;
        }
        for volser in &copy.volumes {
            // It would stay scratch.
            if catalog.volume(volser)?.is_some_and(|known| known.pool.is_none()) {
                return Ok(Some(format!(
                    "its pool {pool} was removed. Make it again as it was (`capstan pools add {pool}`), and then undo \
                     the expiry once more"
                )));
            }
        }
    }
    Ok(None)
}

/// Gives volumes of no pool that hold these objects back to the pools that their copies were promised to. One that was
/// set aside while it was scratch stays set aside. Gives those that were scratch.
fn back_from_scratch(catalog: &mut Catalog, objects: &[ObjectId]) -> Result<Vec<Volser>, DirectorError> {
    let mut pools: Vec<(Volser, String)> = Vec::new();
    for object in objects {
        let wanted = catalog.wanted_copies(*object)?;
        for copy in catalog.copies(*object)? {
            let Some(pool) = wanted.iter().find(|wanted| wanted.copy == copy.copy) else { continue };
            pools.extend(copy.volumes.into_iter().map(|volser| (volser, pool.pool.clone())));
        }
    }
    let mut back = Vec::new();
    for (volser, pool) in pools {
        let Some(known) = catalog.volume(&volser)?.filter(|known| known.pool.is_none()) else { continue };
        if catalog.pool(&pool)?.is_none() {
            continue;
        }
        let is_scratch = known.state == VolumeState::Scratch;
        catalog.update_volume(&volser, |volume| {
            if is_scratch {
                // Whether it was full is not known any more; where little room is left, none of it is used.
                let limit = volume.capacity.map_or(u64::MAX, |capacity| capacity / 100 * ROOM_PERCENT);
                volume.state = if volume.written < limit { VolumeState::Filling } else { VolumeState::Full };
            }
            volume.pool = Some(pool);
        })?;
        if is_scratch {
            back.push(volser);
        }
    }
    Ok(back)
}
