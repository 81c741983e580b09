//! An object, as its client and users see it.

use capstan_catalog::{Object, ObjectStatus};
use capstan_client::restores::OwnObject;

/// Objects that are listed, the latest.
pub(super) const OBJECTS_MAX: usize = 10_000;

pub(super) fn own_object(object: &Object) -> OwnObject {
    OwnObject {
        object: object.id.to_string(),
        source: String::from_utf8_lossy(&object.source).into_owned(),
        policy: object.policy.clone(),
        is_full: object.base.is_none(),
        tags: object.tags.clone(),
        is_complete: object.status == ObjectStatus::Complete,
        started_ns: object.started_ns,
        files: object.counts.map(|counts| counts.files),
        bytes: object.counts.map(|counts| counts.bytes),
    }
}
