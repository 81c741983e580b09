//! KMIP 2.x: attributes by tag, of vendors by name (KMIP 2.1, sections 4.60 and 5).

use std::borrow::Cow;

use super::{Given, Instance, checked, unknown};
use crate::enumeration::ResultReason;
use crate::fields::{Fields, Required};
use crate::object::{Attribute, Named, RULES, Rule, named, shared_name};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};

/// The vendors that stand for what 1.x calls `x-` and `y-`.
const OF_ONE: [&str; 2] = ["x", "y"];

fn of_tag(tag: Tag) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.tag == tag && rule.until.is_none())
}

/// The name within of a vendor's attribute: Vendor Identification and Attribute Name.
fn of_vendor(item: &Item) -> Result<Cow<'static, str>, Refused> {
    let vendor = item.text(Tag::VENDOR_IDENTIFICATION)?.required(Tag::VENDOR_IDENTIFICATION)?;
    let name = item.text(Tag::ATTRIBUTE_NAME)?.required(Tag::ATTRIBUTE_NAME)?;
    let inner = if OF_ONE.contains(&vendor) { format!("{vendor}-{name}") } else { format!("{vendor}:{name}") };
    Ok(Cow::Owned(inner))
}

/// Vendor Identification and Attribute Name of a name within, if it is one of a vendor.
fn vendor_of(name: &str) -> Option<(&str, &str)> {
    let of_one = name.split_once('-').filter(|(vendor, _)| OF_ONE.contains(vendor));
    of_one.or_else(|| name.split_once(':'))
}

fn vendor_items(name: &str) -> Option<Vec<Item>> {
    let (vendor, name) = vendor_of(name)?;
    Some(vec![Item::text(Tag::VENDOR_IDENTIFICATION, vendor), Item::text(Tag::ATTRIBUTE_NAME, name)])
}

/// An attribute: a vendor's in a structure, the standard's under its tag.
fn read(item: &Item) -> Result<Given, Refused> {
    if item.tag == Tag::ATTRIBUTE {
        let name = of_vendor(item)?;
        let rule = named(&name).ok_or_else(|| unknown(&name))?;
        let value = &item.child(Tag::ATTRIBUTE_VALUE).required(Tag::ATTRIBUTE_VALUE)?.value;
        return checked(name, value, rule);
    }
    let rule = of_tag(item.tag).ok_or_else(|| unknown(&item.tag.to_string()))?;
    checked(Cow::Borrowed(rule.name), &item.value, Named::Standard(rule))
}

pub(super) fn attributes(payload: &Item) -> Result<Vec<Given>, Refused> {
    payload.structure(Tag::ATTRIBUTES)?.unwrap_or_default().iter().map(read).collect()
}

/// The one attribute within a structure, if that is there.
fn within(payload: &Item, tag: Tag) -> Result<Option<Given>, Refused> {
    match payload.structure(tag)? {
        None => Ok(None),
        Some([one]) => read(one).map(Some),
        Some(_) => Err(Refused::message(format!("{tag} has one attribute"))),
    }
}

pub(super) fn new_attribute(payload: &Item) -> Result<Given, Refused> {
    within(payload, Tag::NEW_ATTRIBUTE)?.required(Tag::NEW_ATTRIBUTE)
}

pub(super) fn modified(payload: &Item) -> Result<(Instance, Given), Refused> {
    let new = new_attribute(payload)?;
    let instance = match within(payload, Tag::CURRENT_ATTRIBUTE)? {
        None => Instance::Only,
        Some(current) if current.name == new.name => Instance::Valued(current.value),
        Some(_) => return Err(Refused::message("Current Attribute and New Attribute are not the same attribute")),
    };
    Ok((instance, new))
}

pub(super) fn deleted(payload: &Item) -> Result<(Cow<'static, str>, Instance), Refused> {
    if let Some(current) = within(payload, Tag::CURRENT_ATTRIBUTE)? {
        return Ok((current.name, Instance::Valued(current.value)));
    }
    match names(payload)?.into_iter().next() {
        Some(name) => Ok((name, Instance::All)),
        None => Err(Refused::message("there is neither a Current Attribute nor an Attribute Reference")),
    }
}

/// Attribute References: the tag of a standard attribute, or a vendor's name. The Key Wrapping Specification of 2.x
/// still has Attribute Names.
pub(super) fn names(structure: &Item) -> Result<Vec<Cow<'static, str>>, Refused> {
    let mut names = Vec::new();
    for item in structure.items() {
        match (item.tag, &item.value) {
            (Tag::ATTRIBUTE_REFERENCE, Value::Enumeration(tag)) => {
                let tag = Tag(*tag);
                names.push(of_tag(tag).map_or_else(|| Cow::Owned(tag.to_string()), |rule| Cow::Borrowed(rule.name)));
            }
            (Tag::ATTRIBUTE_REFERENCE, Value::Structure(_)) => names.push(of_vendor(item)?),
            (Tag::ATTRIBUTE_NAME, Value::TextString(name)) => names.push(shared_name(name)),
            (Tag::ATTRIBUTE_REFERENCE | Tag::ATTRIBUTE_NAME, _) => {
                return Err(Refused::message(format!("{} is of another type", item.tag)));
            }
            _ => {}
        }
    }
    Ok(names)
}

pub(super) fn show<'a>(attributes: impl Iterator<Item = &'a Attribute>) -> Item {
    let items = attributes.filter_map(|attribute| match named(&attribute.name)? {
        Named::Standard(rule) => Some(Item::new(rule.tag, attribute.value.clone())),
        Named::Custom | Named::Server | Named::Vendor => {
            let mut items = vendor_items(&attribute.name)?;
            items.push(Item::new(Tag::ATTRIBUTE_VALUE, attribute.value.clone()));
            Some(Item::structure(Tag::ATTRIBUTE, items))
        }
    });
    Item::structure(Tag::ATTRIBUTES, items.collect())
}

pub(super) fn show_name(name: &str) -> Option<Item> {
    match named(name)? {
        Named::Standard(rule) => Some(Item::enumeration(Tag::ATTRIBUTE_REFERENCE, rule.tag.0)),
        Named::Custom | Named::Server | Named::Vendor => {
            Some(Item::structure(Tag::ATTRIBUTE_REFERENCE, vendor_items(name)?))
        }
    }
}

/// What 2.x took away: an operation is illegal because of the state that the object is in.
pub(super) fn reason(reason: ResultReason) -> ResultReason {
    match reason {
        ResultReason::IllegalOperation => ResultReason::WrongKeyLifecycleState,
        ResultReason::IndexOutOfBounds => ResultReason::AttributeInstanceNotFound,
        ResultReason::ItemNotFound => ResultReason::ObjectNotFound,
        reason => reason,
    }
}
