//! Keys that a lost node may have given out: a volume names one, and an officer confirms of which group it is.
//!
//! ```text
//!  recovered/TAG    a key of the pool of a lost node; whether it was given out, and for what, nobody knows
//!      | Claim      an agent met a volume that names it
//!  key/TAG          on record as one of that volume, in the group `unconfirmed-keys`: listed, counted, proved, destroyed as any key,
//!      |            given to no agent, and in no export
//!      | Confirm    an officer says of which volume and group it is; or the lost node's journal, where a copy of it turns up, does
//!  key/TAG          a key as any other
//! ```
//! A key that is given to whoever asks first would go to agents that may not use its group: nobody but people knows of
//! which it is. A name of a key says nothing of its volume either, so whoever confirms may name another volume than the
//! agent did.

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keys::{
    Holdings, KeyError, KeyGroup, KeyPlace, KeyRecord, KeyState, KnownPolicy, Name, Permission, Policy, RuleRefusal,
    StoredKey, VolumeKey, WrappedKey,
};

use super::{DeskError, open, open_pool_key, recovered};
use crate::record::{is_unconfirmed, unconfirmed_group};
use crate::root::ClusterKeys;
use crate::state::View;

/// Puts a key on record that a volume names. One that is on record stays as it is.
pub(super) fn claim(
    view: View<'_>,
    keys: &ClusterKeys,
    holdings: &mut Holdings,
    (volser, tag, group_key): (&Volser, &KeyTag, &WrappedKey),
) -> Result<Option<Name>, DeskError> {
    if view.key(tag).is_some() {
        return Ok(None);
    }
    let (record, key) = opened(view, keys, volser, tag)?;
    let name = unconfirmed_group();
    let group = view.ledger().group(&name).map(|group| group.wrapped);
    if group.is_none() {
        let kept =
            Policy { export: Permission::Forbidden, import: Permission::Forbidden, ..Policy::unlimited(name.clone()) };
        holdings.put_policy(kept, KnownPolicy::Replaced)?;
        holdings.put_group(KeyGroup { name: name.clone(), policy: name.clone() })?;
    }
    let wrapped = keys.group_key(&name, group.as_ref().unwrap_or(group_key))?.wrap(&key)?;
    holdings.put_on_record(StoredKey { record, wrapped: Some(wrapped) }, &name);
    Ok(Some(name))
}

/// Makes a key one of a volume and a group, under the key of that group. It may be said again, and not otherwise.
pub(super) fn confirm(
    view: View<'_>,
    keys: &ClusterKeys,
    holdings: &mut Holdings,
    (volser, tag, name): (&Volser, &KeyTag, &Name),
) -> Result<Option<Name>, DeskError> {
    let unknown = || RuleRefusal::UnknownGroup { group: name.clone() };
    let group = view.ledger().group(name).filter(|_| !is_unconfirmed(name)).ok_or_else(unknown)?;
    let required = view.ledger().realm().policy_of(name)?.algorithm;
    let (record, key) = match view.key(tag) {
        Some(known) if is_unconfirmed(&known.issued.group) => (known.stored.record.clone(), open(view, keys, known)?),
        Some(known) if known.volser() == volser && known.issued.group == *name => return Ok(None),
        Some(known) => {
            let (volser, group) = (known.volser().clone(), known.issued.group.clone());
            return Err(DeskError::Confirmed { tag: *tag, volser, group });
        }
        None => opened(view, keys, volser, tag)?,
    };
    let wrapped = keys.group_key(name, &group.wrapped)?.wrap(&key)?;
    // No record says which cipher it was drawn for: all are for one unless a policy says otherwise.
    let algorithm = required.unwrap_or(record.algorithm);
    let record = KeyRecord { volser: volser.clone(), algorithm, ..record };
    holdings.put_on_record(StoredKey { record, wrapped: Some(wrapped) }, name);
    Ok(Some(name.clone()))
}

/// A key that was kept, out of its record of a pool.
fn opened(
    view: View<'_>,
    keys: &ClusterKeys,
    volser: &Volser,
    tag: &KeyTag,
) -> Result<(KeyRecord, VolumeKey), DeskError> {
    let missing = || KeyError::KeyMissing { place: KeyPlace::Cluster, tag: *tag, volser: Some(volser.clone()) };
    let kept = recovered(view.ledger(), tag).ok_or_else(missing)?;
    let algorithm = Algorithm::Aes256Gcm;
    let altered = || DeskError::PoolKey { kma: Name::default(), tag: *tag };
    let key = open_pool_key(keys, *tag, algorithm, &kept.wrapped)?.ok_or_else(altered)?;
    let record = KeyRecord {
        tag: *tag,
        volser: volser.clone(),
        algorithm,
        // It may have been given out long ago: it reads, and encrypts nothing more.
        state: KeyState::ProcessOnly,
        created_ns: kept.created_ns,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: None,
        imported_ns: None,
    };
    Ok((record, key))
}
