//! Locate: which objects have these attributes.

use std::sync::Arc;

use super::batch::{Batch, uid_item};
use crate::codec::Given;
use crate::fields::Fields;
use crate::lifecycle::Material;
use crate::object::{ManagedObject, Named, PROTECTION_STORAGE_MASK, name_text};
use crate::refusal::Refused;
use crate::term::Term;
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;

/// Most Unique Identifiers in one answer; a client that wants more asks on with Offset Items.
pub(crate) const LOCATED_MAX: usize = 5_000;

/// Bit of the Storage Status Mask: what is at hand. Nothing is ever archived here.
const ON_LINE: i32 = 1;
/// Object Group Member: what was not given to anyone yet.
const GROUP_MEMBER_FRESH: u32 = 1;

pub(crate) fn locate(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let count = |tag| match payload.integer(tag)? {
        None => Ok(None),
        Some(count) => usize::try_from(count).map(Some).map_err(|_| Refused::field(format!("a negative {tag}"))),
    };
    let (items_max, offset) = (count(Tag::MAXIMUM_ITEMS)?, count(Tag::OFFSET_ITEMS)?);
    let on_line = payload.integer(Tag::STORAGE_STATUS_MASK)?.is_none_or(|mask| mask & ON_LINE != 0);
    let fresh = payload.number(Tag::OBJECT_GROUP_MEMBER)? == Some(GROUP_MEMBER_FRESH);
    let wanted = batch.codec.criteria(payload)?;
    let mut found = Vec::new();
    if on_line {
        let mut look = |object: &Arc<ManagedObject>| {
            if (!fresh || object.flag("Fresh")) && has_all(object, &wanted, batch.now_s) {
                found.push((object.date("Initial Date").unwrap_or(0), object.uid.clone()));
            }
        };
        match uid_of(&wanted) {
            Some(uid) => {
                if let Ok(object) = batch.view.find(uid)
                    && object.material() == Material::Kept
                {
                    look(&object);
                }
            }
            None => {
                let terms: Vec<Term> =
                    wanted.iter().filter_map(|wanted| Term::of(&wanted.name, &wanted.value)).collect();
                batch.view.visit(&terms, &mut look);
            }
        }
    }
    // The newest first, as the standard has it, and in the same order on every node.
    found.sort_unstable_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let located = found.len();
    let told: Vec<String> = found
        .into_iter()
        .skip(offset.unwrap_or(0))
        .take(items_max.unwrap_or(usize::MAX).min(LOCATED_MAX))
        .map(|(_, uid)| uid)
        .collect();
    batch.placeholder = match told.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    };
    let mut response = Vec::new();
    if batch.version >= Version::V1_3 && (items_max.is_some() || offset.is_some()) {
        response.push(Item::integer(Tag::LOCATED_ITEMS, i32::try_from(located).unwrap_or(i32::MAX)));
    }
    response.extend(told.iter().map(|uid| uid_item(uid)));
    Ok(response)
}

fn uid_of(wanted: &[Given]) -> Option<&str> {
    wanted.iter().find_map(|wanted| match &wanted.value {
        Value::TextString(uid) if wanted.name == "Unique Identifier" => Some(uid.as_str()),
        _ => None,
    })
}

fn has_all(object: &ManagedObject, wanted: &[Given], now_s: i64) -> bool {
    wanted.iter().all(|one| match (one.name.as_ref(), &one.value) {
        ("Unique Identifier", Value::TextString(uid)) => object.uid == *uid,
        ("Object Type", Value::Enumeration(kind)) => u32::from(object.object_type) == *kind,
        ("State", Value::Enumeration(state)) => u32::from(object.state(now_s)) == *state,
        ("Cryptographic Usage Mask", Value::Integer(mask)) => object.usage_mask() & mask == *mask,
        ("Key Format Type", Value::Enumeration(format)) => object.key_format_type() == Some(*format),
        ("Opaque Data Type", Value::Enumeration(kind)) => object.opaque_data_type() == Some(*kind),
        ("Short Unique Identifier", Value::ByteString(uid)) => object.short_uid() == *uid,
        ("Protection Storage Mask", Value::Integer(mask)) => PROTECTION_STORAGE_MASK & mask == *mask,
        ("Name", value) => object.names().any(|name| Some(name) == name_text(value)),
        (name, Value::DateTime(_)) if matches!(one.rule, Named::Standard(_)) => {
            in_range(object.date(name), wanted, name)
        }
        (name, value) => object.all(name).any(|attribute| matches(&attribute.value, value)),
    })
}

/// One date is the moment; two are the first and the last moment of a time.
fn in_range(date: Option<i64>, wanted: &[Given], name: &str) -> bool {
    let bounds = wanted.iter().filter(|one| one.name == name).filter_map(|one| match one.value {
        Value::DateTime(date) => Some(date),
        _ => None,
    });
    let (first, last) = bounds.fold((i64::MAX, i64::MIN), |(first, last), date| (first.min(date), last.max(date)));
    date.is_some_and(|date| (first..=last).contains(&date))
}

/// Whether a value is the one that is wanted; of a structure, in the fields that are.
fn matches(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Structure(fields), Value::Structure(wanted)) => wanted.iter().all(|field| fields.contains(field)),
        (value, wanted) => value == wanted,
    }
}
