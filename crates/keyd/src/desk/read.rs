//! Keys that are given out to read with, and keys out of their records: nothing is changed by either.

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{IssuedKey, KeyError, KeyPlace, KeyRecord, KeyState, KeyUse, Name, Refusal, StoredKey, VolumeKey};

use super::{DeskError, open_pool_key};
use crate::path::Path;
use crate::record::{IssuedRecord, Origin, PoolKey};
use crate::root::ClusterKeys;
use crate::state::View;

/// A key to read a volume with, for a drive that `by` asks for.
///
/// Errors: those of `capstan_keys::Realm::check_reading`, and the key is not there, destroyed, or does not open.
pub fn read(
    view: View<'_>,
    keys: &ClusterKeys,
    (by, drive): (&Name, &Name),
    (volser, tag): (&Volser, &KeyTag),
    now_ns: i64,
) -> Result<(IssuedRecord, VolumeKey), DeskError> {
    let Some(record) = view.key(tag) else {
        let missing = || KeyError::KeyMissing { place: KeyPlace::Cluster, tag: *tag, volser: Some(volser.clone()) };
        let (record, key) = recovered(view, keys, by, (volser, tag))?.ok_or_else(missing)?;
        for agent in [drive, by] {
            let agent = view.ledger().realm().agent(agent);
            if !agent.may_use(&record.issued.group) {
                return Err(Refusal::GroupNotAllowed { agent: agent.name, group: record.issued.group }.into());
            }
        }
        return Ok((record, key));
    };
    let key = open(view, keys, record)?;
    let holdings = view.holdings(Some(record.volser()), Some(tag));
    for agent in [drive, by] {
        holdings.check_reading(&view.ledger().realm().agent(agent), &record.stored.record, now_ns)?;
    }
    Ok((record.clone(), key))
}

/// A key that a restore has kept because it may have been given out after the backup was made: a volume that names it proves that it was. Of
/// which group it was is not known any more, nor which cipher: it counts as one of `default`, for AES-256-GCM.
fn recovered(
    view: View<'_>,
    keys: &ClusterKeys,
    by: &Name,
    (volser, tag): (&Volser, &KeyTag),
) -> Result<Option<(IssuedRecord, VolumeKey)>, DeskError> {
    let path = Path::recovered(tag).to_string();
    let Some(kept) = view.ledger().other(&path).and_then(|bytes| PoolKey::decode(bytes).ok()) else { return Ok(None) };
    let algorithm = Algorithm::Aes256Gcm;
    let altered = || DeskError::PoolKey { kma: Name::default(), tag: *tag };
    let key = open_pool_key(keys, *tag, algorithm, &kept.wrapped)?.ok_or_else(altered)?;
    let record = KeyRecord {
        tag: *tag,
        volser: volser.clone(),
        algorithm,
        state: KeyState::ProcessOnly,
        created_ns: kept.created_ns,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: None,
        imported_ns: None,
    };
    let issued = IssuedKey {
        tag: *tag,
        group: Name::default(),
        issued_for: KeyUse::Elsewhere,
        issued_ns: kept.created_ns,
        dropped_ns: None,
    };
    let origin = Origin { request: [0; 16], agent: by.clone(), kma: Name::default() };
    let stored = StoredKey { record, wrapped: Some(kept.wrapped) };
    Ok(Some((IssuedRecord { stored, issued, origin }, key)))
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
    let group = view.ledger().group(name).ok_or_else(|| Refusal::UnknownGroup { group: name.clone() })?;
    Ok(keys.group_key(name, &group.wrapped)?.unwrap(known.tag, known.algorithm, wrapped)?)
}
