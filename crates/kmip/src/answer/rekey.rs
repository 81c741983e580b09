//! Re-key: a new key in place of another, which passes its name and attributes on.

use super::batch::{Batch, uid_item};
use super::create::{blank, finish, generate, generator, storable};
use super::template;
use crate::enumeration::{KeyFormat, ObjectType, ResultReason, link};
use crate::fields::Fields;
use crate::lifecycle::Material;
use crate::object::{KeyBlock, ManagedObject, name_text};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::view::Weight;

/// What the replacement does not inherit: what is its own, and what the old key has been through (KMIP 1.4, table 172).
const OWN: [&str; 22] = [
    "Digest",
    "Initial Date",
    "Last Change Date",
    "Original Creation Date",
    "Random Number Generator",
    "Fresh",
    "Destroy Date",
    "Compromise Date",
    "Compromise Occurrence Date",
    "Revocation Reason",
    "Archive Date",
    "Link",
    "Always Sensitive",
    "Never Extractable",
    "Usage Limits",
    "Activation Date",
    "Process Start Date",
    "Protect Stop Date",
    "Deactivation Date",
    "Name",
    "Cryptographic Algorithm",
    "Cryptographic Length",
];
/// Those that are copied where no Offset is given.
const COPIED: [&str; 4] = ["Activation Date", "Process Start Date", "Protect Stop Date", "Deactivation Date"];
const DATES: [&str; 3] = ["Process Start Date", "Protect Stop Date", "Deactivation Date"];

pub(crate) fn rekey(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let old = batch.object(payload)?;
    let (Some(algorithm), Some(length_bits), ObjectType::SymmetricKey) =
        (old.algorithm().map(u32::from), old.block.as_ref().and_then(|block| block.length_bits), old.object_type)
    else {
        return Err(Refused::field("only symmetric keys that are created here are re-keyed"));
    };
    if old.material() == Material::Gone {
        return Err(Refused::new(ResultReason::ItemNotFound, "the key was destroyed"));
    }
    let offset_s = payload.interval(Tag::OFFSET)?;
    storable(payload)?;
    let given = template::attributes(batch, payload)?;

    // The old key gives its names up first, so that the new one can have them.
    let mut passed_on = ManagedObject::clone(&old);
    passed_on.remove("Name");
    passed_on.set("Last Change Date", Value::DateTime(batch.now_s));
    batch.view.replace(passed_on.clone(), Weight::Needed);

    let mut new = blank(batch, old.object_type)?;
    template::give(batch, &mut new, &given)?;
    new.set("Cryptographic Algorithm", Value::Enumeration(algorithm));
    new.set("Cryptographic Length", Value::Integer(length_bits));
    let inherited = old.attributes.iter().filter(|attribute| {
        !given.iter().any(|given| given.name == attribute.name) && !OWN.contains(&attribute.name.as_ref())
    });
    new.attributes.extend(inherited.cloned());
    // Those that are given come beside those of the old key.
    for name in old.all("Name") {
        if !new.all("Name").any(|given| name_text(&given.value) == name_text(&name.value)) {
            new.add("Name", name.value.clone());
        }
    }
    // Without an Offset the dates are those of the old key, and say its state.
    for name in COPIED.iter().filter(|_| offset_s.is_none()) {
        if let (None, Some(date)) = (new.date(name), old.date(name)) {
            new.set(name, Value::DateTime(date));
        }
    }
    if let Some(offset_s) = offset_s {
        let activation_s = batch.now_s.saturating_add(i64::from(offset_s));
        new.set("Activation Date", Value::DateTime(activation_s));
        // The other dates keep their distance from the activation.
        if let Some(from_s) = old.date("Activation Date") {
            for (name, date) in DATES.iter().filter_map(|name| Some((name, old.date(name)?))) {
                new.set(name, Value::DateTime(date.saturating_sub(from_s).saturating_add(activation_s)));
            }
        }
    }
    if let Some(Value::Structure(limits)) = old.first("Usage Limits") {
        new.set("Usage Limits", Value::Structure(limits.clone()));
    }
    let linked = |kind: u32, uid: &str| {
        Value::Structure(vec![Item::enumeration(Tag::LINK_TYPE, kind), Item::text(Tag::LINKED_OBJECT_IDENTIFIER, uid)])
    };
    new.add("Link", linked(link::REPLACED_OBJECT, &old.uid));
    new.set("Original Creation Date", Value::DateTime(batch.now_s));
    new.set("Random Number Generator", generator(Tag::RANDOM_NUMBER_GENERATOR).value);
    new.set("Fresh", Value::Boolean(true));
    let material = generate(algorithm, length_bits)?;
    let (algorithm, length_bits) = (Some(algorithm), Some(length_bits));
    new.block = Some(KeyBlock { format: KeyFormat::Raw, algorithm, length_bits, wrapping: None });
    let uid = finish(batch, new, Some(material))?;
    passed_on.add("Link", linked(link::REPLACEMENT_OBJECT, &uid));
    batch.view.replace(passed_on, Weight::Needed);
    Ok(vec![uid_item(&uid)])
}
