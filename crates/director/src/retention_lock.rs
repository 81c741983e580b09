//! When the retention of an object ends, and locked retention: until it ends, nobody has the object forgotten, nor
//! anything that it stands on.
//!
//! The lock is part of the object's record on its volumes, so a catalog that is made anew knows it. It holds for
//! interrupted objects, too: of what a volume that is away completes, the others know no more. While the clock is in
//! doubt it holds whatever anybody says of the clock.

use std::collections::HashMap;

use capstan_catalog::{Catalog, Object, ObjectFilter, ObjectStatus, Promise, Timeline};
use capstan_format::{ObjectId, Volser};

use crate::DirectorError;

/// When the retention of an object ends; `None` for never, and while nobody knows when it was begun.
pub(crate) fn keeps_until(object: &Object, timeline: &Timeline) -> Option<i64> {
    ends_at(object, object.expires_ns, timeline)
}

/// The same where the record of a copy says when: a copy may have a retention of its own.
pub(crate) fn ends_at(object: &Object, expires_ns: i64, timeline: &Timeline) -> Option<i64> {
    let begun = timeline.begun(object.id)?;
    if expires_ns == 0 || !begun.is_bounded {
        return None;
    }
    Some(match begun.doubt {
        None => expires_ns,
        Some(_) => begun.by_ns.saturating_add(expires_ns.saturating_sub(object.started_ns)),
    })
}

/// Until when an object's own retention is locked; the greatest time where nobody knows yet when it was begun. `None`
/// where it is not.
pub(crate) fn locked_until(object: &Object, timeline: &Timeline) -> Option<i64> {
    is_locked_until(object, object.expires_ns, timeline)
}

/// The same for a copy whose record says when it ends.
pub(crate) fn is_locked_until(object: &Object, expires_ns: i64, timeline: &Timeline) -> Option<i64> {
    // A lock without an end is none that anybody can have asked for.
    if !object.is_locked || expires_ns == 0 || object.status == ObjectStatus::Expired {
        return None;
    }
    let clock = timeline.reading();
    let until_ns = ends_at(object, expires_ns, timeline).unwrap_or(i64::MAX);
    (clock.doubt.is_some() || until_ns > clock.now_ns).then_some(until_ns)
}

/// Objects whose retention is locked, and what they stand on; and until when.
#[derive(Debug, Default)]
pub(crate) struct LockedObjects(HashMap<ObjectId, i64>);

impl LockedObjects {
    pub(crate) fn of(catalog: &Catalog, now_ns: i64) -> Result<Self, DirectorError> {
        let objects = catalog.objects(&ObjectFilter::default())?;
        if objects.iter().all(|object| !object.is_locked) {
            return Ok(Self::default());
        }
        let timeline = catalog.timeline(now_ns)?;
        let mut until: HashMap<ObjectId, i64> = HashMap::new();
        // The latest first: an object before what it stands on.
        for object in &objects {
            let own = locked_until(object, &timeline);
            let all = own.into_iter().chain(until.get(&object.id).copied()).max();
            let Some(all) = all else { continue };
            for id in std::iter::once(object.id).chain(object.base) {
                let known = until.entry(id).or_insert(all);
                *known = (*known).max(all);
            }
        }
        Ok(Self(until))
    }

    /// Until when an object must stay.
    pub(crate) fn until(&self, object: ObjectId) -> Option<i64> {
        self.0.get(&object).copied()
    }
}

/// Refuses to take from these objects what a volume holds of them alone, or what is promised of them, while any of them
/// is locked.
pub(crate) fn check_unlocked(
    catalog: &Catalog,
    volser: &Volser,
    (lost, promise): (&[Object], Promise),
    now_ns: i64,
) -> Result<(), DirectorError> {
    let given_up = match promise {
        Promise::Keep => Vec::new(),
        Promise::Drop => catalog.objects_on(volser)?,
    };
    let mut all = lost.iter().chain(&given_up).filter(|object| object.status != ObjectStatus::Expired).peekable();
    if all.peek().is_none() {
        return Ok(());
    }
    let locked = LockedObjects::of(catalog, now_ns)?;
    let held = all.filter_map(|object| Some((locked.until(object.id)?, object.id)));
    match held.max() {
        None => Ok(()),
        Some((until_ns, object)) => Err(DirectorError::RetentionLocked { volser: volser.clone(), object, until_ns }),
    }
}
