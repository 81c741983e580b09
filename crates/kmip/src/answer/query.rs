//! Query and Discover Versions.

use super::batch::{Batch, operations};
use super::fields::{Fields, Required};
use super::{Refused, VERSIONS, Version};
use crate::enumeration::{ObjectType, Operation, QueryFunction};
use crate::ttlv::{Item, Tag, Value};

/// What kinds of object are kept.
pub(crate) const OBJECT_TYPES: [ObjectType; 4] =
    [ObjectType::SymmetricKey, ObjectType::Template, ObjectType::SecretData, ObjectType::OpaqueObject];

pub(crate) fn query(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let mut asked = Vec::new();
    for item in payload.items().iter().filter(|item| item.tag == Tag::QUERY_FUNCTION) {
        let Value::Enumeration(number) = item.value else {
            return Err(Refused::message("Query Function is of another type"));
        };
        let function = QueryFunction::from_number(number)
            .ok_or_else(|| Refused::field(format!("Query Function {number:#x} is not known")))?;
        if !asked.contains(&function) {
            asked.push(function);
        }
    }
    if asked.is_empty() {
        return Err(Refused::message("Query Function is missing"));
    }
    // The answers come in the order of the standard's table, whatever was asked first.
    asked.sort_unstable();
    Ok(asked.into_iter().flat_map(|function| tell(batch, function)).collect())
}

fn tell(batch: &Batch<'_>, function: QueryFunction) -> Vec<Item> {
    match function {
        QueryFunction::Operations => {
            operations(batch.version).map(|operation: Operation| Item::enumeration(Tag::OPERATION, operation)).collect()
        }
        QueryFunction::Objects => OBJECT_TYPES.iter().map(|kind| Item::enumeration(Tag::OBJECT_TYPE, *kind)).collect(),
        QueryFunction::ServerInformation => vec![
            Item::text(Tag::VENDOR_IDENTIFICATION, concat!("Capstan ", env!("CARGO_PKG_VERSION"))),
            Item::structure(Tag::SERVER_INFORMATION, Vec::new()),
        ],
        QueryFunction::Rngs if batch.version.minor >= 3 => vec![super::create::generator(Tag::RNG_PARAMETERS)],
        QueryFunction::Capabilities if batch.version.minor >= 3 => {
            let flag = |tag, value| Item::new(tag, Value::Boolean(value));
            let mut flags = vec![
                flag(Tag::STREAMING_CAPABILITY, true),
                flag(Tag::ASYNCHRONOUS_CAPABILITY, false),
                flag(Tag::ATTESTATION_CAPABILITY, false),
            ];
            if batch.version.minor >= 4 {
                flags.push(flag(Tag::BATCH_UNDO_CAPABILITY, true));
                flags.push(flag(Tag::BATCH_CONTINUE_CAPABILITY, true));
            }
            vec![Item::structure(Tag::CAPABILITY_INFORMATION, flags)]
        }
        // Any namespace is taken, and none has data made up by the server; the others there are none of.
        QueryFunction::ApplicationNamespaces
        | QueryFunction::ExtensionList
        | QueryFunction::ExtensionMap
        | QueryFunction::AttestationTypes
        | QueryFunction::Rngs
        | QueryFunction::Validations
        | QueryFunction::Profiles
        | QueryFunction::Capabilities
        | QueryFunction::ClientRegistrationMethods => Vec::new(),
    }
}

pub(crate) fn discover_versions(_: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let mut asked = Vec::new();
    for version in payload.items().iter().filter(|item| item.tag == Tag::PROTOCOL_VERSION) {
        let major = version.integer(Tag::PROTOCOL_VERSION_MAJOR)?.required(Tag::PROTOCOL_VERSION_MAJOR)?;
        let minor = version.integer(Tag::PROTOCOL_VERSION_MINOR)?.required(Tag::PROTOCOL_VERSION_MINOR)?;
        asked.push(Version { major, minor });
    }
    let told = VERSIONS.into_iter().filter(|version| asked.is_empty() || asked.contains(version));
    Ok(told.map(Version::item).collect())
}
