//! Which operation goes where.

use super::batch::Batch;
use super::{Permitted, adjust, attributes, create, cryptography, get, life, locate, query, rekey};
use crate::enumeration::{Operation, ResultReason};
use crate::fields::{Fields, Required};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;

/// What an operation answers with.
pub(crate) struct Done {
    pub(crate) operation: Operation,
    pub(crate) payload: Vec<Item>,
}

type Handler = fn(&mut Batch<'_>, &Item) -> Result<Vec<Item>, Refused>;

/// What is done here: the operation, the first version that has it, and who does it.
const OPERATIONS: &[(Operation, Version, Handler)] = &[
    (Operation::Query, Version::V1_0, query::query),
    (Operation::DiscoverVersions, Version::V1_1, query::discover_versions),
    (Operation::Create, Version::V1_0, create::create),
    (Operation::Register, Version::V1_0, create::register),
    (Operation::ReKey, Version::V1_0, rekey::rekey),
    (Operation::Locate, Version::V1_0, locate::locate),
    (Operation::Check, Version::V1_0, life::check),
    (Operation::Get, Version::V1_0, get::get),
    (Operation::GetAttributes, Version::V1_0, attributes::get),
    (Operation::GetAttributeList, Version::V1_0, attributes::list),
    (Operation::AddAttribute, Version::V1_0, attributes::add),
    (Operation::ModifyAttribute, Version::V1_0, attributes::modify),
    (Operation::DeleteAttribute, Version::V1_0, attributes::delete),
    (Operation::SetAttribute, Version::V2_0, attributes::set),
    (Operation::AdjustAttribute, Version::V2_0, adjust::adjust),
    (Operation::Activate, Version::V1_0, life::activate),
    (Operation::Revoke, Version::V1_0, life::revoke),
    (Operation::Destroy, Version::V1_0, life::destroy),
    (Operation::Encrypt, Version::V1_2, cryptography::encrypt),
    (Operation::Decrypt, Version::V1_2, cryptography::decrypt),
    (Operation::Mac, Version::V1_2, cryptography::mac),
    (Operation::MacVerify, Version::V1_2, cryptography::mac_verify),
    (Operation::Hash, Version::V1_2, cryptography::hash),
    (Operation::RngRetrieve, Version::V1_2, cryptography::rng_retrieve),
    (Operation::RngSeed, Version::V1_2, cryptography::rng_seed),
    (Operation::Interop, Version::V2_0, query::interop),
    (Operation::Ping, Version::V2_1, query::ping),
];

/// The operations that a client of this version is told of.
pub(super) fn operations(version: Version) -> Vec<Operation> {
    OPERATIONS.iter().filter(|(_, since, _)| *since <= version).map(|(operation, ..)| *operation).collect()
}

/// Does one item, or leaves everything as it was.
pub(super) fn carry_out(batch: &mut Batch<'_>, item: &Item, permitted: &Permitted) -> Result<Done, Refused> {
    let number = item.number(Tag::OPERATION)?.required(Tag::OPERATION)?;
    let (operation, _, handler) = OPERATIONS
        .iter()
        .find(|(operation, since, _)| u32::from(*operation) == number && *since <= batch.version)
        .ok_or_else(|| Refused::new(ResultReason::OperationNotSupported, "this operation is not done here"))?;
    permitted.check(*operation)?;
    if let Some(extension) = item.child(Tag::MESSAGE_EXTENSION)
        && extension.boolean(Tag::CRITICALITY_INDICATOR)?.unwrap_or(false)
    {
        return Err(Refused::feature("no Message Extension is known here, and this one is said to be critical"));
    }
    let nothing = Item::structure(Tag::REQUEST_PAYLOAD, Vec::new());
    if let Some(payload) = item.child(Tag::REQUEST_PAYLOAD) {
        item.structure(payload.tag)?;
    }
    let payload = item.child(Tag::REQUEST_PAYLOAD).unwrap_or(&nothing);
    let mark = batch.view.mark();
    match handler(batch, payload) {
        Ok(payload) => {
            batch.told.extend(payload.iter().filter_map(|item| match (&item.value, item.tag) {
                (Value::TextString(uid), Tag::UNIQUE_IDENTIFIER) => Some((*operation, uid.clone())),
                _ => None,
            }));
            Ok(Done { operation: *operation, payload })
        }
        Err(refused) => {
            batch.view.back_to(mark);
            Err(refused)
        }
    }
}
