//! Keys that are given out to read with, and keys out of their records: nothing is changed by either.

use capstan_format::{KeyTag, Volser};
use capstan_keys::{KeyError, KeyPlace, Name, RuleRefusal, VolumeKey};

use super::DeskError;
use crate::path::Path;
use crate::record::{IssuedRecord, PoolKey, is_unconfirmed};
use crate::root::ClusterKeys;
use crate::state::{LedgerState, View};

/// A key to read a volume with, for a drive that `by` asks for.
///
/// Errors: those of `capstan_keys::Realm::check_reading`, and the key is not there, not confirmed, destroyed, or does
/// not open.
pub fn read(
    view: View<'_>,
    keys: &ClusterKeys,
    (by, drive): (&Name, &Name),
    (volser, tag): (&Volser, &KeyTag),
    now_ns: i64,
) -> Result<(IssuedRecord, VolumeKey), DeskError> {
    let Some(record) = view.key(tag) else {
        return Err(match recovered(view.ledger(), tag) {
            Some(_) => RuleRefusal::Unconfirmed { volser: volser.clone(), tag: *tag }.into(),
            None => KeyError::KeyMissing { place: KeyPlace::Cluster, tag: *tag, volser: Some(volser.clone()) }.into(),
        });
    };
    if is_unconfirmed(&record.issued.group) && record.stored.wrapped.is_some() {
        return Err(RuleRefusal::Unconfirmed { volser: record.volser().clone(), tag: *tag }.into());
    }
    let key = open(view, keys, record)?;
    let holdings = view.holdings(Some(record.volser()), Some(tag));
    for agent in [drive, by] {
        holdings.check_reading(&view.ledger().realm().agent(agent), &record.stored.record, now_ns)?;
    }
    Ok((record.clone(), key))
}

/// A key, out of its record.
pub fn open(view: View<'_>, keys: &ClusterKeys, record: &IssuedRecord) -> Result<VolumeKey, DeskError> {
    let known = &record.stored.record;
    let Some(wrapped) = &record.stored.wrapped else {
        let (tag, volser) = (known.tag, known.volser.clone());
        let destroyed_ns = known.destroyed_ns.unwrap_or_default();
        return Err(KeyError::KeyDestroyed { tag, volser, destroyed_ns }.into());
    };
    let name = &record.issued.group;
    let group = view.ledger().group(name).ok_or_else(|| RuleRefusal::UnknownGroup { group: name.clone() })?;
    Ok(keys.group_key(name, &group.wrapped)?.unwrap(known.tag, known.algorithm, wrapped)?)
}

/// A key of a pool that was kept to read with, and that no volume has named yet.
pub fn recovered(state: &LedgerState, tag: &KeyTag) -> Option<PoolKey> {
    let kept = state.other(&Path::recovered(tag).to_string()).filter(|_| state.key(tag).is_none())?;
    PoolKey::decode(kept).ok()
}
