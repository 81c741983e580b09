//! Query, Discover Versions, Ping and Interop: what is said of the server itself.

use super::batch::Batch;
use crate::enumeration::{InteropFunction, ObjectType, Operation, QueryFunction};
use crate::fields::{Fields, Required};
use crate::object::PROTECTION_STORAGE_MASK;
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::version::{VERSIONS, Version};

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
        QueryFunction::Operations => (batch.operations)(batch.version)
            .into_iter()
            .map(|operation: Operation| Item::enumeration(Tag::OPERATION, operation))
            .collect(),
        QueryFunction::Objects => {
            let templates = batch.version < Version::V2_0;
            let kept = OBJECT_TYPES.iter().filter(|kind| templates || **kind != ObjectType::Template);
            kept.map(|kind| Item::enumeration(Tag::OBJECT_TYPE, *kind)).collect()
        }
        QueryFunction::ServerInformation => vec![
            Item::text(Tag::VENDOR_IDENTIFICATION, concat!("Capstan ", env!("CARGO_PKG_VERSION"))),
            Item::structure(Tag::SERVER_INFORMATION, Vec::new()),
        ],
        QueryFunction::Rngs if batch.version >= Version::V1_3 => vec![super::create::generator(Tag::RNG_PARAMETERS)],
        QueryFunction::Capabilities if batch.version >= Version::V1_3 => {
            let flag = |tag, value| Item::new(tag, Value::Boolean(value));
            let mut flags = vec![
                flag(Tag::STREAMING_CAPABILITY, true),
                flag(Tag::ASYNCHRONOUS_CAPABILITY, false),
                flag(Tag::ATTESTATION_CAPABILITY, false),
            ];
            if batch.version >= Version::V1_4 {
                flags.push(flag(Tag::BATCH_UNDO_CAPABILITY, true));
                flags.push(flag(Tag::BATCH_CONTINUE_CAPABILITY, true));
            }
            vec![Item::structure(Tag::CAPABILITY_INFORMATION, flags)]
        }
        // No kind of object has defaults.
        QueryFunction::DefaultsInformation if batch.version >= Version::V2_0 => {
            vec![Item::structure(Tag::DEFAULTS_INFORMATION, Vec::new())]
        }
        QueryFunction::StorageProtectionMasks if batch.version >= Version::V2_0 => {
            vec![Item::integer(Tag::PROTECTION_STORAGE_MASK, PROTECTION_STORAGE_MASK)]
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
        | QueryFunction::ClientRegistrationMethods
        | QueryFunction::DefaultsInformation
        | QueryFunction::StorageProtectionMasks => Vec::new(),
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

pub(crate) fn ping(_: &mut Batch<'_>, _: &Item) -> Result<Vec<Item>, Refused> {
    Ok(Vec::new())
}

/// Says yes to the beginning and end of a test, which change nothing. Nobody's test empties a key manager.
pub(crate) fn interop(_: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    match payload.known(Tag::INTEROP_FUNCTION, InteropFunction::from_number)?.required(Tag::INTEROP_FUNCTION)? {
        InteropFunction::Begin | InteropFunction::End => Ok(Vec::new()),
        InteropFunction::Reset => Err(Refused::denied("what is kept here is not taken back for a test")),
    }
}
