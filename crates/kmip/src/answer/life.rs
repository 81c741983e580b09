//! Activate, Revoke, Destroy and Check.

use super::batch::{Batch, uid_item};
use crate::enumeration::{ResultReason, RevocationReasonCode};
use crate::fields::{Fields, Required};
use crate::lifecycle::{LifecycleEvent, State};
use crate::object::{ManagedObject, has_life};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;
use crate::view::Weight;

/// Longest Revocation Message, in bytes.
const MESSAGE_LEN_MAX: usize = 1024;

pub(crate) fn activate(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let mut object = ManagedObject::clone(&*batch.object(payload)?);
    go(batch, &mut object, LifecycleEvent::Activate)?;
    object.set("Activation Date", Value::DateTime(batch.now_s));
    store(batch, object)
}

pub(crate) fn revoke(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let mut object = ManagedObject::clone(&*batch.object(payload)?);
    let reason = payload.child(Tag::REVOCATION_REASON).required(Tag::REVOCATION_REASON)?;
    let code = reason.known(Tag::REVOCATION_REASON_CODE, RevocationReasonCode::from_number)?;
    let code = code.required(Tag::REVOCATION_REASON_CODE)?;
    let words = reason.text(Tag::REVOCATION_MESSAGE)?;
    if words.is_some_and(|words| words.len() > MESSAGE_LEN_MAX) {
        return Err(Refused::field(format!("a Revocation Message has at most {MESSAGE_LEN_MAX} bytes here")));
    }
    let occurred_s = payload.date(Tag::COMPROMISE_OCCURRENCE_DATE)?;
    match code {
        RevocationReasonCode::KeyCompromise | RevocationReasonCode::CaCompromise => {
            go(batch, &mut object, LifecycleEvent::Compromise)?;
            object.set("Compromise Date", Value::DateTime(batch.now_s));
            let occurred_s = occurred_s.or(object.date("Initial Date")).unwrap_or(batch.now_s);
            object.set("Compromise Occurrence Date", Value::DateTime(occurred_s));
        }
        RevocationReasonCode::Unspecified
        | RevocationReasonCode::AffiliationChanged
        | RevocationReasonCode::Superseded
        | RevocationReasonCode::CessationOfOperation
        | RevocationReasonCode::PrivilegeWithdrawn => {
            go(batch, &mut object, LifecycleEvent::Deactivate)?;
            object.set("Deactivation Date", Value::DateTime(batch.now_s));
        }
    }
    let mut kept = vec![Item::enumeration(Tag::REVOCATION_REASON_CODE, code)];
    kept.extend(words.map(|words| Item::text(Tag::REVOCATION_MESSAGE, words)));
    object.set("Revocation Reason", Value::Structure(kept));
    store(batch, object)
}

pub(crate) fn destroy(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let mut object = ManagedObject::clone(&*batch.object(payload)?);
    if has_life(object.object_type) {
        go(batch, &mut object, LifecycleEvent::Destroy)?;
    } else {
        // What has no states is destroyed whenever it is there.
        object.written_state = object.written_state.after(LifecycleEvent::Destroy).map_err(|_| gone())?;
    }
    object.set("Destroy Date", Value::DateTime(batch.now_s));
    object.reduce();
    store(batch, object)
}

/// Moves an object on, from where the calendar has brought it.
fn go(batch: &Batch<'_>, object: &mut ManagedObject, event: LifecycleEvent) -> Result<(), Refused> {
    if !has_life(object.object_type) {
        return Err(Refused::new(ResultReason::IllegalObjectType, "this kind of object has no states"));
    }
    let state = object.state(batch.now_s);
    object.written_state = state.after(event).map_err(|reason| {
        let advice = match (state, event) {
            (State::Active, LifecycleEvent::Destroy) => "revoke it first",
            (State::PreActive, LifecycleEvent::Deactivate) => {
                "activate it first, destroy it, or revoke it for a compromise"
            }
            (State::Destroyed | State::DestroyedCompromised, _) => "its material is gone",
            _ => "there is no way back",
        };
        Refused::new(reason, format!("the object is {state:?}: {advice}"))
    })?;
    Ok(())
}

fn gone() -> Refused {
    Refused::new(ResultReason::ObjectDestroyed, "the object was destroyed before")
}

fn store(batch: &mut Batch<'_>, mut object: ManagedObject) -> Result<Vec<Item>, Refused> {
    object.set("Last Change Date", Value::DateTime(batch.now_s));
    let uid = object.uid.clone();
    batch.view.replace(object, Weight::Needed);
    batch.placeholder = Some(uid.clone());
    Ok(vec![uid_item(&uid)])
}

/// Says which of the wished-for uses the object does not allow, and fails for that from KMIP 2.1 on; nothing is
/// changed.
pub(crate) fn check(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let mut response = vec![uid_item(&object.uid)];
    if let Some(wanted) = payload.long(Tag::USAGE_LIMITS_COUNT)?
        && let Some(Value::Structure(limits)) = object.first("Usage Limits")
    {
        let left = limits.as_slice().long(Tag::USAGE_LIMITS_COUNT)?.unwrap_or(0);
        if left < wanted {
            response.push(Item::new(Tag::USAGE_LIMITS_COUNT, Value::LongInteger(left)));
        }
    }
    if let Some(wanted) = payload.integer(Tag::CRYPTOGRAPHIC_USAGE_MASK)? {
        let mask = object.usage_mask();
        if mask & wanted != wanted {
            if batch.version >= Version::V2_1 {
                let why = "the object does not allow this use";
                return Err(Refused::new(ResultReason::IncompatibleCryptographicUsageMask, why));
            }
            response.push(Item::integer(Tag::CRYPTOGRAPHIC_USAGE_MASK, mask));
        }
    }
    let lease = object.shown(batch.now_s).into_iter().find(|attribute| attribute.name == "Lease Time");
    if let (Some(wanted), Some(Value::Interval(lease))) =
        (payload.interval(Tag::LEASE_TIME)?, lease.map(|attribute| attribute.value))
        && lease < wanted
    {
        response.push(Item::new(Tag::LEASE_TIME, Value::Interval(lease)));
    }
    batch.placeholder = Some(object.uid.clone());
    Ok(response)
}
