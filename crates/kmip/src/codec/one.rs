//! KMIP 1.x: attributes by name, with an index and a value (KMIP 1.4, section 2.1.1).

use std::borrow::Cow;

use super::{Given, Instance, Wanted, checked, unknown};
use crate::enumeration::ResultReason;
use crate::fields::{Fields, Required};
use crate::object::{Attribute, Named, named, shared_name};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;

/// Reads an `Attribute`, as messages and the templates that are kept have it.
pub(crate) fn read(item: &Item) -> Result<Given, Refused> {
    Ok(numbered(item)?.1)
}

/// An `Attribute` with its index, if it has one.
fn numbered(item: &Item) -> Result<(Option<u32>, Given), Refused> {
    let name = item.text(Tag::ATTRIBUTE_NAME)?.required(Tag::ATTRIBUTE_NAME)?;
    let rule = rule(name)?;
    let index = match item.integer(Tag::ATTRIBUTE_INDEX)? {
        None => None,
        Some(index) => Some(instance(index)?),
    };
    let value = &item.child(Tag::ATTRIBUTE_VALUE).required(Tag::ATTRIBUTE_VALUE)?.value;
    Ok((index, checked(shared_name(name), value, rule)?))
}

/// The rule of an attribute that some version of 1.x has: what a later one brought is taken of older clients too.
fn rule(name: &str) -> Result<Named, Refused> {
    match named(name) {
        Some(Named::Standard(rule)) if rule.since < Version::V2_0 => Ok(Named::Standard(rule)),
        Some(rule @ (Named::Custom | Named::Server)) => Ok(rule),
        Some(Named::Standard(_) | Named::Vendor) | None => Err(unknown(name)),
    }
}

fn instance(index: i32) -> Result<u32, Refused> {
    u32::try_from(index).map_err(|_| Refused::field("a negative Attribute Index"))
}

pub(super) fn wanted(payload: &Item) -> Result<Wanted, Refused> {
    let Some(items) = payload.structure(Tag::TEMPLATE_ATTRIBUTE)? else { return Ok(Wanted::default()) };
    let templates = items.iter().filter(|item| item.tag == Tag::NAME).map(|item| item.value.clone()).collect();
    let own = items.iter().filter(|item| item.tag == Tag::ATTRIBUTE).map(read).collect::<Result<_, _>>()?;
    Ok(Wanted { templates, own })
}

pub(super) fn criteria(payload: &Item) -> Result<Vec<Given>, Refused> {
    payload.items().iter().filter(|item| item.tag == Tag::ATTRIBUTE).map(read).collect()
}

pub(super) fn names(structure: &Item) -> Result<Vec<Cow<'static, str>>, Refused> {
    let names = structure.items().iter().filter(|item| item.tag == Tag::ATTRIBUTE_NAME);
    names
        .map(|item| match &item.value {
            Value::TextString(name) => Ok(shared_name(name)),
            _ => Err(Refused::message("Attribute Name is of another type")),
        })
        .collect()
}

pub(super) fn added(payload: &Item) -> Result<Given, Refused> {
    match numbered(payload.child(Tag::ATTRIBUTE).required(Tag::ATTRIBUTE)?)? {
        (None, given) => Ok(given),
        (Some(_), _) => Err(Refused::field("the Attribute Index of what is added is the server's to choose")),
    }
}

pub(super) fn modified(payload: &Item) -> Result<(Instance, Given), Refused> {
    let (index, given) = numbered(payload.child(Tag::ATTRIBUTE).required(Tag::ATTRIBUTE)?)?;
    Ok((Instance::Numbered(index.unwrap_or(0)), given))
}

pub(super) fn deleted(payload: &Item) -> Result<(Cow<'static, str>, Instance), Refused> {
    let name = payload.text(Tag::ATTRIBUTE_NAME)?.required(Tag::ATTRIBUTE_NAME)?;
    rule(name)?;
    let index = instance(payload.integer(Tag::ATTRIBUTE_INDEX)?.unwrap_or(0))?;
    Ok((shared_name(name), Instance::Numbered(index)))
}

pub(super) fn show(attribute: &Attribute, version: Version) -> Item {
    let mut item = attribute.item();
    // The Digest of 1.0 does not say of which Key Format Type it is.
    if version < Version::V1_1
        && attribute.name == "Digest"
        && let Value::Structure(fields) = &mut item.value
        && let Some(Value::Structure(digest)) = fields.last_mut().map(|value| &mut value.value)
    {
        digest.retain(|field| field.tag != Tag::KEY_FORMAT_TYPE);
    }
    item
}

pub(super) fn show_name(name: &str) -> Item {
    Item::text(Tag::ATTRIBUTE_NAME, name)
}

/// The reasons of 2.x in the words of 1.4 (section 11), and those of 1.4 in the words of the versions before it.
pub(super) fn reason(reason: ResultReason, version: Version) -> ResultReason {
    use ResultReason as R;
    match reason {
        R::ObjectNotFound
        | R::ObjectDestroyed
        | R::WrappingObjectNotFound
        | R::WrappingObjectDestroyed
        | R::AttributeNotFound
        | R::AttributeInstanceNotFound => R::ItemNotFound,
        R::WrongKeyLifecycleState | R::AttributeReadOnly | R::IncompatibleCryptographicUsageMask => R::PermissionDenied,
        R::AttributeSingleValued | R::MultiValuedAttribute | R::IllegalObjectType | R::KeyWrapTypeNotSupported => {
            R::IllegalOperation
        }
        R::UnsupportedAttribute
        | R::InvalidAttributeValue
        | R::ReadOnlyAttribute
        | R::NonUniqueNameAttribute
        | R::NumericRange
        | R::InvalidDataType
        | R::ProtectionStorageUnavailable => R::InvalidField,
        R::UnsupportedProtocolVersion => R::InvalidMessage,
        R::Sensitive | R::NotExtractable | R::ObjectAlreadyExists if version < Version::V1_4 => R::PermissionDenied,
        R::KeyValueNotPresent | R::AttestationRequired | R::AttestationFailed if version < Version::V1_2 => {
            R::PermissionDenied
        }
        R::EncodingOptionError if version < Version::V1_1 => R::InvalidField,
        reason => reason,
    }
}
